/** The lower half of the cart: coupon, balance, amounts, and the order itself. */
import { html, useState } from "/static/js/lib/html.js";
import { send, useLive } from "/static/js/lib/api.js";
import { Field } from "/static/js/lib/form.js";
import { navigate } from "/static/js/lib/router.js";
import { Note } from "/static/js/lib/states.js";
import { toast } from "/static/js/lib/toast.js";
import { keep, newId, useKept } from "./kept.js";
import { amounts, money, parseMoney } from "./money.js";
import { Trouble } from "./trouble.js";

/**
 * @param {object} props
 * @param {{user_id: string, balance: number}} props.user
 * @param {{goods_id: string, name: string, price: number, quantity: number}[]} props.lines
 */
export function Checkout({ user, lines }) {
  const coupons = useLive("/coupons", 5, { user_id: user.user_id });
  const [couponId, chooseCoupon] = useState("");
  const [balanceText, setBalance] = useState("");
  const [pending] = useKept("pending", null);
  const [error, setError] = useState(null);
  const [isSending, setSending] = useState(false);

  const unused = (coupons.data?.coupons ?? []).filter((coupon) => coupon.used_by === null);
  const coupon = unused.find((item) => item.coupon_id === couponId) ?? null;
  const balance = parseMoney(balanceText);
  const sums = amounts(lines, coupon?.value ?? 0, balance ?? 0);
  const problem = balanceProblem(balance, user, sums);

  // The order is kept before it is sent: whatever happens to the answer, a repetition is the same order.
  const order = async (body) => {
    keep("pending", body);
    setSending(true);
    setError(null);
    try {
      const placed = await send("POST", "/orders", body);
      keep("pending", null);
      keep("cart", null);
      toast(placed.state === "CANCELLED" ? "The order was cancelled." : "The order is placed.", placed.state === "CANCELLED" ? "bad" : "good");
      navigate(`/orders/${placed.order_id}`);
    } catch (failure) {
      if (isDefinite(failure)) keep("pending", null);
      setError(failure);
    }
    setSending(false);
  };
  const newOrder = () => order({
    order_id: newId(),
    user_id: user.user_id,
    items: lines.map(({ goods_id, quantity, price }) => ({ goods_id, quantity, price })),
    shipping: sums.shipping,
    total: sums.total,
    coupon_id: coupon?.coupon_id ?? null,
    balance: balance ?? 0,
  });

  if (pending) {
    return html`<div class="fields">
      ${isSending ? html`<p role="status">Placing the order…</p>` : html`<${Note} kind="warn">
        <p><strong>${error?.message ?? "An order has no answer yet."}</strong></p>
        <p>It may have been placed. Trying again does not order twice: it is the same order. Unpaid, it is cancelled by itself.</p>
        <p><a href=${`/orders/${pending.order_id}`}>See what is known of it</a></p>
      <//>`}
      <div class="buttons">
        <button type="button" class="is-primary" disabled=${isSending} onClick=${() => order(pending)}>Try again</button>
        <button type="button" disabled=${isSending} onClick=${() => { keep("pending", null); setError(null); }}>Back to the cart</button>
      </div>
    </div>`;
  }
  const couponField = { name: "coupon", label: "Coupon", type: "select", options: [["", unused.length ? "none" : "none left"], ...unused.map((item) => [item.coupon_id, `${money(item.value)} · ${item.coupon_id}`])] };
  const balanceField = { name: "balance", label: "From the balance", placeholder: "0.00", hint: `There is ${money(user.balance)}.` };
  return html`<form class="fields" noValidate onSubmit=${(event) => { event.preventDefault(); if (!problem && !isSending) newOrder(); }}>
    <${Field} field=${couponField} value=${coupon?.coupon_id ?? ""} onChange=${chooseCoupon} />
    <${Field} field=${balanceField} value=${balanceText} onChange=${setBalance} message=${problem} />
    <${Sums} sums=${sums} />
    ${error && html`<${Trouble} error=${error} />`}
    <button type="submit" class="is-primary is-whole" disabled=${Boolean(problem) || isSending}>Order for ${money(sums.due)}</button>
  </form>`;
}

/** @param {{sums: ReturnType<typeof amounts>}} props */
export function Sums({ sums }) {
  const rows = [["Goods", sums.goods], ["Shipping (free from 100.00)", sums.shipping], sums.coupon && ["Coupon", -sums.coupon], sums.balance && ["From the balance", -sums.balance]];
  return html`<dl class="sums">
    ${rows.filter(Boolean).map(([name, cents]) => html`<div key=${name}><dt>${name}</dt><dd>${money(cents)}</dd></div>`)}
    <div class="sums-due"><dt>To pay</dt><dd>${money(sums.due)}</dd></div>
  </dl>`;
}

/** Whether the request was answered for good: anything else may have been done, or may succeed later. */
function isDefinite(error) {
  return error.status >= 400 && error.status < 500;
}

function balanceProblem(balance, user, sums) {
  if (balance === null) return "Write an amount such as 12.50.";
  if (balance > user.balance) return `The balance has only ${money(user.balance)}.`;
  if (sums.due < 0) return `At most ${money(sums.total - sums.coupon)} is needed.`;
  return null;
}
