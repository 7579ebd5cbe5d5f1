/** What every page shows besides its data: loading, errors, problems, emptiness, times, badges, tiles. */
import { classes, html, useEffect, useState } from "./html.js";
import { ago, isoTime, time } from "./format.js";
import { t } from "./i18n.js";
import { Icon } from "./icons.js";

/** A placeholder, shown only after 150 ms, so that quick answers do not flicker. */
export function Loading({ label }) {
  const [isShown, show] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => show(true), 150);
    return () => clearTimeout(timer);
  }, []);
  return html`<p class=${classes("loading", isShown && "is-shown")} role="status" aria-busy="true"><span class="spinner" aria-hidden="true"></span>${label ?? t("common.loading")}</p>`;
}

/** @param {{error: import("./api.js").ApiError, onRetry?: () => void}} props */
export function ErrorBox({ error, onRetry }) {
  return html`<div class="note is-bad" role="alert">
    <${Icon} name="alert" />
    <div><strong>${error.message}</strong>${error.hint && html`<p>${error.hint}</p>`}</div>
    ${onRetry && html`<button type="button" onClick=${onRetry}>${t("common.retry")}</button>`}
  </div>`;
}

/** The parts of the cluster that could not be read: the rest is shown, marked incomplete. */
export function Problems({ problems }) {
  if (!problems?.length) return null;
  return html`<div class="note is-warn" role="status">
    <${Icon} name="alert" />
    <div><strong>${t("common.incomplete")}</strong><ul>${problems.map((problem) => html`<li key=${problem}>${problem}</li>`)}</ul></div>
  </div>`;
}

/** @param {{title: string, children?: any}} props */
export function Empty({ title, children }) {
  return html`<div class="empty"><${Icon} name="empty" /><p><strong>${title}</strong></p>${children}</div>`;
}

/** @param {{kind?: "info"|"warn"|"bad"|"good", children: any}} props */
export function Note({ kind = "info", children }) {
  return html`<div class=${`note is-${kind}`}><${Icon} name=${kind === "good" ? "check" : kind === "info" ? "info" : "alert"} /><div>${children}</div></div>`;
}

/**
 * The parts every page has around a read: loading, error, stale and incomplete marks, then the children.
 * @param {{read: import("./api.js").Read, children: (data: any) => any, loading?: string}} props loading: instead of "Loading"
 */
export function Loaded({ read, children, loading }) {
  const { data, error, reload } = read;
  if (data === null) return html`<div class="contents">${error ? html`<${ErrorBox} error=${error} onRetry=${reload} />` : html`<${Loading} label=${loading} />`}</div>`;
  // One element, not a list: siblings that change their number would be put in front of the next ones.
  return html`<div class="contents">
    ${error && html`<${ErrorBox} error=${error} onRetry=${reload} />`}
    <${Problems} problems=${data.problems} />
    ${children(data)}
  </div>`;
}

/** When the data was read, and whether it is old because a request failed. */
export function Freshness({ read }) {
  const asOf = read.data?.as_of;
  if (read.isStale) return html`<span class="badge is-warn" role="status">${t("common.stale")}${asOf ? ` · ${time(asOf)}` : ""}</span>`;
  return asOf ? html`<span class="muted freshness">${t("common.as_of")} <${Time} ms=${asOf} /></span>` : null;
}

/**
 * A time in the browser's zone; its title is the full ISO form.
 * @param {{ms: number|bigint|string|null, relative?: boolean, withMilliseconds?: boolean}} props ms: or an ISO text
 */
export function Time({ ms, relative = false, withMilliseconds = false }) {
  const value = typeof ms === "string" ? Date.parse(ms) : ms;
  if (value === null || value === undefined || !(Number(value) > 0)) return html`<span class="muted">–</span>`;
  return html`<time dateTime=${isoTime(value)} title=${isoTime(value)}>${relative ? ago(value) : time(value, { withMilliseconds })}</time>`;
}

/** @param {{kind?: "good"|"warn"|"bad"|"info"|"plain", children: any}} props */
export function Badge({ kind = "plain", children }) {
  return html`<span class=${`badge is-${kind}`}>${children}</span>`;
}

/**
 * One figure of a page's head.
 * @param {{label: string, value: any, unit?: string, kind?: string, href?: string, detail?: any, title?: string}} props
 */
export function Tile({ label, value, unit, kind, href, detail, title }) {
  const inner = html`<span class="tile-label">${label}</span>
    <span class="tile-value">${value}${unit && html`<span class="tile-unit">${unit}</span>`}</span>
    ${detail && html`<span class="tile-detail">${detail}</span>`}`;
  const className = classes("tile", kind && `is-${kind}`);
  return href ? html`<a class=${className} href=${href} title=${title}>${inner}</a>` : html`<div class=${className} title=${title}>${inner}</div>`;
}

/**
 * The filled part of something, with its text beside it.
 * @param {{ratio: number|null, text: string, kind?: "good"|"warn"|"bad"}} props
 */
export function Meter({ ratio, text, kind = "good" }) {
  const width = Math.max(0, Math.min(1, Number(ratio) || 0)) * 100;
  return html`<span class="meter"><svg class=${`meter-bar is-${kind}`} viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect width="100" height="6" class="meter-rest" /><rect width=${width} height="6" class="meter-fill" /></svg>${text}</span>`;
}

/**
 * Names and values of one object.
 * @param {{items: [string, any][]}} props
 */
export function Facts({ items }) {
  return html`<dl class="facts">${items.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value ?? "–"}</dd></div>`)}</dl>`;
}

/**
 * A page's head: title, what stands beside it, and the buttons at its right.
 * @param {{title: any, subtitle?: any, back?: {href: string, label: string}, children?: any}} props
 */
export function PageHead({ title, subtitle, back, children }) {
  return html`<header class="page-head">
    <div>${back && html`<a class="back" href=${back.href}><${Icon} name="back" />${back.label}</a>`}<h1>${title}</h1>${subtitle && html`<p class="muted">${subtitle}</p>`}</div>
    <div class="page-actions">${children}</div>
  </header>`;
}

/**
 * A titled box.
 * @param {{title?: any, actions?: any, children: any, flush?: boolean}} props flush: no padding (a table fills it)
 */
export function Card({ title, actions, children, flush = false }) {
  return html`<section class=${classes("card", flush && "is-flush")}>
    ${(title || actions) && html`<div class="card-head"><h2>${title}</h2><div class="card-actions">${actions}</div></div>`}
    <div class="card-body">${children}</div>
  </section>`;
}
