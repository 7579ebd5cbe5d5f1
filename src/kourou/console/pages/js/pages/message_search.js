/** A search by conditions on properties and bodies: it runs on the server, with progress, until it ends or is cancelled. */
import { html, useMemo, useState } from "../lib/html.js";
import { send, useLive } from "../lib/api.js";
import { Commands } from "../lib/command.js";
import { duration, number } from "../lib/format.js";
import { t, tn } from "../lib/i18n.js";
import { useQuery } from "../lib/router.js";
import { Badge, Empty, ErrorBox, Loaded, Meter, Note } from "../lib/states.js";
import { TimeRange, useTimeRange } from "../lib/time_range.js";
import { QueryForm, RANGE_CHOICES, TextField, TopicField, useDraft } from "./message_form.js";
import { MessageTable } from "./message_rows.js";

const POLL_S = 0.5;
const DEFAULTS = { topic: "", tag: "", sql: "", contains: "", path: "", value: "", messages: "100000", seconds: "60", scan: "" };
const KINDS = { running: "info", done: "good", cancelled: "warn", failed: "bad" };

export function MessageSearch() {
  const [query, setQuery] = useQuery(DEFAULTS);
  const range = useTimeRange("all");
  const [draft, setDraft] = useDraft(query);
  const [error, setError] = useState(null);
  const [isStarting, setStarting] = useState(false);
  const change = (name) => (value) => setDraft({ ...draft, [name]: value });
  const start = async () => {
    const times = range.times();
    const hasTimes = range.query.range !== "all";
    setError(null);
    setStarting(true);
    try {
      const scan = await send("POST", "/message-searches", {
        topic: draft.topic.trim(), tag: draft.tag, sql: draft.sql, contains: draft.contains, json_path: draft.path,
        json_value: draft.path && draft.value !== "" ? draft.value : null,
        begin: hasTimes ? times.from : null, end: hasTimes ? times.to : null,
        most_messages: Number(draft.messages) || 100000, most_seconds: Number(draft.seconds) || 60,
      });
      setQuery({ ...draft, scan: scan.id });
    } catch (problem) {
      setError(problem);
      // Results from before would pass for those of this search.
      setQuery({ ...draft, scan: "" });
    }
    setStarting(false);
  };
  return html`
    <${QueryForm} onSubmit=${start} button=${isStarting ? t("search.starting") : t("search.start")}>
      <${TopicField} value=${draft.topic} onChange=${change("topic")} />
      <${TimeRange} range=${range} choices=${RANGE_CHOICES} />
      <${TextField} label=${t("messages.tag")} value=${draft.tag} onChange=${change("tag")} placeholder="TagA || TagB" />
      <label class="stacked is-wide">${t("search.sql")}<input type="text" value=${draft.sql} spellCheck=${false} autoComplete="off" placeholder="region = 'north' AND amount > 5" onInput=${(event) => change("sql")(event.target.value)} /></label>
      <${TextField} label=${t("search.contains")} value=${draft.contains} onChange=${change("contains")} />
      <${TextField} label=${t("search.json_path")} value=${draft.path} onChange=${change("path")} placeholder="order.items[0].sku" />
      <${TextField} label=${t("search.json_value")} value=${draft.value} onChange=${change("value")} />
      <${TextField} label=${t("search.most_messages")} value=${draft.messages} onChange=${change("messages")} inputMode="numeric" pattern="\\d*" size="9" />
      <${TextField} label=${t("search.most_seconds")} value=${draft.seconds} onChange=${change("seconds")} inputMode="numeric" pattern="\\d*" size="5" />
    <//>
    ${error && html`<${ErrorBox} error=${error} />`}
    ${query.scan ? html`<${Progress} key=${query.scan} id=${query.scan} />` : html`<${Empty} title=${t("search.hint")}><p class="muted">${t("search.explanation")}</p><//>`}`;
}

function Progress({ id }) {
  const path = `/message-searches/${encodeURIComponent(id)}`;
  const [ended, setEnded] = useState(null);
  const live = useLive(ended ? null : path, POLL_S);
  const data = ended ?? live.data;
  if (!ended && live.data && live.data.state !== "running") setEnded(live.data);
  const read = useMemo(() => ({ ...live, data: data && { ...data, isRunning: data.state === "running" } }), [live.data, live.error, ended]);
  const cancel = () => send("DELETE", path).then(setEnded, () => live.reload());
  return html`<${Loaded} read=${read}>${(scan) => html`
    <div class="card search-progress" role="status" aria-live="polite">
      <${Badge} kind=${KINDS[scan.state]}>${t(`search.state_${scan.state}`)}<//>
      <${Meter} ratio=${ratioOf(scan)} text=${t("search.progress", { scanned: number(scan.scanned), found: number(scan.items.length) })} kind=${scan.state === "failed" ? "bad" : "good"} />
      <span class="muted">${scan.left === null ? "" : tn("search.left", scan.left)} · ${duration(scan.elapsed_ms)}</span>
      <span class="grow"></span>
      ${scan.isRunning && html`<button type="button" onClick=${cancel}>${t("common.cancel")}</button>`}
      <${Commands} commands=${scan.commands} />
    </div>
    ${scan.stopped_by && html`<${Note} kind="warn">${t(`search.stopped_${scan.stopped_by}`)}<//>`}
    ${scan.filtered_here.length > 0 && html`<${Note}>${t("search.filtered_here", { brokers: scan.filtered_here.join(", ") })}<//>`}
    <${MessageTable} rows=${scan.items} empty=${html`<${Empty} title=${t(scan.isRunning ? "search.nothing_yet" : "search.nothing")} />`} />`}<//>`;
}

function ratioOf(scan) {
  if (scan.left === null) return 0;
  const all = Number(scan.scanned) + Number(scan.left);
  return all ? Number(scan.scanned) / all : 1;
}
