/** A range of time, kept in the URL: the last minutes or hours (`range`), all times, or two times (`from`, `to`). */
import { html } from "./html.js";
import { fromLocalInput, toLocalInput } from "./form.js";
import { t } from "./i18n.js";
import { useQuery } from "./router.js";

const MINUTE_MS = 60_000;
const RANGES = { "5m": 5, "15m": 15, "1h": 60, "3h": 180, "12h": 720, "24h": 1440, "3d": 4320, "7d": 10_080 };

/**
 * The times of a range. Pure: the present time is given.
 * @param {{range: string, from: string, to: string}} query
 * @param {number} now
 * @returns {{from: number, to: number}} milliseconds since the epoch
 */
export function rangeTimes(query, now) {
  if (query.range === "all") return { from: 0, to: now };
  if (query.range !== "custom") return { from: now - (RANGES[query.range] ?? 60) * MINUTE_MS, to: now };
  const to = Number(query.to) || now;
  return { from: Number(query.from) || to - 60 * MINUTE_MS, to };
}

/**
 * @param {string} [initial] the range when the URL has none
 * @returns {{query: {range: string, from: string, to: string}, set: (changes: any) => void, times: () => {from: number, to: number}}}
 *   times(): the range as of now
 */
export function useTimeRange(initial = "1h") {
  const [query, setQuery] = useQuery({ range: initial, from: "", to: "" });
  const set = (changes) => setQuery(changes);
  return { query, set, times: () => rangeTimes(query, Date.now()) };
}

/**
 * The control of a range.
 * @param {{range: ReturnType<typeof useTimeRange>, choices?: string[], custom?: boolean}} props
 */
export function TimeRange({ range, choices = Object.keys(RANGES), custom = true }) {
  const { query, set } = range;
  const choose = (event) => {
    const value = event.target.value;
    if (value !== "custom") return set({ range: value, from: "", to: "" });
    const times = range.times();
    return set({ range: "custom", from: String(Math.floor(times.from / 1000) * 1000), to: String(Math.floor(times.to / 1000) * 1000) });
  };
  const input = (name) => html`<label>${t(`range.${name}`)} <input type="datetime-local" step="1" value=${toLocalInput(query[name] === "" ? null : Number(query[name]))}
    onChange=${(event) => set({ [name]: String(fromLocalInput(event.target.value) ?? "") })} /></label>`;
  return html`<div class="time-range">
    <label>${t("range.label")} <select value=${query.range} onChange=${choose}>
      ${choices.map((id) => html`<option key=${id} value=${id} selected=${id === query.range}>${t(`range.last_${id}`)}</option>`)}
      ${custom && html`<option value="custom" selected=${query.range === "custom"}>${t("range.custom")}</option>`}
    </select></label>
    ${query.range === "custom" && [input("from"), input("to")]}
  </div>`;
}
