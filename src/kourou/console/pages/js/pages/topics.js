/** Topics: the list, with its filters, and creating, exporting and importing them. */
import { html, useState } from "../lib/html.js";
import { Commands } from "../lib/command.js";
import { number, rate } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { t } from "../lib/i18n.js";
import { KindChoice, useKinds } from "../lib/kinds.js";
import { pathOf, useQuery } from "../lib/router.js";
import { useCanChange } from "../lib/session.js";
import { Badge, Empty, Freshness, PageHead } from "../lib/states.js";
import { ServerTable, useServerTable } from "../lib/table_data.js";
import { SettingFiles } from "./setting_files.js";
import { CreateTopic } from "./topic_changes.js";
import { KindBadge, kindText, MESSAGE_KINDS, permText } from "./topic_parts.js";

const KINDS = [...MESSAGE_KINDS, "RETRY", "DLQ", "SYSTEM"];

export default function TopicsPage() {
  const kinds = useKinds(MESSAGE_KINDS);
  const [query, setQuery] = useQuery({ broker: "" });
  const table = useServerTable({ path: "/topics", seconds: 5, params: { kinds: kinds.value, broker: query.broker } });
  const canChange = useCanChange();
  const [isCreating, create] = useState(false);
  const filters = [
    html`<${KindChoice} kinds=${kinds} label=${t("topics.kinds")} options=${KINDS.map((kind) => [kind, kindText(kind)])} />`,
    query.broker && html`<button type="button" onClick=${() => setQuery({ broker: "" })}>${t("topics.only_broker", { broker: query.broker })}<${Icon} name="cross" label=${t("topics.all_brokers")} /></button>`,
  ];
  return html`
    <${PageHead} title=${t("topics.title")}>
      <${Freshness} read=${table.read} />
      ${canChange && html`<button type="button" class="is-primary" onClick=${() => create(true)}><${Icon} name="plus" />${t("topics.create")}</button>`}
      <${SettingFiles} kind="topics" importLabel=${t("topics.import")} hint=${t("topics.import_hint")} onDone=${table.reload} />
      <${Commands} commands=${table.read.data?.commands} />
    <//>
    <${ServerTable} table=${table} label=${t("topics.title")} columns=${columns()} filters=${filters} rowKey=${(row) => row.topic} searchLabel=${t("topics.search")}
      rowHref=${(row) => pathOf("topics", row.topic)} empty=${html`<${Empty} title=${t("topics.none")} />`} />
    ${isCreating && html`<${CreateTopic} onClose=${() => create(false)} onDone=${table.reload} />`}`;
}

function columns() {
  return [
    { id: "topic", label: t("topics.topic"), main: true },
    { id: "kind", label: t("topics.kind"), render: (row) => html`<${KindBadge} kind=${row.kind} />` },
    { id: "write_queues", label: t("topics.queues"), number: true, hint: t("topics.queues_hint"), render: (row) => queuesText(row) },
    { id: "perm", label: t("topics.perm"), render: (row) => permText(row.perm) },
    { id: "brokers", label: t("topics.brokers"), render: (row) => html`<${Brokers} row=${row} />` },
    { id: "in_tps", label: t("topics.in_tps"), number: true, hint: t("topics.in_tps_hint"), render: (row) => rate(row.in_tps) },
    { id: "groups", label: t("topics.groups"), number: true, render: (row) => (row.groups ? html`<a href=${`/groups?topic=${encodeURIComponent(row.topic)}`}>${number(row.groups)}</a>` : "0") },
    { id: "lag", label: t("topics.lag"), number: true, render: (row) => number(row.lag) },
  ];
}

function queuesText(row) {
  return row.read_queues === row.write_queues ? number(row.write_queues) : t("topics.read_write", { read: number(row.read_queues), write: number(row.write_queues) });
}

function Brokers({ row }) {
  return [row.brokers.join(", "), !row.is_uniform && html` <${Badge} kind="warn">${t("topics.differs")}<//>`];
}
