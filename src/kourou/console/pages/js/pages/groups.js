/** Consumer groups: the list with lag and members, and creating, exporting and importing them. */
import { html, useState } from "../lib/html.js";
import { Commands } from "../lib/command.js";
import { duration, number, rate } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { t } from "../lib/i18n.js";
import { KindChoice, useKinds } from "../lib/kinds.js";
import { pathOf, useQuery } from "../lib/router.js";
import { useCanChange } from "../lib/session.js";
import { Badge, Empty, Freshness, PageHead } from "../lib/states.js";
import { ServerTable, useServerTable } from "../lib/table_data.js";
import { CreateGroup } from "./group_changes.js";
import { SettingFiles } from "./setting_files.js";
import { KindBadge, kindText } from "./topic_parts.js";

const STANDARD_KINDS = ["NORMAL", "FIFO"];
const KINDS = [...STANDARD_KINDS, "SYSTEM"];

export default function GroupsPage() {
  const kinds = useKinds(STANDARD_KINDS);
  const [query, setQuery] = useQuery({ topic: "" });
  const table = useServerTable({ path: "/groups", seconds: 5, params: { kinds: kinds.value, topic: query.topic } });
  const canChange = useCanChange();
  const [isCreating, create] = useState(false);
  const filters = [
    html`<${KindChoice} kinds=${kinds} label=${t("groups.kinds")} options=${KINDS.map((kind) => [kind, kindText(kind)])} />`,
    query.topic && html`<button type="button" onClick=${() => setQuery({ topic: "" })}>${t("groups.only_topic", { topic: query.topic })}<${Icon} name="cross" label=${t("groups.all_topics")} /></button>`,
  ];
  return html`
    <${PageHead} title=${t("groups.title")}>
      <${Freshness} read=${table.read} />
      ${canChange && html`<button type="button" class="is-primary" onClick=${() => create(true)}><${Icon} name="plus" />${t("groups.create")}</button>`}
      <${SettingFiles} kind="groups" importLabel=${t("groups.import")} hint=${t("groups.import_hint")} onDone=${table.reload} />
      <${Commands} commands=${table.read.data?.commands} />
    <//>
    <${ServerTable} table=${table} label=${t("groups.title")} columns=${columns()} filters=${filters} rowKey=${(row) => row.group} searchLabel=${t("groups.search")}
      rowHref=${(row) => pathOf("groups", row.group)} empty=${html`<${Empty} title=${t("groups.none")} />`} />
    ${isCreating && html`<${CreateGroup} onClose=${() => create(false)} onDone=${table.reload} />`}`;
}

function columns() {
  return [
    { id: "group", label: t("topics.group"), main: true },
    { id: "kind", label: t("topics.kind"), render: (row) => html`<${KindBadge} kind=${row.kind} />` },
    { id: "members", label: t("groups.members"), number: true, sortable: false, render: (row) => html`<${Members} row=${row} />` },
    { id: "lag", label: t("topics.lag"), number: true, render: (row) => number(row.lag) },
    { id: "behind_ms", label: t("groups.behind"), number: true, hint: t("groups.behind_hint"), render: (row) => (row.lag ? duration(row.behind_ms) : "–") },
    { id: "tps", label: t("groups.tps"), number: true, hint: t("groups.tps_hint"), render: (row) => rate(row.tps) },
    { id: "topics", label: t("groups.topics"), number: true, render: (row) => number(row.topics) },
    { id: "version", label: t("groups.version"), sortable: false, hint: t("groups.version_hint"), render: (row) => row.version || "–" },
    { id: "model", label: t("groups.model"), sortable: false, render: (row) => modelText(row) || "–" },
  ];
}

function Members({ row }) {
  if (!row.is_enabled) return html`<${Badge} kind="warn">${t("groups.disabled")}<//>`;
  if (row.members === null) return html`<${Badge} kind="warn">${t("groups.unknown")}<//>`;
  return row.members === 0 ? html`<${Badge}>${t("groups.offline")}<//>` : number(row.members);
}

/** How members consume, in words; empty if none is online. */
export function modelText({ consume_type: type, message_model: model }) {
  return [type && t(`groups.type_${type}`), model && t(`groups.model_${model}`)].filter(Boolean).join(", ");
}
