/** The changes of the access page, as properties of a ChangeDialog. Secrets are sent, and never received. */
import { t } from "../lib/i18n.js";

const ACTIONS = ["Pub", "Sub", "Get", "List", "Create", "Update", "Delete", "All"];
const PERMS = [["", "–"], ["DENY", "DENY"], ["PUB", "PUB"], ["SUB", "SUB"], ["PUB|SUB", "PUB|SUB"]];

const path = (kind, name) => `/access/${kind}/${encodeURIComponent(name)}`;
const same = (words) => words.map((word) => [word, word]);
const perm = (text) => (text === "SUB|PUB" ? "PUB|SUB" : text);
const words = (text) => (text ?? "").split(/[\s,]+/).filter(Boolean);
const lines = (text) => (text ?? "").split(/\s+/).filter(Boolean);

/** Which brokers; a cluster of one broker needs no choice. */
function brokersField(names) {
  return names.length > 1 ? [{ name: "brokers", label: t("access.on_brokers"), type: "choices", options: same(names), hint: t("access.all_brokers_hint") }] : [];
}

const body = (values) => ({ ...values, brokers: values.brokers ?? [] });
const title = (key, name) => `${t(`access.${key}`)}: ${name}`;

/** @param {string[]} names of the brokers */
export function userChanges(names) {
  const type = { name: "user_type", label: t("access.type"), type: "select", options: same(["Normal", "Super"]), hint: t("access.type_hint") };
  return {
    create: {
      title: t("access.create_user"),
      fields: [
        { name: "username", label: t("access.user"), required: true },
        { name: "password", label: t("access.password"), type: "password", autoComplete: "new-password", required: true },
        type, ...brokersField(names),
      ],
      initial: { user_type: "Normal", brokers: [] },
      request: (values) => ({ method: "POST", path: "/access/users", body: body(values) }),
    },
    ofRow: (user) => ({
      change: {
        title: title("change", user.username),
        fields: [
          { name: "password", label: t("access.new_password"), type: "password", autoComplete: "new-password", hint: t("access.stays_if_empty") },
          type,
          { name: "user_status", label: t("access.status"), type: "select", options: same(["enable", "disable"]) },
          ...brokersField(names),
        ],
        initial: { user_type: user.user_type, user_status: user.user_status, brokers: user.brokers },
        request: (values) => ({ method: "PUT", path: path("users", user.username), body: { ...body(values), password: values.password || null } }),
      },
      delete: {
        title: title("delete", user.username),
        dangerous: true,
        request: () => ({ method: "DELETE", path: path("users", user.username), body: { brokers: user.brokers } }),
      },
    }),
  };
}

/** @param {string[]} names of the brokers */
export function ruleChanges(names) {
  const what = [
    { name: "actions", label: t("access.actions"), type: "choices", options: same(ACTIONS), required: true },
    { name: "decision", label: t("access.decision"), type: "select", options: same(["Allow", "Deny"]) },
    { name: "source_ips", label: t("access.addresses"), hint: t("access.addresses_hint") },
  ];
  const put = (values) => ({ method: "PUT", path: "/access/rules", body: { ...body(values), source_ips: words(values.source_ips) } });
  return {
    create: {
      title: t("access.create_rule"),
      fields: [
        { name: "user", label: t("access.user"), required: true },
        { name: "resource", label: t("access.resource"), required: true, placeholder: "Topic:orders", hint: t("access.resource_hint") },
        ...what, ...brokersField(names),
      ],
      initial: { decision: "Allow", actions: [], brokers: [] },
      request: ({ user, ...values }) => put({ ...values, subject: `User:${user}` }),
    },
    ofRow: (rule) => {
      const key = { subject: rule.subject, resource: rule.resource, policy_type: rule.policy_type };
      const name = `${rule.subject} ${rule.resource}`;
      return {
        change: {
          title: title("change", name),
          fields: [...what, ...brokersField(names)],
          initial: { actions: rule.actions, decision: rule.decision, source_ips: rule.source_ips.join(", "), brokers: rule.brokers },
          request: (values) => put({ ...values, ...key }),
        },
        delete: { title: title("delete", name), dangerous: true, request: () => ({ method: "DELETE", path: "/access/rules", body: { ...key, brokers: rule.brokers } }) },
      };
    },
  };
}

/** @param {string[]} names of the brokers */
export function accountChanges(names) {
  const settings = [
    { name: "admin", label: t("access.admin"), type: "checkbox" },
    { name: "default_topic_perm", label: t("access.default_topic_perm"), type: "select", options: PERMS },
    { name: "default_group_perm", label: t("access.default_group_perm"), type: "select", options: PERMS },
    { name: "topic_perms", label: t("access.topic_perms"), type: "textarea", rows: 3, placeholder: "orders=PUB|SUB", hint: t("access.perms_hint") },
    { name: "group_perms", label: t("access.group_perms"), type: "textarea", rows: 3, placeholder: "billing=SUB", hint: t("access.perms_hint") },
    { name: "white_remote_address", label: t("access.white_remote_address"), hint: t("access.white_remote_hint") },
    ...brokersField(names),
  ];
  const given = (values) => ({
    ...body(values),
    admin: Boolean(values.admin),
    topic_perms: lines(values.topic_perms),
    group_perms: lines(values.group_perms),
    white_remote_address: values.white_remote_address ?? "",
  });
  return {
    create: {
      title: t("access.create_account"),
      fields: [
        { name: "access_key", label: t("access.access_key"), required: true, hint: t("access.key_hint") },
        { name: "secret_key", label: t("access.secret_key"), type: "password", autoComplete: "new-password", required: true, hint: t("access.key_hint") },
        ...settings,
      ],
      initial: { default_topic_perm: "DENY", default_group_perm: "DENY", brokers: [] },
      request: (values) => ({ method: "POST", path: "/access/accounts", body: given(values) }),
    },
    ofRow: (account) => ({
      change: {
        title: title("change", account.access_key),
        fields: [{ name: "secret_key", label: t("access.new_secret_key"), type: "password", autoComplete: "new-password", hint: t("access.stays_if_empty") }, ...settings],
        initial: {
          admin: account.is_admin,
          default_topic_perm: perm(account.default_topic_perm),
          default_group_perm: perm(account.default_group_perm),
          topic_perms: account.topic_perms.join("\n"),
          group_perms: account.group_perms.join("\n"),
          white_remote_address: account.white_remote_address,
          brokers: account.brokers,
        },
        request: (values) => ({ method: "PUT", path: path("accounts", account.access_key), body: { ...given(values), secret_key: values.secret_key || null } }),
      },
      delete: {
        title: title("delete", account.access_key),
        dangerous: true,
        request: () => ({ method: "DELETE", path: path("accounts", account.access_key), body: { brokers: account.brokers } }),
      },
    }),
  };
}

/** @param {string[]} names of the brokers @param {{addresses: string[]}[]} lists */
export function whiteListChange(names, lists) {
  return {
    title: t("access.change_white_list"),
    fields: [
      { name: "addresses", label: t("access.white_list"), type: "textarea", rows: 4, placeholder: "10.0.0.7", hint: t("access.white_list_hint") },
      ...brokersField(names),
    ],
    initial: { addresses: lists[0]?.addresses.join("\n") ?? "", brokers: [] },
    request: (values) => ({ method: "PUT", path: "/access/white-list", body: { ...body(values), addresses: lines(values.addresses) } }),
  };
}
