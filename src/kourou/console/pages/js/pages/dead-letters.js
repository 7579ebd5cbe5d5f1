/** Dead letters: groups that have some; those of one group, sent back with a preview, or exported. */
import { html, useMemo, useState } from "../lib/html.js";
import { queryString, useRead } from "../lib/api.js";
import { ChangeDialog } from "../lib/change.js";
import { Commands } from "../lib/command.js";
import { bytes, number } from "../lib/format.js";
import { Icon } from "../lib/icons.js";
import { t, tn } from "../lib/i18n.js";
import { pathOf, useQuery } from "../lib/router.js";
import { useCanChange } from "../lib/session.js";
import { Badge, Empty, Freshness, Loaded, PageHead, Time } from "../lib/states.js";
import { Table } from "../lib/table.js";
import { ServerTable, useServerTable } from "../lib/table_data.js";
import { TimeRange, useTimeRange } from "../lib/time_range.js";
import { line } from "../lib/visible.js";
import { QueryForm, RANGE_CHOICES, TextField, useDraft } from "./message_form.js";
import { messageHref, ReadAccount } from "./message_rows.js";

const OUTCOME_KINDS = { sent: "good", failed: "bad", "redriven before": "info" };
const FILTERS = ["topic", "key", "expression"];
const positionOf = (letter) => `${letter.broker_name}:${letter.queue_id}:${letter.queue_offset}`;

export default function DeadLettersPage() {
  const [query] = useQuery({ group: "" });
  return query.group ? html`<${Letters} key=${query.group} group=${query.group} />` : html`<${GroupList} />`;
}

function GroupList() {
  const table = useServerTable({ path: "/dead-letters", seconds: 10, sort: { column: "count", order: "desc" } });
  const columns = [
    { id: "group", label: t("dead-letters.group"), main: true },
    { id: "count", label: t("dead-letters.count"), number: true, render: (row) => number(row.count) },
    { id: "last_timestamp", label: t("dead-letters.last"), render: (row) => html`<${Time} ms=${row.last_timestamp} />` },
  ];
  return html`
    <${PageHead} title=${t("dead-letters.title")} subtitle=${t("dead-letters.subtitle")}>
      <${Freshness} read=${table.read} /><${Commands} commands=${table.read.data?.commands} />
    <//>
    <${ServerTable} table=${table} label=${t("dead-letters.title")} columns=${columns} rowKey=${(row) => row.group} rowHref=${(row) => `/dead-letters?group=${encodeURIComponent(row.group)}`}
      empty=${html`<${Empty} title=${t("dead-letters.none_anywhere")} />`} />`;
}

function Letters({ group }) {
  const [query, setQuery, link] = useQuery({ topic: "", key: "", expression: "", order: "newest", cursor: "" });
  const range = useTimeRange("all");
  const [draft, setDraft] = useDraft(query);
  const [selected, select] = useState(() => new Set());
  const [dialog, setDialog] = useState(null);
  const [asked, setAsked] = useState(0);
  const canChange = useCanChange();
  const change = (name) => (value) => setDraft({ ...draft, [name]: value });
  const times = useMemo(() => range.times(), [range.query.range, range.query.from, range.query.to, asked]);
  const isAll = range.query.range === "all";
  const chosen = { topic: query.topic, key: query.key, expression: query.expression, begin: isAll ? null : times.from, end: range.query.range === "custom" ? times.to : null };
  const path = pathOf("dead-letters", group);
  const read = useRead(path, { ...chosen, order: query.order, cursor: query.cursor });
  const submit = () => {
    setAsked(asked + 1);
    if (FILTERS.every((name) => draft[name] === query[name]) && query.cursor === "") read.reload();
    else setQuery({ ...draft, cursor: "" });
  };
  const exportHref = (positions) => `/api${path}/export${queryString({ ...chosen, positions: positions.join(",") })}`;
  const redrive = (positions) => setDialog({ positions, end: positions ? chosen.end : chosen.end ?? Date.now() });
  return html`
    <${PageHead} title=${t("dead-letters.of_group", { group })} subtitle=${html`<a href=${pathOf("groups", group)}>${t("dead-letters.to_group")}</a>`} back=${{ href: "/dead-letters", label: t("dead-letters.title") }}>
      <${Freshness} read=${read} />
      <a class="button" href=${exportHref([])} download><${Icon} name="download" />${t("dead-letters.export_all")}</a>
      ${canChange && html`<button type="button" onClick=${() => redrive(null)}>${t("dead-letters.redrive_all")}</button>`}
      <${Commands} commands=${read.data?.commands} />
    <//>
    <${QueryForm} onSubmit=${submit} button=${t("messages.show")}>
      <${TimeRange} range=${{ ...range, set: (changes) => range.set({ ...changes, cursor: "" }) }} choices=${RANGE_CHOICES} />
      <${TextField} label=${t("dead-letters.origin_topic")} value=${draft.topic} onChange=${change("topic")} />
      <${TextField} label=${t("dead-letters.key")} value=${draft.key} onChange=${change("key")} />
      <label class="stacked is-wide">${t("search.sql")}<input type="text" value=${draft.expression} spellCheck=${false} autoComplete="off" placeholder="region = 'north' AND amount > 5" onInput=${(event) => change("expression")(event.target.value)} /></label>
    <//>
    <${Loaded} read=${read}>${(page) => html`
      <div class="table-box">
        <div class="table-tools">
          ${selected.size > 0 && html`<div class="table-selection"><span>${tn("table.selected", selected.size)}</span>
            ${canChange && html`<button type="button" class="is-primary" onClick=${() => redrive([...selected])}>${t("dead-letters.redrive")}</button>`}
            <a class="button" href=${exportHref([...selected])} download>${t("dead-letters.export")}</a></div>`}
          <span class="table-count muted" role="status">${tn("table.rows", page.items.length)}</span>
        </div>
        <${LetterTable} group=${group} rows=${page.items} selected=${selected} onSelect=${select} isLoading=${read.isPrevious} />
        <nav class="pager" aria-label=${t("table.pages")}>
          <span class="muted">${page.stopped_by ? t(`messages.stopped_${page.stopped_by}`) : page.next === null ? t("messages.end") : ""}</span>
          ${query.cursor && html`<a class="button" href=${link({ cursor: "" })}>${t("messages.first_page")}</a>`}
          ${page.next !== null && html`<a class="button" href=${link({ cursor: page.next })}>${t("table.next")}</a>`}
        </nav>
      </div>
      <${ReadAccount} page=${page} />`}<//>
    ${dialog && html`<${RedriveDialog} group=${group} selection=${{ ...chosen, end: dialog.end }} positions=${dialog.positions} onClose=${() => setDialog(null)} onDone=${() => { select(new Set()); read.reload(); }} />`}`;
}

function LetterTable({ group, rows, selected, onSelect, isLoading }) {
  const columns = [
    { id: "store_timestamp", label: t("dead-letters.given_up"), main: true, render: (row) => html`<${Time} ms=${row.store_timestamp} withMilliseconds />` },
    { id: "msg_id", label: t("messages.id"), render: (row) => html`<code>${line(row.msg_id, 40)}</code>` },
    { id: "topic", label: t("dead-letters.origin_topic"), render: (row) => (row.topic ? html`<a href=${pathOf("messages", row.topic, row.msg_id)} title=${t("dead-letters.original")}>${row.topic}</a>` : html`<span class="muted">${t("dead-letters.unknown")}</span>`) },
    { id: "keys", label: t("messages.keys"), render: (row) => (row.keys ? line(row.keys, 60) : "–") },
    { id: "tags", label: t("messages.tag"), render: (row) => (row.tags ? line(row.tags, 40) : "–") },
    { id: "reconsume_times", label: t("dead-letters.retries"), number: true, render: (row) => number(row.reconsume_times) },
    { id: "born_timestamp", label: t("message.born"), render: (row) => html`<${Time} ms=${row.born_timestamp} />` },
    { id: "body_size", label: t("messages.size"), number: true, render: (row) => bytes(row.body_size) },
    { id: "body_start", label: t("messages.body"), render: (row) => html`<code>${line(row.body_start, 80)}</code>` },
  ].map((column) => ({ ...column, sortable: false }));
  return html`<${Table} label=${t("dead-letters.of_group", { group })} columns=${columns} rows=${rows} rowKey=${positionOf} rowHref=${(row) => messageHref(row, `%DLQ%${group}`)}
    selected=${selected} onSelect=${onSelect} isLoading=${isLoading} empty=${html`<${Empty} title=${t("dead-letters.none")} />`} />`;
}

function RedriveDialog({ group, selection, positions, onClose, onDone }) {
  const fields = [
    { name: "to_topic", label: t("dead-letters.to_topic"), type: "checkbox", hint: t("dead-letters.to_topic_hint") },
    { name: "again", label: t("dead-letters.again"), type: "checkbox", hint: t("dead-letters.again_hint") },
  ];
  const request = (values) => ({
    method: "POST",
    path: `${pathOf("dead-letters", group)}/redrive`,
    body: { ...selection, to_topic: Boolean(values.to_topic), again: Boolean(values.again), positions },
  });
  const intro = html`<p>${positions ? tn("dead-letters.redrive_chosen", positions.length, { group }) : t("dead-letters.redrive_matching", { group })}</p>`;
  return html`<${ChangeDialog} title=${t("dead-letters.redrive")} fields=${fields} intro=${intro} request=${request} confirm=${t("dead-letters.redrive")} onClose=${onClose} onDone=${onDone}
    resultHasOutcomes result=${(answer) => html`<${Results} results=${answer.result} />`} />`;
}

function Results({ results }) {
  const columns = [
    { id: "msg_id", label: t("messages.id"), main: true, render: (row) => html`<code>${line(row.letter.msg_id, 40)}</code>` },
    { id: "outcome", label: t("message.result"), render: (row) => html`<${Badge} kind=${OUTCOME_KINDS[row.outcome] ?? "plain"}>${t(`dead-letters.outcome_${row.outcome.replace(" ", "_")}`)}<//>` },
    { id: "target", label: t("dead-letters.target"), render: (row) => row.target || "–" },
    { id: "reason", label: t("messages.problem"), wrap: true, render: (row) => row.reason || "–" },
  ].map((column) => ({ ...column, sortable: false }));
  return html`<${Table} label=${t("dead-letters.outcomes")} columns=${columns} rows=${results} rowKey=${(row) => row.letter.offset_msg_id} empty=${html`<${Empty} title=${t("dead-letters.nothing_sent")} />`} />`;
}
