"""Quotas: how much an account may send and pull in a second, and how many connections it may have.

The file `limits.json` has them by account:

    {"billing": {"producedMessagesPerSecond": 1000, "producedBytesPerSecond": 10485760,
                 "consumedMessagesPerSecond": 5000, "consumedBytesPerSecond": 52428800, "connections": 50},
     "*": {"connections": 200}}

What is missing is not limited. `*` is for every account without an entry, administrators excepted.
Requests above a limit are refused with SYSTEM_BUSY and the time to wait. A second's worth may come at once;
what is larger is let through and paid for by waiting. Messages of a batch and of an atomic publish count
singly. Of pulls, pops, and queries that return messages, the answer counts, so the next one waits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol
from weakref import WeakSet

import msgspec

from kourou.access.model import AccessCall, AccessRefusedError, Account, RefusalKind
from kourou.errors import ConfigError, ProtocolError
from kourou.protocol.atomic import StagedGroup, decode_groups
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.over_limit import Limited, OverLimit
from kourou.wording import counted, suggestion

EVERY_ACCOUNT: Final = "*"
_SENDS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.STAGE_KOUROU_ATOMIC,
    }
)
_PULLS: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
    }
)
_LENGTH_BYTES: Final = 4
_TRUE: Final = ("true", "1")


class AccountLimits(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The limits of one account; None: none."""

    produced_messages_per_second: int | None = None
    produced_bytes_per_second: int | None = None
    consumed_messages_per_second: int | None = None
    consumed_bytes_per_second: int | None = None
    connections: int | None = None


_LIMITS: Final = tuple(field.encode_name for field in msgspec.structs.fields(AccountLimits))


class LimitedConnection(Protocol):
    """What limits need of a connection."""

    closed: bool


class _Bucket:
    """A second's worth of something, refilled all the time. It may be overdrawn."""

    __slots__ = ("_at_ms", "_level", "_rate", "_words")

    def __init__(self, rate: int, words: str, now_ms: int) -> None:
        self._rate = rate
        self._words = words
        self._level = float(rate)
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing may be taken; 0: it may now."""
        passed_ms, self._at_ms = now_ms - self._at_ms, now_ms
        self._level = min(float(self._rate), self._level + self._rate * passed_ms / 1_000)
        return 0 if self._level > 0 else int(-self._level * 1_000 / self._rate) + 1

    def take(self, amount: int) -> None:
        self._level -= amount

    def __str__(self) -> str:
        return f"more than {self._rate} {self._words} per second"


class _Use:
    """What one account uses."""

    __slots__ = ("connections", "consumed", "limits", "produced")

    def __init__(self, limits: AccountLimits, now_ms: int) -> None:
        self.limits = limits
        self.produced = (
            _bucket(limits.produced_messages_per_second, "messages are sent", now_ms),
            _bucket(limits.produced_bytes_per_second, "bytes are sent", now_ms),
        )
        self.consumed = (
            _bucket(limits.consumed_messages_per_second, "messages are pulled", now_ms),
            _bucket(limits.consumed_bytes_per_second, "bytes are pulled", now_ms),
        )
        # Weak: an account may have many before the limit makes it count those that are still open.
        self.connections: WeakSet[LimitedConnection] = WeakSet()


def _bucket(rate: int | None, words: str, now_ms: int) -> _Bucket | None:
    return None if rate is None else _Bucket(rate, words, now_ms)


class Quotas:
    """The limits of one server's accounts; times are monotonic."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._limits: dict[str, AccountLimits] = {}
        self._uses: dict[str, _Use] = {}

    @property
    def has_limits(self) -> bool:
        """Whether any account has."""
        return bool(self._limits)

    def replace(self, limits: dict[str, AccountLimits]) -> None:
        """From now on these count."""
        self._limits = limits
        self._uses.clear()

    def is_limited(self, account: Account) -> bool:
        """Whether each of its requests has to be seen."""
        return self._limits_of(account) is not None

    def admit(self, call: AccessCall, account: Account, connection: LimitedConnection) -> None:
        """Count a request. AccessRefusedError: the account is over a limit."""
        use = self._use_of(account)
        if use is None:
            return
        self._check_connections(use, account, connection)
        if call.code in _SENDS:
            self._check(use.produced, account)
            _take(use.produced, _message_count(call), len(call.body))
        elif call.code in _PULLS:
            self._check(use.consumed, account)

    def pulled(self, account_name: str, messages: int, size_bytes: int) -> None:
        """Messages are about to go to a consumer."""
        use = self._uses.get(account_name)
        if use is not None:
            _take(use.consumed, messages, size_bytes)

    def _limits_of(self, account: Account) -> AccountLimits | None:
        found = self._limits.get(account.name)
        return found if found is not None or account.is_admin else self._limits.get(EVERY_ACCOUNT)

    def _use_of(self, account: Account) -> _Use | None:
        use = self._uses.get(account.name)
        if use is None and (limits := self._limits_of(account)) is not None:
            # Only accounts that exist get here, so there are not many.
            use = self._uses[account.name] = _Use(limits, self._monotonic_ms())
        return use

    def _check_connections(self, use: _Use, account: Account, connection: LimitedConnection) -> None:
        limit = use.limits.connections
        if limit is None or connection in use.connections:
            return
        if len(use.connections) >= limit:
            use.connections = WeakSet(each for each in use.connections if not each.closed)
        if len(use.connections) >= limit:
            raise _over(account, f"it has {counted(limit, 'connection')}, and may not have more", None)
        use.connections.add(connection)

    def _check(self, buckets: tuple[_Bucket | None, _Bucket | None], account: Account) -> None:
        now_ms = self._monotonic_ms()
        waits = [(bucket.wait_ms(now_ms), bucket) for bucket in buckets if bucket is not None]
        for wait_ms, bucket in waits:
            if wait_ms:
                longest_ms = max(wait_ms for wait_ms, _ in waits)
                raise _over(account, str(bucket), longest_ms)


def _take(buckets: tuple[_Bucket | None, _Bucket | None], messages: int, size_bytes: int) -> None:
    by_message, by_byte = buckets
    if by_message is not None:
        by_message.take(messages)
    if by_byte is not None:
        by_byte.take(size_bytes)


def _message_count(call: AccessCall) -> int:
    if call.code == RequestCode.STAGE_KOUROU_ATOMIC:
        return max(1, sum(_entry_count(group.entries) for group in _groups(call.body)))
    flags = (call.fields.get("m", ""), call.fields.get("batch", ""))
    is_batch = call.code == RequestCode.SEND_BATCH_MESSAGE or any(flag.lower() in _TRUE for flag in flags)
    return max(1, _entry_count(call.body)) if is_batch else 1


def _groups(body: bytes) -> list[StagedGroup]:
    try:
        return decode_groups(body)
    except ProtocolError:
        return []  # its processor refuses it


def _entry_count(body: bytes) -> int:
    """The entries of a batch body, as far as it is one; each has its size first."""
    count = position = 0
    while position + _LENGTH_BYTES <= len(body):
        size = int.from_bytes(body[position : position + _LENGTH_BYTES], "big")
        if size < _LENGTH_BYTES:
            break
        count += 1
        position += size
    return count


def _over(account: Account, limit: str, wait_ms: int | None) -> AccessRefusedError:
    return AccessRefusedError(
        RefusalKind.OVER_QUOTA,
        ResponseCode.SYSTEM_BUSY,
        OverLimit(Limited.ACCOUNT, account.name, limit, wait_ms).remark(),
        user=account.name,
    )


class LimitsFile:
    """`limits.json`, read again when it has changed. Without the file there are no limits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> dict[str, AccountLimits]:
        """What it says. ConfigError. Waits for the disk."""
        self._seen = self._fingerprint()
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {error.strerror or error}") from None
        try:
            found = msgspec.json.decode(raw, type=dict[str, dict[str, Any]])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._path}: {error}") from None
        return {account: self._limits_of(account, limits) for account, limits in found.items()}

    def _limits_of(self, account: str, limits: dict[str, Any]) -> AccountLimits:
        for name, value in limits.items():
            if name not in _LIMITS:
                near = suggestion(name, _LIMITS)
                raise ConfigError(f"{self._path}: account {account}: there is no limit {name}{near}")
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"{self._path}: account {account}, {name}: must be a whole number above 0")
        return msgspec.convert(limits, AccountLimits)

    @property
    def has_changed(self) -> bool:
        """Whether it is another file than the one that was read. Waits for the disk."""
        return self._fingerprint() != self._seen

    def _fingerprint(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
