/** One order: what it is, what can be done, and its life as a timeline of messages. */
import { html, useEffect, useState } from "/static/js/lib/html.js";
import { send, useLive } from "/static/js/lib/api.js";
import { duration } from "/static/js/lib/format.js";
import { Badge, Card, Facts, Note, PageHead, Time } from "/static/js/lib/states.js";
import { toast } from "/static/js/lib/toast.js";
import { Sums } from "./checkout.js";
import { newId, useKept } from "./kept.js";
import { money } from "./money.js";
import { StateBadge } from "./orders.js";
import { Loaded, Trouble } from "./trouble.js";
import { EVENTS, PAYMENT_STATES, REASONS, WAYS } from "./words.js";

const LIVE_S = 1;
const SETTLED_S = 5;

export function OrderPage({ params, shop }) {
  const [isSettled, settle] = useState(false);
  const read = useLive(`/orders/${encodeURIComponent(params.id)}`, isSettled ? SETTLED_S : LIVE_S);
  const order = read.data?.order;
  const isFinal = order?.state === "PAID" || order?.state === "CANCELLED";
  useEffect(() => settle(isFinal), [isFinal]);
  return html`<div class="contents">
    <${PageHead} title=${`Order ${params.id.slice(0, 8)}`} back=${{ href: "/orders", label: "My orders" }} subtitle=${order && html`<${StateBadge} state=${order.state} />`}>
      ${order && html`<${Actions} key=${order.order_id} order=${order} payments=${read.data.payments} reload=${read.reload} />`}
    <//>
    <${Loaded} read=${read}>${(data) => html`<div class="contents">
      ${data.order.reason && html`<${Note} kind="bad"><p><strong>Why it was cancelled:</strong> ${REASONS[data.order.reason] ?? data.order.reason}</p><//>`}
      <div class="columns">
        <${Card} title="Order"><${Contents} order=${data.order} names=${data.names} shop=${shop} /><//>
        <${Card} title="Payments"><${Payments} order=${data.order} payments=${data.payments} /><//>
      </div>
      <${Card} title="Life of the order"><${Timeline} events=${data.events} shop=${shop} /><//>
    </div>`}<//>
  </div>`;
}

function Actions({ order, payments, reload }) {
  const [paymentId, keepPayment] = useKept(`payment.${order.order_id}`, null);
  const [error, setError] = useState(null);
  const [isSending, setSending] = useState(false);
  const isWaiting = payments.some((payment) => payment.state === "CREATED" || payment.state === "PAID");
  const run = async (request, done) => {
    setSending(true);
    setError(null);
    try {
      await request();
      toast(done);
    } catch (failure) {
      setError(failure);
    }
    setSending(false);
    reload();
  };
  const pay = () => {
    // A payment that was declined is over; one without an answer is repeated under its own id.
    const isOver = payments.some((payment) => payment.payment_id === paymentId && payment.state !== "CREATED");
    const id = paymentId && !isOver ? paymentId : newId();
    keepPayment(id);
    run(() => send("POST", "/payments", { payment_id: id, order_id: order.order_id, user_id: order.user_id }), "The payment is at the provider.");
  };
  const cancel = () => run(() => send("POST", `/orders/${order.order_id}/cancel`, { reason: "cancelled by the buyer" }), "The order is cancelled.");
  const canPay = order.state === "CONFIRMED";
  const canCancel = isOpen(order);
  return html`<div class="contents">
    ${canCancel && html`<button type="button" disabled=${isSending} onClick=${cancel}>Cancel the order</button>`}
    ${canPay && html`<button type="button" class="is-primary" disabled=${isSending || isWaiting} onClick=${pay}>${isWaiting ? "Payment under way" : `Pay ${money(order.amount_due)}`}</button>`}
    ${error && html`<div class="whole-line"><${Trouble} error=${error} /></div>`}
  </div>`;
}

function Contents({ order, names, shop }) {
  const sums = { goods: order.goods_total, shipping: order.shipping, coupon: order.coupon_value, balance: order.balance_paid, due: order.amount_due };
  return html`<div class="fields">
    <ul class="cart-lines" aria-label="Goods of the order">${order.items.map((item) => html`<li key=${item.goods_id}>
      <span class="cart-name">${names[item.goods_id] ?? item.goods_id}</span><span>${item.quantity} × ${money(item.price)}</span><span class="cart-sum">${money(item.quantity * item.price)}</span>
    </li>`)}</ul>
    <${Sums} sums=${sums} />
    <${Facts} items=${[
      ["Id", html`<code>${order.order_id}</code>`], ["Buyer", order.user_id], ["Way of its messages", WAYS[order.way] ?? order.way],
      ["Placed", html`<${Time} ms=${order.created_at} />`],
      ...(isOpen(order) ? [["Pay until", html`<${Time} ms=${Date.parse(order.created_at) + shop.pay_within_s * 1000} />, else it is cancelled`]] : []),
    ]} />
  </div>`;
}

function isOpen(order) {
  return order.state === "NEW" || order.state === "CONFIRMED";
}

function Payments({ order, payments }) {
  if (!payments.length) return html`<p class="muted">${isOpen(order) ? "None yet." : "The order was not paid."}</p>`;
  return html`<ul class="payments">${payments.map((payment) => html`<li key=${payment.payment_id}>
    <p><strong>${money(payment.amount)}</strong> <${StateBadge} state=${payment.state} states=${PAYMENT_STATES} /> <span class="muted"><${Time} ms=${payment.refunded_at ?? payment.paid_at ?? payment.created_at} /></span></p>
    <p class="muted"><code>${payment.payment_id}</code></p>
  </li>`)}</ul>`;
}

function Timeline({ events, shop }) {
  if (!events.length) return html`<p class="muted">The log has no message of it yet.</p>`;
  const steps = events.map(stepOf).sort((one, other) => one.atMs - other.atMs);
  return html`<ol class="life" aria-label="Messages of the order">
    ${steps.map((step, i) => html`<${Step} key=${step.event.event_id} step=${step} before=${steps[i - 1]} shop=${shop} />`)}
  </ol>`;
}

/** An event, its words, when it happened, and how long its message took until it was stored. */
function stepOf(event) {
  const words = EVENTS[event.kind] ?? { title: event.kind, next: "", kind: "plain" };
  const [sentMs, storedMs] = [Date.parse(event.at), Date.parse(event.stored_at)];
  return { event, words, atMs: words.isDelayed ? storedMs : sentMs, tookMs: Math.max(0, storedMs - sentMs) };
}

function Step({ step: { event, words, atMs, tookMs }, before, shop }) {
  const href = shop.console && `${shop.console}/messages/${encodeURIComponent(event.topic)}/${encodeURIComponent(event.msg_id)}`;
  return html`<li class=${`life-step is-${words.kind}`}>
    <p><strong>${words.title}</strong> <${Badge}>${event.kind}<//> <${Time} ms=${atMs} withMilliseconds /> ${before && html`<span class="muted">+${duration(atMs - before.atMs)}</span>`}</p>
    <p class="muted">${words.next}</p>
    <dl class="life-facts">
      <div><dt>Topic</dt><dd>${event.topic}</dd></div>
      <div><dt>Queue</dt><dd>${event.queue_id}</dd></div>
      <div><dt>Offset</dt><dd>${event.queue_offset}</dd></div>
      <div><dt>Way</dt><dd>${WAYS[event.way] ?? event.way}</dd></div>
      <div><dt>${words.isDelayed ? "Delayed by" : "Stored after"}</dt><dd>${duration(tookMs)}</dd></div>
      <div class="life-id"><dt>Message</dt><dd>${href ? html`<a href=${href} target="_blank" rel="noopener">${event.msg_id}</a>` : html`<code>${event.msg_id}</code>`}</dd></div>
    </dl>
  </li>`;
}
