/** The console: the session, the frame, and the page of the present path, loaded when it is first shown. */
import { classes, html, render, useEffect, useErrorBoundary, useRef, useState } from "./lib/html.js";
import { get } from "./lib/api.js";
import { startLanguage, t, useLanguage } from "./lib/i18n.js";
import { ShortcutHelp, startKeys, useShortcuts } from "./lib/keys.js";
import { matchPath, navigate, startRouter, useLocation } from "./lib/router.js";
import { setSession, useSession } from "./lib/session.js";
import { ErrorBox, Loading, PageHead } from "./lib/states.js";
import { Toasts } from "./lib/toast.js";
import { Header, isOffered, Menu } from "./frame.js";
import { MENU, ROUTES } from "./menu.js";

const RETRY_MS = 5000;

function routeOf(path) {
  for (const route of ROUTES) {
    const params = matchPath(route.pattern, path);
    if (params) return { ...route, params };
  }
  return null;
}

function App() {
  const { path } = useLocation();
  const language = useLanguage();
  const session = useSession();
  const [startError, setStartError] = useState(null);
  const start = (answer = get("/session")) => {
    setStartError(null);
    answer.then(setSession, setStartError);
  };
  useEffect(() => start(firstSession), []);
  // The session has the cluster's name: without a cluster at first, it is read again until there is one.
  useEffect(() => {
    if (!session?.problem) return undefined;
    const timer = setTimeout(() => get("/session").then(setSession, () => {}), RETRY_MS);
    return () => clearTimeout(timer);
  }, [session]);

  const route = routeOf(path);
  const mustLogIn = session !== null && session.login_required && session.user === null;
  if (session === null) {
    return html`<main class="start">${startError ? html`<${ErrorBox} error=${startError} onRetry=${() => start()} />` : html`<${Loading} />`}</main>`;
  }
  if (route?.page === "login" || mustLogIn) return html`<div key=${language}><${Page} name="login" params=${{}} /><${Toasts} /></div>`;
  // The key renders everything anew in another language.
  return html`<${Frame} key=${language} route=${route} session=${session} />`;
}

function Frame({ route, session }) {
  const { path } = useLocation();
  const [isMenuOpen, openMenu] = useState(false);
  const main = useRef(null);
  const items = MENU.flatMap((section) => section.items).filter((item) => isOffered(item, session));
  useShortcuts(items.map((item) => ({ keys: `g ${item.key}`, label: t("keys.go", { page: t(`menu.${item.page}`) }), run: () => navigate(item.path) })), [session]);

  const shownPath = useRef(path);
  useEffect(() => {
    document.title = `${route?.menu ? t(`menu.${route.menu}`) : t("app.not_found")}${route?.params && Object.values(route.params).length ? ` · ${Object.values(route.params).join(" ")}` : ""} · Kourou`;
    openMenu(false);
    // Not at the first page: the focus then belongs to the browser.
    if (shownPath.current !== path) main.current?.focus({ preventScroll: true });
    shownPath.current = path;
  }, [path]);

  return html`<div class=${classes("frame", isMenuOpen && "is-menu-open")}>
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>${t("app.skip")}</a>
    <${Header} session=${session} isMenuOpen=${isMenuOpen} onMenu=${() => openMenu(!isMenuOpen)} />
    <${Menu} session=${session} active=${route?.menu} />
    <main id="main" ref=${main} tabIndex="-1">
      ${route ? html`<${Page} key=${path} name=${route.page} params=${route.params} />` : html`<${PageHead} title=${t("app.not_found")} subtitle=${html`<a href="/">${t("app.to_overview")}</a>`} />`}
    </main>
    <${Toasts} />
    <${ShortcutHelp} />
  </div>`;
}

const modules = new Map();

async function loadPage(name) {
  const loaded = await import(`./pages/${name}.js`);
  modules.set(name, loaded);
  return loaded;
}

function Page({ name, params }) {
  const [module, setModule] = useState(modules.get(name) ?? null);
  const [loadError, setLoadError] = useState(null);
  const [renderError, resetError] = useErrorBoundary((error) => console.error(error));
  const load = () => {
    setLoadError(null);
    loadPage(name).then(setModule, (error) => setLoadError({ message: t("app.page_not_loaded", { name }), hint: String(error.message ?? error) }));
  };
  useEffect(() => { if (!module) load(); }, [name]);
  if (renderError) return html`<${ErrorBox} error=${{ message: t("app.page_failed"), hint: String(renderError.message ?? renderError) }} onRetry=${resetError} />`;
  if (loadError) return html`<${ErrorBox} error=${loadError} onRetry=${load} />`;
  return module ? html`<${module.default} params=${params} />` : html`<${Loading} />`;
}

startRouter();
startKeys();
// Texts, session and the page's module at the same time, not one after the other. Errors show later, where
// the session and the page are used.
const firstSession = get("/session");
firstSession.catch(() => {});
loadPage(routeOf(location.pathname)?.page ?? "overview").catch(() => {});
await startLanguage();
render(html`<${App} />`, document.getElementById("app"));
