/** The words for states, ways and kinds of events, in one place. */

/** @type {Record<string, {label: string, kind: "good"|"warn"|"bad"|"info"|"plain"}>} */
export const ORDER_STATES = {
  NEW: { label: "not confirmed yet", kind: "info" },
  CONFIRMED: { label: "waiting for payment", kind: "warn" },
  PAID: { label: "paid", kind: "good" },
  CANCELLED: { label: "cancelled", kind: "bad" },
};

/** @type {Record<string, {label: string, kind: "good"|"warn"|"bad"|"info"|"plain"}>} */
export const PAYMENT_STATES = {
  CREATED: { label: "waiting for the provider", kind: "info" },
  PAID: { label: "paid", kind: "good" },
  DECLINED: { label: "declined", kind: "bad" },
  REFUND_DUE: { label: "refund due", kind: "warn" },
  REFUNDED: { label: "refunded", kind: "plain" },
};

/** Why an order was cancelled, by the orders service's words; a buyer's own words are shown as they are. */
export const REASONS = {
  NOT_PAID: "it was not paid in time",
  AWAY: "a part of the shop was away when it was placed",
  OUT_OF_STOCK: "there was not enough in stock",
  COUPON_USED: "its coupon was used by another order",
  BALANCE_TOO_SMALL: "the balance was too low",
};

export const WAYS = { transaction: "transaction message", outbox: "outbox" };

/**
 * What a kind of event means in the life of an order. `next`: what the services do about it. `isDelayed`: a delay
 * message, which belongs where it was delivered, not where it was sent.
 */
export const EVENTS = {
  ORDER_CREATED: { title: "Pre-order stored", next: "Stock, coupon and balance are deducted next.", kind: "info" },
  ORDER_CONFIRMED: { title: "Order confirmed", next: "Stock, coupon and balance are deducted; it can be paid.", kind: "info" },
  ORDER_PAID: { title: "Order paid", next: "Points are credited, the level is computed, the log is written.", kind: "good" },
  ORDER_CANCELLED: { title: "Order cancelled", next: "Stock, coupon and balance go back, each once.", kind: "bad" },
  REFUND_DUE: { title: "Paid after the cancellation", next: "The payment is refunded.", kind: "warn" },
  PAYMENT_DUE: { title: "The time to pay ended", next: "If the order is not paid, it is cancelled.", kind: "plain", isDelayed: true },
  PAYMENT_CREATED: { title: "Payment started", next: "The provider is charged and calls back.", kind: "info" },
  PAYMENT_PAID: { title: "Provider reported the payment", next: "The order becomes paid, or the payment is refunded.", kind: "good" },
  PAYMENT_DECLINED: { title: "Provider declined the payment", next: "The order can be paid by another payment.", kind: "bad" },
  PAYMENT_REFUNDED: { title: "Payment refunded", next: "The money is back at the buyer.", kind: "plain" },
};
