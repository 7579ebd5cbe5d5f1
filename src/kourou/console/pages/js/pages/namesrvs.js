/** Name servers: which brokers each knows, configuration, KV configuration. */
import { html, useState } from "../lib/html.js";
import { useLive, useRead } from "../lib/api.js";
import { ChangeDialog } from "../lib/change.js";
import { Commands } from "../lib/command.js";
import { t } from "../lib/i18n.js";
import { pathOf, useQuery } from "../lib/router.js";
import { useCanChange } from "../lib/session.js";
import { Badge, Card, Loaded, Note, PageHead } from "../lib/states.js";
import { ArrayTable } from "../lib/table_data.js";

export default function NamesrvsPage() {
  const read = useLive("/namesrvs", 10);
  const canChange = useCanChange();
  const [change, setChange] = useState(null);
  const edit = (key, value) => setChange({
    title: t("namesrvs.change_key", { key }),
    fields: [{ name: "value", label: key }],
    initial: { value },
    request: (values) => ({ method: "PUT", path: "/namesrvs/config", body: { key, value: values.value ?? "" } }),
    onDone: read.reload,
  });
  return html`
    <${PageHead} title=${t("namesrvs.title")} subtitle=${t("namesrvs.subtitle")}><${Commands} commands=${read.data?.commands} /><//>
    <${Loaded} read=${read}>${(data) => html`
      ${data.differences.length > 0 && html`<${Note} kind="warn"><strong>${t("namesrvs.differences")}</strong><ul>${data.differences.map((text) => html`<li key=${text}>${text}</li>`)}</ul><//>`}
      ${data.items.map((item) => html`<${Namesrv} key=${item.address} item=${item} onEdit=${canChange ? edit : null} />`)}
    `}<//>
    <${KeyValues} onChange=${canChange ? setChange : null} />
    ${change && html`<${ChangeDialog} ...${change} onClose=${() => setChange(null)} />`}`;
}

function Namesrv({ item, onEdit }) {
  const columns = [
    { id: "key", label: t("broker.key"), main: true },
    { id: "value", label: t("broker.value"), wrap: true, render: (row) => html`<code>${row.value}</code>` },
    ...(onEdit ? [{ id: "edit", label: t("broker.change"), sortable: false, render: (row) => html`<button type="button" aria-label=${t("namesrvs.change_key", { key: row.key })} onClick=${() => onEdit(row.key, row.value)}>${t("broker.change")}</button>` }] : []),
  ];
  const state = html`<${Badge} kind=${item.problem ? "bad" : "good"}>${t(item.problem ? "namesrvs.away" : "namesrvs.reachable")}<//>`;
  return html`<${Card} title=${item.address} actions=${state}>
    ${item.problem && html`<p>${item.problem}</p>`}
    <p>${t("namesrvs.brokers")}: ${item.brokers.map((broker) => html`<${BrokerLink} key=${broker} text=${broker} /> `)}</p>
    <details><summary>${t("namesrvs.config")}</summary>
      ${item.config_problem && html`<p>${item.config_problem}</p>`}
      <${ArrayTable} label=${t("namesrvs.config")} rows=${Object.entries(item.config).map(([key, value]) => ({ key, value }))} rowKey=${(row) => row.key} columns=${columns} sort=${{ column: "key", order: "asc" }} />
    </details>
  <//>`;
}

function BrokerLink({ text }) {
  const [, name, id] = text.match(/^[^/]*\/(.*):(\d+)$/) ?? [];
  return name ? html`<a href=${pathOf("brokers", name, id)}>${text}</a>` : text;
}

function KeyValues({ onChange }) {
  const [query, setQuery] = useQuery({ namespace: "", key: "" });
  const [typed, setTyped] = useState(query);
  const read = useRead(query.namespace && query.key ? "/namesrvs/kv" : null, query);
  const look = (event) => {
    event.preventDefault();
    setQuery(typed);
  };
  const set = (value) => onChange({
    title: t(value === null ? "namesrvs.delete_kv" : "namesrvs.set_kv"),
    fields: value === null ? [] : [{ name: "value", label: `${query.namespace} / ${query.key}`, type: "textarea", rows: 3 }],
    initial: { value },
    request: (values) => ({ method: "PUT", path: "/namesrvs/kv", body: { ...query, value: value === null ? null : values.value ?? "" } }),
    dangerous: value === null,
    onDone: read.reload,
  });
  return html`<${Card} title=${t("namesrvs.kv")}>
    <p class="muted">${t("namesrvs.kv_about")}</p>
    <form class="inline-form" onSubmit=${look}>
      <label>${t("namesrvs.namespace")} <input required value=${typed.namespace} onInput=${(event) => setTyped({ ...typed, namespace: event.target.value })} /></label>
      <label>${t("broker.key")} <input required value=${typed.key} onInput=${(event) => setTyped({ ...typed, key: event.target.value })} /></label>
      <button type="submit">${t("namesrvs.look")}</button>
    </form>
    ${query.namespace && query.key && html`<${Loaded} read=${read}>${({ value }) => html`
      <p>${value === null ? t("namesrvs.no_value") : html`<code>${value}</code>`}</p>
      ${onChange && html`<p class="buttons"><button type="button" onClick=${() => set(value ?? "")}>${t("namesrvs.set_kv")}</button>
        ${value !== null && html`<button type="button" class="is-danger" onClick=${() => set(null)}>${t("namesrvs.delete_kv")}</button>`}</p>`}`}<//>`}
  <//>`;
}
