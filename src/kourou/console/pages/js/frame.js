/** What stands around every page: the header and the menu. */
import { html } from "./lib/html.js";
import { get, send } from "./lib/api.js";
import { Icon } from "./lib/icons.js";
import { currentLanguage, languages, setLanguage, t } from "./lib/i18n.js";
import { showShortcuts } from "./lib/keys.js";
import { navigate } from "./lib/router.js";
import { includesRole, setSession } from "./lib/session.js";
import { nextTheme, useTheme } from "./lib/theme.js";
import { toast } from "./lib/toast.js";
import { MENU } from "./menu.js";

/**
 * Whether the user may see what an item of the menu leads to.
 * @param {{role?: string}} item
 * @param {import("./lib/session.js").Session} session
 * @returns {boolean}
 */
export function isOffered(item, session) {
  return !item.role || includesRole(session.role, item.role);
}

/** @param {{session: import("./lib/session.js").Session, active: string|null|undefined}} props */
export function Menu({ session, active }) {
  return html`<nav class="menu" id="menu" aria-label=${t("menu.label")}>
    ${MENU.map(({ section, items }) => html`<div class="menu-section" key=${section}>
      <h2>${t(`menu.section_${section}`)}</h2>
      <ul>${items.filter((item) => isOffered(item, session)).map((item) => html`<li key=${item.page}><a href=${item.path} aria-current=${active === item.page ? "page" : undefined}><${Icon} name=${item.page} />${t(`menu.${item.page}`)}</a></li>`)}</ul>
    </div>`)}
    <p class="menu-foot muted">Kourou ${session.version}</p>
  </nav>`;
}

/** @param {{session: import("./lib/session.js").Session, isMenuOpen: boolean, onMenu: () => void}} props */
export function Header({ session, isMenuOpen, onMenu }) {
  const { choice } = useTheme();
  const clusters = session.clusters?.length ? session.clusters.join(", ") : t("app.no_cluster");
  const themeLabel = t("app.theme", { theme: t(`app.theme_${choice}`) });
  const logOut = () => send("POST", "/logout", {}).then(() => get("/session")).then((next) => {
    setSession(next);
    navigate("/login");
  }).catch((error) => toast(error.message, "bad"));
  return html`<header class="top">
    <button type="button" class="icon-button menu-button" aria-label=${t("menu.label")} aria-expanded=${String(isMenuOpen)} aria-controls="menu" onClick=${onMenu}><${Icon} name="menu" /></button>
    <a class="brand" href="/"><img src="/static/favicon.svg" alt="" width="26" height="26" />Kourou</a>
    <span class="cluster" title=${t("app.namesrvs", { list: session.namesrvs.join("; ") })}>${clusters}</span>
    <span class="grow"></span>
    <a class="button is-quiet" href="/api/openapi.json" target="_blank" rel="noopener"><${Icon} name="book" /><span class="wide-only">${t("app.api")}</span></a>
    <button type="button" class="icon-button" title=${t("keys.title")} aria-label=${t("keys.title")} onClick=${showShortcuts}><${Icon} name="keyboard" /></button>
    <${LanguageSwitch} />
    <button type="button" class="icon-button" title=${themeLabel} aria-label=${themeLabel} onClick=${nextTheme}><${Icon} name=${choice === "auto" ? "auto" : choice === "dark" ? "moon" : "sun"} /></button>
    ${session.user && html`<span class="user"><${Icon} name="user" /><span class="wide-only">${session.user}${session.role === "reader" && html` <span class="badge is-plain">${t("app.read_only")}</span>`}</span></span>
      <button type="button" class="icon-button" title=${t("app.log_out")} aria-label=${t("app.log_out")} onClick=${logOut}><${Icon} name="logout" /></button>`}
  </header>`;
}

/** Goes on to the next language; the button shows the name of that one. */
export function LanguageSwitch() {
  const names = languages.map(([code]) => code);
  const next = languages[(names.indexOf(currentLanguage()) + 1) % languages.length];
  return html`<button type="button" class="is-quiet" lang=${next[0]} onClick=${() => setLanguage(next[0])}><${Icon} name="language" /><span class="wide-only">${next[1]}</span></button>`;
}
