/** The trace of a message: sends, transaction checks and deliveries as a timeline and as tables. */
import { html } from "../lib/html.js";
import { useRead } from "../lib/api.js";
import { Commands } from "../lib/command.js";
import { number } from "../lib/format.js";
import { t, tn } from "../lib/i18n.js";
import { NamePicker } from "../lib/picker.js";
import { pathOf, useQuery } from "../lib/router.js";
import { Badge, Card, Empty, Freshness, Loaded, Note, PageHead, Problems, Time } from "../lib/states.js";
import { Table } from "../lib/table.js";
import { line } from "../lib/visible.js";
import { QueryForm, TextField, useDraft } from "./message_form.js";
import { kindOf, Timeline } from "./trace_timeline.js";

const SYSTEM_TOPIC = "RMQ_SYS_TRACE_TOPIC";

export default function TracePage() {
  const [query, setQuery] = useQuery({ id: "", key: "", topic: "", trace_topic: SYSTEM_TOPIC });
  const [draft, setDraft] = useDraft(query);
  const change = (name) => (value) => setDraft({ ...draft, [name]: value });
  const isChosen = query.id !== "" || query.key !== "";
  const read = useRead(isChosen ? "/traces" : null, query.id ? { id: query.id, trace_topic: query.trace_topic } : { key: query.key, topic: query.topic, trace_topic: query.trace_topic });
  const submit = () => {
    const values = { ...draft, id: draft.id.trim(), key: draft.id.trim() ? "" : draft.key };
    if (Object.keys(values).every((name) => values[name] === query[name])) read.reload();
    else setQuery(values);
  };
  return html`
    <${PageHead} title=${t("trace.title")} subtitle=${t("trace.subtitle")}><${Freshness} read=${read} /><${Commands} commands=${read.data?.commands} /><//>
    <${QueryForm} onSubmit=${submit} button=${t("trace.show")}>
      <${TextField} label=${t("messages.id")} value=${draft.id} onChange=${change("id")} size="36" />
      <${TextField} label=${t("trace.or_key")} value=${draft.key} onChange=${change("key")} />
      <${NamePicker} label=${t("trace.topic_of_key")} value=${draft.topic} onChange=${change("topic")} path="/topics" nameOf=${(row) => row.topic} />
      <${NamePicker} label=${t("trace.trace_topic")} value=${draft.trace_topic} onChange=${change("trace_topic")} path="/topics" nameOf=${(row) => row.topic} required />
    <//>
    ${isChosen ? html`<${Loaded} read=${read}>${(data) => html`<div class="contents">
      ${data.items.length === 0 && html`<${Empty} title=${t("trace.none")}><p class="muted">${t("trace.none_hint")}</p><//>`}
      ${data.items.map((item) => html`<${Trace} key=${item.trace.msg_id} item=${item} />`)}</div>`}<//>` : html`<${Empty} title=${t("trace.hint")} />`}`;
}

function Trace({ item }) {
  const { trace } = item;
  const title = html`<code>${line(trace.msg_id, 60)}</code> ${item.is_complete ? html`<${Badge} kind="good">${t("messages.complete")}<//>` : html`<${Badge} kind="warn">${t("messages.incomplete")}<//>`}`;
  return html`
    <${Card} title=${title} actions=${trace.topic && html`<a href=${pathOf("topics", trace.topic)}>${trace.topic}</a><a href=${pathOf("messages", trace.topic, trace.msg_id)}>${t("trace.message")}</a>`}>
      <${Problems} problems=${trace.problems} />
      ${trace.sends.length === 0 && html`<${Note}>${t("trace.no_send")}<//>`}
      <${Timeline} trace=${trace} />
    <//>
    <${Sends} trace=${trace} />
    <${Transactions} trace=${trace} />
    <${Recalls} trace=${trace} />
    ${trace.consumers.map((group) => html`<${Attempts} key=${group.consumer_group} group=${group} />`)}`;
}

const timeColumn = (id, label) => ({ id, label, render: (row) => html`<${Time} ms=${row[id]} withMilliseconds />` });
const textColumn = (id, label) => ({ id, label, render: (row) => (row[id] === null || row[id] === "" ? "–" : line(String(row[id]), 80)) });
const statusColumn = () => ({ id: "status", label: t("trace.status"), render: (row) => html`<${Badge} kind=${kindOf(row.status)}>${t(`trace.status_${row.status.replace(" ", "_")}`)}<//>` });
const costColumn = () => ({ id: "cost_ms", label: t("trace.cost"), number: true, render: (row) => (row.cost_ms === null ? "–" : `${number(row.cost_ms)} ms`) });
const plain = (columns) => columns.map((column, i) => ({ ...column, sortable: false, main: i === 0 }));

function Sends({ trace }) {
  if (!trace.sends.length) return null;
  const columns = plain([
    timeColumn("begin_ms", t("trace.begin")), timeColumn("end_ms", t("trace.end")), costColumn(), statusColumn(),
    textColumn("group", t("trace.producer_group")), textColumn("topic", t("messages.topic")), textColumn("keys", t("messages.keys")), textColumn("tags", t("messages.tag")),
    { id: "message_type", label: t("trace.type"), render: (row) => t(`trace.type_${row.message_type}`) },
    textColumn("client_host", t("trace.client")), textColumn("store_host", t("message.store_host")),
    { id: "retry_times", label: t("trace.retries"), number: true, render: (row) => number(row.retry_times) },
    { id: "body_length", label: t("trace.body_length"), number: true, render: (row) => number(row.body_length) },
    textColumn("offset_msg_id", t("message.offset_id")), textColumn("region", t("trace.region")),
  ]);
  return html`<${Card} title=${tn("trace.sends", trace.sends.length)} flush><${Table} label=${t("trace.sends_label")} columns=${columns} rows=${trace.sends} rowKey=${(row) => `${row.begin_ms} ${row.offset_msg_id} ${row.message_type}`} /><//>`;
}

function Transactions({ trace }) {
  if (!trace.transactions.length) return null;
  const columns = plain([
    timeColumn("time_ms", t("trace.time")),
    { id: "state", label: t("trace.state"), render: (row) => html`<${Badge} kind=${kindOf(row.state)}>${row.state}<//>` },
    { id: "is_from_check", label: t("trace.from_check"), render: (row) => t(row.is_from_check ? "common.yes" : "common.no") },
    textColumn("group", t("trace.producer_group")), textColumn("topic", t("messages.topic")), textColumn("transaction_id", t("message.transaction")),
    textColumn("client_host", t("trace.client")), textColumn("store_host", t("message.store_host")),
  ]);
  return html`<${Card} title=${t("trace.transactions")} flush><${Table} label=${t("trace.transactions")} columns=${columns} rows=${trace.transactions} rowKey=${(row) => `${row.time_ms} ${row.state}`} /><//>`;
}

function Recalls({ trace }) {
  if (!trace.recalls.length) return null;
  const columns = plain([timeColumn("time_ms", t("trace.time")), statusColumn(), textColumn("group", t("trace.producer_group")), textColumn("topic", t("messages.topic")), textColumn("client_host", t("trace.client"))]);
  return html`<${Card} title=${t("trace.recalls")} flush><${Table} label=${t("trace.recalls")} columns=${columns} rows=${trace.recalls} rowKey=${(row) => String(row.time_ms)} /><//>`;
}

function Attempts({ group }) {
  const columns = plain([
    timeColumn("begin_ms", t("trace.begin")), timeColumn("end_ms", t("trace.end")), costColumn(), statusColumn(),
    { id: "retry_times", label: t("trace.retries"), number: true, render: (row) => number(row.retry_times) },
    textColumn("client_host", t("trace.client")), textColumn("store_host", t("trace.record_host")), textColumn("request_id", t("trace.request")),
  ]);
  const title = html`${t("trace.group")} <a href=${pathOf("groups", group.consumer_group)}>${group.consumer_group}</a> · ${tn("trace.attempts", group.attempts.length)}`;
  return html`<${Card} title=${title} flush><${Table} label=${t("trace.attempts_label", { group: group.consumer_group })} columns=${columns} rows=${group.attempts} rowKey=${(row) => `${row.begin_ms} ${row.request_id}`} /><//>`;
}
