/** The session of this browser: user, role, CSRF token, cluster. Read once at the start and after a login. */
import { useEffect, useState } from "./html.js";

/**
 * @typedef {{user: string|null, role: "administrator"|"operator"|"reader"|null, login_required: boolean,
 *   by_accounts: boolean, csrf_token: string|null, version: string, namesrvs: string[], clusters: string[], problem: string}} Session
 */

/** @type {Session|null} */
let current = null;
const listeners = new Set();

/** @returns {Session|null} */
export function session() {
  return current;
}

/** @param {Session|null} value */
export function setSession(value) {
  current = value;
  listeners.forEach((listener) => listener(value));
}

/**
 * The session, with a new render whenever it changes.
 * @returns {Session|null}
 */
export function useSession() {
  const [value, set] = useState(current);
  useEffect(() => {
    listeners.add(set);
    set(current);
    return () => listeners.delete(set);
  }, []);
  return value;
}

const ROLES = ["reader", "operator", "administrator"];

/**
 * Whether a role includes another.
 * @param {string|null|undefined} role
 * @param {"reader"|"operator"|"administrator"} other
 * @returns {boolean}
 */
export function includesRole(role, other) {
  return ROLES.indexOf(role) >= ROLES.indexOf(other);
}

/**
 * Whether the user may change things; buttons for changes are left out otherwise. What an account of the
 * cluster may change, the brokers decide.
 * @returns {boolean}
 */
export function useCanChange() {
  return includesRole(useSession()?.role, "operator");
}
