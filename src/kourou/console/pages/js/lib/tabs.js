/** Tabs whose choice is in the URL: each tab is a link. */
import { html } from "./html.js";
import { useQuery } from "./router.js";

/**
 * @param {{tabs: {id: string, label: string, count?: any, render: () => any}[], param?: string, label: string}} props
 *   the first tab is the default; label: what the tabs choose, for screen readers
 */
export function Tabs({ tabs, param = "tab", label }) {
  const [query, , link] = useQuery({ [param]: tabs[0].id });
  const chosen = tabs.find((tab) => tab.id === query[param]) ?? tabs[0];
  return html`<nav class="tabs" aria-label=${label}>
      ${tabs.map((tab) => html`<a key=${tab.id} href=${link({ [param]: tab.id })} aria-current=${tab === chosen ? "page" : undefined}>${tab.label}${tab.count !== undefined && html`<span class="count">${tab.count}</span>`}</a>`)}
    </nav>
    <div class="tab-panel" key=${chosen.id}>${chosen.render()}</div>`;
}
