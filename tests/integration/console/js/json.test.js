import assert from "node:assert/strict";
import { test } from "node:test";
import { formatJson, parseJson } from "../pages/js/lib/json.js";

const TEXT = '{"max":9223372036854775807,"min":-9223372036854775808,"safe":9007199254740991,"next":9007199254740992,' +
  '"text":"9223372036854775807 \\" 12345678901234567890","list":[12345678901234567,1.2345678901234567e30],"double":0.12345678901234567}';

const hasSourceText = (() => {
  let has = false;
  JSON.parse("1", (_key, value, context) => { has = context?.source === "1"; return value; });
  return has;
})();

for (const useSource of hasSourceText ? [true, false] : [false]) {
  test(`integers beyond 2^53 keep every digit (source text: ${useSource})`, () => {
    const value = parseJson(TEXT, useSource);
    assert.equal(value.max, 9223372036854775807n);
    assert.equal(value.min, -9223372036854775808n);
    assert.equal(value.safe, 9007199254740991);
    assert.equal(value.next, 9007199254740992n);
    assert.equal(value.text, '9223372036854775807 " 12345678901234567890');
    assert.deepEqual(value.list, [12345678901234567n, 1.2345678901234567e30]);
    assert.equal(value.double, 0.12345678901234567);
  });
}

test("what was parsed is written with the same digits", () => {
  assert.equal(formatJson(parseJson('{"a":9223372036854775807,"b":[-9223372036854775808,1,"2"]}')), '{"a":9223372036854775807,"b":[-9223372036854775808,1,"2"]}');
});

test("a text that looks like a marked integer stays a text", () => {
  assert.equal(formatJson({ a: "int-x:1" }), '{"a":"int-x:1"}');
});
