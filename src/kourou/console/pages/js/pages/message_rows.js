/** Rows of messages, and the account of what was read for a page of them; shared by pages of messages. */
import { html } from "../lib/html.js";
import { bytes, number } from "../lib/format.js";
import { t, tn } from "../lib/i18n.js";
import { pathOf } from "../lib/router.js";
import { Badge, Time } from "../lib/states.js";
import { Table } from "../lib/table.js";
import { line } from "../lib/visible.js";

/** The page of a message, by its position. @param {any} row @param {string} [topic] */
export function messageHref(row, topic = row.topic) {
  return pathOf("messages", topic, `${row.broker_name}:${row.queue_id}:${row.queue_offset}`);
}

const keyOf = (row) => `${row.broker_name}:${row.queue_id}:${row.queue_offset}`;

/**
 * @param {{rows: any[], isLoading?: boolean, empty: any}} props
 */
export function MessageTable({ rows, isLoading, empty }) {
  const columns = [
    { id: "store_timestamp", label: t("messages.stored"), main: true, render: (row) => html`<${Time} ms=${row.store_timestamp} withMilliseconds />` },
    { id: "msg_id", label: t("messages.id"), render: (row) => html`<code title=${row.msg_id}>${line(row.msg_id, 40)}</code>` },
    { id: "tags", label: t("messages.tag"), render: (row) => (row.tags ? line(row.tags, 40) : "–") },
    { id: "keys", label: t("messages.keys"), render: (row) => (row.keys ? line(row.keys, 60) : "–") },
    { id: "queue", label: t("messages.place"), render: (row) => html`${row.broker_name} · ${number(row.queue_id)}` },
    { id: "queue_offset", label: t("messages.offset"), number: true, render: (row) => number(row.queue_offset) },
    { id: "body_size", label: t("messages.size"), number: true, render: (row) => bytes(row.body_size) },
    { id: "body_start", label: t("messages.body"), render: (row) => html`<code>${line(row.body_start, 120)}</code>` },
  ].map((column) => ({ ...column, sortable: false }));
  return html`<div class="table-box"><${Table} label=${t("messages.title")} columns=${columns} rows=${rows} rowKey=${keyOf} rowHref=${(row) => messageHref(row)} isLoading=${isLoading} empty=${empty} /></div>`;
}

/** Which offsets of which queues a page has read, and whether it has everything. @param {{page: any}} props */
export function ReadAccount({ page }) {
  if (!page.queues.length) return null;
  const left = page.queues.reduce((sum, queue) => sum + BigInt(queue.left), 0n);
  const columns = [
    { id: "broker_name", label: t("messages.broker"), main: true },
    { id: "queue_id", label: t("messages.queue"), number: true, render: (row) => number(row.queue_id) },
    { id: "from_offset", label: t("messages.read_from"), number: true, render: (row) => number(row.from_offset) },
    { id: "to_offset", label: t("messages.read_to"), number: true, render: (row) => number(row.to_offset) },
    { id: "left", label: t("messages.left"), number: true, render: (row) => number(row.left) },
    { id: "problem", label: t("messages.problem"), wrap: true, render: (row) => row.problem || "–" },
  ].map((column) => ({ ...column, sortable: false }));
  return html`<details class="card read-account">
    <summary>${page.is_complete ? html`<${Badge} kind="good">${t("messages.complete")}<//>` : html`<${Badge} kind="warn">${t("messages.incomplete")}<//>`} ${tn("messages.read_of", page.queues.length)} · ${tn("messages.left_count", left)}</summary>
    <${Table} label=${t("messages.account")} columns=${columns} rows=${page.queues} rowKey=${(row) => `${row.broker_name}:${row.queue_id}`} />
  </details>`;
}
