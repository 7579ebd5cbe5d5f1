"""Lockout: addresses that log in wrongly again and again are refused without a look at their signatures.

Counted are unknown users and wrong signatures, by address and user: a client with an old secret does not lock
out the others of its host. An address that tries many users is locked out as a whole. Requests that are
refused because of a lock are not counted. The oldest entries are forgotten when there are too many, so
memory is bounded.
Of IPv6 the first 64 bits count: a host has all addresses behind them, and may use each once. An IPv4 address
that is written as an IPv6 one counts as IPv4.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from kourou.config.networks import source_of

MAX_ENTRIES: Final = 10_000
_ADDRESS_FACTOR: Final = 10
"""Wrong logins with any users, as a multiple of those with one, until the whole address is locked out."""
_NAME_CHARACTERS: Final = 64


class LockedOut(enum.Enum):
    """What a wrong login has locked out."""

    USER = enum.auto()
    """One user at an address."""
    ADDRESS = enum.auto()
    """All users at an address."""


@dataclass(slots=True)
class _Failures:
    begun_ms: int
    count: int = 0
    locked_until_ms: int = 0


class Lockout:
    """The addresses of one server; times are monotonic."""

    __slots__ = ("_attempts", "_entries", "_locked_until_ms", "_time_ms", "_window_ms")

    def __init__(self, *, attempts: int, window_ms: int, time_ms: int) -> None:
        self._attempts = attempts
        self._window_ms = window_ms
        self._time_ms = time_ms
        self._entries: OrderedDict[tuple[str, str], _Failures] = OrderedDict()
        # By address, for all users from there; the end of the last lock.
        self._locked_until_ms: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    def left_ms(self, address: str, user: str, now_ms: int) -> int:
        """How long logins of this user from this address are still refused; 0: they are not."""
        if not self._entries:
            return 0
        source = source_of(address)
        return max(self._left_ms((source, ""), now_ms), self._left_ms(_key(source, user), now_ms))

    def has_lock(self, address: str, now_ms: int) -> bool:
        """Whether logins of any user from this address are refused."""
        if not self._locked_until_ms:
            return False
        source = source_of(address)
        until_ms = self._locked_until_ms.get(source)
        if until_ms is not None and until_ms <= now_ms:
            del self._locked_until_ms[source]
            return False
        return until_ms is not None

    def failed(self, address: str, user: str, now_ms: int) -> LockedOut | None:
        """A login was wrong; what is locked from now on, and was not before."""
        source = source_of(address)
        is_user_locked = self._count(_key(source, user), self._attempts, now_ms)
        if self._count((source, ""), self._attempts * _ADDRESS_FACTOR, now_ms):
            return LockedOut.ADDRESS
        return LockedOut.USER if is_user_locked else None

    @property
    def time_ms(self) -> int:
        """How long a lock lasts."""
        return self._time_ms

    def _left_ms(self, key: tuple[str, str], now_ms: int) -> int:
        found = self._entries.get(key)
        if found is None or not found.locked_until_ms:
            return 0
        if found.locked_until_ms > now_ms:
            return found.locked_until_ms - now_ms
        del self._entries[key]
        return 0

    def _count(self, key: tuple[str, str], limit: int, now_ms: int) -> bool:
        found = self._entries.get(key)
        if found is None or (found.begun_ms + self._window_ms < now_ms and not found.locked_until_ms):
            self._entries.pop(key, None)
            found = self._entries[key] = _Failures(now_ms)
            if len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
        found.count += 1
        if found.count < limit or found.locked_until_ms:
            return False
        source, found.locked_until_ms = key[0], now_ms + self._time_ms
        self._locked_until_ms.pop(source, None)
        self._locked_until_ms[source] = found.locked_until_ms
        if len(self._locked_until_ms) > MAX_ENTRIES:
            self._locked_until_ms.popitem(last=False)
        return True


def _key(source: str, user: str) -> tuple[str, str]:
    # A key that begins with a blank is no address's own.
    return source, " " + user[:_NAME_CHARACTERS]
