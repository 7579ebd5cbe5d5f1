"""OptionReader: parses the options of a Spark source or sink, and reports all mistakes at once.

Spark passes every option as text; names are case-insensitive. Not here: which options exist (options.py,
sink_options.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, TypeVar

from kourou.client.core.credentials import Credentials
from kourou.errors import ConfigError

T = TypeVar("T")

_YES: Final = frozenset({"true", "yes", "on", "1"})
_NO: Final = frozenset({"false", "no", "off", "0"})
_UNITS: Final = {
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
}
_TIMES_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionReader:
    """Reads options one by one; collects `problems`, and `finish` raises them together."""

    def __init__(
        self, kind: str, options: Mapping[str, str], names: Iterable[str], hints: Mapping[str, str]
    ) -> None:
        """`kind` is `source` or `sink`, `names` are the known options; `hints` are for names, in lower
        case, that are right elsewhere."""
        self.kind = kind
        self._hints = hints
        self._values = {name.lower(): str(value) for name, value in options.items()}
        self._names = {name.lower(): name for name in names}
        self.problems: list[str] = []

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name.lower() in self._values

    def text(self, name: str, default: str = "") -> str:
        """The option without surrounding spaces; `default` if not given."""
        return self._values.get(name.lower(), default).strip()

    def number(self, name: str, default: int, *, low: int = 1, high: int = 1 << 62) -> int:
        """An integer from `low` to `high`."""
        return self.value(name, default, lambda text: _number(text, low, high))

    def size_bytes(self, name: str, default: int, *, high: int = 1 << 62) -> int:
        """A number of bytes, up to `high`; `k`, `m` and `g` may follow it."""
        return self.value(name, default, lambda text: _size_bytes(text, high))

    def flag(self, name: str, default: bool) -> bool:
        """A switch: `true`, `yes`, `on` or `1`, and their opposites."""
        return self.value(name, default, _flag)

    def choice(self, name: str, default: str, allowed: Iterable[str]) -> str:
        """One of the `allowed` words, in any case."""
        return self.value(name, default, lambda text: _choice(text, list(allowed)))

    def duration_ms(self, name: str, default: int) -> int:
        """A duration as in Spark, `90s` or `15m`; a number alone is milliseconds."""
        return self.value(name, default, parse_duration_ms)

    def namesrv(self, environ: Mapping[str, str], *, is_needed: bool = True) -> str:
        """The name servers, from options or the environment."""
        found = self.text("namesrv") or self.text("nameServer") or environ.get("NAMESRV_ADDR", "")
        if not found and is_needed:
            self.problems.append(
                "the option namesrv is missing: the name servers as host:port, separated "
                "by ; (or set the environment variable NAMESRV_ADDR)"
            )
        return found

    def credentials(self) -> Credentials | None:
        """Credentials from accessKey, secretKey and securityToken; None without them."""
        access_key, secret_key = self.text("accessKey"), self.text("secretKey")
        token = self.text("securityToken") or None
        if access_key and secret_key:
            return Credentials(access_key, secret_key, token)
        if access_key or secret_key or token:
            self.problems.append("accessKey and secretKey belong together: one of them is missing")
        return None

    def value(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        """The option converted by `parse`, whose ValueError becomes a problem."""
        if not self.has(name):
            return default
        text = self.text(name)
        try:
            return parse(text)
        except ValueError as error:
            shown = text if len(text) <= 200 else f"{text[:200]}…"
            self.problems.append(f"option {name}={shown!r}: {error}")
            return default

    def _without_secrets(self, problem: str) -> str:
        """A secret that was given as the value of another option by mistake is not shown either."""
        for name in ("secretKey", "securityToken"):
            if secret := self.text(name):
                problem = problem.replace(secret, "…")
        return problem

    def finish(self) -> None:
        """Raise ConfigError with all problems, including unknown names."""
        unknown = [self._unknown(name) for name in self._values if name not in self._names]
        problems = [*unknown, *self.problems]
        if problems:
            raise refusal(self.kind, list(map(self._without_secrets, problems)))

    def _unknown(self, name: str) -> str:
        nearest = get_close_matches(name, self._names, n=1, cutoff=0.6)
        if name in self._hints:
            hint = self._hints[name]
        elif nearest:
            hint = f"did you mean {self._names[nearest[0]]}?"
        else:
            hint = "see docs/spark.md for the options"
        return f"unknown option {name!r}; {hint}"


def refusal(kind: str, problems: Sequence[str]) -> ConfigError:
    """All problems of a source or sink in one error."""
    return ConfigError(f"the rocketmq {kind} cannot be used: {problems[0]}", *problems[1:])


def _number(text: str, low: int, high: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None
    if not low <= number <= high:
        raise ValueError(f"must be a number from {low}" + (f", up to {high}" if high < 1 << 62 else ""))
    return number


def _size_bytes(text: str, high: int) -> int:
    digits = text.rstrip("bkmgBKMG ")
    unit = text[len(digits) :].strip().lower() or "b"
    if not digits.isdigit() or unit not in _UNITS or int(digits) < 1:
        raise ValueError("must be a number of bytes above 0; k, m and g may follow it")
    size_bytes = int(digits) * _UNITS[unit]
    if size_bytes > high:
        raise ValueError(f"must be at most {high} bytes")
    return size_bytes


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a duration such as `90s`; ValueError if it is none."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    if found is None or found[2] not in _TIMES_MS:
        raise ValueError("must be a duration such as 500ms, 90s, 15m or 2h")
    return int(found[1]) * _TIMES_MS[found[2]]


def _flag(text: str) -> bool:
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise ValueError("must be true or false")


def _choice(text: str, allowed: list[str]) -> str:
    for word in allowed:
        if text.lower() == word.lower():
            return word
    raise ValueError(f"must be one of {', '.join(allowed)}")
