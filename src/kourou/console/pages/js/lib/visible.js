/**
 * Text of messages as it can be shown: control characters and marks that reorder text become visible, and
 * long text is cut. Pure functions; what they return is text, never markup.
 */

// Without tab and line feed. The marks of direction could make text look like another one.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const CONTROL_PICTURES = 0x2400;

/**
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  return text.replace(HIDDEN, (char) => {
    const code = char.codePointAt(0);
    return code < 0x20 ? String.fromCodePoint(CONTROL_PICTURES + code) : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/**
 * One line of at most so many characters.
 * @param {string|null|undefined} text
 * @param {number} [limit]
 * @returns {string}
 */
export function line(text, limit = 160) {
  const whole = text ?? "";
  const cut = whole.length > limit ? `${whole.slice(0, limit)}…` : whole;
  return visible(cut.replace(/[\t\r\n]+/g, " "));
}
