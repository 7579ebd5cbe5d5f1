/** Login: name and password, or access key and secret key; then back to the page that asked for it. */
import { LanguageSwitch } from "../frame.js";
import { html, useState } from "../lib/html.js";
import { send } from "../lib/api.js";
import { checkFields, Fields } from "../lib/form.js";
import { t } from "../lib/i18n.js";
import { navigate, useLocation, useQuery } from "../lib/router.js";
import { setSession, useSession } from "../lib/session.js";
import { ErrorBox } from "../lib/states.js";

export default function LoginPage() {
  const [{ next }] = useQuery({ next: "" });
  const { path } = useLocation();
  const [values, setValues] = useState({ user: "", password: "" });
  const [messages, setMessages] = useState({});
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const byAccounts = useSession()?.by_accounts;
  const fields = [
    { name: "user", label: t(byAccounts ? "login.access_key" : "login.user"), required: true },
    { name: "password", label: t(byAccounts ? "login.secret_key" : "login.password"), type: "password", required: true },
  ];
  const submit = async (event) => {
    event.preventDefault();
    const wrong = checkFields(fields, values);
    setMessages(wrong);
    if (Object.keys(wrong).length || isBusy) return;
    setBusy(true);
    setError(null);
    try {
      const session = await send("POST", "/login", values);
      // Another page's path is shown already: the login only covers it.
      if (path === "/login") navigate(pageAfterLogin(next), { replace: true });
      setSession(session);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<main class="login">
    <form class="card login-card" noValidate onSubmit=${submit}>
      <img src="/static/favicon.svg" alt="" width="44" height="44" />
      <h1>${t("login.title")}</h1>
      ${byAccounts && html`<p class="muted">${t("login.accounts_about")}</p>`}
      <${Fields} fields=${fields} values=${values} onChange=${setValues} messages=${messages} />
      ${error && html`<${ErrorBox} error=${error} />`}
      <button type="submit" class="is-primary" disabled=${isBusy}>${t("login.submit")}</button>
    </form>
    <${LanguageSwitch} />
  </main>`;
}

// Only a path of this console: a link to the login page must not lead elsewhere.
function pageAfterLogin(next) {
  const url = new URL(next || "/", location.origin);
  return url.origin === location.origin && url.pathname !== "/login" ? url.pathname + url.search : "/";
}
