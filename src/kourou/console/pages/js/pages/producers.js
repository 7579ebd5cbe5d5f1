/** Producers: all connected ones by group and client; a lookup by topic for brokers that cannot list them. */
import { html, useState } from "../lib/html.js";
import { useRead } from "../lib/api.js";
import { Commands } from "../lib/command.js";
import { Field } from "../lib/form.js";
import { t } from "../lib/i18n.js";
import { pathOf, useQuery } from "../lib/router.js";
import { Card, Empty, Freshness, Loaded, Note, PageHead, Time } from "../lib/states.js";
import { Table } from "../lib/table.js";
import { ServerTable, useServerTable } from "../lib/table_data.js";
import { BrokerLink } from "./topic_parts.js";

export default function ProducersPage() {
  const table = useServerTable({ path: "/producers", seconds: 5 });
  return html`
    <${PageHead} title=${t("producers.title")} subtitle=${t("producers.subtitle")}>
      <${Freshness} read=${table.read} />
      <${Commands} commands=${table.read.data?.commands} />
    <//>
    ${table.read.data?.problems.length > 0 && html`<${Note}>${t("producers.lookup_instead")}<//>`}
    <${ServerTable} table=${table} label=${t("producers.title")} columns=${columns()} rowKey=${(row) => `${row.group} ${row.client_id}`} searchLabel=${t("producers.search")}
      empty=${html`<${Empty} title=${t("producers.none")} />`} />
    <${Lookup} />`;
}

function columns() {
  return [
    { id: "group", label: t("producers.group"), main: true },
    { id: "client_id", label: t("group.client") },
    { id: "addresses", label: t("group.address"), render: (row) => html`<code title=${row.addresses.join(", ")}>${hosts(row.addresses)}</code>` },
    { id: "language", label: t("group.language") },
    { id: "version", label: t("groups.version") },
    { id: "brokers", label: t("topics.brokers"), render: (row) => row.brokers.map((name, i) => [i > 0 && ", ", html`<${BrokerLink} name=${name} />`]) },
    { id: "last_update_ms", label: t("producers.heartbeat"), render: (row) => html`<${Time} ms=${row.last_update_ms} relative />` },
  ];
}

/** Without ports: a client has a connection to each broker. */
function hosts(addresses) {
  return [...new Set(addresses.map((address) => address.replace(/:\d+$/, "")))].join(", ");
}

function Lookup() {
  const [query, setQuery] = useQuery({ topic: "", group: "" });
  const [values, setValues] = useState({ topic: query.topic, group: query.group });
  const isReady = query.topic && query.group;
  const read = useRead(isReady ? pathOf("producers", query.group) : null, { topic: query.topic });
  const submit = (event) => {
    event.preventDefault();
    setQuery(values);
  };
  const rows = [
    { id: "client_id", label: t("group.client"), main: true },
    { id: "address", label: t("group.address"), render: (client) => html`<code>${client.address}</code>` },
    { id: "language", label: t("group.language") },
    { id: "version", label: t("groups.version") },
  ].map((column) => ({ ...column, sortable: false }));
  return html`<${Card} title=${t("producers.lookup")} actions=${html`<${Commands} commands=${read.data?.commands} />`}>
    <div class="tab-panel"><form onSubmit=${submit} class="filters">
      ${[{ name: "topic", label: t("topics.topic"), required: true }, { name: "group", label: t("producers.group"), required: true }].map((field) => html`<${Field} key=${field.name} field=${field}
        value=${values[field.name]} onChange=${(value) => setValues({ ...values, [field.name]: value })} />`)}
      <button type="submit" disabled=${!values.topic || !values.group}>${t("producers.find")}</button>
    </form>
    ${isReady && html`<${Loaded} read=${read}>${(data) => html`<div class="table-box"><${Table} label=${t("producers.lookup")} columns=${rows} rows=${data.clients} rowKey=${(client) => client.client_id} /></div>`}<//>`}</div>
  <//>`;
}
