/** Requests to the console's API, and the hooks by which pages read it. */
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { formatJson, parseJson } from "./json.js";
import { t } from "./i18n.js";
import { navigate } from "./router.js";
import { session, setSession } from "./session.js";

const TIMEOUT_MS = 60_000;

/** An answer other than success, or none. `hint` says what to do next. */
export class ApiError extends Error {
  /** @param {{status: number, code: string, message: string, hint?: string|null, body?: any}} fields */
  constructor({ status, code, message, hint = null, body = null }) {
    super(message);
    this.status = status;
    this.code = code;
    this.hint = hint;
    this.body = body;
  }
}

/**
 * A query string with its question mark, without empty values; a list repeats its name.
 * @param {Record<string, any>} [params]
 * @returns {string}
 */
export function queryString(params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined && item !== null && item !== "" && item !== false) query.append(name, String(item));
    }
  }
  const text = query.toString();
  return text && `?${text}`;
}

/**
 * GET of `/api{path}`.
 * @param {string} path
 * @param {Record<string, any>} [params]
 * @param {{signal?: AbortSignal, timeoutMs?: number}} [options]
 * @returns {Promise<any>}
 */
export function get(path, params, options) {
  return request("GET", path, params, undefined, options);
}

/**
 * POST, PUT or DELETE of `/api{path}` with the CSRF token. When the token has expired (the server was
 * restarted), a new one is read and the request is sent once more: it was refused before anything was done.
 * @param {"POST"|"PUT"|"DELETE"} method
 * @param {string} path
 * @param {any} body
 * @param {Record<string, any>} [params]
 * @param {{signal?: AbortSignal, timeoutMs?: number}} [options]
 * @returns {Promise<any>}
 */
export async function send(method, path, body, params, options) {
  try {
    return await request(method, path, params, body, options);
  } catch (error) {
    if (error.status !== 403) throw error;
    const before = session()?.csrf_token;
    setSession(await request("GET", "/session"));
    if (session()?.csrf_token === before) throw error;
    return request(method, path, params, body, options);
  }
}

async function request(method, path, params, body, { signal, timeoutMs = TIMEOUT_MS } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") {
    headers["Content-Type"] = "application/json";
    headers["X-CSRF-Token"] = session()?.csrf_token ?? "";
  }
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(), timeoutMs);
  const stop = () => timeout.abort();
  signal?.addEventListener("abort", stop);
  try {
    const response = await fetch(`/api${path}${queryString(params)}`, {
      method,
      headers,
      body: method === "GET" ? undefined : formatJson(body ?? {}),
      signal: timeout.signal,
      credentials: "same-origin",
    });
    return await readAnswer(response, path);
  } catch (error) {
    if (error instanceof ApiError || signal?.aborted) throw error;
    const code = timeout.signal.aborted ? "timeout" : "unreachable";
    // Without an answer to a change, it is not known whether it was made.
    const hint = method === "GET" || params?.preview ? t("api.unreachable_hint") : t("api.unknown_outcome");
    throw new ApiError({ status: 0, code, message: t(`api.${code}`), hint });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

async function readAnswer(response, path) {
  const text = await response.text();
  let body = null;
  try {
    body = text ? parseJson(text) : null;
  } catch {
    throw new ApiError({ status: response.status, code: "not_json", message: t("api.not_json", { status: response.status }) });
  }
  if (response.ok) return body;
  if (response.status === 401 && path !== "/login") {
    const here = location.pathname + location.search;
    if (location.pathname !== "/login") navigate(`/login${queryString({ next: here === "/" ? "" : here })}`);
  }
  const problem = body?.error ?? {};
  throw new ApiError({
    status: response.status,
    code: problem.code ?? "error",
    message: problem.message ?? t("api.failed", { status: response.status }),
    hint: problem.hint,
    body,
  });
}

/**
 * What a page reads. `data` stays while newer data is loaded. `isStale`: the last request failed, and `data`
 * is from before it. `isPrevious`: `data` belongs to the params before the present ones.
 * @typedef {{data: any, error: ApiError|null, isLoading: boolean, isStale: boolean, isPrevious: boolean, reload: () => void}} Read
 */

/**
 * Reads `/api{path}` again every `seconds`, except while the tab is hidden. A changed path or changed
 * params abort the request under way; a changed path drops the data as well. `path` null: nothing is read.
 * @param {string|null} path
 * @param {number} seconds 0: once
 * @param {Record<string, any>} [params]
 * @returns {Read}
 */
export function useLive(path, seconds = 5, params = undefined) {
  const query = queryString(params);
  const [state, setState] = useState({ path, query, data: null, error: null, isLoading: path !== null });
  const reloadRef = useRef(() => {});

  useEffect(() => {
    if (path === null) {
      setState({ path, query, data: null, error: null, isLoading: false });
      return undefined;
    }
    const controller = new AbortController();
    let timer = 0;
    let inFlight = false;
    let isDue = false;
    let lastRead = 0;

    async function read() {
      clearTimeout(timer);
      if (inFlight) {
        // What is on its way may be older than the change after which this was called.
        isDue = true;
        return;
      }
      inFlight = true;
      isDue = false;
      setState((old) => (old.path === path ? { ...old, isLoading: true } : { path, query, data: null, error: null, isLoading: true }));
      try {
        const data = await request("GET", path + query, undefined, undefined, { signal: controller.signal });
        if (!controller.signal.aborted) setState({ path, query, data, error: null, isLoading: false });
      } catch (error) {
        // Older data stays, but not that of other params: it would pass for the answer.
        if (!controller.signal.aborted) setState((old) => ({ path, query, data: old.query === query ? old.data : null, error, isLoading: false }));
      }
      inFlight = false;
      lastRead = Date.now();
      if (isDue && !controller.signal.aborted) read();
      else schedule();
    }
    function schedule() {
      clearTimeout(timer);
      if (seconds > 0 && !document.hidden && !controller.signal.aborted) timer = setTimeout(read, seconds * 1000);
    }
    function visibilityChanged() {
      if (document.hidden) clearTimeout(timer);
      else if (seconds > 0 && Date.now() - lastRead >= seconds * 1000) read();
      else schedule();
    }

    reloadRef.current = read;
    document.addEventListener("visibilitychange", visibilityChanged);
    read();
    return () => {
      controller.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", visibilityChanged);
    };
  }, [path, query, seconds]);

  const reload = useCallback(() => reloadRef.current(), []);
  // The first render after a change of path still has the state of the old one.
  const now = state.path === path ? state : { query, data: null, error: null, isLoading: path !== null };
  return {
    data: now.data,
    error: now.error,
    isLoading: now.isLoading,
    isStale: now.error !== null && now.data !== null,
    isPrevious: now.data !== null && now.query !== query,
    reload,
  };
}

/**
 * Reads `/api{path}` once, and again when path or params change or `reload` is called.
 * @param {string|null} path
 * @param {Record<string, any>} [params]
 * @returns {Read}
 */
export function useRead(path, params) {
  return useLive(path, 0, params);
}
