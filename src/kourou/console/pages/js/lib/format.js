/** Numbers, sizes, durations and times as text. Pure functions; a missing value is a dash. */
import { currentLanguage } from "./i18n.js";

const NONE = "–";
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const formats = new Map();

function numberFormat(options) {
  const key = currentLanguage() + JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(currentLanguage(), options));
  return formats.get(key);
}

function isMissing(value) {
  return value === null || value === undefined || value === "" || Number.isNaN(value);
}

/**
 * All digits, grouped.
 * @param {number|bigint|null|undefined} value
 * @returns {string}
 */
export function number(value) {
  return isMissing(value) ? NONE : numberFormat({ maximumFractionDigits: 2 }).format(value);
}

/**
 * Three significant digits and a unit: 1.23M. For tiles and charts; tables have room for `number`.
 * @param {number|bigint|null|undefined} value
 * @returns {string}
 */
export function compact(value) {
  if (isMissing(value)) return NONE;
  return numberFormat({ notation: "compact", maximumSignificantDigits: 3 }).format(value);
}

/**
 * Messages a second: two decimals below 10, none above 100.
 * @param {number|null|undefined} value
 * @returns {string}
 */
export function rate(value) {
  if (isMissing(value)) return NONE;
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return numberFormat({ maximumFractionDigits: digits }).format(value);
}

/**
 * @param {number|null|undefined} ratio 0 to 1
 * @returns {string}
 */
export function percent(ratio) {
  return isMissing(ratio) ? NONE : numberFormat({ style: "percent", maximumFractionDigits: 1 }).format(ratio);
}

/**
 * @param {number|bigint|null|undefined} value
 * @returns {string}
 */
export function bytes(value) {
  if (isMissing(value)) return NONE;
  let size = Number(value);
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < BYTE_UNITS.length - 1) {
    size /= 1024;
    unit++;
  }
  const digits = unit === 0 || Math.abs(size) >= 100 ? 0 : 1;
  return `${numberFormat({ maximumFractionDigits: digits }).format(size)} ${BYTE_UNITS[unit]}`;
}

/**
 * The two largest units: 850 ms, 12.3 s, 4 min 5 s, 3 h 20 min, 2 d 4 h.
 * @param {number|bigint|null|undefined} milliseconds
 * @returns {string}
 */
export function duration(milliseconds) {
  if (isMissing(milliseconds)) return NONE;
  const ms = Number(milliseconds);
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < 1000) return `${number(Math.round(ms))} ms`;
  if (ms < 60_000) return `${number(Math.floor(ms / 100) / 10)} s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 3600) return twoUnits(seconds, 60, "min", 1, "s");
  if (seconds < 86_400) return twoUnits(seconds, 3600, "h", 60, "min");
  return twoUnits(seconds, 86_400, "d", 3600, "h");
}

function twoUnits(seconds, large, largeName, small, smallName) {
  const rest = Math.floor((seconds % large) / small);
  return `${number(Math.floor(seconds / large))} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

/**
 * In the browser's zone, to the second: 2026-11-18 04:05:06. The same in each language, so that it sorts
 * and can be compared with log lines.
 * @param {number|bigint|null|undefined} ms since the epoch; 0 and below mean never
 * @param {{withMilliseconds?: boolean}} [options]
 * @returns {string}
 */
export function time(ms, { withMilliseconds = false } = {}) {
  if (isMissing(ms) || Number(ms) <= 0) return NONE;
  const date = new Date(Number(ms));
  if (Number.isNaN(date.getTime())) return NONE;
  const two = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${day} ${clock}${withMilliseconds ? "." + String(date.getMilliseconds()).padStart(3, "0") : ""}`;
}

/**
 * ISO 8601 with the browser's offset from UTC: 2026-11-18T04:05:06.789+01:00.
 * @param {number|bigint} ms
 * @returns {string}
 */
export function isoTime(ms) {
  const date = new Date(Number(ms));
  if (Number.isNaN(date.getTime())) return "";
  const minutes = -date.getTimezoneOffset();
  const two = (value) => String(Math.floor(Math.abs(value))).padStart(2, "0");
  const zone = `${minutes < 0 ? "-" : "+"}${two(minutes / 60)}:${two(minutes % 60)}`;
  return time(ms, { withMilliseconds: true }).replace(" ", "T") + zone;
}

/**
 * How long ago, as text of the language: 5 minutes ago.
 * @param {number|bigint|null|undefined} ms
 * @param {number} [now]
 * @returns {string}
 */
export function ago(ms, now = Date.now()) {
  if (isMissing(ms) || Number(ms) <= 0) return NONE;
  const seconds = Math.round((Number(ms) - now) / 1000);
  const size = Math.abs(seconds);
  const [unit, length] = size < 60 ? ["second", 1] : size < 3600 ? ["minute", 60] : size < 86_400 ? ["hour", 3600] : ["day", 86_400];
  return new Intl.RelativeTimeFormat(currentLanguage(), { numeric: "auto" }).format(Math.trunc(seconds / length), unit);
}
