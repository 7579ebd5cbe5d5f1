/** The console's own icons: strokes on a grid of 20, in the colour of the text around them. */
import { html } from "./html.js";

const PATHS = {
  overview: "M3 11h5V3H3zM12 17h5V9h-5zM3 17h5v-3H3zM12 6h5V3h-5z",
  brokers: "M3 4h14v5H3zM3 11h14v5H3zM6 6.5h.01M6 13.5h.01M10 6.5h4M10 13.5h4",
  topics: "M4 5h12M4 10h12M4 15h7",
  groups: "M7.5 9a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3 16c0-2.5 2-4 4.500-4s4.500 1.500 4.500 4M13 9a2 2 0 1 0 0-4M14 12c1.800.3 3 1.700 3 4",
  producers: "M4 10h9M9.500 6l4 4-4 4M16.500 4v12",
  messages: "M3 5h14v10H3zM3 6l7 5 7-5",
  "dead-letters": "M3 5h14v6M3 5v10h8M3 6l7 5 7-5M14 14l4 4M18 14l-4 4",
  trace: "M3 5h6M6 10h8M11 15h6",
  delayed: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM10 6v4l3 2",
  namesrvs: "M10 17s5-4.500 5-9A5 5 0 0 0 5 8c0 4.500 5 9 5 9zM10 9.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3z",
  access: "M5 9h10v8H5zM7 9V6.500a3 3 0 0 1 6 0V9",
  doctor: "M3 10h3l2-5 4 10 2-5h3",
  pipelines: "M3 6h4l3 8h4M14 11l3 3-3 3M10 6h4M14 3l3 3-3 3",
  audit: "M5 3h10v14H5zM8 7h4M8 10h4M8 13h2",
  search: "M9 15A6 6 0 1 0 9 3a6 6 0 0 0 0 12zM13.500 13.500L17 17",
  alert: "M10 3l8 14H2zM10 8v4M10 14.500v.01",
  info: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM10 9v4.500M10 6.500v.01",
  check: "M4 10.500l4 4 8-9",
  cross: "M5 5l10 10M15 5L5 15",
  copy: "M7 7h9v10H7zM13 7V3H4v10h3",
  empty: "M3 12l3-8h8l3 8v4H3zM3 12h4l1 2h4l1-2h4",
  back: "M12 4l-6 6 6 6",
  next: "M8 4l6 6-6 6",
  menu: "M3 5h14M3 10h14M3 15h14",
  sun: "M10 13.500a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM10 1.500v2M10 16.500v2M1.500 10h2M16.500 10h2M4 4l1.400 1.400M14.600 14.600L16 16M16 4l-1.400 1.400M5.400 14.600L4 16",
  moon: "M16.500 12A7 7 0 0 1 8 3.500a7 7 0 1 0 8.500 8.500z",
  auto: "M10 17a7 7 0 1 0 0-14zM10 3a7 7 0 0 0 0 14z",
  language: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM3 10h14M10 3c-4 4-4 10 0 14M10 3c4 4 4 10 0 14",
  user: "M10 10a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM4 17c0-3 2.500-5 6-5s6 2 6 5",
  logout: "M12 4H4v12h8M8 10h9M14 7l3 3-3 3",
  book: "M4 4h5c1 0 1 1 1 1v12s0-1-1-1H4zM16 4h-5c-1 0-1 1-1 1v12s0-1 1-1h5z",
  keyboard: "M2.500 5.500h15v9h-15zM5.500 8.500h.01M8.500 8.500h.01M11.500 8.500h.01M14.500 8.500h.01M6 11.500h8",
  refresh: "M16 7a6.500 6.500 0 1 0 .500 4.500M16.500 3v4h-4",
  download: "M10 3v9M6 8.500l4 4 4-4M3.500 16.500h13",
  plus: "M10 4v12M4 10h12",
  trash: "M4 6h12M8 6V4h4v2M5.500 6l.800 11h7.400l.800-11",
  edit: "M4 16l1-4 8.500-8.500 3 3L8 15z",
  more: "M5 10h.01M10 10h.01M15 10h.01",
};

/**
 * @param {{name: keyof typeof PATHS, label?: string}} props label: what a screen reader says; none: decoration
 */
export function Icon({ name, label }) {
  return html`<svg class="icon" viewBox="0 0 20 20" role=${label ? "img" : undefined} aria-label=${label} aria-hidden=${label ? undefined : "true"}><path d=${PATHS[name]} /></svg>`;
}
