import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeText, fromBase64, hexDump, prettyJson } from "../pages/js/lib/bytes.js";
import { checkFields, formValues, fromLocalInput, parseInteger, toLocalInput } from "../pages/js/lib/form.js";
import { rangeTimes } from "../pages/js/lib/time_range.js";

test("bytes that are no text are not shown as text", () => {
  assert.equal(decodeText(Uint8Array.of(0xff, 0xfe, 0x00)), null);
  assert.equal(decodeText(fromBase64("5rWL6K+V")), "测试");
  assert.equal(decodeText(Uint8Array.of(0xb2, 0xe2), "gb18030"), "测");
});

test("JSON is indented with every digit kept; other texts are not JSON", () => {
  assert.equal(prettyJson('{"a":9223372036854775807}'), '{\n  "a": 9223372036854775807\n}');
  for (const text of ["12", "hello", "{", null]) assert.equal(prettyJson(text), null);
});

test("a hex dump has 16 bytes a line and keeps its columns in the last one", () => {
  const lines = hexDump(Uint8Array.from({ length: 18 }, (_item, i) => i + 60)).split("\n");
  assert.equal(lines[0], "00000000  3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b  |<=>?@ABCDEFGHIJK|");
  assert.equal(lines[1].indexOf("|"), lines[0].indexOf("|"));
});

test("integers of a form keep every digit; other texts stay to be corrected", () => {
  assert.deepEqual(["7", " 9223372036854775807 ", "", "1.5", "x"].map(parseInteger), [7, 9223372036854775807n, null, "1.5", "x"]);
});

test("fields are checked only if they take part", () => {
  const fields = [
    { name: "topic", label: "", required: true },
    { name: "queues", label: "", type: "integer", min: 1, max: 16 },
    { name: "offset", label: "", type: "integer", required: true, when: (values) => values.to === "offset" },
  ];
  assert.deepEqual(Object.keys(checkFields(fields, { topic: "", queues: 17, to: "time" })), ["topic", "queues"]);
  assert.deepEqual(Object.keys(checkFields(fields, { topic: "a", queues: "1.5", to: "offset" })), ["queues", "offset"]);
  assert.deepEqual(formValues(fields, { topic: "a", queues: 8, offset: 5, to: "time" }), { topic: "a", queues: 8 });
});

test("a time goes through an input of the browser's zone unchanged", () => {
  assert.equal(fromLocalInput(toLocalInput(1763431200000)), 1763431200000);
  assert.equal(toLocalInput(null), "");
  assert.equal(fromLocalInput("x"), null);
});

test("a relative range ends now; a custom one is taken as it is", () => {
  assert.deepEqual(rangeTimes({ range: "15m", from: "", to: "" }, 1_000_000), { from: 100_000, to: 1_000_000 });
  assert.deepEqual(rangeTimes({ range: "custom", from: "5", to: "9" }, 1_000_000), { from: 5, to: 9 });
});
