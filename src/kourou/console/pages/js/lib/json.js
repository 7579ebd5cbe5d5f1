/**
 * JSON with exact 64-bit integers: an integer beyond 2^53 becomes a BigInt, and a BigInt is written as
 * an integer. Offsets, store sizes and hashes exceed what a JavaScript number holds.
 */

const SIXTEEN_DIGITS = /\d{16}/;
const INTEGER = /^-?\d+$/;
// Whole tokens, so that digits inside of a string or of a fraction are not taken for an integer.
const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MARK = "\u0000int:";

const hasSourceText = (() => {
  let source;
  JSON.parse("1", (_key, value, context) => {
    source = context?.source;
    return value;
  });
  return source === "1";
})();

/**
 * @param {string} text
 * @param {boolean} [useSource] false: the way for browsers whose revivers get no source text
 * @returns {any}
 */
export function parseJson(text, useSource = hasSourceText) {
  if (!SIXTEEN_DIGITS.test(text)) return JSON.parse(text);
  return useSource ? JSON.parse(text, reviveFromSource) : JSON.parse(markIntegers(text), reviveMarked);
}

function reviveFromSource(_key, value, context) {
  if (typeof value !== "number" || Number.isSafeInteger(value) || !INTEGER.test(context.source)) return value;
  return BigInt(context.source);
}

function markIntegers(text) {
  return text.replace(STRING_OR_NUMBER, (token) => {
    return INTEGER.test(token) && !Number.isSafeInteger(Number(token)) ? `"\\u0000int:${token}"` : token;
  });
}

function reviveMarked(_key, value) {
  if (typeof value !== "string" || !value.startsWith(MARK)) return value;
  return BigInt(value.slice(MARK.length));
}

/**
 * @param {any} value may hold BigInts
 * @param {number} [indent]
 * @returns {string}
 */
export function formatJson(value, indent = 0) {
  // The mark is new in each call, so that no text typed by a user can contain it.
  const mark = `int-${Math.random().toString(36).slice(2)}:`;
  const text = JSON.stringify(value, (_key, item) => (typeof item === "bigint" ? mark + item : item), indent);
  return text === undefined ? "null" : text.replace(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1");
}
