import assert from "node:assert/strict";
import { test } from "node:test";
import { byLag } from "../pages/js/pages/group.js";

test("the topic that lags most comes first, the retry topic last", () => {
  const topics = [{ topic: "%RETRY%g", lag: 9 }, { topic: "A", lag: 1 }, { topic: "B", lag: 2n ** 60n }];
  assert.deepEqual(byLag(topics, "%RETRY%g").map((item) => item.topic), ["B", "A", "%RETRY%g"]);
});
