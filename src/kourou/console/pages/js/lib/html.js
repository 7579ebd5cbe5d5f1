/**
 * Preact, its hooks and the `html` template tag, from one vendored module. Pages import from here only.
 * A template with several roots is an array, so no Fragment is needed.
 */
export {
  Component,
  createContext,
  h,
  html,
  render,
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../../vendor/htm-preact-standalone.module.js";

import { useState } from "../../vendor/htm-preact-standalone.module.js";

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
