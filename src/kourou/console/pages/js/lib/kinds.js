/** Check boxes that choose kinds of rows; the choice is in the URL, separated by commas. */
import { html } from "./html.js";
import { useQuery } from "./router.js";

/**
 * @param {string[]} standard the kinds that are shown unless others are chosen
 * @param {string} [param] the name in the URL
 * @returns {{chosen: string[], value: string, set: (kinds: string[]) => void}}
 */
export function useKinds(standard, param = "kinds") {
  const [query, setQuery] = useQuery({ [param]: standard.join(",") });
  const value = query[param];
  return { value, chosen: value.split(",").filter(Boolean), set: (kinds) => setQuery({ [param]: kinds.join(","), page: "1" }) };
}

/**
 * @param {object} props
 * @param {ReturnType<typeof useKinds>} props.kinds
 * @param {[string, string][]} props.options kind and text
 * @param {string} props.label what is chosen, for screen readers
 */
export function KindChoice({ kinds, options, label }) {
  const toggle = (kind) => {
    const next = kinds.chosen.includes(kind) ? kinds.chosen.filter((item) => item !== kind) : [...kinds.chosen, kind];
    // None chosen would mean all to the server: the last one stays.
    if (next.length) kinds.set(options.map(([id]) => id).filter((id) => next.includes(id)));
  };
  return html`<div class="choices" role="group" aria-label=${label}>
    ${options.map(([kind, text]) => html`<label class="check" key=${kind}><input type="checkbox" checked=${kinds.chosen.includes(kind)} onChange=${() => toggle(kind)} />${text}</label>`)}
  </div>`;
}
