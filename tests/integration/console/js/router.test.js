import assert from "node:assert/strict";
import { test } from "node:test";
import { queryString } from "../pages/js/lib/api.js";
import { changeSearch, matchPath, pathOf } from "../pages/js/lib/router.js";
import { ROUTES } from "../pages/js/menu.js";

test("names with special characters survive a path", () => {
  for (const name of ["%DLQ%billing", "a/b", "%RETRY%g", "<img src=x>", "主题", "a?b#c", "10.0.0.1@123#456"]) {
    assert.deepEqual(matchPath("/topics/{topic}", pathOf("topics", name)), { topic: name });
  }
});

test("a path matches by all of its parts, with or without a slash at its end", () => {
  assert.deepEqual(matchPath("/brokers/{name}/{id}", "/brokers/broker-a/0/"), { name: "broker-a", id: "0" });
  assert.equal(matchPath("/brokers/{name}/{id}", "/brokers/broker-a"), null);
  assert.equal(matchPath("/topics", "/groups"), null);
  assert.deepEqual(matchPath("/", "/"), {});
});

test("a path that is not well encoded matches nothing instead of failing", () => {
  assert.equal(matchPath("/topics/{topic}", "/topics/%DLQ%g"), null);
});

test("only what differs from the default is in the URL", () => {
  const defaults = { sort: "lag", order: "desc", search: "", page: "1" };
  assert.equal(changeSearch("", { sort: "lag", page: "1" }, defaults), "");
  assert.equal(changeSearch("?page=3&kind=dlq", { page: "1", search: "a b&c" }, defaults), "?kind=dlq&search=a+b%26c");
  assert.equal(changeSearch("?sort=name", { sort: null }, defaults), "?sort=");
  assert.equal(changeSearch("?search=x", { search: "" }, defaults), "");
});

test("requests leave out empty parameters and repeat lists", () => {
  assert.equal(queryString({ search: "", offset: 0, kinds: ["a", "b"], none: null, big: 9223372036854775807n }), "?offset=0&kinds=a&kinds=b&big=9223372036854775807");
  assert.equal(queryString(), "");
});

test("no path has two pages", () => {
  assert.equal(new Set(ROUTES.map((route) => route.pattern)).size, ROUTES.length);
});
