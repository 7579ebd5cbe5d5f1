/** A text field for a name of the cluster, with suggestions from the server while typing. */
import { html, useEffect, useId, useState } from "./html.js";
import { get } from "./api.js";

const DELAY_MS = 200;
const SUGGESTIONS = 20;

/**
 * @param {object} props
 * @param {string} props.label
 * @param {string} props.value
 * @param {(value: string) => void} props.onChange
 * @param {string} props.path a list of the API, such as `/topics`
 * @param {(row: any) => string} props.nameOf the name in a row of it
 * @param {boolean} [props.required]
 * @param {Record<string, any>} [props.params] further parameters of the list
 */
export function NamePicker({ label, value, onChange, path, nameOf, required = false, params = {} }) {
  const id = useId("names");
  const [names, setNames] = useState([]);
  useEffect(() => {
    const controller = new AbortController();
    const read = () => get(path, { search: value, limit: SUGGESTIONS, ...params }, { signal: controller.signal })
      .then((page) => setNames(page.items.map(nameOf)), () => {}); // without suggestions the field still works
    const timer = setTimeout(read, DELAY_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [value, path]);
  return html`<label class="stacked">${label}
    <input type="text" list=${id} value=${value} required=${required} autoComplete="off" spellCheck=${false} onInput=${(event) => onChange(event.target.value)} />
    <datalist id=${id}>${names.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
  </label>`;
}
