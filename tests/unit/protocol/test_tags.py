"""Tags: Java's hashCode, and tag expressions."""

from __future__ import annotations

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.tags import java_hash_code, parse_tag_expression, tags_code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -2147483648),
        ("中文", 646394),
        # One character outside the BMP is two units to Java: 0xD83D, 0xDE00.
        ("😀", 31 * 0xD83D + 0xDE00),
        ("é", 0xE9),
        ("\ud83d", 0xD83D),
    ],
)
def test_hash_code_is_javas(text: str, code: int) -> None:
    assert java_hash_code(text) == code


def test_tags_code_is_zero_without_tags() -> None:
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("TagA") == 2598919
    assert tags_code("x" * 5000) == java_hash_code("x" * 5000)


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_these_select_everything(expression: str | None) -> None:
    assert parse_tag_expression(expression) == ()


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", ("TagA",)),
        ("TagA || TagB", ("TagA", "TagB")),
        (" TagA||TagB || TagA || ", ("TagA", "TagB")),
        ("a|b||c", ("a|b", "c")),
        ("TagA || *", ("TagA", "*")),
        ("\xa0a", ("\xa0a",)),  # Java trims ASCII blanks only
        ("\t红 || 蓝\n", ("红", "蓝")),
    ],
)
def test_tags_are_split_trimmed_and_taken_once(expression: str, tags: tuple[str, ...]) -> None:
    assert parse_tag_expression(expression) == tags


@pytest.mark.parametrize("expression", ["||", " || ", "  "])
def test_an_expression_without_tags_is_refused(expression: str) -> None:
    with pytest.raises(ProtocolError, match=r"names no tag; write 'TagA \|\| TagB'"):
        parse_tag_expression(expression)
