"""The property string: Java's reading rules, both writers' endings, search and rewriting."""

from __future__ import annotations

import pytest

from kourou.protocol.properties import (
    RESERVED_PROPERTIES,
    MessageConst,
    PropertyScanner,
    decode_properties,
    encode_properties,
    get_property,
    join_properties,
    properties_from_bytes,
    properties_to_bytes,
    property_problem,
    remove_property,
    set_property,
)


def test_5x_writers_end_the_last_pair_and_4_9_writers_do_not() -> None:
    properties = {"TAGS": "TagA", "KEYS": "a b"}
    assert encode_properties(properties) == "TAGS\x01TagA\x02KEYS\x01a b\x02"
    assert encode_properties(properties, trailing_separator=False) == "TAGS\x01TagA\x02KEYS\x01a b"
    assert encode_properties({}) == encode_properties({}, trailing_separator=False) == ""


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b\x02\x02\x02c\x01d", {"a": "b", "c": "d"}),
        ("a\x01\x02c\x01d", {"c": "d"}),  # no value
        ("\x01b\x02c\x01d", {"c": "d"}),  # no name
        ("ab\x02c\x01d", {"c": "d"}),  # no separator
        ("\x01\x02\x01\x01", {}),
        ("a\x01b\x01c", {"a": "b\x01c"}),  # the first 0x01 ends the name
        ("a\x01\x01", {"a": "\x01"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),  # the later one counts
        ("a\x01b\x02a\x01\x02", {"a": "b"}),  # and a pair without value is none
    ],
)
def test_reading_follows_java(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties
    for name in ("a", "b", "c", "d"):
        assert get_property(text, name) == properties.get(name)


@pytest.mark.parametrize("pair", [("a\x01", "b"), ("a", "b\x02c"), ("a\x02", "b"), ("a", "\x01")])
def test_a_separator_inside_a_pair_is_refused_by_name(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="contains .x01 or .x02") as refused:
        encode_properties({"fine": "value", pair[0]: pair[1]})
    assert repr(pair[0]) in str(refused.value)
    with pytest.raises(ValueError, match="separate properties"):
        set_property("", *pair)


def test_a_scan_gives_values_in_the_order_asked() -> None:
    scan = PropertyScanner("TAGS", "KEYS", "DELAY")
    assert scan.values("KEYS\x01k1 k2\x02XTAGS\x01no\x02TAGS\x01TagA") == ["TagA", "k1 k2", None]
    assert scan.values("TAGS\x01kept\x02KEYS\x01k\x02TAGS\x01\x02") == ["kept", "k", None]
    assert scan.values("") == [None, None, None]


def test_a_value_that_looks_like_a_name_is_not_found() -> None:
    assert get_property("a\x01TAGS\x02b\x01WAIT\x01true\x02", "TAGS") is None
    assert get_property("a\x01TAGS\x02b\x01WAIT\x01true\x02", "WAIT") is None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("WAIT\x01true\x02TAGS\x01a\x02", "TAGS\x01a\x02"),
        ("TAGS\x01a\x02WAIT\x01true\x02KEYS\x01k", "TAGS\x01a\x02KEYS\x01k"),
        ("WAIT\x01true\x02a\x01b\x02WAIT\x01false\x02", "a\x01b\x02"),
        ("AWAIT\x01true\x02", "AWAIT\x01true\x02"),
        ("WAIT\x01true", ""),
        ("", ""),
    ],
)
def test_remove_takes_every_occurrence_and_nothing_else(text: str, left: str) -> None:
    assert remove_property(text, "WAIT") == left


def test_set_replaces_and_join_separates_where_needed() -> None:
    assert set_property("a\x01b", "c", "d") == "a\x01b\x02c\x01d\x02"
    assert set_property("a\x01b\x02c\x01x\x02", "c", "d") == "a\x01b\x02c\x01d\x02"
    assert set_property("", "c", "d") == "c\x01d\x02"
    assert join_properties("a\x01b", "c\x01d") == "a\x01b\x02c\x01d"
    assert join_properties("a\x01b\x02", "c\x01d") == "a\x01b\x02c\x01d"
    assert join_properties("a\x01b", "") == "a\x01b"
    assert join_properties("", "c\x01d") == "c\x01d"


def test_text_that_is_no_utf8_is_read_and_written_as_java_does() -> None:
    assert properties_from_bytes(b"a\x01\xffb\x02") == "a\x01�b\x02"
    assert properties_to_bytes("a\x01\ud83d\x02") == b"a\x01?\x02"
    assert properties_from_bytes(properties_to_bytes("k\x01中文😀\x02")) == "k\x01中文😀\x02"


def test_reserved_names_are_those_of_java() -> None:
    assert len(RESERVED_PROPERTIES) == 52
    assert {"TAGS", "KEYS", "UNIQ_KEY", "DELAY", "1ST_POP_TIME", "__CRC32#"} <= RESERVED_PROPERTIES
    # Java leaves these to applications.
    assert RESERVED_PROPERTIES.isdisjoint(
        {"__SHARDINGKEY", "CHECK_IMMUNITY_TIME_IN_SECONDS", "INNER_MULTI_DISPATCH", "TRACE_CONTEXT"}
    )
    assert MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX == "UNIQ_KEY"


def test_property_problem_says_what_is_wrong() -> None:
    assert property_problem("color", "red") is None
    assert "blank" in (property_problem(" ", "red") or "")
    assert "blank" in (property_problem("color", "") or "")
    assert "reserved" in (property_problem("TAGS", "TagA") or "")
    assert "\\x01" in (property_problem("color", "r\x01d") or "")
