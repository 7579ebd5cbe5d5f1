/** Dialogs that move the offsets of groups: reset to a time, the beginning, the end or exact offsets; copy. */
import { html } from "../lib/html.js";
import { ChangeDialog } from "../lib/change.js";
import { parseInteger } from "../lib/form.js";
import { number } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { pathOf } from "../lib/router.js";
import { Facts } from "../lib/states.js";
import { Table } from "../lib/table.js";

const HOUR_MS = 3_600_000;

/**
 * @param {object} props
 * @param {string} [props.topic] given: it is not asked for
 * @param {string[]} [props.topics] to choose from
 * @param {string[]} props.groups to choose from; a single one is not asked for
 * @param {(topic: string) => {broker_name: string, queue_id: number, min_offset?: any, max_offset?: any}[]} props.queues of a topic
 * @param {"time"|"latest"} [props.to] the first choice
 * @param {() => void} props.onClose
 * @param {() => void} [props.onDone]
 */
export function ResetOffsets({ topic, topics, groups, queues, to = "time", onClose, onDone }) {
  const fields = [
    ...(topic ? [] : [{ name: "topic", label: t("topics.topic"), type: "select", options: topics.map((name) => [name, name]) }]),
    ...(groups.length === 1 ? [] : [{ name: "groups", label: t("offsets.groups"), type: "choices", required: true, options: groups.map((name) => [name, name]) }]),
    { name: "to", label: t("offsets.to"), type: "select", options: ["time", "earliest", "latest", "offset"].map((id) => [id, t(`offsets.to_${id}`)]) },
    { name: "timestamp_ms", label: t("offsets.time"), type: "datetime", required: true, hint: t("offsets.time_hint"), when: (values) => values.to === "time" },
    { name: "queues", label: t("offsets.queues"), type: "custom", required: true, hint: t("offsets.queues_hint"), when: (values) => values.to === "offset",
      check: (value) => (value.some((queue) => typeof queue.offset === "string") ? t("offsets.not_integers") : null),
      render: ({ value, onChange, values }) => html`<${QueueOffsets} queues=${queues(topic ?? values.topic)} value=${value ?? []} onChange=${onChange} />` },
  ];
  const request = (values) => ({
    method: "POST",
    path: `${pathOf("topics", topic ?? values.topic)}/offsets`,
    body: { groups: groups.length === 1 ? groups : values.groups, to: values.to, timestamp_ms: values.timestamp_ms ?? null, queues: values.queues ?? [] },
  });
  const title = to === "latest" ? t("offsets.skip") : t("offsets.reset");
  return html`<${ChangeDialog} dangerous title=${title} fields=${fields} request=${request} onClose=${onClose} onDone=${onDone} confirm=${title}
    initial=${{ topic: topics?.[0], groups: [], to, timestamp_ms: Math.floor((Date.now() - HOUR_MS) / 1000) * 1000, queues: [] }}
    details=${(details) => html`<${Moves} details=${details} />`} />`;
}

/** An offset for each queue; an empty one stays as it is. */
function QueueOffsets({ queues, value, onChange }) {
  const known = (queue) => value.find((item) => item.broker_name === queue.broker_name && item.queue_id === queue.queue_id);
  const set = (queue, text) => {
    const offset = parseInteger(text);
    const others = value.filter((item) => item !== known(queue));
    onChange(offset === null ? others : [...others, { broker_name: queue.broker_name, queue_id: queue.queue_id, offset }]);
  };
  const columns = [
    { id: "broker_name", label: t("topics.broker") },
    { id: "queue_id", label: t("offsets.queue"), number: true },
    { id: "range", label: t("offsets.range"), render: (queue) => `${number(queue.min_offset)} – ${number(queue.max_offset)}` },
    { id: "offset", label: t("offsets.new"), render: (queue) => html`<input type="text" inputMode="numeric" aria-label=${t("offsets.new_of", { broker: queue.broker_name, queue: queue.queue_id })}
      value=${String(known(queue)?.offset ?? "")} onInput=${(event) => set(queue, event.target.value)} />` },
  ].map((column) => ({ ...column, sortable: false }));
  return html`<div class="table-box"><${Table} label=${t("offsets.queues")} columns=${columns} rows=${queues} rowKey=${(queue) => `${queue.broker_name}/${queue.queue_id}`} /></div>`;
}

/** What a move does in each queue. @param {{details: any}} props */
export function Moves({ details }) {
  const hasGroups = new Set(details.moves.map((move) => move.group)).size > 1;
  const columns = [
    ...(hasGroups ? [{ id: "group", label: t("topics.group") }] : []),
    { id: "broker_name", label: t("topics.broker") },
    { id: "queue_id", label: t("offsets.queue"), number: true },
    { id: "old_offset", label: t("offsets.old"), number: true, render: (move) => (move.old_offset === null ? t("offsets.none") : number(move.old_offset)) },
    { id: "new_offset", label: t("offsets.new"), number: true, render: (move) => number(move.new_offset) },
    { id: "skipped", label: t("offsets.skipped"), number: true, render: (move) => number(move.skipped) },
    { id: "repeated", label: t("offsets.repeated"), number: true, render: (move) => number(move.repeated) },
  ].map((column) => ({ ...column, sortable: false }));
  return html`
    <${Facts} items=${[[t("offsets.skipped"), number(details.skipped)], [t("offsets.repeated"), number(details.repeated)]]} />
    <div class="table-box"><${Table} label=${t("offsets.moves")} columns=${columns} rows=${details.moves} rowKey=${(move) => `${move.group}/${move.broker_name}/${move.queue_id}`} /></div>
    <p class="muted">${t("offsets.at_this_moment")}</p>`;
}

/**
 * Takes over the offsets of another group.
 * @param {{group: string, topics: string[], onClose: () => void, onDone: () => void}} props
 */
export function CopyOffsets({ group, topics, onClose, onDone }) {
  const title = t("offsets.copy_title", { group });
  return html`<${ChangeDialog} dangerous title=${title} onClose=${onClose} onDone=${onDone} confirm=${t("offsets.copy")}
    fields=${[
      { name: "source", label: t("offsets.source"), required: true, hint: t("offsets.source_hint") },
      { name: "topic", label: t("topics.topic"), required: true, hint: topics.length ? t("offsets.topics_hint", { topics: topics.join(", ") }) : undefined },
    ]}
    initial=${{ source: "", topic: topics.length === 1 ? topics[0] : "" }} details=${(details) => html`<${Moves} details=${details} />`}
    request=${(values) => ({ method: "POST", path: `${pathOf("groups", group)}/offset-copies`, body: values })} />`;
}
