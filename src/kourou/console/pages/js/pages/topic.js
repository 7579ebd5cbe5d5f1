/** One topic: queues, consumers, route, settings of each broker, and what can be done with it. */
import { html, useState } from "../lib/html.js";
import { useLive } from "../lib/api.js";
import { Commands } from "../lib/command.js";
import { compact, duration, number, rate } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { pathOf, useQuery } from "../lib/router.js";
import { useCanChange } from "../lib/session.js";
import { Badge, Card, Empty, Freshness, Loaded, Note, PageHead, Tile, Time } from "../lib/states.js";
import { ArrayTable } from "../lib/table_data.js";
import { Tabs } from "../lib/tabs.js";
import { ResetOffsets } from "./offsets.js";
import { SendMessage } from "./send.js";
import { ChangeTopic, CopyTopic, DeleteTopic } from "./topic_changes.js";
import { BrokerLink, GroupLink, KindBadge, MESSAGE_KINDS, permText } from "./topic_parts.js";

export default function TopicPage({ params }) {
  const read = useLive(pathOf("topics", params.topic), 5);
  const [dialog, open] = useState(null);
  const topic = read.data;
  return html`
    <${PageHead} title=${params.topic} subtitle=${topic && html`<${KindBadge} kind=${topic.kind} /> ${topic.clusters.join(", ")}`} back=${{ href: "/topics", label: t("topics.title") }}>
      <${Freshness} read=${read} />
      ${topic && html`<${Actions} topic=${topic} open=${open} />`}
      <${Commands} commands=${topic?.commands} />
    <//>
    <${Loaded} read=${read}>${(data) => html`
      <${Tiles} topic=${data} />
      <${Overflow} topic=${data} />
      ${data.route === null && html`<${Note} kind="warn">${t("topic.no_route")}<//>`}
      <${Tabs} label=${t("topic.views")} tabs=${[
        { id: "queues", label: t("topic.queues"), count: data.queues.length, render: () => html`<${Queues} topic=${data} />` },
        { id: "consumers", label: t("topic.consumers"), count: data.groups.length, render: () => html`<${Consumers} topic=${data} open=${open} />` },
        { id: "route", label: t("topic.route"), render: () => html`<${Route} route=${data.route} />` },
        { id: "settings", label: t("topic.settings"), render: () => html`<${Settings} topic=${data} />` },
      ]} />`}<//>
    ${topic && dialog && html`<${Change} topic=${topic} dialog=${dialog} onClose=${() => open(null)} onDone=${read.reload} />`}`;
}

function Actions({ topic, open }) {
  const canChange = useCanChange();
  const isOfApplication = MESSAGE_KINDS.includes(topic.kind);
  const button = (name, extra) => html`<button type="button" class=${extra} onClick=${() => open({ name })}>${t(`topic.do_${name}`)}</button>`;
  return [
    html`<a class="button" href=${`/messages?topic=${encodeURIComponent(topic.topic)}`}>${t("topic.messages")}</a>`,
    canChange && topic.kind !== "SYSTEM" && [
      isOfApplication && button("send", "is-primary"),
      isOfApplication && topic.groups.length > 0 && button("reset"),
      button("change"),
      isOfApplication && button("copy"),
      button("delete"),
    ],
  ];
}

function Change({ topic, dialog, onClose, onDone }) {
  switch (dialog.name) {
    case "send":
      return html`<${SendMessage} topic=${topic.topic} kind=${topic.kind} onClose=${onClose} onDone=${onDone} />`;
    case "reset":
      return html`<${ResetOffsets} topic=${topic.topic} groups=${dialog.groups ?? topic.groups.map((item) => item.group)} to=${dialog.to} queues=${() => topic.queues} onClose=${onClose} onDone=${onDone} />`;
    case "change":
      return html`<${ChangeTopic} topic=${topic} onClose=${onClose} onDone=${onDone} />`;
    case "copy":
      return html`<${CopyTopic} topic=${topic} onClose=${onClose} />`;
    default:
      return html`<${DeleteTopic} topic=${topic} onClose=${onClose} />`;
  }
}

function Tiles({ topic }) {
  const lag = topic.groups.reduce((sum, group) => sum + Number(group.lag ?? 0), 0);
  const last = topic.queues.reduce((latest, queue) => (queue.last_update_timestamp > latest ? queue.last_update_timestamp : latest), 0);
  return html`<div class="tiles">
    <${Tile} label=${t("topic.stored")} value=${compact(topic.messages)} unit=${t("topic.messages_unit")} title=${number(topic.messages)} />
    <${Tile} label=${t("topics.in_tps")} value=${rate(topic.put_tps)} />
    <${Tile} label=${t("topic.last_message")} value=${html`<${Time} ms=${last} relative />`} />
    <${Tile} label=${t("topic.total_lag")} value=${compact(lag)} unit=${t("topic.messages_unit")} title=${number(lag)} kind=${lag > 0 ? "warn" : undefined} />
  </div>`;
}

function Overflow({ topic }) {
  return topic.overflow.map((item) => html`<${Note} key=${item.broker_name} kind=${item.state.overSinceMs === null ? "info" : "warn"}>
    ${t("topic.overflow", { broker: item.broker_name, policy: item.state.policy, limits: item.limits, group: item.state.slowestGroup || "–", rejected: number(item.state.rejected), dropped: number(item.dropped), dead: number(item.dead_lettered) })}
  <//>`);
}

function Queues({ topic }) {
  const columns = [
    { id: "broker_name", label: t("topics.broker"), main: true, render: (queue) => html`<${BrokerLink} name=${queue.broker_name} />` },
    { id: "queue_id", label: t("offsets.queue"), number: true },
    { id: "min_offset", label: t("topic.min_offset"), number: true, render: (queue) => number(queue.min_offset) },
    { id: "max_offset", label: t("topic.max_offset"), number: true, hint: t("topic.max_offset_hint"), render: (queue) => number(queue.max_offset) },
    { id: "messages", label: t("topic.stored"), number: true, value: (queue) => queue.max_offset - queue.min_offset, render: (queue) => number(queue.max_offset - queue.min_offset) },
    { id: "last_update_timestamp", label: t("topic.last_message"), render: (queue) => html`<${Time} ms=${queue.last_update_timestamp} />` },
    { id: "browse", label: t("topic.messages"), sortable: false, render: (queue) => html`<a href=${`/messages?topic=${encodeURIComponent(topic.topic)}&broker=${encodeURIComponent(queue.broker_name)}&queue=${queue.queue_id}`}>${t("topic.browse")}</a>` },
  ];
  return html`<${ArrayTable} label=${t("topic.queues")} columns=${columns} rows=${topic.queues} rowKey=${(queue) => `${queue.broker_name}/${queue.queue_id}`} prefix="q_" empty=${html`<${Empty} title=${t("topic.no_queues")} />`} />`;
}

function Consumers({ topic, open }) {
  const canChange = useCanChange();
  const [query, setQuery] = useQuery({ group: "" });
  const shown = topic.groups.find((item) => item.group === query.group);
  const columns = [
    { id: "group", label: t("topics.group"), main: true, render: (item) => html`<${GroupLink} group=${item.group} />` },
    { id: "lag", label: t("topics.lag"), number: true, render: (item) => (item.lag === null ? t("offsets.none") : number(item.lag)) },
    { id: "behind_ms", label: t("groups.behind"), number: true, hint: t("groups.behind_hint"), render: (item) => (item.lag ? duration(item.behind_ms) : "–") },
    { id: "last_consumed_ms", label: t("groups.last_consumed"), hint: t("groups.last_consumed_hint"), render: (item) => html`<${Time} ms=${item.last_consumed_ms} />` },
    { id: "actions", label: t("topic.actions"), sortable: false, render: (item) => html`<span class="row-actions">
      <button type="button" aria-pressed=${String(item === shown)} aria-label=${t("topic.queues_of", { group: item.group })} onClick=${() => setQuery({ group: item === shown ? "" : item.group })}>${t("topic.queues")}</button>
      ${canChange && [
        html`<button type="button" aria-label=${t("topic.reset_of", { group: item.group })} onClick=${() => open({ name: "reset", groups: [item.group] })}>${t("topic.do_reset")}</button>`,
        html`<button type="button" aria-label=${t("topic.skip_of", { group: item.group })} onClick=${() => open({ name: "reset", groups: [item.group], to: "latest" })}>${t("topic.skip")}</button>`,
      ]}</span>` },
  ];
  return [
    html`<${ArrayTable} label=${t("topic.consumers")} columns=${columns} rows=${topic.groups} rowKey=${(item) => item.group} prefix="c_" empty=${html`<${Empty} title=${t("topic.no_consumers")} />`} />`,
    shown && html`<${Card} flush title=${t("topic.queues_of", { group: shown.group })}><${QueueLags} queues=${shown.queues} /><//>`,
  ];
}

/** The progress of a group in queues. @param {{queues: any[], clientOf?: (queue: any) => any}} props */
export function QueueLags({ queues, clientOf }) {
  const columns = [
    { id: "broker_name", label: t("topics.broker"), render: (queue) => html`<${BrokerLink} name=${queue.broker_name} />` },
    { id: "queue_id", label: t("offsets.queue"), number: true },
    { id: "broker_offset", label: t("topic.max_offset"), number: true, hint: t("topic.max_offset_hint"), render: (queue) => number(queue.broker_offset) },
    { id: "consumer_offset", label: t("offsets.group_offset"), number: true, render: (queue) => number(queue.consumer_offset) },
    { id: "lag", label: t("topics.lag"), number: true, value: (queue) => queue.broker_offset - queue.consumer_offset, render: (queue) => number(queue.broker_offset - queue.consumer_offset) },
    ...(clientOf ? [{ id: "client", label: t("group.client"), render: clientOf, sortable: false }] : []),
    { id: "last_timestamp", label: t("groups.last_consumed"), hint: t("groups.last_consumed_hint"), render: (queue) => html`<${Time} ms=${queue.last_timestamp} />` },
  ];
  return html`<${ArrayTable} label=${t("topic.queues")} columns=${columns} rows=${queues} rowKey=${(queue) => `${queue.topic}/${queue.broker_name}/${queue.queue_id}`} prefix="l_" />`;
}

function Route({ route }) {
  if (route === null) return html`<${Empty} title=${t("topic.no_route")} />`;
  const queues = [
    { id: "brokerName", label: t("topics.broker"), main: true, render: (data) => html`<${BrokerLink} name=${data.brokerName} />` },
    { id: "readQueueNums", label: t("topic.read_queues"), number: true },
    { id: "writeQueueNums", label: t("topic.write_queues"), number: true },
    { id: "perm", label: t("topics.perm"), render: (data) => permText(permLetters(data.perm)) },
    { id: "addresses", label: t("topic.addresses"), sortable: false, wrap: true, render: (data) => {
      const broker = route.brokerDatas.find((item) => item.brokerName === data.brokerName);
      return Object.entries(broker?.brokerAddrs ?? {}).map(([id, address]) => html`<${Badge} key=${id} kind=${id === "0" ? "info" : "plain"}>${id}: ${address}<//> `);
    } },
  ];
  return html`<${ArrayTable} label=${t("topic.route")} columns=${queues} rows=${route.queueDatas} rowKey=${(data) => data.brokerName} prefix="r_" />
    ${route.orderTopicConf && html`<p>${t("topic.order_conf")} <code>${route.orderTopicConf}</code></p>`}`;
}

function permLetters(perm) {
  return `${perm & 4 ? "R" : ""}${perm & 2 ? "W" : ""}` || "-";
}

function Settings({ topic }) {
  const mark = (name, content) => (topic.differing.includes(name) ? html`<${Badge} kind="warn">${content}<//>` : content);
  const columns = [
    { id: "broker_name", label: t("topics.broker"), main: true, render: (item) => html`<${BrokerLink} name=${item.broker_name} />` },
    { id: "cluster", label: t("topic.cluster") },
    { id: "write", label: t("topic.write_queues"), number: true, value: (item) => item.config.writeQueueNums, render: (item) => mark("writeQueueNums", number(item.config.writeQueueNums)) },
    { id: "read", label: t("topic.read_queues"), number: true, value: (item) => item.config.readQueueNums, render: (item) => mark("readQueueNums", number(item.config.readQueueNums)) },
    { id: "perm", label: t("topics.perm"), render: (item) => mark("perm", permText(item.perm)) },
    { id: "kind", label: t("topic.message_kind"), render: (item) => mark("attributes", html`<${KindBadge} kind=${item.kind} />`) },
    { id: "order", label: t("topic.order"), value: (item) => item.config.order, render: (item) => mark("order", t(item.config.order ? "common.yes" : "common.no")) },
    { id: "attributes", label: t("topic.attributes"), sortable: false, wrap: true, render: (item) => html`<code>${Object.entries(item.config.attributes ?? {}).map(([name, value]) => `${name}=${value}`).join(", ") || "–"}</code>` },
  ];
  return [
    topic.differing.length > 0 && html`<${Note} kind="warn">${t("topic.differs_hint", { settings: topic.differing.join(", ") })}<//>`,
    html`<${ArrayTable} label=${t("topic.settings")} columns=${columns} rows=${topic.brokers} rowKey=${(item) => item.broker_name} prefix="s_" />`,
  ];
}
