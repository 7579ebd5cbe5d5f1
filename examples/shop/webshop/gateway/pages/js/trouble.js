/** What a page shows when something cannot be read or done: one sentence, and the details behind a disclosure. */
import { html } from "/static/js/lib/html.js";
import { Icon } from "/static/js/lib/icons.js";
import { Loading } from "/static/js/lib/states.js";

/** The code of an answer about a part of the shop that is away. Its hint is for operators. */
const AWAY = "AWAY";

/** @param {{error: import("/static/js/lib/api.js").ApiError, onRetry?: () => void}} props */
export function Trouble({ error, onRetry }) {
  return html`<div class="note is-bad" role="alert">
    <${Icon} name="alert" />
    <div><strong>${error.message}</strong>${error.hint && (error.code === AWAY ? html`<${Details} lines=${[error.hint]} />` : html`<p>${error.hint}</p>`)}</div>
    ${onRetry && html`<button type="button" onClick=${onRetry}>Try again</button>`}
  </div>`;
}

function Details({ lines }) {
  return html`<details class="trouble-details"><summary>Details</summary>${lines.map((line) => html`<p key=${line}>${line}</p>`)}</details>`;
}

/**
 * Loading or trouble, then the children. That the gateway does not answer is said once, above the page (main.js).
 * @param {{read: import("/static/js/lib/api.js").Read, children: (data: any) => any}} props
 */
export function Loaded({ read: { data, error, reload }, children }) {
  const trouble = error && !isUnreachable(error) && html`<${Trouble} error=${error} onRetry=${reload} />`;
  if (data === null) return html`<div class="contents">${trouble || html`<${Loading} />`}</div>`;
  return html`<div class="contents">
    ${trouble}
    ${data.problems?.length > 0 && html`<div class="note is-warn" role="status">
      <${Icon} name="alert" /><div><strong>A part of the shop does not answer: this page is not complete.</strong><${Details} lines=${data.problems} /></div>
    </div>`}
    ${children(data)}
  </div>`;
}

/** @param {import("/static/js/lib/api.js").ApiError|null} error whether there was no answer at all */
export function isUnreachable(error) {
  return error?.status === 0;
}

/**
 * Several reads as one, for a page that needs all of them: trouble with some of them is reported once.
 * @param {...import("/static/js/lib/api.js").Read} reads
 * @returns {import("/static/js/lib/api.js").Read} its data: all of their names
 */
export function together(...reads) {
  return {
    data: reads.some((read) => read.data === null) ? null : Object.assign({}, ...reads.map((read) => read.data)),
    error: reads.find((read) => read.error)?.error ?? null,
    isLoading: reads.some((read) => read.isLoading),
    isStale: reads.some((read) => read.isStale),
    isPrevious: reads.some((read) => read.isPrevious),
    reload: () => reads.forEach((read) => read.reload()),
  };
}
