/** A message's body as JSON, text, hex or Base64, whichever fits; with its size, copying and a download. */
import { html, useMemo, useState } from "./html.js";
import { decodeText, fromBase64, hexDump, prettyJson, toBase64 } from "./bytes.js";
import { CopyButton } from "./command.js";
import { bytes as formatBytes } from "./format.js";
import { Icon } from "./icons.js";
import { t } from "./i18n.js";
import { formatJson } from "./json.js";
import { Note } from "./states.js";
import { visible } from "./visible.js";

/** More than this is cut in the page; the download has all of it. */
const SHOWN_BYTES = 256 * 1024;
/** Until then a browser has begun to read a download. */
const DOWNLOAD_MS = 10_000;
const ENCODINGS = ["utf-8", "gb18030", "utf-16le", "utf-16be", "iso-8859-1"];

/**
 * @param {object} props
 * @param {string} [props.base64] the body; one of base64 and text is given
 * @param {string} [props.text]
 * @param {string} [props.name] of the downloaded file
 * @param {number} [props.size] of the whole body in bytes, if the server has cut it
 * @param {string} [props.href] the whole body as a download of the server
 */
export function BodyView({ base64, text, name = "body", size, href }) {
  const bytes = useMemo(() => (base64 === undefined || base64 === null ? new TextEncoder().encode(text ?? "") : fromBase64(base64)), [base64, text]);
  const shown = bytes.length > SHOWN_BYTES ? bytes.subarray(0, SHOWN_BYTES) : bytes;
  const [encoding, setEncoding] = useState("utf-8");
  const [wanted, setWanted] = useState(null);
  const views = useMemo(() => {
    const decoded = decodeText(shown, encoding) ?? (shown === bytes ? null : decodeText(shown.subarray(0, -3), encoding));
    return { json: prettyJson(decodeText(bytes, encoding)), text: decoded, hex: hexDump(shown.subarray(0, 64 * 1024)), base64: toBase64(shown) };
  }, [bytes, encoding]);
  const view = wanted ?? (views.json !== null ? "json" : views.text !== null ? "text" : "hex");
  const content = views[view];
  const whole = size ?? bytes.length;
  return html`<div class="body-view">
    <div class="body-tools">
      <div class="segmented" role="group" aria-label=${t("body.view")}>
        ${["json", "text", "hex", "base64"].map((id) => html`<button type="button" key=${id} aria-pressed=${String(view === id)} disabled=${id === "json" && views.json === null} onClick=${() => setWanted(id)}>${t(`body.${id}`)}</button>`)}
      </div>
      <label>${t("body.encoding")} <select value=${encoding} onChange=${(event) => setEncoding(event.target.value)}>${ENCODINGS.map((id) => html`<option key=${id} value=${id}>${id}</option>`)}</select></label>
      <span class="muted">${formatBytes(whole)}</span>
      <span class="grow"></span>
      ${content !== null && html`<${CopyButton} text=${content} />`}
      ${href
        ? html`<a class="button" href=${href} download><${Icon} name="download" />${t("body.download")}</a>`
        : html`<button type="button" onClick=${() => download(bytes, name)}><${Icon} name="download" />${t("body.download")}</button>`}
    </div>
    ${(shown !== bytes || whole > bytes.length) && html`<${Note} kind="warn">${t("body.cut", { shown: formatBytes(shown.length), size: formatBytes(whole) })}<//>`}
    ${content === null ? html`<${Note} kind="warn">${t("body.not_text", { encoding })}<//>` : bytes.length === 0 ? html`<p class="muted">${t("body.empty")}</p>` : html`<pre class="body-content" tabIndex="0" aria-label=${t("body.content")}>${visible(content)}</pre>`}
  </div>`;
}

/**
 * Saves bytes or text as a file of the browser's downloads.
 * @param {BlobPart} content
 * @param {string} name
 * @param {string} [type]
 */
export function download(content, name, type = "application/octet-stream") {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), DOWNLOAD_MS);
}

/** Any value as indented JSON. @param {{value: any, label?: string}} props */
export function JsonView({ value, label }) {
  const text = useMemo(() => prettyValue(value), [value]);
  return html`<div class="json-view"><${CopyButton} text=${text} /><pre class="body-content" tabIndex="0" aria-label=${label ?? t("body.json")}>${text}</pre></div>`;
}

function prettyValue(value) {
  return typeof value === "string" ? prettyJson(value) ?? value : formatJson(value, 2);
}
