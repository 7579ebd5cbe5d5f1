"""pretty_json: the text form of Apache's configuration files.

One field a line, a tab a level, no space after the colon, integer keys without quotes, nulls left
out; lists of numbers on one line. Not strict JSON because of the keys, which is how Apache writes
them and what its parser (and ours, protocol/fastjson.py) reads.
"""

from __future__ import annotations

from typing import Any

import msgspec


def write(tree: Any) -> bytes:
    """The text of a tree of dict, list, str, int, float, bool and None."""
    return _value(tree, "\n").encode()


def _value(tree: Any, new_line: str) -> str:
    # Consumer offsets are most of what is written, by the ten thousand: integers go first.
    if type(tree) is int:
        return str(tree)
    if isinstance(tree, dict):
        return _object(tree, new_line)
    if isinstance(tree, list):
        return _array(tree, new_line)
    return msgspec.json.encode(tree).decode()


def _object(tree: dict[Any, Any], new_line: str) -> str:
    deeper = new_line + "\t"
    fields = [f"{_value(key, '')}:{_value(each, deeper)}" for key, each in tree.items() if each is not None]
    return f"{{{deeper}{f',{deeper}'.join(fields)}{new_line}}}" if fields else "{}"


def _array(tree: list[Any], new_line: str) -> str:
    if not any(isinstance(item, str | dict | list) for item in tree):
        return f"[{','.join(_value(item, '') for item in tree)}]"
    deeper = new_line + "\t"
    items = f",{deeper}".join(_value(item, deeper) for item in tree)
    return f"[{deeper}{items}{new_line}]"
