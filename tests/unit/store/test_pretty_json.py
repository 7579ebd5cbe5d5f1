"""pretty_json: the exact text."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.protocol import fastjson
from kourou.store import pretty_json


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({}, "{}"),
        ({"a": {}, "b": []}, '{\n\t"a":{},\n\t"b":[]\n}'),
        ({"a": None}, "{}"),
        ({"a": None, "b": True, "c": False}, '{\n\t"b":true,\n\t"c":false\n}'),
        ({1: 2, -3: 4}, "{\n\t1:2,\n\t-3:4\n}"),
        ({"a": [1, 2.5, -3]}, '{\n\t"a":[1,2.5,-3]\n}'),
        ({"a": ["x", "y"]}, '{\n\t"a":[\n\t\t"x",\n\t\t"y"\n\t]\n}'),
        ({"a": [{"b": 1}]}, '{\n\t"a":[\n\t\t{\n\t\t\t"b":1\n\t\t}\n\t]\n}'),
        ({'quote" back\\ tab\t \x01 ä中/': "\n"}, '{\n\t"quote\\" back\\\\ tab\\t \\u0001 ä中/":"\\n"\n}'),
    ],
)
def test_the_text_of_a_tree(tree: Any, text: str) -> None:
    assert pretty_json.write(tree) == text.encode()


def test_our_parser_reads_it() -> None:
    tree = {"a": [{"b": [1, 2]}, "x"], "c": {7: {8: "y"}}}
    assert fastjson.parse(pretty_json.write(tree)) == {"a": [{"b": [1, 2]}, "x"], "c": {"7": {"8": "y"}}}
