import assert from "node:assert/strict";
import { test } from "node:test";

process.env.TZ = "Asia/Kolkata"; // half an hour in its offset
const { ago, bytes, compact, duration, isoTime, number, percent, rate, time } = await import("../pages/js/lib/format.js");

test("a missing value is a dash", () => {
  for (const format of [number, compact, rate, percent, bytes, duration, time, ago]) {
    assert.equal(format(null), "–");
    assert.equal(format(undefined), "–");
  }
});

test("every digit of a 64-bit integer is shown", () => {
  assert.equal(number(9223372036854775807n), "9,223,372,036,854,775,807");
  assert.equal(number(0), "0");
});

test("rates lose decimals as they grow", () => {
  assert.deepEqual([0.126, 12.34, 1234.5].map(rate), ["0.13", "12.3", "1,235"]);
});

test("sizes change their unit at powers of 1024", () => {
  assert.deepEqual([0, 1023, 1024, 1536, 1048576, 2n ** 62n].map(bytes), ["0 B", "1,023 B", "1 KiB", "1.5 KiB", "1 MiB", "4,096 PiB"]);
});

test("durations have at most two units and never round up to the next one", () => {
  const texts = [[0, "0 ms"], [999, "999 ms"], [59_999, "59.9 s"], [60_000, "1 min"], [3_599_999, "59 min 59 s"], [86_399_999, "23 h 59 min"], [90_000_000, "1 d 1 h"], [-1500, "-1.5 s"]];
  for (const [ms, text] of texts) assert.equal(duration(ms), text);
});

test("times are of the browser's zone, and 0 means never", () => {
  assert.equal(time(1763431200123), "2025-11-18 07:30:00");
  assert.equal(time(1763431200123, { withMilliseconds: true }), "2025-11-18 07:30:00.123");
  assert.equal(isoTime(1763431200123), "2025-11-18T07:30:00.123+05:30");
  assert.equal(time(0), "–");
});

test("relative times choose the unit by the distance", () => {
  assert.equal(ago(1000, 1000 + 59_000), "59 seconds ago");
  assert.equal(ago(1000, 1000 + 3_600_000), "1 hour ago");
});
