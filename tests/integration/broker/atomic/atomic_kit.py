"""Two brokers, and atomic publishes by plain requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kourou.broker.atomic.part import AtomicPart
from kourou.broker.hooks import BrokerHooks
from kourou.protocol.atomic import (
    ATOMIC_PROPERTY,
    AtomicId,
    StagedGroup,
    encode_groups,
    encode_participants,
)
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.bodies.atomic_list import AtomicEntry, AtomicList
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.atomic import (
    AtomicOutcomeResponseHeader,
    DecideAtomicRequestHeader,
    StageAtomicRequestHeader,
)
from kourou.protocol.headers.producers import OpenProducerRequestHeader, OpenProducerResponseHeader
from kourou.protocol.message import MessageExt
from tests.e2e.broker.broker_kit import Peer, messages, running
from tests.e2e.broker.replication_kit import namesrv

COMMITTED = int(ResponseCode.KOUROU_ATOMIC_COMMITTED)
ROLLED_BACK = int(ResponseCode.KOUROU_ATOMIC_ROLLED_BACK)


def group(topic: str, bodies: Sequence[bytes], queue_id: int = 0, properties: str = "") -> StagedGroup:
    entries = [
        BatchEntry(0, body, f"UNIQ_KEY\x01ID{body[:20].decode()}\x02{properties}".encode()) for body in bodies
    ]
    return StagedGroup(topic, queue_id, 0, 1_700_000_000_000, encode_batch_entries(entries))


def part_of(peer: Peer) -> AtomicPart:
    (part,) = (part for part in peer.controller._open.running.parts if isinstance(part, AtomicPart))
    return part


async def opened(peer: Peer, name: str | None = None) -> tuple[str, int]:
    """Open a producer at its coordinator: id and epoch."""
    header = OpenProducerRequestHeader(producer_group="g", kourou_name=name)
    answer = await peer.call(RequestCode.OPEN_KOUROU_PRODUCER, header)
    assert answer.code == 0, answer.remark
    response = answer.header(OpenProducerResponseHeader)
    return response.kourou_producer_id, response.kourou_epoch


class Publish:
    """One atomic publish, whose coordinator is the broker of `coordinator`."""

    def __init__(self, coordinator: Peer, identity: tuple[str, int], number: int) -> None:
        self.coordinator = coordinator
        self.coordinator_name = coordinator.controller.config.broker_name
        self.id = str(AtomicId(*identity, number))
        self.parts: dict[str, list[int]] = {}

    async def stage(
        self, peer: Peer, part: int, *groups: StagedGroup, timeout_ms: int = 60_000
    ) -> RemotingCommand:
        header = StageAtomicRequestHeader(
            producer_group="g",
            kourou_atomic_id=self.id,
            kourou_part=part,
            kourou_coordinator=self.coordinator_name,
            kourou_timeout_ms=timeout_ms,
            default_topic="TBW102",
            default_topic_queue_nums=4,
        )
        answer = await peer.call(RequestCode.STAGE_KOUROU_ATOMIC, header, encode_groups(groups))
        if answer.code == 0:
            parts = self.parts.setdefault(peer.controller.config.broker_name, [])
            if part not in parts:
                parts.append(part)
        return answer

    async def decide(
        self, *, commit: bool, participants: Mapping[str, Sequence[int]] | None = None, **sink: Any
    ) -> RemotingCommand:
        header = DecideAtomicRequestHeader(kourou_atomic_id=self.id, kourou_commit=commit, **sink)
        body = encode_participants(self.parts if participants is None else participants)
        return await self.coordinator.call(RequestCode.DECIDE_KOUROU_ATOMIC, header, body)


def outcome(answer: RemotingCommand) -> str:
    assert answer.code == 0, answer.remark
    return answer.header(AtomicOutcomeResponseHeader).kourou_outcome


async def stored(peer: Peer, topic: str, queue_id: int = 0) -> list[MessageExt]:
    """All messages of a queue."""
    found: list[MessageExt] = []
    while True:
        answer = await peer.pull(topic, len(found), queue_id=queue_id, max_msg_nums=1_000, sys_flag=4)
        more = messages(answer) if answer.code == 0 else []
        if not more:
            return found
        found += more


async def bodies(peer: Peer, topic: str, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in await stored(peer, topic, queue_id)]


async def until_stored(peer: Peer, topic: str, expected: Sequence[bytes], queue_id: int = 0) -> None:
    """Wait until a queue has exactly these messages."""
    found: list[bytes] = []
    try:
        async with asyncio.timeout(10):
            while found != list(expected):
                await asyncio.sleep(0.01)
                found = await bodies(peer, topic, queue_id)
    except TimeoutError:
        raise AssertionError(f"{topic}/{queue_id} has {found[:20]}, not {list(expected)[:20]}") from None


async def until_over(*peers: Peer) -> None:
    """Wait until no publish is open at these brokers."""
    async with asyncio.timeout(10):
        while any(_open(peer) for peer in peers):  # noqa: ASYNC110 (nothing tells us)
            await asyncio.sleep(0.01)


def _open(peer: Peer) -> bool:
    table = part_of(peer)._journal.table
    return bool(table.participations or table.decisions)


async def listed(peer: Peer) -> list[AtomicEntry]:
    answer = await peer.call(RequestCode.LIST_KOUROU_ATOMIC)
    assert answer.code == 0, answer.remark
    return AtomicList.decode(answer.body).publishes


def mark(message: MessageExt) -> str | None:
    return message.get_property(ATOMIC_PROPERTY)


@contextlib.asynccontextmanager
async def two_brokers(
    root: Path, *, hooks: BrokerHooks | None = None, **keys: Any
) -> AsyncIterator[tuple[Peer, Peer]]:
    """broker-a, with `hooks`, and broker-b; both have topics T and U."""
    async with (
        namesrv() as address,
        running(root / "a", namesrv_addr=address, broker_name="broker-a", hooks=hooks, **keys) as a,
        running(root / "b", namesrv_addr=address, broker_name="broker-b", **keys) as b,
    ):
        create_topics(a, b)
        yield a, b


def create_topics(*peers: Peer) -> None:
    for peer in peers:
        for topic in ("T", "U"):
            created = peer.controller.services.topics.create_in_send(topic, "TBW102", "test", 4, 0)
            assert created is not None
