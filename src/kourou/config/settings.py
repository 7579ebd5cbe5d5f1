"""Reading entries against a table of keys: one loader for every component.

All problems are found before one ConfigError reports them together. What does not stop a start,
an unknown key or one without effect, becomes a note. Not here: files (properties_file.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kourou.config.home import folder_problem
from kourou.config.keys import BadValueError, Key, KeyTable, Value, format_value
from kourou.config.properties import Property
from kourou.errors import ConfigError

SET: Final = "--set"


@dataclass(slots=True)
class Settings:
    """What was read: typed values by key name, entries kept for others, notes, problems."""

    values: dict[str, Value] = field(default_factory=dict)
    # Keys of other components and unknown ones, as written, without secrets.
    extra: dict[str, str] = field(default_factory=dict)
    # The names of keys that belong to other components.
    foreign: list[str] = field(default_factory=list)
    # Unknown keys, each with a message that names the most similar known key.
    unknown: dict[str, str] = field(default_factory=dict)
    # Those of the notes that are about unknown keys.
    unknown_notes: list[str] = field(default_factory=list)
    # Key name to how it was given, as in `broker.conf:3: brokerId=1` or `--port 1`.
    given: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def check_folder(self, name: str, variable: str | None = None) -> None:
        """Report a folder, named by a key or else by an environment variable, that cannot exist."""
        folder = self.values.get(name) or variable
        problem = folder_problem(Path(str(folder)).absolute()) if folder else None
        if problem is not None:
            self.problems.append(f"{self.given.get(name, f'{name}={folder}')}: {problem}")

    def check(self) -> None:
        """Raise ConfigError with every problem found, if there are any.

        Notes about unknown keys are added, so that a mistyped key is corrected at the same time.
        """
        if self.problems:
            raise ConfigError(*self.problems, *(f"note: {note}" for note in self.unknown_notes))


class SettingsReader:
    """Reads entries for one component.

    `others` gives the keys of the remaining components; it is called only when a key is not ours,
    because their tables are long and a start should be short.
    """

    def __init__(self, own: KeyTable, others: Callable[[], KeyTable]) -> None:
        self._own = own
        self._others = others
        self.settings = Settings()

    def read_file(self, entries: Iterable[Property], source: str) -> None:
        """Read the entries of a file. An entry read later wins over an earlier one."""
        first_line: dict[str, int] = {}
        for entry in entries:
            where = f"{source}:{entry.line}"
            self._read(entry.key, entry.value, where, f"{where}: {entry.key}=")
            if entry.key in first_line:
                self._note(
                    f"{where}: {entry.key} is also set in line {first_line[entry.key]}; this one is used"
                )
            first_line.setdefault(entry.key, entry.line)

    def read_values(self, values: Mapping[str, str], source: str) -> None:
        """Read keys given in another way than a file, such as a variable or a request."""
        for name, text in values.items():
            self._read(name, text, source, f"{source}: {name}=")

    def read_options(
        self, values: Mapping[str, str], option_names: Mapping[str, str], *, notes_unused: bool = False
    ) -> None:
        """Read keys given by options of a command: those in `option_names` by one of their own, as
        `--port` for listenPort, the others by --set. `notes_unused`: note the entries read before that an
        option of its own overrides, for options that have defaults."""
        for name, text in values.items():
            option = option_names.get(name)
            if notes_unused and option is not None:
                self._note_unused(name, text, option)
            self._read(name, text, option or SET, f"{option} " if option else f"{SET} {name}=")

    def _read(self, name: str, text: str, where: str, before_value: str) -> None:
        key = self._own.find(name)
        if key is None:
            self._keep(name, text, where)
            return
        given = before_value + _shown(key, text)
        try:
            value = key.parse(text)
        except BadValueError as error:
            self.settings.problems.append(f"{given}: {error}")
        else:
            self.settings.values[key.name] = key.clamp(value)
            self.settings.given[key.name] = given
            self._note_effect(key, value, where)

    def _note_unused(self, name: str, text: str, option: str) -> None:
        key = self._own.find(name)
        before = None if key is None else self.settings.given.get(key.name)
        if key is not None and before is not None and format_value(self.settings.values[key.name]) != text:
            self._note(f"{before} is not used: {option} sets it")

    def _keep(self, name: str, text: str, where: str) -> None:
        others = self._others()
        key = others.find(name)
        if key is None or not key.secret:
            self.settings.extra[name] = text
        if key is not None:
            self.settings.foreign.append(name)
            return
        nearest = (self._own + others).nearest(name)
        hint = f"; did you mean {nearest}?" if nearest else "" if text else "; write key=value"
        self.settings.unknown[name] = f"unknown key {_printable(name)}{hint}"
        note = f"{where}: unknown key {_printable(name)} is ignored{hint}"
        self.settings.unknown_notes.append(note)
        self._note(note)

    def _note_effect(self, key: Key, value: Value, where: str) -> None:
        used = key.clamp(value)
        if used != value:
            self._note(
                f"{where}: {key.name}={format_value(value)} is out of range; {format_value(used)} is used"
            )
        elif key.instead and value != key.default:
            self._note(f"{where}: {key.name} has no effect: {key.instead}")

    def _note(self, note: str) -> None:
        if note not in self.settings.notes:
            self.settings.notes.append(note)


def _printable(name: str) -> str:
    # The content of a binary file must not reach the terminal unchanged.
    return name if name.isprintable() and len(name) <= 80 else ascii(name[:80])


def _shown(key: Key, text: str) -> str:
    return "***" if key.secret else text.strip()
