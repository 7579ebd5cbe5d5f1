/** Messages that are stored and not yet delivered: delayed ones, and half messages of transactions. */
import { html, useState } from "../lib/html.js";
import { useLive } from "../lib/api.js";
import { ChangeDialog } from "../lib/change.js";
import { Commands } from "../lib/command.js";
import { ago, duration, number } from "../lib/format.js";
import { t, tn } from "../lib/i18n.js";
import { pathOf } from "../lib/router.js";
import { useCanChange } from "../lib/session.js";
import { Badge, Card, Empty, Freshness, Loaded, Note, PageHead, Tile, Time } from "../lib/states.js";
import { ArrayTable } from "../lib/table_data.js";
import { Tabs } from "../lib/tabs.js";
import { line } from "../lib/visible.js";
import { messageHref } from "./message_rows.js";

const REFRESH_S = 10;
/** Upper bounds of the bars: when messages are due. */
const DUE_MS = [60_000, 600_000, 3_600_000, 6 * 3_600_000, 24 * 3_600_000, Infinity];

export default function DelayedPage() {
  const tabs = [
    { id: "delayed", label: t("delayed.delayed"), render: () => html`<${Delayed} />` },
    { id: "half", label: t("delayed.half"), render: () => html`<${Half} />` },
  ];
  return html`<${PageHead} title=${t("delayed.title")} subtitle=${t("delayed.subtitle")} /><${Tabs} label=${t("delayed.views")} tabs=${tabs} />`;
}

const rowKey = (row) => `${row.stored_topic} ${row.broker_name}:${row.queue_id}:${row.queue_offset}`;
const rowHref = (row) => messageHref(row, row.stored_topic);
const topicColumn = () => ({ id: "topic", label: t("messages.topic"), render: (row) => (row.topic ? html`<a href=${pathOf("topics", row.topic)}>${row.topic}</a>` : "–") });
const idColumn = () => ({ id: "msg_id", label: t("messages.id"), render: (row) => html`<code>${line(row.msg_id, 40)}</code>` });
const textColumn = (id, label) => ({ id, label, render: (row) => (row[id] ? line(row[id], 60) : "–") });

/**
 * How many messages are due within each time from now. Pure.
 * @param {{due: number}[]} rows
 * @param {number} now
 * @returns {number[]} one count for each of DUE_MS
 */
export function dueCounts(rows, now) {
  const counts = DUE_MS.map(() => 0);
  rows.forEach((row) => counts[DUE_MS.findIndex((bound) => Number(row.due) - now <= bound)]++);
  return counts;
}

function Delayed() {
  const read = useLive("/delayed", REFRESH_S);
  const canChange = useCanChange();
  const [recalled, recall] = useState(null);
  return html`<${Loaded} read=${read}>${(data) => {
    const rows = data.brokers.flatMap((broker) => broker.waiting);
    const levels = data.brokers.flatMap((broker) => broker.levels.map((level) => ({ ...level, broker_name: broker.broker_name })));
    const timers = data.brokers.flatMap((broker) => Object.entries(broker.timer_counts).map(([topic, count]) => ({ topic, count, broker_name: broker.broker_name })));
    const byLevel = sum(levels, (level) => level.waiting);
    const byTimer = sum(timers, (timer) => timer.count);
    const late = Math.max(0, ...data.brokers.map((broker) => Number(broker.timer_read_behind_ms)));
    const next = rows.length ? Math.min(...rows.map((row) => Number(row.due))) : null;
    const columns = [
      { id: "due", label: t("delayed.due"), main: true, render: (row) => html`<${Time} ms=${row.due} />` },
      { id: "in", label: t("delayed.due_in"), value: (row) => Number(row.due), render: (row) => ago(row.due, Number(data.as_of)) },
      { id: "level", label: t("delayed.by"), render: (row) => (row.level === null ? t("delayed.by_timer") : t("delayed.by_level", { level: row.level })) },
      topicColumn(), idColumn(), textColumn("keys", t("messages.keys")), textColumn("tags", t("messages.tag")),
      { id: "broker_name", label: t("messages.broker") },
      ...(canChange ? [{ id: "recall", label: t("message.actions"), sortable: false, render: (row) => row.level === null && html`<button type="button" onClick=${() => recall(row)}>${t("delayed.recall")}</button>` }] : []),
    ];
    return html`<div class="contents">
      <div class="result-head"><${Freshness} read=${read} /><${Commands} commands=${data.commands} /></div>
      <div class="tiles">
        <${Tile} label=${t("delayed.waiting_level")} value=${number(byLevel)} />
        <${Tile} label=${t("delayed.waiting_timer")} value=${number(byTimer)} />
        <${Tile} label=${t("delayed.next_due")} value=${next === null ? "–" : ago(next, Number(data.as_of))} />
        <${Tile} label=${t("delayed.behind")} value=${duration(late)} kind=${late > 10_000 ? "warn" : undefined} />
      </div>
      ${data.brokers.filter((broker) => broker.timer_problem).map((broker) => html`<${Note} key=${broker.broker_name}>${broker.broker_name}: ${broker.timer_problem}<//>`)}
      ${rows.length > 0 && html`<${DueBars} rows=${rows} now=${Number(data.as_of)} />`}
      <div class="columns"><${Levels} levels=${levels} /><${Timers} timers=${timers} /></div>
      ${data.brokers.some((broker) => !broker.is_complete) && html`<${Note} kind="warn">${t("delayed.list_cut")}<//>`}
      <${ArrayTable} fill searchable label=${t("delayed.waiting")} columns=${columns} rows=${rows} rowKey=${rowKey} rowHref=${rowHref} sort=${{ column: "due", order: "asc" }} empty=${html`<${Empty} title=${t("delayed.none")} />`} />
      ${recalled && html`<${ChangeDialog} dangerous title=${t("delayed.recall_title")} confirm=${t("delayed.recall")} onClose=${() => recall(null)} onDone=${read.reload}
        request=${() => ({ method: "POST", path: `${pathOf("delayed", recalled.broker_name, recalled.queue_offset)}/recall` })} />`}
    </div>`;
  }}<//>`;
}

function sum(rows, value) {
  return rows.reduce((total, row) => total + BigInt(value(row)), 0n);
}

function DueBars({ rows, now }) {
  const counts = dueCounts(rows, now);
  const most = Math.max(...counts);
  return html`<${Card} title=${t("delayed.due_title")}><table class="bars" aria-label=${t("delayed.due_title")}><tbody>
    ${counts.map((count, i) => html`<tr key=${i}><th scope="row">${t(`delayed.within_${i}`)}</th>
      <td><svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect width=${(count / most) * 100} height="6" class="bar" /></svg></td><td class="is-number">${number(count)}</td></tr>`)}
  </tbody></table><//>`;
}

function Levels({ levels }) {
  const columns = [
    { id: "level", label: t("delayed.level"), main: true, value: (row) => row.level, render: (row) => `${row.level} (${row.delay})` },
    { id: "broker_name", label: t("messages.broker") },
    { id: "waiting", label: t("delayed.waiting"), number: true, render: (row) => number(row.waiting) },
    { id: "next_due", label: t("delayed.next_due"), render: (row) => html`<${Time} ms=${row.next_due} />` },
  ];
  return html`<${Card} title=${t("delayed.levels")} flush><${ArrayTable} prefix="level-" label=${t("delayed.levels")} columns=${columns} rows=${levels} rowKey=${(row) => `${row.broker_name} ${row.level}`} empty=${html`<${Empty} title=${t("delayed.no_levels")} />`} /><//>`;
}

function Timers({ timers }) {
  const columns = [
    { ...topicColumn(), main: true },
    { id: "broker_name", label: t("messages.broker") },
    { id: "count", label: t("delayed.waiting"), number: true, render: (row) => number(row.count) },
  ];
  return html`<${Card} title=${t("delayed.timers")} flush><${ArrayTable} prefix="timer-" label=${t("delayed.timers")} columns=${columns} rows=${timers} rowKey=${(row) => `${row.broker_name} ${row.topic}`} empty=${html`<${Empty} title=${t("delayed.no_timers")} />`} /><//>`;
}

function Half() {
  const read = useLive("/half-messages", REFRESH_S);
  return html`<${Loaded} read=${read}>${(data) => {
    const open = data.brokers.flatMap((broker) => broker.open);
    const givenUp = data.brokers.flatMap((broker) => broker.given_up);
    const givenUpCount = sum(data.brokers, (broker) => broker.given_up_count);
    const oldest = open.length ? Math.min(...open.map((half) => Number(half.born_timestamp))) : null;
    const columns = [
      { id: "born_timestamp", label: t("message.born"), main: true, render: (row) => html`<${Time} ms=${row.born_timestamp} />` },
      { id: "age", label: t("delayed.age"), number: true, value: (row) => -Number(row.born_timestamp), render: (row) => duration(Number(data.as_of) - Number(row.born_timestamp)) },
      { id: "check_times", label: t("delayed.checks"), number: true, render: (row) => number(row.check_times) },
      { id: "producer_group", label: t("trace.producer_group"), render: (row) => html`<a href=${`/producers?group=${encodeURIComponent(row.producer_group)}&topic=${encodeURIComponent(row.topic)}`}>${row.producer_group}</a>` },
      topicColumn(), idColumn(), textColumn("keys", t("messages.keys")), { id: "broker_name", label: t("messages.broker") },
    ];
    const table = (rows, label, empty, prefix) => html`<${ArrayTable} prefix=${prefix} label=${label} columns=${columns} rows=${rows} rowKey=${rowKey} rowHref=${rowHref} empty=${html`<${Empty} title=${empty} />`} />`;
    return html`<div class="contents">
      <div class="result-head"><${Freshness} read=${read} /><${Commands} commands=${data.commands} /></div>
      <div class="tiles">
        <${Tile} label=${t("delayed.open")} value=${number(open.length)} />
        <${Tile} label=${t("delayed.oldest")} value=${oldest === null ? "–" : duration(Number(data.as_of) - oldest)} />
        <${Tile} label=${t("delayed.given_up")} value=${number(givenUpCount)} kind=${givenUpCount > 0n ? "warn" : undefined} />
      </div>
      ${data.brokers.some((broker) => !broker.is_complete) && html`<${Note} kind="warn">${t("delayed.half_cut")}<//>`}
      <${Card} flush title=${html`${t("delayed.open_title")} <${Badge}>${number(open.length)}<//>`}>${table(open, t("delayed.open_title"), t("delayed.no_open"), "open-")}<//>
      <${Card} flush title=${t("delayed.given_up_title")}>
        ${givenUp.length > 0 && html`<p class="card-note muted">${tn("delayed.given_up_note", givenUpCount)}</p>`}
        ${table(givenUp, t("delayed.given_up_title"), t("delayed.no_given_up"), "given-")}
      <//>
    </div>`;
  }}<//>`;
}
