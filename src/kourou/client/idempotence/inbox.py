"""Inbox: the statements of one transaction around a handler, in their order, for every driver.

    UPDATE the queue's offset          if the consumer keeps its offsets here
    INSERT the keys                    fails if one is there: SELECT them, INSERT the others
    SAVEPOINT                          the handler's work: its own statements
    RELEASE SAVEPOINT                  fails if the transaction is no longer the one that was begun
    COMMIT

The primary keys serialise concurrent deliveries: the second waits until the first has committed, and is then
a repeat, or has rolled back, and then does the work. The savepoint finds a handler that committed or rolled
back by itself, DDL that commits implicitly (MySQL), and an error that the handler suppressed although it
ended the transaction: PostgreSQL would answer COMMIT with a rollback, and the message would be lost.

The methods are generators that yield calls of a Session, and are sent the results. So the same code runs on
blocking and on async drivers (idempotence_database.py).
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from kourou.client.idempotence.inbox_sql import (
    SAVEPOINT,
    SCHEMA_VERSION,
    InboxSql,
    Statement,
    hash_of,
    is_transient,
    queue_hash,
)
from kourou.errors import ClientError, TransactionEndedError
from kourou.protocol.bodies import MessageQueue

_log = logging.getLogger(__name__)

_PAUSES_S: Final = (0.05, 0.25)
# Deliveries of the same keys that overtake each other between SELECT and INSERT.
_MAX_RACES: Final = 5
_EXPIRY_INTERVAL_S: Final = 60.0
_EXPIRED_AT_ONCE: Final = 300


class Rows(NamedTuple):
    """The result of a statement."""

    affected: int
    rows: Sequence[Sequence[Any]] = ()


class Session(Protocol):
    """One connection at a time. The methods of an async session return awaitables of the same."""

    def open(self) -> Any:
        """Connect, or borrow from a pool."""

    def execute(self, statement: Statement) -> Any:
        """Rows."""

    def work(self, fresh: list[int]) -> Any:
        """Call the handler for the messages with these indexes."""

    def commit(self) -> Any: ...

    def rollback(self) -> Any: ...

    def close(self) -> Any:
        """Close, or return to the pool; nothing if it is not open."""

    def pause(self, seconds: float) -> Any: ...

    @property
    def is_mysql(self) -> bool: ...


Steps: TypeAlias = Generator[Callable[[Session], Any], Any, Any]


@dataclass(frozen=True, slots=True)
class Position:
    """Where messages are in a queue of a group."""

    group: str
    queue: MessageQueue
    offsets: Sequence[int]
    """The queue offsets of the messages, ascending."""


class Inbox:
    """What was consumed, in the tables of a database. Thread-safe."""

    def __init__(self, table: str, done_seconds: float | None, now: Callable[[], float] = time.time) -> None:
        if done_seconds is not None and done_seconds <= 0:
            raise ValueError(
                f"done_seconds is {done_seconds}; it must be above 0, or None to keep keys forever"
            )
        self.sql = InboxSql(table)
        self._done_seconds = done_seconds
        self._now = now
        self._next_expiry = 0.0

    # -- messages --------------------------------------------------------------------------------

    def consume(
        self, keys: Sequence[str], position: Position | None, is_done: Callable[[Any], bool]
    ) -> Steps:
        """Do the work of a batch for those of its messages that are new, and store that, in one transaction.
        Returns the handler's result; None if all were repeats."""
        result = yield from self._with_retries(lambda: self._consume(keys, position, is_done))
        if self._done_seconds is not None and self._now() >= self._next_expiry:
            yield from self._expire_step(self._done_seconds)
        return result

    def _consume(
        self, keys: Sequence[str], position: Position | None, is_done: Callable[[Any], bool]
    ) -> Steps:
        now_ms = int(self._now() * 1000)
        fresh: list[int] = yield from self._claim(keys, position, now_ms)
        if not fresh:
            _log.debug("already consumed, skipped: %s", keys or position)
            yield lambda session: session.commit()
            return None
        yield _execute(f"SAVEPOINT {SAVEPOINT}")
        undo = _Undo([hash_of(keys[each]) for each in fresh if keys], position, fresh[0], now_ms)
        try:
            result = yield lambda session: session.work(fresh)
            is_finished = is_done(result)
        except Exception as error:
            if not is_transient(error):
                yield from self._roll_back(undo, error)
            raise
        if not is_finished:
            yield from self._roll_back(undo, None)
            return result
        try:
            yield _execute(f"RELEASE SAVEPOINT {SAVEPOINT}")
        except Exception as error:
            if is_transient(error):
                raise
            raise TransactionEndedError(str(error)) from error
        yield lambda session: session.commit()
        return result

    def _roll_back(self, undo: _Undo, cause: Exception | None) -> Steps:
        """Roll back the work of a handler that failed. If the handler has committed the transaction, delete
        keys and offset: the message must be delivered again."""
        try:
            yield _execute(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
        except Exception as error:
            if is_transient(error):
                return
            yield lambda session: session.rollback()
            for statement in self.sql.delete(undo.hashes, f"= {undo.now_ms:d}"):
                yield _execute(statement)
            if undo.position is not None:
                group, queue, offsets = undo.position.group, undo.position.queue, undo.position.offsets
                first, behind = offsets[undo.first], f"= {offsets[-1] + 1:d}"
                yield _execute(self.sql.set_offset(queue_hash(group, queue), first, undo.now_ms, behind))
            yield lambda session: session.commit()
            raise TransactionEndedError(str(error)) from (cause or error)
        yield lambda session: session.rollback()

    def _claim(self, keys: Sequence[str], position: Position | None, now_ms: int) -> Steps:
        """Store offset and keys; the indexes of the messages that are new."""
        first_error: Exception | None = None
        for _ in range(_MAX_RACES):
            fresh: list[int] = list(range(len(keys) if position is None else len(position.offsets)))
            try:
                if position is not None:
                    fresh = yield from self._advance(position, now_ms)
                if keys:
                    fresh = yield from self._new_keys(keys, fresh, must_look=first_error is not None)
                    for statement in self.sql.insert([keys[each] for each in fresh], now_ms):
                        yield _execute(statement)
                return fresh
            except Exception as error:
                if is_transient(error) or isinstance(error, ClientError):
                    raise
                first_error = first_error or error
            # A key exists: drivers report that by various errors, and PostgreSQL ends the transaction.
            yield lambda session: session.rollback()
        assert first_error is not None
        first_error.add_note(
            f"Do the tables of {self.sql.table} exist? create_tables() of the store creates them."
        )
        raise first_error

    def _new_keys(self, keys: Sequence[str], fresh: list[int], *, must_look: bool) -> Steps:
        """The indexes of the first message with each key that is not there."""
        known: set[str] = set()
        for statement in self.sql.known([keys[each] for each in fresh]) if must_look else ():
            found: Rows = yield _execute(statement)
            known.update(str(row[0]) for row in found.rows)
        first = {keys[each]: each for each in reversed(fresh)}
        return [each for each in fresh if first[keys[each]] == each and hash_of(keys[each]) not in known]

    def _advance(self, position: Position, now_ms: int) -> Steps:
        """Move the offset behind the messages; the indexes of those that it was not behind already."""
        group, queue, offsets = position.group, position.queue, position.offsets
        key_hash, next_offset = queue_hash(group, queue), offsets[-1] + 1
        everything = list(range(len(offsets)))
        moved: Rows = yield _execute(self.sql.set_offset(key_hash, next_offset, now_ms, f"<= {offsets[0]:d}"))
        if moved.affected < 0:
            raise ClientError("this database driver does not report how many rows an UPDATE has changed")
        if moved.affected == 1:
            return everything
        found: Rows = yield _execute(self.sql.offset(key_hash))
        if not found.rows:
            yield _execute(self.sql.insert_offset(key_hash, group, queue, next_offset, now_ms))
            return everything
        stored = int(found.rows[0][0])
        if stored >= next_offset:
            return []
        moved = yield _execute(self.sql.set_offset(key_hash, next_offset, now_ms, f"= {stored:d}"))
        if moved.affected != 1:
            raise _OvertakenError(f"{queue}: another consumer of group {group} moves its offset")
        return [each for each in everything if offsets[each] >= stored]

    # -- offsets ---------------------------------------------------------------------------------

    def read_offset(self, group: str, queue: MessageQueue) -> Steps:
        """The next offset to consume; None if there is none."""

        def read() -> Steps:
            found: Rows = yield _execute(self.sql.offset(queue_hash(group, queue)))
            yield lambda session: session.rollback()
            return int(found.rows[0][0]) if found.rows else None

        return (yield from self._with_retries(read))

    def store_offset(self, group: str, queue: MessageQueue, queue_offset: int, *, is_reset: bool) -> Steps:
        """Set an offset; without `is_reset` it only moves forward."""
        key_hash, now_ms = queue_hash(group, queue), int(self._now() * 1000)
        condition = "" if is_reset else f"< {queue_offset:d}"

        def store() -> Steps:
            # Not UPDATE first: for a row that does not exist MySQL would lock the gap, also for others.
            found: Rows = yield _execute(self.sql.offset(key_hash))
            if found.rows:
                yield _execute(self.sql.set_offset(key_hash, queue_offset, now_ms, condition))
            else:
                yield _execute(self.sql.insert_offset(key_hash, group, queue, queue_offset, now_ms))
            yield lambda session: session.commit()

        yield from self._with_retries(store)

    # -- old keys --------------------------------------------------------------------------------

    def forget_older_than(self, seconds: float) -> Steps:
        """Delete all keys that are older, in small transactions; returns their number."""
        total = 0
        while True:
            count = yield from self._with_retries(lambda: self._delete_old(seconds))
            total += count
            if count < _EXPIRED_AT_ONCE:
                return total

    def _expire_step(self, seconds: float) -> Steps:
        """Delete some expired keys, after a handler's transaction. If many are left, soon again."""
        now = self._now()
        self._next_expiry = now + _EXPIRY_INTERVAL_S
        try:
            count = yield from self._with_retries(lambda: self._delete_old(seconds))
            if count == _EXPIRED_AT_ONCE:
                self._next_expiry = now
        except Exception:
            # The message is consumed; the next step retries.
            _log.warning("%s: cannot delete expired keys", self.sql.table, exc_info=True)

    def _delete_old(self, seconds: float) -> Steps:
        before_ms = int((self._now() - seconds) * 1000)
        found: Rows = yield _execute(self.sql.old(before_ms, _EXPIRED_AT_ONCE))
        for statement in self.sql.delete([str(row[0]) for row in found.rows], f"< {before_ms:d}"):
            yield _execute(statement)
        yield lambda session: session.commit()
        return len(found.rows)

    # -- tables ----------------------------------------------------------------------------------

    def create_tables(self) -> Steps:
        """Create what does not exist; ClientError if the tables are those of a newer Kourou."""
        for pause_s in (*_PAUSES_S, None):
            try:
                yield from self._transaction(self._create_tables)
                return
            except ClientError:
                raise
            except Exception:
                # Another process may be creating them too; databases report that by various errors.
                if pause_s is None:
                    raise
            yield _pause(pause_s)

    def _create_tables(self) -> Steps:
        is_mysql: bool = yield lambda session: session.is_mysql
        for statement in self.sql.tables(is_mysql=is_mysql):
            yield _execute(statement)
        found: Rows = yield _execute(self.sql.version())
        versions = [int(row[0]) for row in found.rows]
        if versions and max(versions) > SCHEMA_VERSION:
            raise ClientError(
                f"the tables of {self.sql.table} have schema version {max(versions)}, and this release of "
                f"Kourou knows versions up to {SCHEMA_VERSION}; upgrade it, or use another table"
            )
        yield lambda session: session.commit()
        if not versions:
            yield from self._create_index()
            yield _execute(self.sql.set_version())
        yield lambda session: session.commit()

    def _create_index(self) -> Steps:
        try:
            yield _execute(self.sql.index())
        except Exception as error:
            if not any(words in str(error) for words in ("already exists", "Duplicate key name")):
                raise
            yield lambda session: session.rollback()

    # -- transactions ----------------------------------------------------------------------------

    def _with_retries(self, begin: Callable[[], Steps]) -> Steps:
        for pause_s in (*_PAUSES_S, None):
            try:
                return (yield from self._transaction(begin))
            except Exception as error:
                if pause_s is None or not is_transient(error):
                    raise
                _log.debug("%s: another attempt after %r", self.sql.table, error)
            yield _pause(pause_s)
        raise AssertionError("unreachable")

    def _transaction(self, begin: Callable[[], Steps]) -> Steps:
        """One attempt, on a connection of its own."""
        try:
            yield lambda session: session.open()
            result = yield from begin()
        except Exception:
            # The first error is the cause: a broken connection can be neither rolled back nor closed.
            with contextlib.suppress(Exception):
                yield lambda session: session.rollback()
            with contextlib.suppress(Exception):
                yield lambda session: session.close()
            raise
        with contextlib.suppress(Exception):
            yield lambda session: session.close()
        return result


class _Undo(NamedTuple):
    """What a transaction has stored besides the handler's work."""

    hashes: Sequence[str]
    position: Position | None
    first: int
    """The index of the first message that was new."""
    now_ms: int


class _OvertakenError(Exception):
    """Another transaction changed the offset between two statements."""


def _execute(statement: Statement | str) -> Callable[[Session], Any]:
    whole = Statement(statement) if isinstance(statement, str) else statement
    return lambda session: session.execute(whole)


def _pause(seconds: float) -> Callable[[Session], Any]:
    # Two that collided should not do so again.
    jittered = seconds * random.uniform(0.5, 1.5)
    return lambda session: session.pause(jittered)
