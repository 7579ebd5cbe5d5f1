"""The permissions of plain_acl.yml: `PUB`, `SUB`, both, or `DENY`; and `name=PERM` for a topic or group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kourou.access.model import Action
from kourou.errors import ConfigError

Permission = frozenset[Action]
"""What is granted; nothing: denied."""

DENY: Final[Permission] = frozenset()
_WORDS: Final[dict[str, Permission]] = {
    "PUB": frozenset({Action.PUB}),
    "SUB": frozenset({Action.SUB}),
    "PUB|SUB": frozenset({Action.PUB, Action.SUB}),
    "SUB|PUB": frozenset({Action.PUB, Action.SUB}),
    "DENY": DENY,
}


def is_permission(word: str) -> bool:
    """Whether it is one of RocketMQ's words."""
    return word.strip() in _WORDS


def parse_permission(word: str | None) -> Permission:
    """What a word grants. Like RocketMQ, an unknown word, or none, denies."""
    return _WORDS.get((word or "").strip(), DENY)


def split_grant(text: str) -> tuple[str, str] | None:
    """The name and the word of `name=PERM`; None if it is not that."""
    parts = [part for part in text.split("=") if part]
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None


def check_grants(grants: Iterable[str]) -> None:
    """ConfigError, in RocketMQ's words, if one of them is not `name=PERM` with a known word."""
    for grant in grants:
        parts = split_grant(grant)
        if parts is None:
            raise ConfigError(
                f"Parse Resource format error for {grant}.\n"
                "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
            )
        if not is_permission(parts[1]):
            raise ConfigError(
                f"Parse resource permission error for {grant}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )
