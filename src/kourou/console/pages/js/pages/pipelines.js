/** Spark pipelines that publish their progress. */
import { html } from "../lib/html.js";
import { useLive } from "../lib/api.js";
import { Commands } from "../lib/command.js";
import { duration, number, rate } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { pathOf } from "../lib/router.js";
import { Badge, Empty, Loaded, PageHead, Time } from "../lib/states.js";
import { ArrayTable } from "../lib/table_data.js";

const KINDS = { running: "good", stopped: "plain", failed: "bad" };

export default function PipelinesPage() {
  const read = useLive("/pipelines", 5);
  return html`
    <${PageHead} title=${t("pipelines.title")} subtitle=${t("pipelines.subtitle")}><${Commands} commands=${read.data?.commands} /><//>
    <${Loaded} read=${read}>${({ items }) => html`
      <${ArrayTable} fill searchable label=${t("pipelines.title")} rows=${items.map((item) => ({ ...item.status, is_silent: item.is_silent }))}
        rowKey=${(row) => row.query_id} columns=${columns()} empty=${html`<${Empty} title=${t("pipelines.none")}><p>${t("pipelines.none_about")}</p><pre>kourou pipeline run FILE.yaml --publish-progress NAMESRV</pre><//>`} />`}<//>`;
}

function columns() {
  return [
    { id: "name", label: t("pipelines.name"), main: true },
    { id: "state", label: t("pipelines.state"), render: (row) => html`<${State} row=${row} />` },
    { id: "topics", label: t("pipelines.topics"), value: (row) => row.topics.join(", "), render: (row) => row.topics.map((topic) => html`<a key=${topic} href=${pathOf("topics", topic)}>${topic}</a> `) },
    { id: "lag_messages", label: t("pipelines.lag"), number: true, render: (row) => number(row.lag_messages) },
    { id: "lag_seconds", label: t("pipelines.behind"), number: true, render: (row) => (row.lag_seconds === null ? "–" : duration(row.lag_seconds * 1000)) },
    { id: "rows_per_second", label: t("pipelines.rate"), number: true, render: (row) => rate(row.rows_per_second) },
    { id: "batch_id", label: t("pipelines.batch"), number: true, render: (row) => number(row.batch_id) },
    { id: "batch_ms", label: t("pipelines.duration"), number: true, render: (row) => (row.batch_ms === null ? "–" : duration(row.batch_ms)) },
    { id: "time_ms", label: t("pipelines.last"), render: (row) => html`<${Time} ms=${row.time_ms} relative />` },
    { id: "host", label: t("pipelines.host") },
  ];
}

function State({ row }) {
  if (row.is_silent) return html`<${Badge} kind="warn">${t("pipelines.silent")}<//>`;
  return html`<span title=${row.error}><${Badge} kind=${KINDS[row.state] ?? "plain"}>${t(`pipelines.${row.state}`)}<//></span>`;
}
