/** Forms: fields as data, each with its label, hint and message. */
import { classes, html, useId } from "./html.js";
import { t } from "./i18n.js";

/**
 * @typedef {object} FieldDefinition
 * @property {string} name as in the request
 * @property {string} label
 * @property {"text"|"password"|"integer"|"select"|"checkbox"|"choices"|"textarea"|"datetime"|"custom"} [type] default text
 *   integer: a number, or a BigInt beyond 2^53; choices: a list, by check boxes; datetime: milliseconds since the epoch
 * @property {boolean} [required]
 * @property {string} [hint]
 * @property {string} [placeholder]
 * @property {string} [autoComplete] for browsers: `new-password` for one that is not the user's own
 * @property {[string, string][]} [options] value and text, of select and choices
 * @property {number} [min]
 * @property {number} [max]
 * @property {number} [rows] of a textarea
 * @property {(value: any, values: any) => string|null} [check] a message if the value is wrong
 * @property {(values: any) => boolean} [when] whether the field takes part at all
 * @property {(props: {value: any, onChange: (value: any) => void, values: any}) => any} [render] of a custom field
 */

/**
 * The fields that take part with these values.
 * @param {FieldDefinition[]} fields
 * @param {Record<string, any>} values
 * @returns {FieldDefinition[]}
 */
export function activeFields(fields, values) {
  return fields.filter((field) => !field.when || field.when(values));
}

/**
 * Messages by field name; no entry: the value is right.
 * @param {FieldDefinition[]} fields
 * @param {Record<string, any>} values
 * @returns {Record<string, string>}
 */
export function checkFields(fields, values) {
  const messages = {};
  for (const field of activeFields(fields, values)) {
    const message = checkField(field, values[field.name], values);
    if (message) messages[field.name] = message;
  }
  return messages;
}

function checkField(field, value, values) {
  const isEmpty = value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length);
  if (isEmpty) return field.required ? t("form.required") : null;
  if (field.type === "integer") {
    if (typeof value === "string") return t("form.not_an_integer", { value });
    if (field.min !== undefined && value < field.min) return t("form.at_least", { value: field.min });
    if (field.max !== undefined && value > field.max) return t("form.at_most", { value: field.max });
  }
  return field.check?.(value, values) ?? null;
}

/**
 * The values a form starts with: a select without one has its first option.
 * @param {FieldDefinition[]} fields
 * @param {Record<string, any>} given
 * @returns {Record<string, any>}
 */
export function initialValues(fields, given) {
  const first = fields.filter((field) => field.type === "select" && field.options.length).map((field) => [field.name, field.options[0][0]]);
  return { ...Object.fromEntries(first), ...given };
}

/**
 * The values of the fields that take part: what a request carries.
 * @param {FieldDefinition[]} fields
 * @param {Record<string, any>} values
 * @returns {Record<string, any>}
 */
export function formValues(fields, values) {
  return Object.fromEntries(activeFields(fields, values).map((field) => [field.name, values[field.name] ?? null]));
}

/**
 * An integer as number or BigInt; the text itself if it is none; null if it is empty.
 * @param {string} text
 * @returns {number|bigint|string|null}
 */
export function parseInteger(text) {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  if (!/^-?\d+$/.test(trimmed)) return text;
  const value = Number(trimmed);
  return Number.isSafeInteger(value) ? value : BigInt(trimmed);
}

/**
 * @param {object} props
 * @param {FieldDefinition[]} props.fields
 * @param {Record<string, any>} props.values
 * @param {(values: Record<string, any>) => void} props.onChange
 * @param {Record<string, string>} [props.messages]
 */
export function Fields({ fields, values, onChange, messages = {} }) {
  return html`<div class="fields">
    ${activeFields(fields, values).map((field) => html`<${Field} key=${field.name} field=${field} value=${values[field.name]} values=${values}
      onChange=${(value) => onChange({ ...values, [field.name]: value })} message=${messages[field.name]} />`)}
  </div>`;
}

/**
 * @param {{field: FieldDefinition, value: any, values?: any, onChange: (value: any) => void, message?: string}} props
 */
export function Field({ field, value, values = {}, onChange, message }) {
  const id = useId("field");
  const described = [field.hint && `${id}-hint`, message && `${id}-message`].filter(Boolean).join(" ") || undefined;
  const shared = { id, name: field.name, "aria-describedby": described, "aria-invalid": message ? "true" : undefined, required: field.required };
  const notes = [
    field.hint && html`<p class="field-hint" id=${`${id}-hint`}>${field.hint}</p>`,
    message && html`<p class="field-message" id=${`${id}-message`}>${message}</p>`,
  ];
  const className = classes("field", message && "is-wrong");
  if (field.type === "checkbox") {
    return html`<div class=${className}><label class="check"><input ...${shared} type="checkbox" checked=${Boolean(value)} onChange=${(event) => onChange(event.target.checked)} />${field.label}</label>${notes}</div>`;
  }
  if (field.type === "choices") {
    return html`<fieldset class=${className}><legend>${field.label}${field.required && html`<${Required} />`}</legend>
      <div class="choices">${field.options.map(([option, text]) => html`<label class="check" key=${option}><input type="checkbox" name=${field.name} checked=${value?.includes(option)}
        onChange=${(event) => onChange(event.target.checked ? [...(value ?? []), option] : value.filter((item) => item !== option))} />${text}</label>`)}</div>${notes}</fieldset>`;
  }
  return html`<div class=${className}><label for=${id}>${field.label}${field.required && html`<${Required} />`}</label>${control(field, shared, value, onChange, values)}${notes}</div>`;
}

function Required() {
  return html`<span class="required" title=${t("form.required_mark")} aria-hidden="true">*</span>`;
}

function control(field, shared, value, onChange, values) {
  const typed = (event) => onChange(event.target.value);
  switch (field.type) {
    case "select":
      return html`<select ...${shared} value=${value ?? ""} onChange=${typed}>${field.options.map(([option, text]) => html`<option key=${option} value=${option} selected=${option === value}>${text}</option>`)}</select>`;
    case "textarea":
      return html`<textarea ...${shared} rows=${field.rows ?? 6} placeholder=${field.placeholder} spellCheck=${false} value=${value ?? ""} onInput=${typed}></textarea>`;
    case "integer":
      return html`<input ...${shared} type="text" inputMode="numeric" placeholder=${field.placeholder} value=${value === null || value === undefined ? "" : String(value)} onInput=${(event) => onChange(parseInteger(event.target.value))} />`;
    case "datetime":
      return html`<input ...${shared} type="datetime-local" step="1" value=${toLocalInput(value)} onInput=${(event) => onChange(fromLocalInput(event.target.value))} />`;
    case "custom":
      return field.render({ value, onChange, values });
    default:
      return html`<input ...${shared} type=${field.type ?? "text"} placeholder=${field.placeholder} autoComplete=${field.autoComplete ?? (field.type === "password" ? "current-password" : "off")} spellCheck=${false} value=${value ?? ""} onInput=${typed} />`;
  }
}

/**
 * Milliseconds as the value of a datetime-local input, in the browser's zone.
 * @param {number|null|undefined} ms
 * @returns {string}
 */
export function toLocalInput(ms) {
  if (ms === null || ms === undefined) return "";
  const date = new Date(Number(ms));
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/**
 * @param {string} text
 * @returns {number|null}
 */
export function fromLocalInput(text) {
  const ms = text ? new Date(text).getTime() : NaN;
  return Number.isNaN(ms) ? null : ms;
}
