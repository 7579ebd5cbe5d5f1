/** Spark's figures: what the streaming pipeline has computed from the topics. */
import { html } from "/static/js/lib/html.js";
import { useLive } from "/static/js/lib/api.js";
import { number, percent } from "/static/js/lib/format.js";
import { Card, Empty, Note, PageHead, Time } from "/static/js/lib/states.js";
import { Table } from "/static/js/lib/table.js";
import { Chart } from "/static/js/lib/chart.js";
import { money } from "./money.js";
import { Loaded } from "./trouble.js";

const FUNNEL = [["created", "Created"], ["confirmed", "Confirmed"], ["paid", "Paid"], ["cancelled", "Cancelled"]];
const LATE = [
  { id: "order_id", label: "Order", main: true, render: (row) => row.order_id.slice(0, 8) },
  { id: "amount", label: "Amount", number: true, render: (row) => money(row.amount) },
  { id: "cancelled_at", label: "Cancelled", render: (row) => html`<${Time} ms=${row.cancelled_at} />` },
  { id: "paid_at", label: "Paid", render: (row) => html`<${Time} ms=${row.paid_at} />` },
];
const HINTS = [
  { id: "user_id", label: "Buyer", main: true },
  { id: "cancelled", label: "Cancelled orders", number: true },
  { id: "from", label: "From", render: (row) => html`<${Time} ms=${row.from} />` },
  { id: "to", label: "To", render: (row) => html`<${Time} ms=${row.to} />` },
];

export function FiguresPage() {
  const read = useLive("/figures", 5);
  return html`<div class="contents">
    <${PageHead} title="Figures" subtitle="Computed from the topics by Spark, while the shop works.">
      ${read.data?.as_of && html`<span class="muted freshness">updated <${Time} ms=${read.data.as_of} relative /></span>`}
    <//>
    <${Loaded} read=${read}>${(data) => (data.sales ? html`<${Figures} figures=${data} />` : html`<${NoFigures} figures=${data} />`)}<//>
  </div>`;
}

/** Whether Spark computes figures now, by the state of its process; null: it is not known. */
function isAtWork(spark) {
  return spark === "unknown" ? null : spark === "running" || spark === "starting";
}

function NoFigures({ figures: { spark, is_installed: isInstalled, command } }) {
  if (isAtWork(spark)) return html`<${Empty} title="Spark has written no figures yet"><p>It is running; its first batch takes half a minute.</p><//>`;
  if (spark === "unknown") return html`<${Empty} title="Spark has written no figures yet"><p>Whether it runs is not known: the supervisor does not answer.</p><//>`;
  return html`<${Empty} title="Spark is not running"><${HowToStart} spark=${spark} isInstalled=${isInstalled} command=${command} /><//>`;
}

function HowToStart({ spark, isInstalled = true, command }) {
  if (spark !== "none") return html`<p>Its process is ${spark}; the <a href="/operator">operator's page</a> has buttons that start it or let it continue.</p>`;
  return html`<div class="contents">
    <p>The shop was started without it. End the shop, and start it again with <code>make shop</code>, without <code>--no-spark</code>${isInstalled ? "; or start Spark alone in another terminal:" : ": this installs Spark too."}</p>
    ${isInstalled && html`<pre>${command}</pre>`}
  </div>`;
}

function Figures({ figures }) {
  const sales = figures.sales;
  return html`<div class="contents">
    ${isAtWork(figures.spark) === false && html`<${Note} kind="warn"><p><strong>Spark is not running: these figures do not change.</strong></p><${HowToStart} spark=${figures.spark} command=${figures.command} /><//>`}
    <${Card} title="Sales per minute"><${Chart} title="Paid orders" unit="money and balance, per minute" format=${(value) => money(value === null ? null : value * 100)}
      times=${sales.map((row) => Date.parse(row.minute))} series=${[{ label: "sales", values: sales.map((row) => row.amount / 100) }]} /><//>
    <div class="columns">
      <${Card} title="Funnel"><${Funnel} funnel=${figures.funnel} /><//>
      <${Card} title="Top goods"><${TopGoods} rows=${figures.top_goods} /><//>
    </div>
    <${Card} flush title="Late payments" actions=${html`<span class="muted">${countOf(figures)} · ${money(figures.late_total.amount)} refunded</span>`}>
      <${Table} label="Late payments" columns=${LATE} rows=${figures.late_payments} rowKey=${(row) => row.payment_id} rowHref=${(row) => `/orders/${row.order_id}`} empty=${html`<p class="card-note muted">No payment came after its order was cancelled.</p>`} />
    <//>
    <${Card} flush title="Hints of fraud">
      <${Table} label="Hints of fraud" columns=${HINTS} rows=${figures.fraud_hints} rowKey=${(row) => `${row.user_id} ${row.from}`} empty=${html`<p class="card-note muted">No buyer cancelled many orders within a short time.</p>`} />
    <//>
  </div>`;
}

function countOf({ late_payments: shown, late_total: total }) {
  return shown.length < total.payments ? `the newest ${number(shown.length)} of ${number(total.payments)} payments` : `${number(total.payments)} ${total.payments === 1 ? "payment" : "payments"}`;
}

function Funnel({ funnel }) {
  const most = Math.max(1, funnel.created ?? 0);
  return html`<${Bars} label="Funnel" rows=${FUNNEL.map(([id, name]) => ({ name, value: funnel[id] ?? 0, text: `${number(funnel[id] ?? 0)} · ${percent((funnel[id] ?? 0) / most)}` }))} />`;
}

function TopGoods({ rows }) {
  if (!rows.length) return html`<p class="muted">Nothing has been sold yet.</p>`;
  return html`<${Bars} label="Top goods" rows=${rows.map((row) => ({ name: row.name ?? row.goods_id, value: row.quantity, text: `${number(row.quantity)} · ${money(row.amount)}` }))} />`;
}

/** Names with bars, as the console has them. */
function Bars({ label, rows }) {
  const most = Math.max(1, ...rows.map((row) => row.value));
  return html`<table class="bars" aria-label=${label}><tbody>${rows.map((row) => html`<tr key=${row.name}><th scope="row">${row.name}</th>
    <td><svg viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true"><rect class="bar" width=${(row.value / most) * 100} height="12" /></svg></td>
    <td class="is-number">${row.text}</td></tr>`)}</tbody></table>`;
}
