"""Section: one mapping of a pipeline's file, read key by key; keys that are not read are mistakes.

Every method records mistakes and continues with its default, so that all mistakes are found at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from kourou.spark.pipelines.check.document import Mistakes, Value, nearest

T = TypeVar("T")

_YES: Final = frozenset({"true", "yes", "on"})
_NO: Final = frozenset({"false", "no", "off"})
_OPTION_WORDS: Final = re.compile(r"^the rocketmq (?:source|sink) cannot be used: ")


class Section:
    """A mapping, or whatever is in its place."""

    def __init__(self, value: Value, what: str, mistakes: Mistakes, folder: Path) -> None:
        """`what` names it in mistakes (`source orders`), `folder` is the base of relative paths."""
        self.what = what
        self.mistakes = mistakes
        self.folder = folder
        self.begin = value.line
        self._values: dict[str, Value] = {}
        if isinstance(value.content, dict):
            self._values = value.content
        else:
            mistakes.add(value.line, f"{self._prefix}must be a mapping, not {value.kind}")
        self._read: set[str] = set()

    @property
    def _prefix(self) -> str:
        return f"{self.what}: " if self.what else ""

    @property
    def names(self) -> list[str]:
        return list(self._values)

    def has(self, name: str) -> bool:
        """Whether a key is present."""
        return name in self._values

    def line(self, name: str) -> int:
        """The line of a key's value; the section's own line if the key is missing."""
        value = self._values.get(name)
        return self.begin if value is None else value.line

    def mistake(self, name: str, what: str) -> None:
        """Record a mistake in a key."""
        label = name if name in self._values else ""
        self.mistakes.add(self.line(name), f"{self._prefix}{label}{': ' if label else ''}{what}")

    def take(self, name: str) -> Value | None:
        """The value of a key; None and a mistake if it is empty."""
        self._read.add(name)
        value = self._values.get(name)
        if value is not None and value.content is None:
            self.mistake(name, "it is empty")
            return None
        return value

    def peek(self, name: str) -> str:
        """A text, without marking its key as read; empty if it is missing."""
        value = self._values.get(name)
        return (value.text or "").strip() if value is not None else ""

    def text(self, name: str, default: str | None = None) -> str | None:
        """The text of a key; `default` if it is missing."""
        value = self.take(name)
        if value is None:
            return default
        if value.text is None:
            self.mistake(name, f"must be text, not {value.kind}")
            return default
        if not value.text.strip():
            self.mistake(name, "it is empty")
            return default
        return value.text.strip()

    def parsed(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        """The result of `parse`, whose ValueError becomes a mistake."""
        text = self.text(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.mistake(name, str(error))
            return default

    def needed(self, name: str) -> str:
        """The text of a required key; a missing one is a mistake."""
        if not self.has(name):
            self.mistakes.add(self.begin, f"{self._prefix}{name} is missing")
        return self.text(name) or ""

    def flag(self, name: str, default: bool) -> bool:
        """The boolean of a key; `default` if it is missing."""
        return self.parsed(name, default, _flag)

    def number(self, name: str, default: int) -> int:
        """A whole number above 0."""
        return self.parsed(name, default, _number)

    def choice(self, name: str, default: str, allowed: list[str]) -> str:
        """One of the allowed words."""

        def choose(text: str) -> str:
            if text not in allowed:
                raise ValueError(f"invalid value {text!r}; {nearest(text, allowed)}")
            return text

        return self.parsed(name, default, choose)

    def words(self, name: str) -> tuple[str, ...]:
        """A text, or a list of texts."""
        value = self.take(name)
        items = value.content if value is not None and isinstance(value.content, list) else [value]
        words = []
        for item in items:
            if item is None:
                continue
            if item.text is None or not item.text.strip():
                self.mistakes.add(item.line, f"{self._prefix}{name}: expected a name, not {item.kind}")
            else:
                words.append(item.text.strip())
        return tuple(words)

    def path(self, name: str) -> str:
        """A path, relative to the file's folder; a URL such as s3://… is kept."""
        text = self.needed(name)
        return text if not text or "://" in text else str((self.folder / Path(text).expanduser()).resolve())

    def section(self, name: str) -> Section | None:
        """A mapping inside this one."""
        value = self.take(name)
        return None if value is None else Section(value, self._inner(name), self.mistakes, self.folder)

    def _inner(self, name: str) -> str:
        return f"{self.what}: {name}" if self.what else name

    def options(self, known: Iterable[str]) -> dict[str, str]:
        """The keys that are options of Spark or of the connector, in Spark's format: lists and mappings as
        JSON."""
        by_small = {name.lower(): name for name in known}
        found = {}
        for name in self.names:
            if name in self._read or name.lower() not in by_small:
                continue
            value = self.take(name)
            if value is not None:
                text = value.text if value.text is not None else json.dumps(value.plain())
                found[by_small[name.lower()]] = text
        return found

    def all_options(self) -> dict[str, str]:
        """Every remaining key, as text."""
        return self.options([name for name in self.names if name not in self._read])

    def tell(self, problems: Iterable[str]) -> None:
        """Record the connector's problems with options, on the lines of the options that they name."""
        small = {name.lower(): name for name in self.names}
        for problem in problems:
            words = re.findall(r"\w+", problem)
            name = next((small[word.lower()] for word in words if word.lower() in small), "")
            text = _OPTION_WORDS.sub("", problem)
            self.mistakes.add(self.line(name), f"{self._prefix}{text}")

    def finish(self, known: Iterable[str]) -> None:
        """Report keys that were not read; `known` are the valid ones."""
        names = list(known)
        for name in self.names:
            if name in self._read:
                continue
            if name in names:
                self.mistake(name, "it has no effect with the other keys; remove it")
            else:
                words = nearest(name, names)
                self.mistakes.add(self.line(name), f"{self._prefix}unknown key {name}; {words}")


def _flag(text: str) -> bool:
    small = text.lower()
    if small in _YES or small in _NO:
        return small in _YES
    raise ValueError("must be true or false")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError("must be a whole number above 0")
    return int(text)
