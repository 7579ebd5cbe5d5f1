/** Access: users and permissions of the cluster, if it has them. */
import { html } from "../lib/html.js";
import { useRead } from "../lib/api.js";
import { Commands } from "../lib/command.js";
import { t } from "../lib/i18n.js";
import { Badge, Empty, Loaded, PageHead, Problems } from "../lib/states.js";
import { ArrayTable } from "../lib/table_data.js";
import { Tabs } from "../lib/tabs.js";

export default function AccessPage() {
  const read = useRead("/access");
  return html`
    <${PageHead} title=${t("access.title")} subtitle=${t("access.subtitle")}><${Commands} commands=${read.data?.access.is_supported ? read.data.commands : []} /><//>
    <${Loaded} read=${read}>${({ access }) => html`
      <${Problems} problems=${access.problems} />
      ${access.is_supported ? html`<${Tabs} label=${t("access.title")} tabs=${[
        { id: "users", label: t("access.users"), count: access.users.length, render: () => html`<${Users} users=${access.users} />` },
        { id: "rules", label: t("access.rules"), count: access.rules.length, render: () => html`<${Rules} rules=${access.rules} />` },
      ]} />` : html`<${Empty} title=${t("access.none")}><p>${t("access.none_about")}</p><//>`}`}<//>`;
}

function Users({ users }) {
  const columns = [
    { id: "username", label: t("access.user"), main: true },
    { id: "user_type", label: t("access.type") },
    { id: "user_status", label: t("access.status"), render: (user) => html`<${Badge} kind=${user.user_status === "enable" ? "good" : "warn"}>${user.user_status}<//>` },
    { id: "brokers", label: t("access.brokers"), value: (user) => user.brokers.join(", "), render: (user) => user.brokers.join(", ") },
  ];
  return html`<${ArrayTable} fill searchable label=${t("access.users")} rows=${users} rowKey=${(user) => `${user.username} ${user.brokers}`} columns=${columns} />`;
}

function Rules({ rules }) {
  const joined = (name) => ({ value: (rule) => rule[name].join(", "), render: (rule) => rule[name].join(", ") });
  const columns = [
    { id: "subject", label: t("access.subject"), main: true },
    { id: "resource", label: t("access.resource") },
    { id: "actions", label: t("access.actions"), ...joined("actions") },
    { id: "decision", label: t("access.decision"), render: (rule) => html`<${Badge} kind=${rule.decision.toLowerCase() === "allow" ? "good" : "bad"}>${rule.decision}<//>` },
    { id: "source_ips", label: t("access.addresses"), ...joined("source_ips") },
    { id: "policy_type", label: t("access.policy") },
    { id: "brokers", label: t("access.brokers"), ...joined("brokers") },
  ];
  return html`<${ArrayTable} fill searchable prefix="r_" label=${t("access.rules")} rows=${rules} rowKey=${(rule) => `${rule.subject} ${rule.resource} ${rule.policy_type} ${rule.brokers}`} columns=${columns} />`;
}
