"""The filter `json`: messages whose bodies are JSON, by what is at some paths in them.

    json $.order.total > 100 AND $.order.region IN ('north', 'south')
    json $.items[0].sku = 'A-7' OR $['first name'] IS NULL

The condition is an SQL92 filter with paths in place of property names. A path begins with `$`; `.name`,
`['any name']` and `[0]` are its steps. What a path finds is compared as a property with that text would be:
`true` and `false` are words, lists and objects their JSON. Numbers are compared as floating-point
ones, always. A path that finds nothing or `null`, and every path in a body that is not JSON, is NULL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kourou.errors import FilterSyntaxError
from kourou.filters.record import FilterRecord
from kourou.protocol.filter import compile_filter

__all__ = ["JsonFilter"]

_STEP: Final = r"""\.[A-Za-z_][A-Za-z0-9_-]*|\['[^']*'\]|\[[0-9]{1,9}\]"""
# Text in quotes comes first: what looks like a path in there is none. A name or number is taken whole.
_WORD: Final = re.compile(
    rf"'[^']*'|(?P<path>\$(?:{_STEP})*)|[A-Za-z_][A-Za-z0-9_$]*|[0-9.]+[eE][+-]?[0-9]+|[0-9]*\.[0-9]*"
    r"|(?P<whole>[0-9]+)[lL]?"
)
_STEPS: Final = re.compile(_STEP)
_MAX_PATHS: Final = 100

_Step = str | int


class JsonFilter:
    """A condition on JSON bodies."""

    def __init__(self, parameters: str) -> None:
        """ValueError for what is no condition."""
        self._paths: list[list[_Step]] = []
        names: dict[str, str] = {}

        def rewritten(found: re.Match[str]) -> str:
            path = found["path"]
            if path is None:
                return f"{found['whole']}.0" if found["whole"] else found[0]
            if path not in names:
                names[path] = f"${len(names)}"
                self._paths.append(_steps(path))
            return names[path]

        condition = _WORD.sub(rewritten, parameters)
        if not names:
            raise ValueError("no path in the condition; write for example $.order.total > 100")
        if len(names) > _MAX_PATHS:
            raise ValueError(f"the condition has {len(names)} paths; write {_MAX_PATHS} at most")
        try:
            self._program = compile_filter(condition)
        except FilterSyntaxError as error:
            raise ValueError(f"{error} (of {condition!r}, in which paths are numbered)") from None
        unknown = sorted(set(self._program.names) - set(names.values()))
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: a path begins with $, such as $.{unknown[0]}")
        self._places = [int(name[1:]) for name in self._program.names]

    def matches(self, records: Sequence[FilterRecord]) -> Sequence[bool]:
        """Whether the condition is true for each."""
        matches, paths, places = self._program.matches_row, self._paths, self._places
        verdicts = []
        for record in records:
            tree = _tree(record.body)
            verdicts.append(matches([_text(tree, paths[place]) for place in places]))
        return verdicts


def _steps(path: str) -> list[_Step]:
    steps: list[_Step] = []
    for step in _STEPS.findall(path):
        if step.startswith("."):
            steps.append(step[1:])
        else:
            steps.append(step[2:-2] if step[1] == "'" else int(step[1:-1]))
    return steps


def _tree(body: memoryview) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _text(tree: Any, path: Sequence[_Step]) -> str | None:
    for step in path:
        if isinstance(step, str):
            tree = tree.get(step) if isinstance(tree, dict) else None
        else:
            tree = tree[step] if isinstance(tree, list) and step < len(tree) else None
    if tree is None or isinstance(tree, str):
        return tree
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
