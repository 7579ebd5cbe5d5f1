/** Brokers: roles, load, disks, replication. */
import { html } from "../lib/html.js";
import { Commands } from "../lib/command.js";
import { bytes, duration, number, percent, rate } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { pathOf } from "../lib/router.js";
import { Badge, Empty, Freshness, Meter, PageHead } from "../lib/states.js";
import { ServerTable, useServerTable } from "../lib/table_data.js";

const DISK_WARN = 0.75;
const DISK_BAD = 0.85;

export default function BrokersPage() {
  const table = useServerTable({ path: "/brokers", seconds: 5 });
  return html`
    <${PageHead} title=${t("brokers.title")} subtitle=${t("brokers.subtitle")}>
      <${Freshness} read=${table.read} />
      <${Commands} commands=${table.read.data?.commands} />
    <//>
    <${ServerTable} table=${table} label=${t("brokers.title")} columns=${columns()} rowKey=${(broker) => broker.address}
      rowHref=${(broker) => pathOf("brokers", broker.broker_name, broker.broker_id)} empty=${html`<${Empty} title=${t("brokers.none")} />`} />`;
}

function columns() {
  const counts = ["in_today", "out_today", "in_yesterday", "out_yesterday"];
  return [
    { id: "broker_name", label: t("brokers.name"), main: true },
    { id: "broker_id", label: t("brokers.role"), render: (broker) => html`<${RoleBadge} broker=${broker} />` },
    { id: "cluster", label: t("brokers.cluster") },
    { id: "address", label: t("brokers.address"), render: (broker) => html`<code>${broker.address}</code>` },
    { id: "version", label: t("brokers.version") },
    { id: "in_tps", label: t("brokers.in_tps"), number: true, render: (broker) => rate(figure(broker, "in_tps")) },
    { id: "out_tps", label: t("brokers.out_tps"), number: true, render: (broker) => rate(figure(broker, "out_tps")) },
    ...counts.map((id) => ({ id, label: t(`brokers.${id}`), number: true, render: (broker) => number(figure(broker, id)) })),
    { id: "disk_ratio", label: t("brokers.disk"), render: (broker) => html`<${Disk} ratio=${figure(broker, "disk_ratio")} />` },
    { id: "lag_bytes", label: t("brokers.lag"), number: true, render: (broker) => lagText(broker) },
  ];
}

/** A figure of a broker; null if the broker did not answer, in which case its version is missing, too. */
export function figure(broker, name) {
  return broker.version ? broker[name] : null;
}

/** @param {{broker: any}} props */
export function RoleBadge({ broker }) {
  const role = t(`brokers.${broker.role}`);
  if (broker.problem) return html`<span title=${broker.problem}><${Badge} kind="bad">${role} ${broker.broker_id} · ${t("brokers.problem")}<//></span>`;
  return html`<${Badge} kind=${broker.role === "master" ? "info" : "plain"}>${role} ${broker.broker_id}<//>`;
}

/** How full a disk is; null: unknown. @param {{ratio: number|null}} props */
export function Disk({ ratio }) {
  if (ratio === null) return "–";
  const kind = ratio >= DISK_BAD ? "bad" : ratio >= DISK_WARN ? "warn" : "good";
  return html`<${Meter} ratio=${ratio} text=${percent(ratio)} kind=${kind} />`;
}

/** The replication lag of a slave, as text. */
export function lagText(broker) {
  if (broker.lag_bytes === null) return "–";
  return broker.lag_ms === null ? bytes(broker.lag_bytes) : `${bytes(broker.lag_bytes)} · ${duration(broker.lag_ms)}`;
}
