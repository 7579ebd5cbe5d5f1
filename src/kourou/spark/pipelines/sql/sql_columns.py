"""Which columns of messages an SQL query uses, by its text: a Python source is not told that by Spark.

Columns that are not made cost nothing, and some cost much. So what the text does not name is left out, where
the text says all; where a query may mean columns without naming them (`SELECT *`, NATURAL JOIN, …) all stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_NOT_CODE: Final = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'", re.S)
_COUNT_ALL: Final = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.I)
_STAR: Final = re.compile(r"(?:\bselect|\bdistinct|\ball|[,.(])\s*\*", re.I)
# Words with which a query may mean columns that it does not name.
_IMPLICIT: Final = frozenset({"natural", "table", "pivot", "unpivot", "identifier", "describe", "transform"})
_PROPERTY: Final = re.compile(r"\bproperty_\w+")
# Words, and the sign of a pipe, behind which a table may be read again.
_AGAIN: Final = r"\b(?:from|select|table|join|union|except|intersect|minus)\b|\|>"
_ONE_TABLE: Final = re.compile(
    rf"^\s*select\b(?:(?!{_AGAIN}).)*\bfrom\s+(?:`[^`]+`|\w+)"
    r"(?:\s+(?:as\s+)?(?!(?:where|group|order|having|limit|join|cross|inner|left|right|full)\b)\w+)?"
    rf"\s*(?:(?:where|group|order|having|limit)\b(?:(?!{_AGAIN}).)*)?;?\s*$",
    re.I | re.S,
)


def named_columns(sql: str, names: Iterable[str]) -> set[str] | None:
    """Those of `names` that the query may use; None: it may use all."""
    text = _COUNT_ALL.sub(" ", _NOT_CODE.sub(" ", sql))
    words = re.findall(r"\w+", text.lower())
    if not words or words[0] not in ("select", "with"):
        return None
    if _STAR.search(text) or "|>" in text or not _IMPLICIT.isdisjoint(words):
        return None
    # A FROM without a SELECT gives all columns.
    if words.count("from") > words.count("select"):
        return None
    return {name for name in names if name.lower() in words}


def named_properties(sql: str) -> list[str]:
    """The columns `property_NAME` that it names, as written."""
    return sorted(set(_PROPERTY.findall(_NOT_CODE.sub(" ", sql))))


def reads_one_table_once(sql: str) -> bool:
    """Whether filters of the query can only mean one reading of one table."""
    return _ONE_TABLE.match(_NOT_CODE.sub("''", sql)) is not None
