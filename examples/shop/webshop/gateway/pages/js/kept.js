/** What this browser keeps between pages: the user, the cart, requests without an answer. */
import { useEffect, useState } from "/static/js/lib/html.js";

const PREFIX = "shop.";
const listeners = new Set();
const memory = new Map();

function read(name, otherwise) {
  if (memory.has(name)) return memory.get(name);
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name)) ?? otherwise;
  } catch {
    // Storage may be switched off in the browser, or hold something else: what is kept lasts as long as the page.
    return otherwise;
  }
}

/**
 * @param {string} name
 * @param {any} value null: nothing is kept any more
 */
export function keep(name, value) {
  memory.set(name, value);
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // As above.
  }
  listeners.forEach((listener) => listener());
}

/**
 * A kept value and its setter, with a new render whenever it changes.
 * @template T
 * @param {string} name
 * @param {T} otherwise as long as nothing is kept
 * @returns {[T, (value: T|null) => void]}
 */
export function useKept(name, otherwise) {
  const [, render] = useState(0);
  useEffect(() => {
    const listener = () => render((count) => count + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return [read(name, otherwise) ?? otherwise, (value) => keep(name, value)];
}

/**
 * 32 hexadecimal digits. The browser chooses the ids of orders and payments: a request that is repeated, by a
 * second click or after a lost answer, then means the same order.
 * @returns {string}
 */
export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
