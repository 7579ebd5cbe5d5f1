/** The operator's page: orders by state, invariants, processes with faults to inject, the payment provider. */
import { html, useEffect, useRef, useState } from "/static/js/lib/html.js";
import { send, useLive } from "/static/js/lib/api.js";
import { Chart } from "/static/js/lib/chart.js";
import { duration, number, rate } from "/static/js/lib/format.js";
import { Card, Note, PageHead, Tile, Time } from "/static/js/lib/states.js";
import { toast } from "/static/js/lib/toast.js";
import { Processes } from "./processes.js";
import { Provider } from "./provider.js";
import { Loaded } from "./trouble.js";
import { ORDER_STATES } from "./words.js";

const STATES_S = 1;
const CHECKS_S = 3;
const SAMPLES = 300;

export function OperatorPage() {
  const states = useLive("/operator/states", STATES_S);
  const checks = useLive("/operator/invariants", CHECKS_S);
  const processes = useLive("/operator/processes", STATES_S);
  const act = (name, action) => send("POST", `/operator/processes/${encodeURIComponent(name)}/${action.path}`, {})
    .then(() => toast(`${name}: ${action.done}`), (error) => toast(error.message, "bad"))
    .then(processes.reload);
  return html`<div class="contents">
    <${PageHead} title="Operator" subtitle="Break something, and watch the shop recover: no order, cent or piece may be lost." />
    <${Loaded} read=${states}>${(data) => html`<div class="tiles">
      ${Object.entries(ORDER_STATES).map(([state, words]) => html`<${Tile} key=${state} label=${`Orders: ${words.label}`} value=${number(data.orders[state] ?? 0)} detail=${state} />`)}
    </div>`}<//>
    <div class="columns">
      <${Card} title="Invariants" actions=${checks.data && html`<span class="muted">checked <${Time} ms=${checks.data.as_of} /> in ${duration(checks.data.took_ms)}</span>`}>
        <${Loaded} read=${checks}>${(data) => html`<${Invariants} findings=${data.findings} />`}<//>
      <//>
      <${Card} title="What happened"><${Events} events=${processes.data?.events ?? []} /><//>
    </div>
    <${Card} flush title="Processes" >
      <p class="card-note muted">Kill: it ends at once (SIGKILL) and is started again by itself. Stop: it hangs with its connections open (SIGSTOP), until you click Continue. End: it ends and stays down, until you click Start.</p>
      <${Loaded} read=${processes}>${(data) => html`<${Processes} processes=${data.processes} act=${act} />`}<//>
    <//>
    <div class="columns">
      <${Card} title="Payment provider"><${Provider} /><//>
      <${Card} title="Pace">${states.data && html`<${Pace} sample=${states.data} />`}<//>
    </div>
  </div>`;
}

function Pace({ sample }) {
  const kept = useRef([]);
  const [series, show] = useState({ times: [], created: [], settled: [] });
  useEffect(() => {
    if (sample.as_of === kept.current.at(-1)?.as_of) return;
    kept.current = [...kept.current, sample].slice(-SAMPLES);
    const steps = kept.current.slice(1).map((now, i) => ({ now, before: kept.current[i] }));
    const perSecond = (count) => steps.map(({ now, before }) => Math.max(0, count(now) - count(before)) / Math.max(0.001, (now.as_of - before.as_of) / 1000));
    show({ times: steps.map(({ now }) => now.as_of), created: perSecond(all), settled: perSecond(settled) });
  }, [sample]);
  return html`<${Chart} title="Orders" unit="per second" format=${rate} times=${series.times}
    series=${[{ label: "placed", values: series.created }, { label: "paid or cancelled", values: series.settled }]} />`;
}

function all(sample) {
  return Object.values(sample.orders).reduce((sum, count) => sum + count, 0);
}

function settled(sample) {
  return (sample.orders.PAID ?? 0) + (sample.orders.CANCELLED ?? 0);
}

function Invariants({ findings }) {
  const wrong = findings.filter((finding) => !finding.is_pending);
  const pending = findings.filter((finding) => finding.is_pending);
  return html`<div class="fields" role="status">
    ${wrong.length === 0
      ? html`<${Note} kind="good"><p><strong>No invariant is violated.</strong> ${pending.length ? "What is under way is listed below." : "Money in equals money out, no stock is negative, each coupon is used at most once, each paid order is credited once."}</p><//>`
      : html`<${Note} kind="bad"><p><strong>${wrong.length === 1 ? "One invariant is violated" : `${wrong.length} invariants are violated`}</strong></p><${Findings} findings=${wrong} /><//>`}
    ${pending.length > 0 && html`<div><p class="muted">Under way, allowed while the shop works:</p><${Findings} findings=${pending} /></div>`}
  </div>`;
}

function Findings({ findings }) {
  return html`<ul class="findings">${findings.map((finding) => html`<li key=${`${finding.rule} ${finding.text}`}><strong>${finding.rule}</strong>: ${finding.text}</li>`)}</ul>`;
}

function Events({ events }) {
  if (!events.length) return html`<p class="muted">Nothing yet.</p>`;
  return html`<ol class="happened" tabIndex="0" aria-label="What happened, newest first">
    ${events.map((event, i) => html`<li key=${`${event.at} ${i}`}><${Time} ms=${event.at} /> <strong>${event.process}</strong> ${event.what}</li>`)}
  </ol>`;
}
