/** One consumer group: lag by topic, queue and client, members and their conflicts, subscriptions, settings. */
import { html, useMemo, useState } from "../lib/html.js";
import { useLive } from "../lib/api.js";
import { Commands } from "../lib/command.js";
import { compact, duration, number, rate } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { pathOf, useQuery } from "../lib/router.js";
import { useCanChange } from "../lib/session.js";
import { Badge, Card, Empty, ErrorBox, Freshness, Loaded, Note, PageHead, Problems, Tile, Time } from "../lib/states.js";
import { ArrayTable } from "../lib/table_data.js";
import { Tabs } from "../lib/tabs.js";
import { ChangeGroup, DeleteGroup } from "./group_changes.js";
import { modelText } from "./groups.js";
import { CopyOffsets, ResetOffsets } from "./offsets.js";
import { QueueLags } from "./topic.js";
import { BrokerLink, KindBadge, TopicLink } from "./topic_parts.js";

const SEVERITIES = { problem: "bad", warning: "warn", hint: "info" };
const SETTINGS = ["consumeEnable", "consumeMessageOrderly", "consumeBroadcastEnable", "consumeFromMinEnable", "retryMaxTimes", "retryQueueNums", "brokerId", "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable", "consumeTimeoutMinute"];

export default function GroupPage({ params }) {
  const path = pathOf("groups", params.group);
  const read = useLive(path, 5);
  // Every member is asked for a report: less often than the brokers.
  const reports = useLive(`${path}/members`, 30);
  const [dialog, open] = useState(null);
  const group = read.data;
  const owners = useMemo(() => ownersOf(reports.data), [reports.data]);
  return html`
    <${PageHead} title=${params.group} subtitle=${group && html`<${KindBadge} kind=${group.kind} /> ${modelText(group)}`} back=${{ href: "/groups", label: t("groups.title") }}>
      <${Freshness} read=${read} />
      ${group && html`<${Actions} group=${group} open=${open} />`}
      <${Commands} commands=${group?.commands} />
    <//>
    <${Loaded} read=${read}>${(data) => html`
      <${Tiles} group=${data} />
      <${Findings} reports=${reports} />
      <${Tabs} label=${t("group.views")} tabs=${[
        { id: "progress", label: t("group.progress"), count: data.topics.length, render: () => html`<${Progress} group=${data} owners=${owners} open=${open} />` },
        { id: "members", label: t("groups.members"), count: data.members.length, render: () => html`<${Members} group=${data} reports=${reports} />` },
        { id: "subscriptions", label: t("group.subscriptions"), count: data.subscriptions.length, render: () => html`<${Subscriptions} rows=${data.subscriptions} />` },
        { id: "settings", label: t("topic.settings"), render: () => html`<${Settings} group=${data} />` },
      ]} />`}<//>
    ${group && dialog && html`<${Change} group=${group} dialog=${dialog} onClose=${() => open(null)} onDone=${read.reload} />`}`;
}

function ownersOf(reports) {
  const owners = new Map();
  for (const member of reports?.members ?? []) {
    for (const queue of member.queues) owners.set(`${queue.topic}/${queue.brokerName}/${queue.queueId}`, member.client_id);
  }
  return owners;
}

function Actions({ group, open }) {
  const canChange = useCanChange();
  const button = (name) => html`<button type="button" onClick=${() => open({ name })}>${t(`group.do_${name}`)}</button>`;
  return [
    group.dead_letter_topic && html`<a class="button" href=${`/dead-letters?group=${encodeURIComponent(group.group)}`}>${t("group.dead_letters")}</a>`,
    canChange && group.kind !== "SYSTEM" && [group.topics.length > 0 && button("reset"), button("clone"), group.brokers.length > 0 && button("change"), button("delete")],
  ];
}

/**
 * Topics by their lag; the retry topic last.
 * @param {{topic: string, lag: number|bigint}[]} topics
 * @param {string} retryTopic
 */
export function byLag(topics, retryTopic) {
  const isRetry = (item) => Number(item.topic === retryTopic);
  return [...topics].sort((one, other) => isRetry(one) - isRetry(other) || Number(other.lag) - Number(one.lag));
}

function Change({ group, dialog, onClose, onDone }) {
  // The topic that lags most comes first: seldom is the retry topic the one to move.
  const topics = byLag(group.topics, group.retry_topic).map((item) => item.topic);
  // Where the group has an offset; the server knows the limits.
  const queues = (topic) => (group.topics.find((item) => item.topic === topic)?.queues ?? []).map((queue) => ({ ...queue, min_offset: null, max_offset: queue.broker_offset }));
  switch (dialog.name) {
    case "reset":
      return html`<${ResetOffsets} topic=${dialog.topic} topics=${topics} groups=${[group.group]} to=${dialog.to} queues=${queues} onClose=${onClose} onDone=${onDone} />`;
    case "clone":
      return html`<${CopyOffsets} group=${group.group} topics=${topics} onClose=${onClose} onDone=${onDone} />`;
    case "change":
      return html`<${ChangeGroup} group=${group} onClose=${onClose} onDone=${onDone} />`;
    default:
      return html`<${DeleteGroup} group=${group} onClose=${onClose} />`;
  }
}

function Tiles({ group }) {
  return html`<div class="tiles">
    <${Tile} label=${t("topics.lag")} value=${compact(group.lag)} unit=${t("topic.messages_unit")} title=${number(group.lag)} kind=${group.lag > 0 ? "warn" : undefined} />
    <${Tile} label=${t("groups.behind")} value=${group.lag ? duration(group.behind_ms) : "–"} title=${t("groups.behind_hint")} />
    <${Tile} label=${t("groups.tps")} value=${rate(group.tps)} title=${t("groups.tps_hint")} />
    <${Tile} label=${t("groups.members")} value=${number(group.members.length)} kind=${group.members.length === 0 && group.lag > 0 ? "bad" : undefined} detail=${group.members.length === 0 ? t("groups.offline") : group.consume_from_where && t(`group.from_${group.consume_from_where}`)} />
    <${Tile} label=${t("groups.last_consumed")} value=${html`<${Time} ms=${group.last_consumed_ms} relative />`} title=${t("groups.last_consumed_hint")} />
  </div>`;
}

/** Conflicts between members: different subscriptions or versions, equal ids, queues without a member. */
function Findings({ reports }) {
  return html`
    ${reports.error && html`<${ErrorBox} error=${reports.error} onRetry=${reports.reload} />`}
    <${Problems} problems=${reports.data?.problems} />
    ${reports.data?.findings.map((finding) => html`<${Note} key=${finding.check + finding.what} kind=${SEVERITIES[finding.severity]}>
      <strong>${finding.what}</strong><p>${finding.meaning}</p><p>${finding.cure}</p><//>`)}`;
}

function Progress({ group, owners, open }) {
  const canChange = useCanChange();
  const [query, setQuery] = useQuery({ topic: "" });
  const shown = group.topics.find((item) => item.topic === query.topic) ?? (group.topics.length === 1 ? group.topics[0] : null);
  const columns = [
    { id: "topic", label: t("topics.topic"), main: true, render: (item) => html`<${TopicLink} topic=${item.topic} />` },
    { id: "lag", label: t("topics.lag"), number: true, render: (item) => number(item.lag) },
    { id: "behind_ms", label: t("groups.behind"), number: true, hint: t("groups.behind_hint"), render: (item) => (item.lag ? duration(item.behind_ms) : "–") },
    { id: "last_consumed_ms", label: t("groups.last_consumed"), hint: t("groups.last_consumed_hint"), render: (item) => html`<${Time} ms=${item.last_consumed_ms} />` },
    { id: "actions", label: t("topic.actions"), sortable: false, render: (item) => html`<span class="row-actions">
      <button type="button" aria-pressed=${String(item === shown)} aria-label=${t("group.queues_of", { topic: item.topic })} onClick=${() => setQuery({ topic: item.topic })}>${t("topic.queues")}</button>
      ${canChange && [
        html`<button type="button" aria-label=${t("group.reset_of", { topic: item.topic })} onClick=${() => open({ name: "reset", topic: item.topic })}>${t("topic.do_reset")}</button>`,
        html`<button type="button" aria-label=${t("group.skip_of", { topic: item.topic })} onClick=${() => open({ name: "reset", topic: item.topic, to: "latest" })}>${t("topic.skip")}</button>`,
      ]}</span>` },
  ];
  const client = (queue) => {
    const id = owners.get(`${queue.topic}/${queue.broker_name}/${queue.queue_id}`);
    return id ? html`<${ClientLink} group=${group.group} id=${id} />` : "–";
  };
  return [
    html`<${ArrayTable} label=${t("group.progress")} columns=${columns} rows=${group.topics} rowKey=${(item) => item.topic} prefix="p_" empty=${html`<${Empty} title=${t("group.no_offsets")} />`} />`,
    shown && html`<${Card} flush title=${t("group.queues_of", { topic: shown.topic })}><${QueueLags} queues=${shown.queues} clientOf=${client} /><//>`,
  ];
}

function ClientLink({ group, id }) {
  return html`<a href=${pathOf("groups", group, "clients", id)}>${id}</a>`;
}

function Members({ group, reports }) {
  const reportOf = (member) => reports.data?.members.find((item) => item.client_id === member.client_id);
  const columns = [
    { id: "client_id", label: t("group.client"), main: true, render: (member) => html`<${ClientLink} group=${group.group} id=${member.client_id} />` },
    { id: "address", label: t("group.address"), render: (member) => html`<code>${member.address}</code>` },
    { id: "language", label: t("group.language") },
    { id: "version", label: t("groups.version") },
    { id: "queues", label: t("topic.queues"), number: true, sortable: false, render: (member) => number(reportOf(member)?.queues.length) },
    { id: "subscriptions", label: t("group.subscriptions"), sortable: false, wrap: true, render: (member) => html`<${MemberSubscriptions} report=${reportOf(member)} />` },
  ];
  return html`<${ArrayTable} label=${t("groups.members")} columns=${columns} rows=${group.members} rowKey=${(member) => `${member.client_id} ${member.address}`} prefix="m_" empty=${html`<${Empty} title=${t("group.no_members")} />`} />`;
}

function MemberSubscriptions({ report }) {
  if (!report) return "–";
  if (report.problem) return html`<${Badge} kind="warn">${report.problem}<//>`;
  return report.subscriptions.map((item) => `${item.topic} [${item.subString}]`).join(", ");
}

/** @param {{rows: any[], prefix?: string}} props */
export function Subscriptions({ rows, prefix = "b_" }) {
  const columns = [
    { id: "topic", label: t("topics.topic"), main: true, render: (item) => html`<${TopicLink} topic=${item.topic} />` },
    { id: "expressionType", label: t("group.expression_type") },
    { id: "subString", label: t("group.expression"), wrap: true, render: (item) => html`<code>${item.subString}</code>` },
    { id: "tagsSet", label: t("group.tags"), sortable: false, wrap: true, render: (item) => item.tagsSet.join(", ") || "–" },
    { id: "subVersion", label: t("group.since"), render: (item) => html`<${Time} ms=${item.subVersion} />` },
  ];
  return html`<${ArrayTable} label=${t("group.subscriptions")} columns=${columns} rows=${rows} rowKey=${(item) => item.topic} prefix=${prefix} empty=${html`<${Empty} title=${t("group.no_members")} />`} />`;
}

function Settings({ group }) {
  const shown = (value) => (typeof value === "boolean" ? t(value ? "common.yes" : "common.no") : number(value));
  const columns = [
    { id: "name", label: t("group.setting"), main: true, sortable: false, render: (name) => t(`group.${snake(name)}`) },
    ...group.brokers.map((broker) => ({ id: broker.broker_name, label: html`<${BrokerLink} name=${broker.broker_name} />`, sortable: false, render: (name) => {
      const content = shown(broker.config[name]);
      return group.differing.includes(name) ? html`<${Badge} kind="warn">${content}<//>` : content;
    } })),
  ];
  return [
    group.brokers.length === 0 && html`<${Note} kind="warn">${t("group.no_settings")}<//>`,
    group.differing.length > 0 && html`<${Note} kind="warn">${t("topic.differs_hint", { settings: group.differing.join(", ") })}<//>`,
    group.brokers.length > 0 && html`<${ArrayTable} label=${t("topic.settings")} columns=${columns} rows=${SETTINGS} rowKey=${(name) => name} prefix="s_" />`,
  ];
}

const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
