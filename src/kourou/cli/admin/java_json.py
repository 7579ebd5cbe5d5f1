"""JSON as the libraries of Apache's tools print it: indented by tabs, no blank after a colon, numbers as keys
bare.

4.9's library begins no line before such a key, 5.x's does. Not here: JSON of `--json` (screen.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def pretty_json(tree: Any, *, is_v4: bool = False) -> str:
    """Text of several lines, without the last line end. Names stay in their order."""
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
