/** Access: users and permissions of RocketMQ 5, accounts and white list of RocketMQ 4. */
import { html, useState } from "../lib/html.js";
import { useRead } from "../lib/api.js";
import { ChangeDialog } from "../lib/change.js";
import { Commands } from "../lib/command.js";
import { t } from "../lib/i18n.js";
import { useCanChange } from "../lib/session.js";
import { Badge, Empty, Loaded, Note, PageHead, Problems } from "../lib/states.js";
import { ArrayTable } from "../lib/table_data.js";
import { Tabs } from "../lib/tabs.js";
import { accountChanges, ruleChanges, userChanges, whiteListChange } from "./access_changes.js";

export default function AccessPage() {
  const read = useRead("/access");
  const canChange = useCanChange();
  const [change, setChange] = useState(null);
  const isThere = read.data?.access.is_supported || read.data?.access.is_plain;
  return html`
    <${PageHead} title=${t("access.title")} subtitle=${t("access.subtitle")}><${Commands} commands=${isThere ? read.data.commands : []} /><//>
    <${Loaded} read=${read}>${({ access }) => html`
      <${Problems} problems=${access.problems} />
      ${isThere ? html`<${Tabs} label=${t("access.title")} tabs=${tabsOf(access, canChange ? setChange : null)} />` : !access.problems.length && html`<${Empty} title=${t("access.none")}><p>${t("access.none_about")}</p><//>`}`}<//>
    ${change && html`<${ChangeDialog} ...${change} onClose=${() => setChange(null)} onDone=${read.reload} />`}`;
}

/** Tabs for what the brokers have. @param {any} access @param {((change: any) => void)|null} onChange */
function tabsOf(access, onChange) {
  const auth = [
    { id: "users", label: t("access.users"), count: access.users.length, render: () => html`<${Users} access=${access} onChange=${onChange} />` },
    { id: "rules", label: t("access.rules"), count: access.rules.length, render: () => html`<${Rules} access=${access} onChange=${onChange} />` },
  ];
  const plain = [
    { id: "accounts", label: t("access.accounts"), count: access.accounts.length, render: () => html`<${Accounts} access=${access} onChange=${onChange} />` },
    { id: "white", label: t("access.white_list"), render: () => html`<${WhiteLists} access=${access} onChange=${onChange} />` },
  ];
  return [...(access.is_supported ? auth : []), ...(access.is_plain ? plain : [])];
}

/** Buttons at the end of a row. */
function actions(onChange, name, changes) {
  if (!onChange) return [];
  const button = (row, id, definition) => html`<button type="button" key=${id} aria-label=${`${t(`access.${id}`)}: ${name(row)}`} onClick=${() => onChange(definition)}>${t(`access.${id}`)}</button> `;
  return [{ id: "do", label: t("access.operations"), sortable: false, render: (row) => Object.entries(changes(row)).map(([id, definition]) => button(row, id, definition)) }];
}

function Add({ onChange, label, definition }) {
  return onChange && html`<p><button type="button" class="is-primary" onClick=${() => onChange(definition)}>${label}</button></p>`;
}

const joined = (name) => ({ value: (row) => row[name].join(", "), render: (row) => row[name].join(", ") });
const brokers = () => ({ id: "brokers", label: t("access.brokers"), ...joined("brokers") });

function Users({ access, onChange }) {
  const changes = userChanges(access.brokers);
  const columns = [
    { id: "username", label: t("access.user"), main: true },
    { id: "user_type", label: t("access.type") },
    { id: "user_status", label: t("access.status"), render: (user) => html`<${Badge} kind=${user.user_status === "enable" ? "good" : "warn"}>${user.user_status}<//>` },
    brokers(),
    ...actions(onChange, (user) => user.username, changes.ofRow),
  ];
  return html`<${Add} onChange=${onChange} label=${t("access.create_user")} definition=${changes.create} />
    <${ArrayTable} fill searchable label=${t("access.users")} rows=${access.users} rowKey=${(user) => `${user.username} ${user.brokers}`} columns=${columns} />`;
}

function Rules({ access, onChange }) {
  const changes = ruleChanges(access.brokers);
  const columns = [
    { id: "subject", label: t("access.subject"), main: true },
    { id: "resource", label: t("access.resource") },
    { id: "actions", label: t("access.actions"), ...joined("actions") },
    { id: "decision", label: t("access.decision"), render: (rule) => html`<${Badge} kind=${rule.decision.toLowerCase() === "allow" ? "good" : "bad"}>${rule.decision}<//>` },
    { id: "source_ips", label: t("access.addresses"), ...joined("source_ips") },
    { id: "policy_type", label: t("access.policy") },
    brokers(),
    ...actions(onChange, (rule) => `${rule.subject} ${rule.resource}`, changes.ofRow),
  ];
  return html`<${Add} onChange=${onChange} label=${t("access.create_rule")} definition=${changes.create} />
    <${ArrayTable} fill searchable prefix="r_" label=${t("access.rules")} rows=${access.rules} rowKey=${(rule) => `${rule.subject} ${rule.resource} ${rule.policy_type} ${rule.brokers}`} columns=${columns} />`;
}

function Accounts({ access, onChange }) {
  const changes = accountChanges(access.plain_brokers);
  const columns = [
    { id: "access_key", label: t("access.access_key"), main: true },
    { id: "is_admin", label: t("access.admin"), render: (account) => (account.is_admin ? t("common.yes") : "") },
    { id: "default_topic_perm", label: t("access.default_topic_perm") },
    { id: "default_group_perm", label: t("access.default_group_perm") },
    { id: "topic_perms", label: t("access.topic_perms"), ...joined("topic_perms") },
    { id: "group_perms", label: t("access.group_perms"), ...joined("group_perms") },
    { id: "white_remote_address", label: t("access.white_remote_address") },
    brokers(),
    ...actions(onChange, (account) => account.access_key, changes.ofRow),
  ];
  return html`<${Add} onChange=${onChange} label=${t("access.create_account")} definition=${changes.create} />
    <${ArrayTable} fill searchable prefix="a_" label=${t("access.accounts")} rows=${access.accounts} rowKey=${(account) => `${account.access_key} ${account.brokers}`} columns=${columns} />`;
}

function WhiteLists({ access, onChange }) {
  const lists = access.white_lists;
  return html`<${Add} onChange=${onChange} label=${t("access.change_white_list")} definition=${whiteListChange(access.plain_brokers, lists)} />
    <${Note} kind=${lists.length ? "warn" : "info"}>${t("access.white_list_about")}
      ${lists.length > 0 && html`<ul>${lists.map((list) => html`<li key=${list.brokers.join()}>${list.brokers.join(", ")}: <code>${list.addresses.join(" ")}</code></li>`)}</ul>`}<//>`;
}
