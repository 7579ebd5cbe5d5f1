"""JSON as Apache's tools print it: indented with tabs, no space after a colon, numeric keys without quotes.

The library of 4.9 does not start a new line before such a key, that of 5.x does. Not here: the JSON of
`--json` (screen.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def pretty_json(tree: Any, *, is_v4: bool = False) -> str:
    """JSON on several lines, without a final newline. The order of names is kept."""
    return _value(tree, "", is_v4)


def _value(tree: Any, indent: str, is_v4: bool) -> str:
    if isinstance(tree, Mapping):
        return _object(tree, indent, is_v4)
    if isinstance(tree, list):
        return _array(tree, indent, is_v4)
    return json.dumps(tree, ensure_ascii=False)


def _object(tree: Mapping[str, Any], indent: str, is_v4: bool) -> str:
    if not tree:
        return "{}"
    inner = indent + "\t"
    text = "{"
    for number, (name, value) in enumerate(tree.items()):
        is_bare = name.removeprefix("-").isdecimal()
        text += "," if number else ""
        text += "" if is_bare and is_v4 else f"\n{inner}"
        text += f"{name if is_bare else json.dumps(name, ensure_ascii=False)}:{_value(value, inner, is_v4)}"
    return f"{text}\n{indent}}}"


def _array(tree: list[Any], indent: str, is_v4: bool) -> str:
    if not tree:
        return "[]"
    inner = indent + "\t"
    entries = ",".join(f"\n{inner}{_value(entry, inner, is_v4)}" for entry in tree)
    return f"[{entries}\n{indent}]"
