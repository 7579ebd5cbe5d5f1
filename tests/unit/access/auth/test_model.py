"""Patterns of resources, subjects, addresses."""

from __future__ import annotations

import pytest

from kourou.access.auth.model import ResourcePattern, User, user_of_subject
from kourou.access.auth.sources import Source, address_of
from kourou.access.model import Resource, ResourceType


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("*", ["Topic:a", "Group:a", "Cluster:c", "Topic:*"], []),
        ("Topic:orders", ["Topic:orders"], ["Topic:orders2", "Group:orders", "Topic:*"]),
        ("topic:or*", ["Topic:orders", "Topic:or"], ["Topic:o", "Group:orders", "Topic:*"]),
        ("GROUP:*", ["Group:g", "Group:*"], ["Topic:g"]),
        # Cut at the first star, as Apache does.
        ("Topic:a*b*", ["Topic:ac"], ["Topic:b"]),
        ("Topic:a*b", ["Topic:a*b"], ["Topic:acb"]),
    ],
)
def test_resource_pattern(text: str, matching: list[str], other: list[str]) -> None:
    pattern = ResourcePattern.parse(text)
    assert pattern is not None
    assert all(pattern.matches(resource(name)) for name in matching)
    assert not any(pattern.matches(resource(name)) for name in other)
    assert ResourcePattern.parse(str(pattern)) == pattern


def resource(text: str) -> Resource:
    kind, _, name = text.partition(":")
    return Resource(ResourceType(kind), name)


@pytest.mark.parametrize("text", [None, "", "Topic", "Topic:", "Tpic:a", "orders", "Any:orders"])
def test_no_resource_pattern(text: str | None) -> None:
    assert ResourcePattern.parse(text) is None


def test_subject() -> None:
    assert user_of_subject("user:a:b") == "a:b"
    assert [user_of_subject(text) for text in (None, "", "alice", "User:", "Role:a")] == [None] * 5


@pytest.mark.parametrize(
    ("source", "inside", "outside"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.2"),
        ("10.0.0.0/8", "10.9.9.9", "11.0.0.1"),
        ("10.1.2.3/8", "10.9.9.9", "11.0.0.1"),
        ("10.0.0.1", "::ffff:10.0.0.1", "::1"),
        ("2001:db8::/32", "2001:db8::7", "2001:db9::7"),
        # Apache compares the text.
        ("2001:db8:0:0::7", "2001:db8::7", "2001:db8::8"),
        ("fe80::/10", "fe80::1%eth0", "10.0.0.1"),
    ],
)
def test_source(source: str, inside: str, outside: str) -> None:
    parsed = Source.parse(source)
    here, there = address_of(inside), address_of(outside)
    assert parsed is not None and here is not None and there is not None
    assert parsed.contains(here) and not parsed.contains(there)
    assert str(parsed) == source


def test_no_source() -> None:
    assert [Source.parse(text) for text in ("", "10.0.0", "10.0.0.0/33", "host", "*")] == [None] * 5
    assert address_of("") is None


def test_password_is_not_shown() -> None:
    assert "hidden" not in repr(User("a", "hidden"))
