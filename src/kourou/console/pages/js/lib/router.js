/**
 * Paths by the History API; everything a user can choose on a page is in the query string, so that each
 * view has a link. Links are plain `<a href>`: one listener turns clicks on them into navigation.
 */
import { useCallback, useEffect, useMemo, useState } from "./html.js";

const listeners = new Set();

function changed() {
  listeners.forEach((listener) => listener());
}

/**
 * @param {string} url path with query
 * @param {{replace?: boolean}} [options] replace: no new entry in the browser's history
 */
export function navigate(url, { replace = false } = {}) {
  if (url === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  changed();
}

/** Turns clicks on links within the console into navigation. Called once, by main.js. */
export function startRouter() {
  addEventListener("popstate", changed);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || !isPagePath(url.pathname)) return;
    if (url.hash && url.pathname + url.search === location.pathname + location.search) return;
    event.preventDefault();
    const isOtherPage = url.pathname !== location.pathname;
    navigate(url.pathname + url.search);
    if (isOtherPage) scrollTo(0, 0);
  });
}

function isPagePath(path) {
  return !/^\/(api|static|metrics|livez|readyz)(\/|$)/.test(path);
}

/**
 * The present path and query, with a new render whenever they change.
 * @returns {{path: string, search: string}}
 */
export function useLocation() {
  const read = () => ({ path: location.pathname, search: location.search });
  const [value, set] = useState(read);
  useEffect(() => {
    const listener = () => set((old) => (old.path === location.pathname && old.search === location.search ? old : read()));
    listeners.add(listener);
    listener();
    return () => listeners.delete(listener);
  }, []);
  return value;
}

/**
 * The parts of a path, each encoded: `pathOf("topics", "%DLQ%a")` is `/topics/%25DLQ%25a`.
 * @param {...(string|number|bigint)} parts
 * @returns {string}
 */
export function pathOf(...parts) {
  return "/" + parts.map((part) => encodeURIComponent(String(part))).join("/");
}

/**
 * The variables of a pattern such as `/topics/{topic}`, or null if the path does not match it.
 * @param {string} pattern
 * @param {string} path
 * @returns {Record<string, string>|null}
 */
export function matchPath(pattern, path) {
  const wanted = pattern.split("/");
  const given = path.replace(/(.)\/$/, "$1").split("/");
  if (wanted.length !== given.length) return null;
  const variables = {};
  for (let i = 0; i < wanted.length; i++) {
    if (wanted[i].startsWith("{")) {
      try {
        variables[wanted[i].slice(1, -1)] = decodeURIComponent(given[i]);
      } catch {
        return null;
      }
    } else if (wanted[i] !== given[i]) return null;
  }
  return variables;
}

/**
 * A query string in which some values are changed; a value equal to its default is left out.
 * @param {string} search the present query string
 * @param {Record<string, any>} changes null, "" and undefined remove a name
 * @param {Record<string, any>} [defaults]
 * @returns {string}
 */
export function changeSearch(search, changes, defaults = {}) {
  const query = new URLSearchParams(search);
  for (const [name, value] of Object.entries(changes)) {
    const text = value === null || value === undefined ? "" : String(value);
    const isDefault = name in defaults && String(defaults[name] ?? "") === text;
    // An empty value must stay in the URL when the default is not empty.
    if (isDefault || (text === "" && !defaults[name])) query.delete(name);
    else query.set(name, text);
  }
  const text = query.toString();
  return text && `?${text}`;
}

/**
 * The page's choices, kept in the query string. Values are strings.
 * @template {Record<string, string>} T
 * @param {T} defaults the names and what they are when absent from the URL
 * @returns {[T, (changes: Partial<T>, options?: {replace?: boolean}) => void, (changes: Partial<T>) => string]}
 *   values, a setter, and the URL that the setter would go to (for links)
 */
export function useQuery(defaults) {
  const { path, search } = useLocation();
  const key = JSON.stringify(defaults);
  const values = useMemo(() => {
    const query = new URLSearchParams(search);
    return Object.fromEntries(Object.entries(defaults).map(([name, value]) => [name, query.get(name) ?? value]));
  }, [search, key]);
  const set = useCallback((changes, options) => {
    navigate(location.pathname + changeSearch(location.search, changes, defaults), options);
  }, [key]);
  const link = useCallback((changes) => path + changeSearch(search, changes, defaults), [path, search, key]);
  return [values, set, link];
}
