"""A YAML file as values that know their lines, and the mistakes found in it.

Scalars stay the text that was written: `no` is the word no, and 0123 has four digits; what is a number or a
flag is decided where it is read. `${NAME}` and `${NAME:-default}` are replaced from the environment, and
`$${` is `${`. Not here: what the values mean (checking.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kourou import wording
from kourou.errors import ConfigError

_INSTALL: Final = "pipelines are declared in YAML, and PyYAML is missing: pip install 'kourou[spark]'"
_MAX_BYTES: Final = 1 << 20
"""A pipeline is written by hand; more is a file taken for another."""
_VARIABLE: Final = re.compile(r"\$(\$\{)|\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}")
_MAX_NAMES: Final = 50
"""All keys of a section, and not all topics of a cluster."""
_CORE_TAG: Final = "tag:yaml.org,2002:"


class PipelineFileError(ConfigError):
    """A pipeline's file cannot be used. `mistakes` has every one with its line; 0 is the file as a whole."""

    def __init__(self, file: str, mistakes: list[tuple[int, str]]) -> None:
        self.file = file
        self.mistakes = mistakes
        super().__init__(
            *(f"{file}:{line}: {what}" if line else f"{file}: {what}" for line, what in mistakes)
        )


@dataclass(slots=True)
class Mistakes:
    """Collects what is wrong with one file."""

    file: str
    found: dict[tuple[int, str], None] = field(default_factory=dict)
    """In the order in which they were found, each once."""

    def add(self, line: int, what: str) -> None:
        """One more."""
        self.found[line, what] = None

    def finish(self) -> None:
        """PipelineFileError with all of them, by line; nothing where there are none."""
        if self.found:
            raise PipelineFileError(self.file, sorted(self.found, key=lambda mistake: mistake[0]))


@dataclass(frozen=True, slots=True)
class Value:
    """A text, a list, a mapping, or nothing (None), and the line on which it begins."""

    line: int
    content: str | list[Value] | dict[str, Value] | None

    @property
    def text(self) -> str | None:
        """The text, if it is one."""
        return self.content if isinstance(self.content, str) else None

    @property
    def kind(self) -> str:
        """What it is, for a sentence."""
        if self.content is None:
            return "empty"
        return {str: "a text", list: "a list", dict: "a mapping"}[type(self.content)]

    def plain(self) -> Any:
        """Without lines, as JSON would have it; texts that are whole numbers are numbers."""
        if isinstance(self.content, dict):
            return {name: value.plain() for name, value in self.content.items()}
        if isinstance(self.content, list):
            return [value.plain() for value in self.content]
        if self.content is not None and re.fullmatch(r"-?\d{1,18}", self.content):
            return int(self.content)
        return self.content


def nearest(word: str, known: Mapping[str, Any] | list[str]) -> str:
    """Words about what was meant: the name most like it, else what there is."""
    names = list(known)
    near = wording.nearest(word, names)
    if near is not None:
        return f"did you mean {near}?"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"there are {', '.join(names[:_MAX_NAMES])}{more}" if names else "there are none"


def read_document(path: Path, environ: Mapping[str, str], mistakes: Mistakes) -> Value:
    """The file's mapping. PipelineFileError when it cannot be read, or is no YAML at all."""
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
        mistakes.add(value.line, f"a pipeline is a mapping with sources and sinks; this is {value.kind}")
        mistakes.finish()
    return value


def _read(path: Path, mistakes: Mistakes) -> str:
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            mistakes.add(0, f"it has more than {_MAX_BYTES} bytes; that is no pipeline")
        text = raw.decode("utf-8-sig")
    except OSError as error:
        mistakes.add(0, f"it cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        mistakes.add(raw[: error.start].count(b"\n") + 1, "it is not UTF-8 here")
    mistakes.finish()
    return text


def _syntax(error: Any) -> tuple[int, str]:
    """Line and words of an error of PyYAML's."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    words = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    context = f" {error.context}" if getattr(error, "context", None) else ""
    return (mark.line + 1 if mark else 0), f"it is no YAML:{context} {words}"


class _Builder:
    """Values from PyYAML's nodes."""

    def __init__(self, loader: Any, environ: Mapping[str, str], mistakes: Mistakes) -> None:
        self._loader = loader
        self._environ = environ
        self._mistakes = mistakes
        self._within: set[int] = set()

    def value(self, node: Any) -> Value:
        """The value of a node."""
        line = node.start_mark.line + 1
        if not node.tag.startswith(_CORE_TAG):
            self._mistakes.add(line, f"the tag {node.tag} is not understood; leave it out")
            return Value(line, None)
        if id(node) in self._within:
            self._mistakes.add(line, "an alias that is inside itself")
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
        # `<<` takes what another mapping has.
        self._loader.flatten_mapping(node)
        found: dict[str, Value] = {}
        for key, value in node.value:
            if key.id == "scalar":
                found[str(key.value)] = self.value(value)
            else:
                self._mistakes.add(key.start_mark.line + 1, "a name is a text, not a list or a mapping")
        return found

    def _report_repeated(self, node: Any) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if key.id != "scalar" or key.tag.endswith(":merge"):
                continue
            if key.value in lines:
                self._mistakes.add(line, f"{key.value} is there already, on line {lines[key.value]}")
            lines.setdefault(key.value, line)

    def _replaced(self, text: str, line: int) -> str:
        def put(match: re.Match[str]) -> str:
            if match[1]:
                return match[1]
            value = self._environ.get(match["name"]) or match["default"]
            if value is None:
                self._mistakes.add(line, f"the environment has no {match['name']}; {_set_it(match['name'])}")
                return ""
            return value

        return _VARIABLE.sub(put, text)


def _set_it(name: str) -> str:
    return f"set it, or give a default: ${{{name}:-…}}"
