"""A broker that serves pops, and a client that pops from it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

from kourou.broker.pop.contracts import InFlight, Popped, PopStored
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.pop.offset_infos import PoppedQueue, decode_offset_infos
from kourou.store.log.put_status import PutStatus
from tests.e2e.broker.broker_kit import Peer, messages, running

GROUP = "consumers"


class RecordedInFlight:
    """The messages in flight, and what was taken. `status`: the result of each put, if not None; `counted`:
    how many are in flight, if not None."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self.taken: list[Popped] = []
        self.status: PutStatus | None = None
        self.counted: int | None = None

    def take(self, popped: Popped, done: PopStored) -> None:
        self.taken.append(popped)
        if self.status is None:
            self._in_flight.take(popped, done)
        else:
            asyncio.get_running_loop().call_soon(done, self.status)

    def count(self, topic: str, group: str, queue_id: int | None = None) -> int:
        return self._in_flight.count(topic, group, queue_id) if self.counted is None else self.counted


class PopAnswer(NamedTuple):
    """The answer to a pop, read as a client reads it."""

    code: int
    remark: str | None
    header: PopMessageResponseHeader | None
    queues: list[PoppedQueue]
    messages: list[MessageExt]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @classmethod
    def of(cls, command: RemotingCommand) -> PopAnswer:
        has_header = command.code in (0, 209, 210)
        header = command.header(PopMessageResponseHeader) if has_header else None
        queues = decode_offset_infos(header.start_offset_info, header.msg_offset_info) if header else []
        return cls(command.code, command.remark, header, queues, messages(command))


class PopPeer(NamedTuple):
    """A client, and what its broker's pops are made of. `chance` is what the next pops draw."""

    peer: Peer
    in_flight: RecordedInFlight
    chances: list[int]

    async def pop(self, topic: str = "TopicTest", **fields: Any) -> PopAnswer:
        return PopAnswer.of(await self.peer.call(RequestCode.POP_MESSAGE, pop_header(topic, **fields)))

    def committed(self, topic: str = "TopicTest", queue_id: int = 0) -> int:
        return self.peer.controller.services.offsets.query(GROUP, topic, queue_id)

    async def until_held(self, count: int) -> None:
        """Wait until so many pops wait at the broker."""
        polling = self.peer.controller.services.pop_polling
        await until(lambda: len(polling) >= count)


async def until(is_true: Callable[[], bool]) -> None:
    """Wait for what nothing tells us of."""
    async with asyncio.timeout(5):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def pop_header(topic: str, **fields: Any) -> PopMessageRequestHeader:
    default: dict[str, Any] = {
        "consumer_group": GROUP,
        "topic": topic,
        "queue_id": -1,
        "max_msg_nums": 32,
        "invisible_time": 60_000,
        "poll_time": 0,
        "born_time": 0,
        "init_mode": 0,
    }
    return PopMessageRequestHeader(**{**default, **fields})


@contextlib.asynccontextmanager
async def popping(root: Path, **keys: Any) -> AsyncIterator[PopPeer]:
    """A broker that serves pops, for one test."""
    async with running(root, **keys) as peer:
        service = peer.controller.running.pops.service
        in_flight, chances = RecordedInFlight(service.in_flight), [99]
        service.in_flight, service.plans.random_below = in_flight, lambda _: chances[0]
        yield PopPeer(peer, in_flight, chances)
