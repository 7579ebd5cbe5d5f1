import assert from "node:assert/strict";
import { test } from "node:test";
import { fromBase64, toBase64 } from "../pages/js/lib/bytes.js";
import { rangeTimes } from "../pages/js/lib/time_range.js";
import { line, visible } from "../pages/js/lib/visible.js";
import { dueCounts } from "../pages/js/pages/delayed.js";
import { kindOf, timelineRows } from "../pages/js/pages/trace_timeline.js";

test("control characters and marks of direction are shown, tabs and line feeds stay", () => {
  assert.equal(visible("a\u0000b\u0007\t\n"), "a␀b␇\t\n");
  assert.equal(visible("\u202egnp.exe\u200b\ufeff\u0085"), "⟨U+202E⟩gnp.exe⟨U+200B⟩⟨U+FEFF⟩⟨U+0085⟩");
  assert.equal(visible("<script>测试</script>"), "<script>测试</script>");
});

test("a line is cut, and has no line feeds", () => {
  assert.equal(line("a\r\n\tb"), "a b");
  assert.equal(line("x".repeat(200), 5), "xxxxx…");
  assert.equal(line(null), "");
});

test("Base64 has every byte, in lines", () => {
  const bytes = Uint8Array.from({ length: 256 }, (_item, i) => i);
  const text = toBase64(bytes);
  assert.deepEqual(fromBase64(text.replaceAll("\n", "")), bytes);
  assert.ok(text.split("\n").every((part) => part.length <= 76));
});

test("all times begin with the epoch", () => {
  assert.deepEqual(rangeTimes({ range: "all", from: "", to: "" }, 1_000), { from: 0, to: 1_000 });
});

test("messages are counted by the time when they are due", () => {
  const now = 1_000_000;
  const rows = [-5, 0, 60_000, 60_001, 3_600_001, 48 * 3_600_000].map((due) => ({ due: now + due }));
  assert.deepEqual(dueCounts(rows, now), [3, 1, 0, 1, 0, 1]);
});

test("a timeline has a row for each send, check and delivery; one without end lasts to the end of the trace", () => {
  const trace = {
    end_ms: 90,
    sends: [{ group: "shop", begin_ms: 10, end_ms: 12, cost_ms: 2, status: "success", message_type: "transaction_half" }],
    transactions: [{ time_ms: 20, state: "UNKNOW", is_from_check: true }, { time_ms: 30, state: "ROLLBACK_MESSAGE", is_from_check: false }],
    recalls: [],
    consumers: [{ consumer_group: "a", attempts: [{ begin_ms: 40, end_ms: 50, cost_ms: 10, status: "returned null" }, { begin_ms: 60, end_ms: null, cost_ms: null, status: "unfinished" }] }],
  };
  const rows = timelineRows(trace);
  assert.deepEqual(rows.map((row) => [row.begin, row.end, row.kind, row.isPoint]), [
    [10, 12, "good", false], [20, 20, "warn", true], [30, 30, "bad", true], [40, 50, "bad", false], [60, 90, "warn", false],
  ]);
  assert.deepEqual(rows.slice(3).map((row) => row.label), ["a #1", "a #2"]);
  assert.equal(kindOf("COMMIT_MESSAGE"), "good");
});
