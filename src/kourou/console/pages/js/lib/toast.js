/** Short messages about what has just happened, in a corner and to screen readers. */
import { html, useEffect, useState } from "./html.js";
import { Icon } from "./icons.js";
import { t } from "./i18n.js";

const SHOWN_MS = 6000;
let toasts = [];
let lastId = 0;
const listeners = new Set();

function publish(next) {
  toasts = next;
  listeners.forEach((listener) => listener(toasts));
}

/**
 * @param {string} message
 * @param {"good"|"bad"|"info"} [kind] a bad one stays until it is closed
 */
export function toast(message, kind = "good") {
  const id = ++lastId;
  publish([...toasts.slice(-3), { id, message, kind }]);
  if (kind !== "bad") setTimeout(() => close(id), SHOWN_MS);
}

function close(id) {
  publish(toasts.filter((item) => item.id !== id));
}

/** The place of the messages. Once, in main.js. */
export function Toasts() {
  const [shown, show] = useState(toasts);
  useEffect(() => {
    listeners.add(show);
    return () => listeners.delete(show);
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.map((item) => html`<div key=${item.id} class=${`toast is-${item.kind}`}>
      <${Icon} name=${item.kind === "bad" ? "alert" : item.kind === "info" ? "info" : "check"} />
      <span>${item.message}</span>
      <button type="button" class="icon-button" aria-label=${t("common.close")} onClick=${() => close(item.id)}><${Icon} name="cross" /></button>
    </div>`)}
  </div>`;
}
