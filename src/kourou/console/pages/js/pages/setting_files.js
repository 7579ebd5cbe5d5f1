/** Settings of topics or groups as a JSON file: the buttons of a list that export and import it. */
import { html, useState } from "../lib/html.js";
import { ChangeDialog } from "../lib/change.js";
import { Icon } from "../lib/icons.js";
import { t, tn } from "../lib/i18n.js";
import { parseJson } from "../lib/json.js";
import { useCanChange } from "../lib/session.js";
import { brokersField, WithMasters } from "./topic_changes.js";

/**
 * @param {{kind: "topics"|"groups", importLabel: string, hint: string, onDone: () => void}} props
 */
export function SettingFiles({ kind, importLabel, hint, onDone }) {
  const canChange = useCanChange();
  const [isImporting, importFile] = useState(false);
  return [
    html`<a class="button" href=${`/api/exports/${kind}`} download=${`${kind}.json`}><${Icon} name="download" />${t("files.export")}</a>`,
    canChange && html`<button type="button" onClick=${() => importFile(true)}>${importLabel}</button>`,
    isImporting && html`<${ImportDialog} kind=${kind} title=${importLabel} hint=${hint} onClose=${() => importFile(false)} onDone=${onDone} />`,
  ];
}

function ImportDialog({ kind, title, hint, onClose, onDone }) {
  const [problem, setProblem] = useState(null);
  const file = ({ onChange }) => html`<input type="file" accept=".json,application/json" aria-label=${t("files.file")} onChange=${(event) => read(event.target.files[0], onChange, setProblem)} />`;
  return html`<${WithMasters} title=${title} onClose=${onClose}>${(masters) => html`<${ChangeDialog} title=${title} onClose=${onClose} onDone=${onDone}
    fields=${[
      { name: kind, label: t("files.file"), type: "custom", required: true, hint: problem ?? hint, render: file },
      brokersField(masters, t("files.brokers_hint")),
    ]}
    initial=${{ brokers: [] }} request=${(values) => ({ method: "POST", path: `/imports/${kind}`, body: { [kind]: values[kind], brokers: values.brokers ?? [] } })} />`}<//>`;
}

async function read(file, onChange, setProblem) {
  try {
    const entries = parseJson(await file.text());
    setProblem(Array.isArray(entries) ? tn("files.count", entries.length) : t("files.not_list"));
    onChange(Array.isArray(entries) ? entries : null);
  } catch (error) {
    setProblem(t("files.not_json", { problem: error.message }));
    onChange(null);
  }
}
