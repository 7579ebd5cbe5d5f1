"""KEY=VALUE on a command line."""

from __future__ import annotations

from collections.abc import Iterable

from kourou.cli.problems import UsageError


def parse_pairs(option: str, texts: Iterable[str], *, form: str = "KEY=VALUE") -> dict[str, str]:
    """Several `KEY=VALUE`. UsageError names the `option` and its `form` for a text without `=`."""
    pairs = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise UsageError(f"{option} {text}: must be {form}")
        pairs[key.strip()] = value
    return pairs
