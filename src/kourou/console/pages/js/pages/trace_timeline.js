/** The timeline of a trace: a row for the producer, one for each group and attempt; bars by time. Own SVG. */
import { html } from "../lib/html.js";
import { duration, number, time } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { line } from "../lib/visible.js";

const GOOD = new Set(["success", "COMMIT_MESSAGE"]);
const OPEN = new Set(["unfinished", "UNKNOW"]);
const WIDTH = 1000;
const LABEL = 240;
const ROW = 26;
const HEAD = 24;
const MIN_BAR = 3;
const TICKS = 5;

/** The colour of a status; its text is always beside it. @param {string} status */
export function kindOf(status) {
  return GOOD.has(status) ? "good" : OPEN.has(status) ? "warn" : "bad";
}

/**
 * The rows of a timeline. Pure: what is drawn, in order.
 * @param {any} trace
 * @returns {{label: string, begin: number, end: number, kind: string, text: string, isPoint: boolean}[]}
 */
export function timelineRows(trace) {
  const last = Number(trace.end_ms);
  const bar = (label, begin, end, status, text) => ({ label, begin: Number(begin), end: Number(end ?? last), kind: kindOf(status), text, isPoint: false });
  const point = (label, at, status, text) => ({ label, begin: Number(at), end: Number(at), kind: kindOf(status), text, isPoint: true });
  const status = (value) => t(`trace.status_${value.replace(" ", "_")}`);
  return [
    ...trace.sends.map((send) => bar(`${t("trace.producer")} ${line(send.group, 40)}`, send.begin_ms, send.end_ms, send.status, `${t(`trace.type_${send.message_type}`)} · ${status(send.status)} · ${number(send.cost_ms)} ms`)),
    ...trace.transactions.map((end) => point(t(end.is_from_check ? "trace.check" : "trace.transaction_end"), end.time_ms, end.state, end.state)),
    ...trace.recalls.map((recall) => point(t("trace.recall"), recall.time_ms, recall.status, status(recall.status))),
    ...trace.consumers.flatMap((group) => group.attempts.map((attempt, i) => bar(`${line(group.consumer_group, 30)} #${i + 1}`, attempt.begin_ms, attempt.end_ms, attempt.status,
      `${status(attempt.status)}${attempt.cost_ms === null ? "" : ` · ${number(attempt.cost_ms)} ms`}`))),
  ];
}

/** @param {{trace: any}} props */
export function Timeline({ trace }) {
  const rows = timelineRows(trace);
  if (!rows.length) return null;
  const begin = Math.min(...rows.map((row) => row.begin));
  const end = Math.max(...rows.map((row) => row.end), begin + 1);
  const plot = WIDTH - LABEL - 10;
  const x = (ms) => LABEL + ((ms - begin) / (end - begin)) * plot;
  const height = HEAD + rows.length * ROW + 6;
  const ticks = Array.from({ length: TICKS }, (_, i) => begin + ((end - begin) * i) / (TICKS - 1));
  return html`<figure class="timeline" tabIndex="0">
    <figcaption class="muted">${t("trace.timeline", { begin: time(begin, { withMilliseconds: true }), length: duration(end - begin) })}</figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${height}`} role="img" aria-label=${t("trace.timeline_label", { count: rows.length })}>
      ${ticks.map((ms, i) => html`<g key=${i}><line class="timeline-grid" x1=${x(ms)} x2=${x(ms)} y1=${HEAD - 4} y2=${height} /><text class="timeline-tick" x=${x(ms)} y=${HEAD - 9} text-anchor=${i === 0 ? "start" : i === TICKS - 1 ? "end" : "middle"}>+${duration(ms - begin)}</text></g>`)}
      ${rows.map((row, i) => timelineRow(row, i, x))}
    </svg>
    <ol class="off-screen">${rows.map((row, i) => html`<li key=${i}>${row.label}: ${row.text}, +${duration(row.begin - begin)}</li>`)}</ol>
  </figure>`;
}

function timelineRow(row, i, x) {
  const y = HEAD + i * ROW;
  const left = x(row.begin);
  const width = Math.max(MIN_BAR, x(row.end) - left);
  // The text is at the right of a bar, unless there is no room.
  const isLate = left + width > WIDTH * 0.72;
  const shape = row.isPoint
    ? html`<path class=${`timeline-bar is-${row.kind}`} d=${`M${left} ${y + 5}l7 8l-7 8l-7 -8z`} />`
    : html`<rect class=${`timeline-bar is-${row.kind}`} x=${left} y=${y + 5} width=${width} height=${ROW - 10} rx="3" />`;
  return html`<g key=${i}><title>${`${row.label}: ${row.text}`}</title>
    <text class="timeline-label" x="0" y=${y + 17}>${row.label}</text>
    ${shape}
    <text class="timeline-text" x=${isLate ? left - 10 : left + width + 10} y=${y + 17} text-anchor=${isLate ? "end" : "start"}>${row.text}</text>
  </g>`;
}
