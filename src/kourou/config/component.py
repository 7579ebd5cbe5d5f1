"""ComponentConfig: what the configurations of all components have in common: show, change, save.

Not here: their keys (namesrv.py, broker.py), reading them from files (the loaders).
"""

from __future__ import annotations

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kourou.config.keys import STRING, BadValueError, Key, KeyTable, Value, format_value, setting, settings_of
from kourou.config.properties import format_properties
from kourou.config.properties_file import update_file
from kourou.config.settings import SettingsReader
from kourou.errors import ConfigError, UnknownKeyError
from kourou.wording import nearest


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ComponentConfig:
    """Base of a component's configuration; its settings are the fields of the class.

    Attributes and values set by a program are checked: ConfigError holds every problem.
    """

    # Apache has no default and refuses to start without it.
    rocketmq_home: str | None = setting(
        "Home folder",
        "rocketmqHome",
        STRING,
        None,
        "The folder of logs and data: `ROCKETMQ_HOME`, or `~/.local/share/kourou`, if not set.",
        live=False,
        protected=True,
        important=True,
    )
    # Each component declares the key, with its own default.
    config_black_list: str = ""
    # Other entries of the file, such as those of another component: shown and kept, as in Apache.
    extra: Mapping[str, str] = field(default_factory=dict)

    def __new__(cls, **values: object) -> Self:
        """Python's own error would name a wrong attribute, but not suggest the right one."""
        known = {field.name for field in dataclasses.fields(cls)}
        problems = [_no_attribute(cls, name) for name in values if name not in known]
        if problems:
            raise ConfigError(*problems)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        config_type: type = type(self)
        problems = [
            problem
            for attribute, key in settings_of(config_type).values()
            if (problem := _value_problem(attribute, key, getattr(self, attribute)))
        ]
        if problems:
            raise ConfigError(*problems)

    @property
    @abstractmethod
    def saved_in(self) -> str | None:
        """The file that changes are written to."""

    @classmethod
    def known_keys(cls) -> KeyTable:
        """The component's keys, those without effect included."""
        config_type: type = cls
        return KeyTable(key for _, key in settings_of(config_type).values())

    @classmethod
    @abstractmethod
    def other_keys(cls) -> KeyTable:
        """Keys of the other components, and of parts that are not here."""

    def to_properties(self) -> str:
        """The response to a config request: sorted `key=value` lines, no secrets."""
        return self._properties

    @functools.cached_property
    def _properties(self) -> str:
        # Cached: the values never change, and monitoring tools request them often.
        return format_properties({name: text for name, text in self.texts().items() if self.shows(name)})

    def shows(self, name: str) -> bool:
        """Whether a response may have this key; secrets are in none, whatever is returned here."""
        return True

    def accepts(self, name: str) -> bool:
        """Whether a request may change a key that is neither protected nor in the black list."""
        return True

    def texts(self, *, important: bool = False) -> dict[str, str]:
        """Key to text of everything shown; with `important` only what an operator looks at first."""
        texts = {} if important else dict(self.extra)
        for key, value in self.values():
            if _is_shown(key, value) and (not important or key.important or value != key.default):
                texts[key.name] = format_value(value)
        return texts

    def values(self) -> Iterator[tuple[Key, Value]]:
        """Every key with its value."""
        config_type: type = type(self)
        for attribute, key in settings_of(config_type).values():
            yield key, getattr(self, attribute)

    def updated(self, properties: Mapping[str, str]) -> Self:
        """A copy with new values. An unknown key raises UnknownKeyError, a bad value ConfigError; keys of
        other components are ignored, as in Apache.

        Entries of the file that are not ours are changed, too, so that the file and the response agree.
        """
        reader = SettingsReader(self.known_keys(), self.other_keys)
        reader.read_values(properties, "request")
        settings = reader.settings
        unknown = [words for name, words in settings.unknown.items() if name not in self.extra]
        if unknown:
            raise UnknownKeyError(*unknown, *settings.problems)
        settings.check()
        kept = {name: text for name, text in settings.extra.items() if name in self.extra}
        return self._with(settings.values, {**self.extra, **kept})

    def _with(self, values: Mapping[str, Value], extra: Mapping[str, str]) -> Self:
        return dataclasses.replace(self, **attributes_of(type(self), values), extra=extra)

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that no request may change: those of `configBlackList` and the protected ones."""
        config_type: type = type(self)
        listed = {name.strip() for name in self.config_black_list.split(";") if name.strip()}
        return frozenset(
            listed | {name for name, (_, key) in settings_of(config_type).items() if key.protected}
        )

    def may_change(self, names: Iterable[str]) -> bool:
        """Whether a request may change all of these: none is in the black list, by any of its spellings, nor
        protected in the other components that the same file may be for, and the component accepts them."""
        black_list = self.black_list
        for name in names:
            key = self.known_keys().find(name) or self.other_keys().find(name)
            if name in black_list or (key is not None and (key.protected or key.name in black_list)):
                return False
            if not self.accepts(name):
                return False
        return True

    @classmethod
    def change_note(cls, changes: Iterable[str]) -> str | None:
        """What to say of changed keys that are not in force now; None if all are.

        >>> from kourou.config import BrokerConfig
        >>> BrokerConfig.change_note(["listenPort", "fileReservedTime"])
        'listenPort takes effect at the next start of the server'
        >>> BrokerConfig.change_note(["fileReservedTime"]) is None
        True
        """
        keys = list(filter(None, map(cls.known_keys().find, changes)))
        later = [key.name for key in keys if not key.live and not key.instead]
        notes = [f"{key.name} has no effect: {key.instead}" for key in keys if key.instead]
        if later:
            verb = "takes" if len(later) == 1 else "take"
            notes.append(f"{', '.join(later)} {verb} effect at the next start of the server")
        return "; ".join(notes) or None

    def persist(self, changes: Mapping[str, str]) -> None:
        """Write changed keys to the file they are saved in; on return they are on disk.

        Only known keys are written; comments and other lines of the file stay.
        """
        known = dict(self._known(changes))
        if known and self.saved_in is not None:
            update_file(Path(self.saved_in), known)

    def _known(self, changes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        table = self.known_keys()
        for name, text in changes.items():
            key = table.find(name)
            if key is not None or name in self.extra:
                yield (key.name if key else name), text


def attributes_of(config_type: type, values: Mapping[str, Value]) -> dict[str, Any]:
    """Attribute to value, from key name to value. The keys have checked that the types fit."""
    known = settings_of(config_type)
    return {known[name][0]: value for name, value in values.items()}


def _is_shown(key: Key, value: Value) -> bool:
    return value is not None and not key.secret and (key.shown or value != key.default)


def _value_problem(attribute: str, key: Key, value: object) -> str | None:
    try:
        key.check_value(value)
    except BadValueError as error:
        return f"{attribute}={'***' if key.secret else repr(value)}: {error}"
    return None


def _no_attribute(config_type: type[ComponentConfig], name: str) -> str:
    """Suggest the right attribute: files have RocketMQ's keys, programs their snake_case form."""
    keyed: type = config_type
    attributes = {field.name for field in dataclasses.fields(config_type)}
    by_key = {key_name: attribute for key_name, (attribute, _) in settings_of(keyed).items()}
    key = config_type.known_keys().find(name)
    if key is not None and key.name not in by_key:
        return f"{name}: {config_type.__name__} has no such attribute: {key.instead}"
    near = by_key[key.name] if key is not None else nearest(name, attributes, likeness=0.75)
    hint = f"; did you mean {near}?" if near else ""
    return f"{name}: {config_type.__name__} has no such attribute{hint}"
