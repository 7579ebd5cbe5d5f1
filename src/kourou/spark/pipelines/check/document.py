"""A YAML file as values with line numbers, and the mistakes found in it.

Scalars stay text as written: `no` is the word no, and 0123 has four digits; whether a value is a number or a
flag is decided by its reader. `${NAME}` and `${NAME:-default}` are replaced from the environment, and `$${`
is `${`. Not here: the meaning of values (checking.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kourou import wording
from kourou.errors import ConfigError

_INSTALL: Final = "pipelines are declared in YAML and need PyYAML: pip install 'kourou[spark]'"
_MAX_BYTES: Final = 1 << 20
"""Pipelines are written by hand; a larger file is the wrong one."""
_VARIABLE: Final = re.compile(r"\$(\$\{)|\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}")
_MAX_NAMES: Final = 50
"""Enough for the keys of a section, but not for all topics of a cluster."""
_CORE_TAG: Final = "tag:yaml.org,2002:"


class PipelineFileError(ConfigError):
    """A pipeline's file is invalid. `mistakes` has each mistake with its line; 0 is the file as a whole."""

    def __init__(self, file: str, mistakes: list[tuple[int, str]]) -> None:
        self.file = file
        self.mistakes = mistakes
        super().__init__(
            *(f"{file}:{line}: {what}" if line else f"{file}: {what}" for line, what in mistakes)
        )


@dataclass(slots=True)
class Mistakes:
    """Collects the mistakes in one file."""

    file: str
    found: dict[tuple[int, str], None] = field(default_factory=dict)
    """In the order in which they were found, without duplicates."""

    def add(self, line: int, what: str) -> None:
        self.found[line, what] = None

    def finish(self) -> None:
        """Raise PipelineFileError with all mistakes, by line, if there are any."""
        if self.found:
            raise PipelineFileError(self.file, sorted(self.found, key=lambda mistake: mistake[0]))


@dataclass(frozen=True, slots=True)
class Value:
    """A text, a list, a mapping, or None, and its first line."""

    line: int
    content: str | list[Value] | dict[str, Value] | None

    @property
    def text(self) -> str | None:
        """The text, or None if it is something else."""
        return self.content if isinstance(self.content, str) else None

    @property
    def kind(self) -> str:
        """Its kind in words, for messages: `a list`, `a text` and so on."""
        if self.content is None:
            return "empty"
        return {str: "a text", list: "a list", dict: "a mapping"}[type(self.content)]

    def plain(self) -> Any:
        """The value without line numbers, for JSON; texts that are integers become numbers."""
        if isinstance(self.content, dict):
            return {name: value.plain() for name, value in self.content.items()}
        if isinstance(self.content, list):
            return [value.plain() for value in self.content]
        if self.content is not None and re.fullmatch(r"-?\d{1,18}", self.content):
            return int(self.content)
        return self.content


def nearest(word: str, known: Mapping[str, Any] | list[str]) -> str:
    """A suggestion: the most similar name, or else the available ones."""
    names = list(known)
    near = wording.nearest(word, names)
    if near is not None:
        return f"did you mean {near}?"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"there are {', '.join(names[:_MAX_NAMES])}{more}" if names else "there are none"


def read_document(path: Path, environ: Mapping[str, str], mistakes: Mistakes) -> Value:
    """The file's mapping. PipelineFileError when it cannot be read, or is not YAML."""
    raw = _read(path, mistakes)
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(_INSTALL) from error
    try:
        loader = yaml.SafeLoader(raw)
        try:
            node = loader.get_single_node()
            value = _Builder(loader, environ, mistakes).value(node) if node is not None else Value(1, None)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mistakes.add(*_syntax(error))
        mistakes.finish()
        raise
    if not isinstance(value.content, dict):
        mistakes.add(value.line, f"a pipeline must be a mapping with sources and sinks; this is {value.kind}")
        mistakes.finish()
    return value


def _read(path: Path, mistakes: Mistakes) -> str:
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            mistakes.add(0, f"larger than {_MAX_BYTES} bytes; this is not a pipeline")
        text = raw.decode("utf-8-sig")
    except OSError as error:
        mistakes.add(0, f"cannot read it: {error.strerror or error}")
    except UnicodeDecodeError as error:
        mistakes.add(raw[: error.start].count(b"\n") + 1, "not valid UTF-8")
    mistakes.finish()
    return text


def _syntax(error: Any) -> tuple[int, str]:
    """Line and text of an error of PyYAML."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    words = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    context = f" {error.context}" if getattr(error, "context", None) else ""
    return (mark.line + 1 if mark else 0), f"not valid YAML:{context} {words}"


class _Builder:
    def __init__(self, loader: Any, environ: Mapping[str, str], mistakes: Mistakes) -> None:
        self._loader = loader
        self._environ = environ
        self._mistakes = mistakes
        self._within: set[int] = set()

    def value(self, node: Any) -> Value:
        """The value of a node."""
        line = node.start_mark.line + 1
        if not node.tag.startswith(_CORE_TAG):
            self._mistakes.add(line, f"unsupported tag {node.tag}; remove it")
            return Value(line, None)
        if id(node) in self._within:
            self._mistakes.add(line, "an alias refers to itself")
            return Value(line, None)
        self._within.add(id(node))
        try:
            return Value(line, self._content(node, line))
        finally:
            self._within.discard(id(node))

    def _content(self, node: Any, line: int) -> str | list[Value] | dict[str, Value] | None:
        if node.id == "mapping":
            return self._mapping(node)
        if node.id == "sequence":
            return [self.value(item) for item in node.value]
        if node.tag == f"{_CORE_TAG}null":
            return None
        return self._replaced(node.value, line)

    def _mapping(self, node: Any) -> dict[str, Value]:
        self._report_repeated(node)
        # `<<` merges another mapping.
        self._loader.flatten_mapping(node)
        found: dict[str, Value] = {}
        for key, value in node.value:
            if key.id == "scalar":
                found[str(key.value)] = self.value(value)
            else:
                self._mistakes.add(key.start_mark.line + 1, "a name must be text, not a list or a mapping")
        return found

    def _report_repeated(self, node: Any) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if key.id != "scalar" or key.tag.endswith(":merge"):
                continue
            if key.value in lines:
                self._mistakes.add(line, f"duplicate key {key.value}, first used on line {lines[key.value]}")
            lines.setdefault(key.value, line)

    def _replaced(self, text: str, line: int) -> str:
        def put(match: re.Match[str]) -> str:
            if match[1]:
                return match[1]
            value = self._environ.get(match["name"]) or match["default"]
            if value is None:
                self._mistakes.add(
                    line, f"the environment variable {match['name']} is not set; {_set_it(match['name'])}"
                )
                return ""
            return value

        return _VARIABLE.sub(put, text)


def _set_it(name: str) -> str:
    return f"set it, or use a default: ${{{name}:-…}}"
