/** Light, dark, or as the system says. boot.js sets the theme before the first paint, in the same way. */
import { useEffect, useState } from "./html.js";

const STORAGE_KEY = "kourou.theme";
const CHOICES = ["auto", "light", "dark"];
const listeners = new Set();
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

let choice = storedChoice();
systemIsDark.addEventListener("change", apply);

function storedChoice() {
  try {
    const stored = localStorage.getItem(STORAGE_KEY);
    return stored !== null && CHOICES.includes(stored) ? stored : "auto";
  } catch {
    // Storage may be switched off in the browser: the choice then lasts until the page is closed.
    return "auto";
  }
}

function isDark() {
  return choice === "auto" ? systemIsDark.matches : choice === "dark";
}

function apply() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  listeners.forEach((listener) => listener());
}

/** Goes on to the next of automatic, light, dark. */
export function nextTheme() {
  choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
  try {
    localStorage.setItem(STORAGE_KEY, choice);
  } catch {
    // As above.
  }
  apply();
}

/**
 * The choice and what it means now, with a new render whenever either changes.
 * @returns {{choice: "auto"|"light"|"dark", isDark: boolean}}
 */
export function useTheme() {
  const read = () => ({ choice: /** @type {"auto"|"light"|"dark"} */ (choice), isDark: isDark() });
  const [value, set] = useState(read);
  useEffect(() => {
    const listener = () => set(read());
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return value;
}
