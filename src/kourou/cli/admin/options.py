"""Options of a command, parsed like Apache's tools do.

`-t v`, `-t=v`, `-tv`, `--topic v`, `--topic=v`, `-topic v` and any unambiguous prefix of a long name. Extra
words are ignored, values are stripped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kourou.cli.problems import UsageError
from kourou.wording import nearest

_NUMBER: Final = re.compile(r"-\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Options of the same `group` exclude each other; if required, one of them must be given."""

    letter: str
    name: str
    about: str
    takes_value: bool = True
    is_required: bool = False
    group: str = ""
    aliases: tuple[str, ...] = ()
    """Other accepted spellings, not shown in the help, without dashes."""
    is_ours: bool = False
    """Not Apache's: its name cannot be abbreviated."""
    is_value_optional: bool = False
    """A flag in one version of RocketMQ, with a value in another; without one the value is empty."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """All accepted names, without dashes."""
        return tuple(word for word in (self.letter, self.name, *self.aliases) if word)

    @property
    def shown(self) -> str:
        """The name in messages: the letter if it has one."""
        return self.letter or self.name


def value(letter: str, name: str, about: str, *aliases: str) -> Option:
    """An optional option with a value."""
    return Option(letter, name, about, aliases=aliases)


def required(letter: str, name: str, about: str, *aliases: str) -> Option:
    """A required option with a value."""
    return Option(letter, name, about, is_required=True, aliases=aliases)


def flag(letter: str, name: str, about: str, *aliases: str) -> Option:
    """An option without a value."""
    return Option(letter, name, about, takes_value=False, aliases=aliases)


def one_of(*options: Option) -> tuple[Option, ...]:
    """Options of which exactly one is required."""
    group = "|".join(option.shown for option in options)
    return tuple(
        Option(
            option.letter, option.name, option.about, is_required=True, group=group, aliases=option.aliases
        )
        for option in options
    )


class ParsedArgs:
    """The parsed arguments, by the long names of the options."""

    def __init__(
        self, values: Mapping[str, str], options: Sequence[Option] = (), words: Sequence[str] = ()
    ) -> None:
        self._values = dict(values)
        self.words = tuple(words)
        """Words that are neither options nor values; most commands ignore them."""
        self._shown = {option.name: option.shown for option in options}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> str | None:
        """The value; None if the option was not given."""
        return self._values.get(name)

    def text(self, name: str, default: str = "") -> str:
        """The value, or `default` if the option was not given."""
        return self._values.get(name, default)

    def number(self, name: str, default: int = 0) -> int:
        """The value as an integer. UsageError if it is not one."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            shown = self._shown.get(name, name)
            dashes = "-" if len(shown) < 3 else "--"
            raise UsageError(f"{dashes}{shown} {text}: must be a whole number") from None

    def truth(self, name: str, default: bool = False) -> bool:
        """Whether the value is `true`, in any case; anything else is false."""
        text = self._values.get(name)
        return default if text is None else text.lower() == "true"

    def flag(self, name: str) -> bool:
        """Whether a flag was given."""
        return name in self._values


def parse(options: Sequence[Option], words: Sequence[str]) -> ParsedArgs:
    """Parse the words after a command. UsageError with the text of Apache's parser and the nearest option."""
    values: dict[str, str] = {}
    chosen: dict[str, Option] = {}
    left_over: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            left_over.append(word)
            continue
        option, text = _option_of(options, word)
        if option.group:
            other = chosen.setdefault(option.group, option)
            if other is not option:
                raise UsageError(
                    f"The option '{option.shown}' was specified but an option from this group has already "
                    f"been selected: '{other.shown}'"
                )
        if option.takes_value and text is None:
            if rest and not _is_option(options, rest[0]):
                text = rest.pop(0)
            elif not option.is_value_optional:
                raise UsageError(f"Missing argument for option: {option.shown}")
        values[option.name] = (text or "").strip()
    return ParsedArgs(values, options, left_over)


def check_required(options: Iterable[Option], args: ParsedArgs) -> None:
    """UsageError that names all missing options."""
    missing: dict[str, list[Option]] = {}
    for option in options:
        if option.is_required:
            missing.setdefault(option.group or option.name, []).append(option)
    lacking = [
        "[" + ", ".join(f"-{option.shown} {option.about}" for option in group) + "]"
        if len(group) > 1
        else group[0].shown
        for group in missing.values()
        if not any(option.name in args for option in group)
    ]
    if lacking:
        raise UsageError(f"Missing required option{'s' if len(lacking) > 1 else ''}: {', '.join(lacking)}")


def _option_of(options: Sequence[Option], word: str) -> tuple[Option, str | None]:
    """The option that a word names, and the value contained in the same word."""
    bare, equals, text = word.lstrip("-").partition("=")
    attached = text if equals else None
    for option in options:
        if bare in option.spellings:
            return option, attached
    if not word.startswith("--"):
        for option in options:
            if option.takes_value and len(option.letter) == 1 and word[1:].startswith(option.letter):
                beginning = _by_beginning(options, bare)
                if beginning is not None:
                    return beginning, attached
                return option, word[2:]
    beginning = _by_beginning(options, bare)
    if beginning is not None:
        return beginning, attached
    near = nearest(bare, (option.name for option in options))
    raise UsageError(f"Unrecognized option: {word}" + (f"; did you mean --{near}?" if near else ""))


def _by_beginning(options: Sequence[Option], bare: str) -> Option | None:
    found = [option for option in options if not option.is_ours and bare and option.name.startswith(bare)]
    if len(found) > 1:
        names = ", ".join(f"'{option.name}'" for option in found)
        raise UsageError(f"Ambiguous option: '--{bare}'  (could be: {names})")
    return found[0] if found else None


def _is_option(options: Sequence[Option], word: str) -> bool:
    """Whether a word is an option; -1 is a value."""
    if not word.startswith("-") or word == "-" or _NUMBER.fullmatch(word):
        return False
    bare = word.lstrip("-").partition("=")[0]
    return any(bare in option.spellings for option in options)
