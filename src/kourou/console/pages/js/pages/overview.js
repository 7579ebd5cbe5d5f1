/** Overview: the cluster at a glance, live. */
import { html } from "../lib/html.js";
import { useLive } from "../lib/api.js";
import { Chart } from "../lib/chart.js";
import { Commands } from "../lib/command.js";
import { bytes, compact, duration, number, percent, rate } from "../lib/format.js";
import { t, tn } from "../lib/i18n.js";
import { pathOf } from "../lib/router.js";
import { Card, Freshness, Loaded, Note, PageHead, Tile } from "../lib/states.js";
import { Table } from "../lib/table.js";
import { ArrayTable } from "../lib/table_data.js";
import { TimeRange, useTimeRange } from "../lib/time_range.js";
import { Disk, figure, RoleBadge } from "./brokers.js";

const SECONDS = 5;
const DISK_WARN = 0.75;
const DISK_BAD = 0.85;

export default function OverviewPage() {
  const range = useTimeRange("1h");
  const read = useLive("/overview", SECONDS, { range: range.query.range });
  return html`
    <${PageHead} title=${t("overview.title")}>
      <${Freshness} read=${read} />
      <${TimeRange} range=${range} choices=${["1h", "24h"]} custom=${false} />
      <${Commands} commands=${read.data?.commands} />
    <//>
    <${Loaded} read=${read}>${(data) => html`
      <${Tiles} data=${data} />
      ${data.history ? html`<${Charts} history=${data.history} />` : html`<${Note}>${t("overview.no_history")}<//>`}
      <${Brokers} brokers=${data.brokers} />
      <div class="columns">
        <${TopTopics} rows=${data.top_topics} />
        <${TopGroups} rows=${data.top_groups} />
      </div>`}<//>`;
}

function Tiles({ data }) {
  const { totals, findings } = data;
  const found = findings && findings.problems + findings.warnings + findings.hints;
  return html`<div class="tiles is-eight">
    <${Tile} label=${t("overview.in")} value=${rate(totals.in_tps)} unit=${t("overview.per_second")} detail=${counts(totals.in_today, totals.in_yesterday)} />
    <${Tile} label=${t("overview.out")} value=${rate(totals.out_tps)} unit=${t("overview.per_second")} detail=${counts(totals.out_today, totals.out_yesterday)} />
    <${Tile} label=${t("overview.lag")} value=${compact(totals.lag)} unit=${t("overview.messages")} title=${number(totals.lag)} href="/groups?sort=lag&order=desc" />
    <${Tile} label=${t("overview.disk")} value=${percent(totals.disk_ratio)} kind=${diskKind(totals.disk_ratio)} detail=${t("overview.disk_fullest")} href="/brokers?sort=disk_ratio&order=desc" />
    <${Tile} label=${t("overview.brokers")} value=${number(totals.brokers)} detail=${tn("overview.slaves", totals.slaves)} href="/brokers" />
    <${Tile} label=${t("overview.topics")} value=${number(totals.topics)} href="/topics" />
    <${Tile} label=${t("overview.groups")} value=${number(totals.groups)} href="/groups" />
    <${Tile} label=${t("overview.findings")} value=${found === 0 ? t("overview.findings_none") : number(found)} kind=${findings?.problems ? "bad" : findings?.warnings ? "warn" : undefined}
      detail=${findings ? t("overview.findings_detail", findings) : t("overview.not_examined")} href="/doctor" />
  </div>`;
}

function counts(today, yesterday) {
  return `${t("overview.today", { count: compact(today) })} · ${t("overview.yesterday", { count: compact(yesterday) })}`;
}

function Charts({ history }) {
  return html`<div class="columns">
    <${Card}><${Chart} title=${t("overview.rates")} unit=${t("overview.per_second")} times=${history.times}
      series=${[{ label: t("overview.in"), values: history.in_tps }, { label: t("overview.out"), values: history.out_tps }]} /><//>
    <${Card}><${Chart} title=${t("overview.lag_chart")} unit=${t("overview.messages")} times=${history.times} series=${[{ label: t("overview.lag"), values: history.lag }]} /><//>
  </div>`;
}

function Brokers({ brokers }) {
  const columns = [
    { id: "broker_name", label: t("overview.broker"), main: true },
    { id: "role", label: t("overview.role"), render: (broker) => html`<${RoleBadge} broker=${broker} />` },
    { id: "in_tps", label: t("overview.put"), number: true, render: (broker) => rate(figure(broker, "in_tps")) },
    { id: "out_tps", label: t("overview.get"), number: true, render: (broker) => rate(figure(broker, "out_tps")) },
    ...["today_in", "today_out", "yesterday_in", "yesterday_out"].map((name) => {
      const id = name.split("_").reverse().join("_");
      return { id, label: t(`overview.${name}`), number: true, render: (broker) => number(figure(broker, id)) };
    }),
    { id: "disk_ratio", label: t("overview.disk"), render: (broker) => html`<${Disk} ratio=${figure(broker, "disk_ratio")} />` },
    { id: "lag_bytes", label: t("overview.replication"), number: true, render: (broker) => bytes(broker.lag_bytes) },
  ];
  return html`<${Card} flush title=${t("overview.brokers")} actions=${html`<a href="/brokers">${t("overview.all")}</a>`}>
    <${ArrayTable} label=${t("overview.brokers")} columns=${columns} rows=${brokers} rowKey=${(broker) => broker.address} prefix="b_"
      rowHref=${(broker) => pathOf("brokers", broker.broker_name, broker.broker_id)} />
  <//>`;
}

function diskKind(ratio) {
  return ratio >= DISK_BAD ? "bad" : ratio >= DISK_WARN ? "warn" : undefined;
}

function TopTopics({ rows }) {
  const columns = [
    { id: "topic", label: t("overview.topic"), main: true },
    { id: "in_tps", label: t("overview.put"), number: true, render: (row) => rate(row.in_tps) },
    { id: "out_tps", label: t("overview.get"), number: true, render: (row) => rate(row.out_tps) },
    { id: "groups", label: t("overview.groups"), number: true, render: (row) => number(row.groups) },
  ];
  return html`<${Top} title=${t("overview.top_topics")} columns=${columns} rows=${rows} all="/topics?sort=in_tps&order=desc" rowHref=${(row) => pathOf("topics", row.topic)} />`;
}

function TopGroups({ rows }) {
  const columns = [
    { id: "group", label: t("overview.group"), main: true },
    { id: "consume_tps", label: t("overview.get"), number: true, render: (row) => rate(row.consume_tps) },
    { id: "lag", label: t("overview.lag"), number: true, render: (row) => number(row.lag) },
    { id: "lag_change", label: t("overview.lag_change"), number: true, render: (row) => rate(row.lag_change) },
    { id: "behind_s", label: t("overview.behind"), number: true, render: (row) => duration(row.behind_s * 1000) },
  ];
  return html`<${Top} title=${t("overview.top_lag")} columns=${columns} rows=${rows} all="/groups?sort=lag&order=desc" rowHref=${(row) => pathOf("groups", row.group)} />`;
}

function Top({ title, columns, rows, all, rowHref }) {
  const actions = html`<a href=${all} aria-label=${`${t("overview.all")}: ${title}`}>${t("overview.all")}</a>`;
  return html`<${Card} flush title=${title} actions=${actions}>
    <${Table} label=${title} columns=${columns} rows=${rows} rowKey=${(row) => row[columns[0].id]} rowHref=${rowHref} empty=${html`<p class="empty">${t("overview.nothing_yet")}</p>`} />
  <//>`;
}
