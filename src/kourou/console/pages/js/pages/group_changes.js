/** Dialogs that create, change and delete consumer groups. */
import { html } from "../lib/html.js";
import { ChangeDialog } from "../lib/change.js";
import { number } from "../lib/format.js";
import { t, tn } from "../lib/i18n.js";
import { formatJson, parseJson } from "../lib/json.js";
import { navigate, pathOf } from "../lib/router.js";
import { Note } from "../lib/states.js";
import { Table } from "../lib/table.js";
import { brokersField, WithMasters } from "./topic_changes.js";

const SWITCHES = ["consume_enable", "consume_message_orderly", "consume_broadcast_enable", "consume_from_min_enable", "notify_consumer_ids_changed_enable"];
const NUMBERS = [["retry_max_times", -1], ["retry_queue_nums", 1], ["broker_id", 0], ["which_broker_when_consume_slowly", 0]];
/** As mqadmin updateSubGroup. */
const DEFAULTS = {
  brokers: [], consume_enable: true, consume_message_orderly: false, consume_broadcast_enable: false, consume_from_min_enable: false, notify_consumer_ids_changed_enable: true,
  retry_max_times: 16, retry_queue_nums: 1, broker_id: 0, which_broker_when_consume_slowly: 1, group_retry_policy: "",
};

function settingFields() {
  return [
    ...SWITCHES.map((name) => ({ name, label: t(`group.${name}`), type: "checkbox" })),
    ...NUMBERS.map(([name, min]) => ({ name, label: t(`group.${name}`), type: "integer", min })),
    { name: "group_retry_policy", label: t("group.retry_policy"), type: "textarea", rows: 2, hint: t("group.retry_policy_hint"), placeholder: '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}', check: checkPolicy },
  ];
}

function checkPolicy(text) {
  try {
    parseJson(text);
    return null;
  } catch {
    return t("group.not_json");
  }
}


function bodyOf(values) {
  const policy = values.group_retry_policy ? parseJson(values.group_retry_policy) : null;
  return { ...values, group_retry_policy: policy, brokers: values.brokers ?? [] };
}

/** @param {{onClose: () => void, onDone: () => void}} props */
export function CreateGroup({ onClose, onDone }) {
  return html`<${WithMasters} title=${t("groups.create")} onClose=${onClose}>${(masters) => html`<${ChangeDialog} title=${t("groups.create")} onClose=${onClose} onDone=${onDone} confirm=${t("groups.create")}
    fields=${[{ name: "group", label: t("topics.group"), required: true }, brokersField(masters, t("topic.all_brokers_hint")), ...settingFields()]} initial=${DEFAULTS}
    request=${(values) => ({ method: "POST", path: "/groups", body: bodyOf(values) })} />`}<//>`;
}

/** Only what differs from the present settings is sent. @param {{group: any, onClose: () => void, onDone: () => void}} props */
export function ChangeGroup({ group, onClose, onDone }) {
  const configs = group.brokers.map((broker) => broker.config);
  const first = valuesOf(configs[0]);
  const others = configs.slice(1).map(valuesOf);
  const initial = Object.fromEntries(Object.entries(first).map(([name, value]) => [name, typeof value === "boolean" || others.every((other) => other[name] === value) ? value : null]));
  const isSame = (name, value) => configs.every((config) => valuesOf(config)[name] === value);
  const request = (values) => {
    const changed = Object.fromEntries(Object.entries(values).filter(([name, value]) => name !== "brokers" && value !== null && value !== "" && !isSame(name, value)));
    return { method: "PUT", path: pathOf("groups", group.group), body: bodyOf({ ...changed, brokers: values.brokers }) };
  };
  const options = group.brokers.map((broker) => [broker.broker_name, broker.broker_name]);
  return html`<${ChangeDialog} title=${t("group.change_title", { group: group.group })} onClose=${onClose} onDone=${onDone} request=${request} initial=${{ ...initial, brokers: [] }}
    intro=${group.differing.length > 0 && html`<${Note} kind="warn">${t("topic.differs_hint", { settings: group.differing.join(", ") })}<//>`}
    fields=${[...(options.length > 1 ? [brokersField(options, t("topic.its_brokers_hint"))] : []), ...settingFields()]} />`;
}

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

function valuesOf(config) {
  const names = [...SWITCHES, ...NUMBERS.map(([name]) => name)];
  return { ...Object.fromEntries(names.map((name) => [name, config[camel(name)]])), group_retry_policy: policyText(config.groupRetryPolicy) };
}

/** Empty for the broker's own delays. */
function policyText(policy) {
  const isOwn = policy && (policy.exponentialRetryPolicy || policy.customizedRetryPolicy);
  return isOwn ? formatJson(policy) : "";
}

/** @param {{group: any, onClose: () => void}} props */
export function DeleteGroup({ group, onClose }) {
  const options = group.brokers.map((broker) => [broker.broker_name, broker.broker_name]);
  const fields = [
    ...(options.length > 1 ? [brokersField(options, t("group.delete_brokers_hint"))] : []),
    { name: "drops_offsets", label: t("group.drops_offsets"), type: "checkbox", hint: t("group.drops_offsets_hint") },
  ];
  return html`<${ChangeDialog} dangerous title=${t("group.delete_title", { group: group.group })} onClose=${onClose} onDone=${() => navigate("/groups")} confirm=${t("topic.do_delete")}
    fields=${fields} initial=${{ brokers: [], drops_offsets: true }} details=${(details) => html`<${Deleted} details=${details} />`}
    request=${(values) => ({ method: "DELETE", path: pathOf("groups", group.group), body: { drops_offsets: Boolean(values.drops_offsets), brokers: values.brokers ?? [] } })} />`;
}

function Deleted({ details }) {
  const columns = [
    { id: "topic", label: t("topics.topic"), main: true },
    { id: "lag", label: t("topics.lag"), number: true, render: (row) => number(row.lag) },
  ].map((column) => ({ ...column, sortable: false }));
  return html`
    ${details.dead_letters > 0 && html`<p>${tn("group.dead_letters_deleted", details.dead_letters)}</p>`}
    ${details.lags.length > 0 && html`<div class="table-box"><${Table} label=${t("group.progress")} columns=${columns} rows=${details.lags} rowKey=${(row) => row.topic} /></div>`}`;
}
