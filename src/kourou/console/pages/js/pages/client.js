/** One client of a consumer group, as it reports about itself: queues, rates, subscriptions, properties, threads. */
import { html } from "../lib/html.js";
import { useLive } from "../lib/api.js";
import { Commands, CopyButton } from "../lib/command.js";
import { number, rate } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { pathOf, useQuery } from "../lib/router.js";
import { Badge, Card, Facts, Loaded, Note, PageHead, Time } from "../lib/states.js";
import { ArrayTable } from "../lib/table_data.js";
import { Tabs } from "../lib/tabs.js";
import { Subscriptions } from "./group.js";
import { BrokerLink, GroupLink, TopicLink } from "./topic_parts.js";

const STARTED = "PROP_CONSUMER_START_TIMESTAMP";

export default function ClientPage({ params }) {
  const [query, setQuery] = useQuery({ tab: "queues" });
  // Stacks cost the client something: only while their tab is shown, and once.
  const withStacks = query.tab === "threads";
  const read = useLive(pathOf("groups", params.group, "clients", params.client), withStacks ? 0 : 10, { stacks: withStacks });
  return html`
    <${PageHead} title=${params.client} subtitle=${html`${t("client.of_group")} <${GroupLink} group=${params.group} />`} back=${{ href: `${pathOf("groups", params.group)}?tab=members`, label: params.group }}>
      <${Commands} commands=${read.data?.commands} />
    <//>
    <${Loaded} read=${read}>${({ client }) => (client.info === null ? html`<${Note} kind="bad">${client.problem}<//>` : html`
      <${Card}><${Summary} client=${client} /><//>
      <${Tabs} label=${t("client.views")} tabs=${[
        { id: "queues", label: t("topic.queues"), count: client.info.queues.length + client.info.pop_queues.length, render: () => html`<${Queues} info=${client.info} />` },
        { id: "rates", label: t("client.rates"), render: () => html`<${Rates} status=${client.info.status} />` },
        { id: "subscriptions", label: t("group.subscriptions"), count: client.info.subscriptions.length, render: () => html`<${Subscriptions} rows=${client.info.subscriptions} />` },
        { id: "properties", label: t("client.properties"), render: () => html`<${Properties} info=${client.info} />` },
        { id: "threads", label: t("client.threads"), render: () => html`<${Threads} text=${client.info.jstack} reload=${read.reload} />` },
      ]} />`)}<//>`;
}

function Summary({ client }) {
  const { properties } = client.info;
  return html`<${Facts} items=${[
    [t("groups.version"), client.version],
    [t("client.started"), html`<${Time} ms=${Number(properties[STARTED] ?? 0)} />`],
    [t("client.orderly"), t(properties.PROP_CONSUMEORDERLY === "true" ? "common.yes" : "common.no")],
    [t("client.threads_count"), properties.PROP_THREADPOOL_CORE_SIZE],
    [t("client.namesrvs"), properties.PROP_NAMESERVER_ADDR],
  ]} />`;
}

function Queues({ info }) {
  const columns = [
    { id: "topic", label: t("topics.topic"), main: true, value: (row) => row.queue.topic, render: (row) => html`<${TopicLink} topic=${row.queue.topic} />` },
    { id: "broker", label: t("topics.broker"), value: (row) => row.queue.brokerName, render: (row) => html`<${BrokerLink} name=${row.queue.brokerName} />` },
    { id: "queue", label: t("offsets.queue"), number: true, value: (row) => row.queue.queueId, render: (row) => row.queue.queueId },
    ...[["commit", "commitOffset"], ["cached", "cachedMsgCount"], ["cached_size", "cachedMsgSizeInMiB"]].map(([id, name]) => ({ id, label: t(`client.${id}`), number: true, value: (row) => row.info[name], render: (row) => number(row.info[name]) })),
    { id: "pulled", label: t("client.pulled"), value: (row) => row.info.lastPullTimestamp, render: (row) => html`<${Time} ms=${row.info.lastPullTimestamp ?? row.info.lastPopTimestamp} relative />` },
    { id: "consumed", label: t("client.consumed"), value: (row) => row.info.lastConsumeTimestamp, render: (row) => html`<${Time} ms=${row.info.lastConsumeTimestamp} relative />` },
    { id: "state", label: t("client.state"), sortable: false, render: (row) => html`<${State} row=${row} />` },
  ];
  return html`<${ArrayTable} label=${t("topic.queues")} columns=${columns} rows=${[...info.queues, ...info.pop_queues]} rowKey=${(row) => `${row.queue.topic}/${row.queue.brokerName}/${row.queue.queueId}`} prefix="q_" />`;
}

function State({ row }) {
  const { info } = row;
  if (info.waitAckCount !== undefined) return html`<${Badge} kind="info">${t("client.popped", { count: info.waitAckCount < 0 ? "–" : number(info.waitAckCount) })}<//>`;
  if (info.droped) return html`<${Badge} kind="warn">${t("client.dropped")}<//>`;
  return info.locked ? html`<${Badge} kind="good">${t("client.locked")}<//>` : "–";
}

function Rates({ status }) {
  const names = ["pullRT", "pullTPS", "consumeRT", "consumeOKTPS", "consumeFailedTPS", "consumeFailedMsgs"];
  const columns = [
    { id: "topic", label: t("topics.topic"), main: true, render: (row) => html`<${TopicLink} topic=${row.topic} />` },
    ...names.map((id) => ({ id, label: t(`client.${id}`), number: true, render: (row) => rate(Number(row[id])) })),
  ];
  return html`<${ArrayTable} label=${t("client.rates")} columns=${columns} rows=${Object.entries(status).map(([topic, values]) => ({ topic, ...values }))} rowKey=${(row) => row.topic} prefix="r_" />`;
}

function Properties({ info }) {
  const rows = Object.entries({ ...info.properties, ...info.user_consumer_info }).map(([name, value]) => ({ name, value }));
  const columns = [
    { id: "name", label: t("client.property"), main: true },
    { id: "value", label: t("client.value"), wrap: true, render: (row) => html`<code>${row.value}</code>` },
  ];
  return html`<${ArrayTable} searchable label=${t("client.properties")} columns=${columns} rows=${rows} rowKey=${(row) => row.name} prefix="o_" sort=${{ column: "name", order: "asc" }} />`;
}

function Threads({ text, reload }) {
  if (text === null) return html`<${Note}>${t("client.no_threads")}<//>`;
  return html`<p class="buttons"><button type="button" onClick=${reload}>${t("client.read_again")}</button> <${CopyButton} text=${text} label=${t("common.copy")} /></p>
    <pre class="body-content" tabIndex="0" aria-label=${t("client.threads")}>${text}</pre>`;
}
