/** Tables with search, sort and pages: of the server (useServerTable, ServerTable) and of an array (ArrayTable). */
import { html, useEffect, useMemo, useRef, useState } from "./html.js";
import { useLive } from "./api.js";
import { number } from "./format.js";
import { Icon } from "./icons.js";
import { t, tn } from "./i18n.js";
import { useShortcuts } from "./keys.js";
import { useQuery } from "./router.js";
import { Empty, ErrorBox, Loading, Problems } from "./states.js";
import { Table } from "./table.js";
import { nextOrder, pageOf, sortRows } from "./table_window.js";

const LIMITS = ["50", "100", "500", "1000"];
const SEARCH_DELAY_MS = 250;

/**
 * The state of a paged list of the server: search, sort, order and page are in the URL.
 * @param {object} options
 * @param {string|null} options.path below /api; null: nothing is read yet
 * @param {Record<string, any>} [options.params] further parameters, such as filters
 * @param {number} [options.seconds] read again that often; 0: not
 * @param {{column: string, order: "asc"|"desc"}} [options.sort] the default
 * @param {string} [options.prefix] before the names in the URL, for the second table of a page
 */
export function useServerTable({ path, params = {}, seconds = 0, sort = { column: "", order: "asc" }, prefix = "" }) {
  const names = { search: `${prefix}search`, sort: `${prefix}sort`, order: `${prefix}order`, page: `${prefix}page`, limit: `${prefix}limit` };
  const defaults = { [names.search]: "", [names.sort]: sort.column, [names.order]: sort.order, [names.page]: "1", [names.limit]: "100" };
  const [query, setQuery, link] = useQuery(defaults);
  const [search, column, order] = [query[names.search], query[names.sort], query[names.order] === "desc" ? "desc" : "asc"];
  const limit = LIMITS.includes(query[names.limit]) ? Number(query[names.limit]) : 100;
  const wantedPage = Math.max(1, Math.floor(Number(query[names.page])) || 1);
  const read = useLive(path, seconds, { search, sort: column, order: column && order, offset: (wantedPage - 1) * limit, limit, ...params });
  const page = pageOf({ page: wantedPage, limit, total: read.data?.total ?? Infinity });

  // Rows may have vanished: a page behind the last one becomes the last one.
  useEffect(() => {
    if (read.data && !read.isLoading && wantedPage > page.pageCount) setQuery({ [names.page]: String(page.pageCount) }, { replace: true });
  }, [read.data, wantedPage]);

  return {
    read,
    reload: read.reload,
    rows: read.data?.items ?? [],
    total: read.data?.total ?? 0,
    page,
    limit,
    search,
    sort: { column, order: /** @type {"asc"|"desc"} */ (order) },
    setSearch: (text) => setQuery({ [names.search]: text, [names.page]: "1" }, { replace: true }),
    sortBy: (next) => setQuery({ [names.sort]: next.id, [names.order]: nextOrder({ column, order }, next), [names.page]: "1" }),
    setLimit: (value) => setQuery({ [names.limit]: value, [names.page]: "1" }),
    pageLink: (value) => link({ [names.page]: String(value) }),
  };
}

/**
 * A table over `useServerTable`, with its tools above and its pages below.
 * @param {object} props
 * @param {ReturnType<typeof useServerTable>} props.table
 * @param {string} props.label
 * @param {import("./table.js").Column[]} props.columns
 * @param {(row: any) => string} props.rowKey
 * @param {(row: any) => string|null} [props.rowHref]
 * @param {(row: any) => void} [props.onOpen]
 * @param {any} [props.filters] further controls beside the search
 * @param {boolean} [props.searchable] default true
 * @param {string} [props.searchLabel]
 * @param {(keys: string[], clear: () => void, rows: any[]) => any} [props.selection] buttons for selected rows: makes rows selectable
 * @param {any} [props.empty] shown when the list is empty without a search
 */
export function ServerTable({ table, label, columns, rowKey, rowHref, onOpen, filters, searchable = true, searchLabel, selection, empty }) {
  const [selected, select] = useState(() => new Set());
  const { read, rows, total, page } = table;
  const chosen = rows.filter((row) => selected.has(rowKey(row)));
  const emptyNote = read.data && (table.search || !empty ? html`<${Empty} title=${t("table.nothing_found")} />` : empty);
  return html`<div class="table-box">
    <div class="table-tools">
      ${searchable && html`<${SearchInput} value=${table.search} onChange=${table.setSearch} label=${searchLabel ?? t("table.search")} />`}
      ${filters}
      ${selection && selected.size > 0 && html`<div class="table-selection"><span>${tn("table.selected", selected.size)}</span>${selection([...selected], () => select(new Set()), chosen)}</div>`}
      <span class="table-count muted" role="status">${read.data && tn("table.rows", total)}</span>
    </div>
    ${read.error && html`<${ErrorBox} error=${read.error} onRetry=${read.reload} />`}
    <${Problems} problems=${read.data?.problems} />
    ${read.data === null ? !read.error && html`<${Loading} />` : html`<${Table} fill label=${label} columns=${columns} rows=${rows} rowKey=${rowKey} rowHref=${rowHref}
      onOpen=${onOpen} sort=${table.sort} onSort=${table.sortBy} selected=${selected} onSelect=${selection ? select : undefined}
      isLoading=${read.isPrevious} empty=${emptyNote} firstIndex=${page.offset} total=${total} resetKey=${`${table.search} ${table.sort.column} ${table.sort.order} ${page.page}`} />`}
    ${read.data !== null && total > 50 && html`<${Pager} table=${table} />`}
  </div>`;
}

function Pager({ table }) {
  const { page, total, limit } = table;
  const step = (to, label, icon) => {
    const isPossible = to >= 1 && to <= page.pageCount;
    return html`<a class="button icon-button" href=${isPossible ? table.pageLink(to) : undefined} aria-disabled=${isPossible ? undefined : "true"} aria-label=${label} title=${label} role=${isPossible ? undefined : "link"}><${Icon} name=${icon} /></a>`;
  };
  return html`<nav class="pager" aria-label=${t("table.pages")}>
    <span class="muted">${t("table.range", { from: number(page.from), to: number(page.to), total: number(total) })}</span>
    <label>${t("table.limit")} <select value=${String(limit)} onChange=${(event) => table.setLimit(event.target.value)}>${LIMITS.map((value) => html`<option value=${value} selected=${value === String(limit)}>${value}</option>`)}</select></label>
    ${step(page.page - 1, t("table.previous"), "back")}
    <span>${t("table.page_of", { page: number(page.page), count: number(page.pageCount) })}</span>
    ${step(page.page + 1, t("table.next"), "next")}
  </nav>`;
}

/**
 * A search field; `/` moves the focus to it. Changes are reported after a pause in typing.
 * @param {{value: string, onChange: (text: string) => void, label: string}} props
 */
export function SearchInput({ value, onChange, label }) {
  const [text, setText] = useState(value);
  const input = useRef(null);
  const timer = useRef(0);
  const reported = useRef(value);
  useEffect(() => {
    // A value from elsewhere (a link, the back button), not the one just typed.
    if (value !== reported.current) {
      reported.current = value;
      setText(value);
    }
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  useShortcuts([{ keys: "/", label: t("keys.search"), run: () => input.current?.focus() }], []);
  const typed = (event) => {
    const next = event.target.value;
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      reported.current = next;
      onChange(next);
    }, SEARCH_DELAY_MS);
  };
  return html`<label class="search"><${Icon} name="search" /><span class="off-screen">${label}</span>
    <input ref=${input} type="search" placeholder=${label} value=${text} onInput=${typed} autoComplete="off" spellCheck=${false} onKeyDown=${(event) => event.key === "Escape" && event.target.blur()} />
    <kbd aria-hidden="true">/</kbd></label>`;
}

/**
 * A table over an array, searched and sorted in the browser; search and sort are in the URL.
 * @param {object} props
 * @param {any[]} props.rows
 * @param {string} props.label
 * @param {import("./table.js").Column[]} props.columns
 * @param {(row: any) => string} props.rowKey
 * @param {(row: any) => string|null} [props.rowHref]
 * @param {(row: any) => void} [props.onOpen]
 * @param {{column: string, order: "asc"|"desc"}} [props.sort]
 * @param {boolean} [props.searchable] default false
 * @param {string} [props.prefix] as in useServerTable
 * @param {any} [props.filters]
 * @param {any} [props.empty]
 * @param {boolean} [props.fill]
 */
export function ArrayTable({ rows, label, columns, rowKey, rowHref, onOpen, sort = { column: "", order: "asc" }, searchable = false, prefix = "", filters, empty, fill = false }) {
  const names = { search: `${prefix}search`, sort: `${prefix}sort`, order: `${prefix}order` };
  const [query, setQuery] = useQuery({ [names.search]: "", [names.sort]: sort.column, [names.order]: sort.order });
  const [search, column] = [query[names.search], query[names.sort]];
  const order = query[names.order] === "desc" ? "desc" : "asc";
  const valueOf = (definition) => definition.value ?? ((row) => row[definition.id]);
  const shown = useMemo(() => {
    const text = search.toLowerCase();
    const found = text ? rows.filter((row) => columns.some((item) => String(valueOf(item)(row) ?? "").toLowerCase().includes(text))) : rows;
    const definition = columns.find((item) => item.id === column);
    return definition ? sortRows(found, valueOf(definition), order) : found;
  }, [rows, search, column, order]);
  const sortBy = (next) => setQuery({ [names.sort]: next.id, [names.order]: nextOrder({ column, order }, next) });
  return html`<div class="table-box">
    ${(searchable || filters) && html`<div class="table-tools">
      ${searchable && html`<${SearchInput} value=${search} onChange=${(text) => setQuery({ [names.search]: text }, { replace: true })} label=${t("table.search")} />`}
      ${filters}
      <span class="table-count muted" role="status">${tn("table.rows", shown.length)}</span>
    </div>`}
    <${Table} fill=${fill} label=${label} columns=${columns} rows=${shown} rowKey=${rowKey} rowHref=${rowHref} onOpen=${onOpen} sort=${{ column, order }} onSort=${sortBy}
      resetKey=${`${search} ${column} ${order}`} empty=${rows.length === 0 && empty ? empty : html`<${Empty} title=${t("table.nothing_found")} />`} />
  </div>`;
}
