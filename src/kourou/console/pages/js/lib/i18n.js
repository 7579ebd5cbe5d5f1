/** Texts by key in English and Chinese. A key that is missing in one language is shown in English. */
import { useEffect, useState } from "./html.js";

const LANGUAGES = { en: "English", zh: "中文" };
const STORAGE_KEY = "kourou.language";

let language = "en";
/** @type {Record<string, Record<string, string>>} */
const texts = { en: {}, zh: {} };
const listeners = new Set();

/** The codes of the languages and their names. */
export const languages = Object.entries(LANGUAGES);

/** @returns {"en"|"zh"} */
export function currentLanguage() {
  return /** @type {"en"|"zh"} */ (language);
}

/**
 * `{"topics": {"title": "Topics"}}` as `{"topics.title": "Topics"}`.
 * @param {Record<string, any>} tree
 * @param {string} [prefix]
 * @returns {Record<string, string>}
 */
export function flatten(tree, prefix = "") {
  const flat = {};
  for (const [key, value] of Object.entries(tree)) {
    if (typeof value === "string") flat[prefix + key] = value;
    else Object.assign(flat, flatten(value, `${prefix}${key}.`));
  }
  return flat;
}

/**
 * The text of a key; `{name}` in it is replaced by the parameter of that name.
 * @param {string} key
 * @param {Record<string, any>} [params]
 * @returns {string}
 */
export function t(key, params) {
  const text = texts[language][key] ?? texts.en[key] ?? key;
  return params ? text.replace(/\{(\w+)\}/g, (whole, name) => (name in params ? String(params[name]) : whole)) : text;
}

/**
 * The text of `key.one` or `key.other`, by the count and the language's rule; `{count}` is the count.
 * @param {string} key
 * @param {number|bigint} count
 * @param {Record<string, any>} [params]
 * @returns {string}
 */
export function tn(key, count, params) {
  const rule = new Intl.PluralRules(language).select(Number(count)) === "one" ? "one" : "other";
  return t(`${key}.${rule}`, { count: new Intl.NumberFormat(language).format(count), ...params });
}

/** Loads the texts of the language chosen earlier, or else of the browser. Called once, by main.js. */
export async function startLanguage() {
  await use(chosenLanguage());
}

function chosenLanguage() {
  try {
    const stored = localStorage.getItem(STORAGE_KEY);
    if (stored && stored in LANGUAGES) return stored;
  } catch {
    // Storage may be switched off in the browser: its language decides then.
  }
  const names = (navigator.languages ?? [navigator.language]).map((name) => name.slice(0, 2));
  return names.find((name) => name in LANGUAGES) ?? "en";
}

/** @param {string} name the code of a language */
export async function setLanguage(name) {
  try {
    localStorage.setItem(STORAGE_KEY, name);
  } catch {
    // As above: the choice lasts until the page is closed.
  }
  await use(name);
}

async function use(name) {
  await Promise.all([...new Set(["en", name])].map(load));
  language = name;
  document.documentElement.lang = name;
  listeners.forEach((listener) => listener(name));
}

async function load(name) {
  if (Object.keys(texts[name]).length) return;
  try {
    const response = await fetch(`/static/lang/${name}.json`);
    texts[name] = flatten(await response.json());
  } catch (error) {
    // Without texts the page shows their keys, and still works.
    console.error(error);
  }
}

/**
 * The present language, with a new render whenever it changes.
 * @returns {string}
 */
export function useLanguage() {
  const [value, set] = useState(language);
  useEffect(() => {
    listeners.add(set);
    return () => listeners.delete(set);
  }, []);
  return value;
}
