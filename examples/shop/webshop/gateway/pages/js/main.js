/** The shop's pages: the frame and the page of the present path. The parts are those of Kourou's console. */
import { classes, html, render, useEffect, useErrorBoundary, useRef, useState } from "/static/js/lib/html.js";
import { setLanguage } from "/static/js/lib/i18n.js";
import { Icon } from "/static/js/lib/icons.js";
import { matchPath, startRouter, useLocation } from "/static/js/lib/router.js";
import { ErrorBox, PageHead } from "/static/js/lib/states.js";
import { nextTheme, useTheme } from "/static/js/lib/theme.js";
import { Toasts } from "/static/js/lib/toast.js";
import { useLive } from "/static/js/lib/api.js";
import { ComparePage } from "./compare.js";
import { FiguresPage } from "./figures.js";
import { GoodsPage } from "./goods.js";
import { OperatorPage } from "./operator.js";
import { OrderPage } from "./order.js";
import { OrdersPage } from "./orders.js";
import { Loaded, Trouble, isUnreachable } from "./trouble.js";

const ALIVE_S = 2;

const MENU = [
  { section: "Buyer", items: [
    { path: "/", label: "Goods", icon: "overview" },
    { path: "/orders", label: "My orders", icon: "audit" },
  ] },
  { section: "Behind the counter", items: [
    { path: "/operator", label: "Operator", icon: "doctor" },
    { path: "/compare", label: "Two ways", icon: "producers" },
    { path: "/figures", label: "Figures", icon: "pipelines" },
  ] },
];

const ROUTES = [
  { pattern: "/", page: GoodsPage, menu: "/", title: "Goods" },
  { pattern: "/orders", page: OrdersPage, menu: "/orders", title: "My orders" },
  { pattern: "/orders/{id}", page: OrderPage, menu: "/orders", title: "Order" },
  { pattern: "/operator", page: OperatorPage, menu: "/operator", title: "Operator" },
  { pattern: "/compare", page: ComparePage, menu: "/compare", title: "Two ways" },
  { pattern: "/figures", page: FiguresPage, menu: "/figures", title: "Figures" },
];

function routeOf(path) {
  for (const route of ROUTES) {
    const params = matchPath(route.pattern, path);
    if (params) return { ...route, params };
  }
  return null;
}

function App() {
  const { path } = useLocation();
  const [isMenuOpen, openMenu] = useState(false);
  const main = useRef(null);
  const shownPath = useRef(path);
  const shop = useLive("/shop", ALIVE_S);
  const route = routeOf(path);
  useEffect(() => {
    document.title = `${route?.title ?? "There is no such page"} · Shop`;
    openMenu(false);
    // Not at the first page: the focus then belongs to the browser.
    if (shownPath.current !== path) main.current?.focus({ preventScroll: true });
    shownPath.current = path;
  }, [path]);

  return html`<div class=${classes("frame", isMenuOpen && "is-menu-open")}>
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the page</a>
    <${Header} shop=${shop.data} isMenuOpen=${isMenuOpen} onMenu=${() => openMenu(!isMenuOpen)} />
    <nav class="menu" id="menu" aria-label="Pages">
      ${MENU.map(({ section, items }) => html`<div class="menu-section" key=${section}>
        <h2>${section}</h2>
        <ul>${items.map((item) => html`<li key=${item.path}><a href=${item.path} aria-current=${route?.menu === item.path ? "page" : undefined}><${Icon} name=${item.icon} />${item.label}</a></li>`)}</ul>
      </div>`)}
      <p class="menu-foot muted">A sample of Kourou${shop.data ? ` ${shop.data.version}` : ""}</p>
    </nav>
    <main id="main" ref=${main} tabIndex="-1">
      ${isUnreachable(shop.error) && html`<${Trouble} error=${shop.error} />`}
      ${route
        ? html`<${Loaded} read=${shop}>${(data) => html`<${Page} key=${path} route=${route} shop=${data} />`}<//>`
        : html`<${PageHead} title="There is no such page" subtitle=${html`<a href="/">To the goods</a>`} />`}
    </main>
    <${Toasts} />
  </div>`;
}

function Header({ shop, isMenuOpen, onMenu }) {
  const { choice } = useTheme();
  const themeLabel = `Theme: ${choice === "auto" ? "automatic" : choice}`;
  return html`<header class="top">
    <button type="button" class="icon-button menu-button" aria-label="Pages" aria-expanded=${String(isMenuOpen)} aria-controls="menu" onClick=${onMenu}><${Icon} name="menu" /></button>
    <a class="brand" href="/"><img src="/static/favicon.svg" alt="" width="26" height="26" />Shop</a>
    <span class="grow"></span>
    ${shop?.console && html`<a class="button is-quiet" href=${shop.console} target="_blank" rel="noopener"><${Icon} name="brokers" /><span class="wide-only">Console</span></a>`}
    <button type="button" class="icon-button" title=${themeLabel} aria-label=${themeLabel} onClick=${nextTheme}><${Icon} name=${choice === "auto" ? "auto" : choice === "dark" ? "moon" : "sun"} /></button>
  </header>`;
}

function Page({ route, shop }) {
  const [error, reset] = useErrorBoundary((problem) => console.error(problem));
  if (error) return html`<${ErrorBox} error=${{ message: "This page failed.", hint: String(error.message ?? error) }} onRetry=${reset} />`;
  return html`<${route.page} params=${route.params} shop=${shop} />`;
}

startRouter();
// The shop's own texts are English, so those of the console's parts are too.
await setLanguage("en");
render(html`<${App} />`, document.getElementById("app"));
