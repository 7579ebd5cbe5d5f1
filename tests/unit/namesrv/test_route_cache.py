"""The cache of encoded routes stays within its bound."""

from __future__ import annotations

from kourou.namesrv.route_json import JsonForm
from kourou.namesrv.route_tables import RouteCache

V4, V5 = JsonForm.STANDARD_V4, JsonForm.STANDARD_V5


def test_forms_of_a_topic_are_dropped_together() -> None:
    cache = RouteCache()
    cache.put("T", V4, b"old")
    cache.put("T", V5, b"new!")
    assert (cache.get("T", V4), cache.get("T", V5), cache.size_bytes) == (b"old", b"new!", 7)
    cache.put("T", V4, b"o")
    assert cache.size_bytes == 5
    cache.drop("T")
    cache.drop("unknown")
    assert (cache.get("T", V4), cache.get("T", V5), cache.size_bytes) == (None, None, 0)


def test_the_oldest_go_when_the_limit_is_reached() -> None:
    cache = RouteCache(limit_bytes=10)
    for topic in ("A", "B", "C"):
        cache.put(topic, V5, b"1234")
    assert [cache.get(topic, V5) for topic in ("A", "B", "C")] == [None, b"1234", b"1234"]
    assert cache.size_bytes == 8


def test_an_answer_over_the_limit_is_not_kept() -> None:
    cache = RouteCache(limit_bytes=10)
    cache.put("A", V5, b"1234")
    cache.put("B", V5, b"x" * 11)
    assert (cache.get("A", V5), cache.get("B", V5), cache.size_bytes) == (None, None, 0)


def test_clear() -> None:
    cache = RouteCache()
    cache.put("A", V5, b"1234")
    cache.clear()
    assert (cache.get("A", V5), cache.size_bytes) == (None, 0)
