"""The property string against a plain model of Java's reader."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.properties import (
    PropertyScanner,
    decode_properties,
    encode_properties,
    get_property,
    join_properties,
    properties_from_bytes,
    properties_to_bytes,
    remove_property,
    set_property,
)

# Few letters and many separators, so that odd pieces and repeated names are common.
scrambled = st.text("ab\x01\x02", max_size=40)
clean = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20)
dictionaries = st.dictionaries(clean, clean, max_size=8)
names = st.sampled_from(["a", "b", "aa", "ab", "ba"])


def java_reader(text: str) -> dict[str, str]:
    """Index by index, as Java goes through the string."""
    found: dict[str, str] = {}
    index = 0
    while index < len(text):
        end = text.find("\x02", index)
        end = len(text) if end < 0 else end
        if end - index >= 3:
            middle = text.find("\x01", index)
            if index < middle < end - 1:
                found[text[index:middle]] = text[middle + 1 : end]
        index = end + 1
    return found


@given(dictionaries)
def test_round_trip_with_and_without_the_last_separator(properties: dict[str, str]) -> None:
    for trailing_separator in (True, False):
        text = encode_properties(properties, trailing_separator=trailing_separator)
        stored = properties_from_bytes(properties_to_bytes(text))
        assert decode_properties(stored) == properties
        assert list(decode_properties(stored)) == list(properties)


@given(scrambled | st.text())
def test_any_text_is_read_as_java_reads_it(text: str) -> None:
    assert decode_properties(text) == java_reader(text)


@given(st.binary(max_size=100))
def test_any_bytes_are_read(raw: bytes) -> None:
    assert isinstance(decode_properties(properties_from_bytes(raw)), dict)


@given(scrambled, st.lists(names, max_size=4))
def test_a_scan_finds_what_the_dictionary_has(text: str, wanted: list[str]) -> None:
    properties = java_reader(text)
    assert PropertyScanner(*wanted).values(text) == [properties.get(name) for name in wanted]
    assert [get_property(text, name) for name in wanted] == [properties.get(name) for name in wanted]


@given(scrambled, names)
def test_removing_one_leaves_the_others(text: str, name: str) -> None:
    properties = java_reader(text)
    properties.pop(name, None)
    assert decode_properties(remove_property(text, name)) == properties


@given(scrambled, names, clean)
def test_setting_one_leaves_the_others(text: str, name: str, value: str) -> None:
    assert decode_properties(set_property(text, name, value)) == java_reader(text) | {name: value}


@given(scrambled, scrambled)
def test_joining_is_merging(text: str, more: str) -> None:
    assert decode_properties(join_properties(text, more)) == java_reader(text) | java_reader(more)
