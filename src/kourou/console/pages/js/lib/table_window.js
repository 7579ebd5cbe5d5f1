/** The arithmetic of tables: which rows are rendered, which page is shown, how rows compare. Pure functions. */

/**
 * The rows to render of a scrolled table, and the heights of those left out above and below.
 * @param {{scrollTop: number, viewHeight: number, rowHeight: number, rowCount: number, overscan?: number}} view
 * @returns {{first: number, end: number, before: number, after: number}} rows first … end - 1
 */
export function visibleRows({ scrollTop, viewHeight, rowHeight, rowCount, overscan = 12 }) {
  const top = Math.floor(Math.max(0, scrollTop) / rowHeight);
  const count = Math.ceil(viewHeight / rowHeight) + 1;
  const first = Math.max(0, Math.min(top - overscan, rowCount - count - overscan));
  const end = Math.min(rowCount, top + count + overscan);
  return { first, end: Math.max(first, end), before: first * rowHeight, after: Math.max(0, rowCount - end) * rowHeight };
}

/**
 * The scroll position at which a row is wholly visible, as near to the present one as possible.
 * @param {{index: number, scrollTop: number, viewHeight: number, rowHeight: number, headHeight: number}} view
 * @returns {number}
 */
export function scrollToRow({ index, scrollTop, viewHeight, rowHeight, headHeight }) {
  const top = index * rowHeight;
  if (top < scrollTop) return top;
  const bottom = top + rowHeight + headHeight - viewHeight;
  return bottom > scrollTop ? bottom : scrollTop;
}

/**
 * Pages count from 1.
 * @param {{page: number, limit: number, total: number}} view
 * @returns {{page: number, pageCount: number, offset: number, from: number, to: number}} from and to count from 1
 */
export function pageOf({ page, limit, total }) {
  const pageCount = Math.max(1, Math.ceil(total / limit));
  const shown = Math.min(Math.max(1, Math.floor(page) || 1), pageCount);
  const offset = (shown - 1) * limit;
  return { page: shown, pageCount, offset, from: total === 0 ? 0 : offset + 1, to: Math.min(total, offset + limit) };
}

/**
 * The order after a click on a column's head: the other one for the sorted column; else numbers start with
 * the greatest, texts with the first.
 * @param {{column: string, order: "asc"|"desc"}} sort
 * @param {{id: string, number?: boolean}} column
 * @returns {"asc"|"desc"}
 */
export function nextOrder(sort, column) {
  if (sort.column === column.id) return sort.order === "asc" ? "desc" : "asc";
  return column.number ? "desc" : "asc";
}

/**
 * Rows in the order of a column: numbers by value, texts by the language's rules with digits by value,
 * missing values last in both directions.
 * @template T
 * @param {T[]} rows
 * @param {(row: T) => any} value
 * @param {"asc"|"desc"} order
 * @returns {T[]}
 */
export function sortRows(rows, value, order) {
  const sign = order === "desc" ? -1 : 1;
  const collator = new Intl.Collator(undefined, { numeric: true });
  const isMissing = (item) => item === null || item === undefined || item === "";
  return rows
    .map((row) => ({ row, key: value(row) }))
    .sort((a, b) => {
      if (isMissing(a.key) || isMissing(b.key)) return Number(isMissing(a.key)) - Number(isMissing(b.key));
      if (typeof a.key === "string" || typeof b.key === "string") return sign * collator.compare(String(a.key), String(b.key));
      return a.key < b.key ? -sign : a.key > b.key ? sign : 0;
    })
    .map((item) => item.row);
}
