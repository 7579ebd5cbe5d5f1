/** The pictures of goods: line drawings of 48 by 48, in the colour of the text. */
import { html } from "/static/js/lib/html.js";

/** The paths of each drawing, by the name that goods have as their picture. */
const DRAWINGS = {
  bicycle: ["M4 31a8 8 0 1 0 16 0a8 8 0 1 0-16 0", "M28 31a8 8 0 1 0 16 0a8 8 0 1 0-16 0", "M12 31l6-14h14l-8 14z", "M16 13h6M18 17l6 14M32 17l4 14M32 17l-1-5h5"],
  book: ["M24 12c-5-4-11-4-17-3v27c6-1 12-1 17 3c5-4 11-4 17-3V9c-6-1-12-1-17 3z", "M24 12v27"],
  bread: ["M8 22c-5-5-1-12 6-12h20c7 0 11 7 6 12v16H8z", "M18 17v6M25 17v6M32 17v6"],
  chair: ["M15 6v36M33 28v14M15 6h3v20h-3M15 28h18M15 35h18"],
  cheese: ["M5 24L30 9c6 2 11 8 13 15v15H5z", "M5 24h38", "M14 32h.1M24 30h.1M34 33h.1M28 18h.1"],
  coffee: ["M9 18h24v13a9 9 0 0 1-9 9h-6a9 9 0 0 1-9-9z", "M33 21h3a5 5 0 0 1 0 11h-3", "M16 6c-3 3 3 4 0 7M25 6c-3 3 3 4 0 7"],
  cup: ["M10 12h22v21a6 6 0 0 1-6 6H16a6 6 0 0 1-6-6z", "M32 17h3a5 5 0 0 1 5 5v2a5 5 0 0 1-5 5h-3"],
  guitar: ["M22 22c-4-3-9-1-9 4c0 3-7 3-7 10a8 8 0 0 0 8 7c6 0 6-6 9-6c5 0 7-6 4-9z", "M17 31a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0", "M25 25L38 11M36 8l5 5M39 5l4 4"],
  honey: ["M12 14h24M14 8h20v6H14z", "M13 14c-5 6-6 20-1 26h24c5-6 4-20-1-26", "M24 21l6 3.5v6L24 34l-6-3.5v-6z"],
  lamp: ["M14 42h18M23 42L13 26l14-11", "M24 10l11 11a9 9 0 0 0-11-11z", "M37 26l3 3M33 29v4M40 21h4"],
  rocket: ["M24 4c7 6 9 14 8 25H16c-1-11 1-19 8-25z", "M21 17a3 3 0 1 0 6 0a3 3 0 1 0-6 0", "M16 22l-6 8v6l7-7M32 22l6 8v6l-7-7", "M20 34v6M24 34v10M28 34v6"],
  tea: ["M6 20h30c0 10-5 18-15 18S6 30 6 20z", "M36 23h2a5 5 0 0 1 0 9h-5M10 42h22", "M21 14c0-6 4-9 10-9c0 6-4 9-10 9zM21 20v-6"],
};

/** @param {{goods: {name: string, picture: string}}} props without a drawing: the first letter of the name */
export function Picture({ goods }) {
  const paths = Object.hasOwn(DRAWINGS, goods.picture) ? DRAWINGS[goods.picture] : null;
  return html`<span class="goods-picture" aria-hidden="true">${paths
    ? html`<svg viewBox="0 0 48 48">${paths.map((path) => html`<path key=${path} d=${path} />`)}</svg>`
    : [...goods.name.trim()][0]?.toUpperCase()}</span>`;
}
