/** Amounts: whole cents everywhere, formatted only here. Pure functions. */

const SHIPPING = 1000;
const FREE_SHIPPING_FROM = 10_000;
const format = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/**
 * @param {number|null|undefined} cents
 * @returns {string} 1,234.50; a missing amount is a dash
 */
export function money(cents) {
  return cents === null || cents === undefined ? "–" : format.format(Number(cents) / 100);
}

/**
 * The cents of a text such as 12, 12.5 or 12.50; an empty text is 0.
 * @param {string} text
 * @returns {number|null} null: the text is no amount
 */
export function parseMoney(text) {
  const found = /^(\d{1,9})?(?:[.,](\d{1,2}))?$/.exec(text.trim());
  return found ? Number(found[1] ?? 0) * 100 + Number((found[2] ?? "").padEnd(2, "0")) : null;
}

/**
 * What an order costs. The orders service computes the same and refuses an order whose amounts differ.
 * @param {{quantity: number, price: number}[]} items
 * @param {number} couponValue
 * @param {number} balance what the buyer wants to pay from the balance
 * @returns {{goods: number, shipping: number, total: number, coupon: number, balance: number, due: number}}
 */
export function amounts(items, couponValue, balance) {
  const goods = items.reduce((sum, item) => sum + item.quantity * item.price, 0);
  const shipping = goods === 0 || goods >= FREE_SHIPPING_FROM ? 0 : SHIPPING;
  const total = goods + shipping;
  const coupon = Math.min(couponValue, total);
  return { goods, shipping, total, coupon, balance, due: total - coupon - balance };
}
