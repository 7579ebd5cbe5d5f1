/** Dialogs that create, change, copy and delete topics. */
import { html } from "../lib/html.js";
import { useRead } from "../lib/api.js";
import { ChangeDialog } from "../lib/change.js";
import { Dialog } from "../lib/dialog.js";
import { number } from "../lib/format.js";
import { t, tn } from "../lib/i18n.js";
import { navigate, pathOf } from "../lib/router.js";
import { ErrorBox, Loading, Note } from "../lib/states.js";
import { Table } from "../lib/table.js";
import { kindText, MESSAGE_KINDS, permText } from "./topic_parts.js";

const PERMISSIONS = [["6", "RW"], ["4", "R"], ["2", "W"], ["0", "-"]];
/** As mqadmin updateTopic. */
const DEFAULT_QUEUES = 8;

/**
 * The masters of the cluster, as options of a field.
 * @returns {{options: [string, string][]|null, error: any, reload: () => void}}
 */
export function useMasters() {
  const read = useRead("/brokers", { limit: 1000 });
  const masters = read.data?.items.filter((broker) => broker.role === "master");
  const clusters = new Set(masters?.map((broker) => broker.cluster));
  const name = (broker) => (clusters.size > 1 ? `${broker.broker_name} (${broker.cluster})` : broker.broker_name);
  return { options: masters?.map((broker) => [broker.broker_name, name(broker)]) ?? null, error: read.error, reload: read.reload };
}

/** Shows a dialog once the brokers are known. @param {{title: string, onClose: () => void, children: (masters: [string, string][]) => any}} props */
export function WithMasters({ title, onClose, children }) {
  const { options, error, reload } = useMasters();
  if (options) return children(options);
  return html`<${Dialog} title=${title} onClose=${onClose}>${error ? html`<${ErrorBox} error=${error} onRetry=${reload} />` : html`<${Loading} />`}<//>`;
}

function settingFields({ required = false } = {}) {
  return [
    { name: "write_queues", label: t("topic.write_queues"), type: "integer", required, min: 1, max: 65535, hint: t("topic.per_broker") },
    { name: "read_queues", label: t("topic.read_queues"), type: "integer", required, min: 1, max: 65535 },
    { name: "perm", label: t("topics.perm"), type: "select", options: PERMISSIONS.map(([value, letters]) => [value, permText(letters)]) },
    { name: "kind", label: t("topic.message_kind"), type: "select", hint: t("topic.message_kind_hint"), options: MESSAGE_KINDS.map((kind) => [kind, kindText(kind)]) },
    { name: "order", label: t("topic.order"), type: "checkbox", hint: t("topic.order_hint") },
  ];
}

export const brokersField = (masters, hint) => ({ name: "brokers", label: t("topics.brokers"), type: "choices", options: masters, hint });

function bodyOf(values) {
  return { ...values, perm: Number(values.perm), order: Boolean(values.order), brokers: values.brokers ?? [] };
}

/** @param {{onClose: () => void, onDone: () => void}} props */
export function CreateTopic({ onClose, onDone }) {
  return html`<${WithMasters} title=${t("topics.create")} onClose=${onClose}>${(masters) => html`<${ChangeDialog} title=${t("topics.create")} onClose=${onClose} onDone=${onDone}
    fields=${[{ name: "topic", label: t("topics.topic"), required: true }, brokersField(masters, t("topic.all_brokers_hint")), ...settingFields({ required: true })]}
    initial=${{ write_queues: DEFAULT_QUEUES, read_queues: DEFAULT_QUEUES, perm: "6", kind: "NORMAL", order: false, brokers: [] }}
    request=${(values) => ({ method: "POST", path: "/topics", body: bodyOf(values) })} confirm=${t("topics.create")} />`}<//>`;
}

/** Settings that are not the same on all brokers start empty, and stay as they are. @param {{topic: any, onClose: () => void, onDone: () => void}} props */
export function ChangeTopic({ topic, onClose, onDone }) {
  const configs = topic.brokers.map((broker) => broker.config);
  const common = (value) => (configs.every((config) => value(config) === value(configs[0])) ? value(configs[0]) : null);
  const kinds = topic.brokers.map((broker) => broker.kind);
  const perm = common((config) => config.perm);
  const initial = {
    brokers: [],
    write_queues: common((config) => config.writeQueueNums),
    read_queues: common((config) => config.readQueueNums),
    perm: perm === null ? "" : String(perm),
    kind: kinds.every((kind) => kind === kinds[0]) ? kinds[0] : "",
    order: Boolean(configs[0].order),
  };
  const fields = settingFields().map((field) => (field.type === "select" && initial[field.name] === "" ? { ...field, options: [["", t("topic.keep")], ...field.options] } : field));
  const options = topic.brokers.map((broker) => [broker.broker_name, broker.broker_name]);
  return html`<${ChangeDialog} title=${t("topic.change_title", { topic: topic.topic })} onClose=${onClose} onDone=${onDone}
    fields=${[...(options.length > 1 ? [brokersField(options, t("topic.its_brokers_hint"))] : []), ...fields]} initial=${initial}
    intro=${topic.differing.length > 0 && html`<${Note} kind="warn">${t("topic.differs_hint", { settings: topic.differing.join(", ") })}<//>`}
    request=${(values) => ({ method: "PUT", path: pathOf("topics", topic.topic), body: { ...bodyOf(values), perm: values.perm ? Number(values.perm) : null, kind: values.kind || null } })} />`;
}

/** @param {{topic: any, onClose: () => void}} props */
export function CopyTopic({ topic, onClose }) {
  const title = t("topic.copy_title", { topic: topic.topic });
  return html`<${WithMasters} title=${title} onClose=${onClose}>${(masters) => html`<${ChangeDialog} title=${title} onClose=${onClose}
    fields=${[
      { name: "topic", label: t("topic.copy_to"), required: true, hint: t("topic.copy_hint") },
      { name: "source", label: t("topic.copy_from"), type: "select", options: topic.brokers.map((broker) => [broker.broker_name, broker.broker_name]) },
      brokersField(masters, t("topic.all_brokers_hint")),
    ]}
    initial=${{ topic: "", source: topic.brokers[0]?.broker_name, brokers: [] }} onDone=${() => undefined}
    request=${(values) => ({ method: "POST", path: `${pathOf("topics", topic.topic)}/copies`, body: { ...values, brokers: values.brokers ?? [] } })} />`}<//>`;
}

/** @param {{topic: any, onClose: () => void}} props */
export function DeleteTopic({ topic, onClose }) {
  const fields = topic.clusters.length > 1 ? [{ name: "clusters", label: t("topic.clusters"), type: "choices", options: topic.clusters.map((name) => [name, name]), hint: t("topic.all_clusters_hint") }] : [];
  return html`<${ChangeDialog} dangerous title=${t("topic.delete_title", { topic: topic.topic })} onClose=${onClose} onDone=${() => navigate("/topics")} confirm=${t("topic.do_delete")}
    fields=${fields} initial=${{ clusters: [] }} details=${(details) => html`<${Deleted} details=${details} />`}
    request=${(values) => ({ method: "DELETE", path: pathOf("topics", topic.topic), body: { clusters: values.clusters ?? [] } })} />`;
}

function Deleted({ details }) {
  const columns = [
    { id: "group", label: t("topics.group"), main: true },
    { id: "members", label: t("topic.members_online"), number: true, render: (row) => number(row.members) },
    { id: "lag", label: t("topics.lag"), number: true, render: (row) => number(row.lag) },
  ].map((column) => ({ ...column, sortable: false }));
  return html`
    <p>${details.messages === null ? t("topic.messages_unknown") : tn("topic.messages_deleted", details.messages)}</p>
    ${details.groups.length > 0 && html`<div class="table-box"><${Table} label=${t("topic.users")} columns=${columns} rows=${details.groups} rowKey=${(row) => row.group} /></div>`}`;
}
