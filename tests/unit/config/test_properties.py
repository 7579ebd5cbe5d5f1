"""Java properties text: what is read, what is written, and that both agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.config.properties import (
    Property,
    format_properties,
    merge_properties,
    parse_properties,
    properties_dict,
)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("listenPort=9876", "listenPort", "9876"),
        ("listenPort = 9876", "listenPort", "9876"),
        ("listenPort:9876", "listenPort", "9876"),
        ("listenPort : 9876", "listenPort", "9876"),
        ("listenPort 9876", "listenPort", "9876"),
        ("\t listenPort\t9876", "listenPort", "9876"),
        ("empty=", "empty", ""),
        ("bare", "bare", ""),
        ("a=b=c", "a", "b=c"),
        ("a==b", "a", "=b"),
        ("trailing=blank  ", "trailing", "blank  "),
        (r"path=C:\\store\\log", "path", r"C:\store\log"),
        (r"spaced\ key=1", "spaced key", "1"),
        (r"a\=b=c", "a=b", "c"),
        (r"tab=\t|\n|\r|\f", "tab", "\t|\n|\r|\f"),
        (r"name=\u4e2d\u6587", "name", "中文"),
        (r"rocket=\ud83d\ude80", "rocket", "🚀"),
        (r"odd=\q\:", "odd", "q:"),
        (r"half=\u12", "half", "u12"),
        ("name=中文", "name", "中文"),
        ("a=1 # no comment here", "a", "1 # no comment here"),
        ("a=end\\", "a", "end"),
    ],
)
def test_one_entry(text: str, key: str, value: str) -> None:
    assert parse_properties(text) == [Property(key, value, 1)]


def test_comments_and_blank_lines_are_skipped_and_lines_counted() -> None:
    text = "# one\n\n! two\n  # three\na=1\r\nb=2\rc=3\n"
    assert parse_properties(text) == [Property("a", "1", 5), Property("b", "2", 6), Property("c", "3", 7)]


def test_a_continued_line_counts_from_its_first_line() -> None:
    text = "namesrvAddr=10.0.0.1:9876;\\\n    10.0.0.2:9876\nlistenPort=1\n"
    assert parse_properties(text) == [
        Property("namesrvAddr", "10.0.0.1:9876;10.0.0.2:9876", 1),
        Property("listenPort", "1", 3),
    ]


def test_two_backslashes_at_the_end_do_not_continue_a_line() -> None:
    assert [entry.key for entry in parse_properties("a=x\\\\\nb=1")] == ["a", "b"]


def test_a_comment_is_not_continued() -> None:
    assert properties_dict(parse_properties("# a \\\nb=1")) == {"b": "1"}


def test_of_a_repeated_key_the_last_counts() -> None:
    assert properties_dict(parse_properties("a=1\na=2")) == {"a": "2"}


def test_written_lines_are_sorted_and_plain_where_they_can_be() -> None:
    values = {"b": "x y", "a": "/opt/rocketmq/conf:1;2", "c": ""}
    assert format_properties(values) == "a=/opt/rocketmq/conf:1;2\nb=x y\nc=\n"


def test_characters_that_java_would_misread_are_escaped() -> None:
    written = format_properties({"k": "中\\ 🚀"})
    assert written == "k=\\u4e2d\\\\ \\ud83d\\ude80\n"
    assert written.isascii()


_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.dictionaries(_TEXT.filter(bool), _TEXT))
def test_what_is_written_reads_back(values: dict[str, str]) -> None:
    assert properties_dict(parse_properties(format_properties(values))) == values


@given(_TEXT.map("".join))
def test_any_text_can_be_read(text: str) -> None:
    for entry in parse_properties(text):
        assert 1 <= entry.line <= text.count("\n") + text.count("\r") + 1


def test_merging_keeps_comments_order_and_other_keys() -> None:
    before = "# ours\nb=1\n\nlong=x\\\n  y\na=1\n# end\n"
    after = merge_properties(before, {"a": "2", "long": "z", "new": "3"})
    assert after == "# ours\nb=1\n\nlong=z\na=2\n# end\nnew=3\n"


def test_merging_changes_every_repetition_of_a_key() -> None:
    assert merge_properties("a=1\nb=1\na=2", {"a": "3"}) == "a=3\nb=1\na=3\n"


def test_merging_into_nothing_writes_the_changes() -> None:
    assert merge_properties("", {"b": "2", "a": "1"}) == "a=1\nb=2\n"


@given(st.dictionaries(_TEXT.filter(bool), _TEXT), st.dictionaries(_TEXT.filter(bool), _TEXT))
def test_merging_is_reading_then_updating(before: dict[str, str], changes: dict[str, str]) -> None:
    merged = merge_properties(format_properties(before), changes)
    assert properties_dict(parse_properties(merged)) == {**before, **changes}
