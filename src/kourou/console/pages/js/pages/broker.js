/** One broker: state, configuration, replication, operations. */
import { html, useState } from "../lib/html.js";
import { useLive } from "../lib/api.js";
import { ChangeDialog } from "../lib/change.js";
import { Commands } from "../lib/command.js";
import { bytes, duration, number, rate } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { pathOf, useQuery } from "../lib/router.js";
import { useCanChange } from "../lib/session.js";
import { Badge, Card, Empty, ErrorBox, Facts, Freshness, Loaded, Note, PageHead, Tile } from "../lib/states.js";
import { ArrayTable, ServerTable, useServerTable } from "../lib/table_data.js";
import { Tabs } from "../lib/tabs.js";
import { Disk, figure, lagText, RoleBadge } from "./brokers.js";

const CLEANUPS = ["expired_consume_queues", "unused_topics", "expired_commit_log"];

export default function BrokerPage({ params }) {
  const path = pathOf("brokers", params.name, params.id);
  const read = useLive(path, 5);
  const canChange = useCanChange();
  const [change, setChange] = useState(null);
  const tabs = [
    { id: "state", label: t("broker.state"), render: () => html`<${State} read=${read} />` },
    { id: "config", label: t("broker.config"), render: () => html`<${Configuration} path=${path} canChange=${canChange} onChange=${setChange} />` },
    { id: "replication", label: t("broker.replication"), render: () => html`<${Replication} read=${read} />` },
    ...(canChange ? [{ id: "operations", label: t("broker.operations"), render: () => html`<${Operations} path=${path} onChange=${setChange} />` }] : []),
  ];
  return html`
    <${PageHead} title=${params.name} subtitle=${read.data && html`<${RoleBadge} broker=${read.data.broker} /> <code>${read.data.broker.address}</code> · ${read.data.broker.version}`}
      back=${{ href: "/brokers", label: t("brokers.title") }}>
      <${Freshness} read=${read} />
      <${Commands} commands=${read.data?.commands} />
    <//>
    ${read.error && !read.data ? html`<${ErrorBox} error=${read.error} onRetry=${read.reload} />` : html`<${Tabs} label=${t("broker.views")} tabs=${tabs} />`}
    ${change && html`<${ChangeDialog} ...${change} onClose=${() => setChange(null)} />`}`;
}

function State({ read }) {
  return html`<${Loaded} read=${read}>${({ broker, runtime }) => html`
    ${broker.problem && html`<${Note} kind="bad">${broker.problem}<//>`}
    <div class="tiles">
      <${Tile} label=${t("brokers.in_tps")} value=${rate(figure(broker, "in_tps"))} detail=${t("broker.today", { count: number(figure(broker, "in_today")) })} />
      <${Tile} label=${t("brokers.out_tps")} value=${rate(figure(broker, "out_tps"))} detail=${t("broker.today", { count: number(figure(broker, "out_today")) })} />
      <${Tile} label=${t("brokers.disk")} value=${html`<${Disk} ratio=${figure(broker, "disk_ratio")} />`} />
      ${broker.role === "slave" && html`<${Tile} label=${t("brokers.lag")} value=${lagText(broker)} />`}
    </div>
    <${Card} flush title=${t("broker.runtime")}>
      <${ArrayTable} searchable label=${t("broker.runtime")} rows=${Object.entries(runtime).map(([key, value]) => ({ key, value }))} rowKey=${(row) => row.key} sort=${{ column: "key", order: "asc" }}
        columns=${[{ id: "key", label: t("broker.key"), main: true }, { id: "value", label: t("broker.value"), wrap: true, render: (row) => html`<code>${row.value}</code>` }]} />
    <//>`}<//>`;
}

function Configuration({ path, canChange, onChange }) {
  const [query, setQuery] = useQuery({ all: "" });
  const table = useServerTable({ path: `${path}/config`, prefix: "c_", params: { with_effect: query.all ? undefined : true } });
  const showAll = html`<label class="check"><input type="checkbox" checked=${Boolean(query.all)} onChange=${(event) => setQuery({ all: event.target.checked ? "1" : "" })} />${t("broker.all_keys")}</label>`;
  const edit = (item) => onChange({
    title: t("broker.change_key", { key: item.key }),
    fields: [
      { name: item.key, label: item.key, hint: [item.doc, item.default && t("broker.default", { value: item.default })].filter(Boolean).join(" · ") },
      { name: "scope", label: t("broker.scope"), type: "select", options: [["broker", t("broker.scope_broker")], ["cluster", t("broker.scope_cluster")]] },
    ],
    initial: { [item.key]: item.value, scope: "broker" },
    request: ({ scope, [item.key]: value }) => ({ method: "PUT", path: `${path}/config`, body: { values: { [item.key]: value ?? "" }, scope } }),
    onDone: table.reload,
  });
  const columns = [
    { id: "key", label: t("broker.key"), main: true },
    { id: "value", label: t("broker.value"), sortable: false, wrap: true, render: (item) => html`<code>${item.value}</code>` },
    { id: "doc", label: t("broker.meaning"), sortable: false, wrap: true },
    { id: "is_live", label: t("broker.effect"), sortable: false, render: (item) => html`<${Effect} item=${item} />` },
    ...(canChange ? [{ id: "edit", label: t("broker.change"), sortable: false, render: (item) => item.is_changeable && html`<button type="button" aria-label=${t("broker.change_key", { key: item.key })} onClick=${() => edit(item)}>${t("broker.change")}</button>` }] : []),
  ];
  return html`<${ServerTable} table=${table} label=${t("broker.config")} columns=${columns} rowKey=${(item) => item.key} searchLabel=${t("broker.search_key")}
    filters=${[showAll, html`<${Commands} commands=${table.read.data?.commands} />`]} />`;
}

function Effect({ item }) {
  if (!item.is_changeable) return html`<${Badge}>${t("broker.fixed")}<//>`;
  return html`<${Badge} kind=${item.is_live ? "good" : "warn"}>${t(item.is_live ? "broker.at_once" : "broker.at_start")}<//>`;
}

function Replication({ read }) {
  return html`<${Loaded} read=${read}>${({ broker, replication, epochs }) => {
    if (!replication) return html`<${Empty} title=${t("broker.no_replication")} />`;
    return html`
      ${broker.role === "master" ? html`<${Slaves} links=${replication.haConnectionInfo ?? []} />` : html`<${Following} client=${replication.haClientRuntimeInfo} broker=${broker} />`}
      ${epochs && html`<${Epochs} entries=${epochs.epochList ?? []} />`}`;
  }}<//>`;
}

function Slaves({ links }) {
  const columns = [
    { id: "addr", label: t("broker.slave"), main: true },
    { id: "slaveAckOffset", label: t("broker.acknowledged"), number: true, render: (link) => number(link.slaveAckOffset) },
    { id: "diff", label: t("brokers.lag"), number: true, render: (link) => bytes(link.diff) },
    { id: "kourouLagMs", label: t("broker.lag_time"), number: true, render: (link) => (link.kourouLagMs === undefined || link.kourouLagMs === null ? "–" : duration(link.kourouLagMs)) },
    { id: "inSync", label: t("broker.in_sync"), render: (link) => html`<${Badge} kind=${link.inSync ? "good" : "warn"}>${t(link.inSync ? "common.yes" : "common.no")}<//>` },
    { id: "transferredByteInSecond", label: t("broker.speed"), number: true, render: (link) => `${bytes(link.transferredByteInSecond)}/s` },
  ];
  return html`<${Card} flush title=${t("broker.slaves")}><${ArrayTable} label=${t("broker.slaves")} rows=${links} rowKey=${(link) => link.addr} columns=${columns} empty=${html`<${Empty} title=${t("broker.no_slaves")} />`} /><//>`;
}

function Following({ client, broker }) {
  return html`<${Card} title=${t("broker.master")}><${Facts} items=${[
    [t("broker.master"), client?.masterAddr],
    [t("brokers.lag"), lagText(broker)],
    [t("broker.max_offset"), number(client?.maxOffset)],
    [t("broker.speed"), `${bytes(client?.transferredByteInSecond)}/s`],
  ]} /><//>`;
}

function Epochs({ entries }) {
  const columns = [
    { id: "epoch", label: t("broker.epoch"), number: true },
    { id: "startOffset", label: t("broker.from_offset"), number: true, render: (entry) => number(entry.startOffset) },
    { id: "endOffset", label: t("broker.to_offset"), number: true, render: (entry) => (entry.endOffset > Number.MAX_SAFE_INTEGER ? t("broker.now") : number(entry.endOffset)) },
  ];
  return html`<${Card} flush title=${t("broker.epochs")}><${ArrayTable} label=${t("broker.epochs")} rows=${entries} rowKey=${(entry) => String(entry.epoch)} columns=${columns} prefix="e_" /><//>`;
}

function Operations({ path, onChange }) {
  const permission = (is_writable) => onChange({
    title: t(is_writable ? "broker.allow_writes" : "broker.stop_writes"),
    request: () => ({ method: "PUT", path: `${path}/write-permission`, body: { is_writable } }),
    dangerous: !is_writable,
  });
  const clean = (what) => onChange({ title: t(`broker.clean_${what}`), request: () => ({ method: "POST", path: `${path}/cleanup`, body: { what } }), dangerous: true });
  return html`<div class="columns">
    <${Card} title=${t("broker.writes")}><p>${t("broker.writes_about")}</p>
      <p class="buttons"><button type="button" onClick=${() => permission(false)}>${t("broker.stop_writes")}</button> <button type="button" onClick=${() => permission(true)}>${t("broker.allow_writes")}</button></p><//>
    <${Card} title=${t("broker.cleanup")}><p>${t("broker.cleanup_about")}</p>
      <p class="buttons">${CLEANUPS.map((what) => html`<button key=${what} type="button" onClick=${() => clean(what)}>${t(`broker.clean_${what}`)}</button> `)}</p><//>
  </div>`;
}
