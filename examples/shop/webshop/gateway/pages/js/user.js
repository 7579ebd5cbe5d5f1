/** The user in whose name this browser buys. A real shop would have a login here. */
import { html, useEffect } from "/static/js/lib/html.js";
import { useLive } from "/static/js/lib/api.js";
import { money } from "./money.js";
import { useKept } from "./kept.js";

/**
 * The user that was chosen, else the first.
 * @returns {{users: import("/static/js/lib/api.js").Read, user: {user_id: string, name: string, balance: number, level: string}|null, choose: (id: string) => void}}
 */
export function useUser() {
  const users = useLive("/users", 5);
  const [chosen, choose] = useKept("user", "");
  const known = users.data?.users ?? [];
  const user = known.find((item) => item.user_id === chosen) ?? known[0] ?? null;
  useEffect(() => {
    if (user && user.user_id !== chosen) choose(user.user_id);
  }, [user?.user_id]);
  return { users, user, choose };
}

/** @param {ReturnType<typeof useUser>} props */
export function UserChoice({ users, user, choose }) {
  if (!users.data) return null;
  return html`<label class="user-choice">Buyer
    <select value=${user?.user_id} onChange=${(event) => choose(event.target.value)}>
      ${users.data.users.map((item) => html`<option key=${item.user_id} value=${item.user_id} selected=${item.user_id === user?.user_id}>${item.name} · ${item.level} · ${money(item.balance)}</option>`)}
    </select></label>`;
}
