"""The tables that an SQL query names, found without Spark, to report misspelt ones before a JVM starts.

Not a parser: it looks for names after FROM and JOIN, and knows the names that WITH defines. Everything else
is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`|\w+|[^\s\w]", re.S
)
_NOT_A_TABLE: Final = frozenset(
    {"select", "values", "lateral", "unnest", "table", "stream", "where", "on", "using", "order", "group"}
)


def table_names(sql: str) -> list[str]:
    """Names without a dot after FROM, JOIN and the commas between them, unique, in order."""
    tokens = [token for token in _TOKEN.findall(sql) if not token.startswith(("--", "/*"))]
    given = _with_names(tokens)
    return list(dict.fromkeys(name for name in _named(tokens) if name.lower() not in given))


def _with_names(tokens: list[str]) -> set[str]:
    """Those of `WITH a AS (…), b (x, y) AS (…)`."""
    small = [token.lower() for token in tokens]
    found = set()
    for at, word in enumerate(small):
        if word == "as" and small[at + 1 : at + 2] == ["("] and at:
            before = at - 1
            if small[before] == ")":  # names of columns
                while before > 0 and small[before] != "(":
                    before -= 1
                before -= 1
            found.add(_bare(small[before]))
    return found


def _named(tokens: list[str]) -> Iterator[str]:
    # A FROM belongs to a SELECT of the same parentheses: that of extract(… FROM …) does not.
    selects = [False]
    in_from = [False]
    previous = ""
    for at, token in enumerate(tokens):
        word = token.lower()
        if word == "(":
            selects.append(False)
            in_from.append(False)
        elif word == ")" and len(selects) > 1:
            selects.pop()
            in_from.pop()
        elif word == "select":
            selects[-1] = True
            in_from[-1] = False
        elif word in ("where", "group", "having", "order", "union", "on", "limit", "window", "lateral"):
            in_from[-1] = False
        begins = word == "join" or (
            word == "from" and (selects[-1] or len(selects) == 1) and previous != "distinct"
        )
        if begins:
            in_from[-1] = True
        if (begins or (word == "," and in_from[-1])) and (name := _name_at(tokens, at + 1)):
            yield name
        previous = word


def _name_at(tokens: list[str], at: int) -> str | None:
    if at >= len(tokens):
        return None
    token, following = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else ""
    if following in ("(", ".") or token.lower() in _NOT_A_TABLE:
        return None
    if token.startswith("`"):
        return _bare(token)
    return token if re.fullmatch(r"[A-Za-z_]\w*", token) else None


def _bare(token: str) -> str:
    return token[1:-1].replace("``", "`") if token.startswith("`") else token


def quoted(name: str) -> str:
    """A name quoted for SQL."""
    return f"`{name.replace('`', '``')}`"
