/** The dialog that sends a test message. What was typed last is remembered in this browser. */
import { html, useRef } from "../lib/html.js";
import { prettyJson } from "../lib/bytes.js";
import { ChangeDialog } from "../lib/change.js";
import { number } from "../lib/format.js";
import { t } from "../lib/i18n.js";
import { pathOf } from "../lib/router.js";
import { Facts, Note } from "../lib/states.js";

const STORAGE_KEY = "kourou.sent";
const MAX_STORED = 100_000;
const ENCODINGS = ["text", "json", "hex", "base64"];
/** The levels of brokers that keep the standard setting messageDelayLevel. */
const LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".split(" ");

function lastMessage() {
  try {
    return JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "{}");
  } catch {
    return {};
  }
}

function remember(values) {
  try {
    const text = JSON.stringify(values);
    if (text.length <= MAX_STORED) localStorage.setItem(STORAGE_KEY, text);
  } catch {
    // Storage may be switched off, or full: the next message starts empty.
  }
}

function propertiesOf(text) {
  const lines = (text ?? "").split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf("=");
    return at < 1 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}

function checkProperties(text) {
  const wrong = text.split("\n").find((line) => line.trim() && line.indexOf("=") < 1);
  return wrong === undefined ? null : t("send.bad_property", { line: wrong });
}

/** @param {{topic: string, kind: string, onClose: () => void, onDone?: () => void}} props */
export function SendMessage({ topic, kind, onClose, onDone }) {
  const last = useRef(null);
  const fields = [
    { name: "encoding", label: t("send.encoding"), type: "select", options: ENCODINGS.map((id) => [id, t(`send.encoding_${id}`)]) },
    { name: "body", label: t("send.body"), type: "textarea", rows: 8, check: (value, values) => (values.encoding === "json" && prettyJson(value) === null && !isJson(value) ? t("send.not_json") : null) },
    { name: "tag", label: t("send.tag") },
    { name: "keys", label: t("send.keys"), hint: t("send.keys_hint") },
    { name: "properties", label: t("send.properties"), type: "textarea", rows: 3, hint: t("send.properties_hint"), check: checkProperties },
    ...(kind === "FIFO" ? [{ name: "sharding_key", label: t("send.sharding_key"), hint: t("send.sharding_key_hint") }] : []),
    ...(kind === "TRANSACTION" ? [] : [
      { name: "delay", label: t("send.delay"), type: "select", options: [["", t("send.no_delay")], ["ms", t("send.delay_time")], ["level", t("send.delay_level")]] },
      { name: "delay_s", label: t("send.delay_seconds"), type: "integer", min: 1, required: true, when: (values) => values.delay === "ms" },
      { name: "delay_level", label: t("send.delay_level"), type: "select", options: LEVELS.map((text, index) => [String(index + 1), `${index + 1} · ${text}`]), when: (values) => values.delay === "level" },
    ]),
    { name: "trace", label: t("send.trace"), type: "checkbox" },
  ];
  const request = (values) => {
    last.current = values;
    return {
      method: "POST",
      path: `${pathOf("topics", topic)}/messages`,
      body: {
        body: values.body ?? "",
        encoding: values.encoding,
        tag: values.tag ?? "",
        keys: (values.keys ?? "").split(/\s+/).filter(Boolean),
        properties: propertiesOf(values.properties),
        sharding_key: values.sharding_key ?? "",
        delay_ms: values.delay === "ms" ? values.delay_s * 1000 : 0,
        delay_level: values.delay === "level" ? Number(values.delay_level) : 0,
        trace: Boolean(values.trace),
      },
    };
  };
  const done = () => {
    remember(last.current);
    onDone?.();
  };
  return html`<${ChangeDialog} title=${t("send.title", { topic })} fields=${fields} initial=${{ encoding: "text", delay: "", delay_level: "3", ...lastMessage() }} request=${request}
    onClose=${onClose} onDone=${done} confirm=${t("send.confirm")} result=${(answer) => answer.result && html`<${Sent} topic=${topic} sent=${answer.result} isDelayed=${Boolean(last.current?.delay)} />`} />`;
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function Sent({ topic, sent, isDelayed }) {
  return html`
    ${sent.status === "SEND_OK" && html`<${Note} kind="good">${t("send.stored")}<//>`}
    <${Facts} items=${[
      [t("send.message_id"), html`<a href=${pathOf("messages", topic, sent.msg_id)}><code>${sent.msg_id}</code></a>`],
      [t("send.status"), sent.status],
      ...(isDelayed ? [] : [[t("topics.broker"), sent.broker_name], [t("offsets.queue"), sent.queue_id], [t("send.offset"), number(sent.queue_offset)]]),
    ]} />`;
}
