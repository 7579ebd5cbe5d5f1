/** The orders of a buyer. */
import { html } from "/static/js/lib/html.js";
import { useLive } from "/static/js/lib/api.js";
import { Badge, Empty, Facts, PageHead, Time } from "/static/js/lib/states.js";
import { Table } from "/static/js/lib/table.js";
import { money } from "./money.js";
import { Loaded } from "./trouble.js";
import { UserChoice, useUser } from "./user.js";
import { ORDER_STATES, WAYS } from "./words.js";

const COLUMNS = [
  { id: "order_id", label: "Order", main: true, render: (order) => order.order_id.slice(0, 8) },
  { id: "created_at", label: "Placed", render: (order) => html`<${Time} ms=${order.created_at} />` },
  { id: "state", label: "State", render: (order) => html`<${StateBadge} state=${order.state} />` },
  { id: "count", label: "Pieces", number: true, render: (order) => order.items.reduce((sum, item) => sum + item.quantity, 0) },
  { id: "total", label: "Total", number: true, render: (order) => money(order.goods_total + order.shipping) },
  { id: "amount_due", label: "To pay", number: true, render: (order) => money(order.amount_due) },
  { id: "way", label: "Way", render: (order) => WAYS[order.way] ?? order.way },
];

export function OrdersPage() {
  const { users, user, choose } = useUser();
  return html`<div class="contents">
    <${PageHead} title="My orders"><${UserChoice} users=${users} user=${user} choose=${choose} /><//>
    <${Loaded} read=${users}>${() => user && html`<${Account} key=${user.user_id} user=${user} />`}<//>
  </div>`;
}

function Account({ user }) {
  const account = useLive(`/users/${encodeURIComponent(user.user_id)}`, 3);
  const orders = useLive("/orders", 3, { user_id: user.user_id, limit: 100 });
  return html`<div class="contents">
    <${Loaded} read=${account}>${(data) => html`<section class="card card-body" aria-label="Account"><${Facts} items=${[
      ["Name", data.name], ["Balance", money(data.balance)], ["Level", data.level], ["Spent", money(data.spent)], ["Points", data.points],
    ]} /></section>`}<//>
    <${Loaded} read=${orders}>${(data) => html`<div class="table-box">
      <${Table} label="Orders" columns=${COLUMNS} rows=${data.orders} rowKey=${(order) => order.order_id} rowHref=${(order) => `/orders/${order.order_id}`}
        empty=${html`<${Empty} title="No orders yet"><p><a href="/">To the goods</a></p><//>`} />
    </div>`}<//>
  </div>`;
}

/** @param {{state: string, states?: typeof ORDER_STATES}} props */
export function StateBadge({ state, states = ORDER_STATES }) {
  const known = states[state] ?? { label: state, kind: "plain" };
  return html`<${Badge} kind=${known.kind}>${known.label}<//>`;
}
