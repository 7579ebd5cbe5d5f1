/** Kinds and permissions of topics in words, and links to topics, groups and brokers. */
import { html } from "../lib/html.js";
import { t } from "../lib/i18n.js";
import { pathOf } from "../lib/router.js";
import { Badge } from "../lib/states.js";

/** The kinds of topics of applications; the others belong to groups and brokers. */
export const MESSAGE_KINDS = ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "UNSPECIFIED"];
const KIND_COLOURS = { FIFO: "info", DELAY: "info", TRANSACTION: "info", PRIORITY: "info", RETRY: "warn", DLQ: "bad" };

/** @param {{kind: string}} props */
export function KindBadge({ kind }) {
  return html`<${Badge} kind=${KIND_COLOURS[kind] ?? "plain"}>${kindText(kind)}<//>`;
}

/** A kind of topic or group in the user's language. */
export function kindText(kind) {
  return t(`topics.kind_${kind}`);
}

/** `RW`, `R`, `W`, `-`, or several of them with slashes, in words. */
export function permText(perm) {
  return perm.split("/").map((letters) => t(`topics.perm_${letters === "-" ? "none" : letters}`)).join(" / ");
}

/** @param {{topic: string}} props */
export function TopicLink({ topic }) {
  return html`<a href=${pathOf("topics", topic)}>${topic}</a>`;
}

/** @param {{group: string}} props */
export function GroupLink({ group }) {
  return html`<a href=${pathOf("groups", group)}>${group}</a>`;
}

/** The master of a broker. @param {{name: string}} props */
export function BrokerLink({ name }) {
  return html`<a href=${pathOf("brokers", name, 0)}>${name}</a>`;
}
