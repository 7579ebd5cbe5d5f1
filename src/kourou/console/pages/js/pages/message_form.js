/** The form above a list of messages, and its fields; shared by pages of messages. */
import { html, useEffect, useState } from "../lib/html.js";
import { t } from "../lib/i18n.js";
import { NamePicker } from "../lib/picker.js";

/** For TimeRange: messages of any age can be looked at. */
export const RANGE_CHOICES = ["all", "5m", "15m", "1h", "3h", "12h", "24h", "3d", "7d"];

/**
 * A form above results: fields are committed to the URL together.
 * @param {{children: any, onSubmit: () => void, button: string}} props
 */
export function QueryForm({ children, onSubmit, button }) {
  const submit = (event) => {
    event.preventDefault();
    onSubmit();
  };
  return html`<form class="card query-form" role="search" onSubmit=${submit}>${children}<button type="submit" class="is-primary">${button}</button></form>`;
}

/**
 * What is typed into a form, before it is committed to the URL; a link or the back button replaces it.
 * @param {Record<string, string>} query
 */
export function useDraft(query) {
  const [draft, setDraft] = useState(query);
  useEffect(() => setDraft(query), [JSON.stringify(query)]);
  return [draft, setDraft];
}

/** The topic field of a form. @param {{value: string, onChange: (value: string) => void}} props */
export function TopicField({ value, onChange }) {
  return html`<${NamePicker} label=${t("messages.topic")} value=${value} onChange=${onChange} path="/topics" nameOf=${(row) => row.topic} required />`;
}

/** A short text field with its label above. */
export function TextField({ label, value, onChange, type = "text", hint, ...rest }) {
  return html`<label class="stacked" title=${hint}>${label}<input type=${type} value=${value} autoComplete="off" spellCheck=${false} onInput=${(event) => onChange(event.target.value)} ...${rest} /></label>`;
}
