/** One message: fields, properties, body, the groups that consumed it; delivery to a client, a copy. */
import { html, useState } from "../lib/html.js";
import { useRead } from "../lib/api.js";
import { BodyView } from "../lib/body.js";
import { ChangeDialog } from "../lib/change.js";
import { Commands, CopyButton } from "../lib/command.js";
import { bytes, number } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { pathOf } from "../lib/router.js";
import { useCanChange } from "../lib/session.js";
import { Badge, Card, Empty, Facts, Loaded, Note, PageHead, Time } from "../lib/states.js";
import { Table } from "../lib/table.js";
import { line, visible } from "../lib/visible.js";

const SHOWN_VALUE = 2000;
const TRACK_KINDS = { CONSUMED: "good", CONSUMED_BUT_FILTERED: "info", NOT_CONSUME_YET: "warn", NOT_ONLINE: "warn", UNKNOWN: "bad" };

export default function MessagePage({ params }) {
  const path = pathOf("messages", params.topic, params.id);
  const read = useRead(path);
  const canChange = useCanChange();
  const [dialog, setDialog] = useState(null);
  const message = read.data?.message;
  return html`
    <${PageHead} title=${t("message.title")} subtitle=${message && html`<code>${visible(message.msg_id)}</code>`} back=${{ href: `/messages?topic=${encodeURIComponent(params.topic)}`, label: t("message.of_topic", { topic: params.topic }) }}>
      ${message && html`
        <a class="button" href=${`/trace?id=${encodeURIComponent(message.msg_id)}&topic=${encodeURIComponent(message.topic)}`}>${t("message.trace")}</a>
        ${canChange && html`<button type="button" onClick=${() => setDialog({ kind: "copy" })}>${t("message.copy")}</button>`}
        <${Commands} commands=${read.data.commands} />`}
    <//>
    <${Loaded} read=${read}>${(detail) => html`
      <${Neighbours} detail=${detail} />
      <div class="columns">
        <${Card} title=${t("message.fields")}><${Fields} detail=${detail} /><//>
        <${Card} title=${t("message.properties")} flush><${Properties} properties=${detail.message.properties} /><//>
      </div>
      <${Card} title=${t("message.body")}>
        ${detail.body.problem && html`<${Note} kind="bad">${t("message.not_decompressed", { problem: detail.body.problem })}<//>`}
        ${detail.body.compression && !detail.body.problem && html`<p class="muted">${t("message.decompressed", { kind: detail.body.compression, stored: bytes(detail.body.stored_size), size: bytes(detail.body.size) })}</p>`}
        <${BodyView} base64=${detail.message.body} size=${Number(detail.body.size)} href=${`/api${path}/body`} />
      <//>
      <${Groups} path=${path} canChange=${canChange} onDeliver=${(group) => setDialog({ kind: "deliver", group })} />`}<//>
    ${dialog?.kind === "copy" && html`<${ChangeDialog} title=${t("message.copy")} initial=${{ topic: params.topic }}
      fields=${[{ name: "topic", label: t("message.copy_to"), required: true, hint: t("message.copy_hint") }]}
      request=${(body) => ({ method: "POST", path: `${path}/copy`, body })} onClose=${() => setDialog(null)} result=${(answer) => html`<${Sent} sent=${answer.result} topic=${params.topic} />`} />`}
    ${dialog?.kind === "deliver" && html`<${ChangeDialog} title=${t("message.deliver")} initial=${{ client_id: dialog.group.track.client_id ?? dialog.group.clients[0] }}
      fields=${[{ name: "client_id", label: t("message.client"), type: "select", options: dialog.group.clients.map((id) => [id, id]) }]}
      request=${({ client_id }) => ({ method: "POST", path: `${path}/deliver`, body: { group: dialog.group.track.consumer_group, client_id } })}
      onClose=${() => setDialog(null)} result=${(answer) => html`<${Delivered} result=${answer.result} />`} />`}`;
}

function Neighbours({ detail }) {
  const { message, previous_offset: previous, next_offset: next } = detail;
  const link = (offset, label) => (offset === null
    ? html`<span class="button" aria-disabled="true">${label}</span>`
    : html`<a class="button" href=${pathOf("messages", message.topic, `${message.broker_name}:${message.queue_id}:${offset}`)}>${label}</a>`);
  const queue = `/messages?topic=${encodeURIComponent(message.topic)}&broker=${encodeURIComponent(message.broker_name)}&queue=${message.queue_id}&offset=${message.queue_offset}`;
  return html`<nav class="result-head" aria-label=${t("message.neighbours")}>${link(previous, t("message.previous"))}${link(next, t("message.next"))}<a href=${queue}>${t("message.in_queue")}</a></nav>`;
}

function Fields({ detail }) {
  const { message, flags } = detail;
  const code = (text) => html`<code>${visible(String(text))}</code>`;
  return html`<${Facts} items=${[
    [t("message.topic"), html`<a href=${pathOf("topics", message.topic)}>${message.topic}</a>`],
    [t("messages.id"), html`${code(message.msg_id)} <${CopyButton} text=${message.msg_id} />`],
    [t("message.offset_id"), code(message.offset_msg_id)],
    [t("messages.tag"), message.tags === null ? null : line(message.tags, 200)],
    [t("messages.keys"), message.keys === null ? null : line(message.keys, 200)],
    [t("messages.broker"), message.broker_name],
    [t("messages.queue"), number(message.queue_id)],
    [t("messages.offset"), number(message.queue_offset)],
    [t("messages.stored"), html`<${Time} ms=${message.store_timestamp} withMilliseconds />`],
    [t("message.born"), html`<${Time} ms=${message.born_timestamp} withMilliseconds />`],
    [t("message.born_host"), message.born_host],
    [t("message.store_host"), message.store_host],
    [t("message.retries"), number(message.reconsume_times)],
    [t("message.store_size"), bytes(message.store_size)],
    [t("message.phy_offset"), number(message.phy_offset)],
    [t("message.crc"), String(message.body_crc)],
    [t("message.sys_flag"), `${message.sys_flag}${flags.length ? ` (${flags.join(", ")})` : ""}`],
    [t("message.flag"), String(message.flag)],
    [t("message.transaction"), message.transaction_id === null ? null : code(message.transaction_id)],
    [t("message.prepared_offset"), message.transaction_id === null ? null : number(message.prepared_transaction_offset)],
  ]} />`;
}

function Properties({ properties }) {
  const rows = Object.entries(properties).map(([name, value]) => ({ name, value })).sort((a, b) => (a.name < b.name ? -1 : 1));
  const columns = [
    { id: "name", label: t("message.property"), main: true, wrap: true, render: (row) => line(row.name, 200) },
    { id: "value", label: t("message.value"), wrap: true, render: (row) => html`<code>${visible(row.value.slice(0, SHOWN_VALUE))}</code>${row.value.length > SHOWN_VALUE && html` <span class="muted">${t("message.value_cut", { shown: number(SHOWN_VALUE), size: number(row.value.length) })}</span>`} <${CopyButton} text=${row.value} />` },
  ].map((column) => ({ ...column, sortable: false }));
  return html`<${Table} label=${t("message.properties")} columns=${columns} rows=${rows} rowKey=${(row) => row.name} empty=${html`<${Empty} title=${t("message.no_properties")} />`} />`;
}

function Groups({ path, canChange, onDeliver }) {
  const read = useRead(`${path}/groups`);
  const columns = [
    { id: "group", label: t("message.group"), main: true, render: (row) => row.track.consumer_group },
    { id: "state", label: t("message.state"), render: (row) => html`<${Badge} kind=${TRACK_KINDS[row.track.track_type] ?? "plain"}>${t(`message.track_${row.track.track_type}`)}<//>` },
    { id: "offset", label: t("message.group_offset"), number: true, render: (row) => number(row.track.consumer_offset) },
    { id: "client", label: t("message.owner"), render: (row) => row.track.client_id === null ? "–" : html`<a href=${pathOf("groups", row.track.consumer_group, "clients", row.track.client_id)}>${row.track.client_id}</a>` },
    { id: "remark", label: t("message.remark"), wrap: true, render: (row) => row.track.exception_desc ?? "–" },
    ...(canChange ? [{ id: "deliver", label: t("message.actions"), render: (row) => html`<button type="button" disabled=${!row.clients.length} title=${row.clients.length ? undefined : t("message.no_client")} onClick=${() => onDeliver(row)}>${t("message.deliver")}</button>` }] : []),
  ].map((column) => ({ ...column, sortable: false }));
  return html`<${Card} title=${t("message.groups")} flush actions=${html`<button type="button" onClick=${read.reload}>${t("message.refresh")}</button><${Commands} commands=${read.data?.commands} />`}>
    <${Loaded} read=${read} loading=${t("message.finding_groups")}>${(data) => html`<${Table} label=${t("message.groups")} columns=${columns} rows=${data.items} rowKey=${(row) => row.track.consumer_group} rowHref=${(row) => pathOf("groups", row.track.consumer_group)} empty=${html`<${Empty} title=${t("message.no_groups")} />`} />`}<//>
  <//>`;
}

function Delivered({ result }) {
  return html`<${Facts} items=${[
    [t("message.result"), result.consumeResult ?? "–"],
    [t("message.remark"), result.remark ? visible(result.remark.slice(0, SHOWN_VALUE)) : "–"],
    [t("message.spent"), `${number(result.spentTimeMills)} ms`],
  ]} />`;
}

function Sent({ sent, topic }) {
  return html`<${Facts} items=${[
    [t("message.result"), sent.status],
    [t("messages.id"), html`<code>${sent.msg_id}</code>`],
    [t("messages.place"), html`${sent.broker_name} · ${number(sent.queue_id)} · ${number(sent.queue_offset)}`],
    [t("message.topic"), html`<a href=${`/messages?topic=${encodeURIComponent(topic)}`}>${t("message.to_list")}</a>`],
  ]} />`;
}
