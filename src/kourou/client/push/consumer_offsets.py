"""Where a consumer's offsets are kept: at brokers (clustering), in a file (broadcasting), or in a database.

They are kept in memory and stored every 5 s, when a queue moves to another consumer, and at the stop. A
crash in between repeats messages, and never skips one. While a master is away its slave gets them, and the
master again as soon as it is back. StartOffset finds the first offset of a queue.

In a database (`offsets=store`) handlers store them in their own transactions; what is stored here beside that
covers messages without a handler: filtered ones and dead letters. The brokers get a copy, for monitoring.

The file of a broadcasting consumer is that of Apache's Java client, which can read it and the reverse:
`<folder>/<client id>/<group>/offsets.json`, and `offsets.json.bak` with the previous content:

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:123}}

spread over lines, with objects as keys, which is not JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from kourou.client.core.api import ClientApi
from kourou.client.core.instance import ClientInstance
from kourou.client.core.routes import Routes
from kourou.client.push.consumer_options import (
    AsyncTransactionalOffsets,
    ConsumerOptions,
    TransactionalOffsets,
)
from kourou.errors import ClientError, KourouError, ProtocolError, StorageError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.bodies.codec import decode_body
from kourou.protocol.bodies.offsets import OffsetSerializeWrapper
from kourou.protocol.names import is_retry_topic

_log = logging.getLogger(__name__)


_FILE_NAME: Final = "offsets.json"


def default_folder() -> Path:
    """Java's default too (`rocketmq.client.localOffsetStoreDir`)."""
    return Path.home() / ".rocketmq_offsets"


class LocalOffsets:
    """The offsets file of one consumer. Both methods block on the disk."""

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        self.path = folder / client_id / group / _FILE_NAME
        self.backup_path = self.path.with_name(_FILE_NAME + ".bak")
        # A damaged file must not replace the last good one.
        self._is_sound = True

    def load(self) -> dict[MessageQueue, int]:
        """The offsets, from the `.bak` if the file cannot be read; empty if there is neither.

        StorageError if neither can be read: starting over would lose the consumer's progress.
        """
        found, problem = _read(self.path)
        self._is_sound = problem is None
        if found is not None:
            return found
        backup, backup_problem = _read(self.backup_path)
        if backup is None and (problem or backup_problem):
            raise StorageError(
                f"{self.path}: {problem or backup_problem}; repair it, or remove it to start over",
                self.path,
            )
        if problem is not None:
            _log.warning("%s: %s; using %s", self.path, problem, self.backup_path)
        return backup or {}

    def store(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the offsets; on return they are on disk, and the previous ones in the `.bak`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Consumers of several processes may share a file: each writes its own temporary file.
        fresh = self.path.with_name(f"{_FILE_NAME}.{os.getpid()}.tmp")
        try:
            _write_synced(fresh, _text(offsets).encode())
            if self._is_sound:
                with contextlib.suppress(FileNotFoundError):
                    self.path.replace(self.backup_path)
            fresh.replace(self.path)
            _sync_folder(self.path.parent)
        finally:
            fresh.unlink(missing_ok=True)
        self._is_sound = True


def _read(path: Path) -> tuple[dict[MessageQueue, int] | None, str | None]:
    """The offsets; or None, with the problem if the file exists."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"
    try:
        return decode_body(raw, OffsetSerializeWrapper).offset_table, None
    except ProtocolError as error:
        return None, f"damaged: {error}"


def _text(offsets: Mapping[MessageQueue, int]) -> str:
    """The format of Java's 5.x client, line by line."""
    entries = ",\n".join(f"\t\t{_key(queue)}:{offsets[queue]}" for queue in sorted(offsets))
    table = f"{{\n{entries}\n\t}}" if entries else "{}"
    return f'{{\n\t"offsetTable":{table}\n}}'


def _key(queue: MessageQueue) -> str:
    fields = {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
    lines = ",\n".join(
        f'\t\t\t"{name}":{msgspec.json.encode(value).decode()}' for name, value in fields.items()
    )
    return f"{{\n{lines}\n\t\t}}"


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make new names in `folder` durable, where folders can be opened (not on Windows)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ConsumerOffsets(Protocol):
    """The offsets of a group in its queues."""

    async def load(self) -> None:
        """Load stored offsets, as preparation for `read`."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The stored offset; None if there is none."""

    async def begin(self, queue: MessageQueue, consumer_offset: int) -> None:
        """The group begins a queue at this offset, without a stored one."""

    def update(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Set the offset in memory."""

    def reset(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Set the offset in memory, by request of an operator or because the queue does not have the old one:
        it may be lower than the stored one."""

    def known(self, queue: MessageQueue) -> int | None:
        """The offset in memory; None if it was not read yet."""

    def table(self) -> dict[MessageQueue, int]:
        """All offsets in memory."""

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store the offsets of `queues`; failures are logged, and the next call retries."""

    def forget(self, queue: MessageQueue) -> None:
        """The queue is no longer assigned."""


class BrokerOffsets:
    """Offsets at the brokers of the queues."""

    def __init__(self, api: ClientApi, routes: Routes, group: str) -> None:
        self._api = api
        self._routes = routes
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        self._failing: set[MessageQueue] = set()
        self._pending: dict[MessageQueue, asyncio.Task[None]] = {}
        # What the brokers had last, and what could not be stored of queues that were released.
        self._stored: dict[MessageQueue, int | None] = {}
        self._unstored: dict[MessageQueue, tuple[int | None, int]] = {}

    async def load(self) -> None:
        """Nothing to do: `read` requests each offset."""

    async def begin(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Nothing to do, as in Java."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The stored offset. A queue that was released because its broker was away continues where it was,
        unless another member or an operator has stored an offset since."""
        stored = await self._routes.call_broker(
            queue, lambda place: self._api.consumer_offset(place.address, self._group, queue)
        )
        self._stored[queue] = stored
        before, consumer_offset = self._unstored.pop(queue, (None, None))
        if consumer_offset is None or stored != before:
            return stored
        self._offsets[queue] = consumer_offset
        return consumer_offset

    def update(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Set the offset in memory."""
        self._offsets[queue] = consumer_offset

    reset = update

    def known(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def table(self) -> dict[MessageQueue, int]:
        return dict(self._offsets)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Send the offsets to the brokers, one of a queue at a time: brokers handle requests concurrently,
        and of two in flight the older one may be stored last."""
        writes = [self._begin_write(queue) for queue in queues if queue in self._offsets]
        # A cancelled caller does not cancel writes in flight; the next call waits for them.
        await asyncio.shield(asyncio.gather(*writes))

    def _begin_write(self, queue: MessageQueue) -> asyncio.Task[None]:
        before = self._pending.get(queue)
        task = asyncio.ensure_future(self._write(queue, self._offsets[queue], before))
        self._pending[queue] = task
        task.add_done_callback(partial(self._written, queue))
        return task

    def _written(self, queue: MessageQueue, task: asyncio.Task[None]) -> None:
        if self._pending.get(queue) is task:
            del self._pending[queue]

    async def _write(
        self, queue: MessageQueue, consumer_offset: int, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await self._routes.call_broker(
                queue,
                lambda place: self._api.update_consumer_offset(
                    place.address, self._group, queue, consumer_offset
                ),
            )
        except KourouError as error:
            # Logged once: it is retried every few seconds.
            is_known = queue in self._failing or self._api.refusals.report(f"group {self._group}", error)
            level = logging.DEBUG if is_known else logging.WARNING
            self._failing.add(queue)
            _log.log(
                level,
                "group %s: cannot store offset %d of %s, retrying: %s",
                self._group,
                consumer_offset,
                queue,
                error,
            )
        else:
            self._failing.discard(queue)
            self._stored[queue] = consumer_offset

    def forget(self, queue: MessageQueue) -> None:
        """The queue is no longer assigned."""
        consumer_offset = self._offsets.pop(queue, None)
        before = self._stored.pop(queue, None)
        if queue in self._failing and consumer_offset is not None:
            self._unstored[queue] = before, consumer_offset


class FileOffsets:
    """Offsets in a file of this consumer."""

    def __init__(self, file: LocalOffsets) -> None:
        self._file = file
        self._offsets: dict[MessageQueue, int] = {}
        self._stored: dict[MessageQueue, int] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read the file; StorageError when it exists and cannot be read."""
        self._offsets = await asyncio.to_thread(self._file.load)
        self._stored = dict(self._offsets)

    async def begin(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Nothing to do, as in Java."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset from the file, or set since."""
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Set the offset in memory."""
        self._offsets[queue] = consumer_offset

    reset = update

    def known(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def table(self) -> dict[MessageQueue, int]:
        return dict(self._offsets)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Write the file if an offset has changed; on return it is on disk."""
        async with self._writing:
            if self._offsets == self._stored:
                return
            offsets = dict(self._offsets)
            try:
                await asyncio.to_thread(self._file.store, offsets)
            except OSError as error:
                _log.warning("%s: cannot store the offsets: %s", self._file.path, error)
                return
            self._stored = offsets

    def forget(self, queue: MessageQueue) -> None:
        """Nothing to do: the file is not shared, and the queue may be assigned again."""


class DatabaseOffsets:
    """Offsets in a database, with a copy at the brokers."""

    def __init__(
        self, store: TransactionalOffsets | AsyncTransactionalOffsets, copy: BrokerOffsets, group: str
    ) -> None:
        self._store = store
        self._copy = copy
        self._group = group
        self._stored: dict[MessageQueue, int] = {}
        self._resets: dict[MessageQueue, int] = {}

    async def load(self) -> None:
        """Nothing to do: `read` requests each offset."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The offset in the database; the broker's if the group has never used the database for it."""
        try:
            await self._store_reset(queue)
            found = await self._call(self._store.read_offset, self._group, queue)
        except Exception as error:  # of the database's driver
            raise ClientError(f"{queue}: its offset cannot be read from the database: {error!r}") from error
        return await self._copy.read(queue) if found is None else int(found)

    async def begin(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Store the offset at once: after a crash before the first message, the group must not begin at a
        later end of the queue."""
        self.reset(queue, consumer_offset)
        await self.read(queue)

    def update(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Set the offset in memory."""
        self._copy.update(queue, consumer_offset)

    def reset(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Set the offset in memory; the database's may be greater."""
        self._resets[queue] = consumer_offset
        self._copy.update(queue, consumer_offset)

    def known(self, queue: MessageQueue) -> int | None:
        return self._copy.known(queue)

    def table(self) -> dict[MessageQueue, int]:
        return self._copy.table()

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store the offsets, first in the database."""
        mine = list(queues)
        for queue in mine:
            try:
                await self._persist(queue)
            except Exception as error:  # of the database's driver
                _log.warning(
                    "group %s: cannot store the offset of %s, retrying: %r", self._group, queue, error
                )
        await self._copy.persist(mine)

    async def _persist(self, queue: MessageQueue) -> None:
        await self._store_reset(queue)
        offset = self._copy.known(queue)
        if offset is not None and offset != self._stored.get(queue):
            await self._call(self._store.store_offset, self._group, queue, offset)
            self._stored[queue] = offset

    async def _store_reset(self, queue: MessageQueue) -> None:
        offset = self._resets.get(queue)
        if offset is not None:
            store = partial(self._store.store_offset, is_reset=True)
            await self._call(store, self._group, queue, offset)
            self._resets.pop(queue)

    async def _call(self, method: Callable[..., Any], *arguments: object) -> Any:
        if inspect.iscoroutinefunction(self._store.read_offset):
            return await method(*arguments)
        return await asyncio.to_thread(method, *arguments)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is no longer assigned."""
        self._stored.pop(queue, None)
        self._copy.forget(queue)


def stored_offsets(instance: ClientInstance, group: str, options: ConsumerOptions) -> ConsumerOffsets:
    """The offsets of a consumer."""
    if not options.is_broadcasting:
        at_brokers = BrokerOffsets(instance.api, instance.routes, group)
        return at_brokers if options.offsets is None else DatabaseOffsets(options.offsets, at_brokers, group)
    folder = default_folder() if options.offset_store_dir is None else Path(options.offset_store_dir)
    return FileOffsets(LocalOffsets(folder, instance.client_id, group))


class StartOffset:
    """Finds the first offset of a queue: the stored one, else by Java's rules for `consume_from`."""

    def __init__(
        self, api: ClientApi, routes: Routes, offsets: ConsumerOffsets, options: ConsumerOptions
    ) -> None:
        self._api = api
        self._routes = routes
        self._offsets = offsets
        self._options = options

    async def find(self, queue: MessageQueue) -> int:
        """The queue offset to pull first. On errors the queue is not assigned: a guess could skip
        messages."""
        end = None
        if self._may_begin_at_end(queue.topic):
            # Before the stored offset: a message that is stored between the two requests is after this end.
            end = await self._routes.call_broker(
                queue, lambda place: self._api.max_offset(place.address, queue)
            )
        stored = await self._offsets.read(queue)
        if stored is not None and stored >= 0:
            return stored
        first = await self._first(queue) if end is None else end
        await self._offsets.begin(queue, first)
        return first

    async def _first(self, queue: MessageQueue) -> int:
        if self._options.consume_from in ("first", "last"):
            return 0
        timestamp_ms = self._options.consume_timestamp_ms
        return await self._routes.call_broker(
            queue, lambda place: self._api.search_offset(place.address, queue, timestamp_ms)
        )

    def _may_begin_at_end(self, topic: str) -> bool:
        consume_from = self._options.consume_from
        # Messages of a retry topic belong to this group, so they are never skipped.
        return consume_from != "first" and is_retry_topic(topic) != (consume_from == "last")
