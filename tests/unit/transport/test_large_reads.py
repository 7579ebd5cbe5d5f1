"""LargeReads: when a connection receives in rooms, what it collects there, and how it goes back."""

from __future__ import annotations

import asyncio

import pytest

from kourou.protocol.command import RemotingCommand, decode_head
from kourou.protocol.frame import FrameDecoder
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.large_reads import MAX_LARGE_READS, LargeReads
from kourou.transport.request import Request
from kourou.transport.settings import ConnectionLimits

SEND, OTHER = 50, 1
LARGE = 128 * 1024


class Bench:
    """A connection whose sends are left where they were received. `seen` has the opaques of all requests in
    their order, `views` the frames of what was collected from rooms."""

    def __init__(self, *, budget: InboundBudget | None = None, **limits: int) -> None:
        self.seen: list[int] = []
        self.views: list[memoryview] = []
        self.rooms: list[int] = []
        self.budget = InboundBudget(1 << 30) if budget is None else budget
        dispatch = Dispatcher({SEND: self._single, OTHER: self._single})
        settings = ConnectionLimits(**limits)
        self.connection = Connection(Cycles(), dispatch, settings, self.budget, bulk=self)
        self.peer = MemoryTransport(self.connection, has_socket=True)

    @property
    def is_large(self) -> bool:
        return isinstance(self.peer.get_protocol(), LargeReads)

    def room(self, size_bytes: int, /) -> bytearray:
        self.rooms.append(size_bytes)
        return bytearray(b"\xee") * size_bytes

    def collect(self, connection: Connection, data: bytes, position: int) -> int:
        for serialize_type, header, body in FrameDecoder().feed(data[position:]):
            head = decode_head(serialize_type, header)
            if head.code != SEND:
                break
            self.seen.append(head.opaque)
            position += 8 + len(header) + len(body)
        return position

    def collect_large(self, connection: Connection, data: memoryview) -> int:
        end = self.collect(connection, bytes(data), 0)
        if end:
            self.views.append(data[:end])
        return end

    def finish(self, connection: Connection) -> None:
        pass

    def _single(self, request: Request) -> None:
        self.seen.append(request.opaque)

    async def bring(self, data: bytes, step: int) -> None:
        for at in range(0, len(data), step):
            self.peer.bring(data[at : at + step])
            assert self.peer.reading or step >= LARGE
            await asyncio.sleep(0)
            assert self.peer.reading


def request(opaque: int, size: int, code: int = SEND) -> bytes:
    return RemotingCommand(code=code, opaque=opaque, body=bytes([opaque % 256]) * size).encode()


def requests(*sizes: int) -> bytes:
    return b"".join(request(opaque, size) for opaque, size in enumerate(sizes))


@pytest.mark.parametrize("step", [LARGE, LARGE + 1, 200_000, 256_000, 700_000])
async def test_frames_are_collected_where_they_were_received(step: int) -> None:
    b = Bench()
    sizes = [60_000, 0, 5, 70_000, 1_000, LARGE, 600_000, 3] * 5
    data = requests(*sizes)
    await b.bring(data, step)
    assert b.seen == list(range(len(sizes)))
    left = b"".join(b.views)
    assert data.endswith(left) and len(left) > len(data) - step, "nothing was written over"
    assert b.budget.used == 0


async def test_small_reads_stay_with_the_connection() -> None:
    b = Bench()
    await b.bring(requests(*[60_000] * 9), LARGE - 1)
    assert not b.is_large and b.seen == list(range(9)) and b.rooms == []


async def test_a_few_bytes_end_it() -> None:
    b = Bench()
    await b.bring(requests(200_000), 1 << 20)
    assert b.is_large and b.budget.large_reads == 1
    await b.bring(request(1, 100), 1 << 20)
    assert not b.is_large and b.budget.large_reads == 0
    await b.bring(request(2, 100), 1 << 20)
    assert b.seen == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 100, 19_000])
@pytest.mark.parametrize("code", [SEND, OTHER])
async def test_the_end_of_a_read_within_a_frame(cut: int, code: int) -> None:
    b = Bench()
    first, second = requests(200_000, 20_000) + request(2, 20_000, code)[:cut], request(2, 20_000, code)[cut:]
    await b.bring(requests(200_000), 1 << 20)
    b.seen.clear()
    b.peer.bring(first)
    assert b.budget.used == cut
    await b.bring(second + request(3, 5), 1 << 20)
    assert b.seen == [0, 1, 2, 3] and b.budget.used == 0


async def test_another_request_is_handled_in_its_turn() -> None:
    b = Bench()
    await b.bring(requests(200_000), 1 << 20)
    await b.bring(request(1, 50_000) + request(2, 50_000, OTHER) + request(3, 50_000), 1 << 20)
    assert b.seen == [0, 1, 2, 3]


async def test_a_frame_that_is_larger_than_a_room_gets_one_of_its_own() -> None:
    b = Bench()
    data = requests(200_000, 3_000_000, 200_000)
    await b.bring(data, 150_000)
    assert b.seen == [0, 1, 2]
    assert max(b.rooms) == len(request(1, 3_000_000)) and len(b.rooms) <= 4


async def test_a_frame_that_is_too_large_is_refused() -> None:
    b = Bench(max_frame_bytes=300_000)
    await b.bring(requests(200_000), 1 << 20)
    b.peer.bring(request(1, 50_000) + request(2, 300_000)[:200_000])
    assert b.seen == [0, 1] and b.connection.closed and b.budget.large_reads == 0


async def test_an_end_in_the_middle_of_a_frame() -> None:
    b = Bench()
    await b.bring(requests(200_000, 200_000)[:300_000], 1 << 20)
    assert b.is_large and b.budget.used > 90_000
    b.peer.break_off()
    assert (b.budget.large_reads, b.budget.used) == (0, 0) and b.connection.closed


async def test_so_many_connections_have_rooms_and_no_more() -> None:
    budget = InboundBudget(1 << 30)
    benches = [Bench(budget=budget) for _ in range(MAX_LARGE_READS + 1)]
    for b in benches:
        await b.bring(requests(140_000), 1 << 20)
    assert [b.is_large for b in benches] == [True] * MAX_LARGE_READS + [False]
    benches[0].peer.break_off()
    await benches[-1].bring(request(1, 140_000), 1 << 20)
    assert benches[-1].is_large and benches[-1].seen == [0, 1]


async def test_incomplete_frames_in_rooms_count() -> None:
    b = Bench(budget=InboundBudget(400_000))
    await b.bring(requests(200_000), 1 << 20)
    b.peer.bring(request(1, 900_000)[:380_000])
    assert not b.connection.closed
    b.peer.bring(bytes(60_000))
    assert b.connection.closed


async def test_nothing_is_collected_while_the_peer_does_not_read() -> None:
    b = Bench()
    await b.bring(requests(200_000), 1 << 20)
    b.connection.pause_writing()
    b.peer.bring(request(1, 50_000) + request(2, 50_000, OTHER))
    assert b.seen == [0]
    assert not b.is_large and not b.peer.reading
    b.connection.resume_writing()
    await asyncio.sleep(0)
    assert b.seen == [0, 1, 2] and b.peer.reading
