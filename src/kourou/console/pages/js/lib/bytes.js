/** Bytes as text: decoding, hex dump, sniffing of JSON. Pure functions. */
import { formatJson, parseJson } from "./json.js";

/**
 * @param {string} text
 * @returns {Uint8Array}
 */
export function fromBase64(text) {
  const binary = atob(text);
  return Uint8Array.from(binary, (char) => char.charCodeAt(0));
}

/**
 * In lines of 76 characters.
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function toBase64(bytes) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 57) parts.push(btoa(String.fromCharCode(...bytes.subarray(at, at + 57))));
  return parts.join("\n");
}

/**
 * The bytes as text, or null if they are not of that encoding.
 * @param {Uint8Array} bytes
 * @param {string} [encoding]
 * @returns {string|null}
 */
export function decodeText(bytes, encoding = "utf-8") {
  try {
    return new TextDecoder(encoding, { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

/**
 * Indented JSON with every digit kept, or null if the text is no JSON object or array.
 * @param {string|null} text
 * @returns {string|null}
 */
export function prettyJson(text) {
  if (text === null || !/^\s*[[{]/.test(text)) return null;
  try {
    return formatJson(parseJson(text), 2);
  } catch {
    return null;
  }
}

/**
 * Lines of address, 16 bytes and their printable characters, as of `hexdump -C`.
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = bytes.subarray(at, at + 16);
    const hex = Array.from(part, (byte) => byte.toString(16).padStart(2, "0"));
    const halves = `${hex.slice(0, 8).join(" ")}  ${hex.slice(8).join(" ")}`;
    const text = Array.from(part, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${halves.padEnd(48)}  |${text}|`);
  }
  return lines.join("\n");
}
