import assert from "node:assert/strict";
import { test } from "node:test";
import { Disk, figure } from "../pages/js/pages/brokers.js";

test("a broker that did not answer has no figures, rather than zeros", () => {
  assert.equal(figure({ version: "", disk_ratio: 0 }, "disk_ratio"), null);
  assert.equal(figure({ version: "V5_3_3", in_tps: 0 }, "in_tps"), 0);
  assert.equal(Disk({ ratio: null }), "–");
});
