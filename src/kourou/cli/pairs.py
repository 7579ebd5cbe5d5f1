"""KEY=VALUE on a command line."""

from __future__ import annotations

from collections.abc import Iterable

from kourou.errors import ConfigError


def parse_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE`, several times. ConfigError: one is not; `option` is what it names."""
    pairs = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"{option} {text}: must be KEY=VALUE")
        pairs[key.strip()] = value
    return pairs
