"""The fields of a schema in Spark's DDL (`id string NOT NULL, amount decimal(10,2)`), without Spark.

Parses only what is needed to name fields, and to find mistakes before a JVM starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kourou.wording import suggestion

_SIMPLE: Final = (
    "string", "boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float",
    "real", "double", "decimal", "dec", "numeric", "date", "timestamp", "timestamp_ntz", "timestamp_ltz",
    "binary", "char", "character", "varchar", "variant", "time", "interval", "void",
)  # fmt: skip
_NESTED: Final = ("array", "map", "struct")
_ARITY: Final = {"array": 1, "map": 2}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<sign>[<>(),:]))"
)
_END: Final = ""


@dataclass(frozen=True, slots=True)
class Field:
    """A field at the top of a schema."""

    name: str
    type: str
    is_required: bool


def parse_ddl(text: str) -> list[Field]:
    """The fields. ValueError describes the mistake, with the nearest type name."""
    parser = _Parser(text)
    fields = parser.fields(until=_END)
    names = [field.name.lower() for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"duplicate field {name}")
    return fields


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def fields(self, until: str) -> list[Field]:
        """Fields up to a closing token."""
        found = [self._field()]
        while self._peek() == ",":
            self._next()
            found.append(self._field())
        self._expect(until)
        return found

    def _field(self) -> Field:
        name = self._next()
        if not name or name in "<>(),:":
            raise ValueError(f"a field's name is missing {self._place(name)}")
        if self._peek() == ":":
            self._next()
        kind = self._type(f"field {name.strip('`')}")
        required = False
        if self._peek().lower() == "not":
            self._next()
            if self._next().lower() != "null":
                raise ValueError(f"field {name}: NOT must be followed by NULL")
            required = True
        if self._peek().lower() == "comment":
            self._next()
            self._next()
        if self._peek() not in (",", ">", _END):
            raise ValueError(f"a comma is missing {self._place(self._peek())}")
        return Field(_bare(name), kind, required)

    def _type(self, of: str) -> str:
        word = self._next().lower()
        if not word or word in "<>(),:":
            raise ValueError(f"{of}: its type is missing")
        if word in _NESTED:
            return self._nested(word, of)
        if word not in _SIMPLE:
            near = suggestion(word, (*_SIMPLE, *_NESTED))
            raise ValueError(f"{of}: unknown type {word!r}{near}")
        if word == "interval":
            return f"interval {' '.join(self._interval())}".strip()
        if self._peek() == "(":
            return f"{word}({','.join(self._numbers(of))})"
        return word

    def _interval(self) -> list[str]:
        words = []
        while self._peek().lower() in ("year", "month", "day", "hour", "minute", "second", "to"):
            words.append(self._next().lower())
        return words

    def _numbers(self, of: str) -> list[str]:
        numbers = []
        self._next()
        while self._peek() != ")":
            number = self._next()
            if not number.isdigit():
                raise ValueError(f"{of}: expected a number in ( ), not {number!r}")
            numbers.append(number)
            if self._peek() == ",":
                self._next()
        self._next()
        return numbers

    def _nested(self, word: str, of: str) -> str:
        self._expect("<")
        if word == "struct":
            inner = ",".join(f"{field.name}:{field.type}" for field in self.fields(until=">"))
            return f"struct<{inner}>"
        kinds = [self._type(of)]
        while self._peek() == ",":
            self._next()
            kinds.append(self._type(of))
        self._expect(">")
        if len(kinds) != _ARITY[word]:
            raise ValueError(
                f"{of}: {word} takes {_ARITY[word]} type{'s' * (word == 'map')}, not {len(kinds)}"
            )
        return f"{word}<{','.join(kinds)}>"

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, sign: str) -> None:
        token = self._next()
        if token != sign:
            raise ValueError(f"expected {sign or 'the end'} {self._place(token)}")

    def _place(self, token: str) -> str:
        return f"before {token!r}" if token else "at the end"


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(
                f"{text[at:].strip()[:20]!r} is not part of a schema; quote special names in ` `"
            )
        found.append(match[0].strip())
        at = match.end()
    return found


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
