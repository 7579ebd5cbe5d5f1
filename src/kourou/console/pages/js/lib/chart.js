/** Time series by uPlot, in the colours of the theme. Says what is plotted and in which unit. */
import { html, useEffect, useRef } from "./html.js";
import { compact, isoTime } from "./format.js";
import { t } from "./i18n.js";
import { useTheme } from "./theme.js";

const SERIES_COLOURS = ["--chart-1", "--chart-2", "--chart-3", "--chart-4", "--chart-5", "--chart-6"];
// Steps of the time axis in seconds. Labels are to the second: below it they would repeat.
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];
const MIN_AXIS_WIDTH = 52;
let library = null;

// Loaded with the first chart: most pages have none.
function loadLibrary() {
  library ??= import("../../vendor/uPlot.esm.js").then((module) => module.default);
  return library;
}

/**
 * @param {object} props
 * @param {string} props.title what is plotted
 * @param {string} props.unit
 * @param {number[]} props.times milliseconds since the epoch, ascending
 * @param {{label: string, values: (number|null)[]}[]} props.series
 * @param {number} [props.height]
 * @param {(value: number) => string} [props.format] of values; default: compact numbers
 */
export function Chart({ title, unit, times, series, height = 180, format = compact }) {
  const place = useRef(null);
  const plot = useRef(null);
  const { isDark } = useTheme();
  const labels = series.map((item) => item.label).join("\n");
  const data = [times.map((ms) => Number(ms) / 1000), ...series.map((item) => item.values.map(toNumber))];
  const latest = useRef(data);
  latest.current = data;

  useEffect(() => {
    let isGone = false;
    let observer = null;
    loadLibrary().then((UPlot) => {
      if (isGone) return;
      plot.current = new UPlot(options({ series, height, format, width: place.current.clientWidth }), latest.current, place.current);
      observer = new ResizeObserver(() => plot.current?.setSize({ width: place.current.clientWidth, height }));
      observer.observe(place.current);
    });
    return () => {
      isGone = true;
      observer?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [isDark, labels, unit, height]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [times, series]);

  return html`<figure class="chart">
    <figcaption><strong>${title}</strong><span class="muted">${unit}</span></figcaption>
    <div ref=${place} class="chart-place" role="img" aria-label=${summary(title, unit, times, series, format)}></div>
    ${times.length === 0 && html`<p class="muted chart-empty">${t("chart.no_data")}</p>`}
  </figure>`;
}

function toNumber(value) {
  return value === null || value === undefined ? null : Number(value);
}

function summary(title, unit, times, series, format) {
  const last = series.map((item) => `${item.label} ${format(toNumber(item.values[item.values.length - 1]))}`).join(", ");
  return `${title} (${unit}): ${times.length ? `${last}, ${isoTime(times[times.length - 1])}` : t("chart.no_data")}`;
}

function options({ series, height, format, width }) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line-soft"), width: 1 }, ticks: { show: false }, font: `11px ${style.fontFamily}` };
  return {
    width,
    height,
    padding: [8, 28, 0, 0], // at the right: half of the last time
    cursor: { y: false, points: { size: 7 } },
    legend: { live: true },
    scales: { y: { range: (_plot, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 0, 1) * 1.08] } },
    axes: [
      { ...axis, size: 28, incrs: TIME_STEPS, values: (_plot, ticks, _axis, _space, step) => ticks.map((tick) => clock(tick, step < 60)) },
      { ...axis, size: axisWidth, values: (_plot, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [
      { label: t("chart.time"), value: (plot, seconds) => clock(seconds ?? last(plot, 0), true) },
      ...series.map((item, i) => ({
        label: item.label,
        stroke: colour(SERIES_COLOURS[i % SERIES_COLOURS.length]),
        width: 1.75,
        fill: series.length === 1 ? `${colour(SERIES_COLOURS[0])}22` : undefined,
        points: { show: false },
        spanGaps: false,
        // Without a cursor over the chart the legend shows the last point.
        value: (plot, value, index, point) => format(point === null ? last(plot, index) : value),
      })),
    ],
  };
}

/** The width of the longest label, by uPlot's call for a size. */
function axisWidth(plot, labels, index) {
  const { font, gap } = plot.axes[index];
  plot.ctx.save();
  plot.ctx.font = font[0];
  const widths = (labels ?? []).map((label) => plot.ctx.measureText(label).width / devicePixelRatio);
  plot.ctx.restore();
  return Math.max(MIN_AXIS_WIDTH, Math.ceil(Math.max(0, ...widths)) + gap + 4);
}

function last(plot, index) {
  return plot.data[index][plot.data[index].length - 1];
}

function clock(seconds, withSeconds = false) {
  if (seconds === undefined) return "–";
  const date = new Date(seconds * 1000);
  const two = (value) => String(value).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}${withSeconds ? `:${two(date.getSeconds())}` : ""}`;
}
