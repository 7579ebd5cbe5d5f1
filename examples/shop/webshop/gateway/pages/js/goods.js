/** The goods and the cart. */
import { html, useState } from "/static/js/lib/html.js";
import { useLive } from "/static/js/lib/api.js";
import { Icon } from "/static/js/lib/icons.js";
import { number } from "/static/js/lib/format.js";
import { Badge, Card, Empty, PageHead } from "/static/js/lib/states.js";
import { Checkout } from "./checkout.js";
import { useKept } from "./kept.js";
import { money } from "./money.js";
import { Picture } from "./pictures.js";
import { Loaded, together } from "./trouble.js";
import { UserChoice, useUser } from "./user.js";

const FEW = 5;

export function GoodsPage() {
  const { users, user, choose } = useUser();
  const goods = useLive("/goods", 5);
  const [cart, keepCart] = useKept("cart", {});
  const [pending] = useKept("pending", null);
  const put = (id, quantity) => {
    const { [id]: _before, ...others } = cart;
    keepCart(quantity > 0 ? { ...others, [id]: quantity } : others);
  };
  return html`<div class="contents">
    <${PageHead} title="Goods" subtitle="Put something into the cart, order it, pay, and follow its messages.">
      <${UserChoice} users=${users} user=${user} choose=${choose} />
    <//>
    <${Loaded} read=${together(goods, users)}>${(data) => html`<div class="shop">
      <${GoodsList} goods=${data.goods} cart=${cart} put=${put} isLocked=${pending !== null} />
      ${user && html`<${Card} title="Cart"><${Cart} key=${user.user_id} goods=${data.goods} user=${user} cart=${cart} put=${put} /><//>`}
    </div>`}<//>
  </div>`;
}

function GoodsList({ goods, cart, put, isLocked }) {
  if (!goods.length) return html`<${Empty} title="There are no goods yet" />`;
  return html`<ul class="goods" aria-label="Goods">
    ${goods.map((item) => html`<li key=${item.goods_id} class="card goods-item">
      <${Picture} goods=${item} />
      <h2>${item.name}</h2>
      <p class="goods-price">${money(item.price)}</p>
      <p>${stock(item.stock)}</p>
      <button type="button" disabled=${isLocked || item.stock <= (cart[item.goods_id] ?? 0)} aria-label=${`Add ${item.name} to the cart`} onClick=${() => put(item.goods_id, (cart[item.goods_id] ?? 0) + 1)}><${Icon} name="plus" />Add</button>
    </li>`)}
  </ul>`;
}

function stock(count) {
  if (count <= 0) return html`<${Badge} kind="bad">sold out<//>`;
  return html`<${Badge} kind=${count <= FEW ? "warn" : "plain"}>${number(count)} in stock<//>`;
}

function Cart({ goods, user, cart, put }) {
  const [pending] = useKept("pending", null);
  const lines = goods.filter((item) => cart[item.goods_id] > 0).map((item) => ({ ...item, quantity: cart[item.goods_id] }));
  if (!lines.length && !pending) return html`<${Empty} title="The cart is empty" />`;
  return html`<div class="cart">
    <ul class="cart-lines" aria-label="Cart">${lines.map((line) => html`<${Line} key=${line.goods_id} line=${line} put=${put} isLocked=${pending !== null} />`)}</ul>
    <${Checkout} user=${user} lines=${lines} />
  </div>`;
}

function Line({ line, put, isLocked }) {
  const [text, setText] = useState(String(line.quantity));
  const shown = Number(text) === line.quantity || text === "" ? text : String(line.quantity);
  const typed = (event) => {
    setText(event.target.value);
    const quantity = Number(event.target.value);
    if (Number.isInteger(quantity) && quantity > 0) put(line.goods_id, quantity);
  };
  return html`<li>
    <span class="cart-name">${line.name}</span>
    <input type="number" min="1" step="1" inputMode="numeric" value=${shown} disabled=${isLocked} aria-label=${`Quantity of ${line.name}`} onInput=${typed} onBlur=${() => setText(String(line.quantity))} />
    <span class="cart-sum">${money(line.quantity * line.price)}</span>
    <button type="button" class="icon-button" disabled=${isLocked} aria-label=${`Remove ${line.name} from the cart`} title="Remove" onClick=${() => put(line.goods_id, 0)}><${Icon} name="cross" /></button>
  </li>`;
}
