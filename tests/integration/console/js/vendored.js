// Loads the vendored scripts before any test, as index.html does before any module.
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";

globalThis.self ??= globalThis;
for (const name of ["preact", "preact-hooks", "htm"]) {
  const url = new URL(`../pages/vendor/${name}.umd.js`, import.meta.url);
  runInThisContext(readFileSync(url, "utf-8"), { filename: url.pathname });
}
