/** "Copy as mqadmin command": the command lines that do or show the same as the page, of mqadmin if it has them. */
import { html, useState } from "./html.js";
import { Dialog } from "./dialog.js";
import { Icon } from "./icons.js";
import { t } from "./i18n.js";
import { toast } from "./toast.js";

/**
 * Copies a text. Browsers offer the clipboard to secure origins only; over plain HTTP the old way is left.
 * @param {string} text
 * @returns {Promise<boolean>} false: the browser refused both
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "off-screen";
    const host = document.querySelector("dialog[open]") ?? document.body;
    host.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}

/**
 * @param {{text: string, label?: string}} props
 */
export function CopyButton({ text, label }) {
  const copy = async () => {
    if (await copyText(text)) toast(t("common.copied"));
    else toast(t("common.not_copied"), "bad");
  };
  const name = label ?? t("common.copy");
  return html`<button type="button" class=${label ? "" : "icon-button"} title=${name} aria-label=${label ? undefined : name} onClick=${copy}><${Icon} name="copy" />${label}</button>`;
}

/**
 * The button of a page's head; it shows the command lines, to be copied one by one or together.
 * @param {{commands: string[]|null|undefined}} props
 */
export function Commands({ commands }) {
  const [isOpen, open] = useState(false);
  if (!commands?.length) return null;
  const isAdmin = commands.every((command) => command.startsWith("mqadmin "));
  return [
    html`<button type="button" onClick=${() => open(true)}><${Icon} name="copy" />${t(isAdmin ? "command.copy_as" : "command.copy_as_other")}</button>`,
    isOpen && html`<${Dialog} wide title=${t(isAdmin ? "command.title" : "command.title_other")} onClose=${() => open(false)}>
      <p class="muted">${t(isAdmin ? "command.explanation" : "command.explanation_other")}</p>
      <${CommandList} commands=${commands} />
    <//>`,
  ];
}

/** @param {{commands: string[]}} props */
export function CommandList({ commands }) {
  return html`<div class="commands">
    ${commands.map((command) => html`<div class="command" key=${command}><code>${command}</code><${CopyButton} text=${command} /></div>`)}
    ${commands.length > 1 && html`<${CopyButton} text=${commands.join("\n")} label=${t("command.copy_all")} />`}
  </div>`;
}
