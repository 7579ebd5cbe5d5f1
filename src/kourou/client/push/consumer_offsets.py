"""Where a consumer's offsets are kept: at the brokers (clustering), or in a file (broadcasting).

Both keep them in memory and write them now and then: every 5 s, when a queue goes to somebody else, at
the end. A crash in between repeats messages, and never skips one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

from kourou.client.core.api import ClientApi
from kourou.client.core.instance import ClientInstance
from kourou.client.core.routes import Routes
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.client.push.local_offsets import LocalOffsets, default_folder
from kourou.errors import KourouError, NoRouteError
from kourou.protocol.bodies import MessageQueue

_log = logging.getLogger(__name__)


class ConsumerOffsets(Protocol):
    """How far a group is in its queues."""

    async def load(self) -> None:
        """Get ready to read."""

    async def read(self, queue: MessageQueue) -> int | None:
        """What is stored; None when nothing is."""

    def update(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Note how far the group is."""

    def known(self, queue: MessageQueue) -> int | None:
        """What was noted last."""

    def table(self) -> dict[MessageQueue, int]:
        """All that was noted."""

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store what was noted of `queues`; failures are logged and made up for by the next time."""

    def forget(self, queue: MessageQueue) -> None:
        """The queue is somebody else's now."""


class BrokerOffsets:
    """Offsets at the brokers of the queues."""

    def __init__(self, api: ClientApi, routes: Routes, group: str) -> None:
        self._api = api
        self._routes = routes
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        self._failing: set[MessageQueue] = set()
        self._pending: dict[MessageQueue, asyncio.Task[None]] = {}

    async def load(self) -> None:
        """Nothing to do: each queue's is asked for."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Ask the queue's broker."""
        return await self._api.consumer_offset(self._address(queue), self._group, queue)

    def update(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Note how far the group is."""
        self._offsets[queue] = consumer_offset

    def known(self, queue: MessageQueue) -> int | None:
        """What was noted last."""
        return self._offsets.get(queue)

    def table(self) -> dict[MessageQueue, int]:
        """All that was noted."""
        return dict(self._offsets)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Tell the brokers. One offset of a queue at a time: brokers work on requests side by side, and of
        two that are under way the older one may be the last to be stored."""
        writes = [self._begin_write(queue) for queue in queues if queue in self._offsets]
        # Whoever is cancelled does not take back what is on its way; the next one waits for it.
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
            await self._api.update_consumer_offset(self._address(queue), self._group, queue, consumer_offset)
        except KourouError as error:
            # Told once: it is tried again every few seconds.
            level = logging.DEBUG if queue in self._failing else logging.WARNING
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

    def forget(self, queue: MessageQueue) -> None:
        """The queue is somebody else's now."""
        self._offsets.pop(queue, None)

    def _address(self, queue: MessageQueue) -> str:
        address = self._routes.any_address(queue.broker_name)
        if address is None:
            raise NoRouteError(queue.topic, f"broker {queue.broker_name!r} is not known any more")
        return address


class FileOffsets:
    """Offsets in this consumer's own file."""

    def __init__(self, file: LocalOffsets) -> None:
        self._file = file
        self._offsets: dict[MessageQueue, int] = {}
        self._stored: dict[MessageQueue, int] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read the file; StorageError when there is one that says nothing."""
        self._offsets = await asyncio.to_thread(self._file.load)
        self._stored = dict(self._offsets)

    async def read(self, queue: MessageQueue) -> int | None:
        """What the file said, or was noted since."""
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, consumer_offset: int) -> None:
        """Note how far this consumer is."""
        self._offsets[queue] = consumer_offset

    def known(self, queue: MessageQueue) -> int | None:
        """What was noted last."""
        return self._offsets.get(queue)

    def table(self) -> dict[MessageQueue, int]:
        """All that was noted."""
        return dict(self._offsets)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Write the file if something has changed; on return it is on disk."""
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
        """Nothing: the file is nobody else's, and the queue may come back."""


def stored_offsets(instance: ClientInstance, group: str, options: ConsumerOptions) -> ConsumerOffsets:
    """Where the offsets of a consumer are kept."""
    if not options.is_broadcasting:
        return BrokerOffsets(instance.api, instance.routes, group)
    folder = default_folder() if options.offset_store_dir is None else Path(options.offset_store_dir)
    return FileOffsets(LocalOffsets(folder, instance.client_id, group))
