import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Script, SourceTextModule } from "node:vm";

// Most modules need a browser to run; parsing them finds what a page would stop at.
test("every script parses", () => {
  const folder = join(import.meta.dirname ?? new URL(".", import.meta.url).pathname, "../pages/js");
  for (const name of readdirSync(folder, { recursive: true })) {
    if (!name.endsWith(".js")) continue;
    const code = readFileSync(join(folder, name), "utf-8");
    if (name === "boot.js") new Script(code, { filename: name });
    else new SourceTextModule(code, { identifier: name });
  }
});
