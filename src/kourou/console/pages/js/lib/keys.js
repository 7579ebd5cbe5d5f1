/** Keyboard shortcuts: pages register theirs, `?` lists them. No shortcut works while text is typed. */
import { html, useEffect, useState } from "./html.js";
import { Dialog } from "./dialog.js";
import { t } from "./i18n.js";

const SEQUENCE_MS = 1200;
/** @type {{keys: string, label: string, run: (event: KeyboardEvent) => void}[]} */
let shortcuts = [];
let prefix = "";
let prefixTime = 0;

/**
 * @param {KeyboardEvent} event
 * @returns {boolean} the key belongs to an input or to a dialog
 */
export function isTyping(event) {
  return Boolean(event.target.closest?.("input, select, textarea, [contenteditable], dialog"));
}

/** Listens for keys. Called once, by main.js. */
export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
    const isSecond = prefix !== "" && event.timeStamp - prefixTime < SEQUENCE_MS;
    const keys = isSecond ? `${prefix} ${event.key}` : event.key;
    const found = shortcuts.findLast((shortcut) => shortcut.keys === keys);
    const startsSequence = !isSecond && shortcuts.some((shortcut) => shortcut.keys.startsWith(`${event.key} `));
    prefix = !found && startsSequence ? event.key : "";
    prefixTime = event.timeStamp;
    if (!found) return;
    event.preventDefault();
    found.run(event);
  });
}

/**
 * @param {{keys: string, label: string, run: (event: KeyboardEvent) => void}[]} list `keys`: "j", "/" or "g t"
 * @param {any[]} dependencies as of useEffect
 */
export function useShortcuts(list, dependencies) {
  useEffect(() => {
    shortcuts = [...shortcuts, ...list];
    return () => {
      shortcuts = shortcuts.filter((shortcut) => !list.includes(shortcut));
    };
  }, dependencies);
}

let openHelp = () => {};

/** Opens the list of shortcuts, as `?` does. */
export function showShortcuts() {
  openHelp();
}

/** The list of shortcuts, opened by `?`. Once, in main.js. */
export function ShortcutHelp() {
  const [isOpen, open] = useState(false);
  openHelp = () => open(true);
  useShortcuts([{ keys: "?", label: t("keys.help"), run: showShortcuts }], []);
  if (!isOpen) return null;
  const byLabel = new Map(shortcuts.map((shortcut) => [shortcut.label, shortcut.keys]));
  return html`<${Dialog} title=${t("keys.title")} onClose=${() => open(false)}>
    <dl class="shortcuts">${[...byLabel].map(([label, keys]) => html`<div key=${label}><dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${label}</dd></div>`)}</dl>
  <//>`;
}
