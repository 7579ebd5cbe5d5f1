/**
 * Table: rows and columns with sortable heads, selection, a keyboard and virtual rows. It shows what it is
 * given; where rows come from (the server, an array) is in table_data.js.
 */
import { classes, html, useLayoutEffect, useRef, useState } from "./html.js";
import { useShortcuts } from "./keys.js";
import { navigate } from "./router.js";
import { scrollToRow, visibleRows } from "./table_window.js";
import { t } from "./i18n.js";

/** As in tables.css (--row-height): with virtual rows each row has one line. */
const ROW_HEIGHT = 34;
/** Fewer rows than this are all rendered. */
const VIRTUAL_FROM = 120;

/**
 * @typedef {object} Column
 * @property {string} id the name by which the server (or `value`) sorts
 * @property {any} label
 * @property {(row: any) => any} [render] default: the row's property of that id
 * @property {(row: any) => any} [value] for sorting and searching an array; default as above
 * @property {boolean} [sortable] default true
 * @property {boolean} [number] right-aligned, digits of one width
 * @property {boolean} [main] the name of the row: a row header, and the link of the row
 * @property {boolean} [wrap] long text breaks instead of being cut
 * @property {string} [hint] title of the head
 */

/**
 * @param {object} props
 * @param {string} props.label what the table lists, for screen readers
 * @param {Column[]} props.columns
 * @param {any[]} props.rows
 * @param {(row: any) => string} props.rowKey
 * @param {(row: any) => string|null} [props.rowHref] the page of a row: Enter and a click on it go there
 * @param {(row: any) => void} [props.onOpen] instead of rowHref
 * @param {{column: string, order: "asc"|"desc"}} [props.sort]
 * @param {(column: Column) => void} [props.onSort]
 * @param {Set<string>} [props.selected] keys of the selected rows
 * @param {(keys: Set<string>) => void} [props.onSelect]
 * @param {boolean} [props.isLoading]
 * @param {any} [props.empty] shown without rows
 * @param {boolean} [props.fill] as high as the window, and scrolls itself
 * @param {string} [props.resetKey] when it changes (another page, another order), the table scrolls to its start
 * @param {number} [props.firstIndex] the index of the first row in the whole list
 * @param {number} [props.total]
 */
export function Table(props) {
  const { label, columns, rows, rowKey, rowHref, onOpen, sort, onSort, selected, onSelect, isLoading, empty, fill, resetKey, firstIndex = 0, total } = props;
  const scroller = useRef(null);
  const [view, setView] = useState({ scrollTop: 0, viewHeight: 800 });
  const [activeKey, setActiveKey] = useState(null);
  const focusActive = useRef(false);
  const isVirtual = rows.length > VIRTUAL_FROM;
  const rendered = isVirtual
    ? visibleRows({ ...view, rowHeight: ROW_HEIGHT, rowCount: rows.length })
    : { first: 0, end: rows.length, before: 0, after: 0 };
  const columnCount = columns.length + (onSelect ? 1 : 0);

  useLayoutEffect(() => {
    const element = scroller.current;
    const measure = () => setView((old) => sameView(old, element) ? old : { scrollTop: element.scrollTop, viewHeight: element.clientHeight });
    measure();
    if (!isVirtual) return undefined;
    element.addEventListener("scroll", measure, { passive: true });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      observer.disconnect();
    };
  }, [isVirtual]);

  useLayoutEffect(() => {
    scroller.current.scrollTop = 0;
  }, [resetKey]);

  // Marks that there are columns beyond the right edge.
  useLayoutEffect(() => {
    const element = scroller.current;
    const mark = () => element.toggleAttribute("data-more", element.scrollWidth - element.clientWidth - element.scrollLeft > 1);
    mark();
    element.addEventListener("scroll", mark, { passive: true });
    const observer = new ResizeObserver(mark);
    observer.observe(element);
    observer.observe(element.querySelector("table"));
    return () => {
      element.removeEventListener("scroll", mark);
      observer.disconnect();
    };
  }, []);

  // Columns keep at least the width they once had: rows that scroll into view do not make them jump.
  useLayoutEffect(() => {
    const heads = scroller.current.querySelectorAll("thead th");
    heads.forEach((head) => {
      head.style.minWidth = isVirtual ? `${head.offsetWidth}px` : "";
    });
  }, [isVirtual, columns.length, rendered.first]);

  // In the same task as the render: a key pressed between the two would be undone by the focus of the row before.
  useLayoutEffect(() => {
    if (!focusActive.current) return;
    focusActive.current = false;
    const row = scroller.current.querySelector('tbody tr[data-active="true"]');
    row?.focus({ preventScroll: true });
    if (!isVirtual) row?.scrollIntoView({ block: "nearest" });
  });

  const activeIndex = rows.findIndex((row) => rowKey(row) === activeKey);
  // Keys may come faster than renders: the next one counts from here.
  const position = useRef(-1);
  position.current = activeIndex;
  const move = (to) => {
    const index = Math.max(0, Math.min(rows.length - 1, to));
    if (!rows.length) return;
    if (isVirtual) {
      const element = scroller.current;
      const headHeight = element.querySelector("thead").offsetHeight;
      element.scrollTop = scrollToRow({ index, scrollTop: element.scrollTop, viewHeight: element.clientHeight, rowHeight: ROW_HEIGHT, headHeight });
      setView({ scrollTop: element.scrollTop, viewHeight: element.clientHeight });
    }
    focusActive.current = true;
    position.current = index;
    setActiveKey(rowKey(rows[index]));
  };
  const open = (row) => {
    if (onOpen) onOpen(row);
    else if (rowHref?.(row)) navigate(rowHref(row));
  };
  const toggle = (key) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelect(next);
  };

  const latest = useRef(null);
  latest.current = move;
  useShortcuts([
    { keys: "j", label: t("keys.next_row"), run: () => latest.current(position.current + 1) },
    { keys: "k", label: t("keys.previous_row"), run: () => latest.current(position.current - 1) },
  ], []);

  const keyDown = (event) => {
    if (event.target.closest("input, button, a, select, textarea") && event.target.closest("tr") !== event.target) return;
    const index = position.current;
    const moves = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: rows.length - 1, PageDown: index + 15, PageUp: index - 15 };
    if (event.key in moves) move(moves[event.key]);
    else if (event.key === "Enter" && rows[index]) open(rows[index]);
    else if (event.key === " " && onSelect && rows[index]) toggle(rowKey(rows[index]));
    else return;
    event.preventDefault();
  };

  const shownKeys = onSelect ? rows.map(rowKey) : [];
  const allSelected = shownKeys.length > 0 && shownKeys.every((key) => selected.has(key));
  const selectAll = () => {
    const next = new Set(selected);
    shownKeys.forEach((key) => (allSelected ? next.delete(key) : next.add(key)));
    onSelect(next);
  };

  const row = (item, position) => {
    const index = rendered.first + position;
    const key = rowKey(item);
    const isActive = key === activeKey;
    const canOpen = Boolean(onOpen || rowHref?.(item));
    // One row takes part in the order of Tab: the active one, else the first.
    const tabIndex = isActive || (activeIndex < 0 && index === 0) ? 0 : -1;
    const click = (event) => {
      if (event.target.closest("a, button, input, label, summary")) return;
      setActiveKey(key);
      if (canOpen && !getSelection().toString()) open(item);
    };
    return html`<tr key=${key} class=${classes(canOpen && "is-link", selected?.has(key) && "is-selected")} data-active=${isActive ? "true" : undefined}
        tabIndex=${tabIndex} aria-rowindex=${firstIndex + index + 2} onClick=${click} onFocus=${(event) => event.target === event.currentTarget && setActiveKey(key)}>
      ${onSelect && html`<td class="select-cell"><input type="checkbox" aria-label=${t("table.select_row", { name: key })} checked=${selected.has(key)} onChange=${() => toggle(key)} /></td>`}
      ${columns.map((column) => cell(column, item, rowHref))}
    </tr>`;
  };

  return html`<div class=${classes("table-scroll", fill && "is-fill", isVirtual && "is-virtual")} ref=${scroller} onKeyDown=${keyDown}>
    <table class=${classes("table", isLoading && "is-loading")} aria-label=${label} aria-rowcount=${(total ?? rows.length) + 1} aria-busy=${isLoading ? "true" : undefined}>
      <thead><tr>
        ${onSelect && html`<th class="select-cell" scope="col"><input type="checkbox" aria-label=${t("table.select_all")} checked=${allSelected} onChange=${selectAll} /></th>`}
        ${columns.map((column) => head(column, sort, onSort))}
      </tr></thead>
      <tbody>
        ${rendered.before > 0 && html`<tr key="before" class="spacer" aria-hidden="true"><td colSpan=${columnCount} style=${{ height: `${rendered.before}px` }}></td></tr>`}
        ${rows.slice(rendered.first, rendered.end).map(row)}
        ${rendered.after > 0 && html`<tr key="after" class="spacer" aria-hidden="true"><td colSpan=${columnCount} style=${{ height: `${rendered.after}px` }}></td></tr>`}
      </tbody>
    </table>
    ${rows.length === 0 && empty}
  </div>`;
}

function sameView(view, element) {
  // A new render for every few pixels would be wasted: the overscan covers a few rows.
  return view.viewHeight === element.clientHeight && Math.abs(view.scrollTop - element.scrollTop) < ROW_HEIGHT * 4 && element.scrollTop > 0;
}

function head(column, sort, onSort) {
  const isSorted = sort?.column === column.id;
  const canSort = onSort && column.sortable !== false;
  const ariaSort = isSorted ? (sort.order === "desc" ? "descending" : "ascending") : undefined;
  return html`<th key=${column.id} scope="col" class=${classes(column.number && "is-number", column.main && "is-main")} aria-sort=${ariaSort} title=${column.hint}>
    ${canSort
      ? html`<button type="button" class="sort" onClick=${() => onSort(column)}>${column.label}<span class=${classes("sort-mark", isSorted && `is-${sort.order}`)} aria-hidden="true"></span></button>`
      : column.label}
  </th>`;
}

function cell(column, row, rowHref) {
  const content = column.render ? column.render(row) : row[column.id] ?? "–";
  const className = classes(column.number && "is-number", column.wrap && "is-wrapped", column.main && "is-main");
  const title = typeof content === "string" && !column.number ? content : undefined;
  if (!column.main) return html`<td key=${column.id} class=${className} title=${title}>${content}</td>`;
  const href = rowHref?.(row);
  return html`<th key=${column.id} scope="row" class=${className} title=${title}>${href ? html`<a href=${href}>${content}</a>` : content}</th>`;
}
