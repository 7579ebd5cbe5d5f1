"""Stores for @idempotent: in memory, in an SQLite file, in Redis.

                 shared by               survives            a message repeats when
    MemoryStore  threads of one process  nothing             the process ends, or the key is evicted
    SqliteStore  processes of a machine  a restart           a crash comes after the work, before `finish`
    RedisStore   machines                as much as Redis    the same, or Redis forgets

For messages that must never repeat, see idempotence_database.py.
Not here: when a key is claimed, finished and released (idempotence.py).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, Self

from kourou.client.idempotence.store_protocols import Claim

DEFAULT_DONE_SECONDS: Final = 7 * 24 * 3600.0
"""How long a finished key is kept: longer than a broker keeps messages by default."""
_DONE: Final = "done"
_CLAIMS_PER_CLEANING: Final = 1_000


class MemoryStore:
    """Keys in memory: the `max_keys` most recently used, for `done_seconds`. For tests, or if repeats are
    harmless.

    >>> store = MemoryStore()
    >>> store.claim("order-1", "me", 60), store.claim("order-1", "you", 60)
    (<Claim.CLAIMED: 'claimed'>, <Claim.IN_PROGRESS: 'in progress'>)
    >>> store.finish("order-1")
    >>> store.claim("order-1", "you", 60)
    <Claim.DONE: 'done'>
    """

    is_blocking: Final = False

    def __init__(
        self,
        *,
        max_keys: int = 100_000,
        done_seconds: float = DEFAULT_DONE_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_keys = max_keys
        self._done_seconds = done_seconds
        self._now = now
        self._lock = threading.Lock()
        # Key to owner (or done) and expiry; least recently used first.
        self._keys: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def claim(self, key: str, owner: str, lease_seconds: float) -> Claim:
        """Claim `key` for `owner` if it is free."""
        with self._lock:
            now = self._now()
            state, expires = self._keys.get(key, ("", now))
            if expires > now:
                self._keys.move_to_end(key)
                return Claim.DONE if state == _DONE else Claim.IN_PROGRESS
            self._put(key, owner, now + lease_seconds)
            return Claim.CLAIMED

    def finish(self, key: str) -> None:
        """Mark the work of `key` as done."""
        with self._lock:
            self._put(key, _DONE, self._now() + self._done_seconds)

    def release(self, key: str, owner: str) -> None:
        """Release `key`, if `owner` still has it."""
        with self._lock:
            if self._keys.get(key, ("", 0.0))[0] == owner:
                del self._keys[key]

    def _put(self, key: str, state: str, expires: float) -> None:
        self._keys[key] = state, expires
        self._keys.move_to_end(key)
        while len(self._keys) > self._max_keys and self._forget_one():
            pass

    def _forget_one(self) -> bool:
        """Evict the least recently used finished key. Keys in progress stay: they are few."""
        for key, (state, _) in self._keys.items():
            if state == _DONE:
                del self._keys[key]
                return True
        return False


class SqliteStore:
    """Keys in a file that processes of one machine share. On return from `finish` the key is on disk.

    >>> with SqliteStore(":memory:") as store:
    ...     store.claim("order-1", "me", 60)
    ...     store.release("order-1", "me")
    ...     store.claim("order-1", "you", 60)
    <Claim.CLAIMED: 'claimed'>
    <Claim.CLAIMED: 'claimed'>
    """

    is_blocking: Final = True

    def __init__(
        self,
        path: str | Path,
        *,
        done_seconds: float = DEFAULT_DONE_SECONDS,
        busy_timeout_seconds: float = 10.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._done_seconds = done_seconds
        self._busy_timeout_seconds = busy_timeout_seconds
        self._now = now
        self._lock = threading.Lock()
        self._claims = 0
        self._inherited: list[sqlite3.Connection] = []
        self._open()

    def claim(self, key: str, owner: str, lease_seconds: float) -> Claim:
        """Claim `key` for `owner` if it is free."""
        now = self._now()
        with self._lock:
            connection = self._connection_here()
            self._clean_sometimes(connection, now)
            taken = connection.execute(
                "INSERT INTO idempotence VALUES (?, ?, ?) ON CONFLICT (message_key) DO UPDATE "
                "SET state = excluded.state, expires = excluded.expires WHERE expires <= ?",
                (key, owner, now + lease_seconds, now),
            )
            if taken.rowcount == 1:
                return Claim.CLAIMED
            found = connection.execute(
                "SELECT state FROM idempotence WHERE message_key = ?", (key,)
            ).fetchone()
        return Claim.DONE if found == (_DONE,) else Claim.IN_PROGRESS

    def finish(self, key: str) -> None:
        """Mark the work of `key` as done."""
        with self._lock:
            self._connection_here().execute(
                "INSERT OR REPLACE INTO idempotence VALUES (?, ?, ?)",
                (key, _DONE, self._now() + self._done_seconds),
            )

    def release(self, key: str, owner: str) -> None:
        """Release `key`, if `owner` still has it."""
        with self._lock:
            self._connection_here().execute(
                "DELETE FROM idempotence WHERE message_key = ? AND state = ?", (key, owner)
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> None:
        self._pid = os.getpid()
        # Without isolation level each statement is a transaction. The lock serialises threads.
        self._connection = sqlite3.connect(
            self._path, timeout=self._busy_timeout_seconds, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS idempotence "
            "(message_key TEXT PRIMARY KEY, state TEXT NOT NULL, expires REAL NOT NULL) WITHOUT ROWID"
        )
        self._connection.execute("CREATE INDEX IF NOT EXISTS idempotence_expires ON idempotence (expires)")

    def _connection_here(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            # A connection must not be used after a fork, nor closed: that would drop the parent's locks.
            self._inherited.append(self._connection)
            self._open()
        return self._connection

    def _clean_sometimes(self, connection: sqlite3.Connection, now: float) -> None:
        self._claims += 1
        if self._claims % _CLAIMS_PER_CLEANING == 0:
            connection.execute("DELETE FROM idempotence WHERE expires <= ?", (now,))


class RedisClient(Protocol):
    """The methods of `redis.Redis` that are used."""

    def set(self, name: str, value: str, *, px: int, nx: bool = False) -> Any:
        """SET name value PX px [NX]."""
        ...

    def get(self, name: str) -> Any: ...

    def eval(self, script: str, numkeys: int, *keys_and_args: str) -> Any: ...


class RedisStore:
    """Keys in Redis, through the given client: `RedisStore(redis.Redis(...))`.

    As safe as that Redis is: one that evicts keys, or loses writes at failover, lets messages repeat.
    """

    is_blocking: Final = True
    RELEASE_SCRIPT: Final = (
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
    )
    """Deletes a key only if it has the given value: separate reading and deleting would race."""

    def __init__(
        self, client: RedisClient, *, prefix: str = "kourou:done:", done_seconds: float = DEFAULT_DONE_SECONDS
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._done_seconds = done_seconds

    def claim(self, key: str, owner: str, lease_seconds: float) -> Claim:
        """Claim `key` for `owner` if it is free."""
        name = self._prefix + key
        if self._client.set(name, owner, px=_ms(lease_seconds), nx=True):
            return Claim.CLAIMED
        # Redis returns bytes or, with decode_responses, text.
        state = self._client.get(name)
        return Claim.DONE if state in (_DONE, _DONE.encode()) else Claim.IN_PROGRESS

    def finish(self, key: str) -> None:
        """Mark the work of `key` as done."""
        self._client.set(self._prefix + key, _DONE, px=_ms(self._done_seconds))

    def release(self, key: str, owner: str) -> None:
        """Release `key`, if `owner` still has it."""
        self._client.eval(self.RELEASE_SCRIPT, 1, self._prefix + key, owner)


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
