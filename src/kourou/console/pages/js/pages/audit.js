/** The audit log: every change made through the console, newest first. */
import { html, useState } from "../lib/html.js";
import { JsonView } from "../lib/body.js";
import { Commands } from "../lib/command.js";
import { Dialog } from "../lib/dialog.js";
import { t } from "../lib/i18n.js";
import { Badge, Empty, Facts, PageHead, Time } from "../lib/states.js";
import { ServerTable, useServerTable } from "../lib/table_data.js";

const KINDS = { done: "good", partly: "warn", failed: "bad" };

export default function AuditPage() {
  const table = useServerTable({ path: "/audit", seconds: 5 });
  const [opened, open] = useState(null);
  const columns = [
    { id: "time", label: t("audit.time"), main: true, render: (record) => html`<${Time} ms=${record.time} />` },
    { id: "user", label: t("audit.user"), render: (record) => record.user || html`<span class="muted">${t("audit.no_user")}</span>` },
    { id: "outcome", label: t("audit.outcome"), render: (record) => html`<${Outcome} record=${record} />` },
    { id: "effects", label: t("audit.effects"), render: (record) => record.effects.join(" · ") },
    { id: "path", label: t("audit.action"), render: (record) => html`<code>${record.path}</code>` },
  ].map((column) => ({ ...column, sortable: false }));
  return html`
    <${PageHead} title=${t("audit.title")} subtitle=${t("audit.subtitle")}><${Commands} commands=${table.read.data?.commands} /><//>
    <${ServerTable} table=${table} label=${t("audit.title")} columns=${columns} rowKey=${(record) => `${record.time} ${record.path}`} onOpen=${open}
      empty=${html`<${Empty} title=${t("audit.empty")} />`} />
    ${opened && html`<${Record} record=${opened} onClose=${() => open(null)} />`}`;
}

function Record({ record, onClose }) {
  return html`<${Dialog} wide title=${record.operation} onClose=${onClose}>
    <${Facts} items=${[
      [t("audit.time"), html`<${Time} ms=${record.time} withMilliseconds />`],
      [t("audit.user"), record.user || t("audit.no_user")],
      [t("audit.address"), record.address],
      [t("audit.outcome"), html`<${Outcome} record=${record} />`],
    ]} />
    <${Sentences} title=${t("audit.effects")} sentences=${record.effects} />
    <${Sentences} title=${t("audit.problems")} sentences=${record.problems} />
    <${JsonView} value=${record} label=${t("audit.line")} />
  <//>`;
}

function Sentences({ title, sentences }) {
  if (!sentences.length) return null;
  return html`<div><h3>${title}</h3><ul class="effects">${sentences.map((sentence, i) => html`<li key=${i}>${sentence}</li>`)}</ul></div>`;
}

function Outcome({ record }) {
  return html`<${Badge} kind=${KINDS[record.outcome]}>${t(`audit.${record.outcome}`)}<//>`;
}
