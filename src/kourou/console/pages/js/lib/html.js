/**
 * Preact, its hooks and the `html` template tag. Pages import from here only. index.html loads the vendored
 * scripts, which define globals, before any module (vendor/README.md says why they are no modules).
 * A template with several roots is an array, so no Fragment is needed.
 */
export const { Component, createContext, h, render } = globalThis.preact;
export const { useCallback, useContext, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useReducer, useRef, useState } =
  globalThis.preactHooks;
export const html = globalThis.htm.bind(h);

let lastId = 0;

/**
 * An id for `for`, `aria-labelledby` and the like, the same in every render of a component.
 * @param {string} prefix
 * @returns {string}
 */
export function useId(prefix) {
  return useState(() => `${prefix}-${++lastId}`)[0];
}

/**
 * Class names, without those that are false, null or empty.
 * @param {...(string|false|null|undefined)} names
 * @returns {string}
 */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}
