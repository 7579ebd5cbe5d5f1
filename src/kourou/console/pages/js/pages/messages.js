/** Messages of a topic: by time, queue, offset and tag; by key; by id; by conditions on properties and bodies. */
import { html, useMemo, useState } from "../lib/html.js";
import { useRead } from "../lib/api.js";
import { Commands } from "../lib/command.js";
import { t } from "../lib/i18n.js";
import { navigate, pathOf, useQuery } from "../lib/router.js";
import { Empty, Freshness, Loaded, PageHead } from "../lib/states.js";
import { Tabs } from "../lib/tabs.js";
import { TimeRange, useTimeRange } from "../lib/time_range.js";
import { QueryForm, RANGE_CHOICES, TextField, TopicField, useDraft } from "./message_form.js";
import { MessageTable, ReadAccount } from "./message_rows.js";
import { MessageSearch } from "./message_search.js";

export default function MessagesPage() {
  const tabs = [
    { id: "time", label: t("messages.by_time"), render: () => html`<${ByTime} />` },
    { id: "key", label: t("messages.by_key"), render: () => html`<${ByKey} />` },
    { id: "id", label: t("messages.by_id"), render: () => html`<${ById} />` },
    { id: "search", label: t("messages.by_condition"), render: () => html`<${MessageSearch} />` },
  ];
  return html`<${PageHead} title=${t("messages.title")} subtitle=${t("messages.subtitle")} />
    <${Tabs} label=${t("messages.ways")} tabs=${tabs} />`;
}

function ByTime() {
  const [query, setQuery, link] = useQuery({ topic: "", order: "newest", tag: "", broker: "", queue: "", offset: "", cursor: "" });
  const range = useTimeRange("all");
  const [draft, setDraft] = useDraft(query);
  const [asked, setAsked] = useState(0);
  const change = (name) => (value) => setDraft({ ...draft, [name]: value });
  const isAll = range.query.range === "all";
  // Not the present time of each render: that would read again and again.
  const times = useMemo(() => range.times(), [range.query.range, range.query.from, range.query.to, asked]);
  const read = useRead(query.topic ? "/messages" : null, {
    topic: query.topic, order: query.order, tag: query.tag, broker: query.broker, queue: query.queue, offset: query.offset, cursor: query.cursor,
    begin: isAll ? "" : times.from, end: isAll || range.query.range !== "custom" ? "" : times.to,
  });
  const submit = () => {
    setAsked(asked + 1);
    const isSame = ["topic", "order", "tag", "broker", "queue", "offset"].every((name) => draft[name] === query[name]) && query.cursor === "";
    if (isSame) read.reload();
    else setQuery({ ...draft, cursor: "" });
  };
  return html`
    <${QueryForm} onSubmit=${submit} button=${t("messages.show")}>
      <${TopicField} value=${draft.topic} onChange=${change("topic")} />
      <${TimeRange} range=${{ ...range, set: (changes) => range.set({ ...changes, cursor: "" }) }} choices=${RANGE_CHOICES} />
      <label class="stacked">${t("messages.order")}<select value=${draft.order} onChange=${(event) => change("order")(event.target.value)}>
        ${["newest", "oldest"].map((id) => html`<option key=${id} value=${id} selected=${id === draft.order}>${t(`messages.order_${id}`)}</option>`)}</select></label>
      <${TextField} label=${t("messages.tag")} value=${draft.tag} onChange=${change("tag")} placeholder="TagA || TagB" />
      <${TextField} label=${t("messages.broker")} value=${draft.broker} onChange=${change("broker")} />
      <${TextField} label=${t("messages.queue")} value=${draft.queue} onChange=${change("queue")} inputMode="numeric" pattern="\\d*" size="6" />
      <${TextField} label=${t("messages.offset")} value=${draft.offset} onChange=${change("offset")} inputMode="numeric" pattern="\\d*" size="12" hint=${t("messages.offset_hint")} />
    <//>
    ${!query.topic ? html`<${Empty} title=${t("messages.choose_topic")} />` : html`<${Loaded} read=${read}>${(page) => html`
      <div class="result-head"><${Freshness} read=${read} /><${Commands} commands=${page.commands} /></div>
      <${MessageTable} rows=${page.items} isLoading=${read.isPrevious} empty=${html`<${Empty} title=${t("messages.none")}>${!isAll && html`<a href=${link({ cursor: "", range: "", from: "", to: "" })}>${t("messages.all_times")}</a>`}<//>`} />
      <nav class="pager" aria-label=${t("table.pages")}>
        <span class="muted">${page.stopped_by ? t(`messages.stopped_${page.stopped_by}`) : page.next === null ? t("messages.end") : ""}</span>
        ${query.cursor && html`<a class="button" href=${link({ cursor: "" })}>${t("messages.first_page")}</a>`}
        ${page.next !== null && html`<a class="button" href=${link({ cursor: page.next })}>${t("table.next")}</a>`}
      </nav>
      <${ReadAccount} page=${page} />`}<//>`}`;
}

function ByKey() {
  const [query, setQuery] = useQuery({ topic: "", key: "" });
  const [draft, setDraft] = useDraft(query);
  const read = useRead(query.topic && query.key ? "/messages/by-key" : null, query);
  const submit = () => (draft.topic === query.topic && draft.key === query.key ? read.reload() : setQuery(draft));
  return html`
    <${QueryForm} onSubmit=${submit} button=${t("messages.find")}>
      <${TopicField} value=${draft.topic} onChange=${(topic) => setDraft({ ...draft, topic })} />
      <${TextField} label=${t("messages.key")} value=${draft.key} onChange=${(key) => setDraft({ ...draft, key })} required />
    <//>
    ${query.topic && query.key ? html`<${Loaded} read=${read}>${(page) => html`
      <div class="result-head"><a href=${`/trace?topic=${encodeURIComponent(query.topic)}&key=${encodeURIComponent(query.key)}`}>${t("messages.traces_of_key")}</a><${Commands} commands=${page.commands} /></div>
      <${MessageTable} rows=${page.items} isLoading=${read.isPrevious} empty=${html`<${Empty} title=${t("messages.none_with_key")} />`} />`}<//>` : html`<${Empty} title=${t("messages.key_hint")} />`}`;
}

function ById() {
  const [query] = useQuery({ topic: "" });
  const [draft, setDraft] = useState({ topic: query.topic, id: "" });
  return html`
    <${QueryForm} onSubmit=${() => navigate(pathOf("messages", draft.topic.trim(), draft.id.trim()))} button=${t("messages.open")}>
      <${TopicField} value=${draft.topic} onChange=${(topic) => setDraft({ ...draft, topic })} />
      <${TextField} label=${t("messages.id")} value=${draft.id} onChange=${(id) => setDraft({ ...draft, id })} required size="40" />
    <//>
    <p class="muted">${t("messages.id_hint")}</p>`;
}
