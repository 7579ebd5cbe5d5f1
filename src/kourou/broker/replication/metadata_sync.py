"""MetadataSync: a slave's tables follow its master's: topics, groups, and how far groups and delays are.

By ordinary requests to the master, in Apache's bodies. What the master says replaces what is here; consumer
offsets are merged, so that a group whose members commit to the slave only is not forgotten. The queues of a
topic that the master has deleted go, too. Idempotent producers are derived from the log, but for those whose
messages are no longer in it: of them a snapshot is fetched, once from each master.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import decode_body
from kourou.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from kourou.protocol.bodies.subscription import SubscriptionGroupWrapper
from kourou.protocol.bodies.topics import TopicConfigSerializeWrapper
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    CommandHeader,
    GetAllDelayOffsetHeader,
    ProducerSnapshotRequestHeader,
    ProducerSnapshotResponseHeader,
)

if TYPE_CHECKING:
    from kourou.broker.delay.delay_offsets import DelayOffsetManager
    from kourou.broker.tables.config_table import ConfigTable
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.producers.producer_log import ProducerLog
    from kourou.transport.client import RemotingClient

_log = logging.getLogger(__name__)

SYNC_INTERVAL_S: Final = 10.0
"""4.9's interval; 5.x waits for a minute."""

_SHORTEST_S: Final = 0.2
_TIMEOUT_MS: Final = 3_000
_LOOK_S: Final = 0.005
_LOOKS: Final = 100


Follow: TypeAlias = Callable[[str], Awaitable[None]]
"""Copies something more from the master at an address, such as users; it does not raise."""


class MetadataSync:
    """Copies the tables of the master at `master_address()`, None while it is unknown."""

    def __init__(
        self,
        *,
        client: RemotingClient,
        master_address: Callable[[], str | None],
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        delay_offsets: DelayOffsetManager,
        producers: ProducerLog,
        delete_queues: Callable[[set[str]], Awaitable[None]],
        save: Callable[[ConfigTable], Awaitable[None]],
        durable_end: Callable[[], int],
        log_end: Callable[[], int],
        interval_s: float = SYNC_INTERVAL_S,
        also_follow: Sequence[Follow] = (),
    ) -> None:
        self._client = client
        self._master_address = master_address
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delay_offsets = delay_offsets
        self._producers = producers
        # The master whose producers are known.
        self._producers_from: str | None = None
        self._delete_queues = delete_queues
        self._save = save
        self._durable_end = durable_end
        self._log_end = log_end
        self._interval_s = interval_s
        self._also_follow = also_follow
        # What the master said last of its delays, and where its log ended then.
        self._delays: tuple[DelayOffsetSerializeWrapper, int | None] | None = None
        self._is_failing = False
        self._wake = asyncio.Event()

    def soon(self) -> None:
        """Copy as soon as possible: the master is another one, or has a topic that is not known here."""
        self._wake.set()

    async def run(self) -> None:
        """Copy again and again, until cancelled."""
        while True:
            self._wake.clear()
            await self.sync()
            await asyncio.sleep(_SHORTEST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s - _SHORTEST_S):
                    await self._wake.wait()

    async def sync(self) -> None:
        """Copy once; a master that does not answer is tried again the next time."""
        address = self._master_address()
        if address is None:
            return
        for follow in self._also_follow:
            await follow(address)
        try:
            gone = self._topics.follow(
                decode_body(
                    await self._get(address, RequestCode.GET_ALL_TOPIC_CONFIG), TopicConfigSerializeWrapper
                )
            )
            if gone:
                await self._delete_queues(gone)
            offsets = decode_body(
                await self._get(address, RequestCode.GET_ALL_CONSUMER_OFFSET), ConsumerOffsetSerializeWrapper
            )
            master_end = await self._follow_delays(address)
            # The progress of transactions is among them: it counts when the records are here that it stands
            # for. An Apache master does not say where its log ends.
            if master_end is None or await self._log_reaches(master_end):
                if master_end is not None and offsets.floors is None:
                    offsets.floors = {}  # the master is ours, and has none
                self._offsets.follow(offsets)
            self._groups.follow(
                decode_body(
                    await self._get(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
                    SubscriptionGroupWrapper,
                )
            )
            if self._producers_from != address:
                await self._follow_producers(address)
        except KourouError as error:
            if not self._is_failing:
                _log.warning("the tables of the master at %s cannot be copied, retrying: %s", address, error)
            self._is_failing = True
            return
        if self._is_failing:
            _log.info("the tables of the master at %s are copied again", address)
        self._is_failing = False

    async def _follow_producers(self, address: str) -> None:
        self._producers.expect_none()
        try:
            snapshot = await self._producer_snapshot(address)
        except ResponseError as error:
            # It has none, or is Apache's.
            if error.code not in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
                raise
        else:
            self._producers.expect_snapshot(snapshot)
        self._producers_from = address

    async def _producer_snapshot(self, address: str) -> bytes:
        """The snapshot of the master's producers, in pieces that fit frames."""
        raw, header = bytearray(), ProducerSnapshotRequestHeader()
        while True:
            answer = await self._call(address, RequestCode.GET_KOUROU_PRODUCER_SNAPSHOT, header)
            piece = answer.header(ProducerSnapshotResponseHeader)
            raw += answer.body or b""
            if not answer.body or len(raw) >= piece.kourou_size:
                return bytes(raw)
            header = ProducerSnapshotRequestHeader(
                kourou_snapshot_id=piece.kourou_snapshot_id, kourou_offset=len(raw)
            )

    async def _log_reaches(self, master_end: int) -> bool:
        """Whether this log is soon as long as the master's was."""
        for _ in range(_LOOKS):
            if self._log_end() >= master_end:
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    async def _follow_delays(self, address: str) -> int | None:
        """Progress of delays counts when the deliveries that it stands for are in this log, and durable: else
        they would be lost with the master. An Apache master does not say; its progress counts a round
        later. Returns where the master's log ends, if that is known."""
        self._adopt_delays(is_later=True)
        header = GetAllDelayOffsetHeader(kourou_log_end=self._durable_end())
        answer = await self._call(address, RequestCode.GET_ALL_DELAY_OFFSET, header)
        table = decode_body(answer.body or b"", DelayOffsetSerializeWrapper)
        master_end = answer.header(GetAllDelayOffsetHeader).kourou_log_end
        self._delays = table, master_end
        self._adopt_delays(is_later=False)
        if self._delay_offsets.is_dirty:
            await self._save(self._delay_offsets)
        return master_end

    def _adopt_delays(self, *, is_later: bool) -> None:
        if self._delays is None:
            return
        table, master_end = self._delays
        if self._durable_end() >= master_end if master_end is not None else is_later:
            self._delay_offsets.follow(table, master_end)
            self._delays = None

    async def _get(self, address: str, code: RequestCode) -> bytes:
        return (await self._call(address, code)).body or b""

    async def _call(
        self, address: str, code: RequestCode, header: CommandHeader | None = None
    ) -> RemotingCommand:
        answer = await self._client.call(address, RemotingCommand.request(code, header), _TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "", address)
        return answer
