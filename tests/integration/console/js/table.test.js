import assert from "node:assert/strict";
import { test } from "node:test";
import { nextOrder, pageOf, scrollToRow, sortRows, visibleRows } from "../pages/js/lib/table_window.js";

test("at every scroll position the window covers what is visible, and heights add up", () => {
  for (const rowCount of [0, 1, 20, 121, 5000]) {
    for (let scrollTop = 0; scrollTop <= rowCount * 34; scrollTop += 97) {
      const view = visibleRows({ scrollTop, viewHeight: 600, rowHeight: 34, rowCount });
      assert.equal(view.before + (view.end - view.first) * 34 + view.after, rowCount * 34);
      assert.ok(view.first * 34 <= scrollTop);
      assert.ok(view.end * 34 >= Math.min(scrollTop + 600, rowCount * 34));
      assert.ok(view.end - view.first <= 60);
    }
  }
});

test("a list that became shorter than the scroll position still shows its end", () => {
  const view = visibleRows({ scrollTop: 100_000, viewHeight: 600, rowHeight: 34, rowCount: 130 });
  assert.equal(view.end, 130);
  assert.ok(view.first < 112);
});

test("a row that is visible does not move the list; others come just into view", () => {
  const view = { viewHeight: 400, rowHeight: 34, headHeight: 34 };
  assert.equal(scrollToRow({ ...view, index: 3, scrollTop: 34 }), 34);
  assert.equal(scrollToRow({ ...view, index: 0, scrollTop: 340 }), 0);
  assert.equal(scrollToRow({ ...view, index: 20, scrollTop: 0 }), 20 * 34 + 68 - 400);
});

test("pages stay within the list", () => {
  assert.deepEqual(pageOf({ page: 2, limit: 100, total: 150 }), { page: 2, pageCount: 2, offset: 100, from: 101, to: 150 });
  assert.deepEqual(pageOf({ page: 9, limit: 100, total: 150 }).page, 2);
  assert.deepEqual(pageOf({ page: NaN, limit: 100, total: 0 }), { page: 1, pageCount: 1, offset: 0, from: 0, to: 0 });
});

test("numbers start with the greatest, texts with the first, and a second click turns the order", () => {
  assert.equal(nextOrder({ column: "", order: "asc" }, { id: "lag", number: true }), "desc");
  assert.equal(nextOrder({ column: "lag", order: "desc" }, { id: "lag", number: true }), "asc");
  assert.equal(nextOrder({ column: "lag", order: "desc" }, { id: "name" }), "asc");
});

test("rows sort by value, big integers too, and missing values come last in both orders", () => {
  const rows = [{ v: 10n ** 18n }, { v: null }, { v: 3 }, { v: 10n ** 18n + 1n }];
  assert.deepEqual(sortRows(rows, (row) => row.v, "asc").map((row) => row.v), [3, 10n ** 18n, 10n ** 18n + 1n, null]);
  assert.deepEqual(sortRows(rows, (row) => row.v, "desc").map((row) => row.v), [10n ** 18n + 1n, 10n ** 18n, 3, null]);
  assert.deepEqual(sortRows(["q10", "q9"], (name) => name, "asc"), ["q9", "q10"]);
});
