"""AsyncAtomicBatch: messages that become visible together or not at all, as a context manager.

Messages are gathered by broker and queue, and staged in parts while the block runs. Leaving the block stages
the rest and commits; an exception rolls back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from kourou.client.core.instance import ClientInstance
from kourou.client.producer.atomic_publish import AtomicHandle, AtomicPublish
from kourou.client.producer.atomic_sessions import AtomicSessions
from kourou.client.producer.pending_send import ChooseQueue
from kourou.client.producer.producer_options import ProducerOptions
from kourou.client.producer.queue_choice import QueueChoice, QueuePicker, QueueSelector
from kourou.client.producer.send_request import SendRequest
from kourou.errors import (
    AtomicRolledBackError,
    AtomicUndecidedError,
    ClientStateError,
    KourouError,
    MessageRefusedError,
    ProducerFencedError,
)
from kourou.protocol.atomic import StagedGroup
from kourou.protocol.batch import BatchEntry, batch_problem, encode_batch_entries
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message
from kourou.protocol.properties import MessageConst, properties_to_bytes

_log = logging.getLogger(__name__)

_PART_BYTES: Final = 1024 * 1024
# What a part has besides bodies and properties, for each message and for all of it.
_ENTRY_BYTES: Final = 22
_GROUP_BYTES: Final = 1_024


@dataclass(slots=True)
class _Group:
    """Messages for one queue, of one sysFlag."""

    queue: MessageQueue
    sys_flag: int
    born_timestamp: int
    entries: list[BatchEntry] = field(default_factory=list)


@dataclass(slots=True)
class _OpenPart:
    """What is not staged yet for one broker. Groups are stored in their order, so a message joins the last
    group of its queue, or begins another one."""

    groups: list[_Group] = field(default_factory=list)
    last: dict[MessageQueue, _Group] = field(default_factory=dict)
    size_bytes: int = 0

    def has_group(self, queue: MessageQueue, sys_flag: int) -> bool:
        """Whether a message would join a group."""
        last = self.last.get(queue)
        return last is not None and last.sys_flag == sys_flag

    def add(self, queue: MessageQueue, request: SendRequest, entry: BatchEntry, size_bytes: int) -> None:
        """Add a message."""
        if not self.has_group(queue, request.sys_flag):
            self.last[queue] = _Group(queue, request.sys_flag, request.born_timestamp)
            self.groups.append(self.last[queue])
        self.last[queue].entries.append(entry)
        self.size_bytes += size_bytes

    def staged_groups(self) -> list[StagedGroup]:
        """What is staged."""
        return [
            StagedGroup(
                group.queue.topic,
                group.queue.queue_id,
                group.sys_flag,
                group.born_timestamp,
                encode_batch_entries(group.entries),
            )
            for group in self.groups
        ]


class AsyncAtomicBatch:
    """Messages of one atomic publish; made by `AsyncProducer.atomic`."""

    def __init__(
        self,
        *,
        sessions: AtomicSessions,
        instance: ClientInstance,
        options: ProducerOptions,
        choice: QueueChoice,
        prepare: Callable[[Message], Awaitable[SendRequest]],
        timeout_ms: int,
    ) -> None:
        self._sessions = sessions
        self._instance = instance
        self._options = options
        self._choice = choice
        self._prepare = prepare
        self._timeout_ms = timeout_ms
        self._publish: AtomicPublish | None = None
        self._is_over = False
        self._open: dict[str, _OpenPart] = {}
        self._parts: dict[str, list[int]] = {}
        self._picker = QueuePicker()
        # Messages without a choice share a queue of their topic until a part is full: fewer groups.
        self._sticky: dict[str, MessageQueue] = {}
        self._turn = asyncio.Lock()

    @property
    def handle(self) -> AtomicHandle:
        """What identifies this publish."""
        return self._begun().handle

    def _begun(self) -> AtomicPublish:
        if self._publish is None or self._is_over:
            raise ClientStateError("an atomic publish is used inside its `with` block")
        return self._publish

    # -- messages ----------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
    ) -> str:
        """Add a message; returns its id. It becomes visible with all others, when the block is left.

        Without `queue`, `selector` and `sharding_key`, messages of a topic share a queue until about a
        megabyte is gathered. Messages for one queue are stored in the order of these calls.

        Raises MessageRefusedError, NoRouteError, and what `AtomicPublish.stage` raises.
        """
        self._begun()
        if problem := batch_problem([message]) if isinstance(message, Message) else None:
            raise MessageRefusedError(f"topic {message.topic!r}: an atomic publish cannot have it: {problem}")
        choose = self._choice(message, queue, selector, arg, sharding_key)
        request = await self._prepare(message)
        if message.get_property(MessageConst.PROPERTY_MESSAGE_TYPE) is not None:
            raise MessageRefusedError(f"topic {message.topic!r}: an atomic publish cannot have replies")
        async with self._turn:
            self._begun()
            await self._add(request, choose)
        return request.uniq_key

    async def _add(self, request: SendRequest, choose: ChooseQueue | None) -> None:
        raw = properties_to_bytes(request.properties)
        size_bytes = len(request.body) + len(raw) + _ENTRY_BYTES
        limit = self._options.max_message_bytes - _GROUP_BYTES
        if size_bytes > limit:
            raise MessageRefusedError(
                f"topic {request.topic!r}: the message has {size_bytes} bytes with its properties; in an "
                f"atomic publish {limit} are allowed"
            )
        route = await self._instance.routes.get(request.topic, to_publish=True)
        if choose is not None:
            queue = choose(route.publish_queues)
            names = sorted({each.broker_name for each in route.publish_queues})
            # One whose master is away for the moment is waited for when the part is staged.
            if queue.broker_name not in names and not self._instance.routes.had_master(queue.broker_name):
                raise MessageRefusedError(
                    f"topic {request.topic!r}: broker {queue.broker_name!r} has no queue of it to send to at "
                    f"present; brokers that have: {', '.join(names)}"
                )
        else:
            queue = self._sticky.get(request.topic) or self._picker.pick(route.publish_queues)
            self._sticky[request.topic] = queue
        part = self._open.setdefault(queue.broker_name, _OpenPart())
        size_bytes += 0 if part.has_group(queue, request.sys_flag) else _GROUP_BYTES
        if part.groups and part.size_bytes + size_bytes > min(_PART_BYTES, self._options.max_message_bytes):
            await self._stage(queue.broker_name)
            self._sticky.clear()
            part = self._open[queue.broker_name] = _OpenPart()
        part.add(queue, request, BatchEntry(request.flag, bytes(request.body), raw), size_bytes)

    async def _stage(self, broker_name: str) -> None:
        """Stage what is gathered for a broker."""
        part = self._open.pop(broker_name, None)
        if part is None or not part.groups:
            return
        parts = self._parts.setdefault(broker_name, [])
        # Before the request: a part that may be staged is named in a rollback.
        parts.append(len(parts))
        assert self._publish is not None
        try:
            await self._publish.stage(broker_name, parts[-1], part.staged_groups())
        except AtomicUndecidedError as error:
            # Staged or not: this publish is not committed any more.
            raise AtomicRolledBackError(
                error.atomic_id,
                f"atomic publish {error.atomic_id}: broker {broker_name!r} has not taken its messages within "
                f"{self._timeout_ms} ms: {error.reason}",
            ) from error

    # -- the block ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._publish is not None:
            raise ClientStateError("an atomic publish is used once; call `atomic` again")
        self._publish = await self._sessions.begin(self._timeout_ms)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._publish is not None
        publish = self._publish
        try:
            async with self._turn:
                if error is None:
                    await self._commit(publish)
                else:
                    await self._roll_back(publish)
        except KourouError as failure:
            error = failure
            raise
        finally:
            self._is_over = True
            if isinstance(error, ProducerFencedError):
                self._sessions.fenced = error
            is_lost = isinstance(error, AtomicRolledBackError) and error.is_producer_unknown
            await self._sessions.ended(publish.handle, is_lost=is_lost)

    async def _commit(self, publish: AtomicPublish) -> None:
        if not self._open and not self._parts:
            return  # there is nothing to publish
        results = await asyncio.gather(*map(self._stage, list(self._open)), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            await self._roll_back(publish)
            raise failures[0]
        await publish.commit(self._parts)

    async def _roll_back(self, publish: AtomicPublish) -> None:
        self._open.clear()
        if not self._parts:
            return
        try:
            await publish.roll_back(self._parts)
        except KourouError as error:
            # What the program gets is the error that it is rolled back for.
            _log.info(
                "atomic publish %s is rolled back by its coordinator when its time is over: %s",
                publish.handle.atomic_id,
                error,
            )
