"""ColdReader: units from before the broker's start are verified by the thread that sends their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.unit_blocks import BLOCK_UNITS, CHUNK_UNITS
from tests.integration.kernel.kernel_kit import FedBroker, fed_broker, install
from tests.integration.kernel.test_answer_pulls import pulls
from tests.integration.kernel.test_cold_reader import Bench, received
from tests.integration.kernel.twins import ID, frame, send
from tests.interop.kit.ports import free_port

MESSAGES = 2 * BLOCK_UNITS + 100
BODY_BYTES = 50
UNIT_BYTES = 20
CHUNKS = 8
LARGE_BYTES = 4_000_000
HUGE_BYTES = 16 * 1024 * 1024 + 1

TAGGED = {"consumerGroup": "tagged", "subscription": "TagA"}

Test = Callable[["Doubter"], Awaitable[None]]


class Doubter(Bench):
    """A broker that was started again: all units are in doubt."""

    def __init__(self, broker: FedBroker) -> None:
        super().__init__(broker)
        queue = broker.services.store.queues.get("TopicTest", 0)
        assert queue is not None
        self.queue: ConsumeQueue = queue
        self.queue.unit(0)  # its file is open
        self.log_file = self.log.log_files[0]
        self.outcomes: list[int] = []
        finish = self.cold_answers._finish
        self.cold_answers._finish = lambda *of: (self.outcomes.append(of[1][0]), finish(*of))[1]
        verifier = queue._files.verifier
        assert verifier is not None
        self.by_python: list[int] = []
        verify = verifier.verify
        verifier.verify = lambda queue, offset, count: (
            self.by_python.append(offset),
            verify(queue, offset, count),
        )[1]

    def unit_at(self, queue_offset: int) -> tuple[int, int, int]:
        unit = self.queue.unit(queue_offset)
        assert unit is not None
        return unit

    def write_unit(self, queue_offset: int, data: bytes, at: int = 0) -> None:
        """Overwrite a part of a unit, as another program would."""
        with self.queue._files.path("TopicTest", 0, 0).open("r+b") as file:
            file.seek(queue_offset * UNIT_BYTES + at)
            file.write(data)

    async def answers(self, *requests: bytes) -> list[bytes]:
        """Each request as soon as the one before is answered."""
        answers = []
        async with self.connected() as (connection, peer):
            for request in requests:
                self.pulls._turns._credit_s = 1.0
                connection.data_received(request)
                answers += await received(peer, 1)
            await self.pulls.wait_idle()
            self.cold_answers.collect()
        return answers

    def known(self) -> list[int]:
        """The chunks that are verified. The last was looked at when the broker started."""
        unverified = (self.queue.unverified or b"")[:-1]
        return [number for number, left in enumerate(unverified) if not left]


def pull_at(queue_offset: int, count: int = CHUNK_UNITS, **fields: str) -> bytes:
    return pulls({"queueOffset": str(queue_offset), "maxMsgNums": str(count), **fields})


@pytest.fixture
def run(kernel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Test], None]:
    """Runs a test on a broker with two cores, a sender that never stops, and units from before its start."""
    monkeypatch.setattr("kourou.broker.pull.cold_pulls.SENDING_S", 600.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    install(kernel, monkeypatch)

    def run(test: Test) -> None:
        async def on_broker() -> None:
            place: dict[str, Any] = {"host": "127.0.0.1", "port": free_port(), "kernel": True}
            place |= {"mapped_file_size_commit_log": 2 * HUGE_BYTES, "max_message_size": LARGE_BYTES}
            async with fed_broker(tmp_path, **place) as broker:
                broker.feed([b"".join(_sends())])
                for _ in range(HUGE_BYTES // LARGE_BYTES + 1):
                    broker.feed([frame(send({"e": "2"}), bytes(LARGE_BYTES))])
            async with fed_broker(tmp_path, **place) as broker:
                for fields in ({}, TAGGED, {}, TAGGED):  # a new group has all decided anew
                    broker.feed([pulls({**fields, "queueOffset": str(MESSAGES)})])
                broker.feed([frame(send({"e": "1"}), b"of now")])
                await test(Doubter(broker))

        asyncio.run(on_broker())

    return run


def _sends() -> list[bytes]:
    properties = f"UNIQ_KEY\x01{ID}\x02TAGS\x01TagA\x02"
    return [frame(send({"i": properties}), b"%d" % n * BODY_BYTES) for n in range(MESSAGES)]


def test_messages_are_verified_by_the_thread(run: Callable[[Test], None]) -> None:
    async def test(bench: Doubter) -> None:
        requests = [pull_at(number * CHUNK_UNITS) for number in range(CHUNKS)]
        answers = await bench.answers(*requests)
        assert bench.by_python == []
        assert bench.outcomes == []
        assert bench.known() == list(range(CHUNKS))
        assert sorted(answers) == bench.expected(requests)

    run(test)


def test_what_is_verified_is_not_verified_again(run: Callable[[Test], None]) -> None:
    async def test(bench: Doubter) -> None:
        await bench.answers(pull_at(0))
        bench.log_file.file.pwrite(b"!", bench.unit_at(3)[0] + 100)  # in its body
        answer, other = await bench.answers(pull_at(0), pull_at(CHUNK_UNITS))
        assert (bench.by_python, bench.outcomes, bench.known()) == ([], [], [0, 1])
        assert b"3" * 50 not in answer
        assert b"40" * 50 in other

    run(test)


def test_parts_of_chunks_count_in_their_order(run: Callable[[Test], None]) -> None:
    async def test(bench: Doubter) -> None:
        await bench.answers(pull_at(1), pull_at(2 * CHUNK_UNITS, CHUNK_UNITS - 1))
        assert bench.known() == []
        await bench.answers(pull_at(0, 8), pull_at(16, 16))
        assert bench.known() == []
        await bench.answers(pull_at(4, 20), pull_at(24, 8), pull_at(3 * CHUNK_UNITS - 1, 1))
        assert bench.known() == [0, 2]
        await bench.answers(pull_at(CHUNK_UNITS, 8), pull_at(CHUNK_UNITS + 8))
        assert bench.known() == [0, 1, 2]
        assert bench.by_python == []

    run(test)


def test_a_damaged_message_is_left_to_python(run: Callable[[Test], None]) -> None:
    async def test(bench: Doubter) -> None:
        bench.log_file.file.pwrite(b"!", bench.unit_at(40)[0] + 100)  # in its body
        damaged, behind = await bench.answers(pull_at(CHUNK_UNITS), pull_at(41))
        assert bench.outcomes[:1] == [0]
        assert bench.by_python
        assert b"39" * 50 in damaged
        assert b"40" * 49 not in damaged
        assert b"41" * 50 in behind

    run(test)


@pytest.mark.parametrize("column", [0, 1, 2], ids=["phy_offset", "size", "tags code"])
def test_a_unit_that_is_wrong_is_rebuilt(run: Callable[[Test], None], column: int) -> None:
    async def test(bench: Doubter) -> None:
        right = bench.unit_at(7)
        wrong = list(right)
        wrong[column] = bench.unit_at(9)[0] if column == 0 else right[column] + 1
        widths = (8, 4, 8)
        raw = b"".join(
            value.to_bytes(width, "big", signed=True) for value, width in zip(wrong, widths, strict=True)
        )
        bench.write_unit(7, raw)
        (answer,) = await bench.answers(pull_at(0))
        assert bench.outcomes == [0], "the thread has looked at it"
        assert tuple(bench.unit_at(7)) == tuple(right)
        assert bench.by_python
        (again,) = await bench.answers(pull_at(0))
        assert b"7" * 50 in again
        assert answer == again

    run(test)


@pytest.mark.parametrize("size", [1, 2, 3, 40, 88, 100_000])
def test_a_size_that_is_wrong_is_not_read_beyond(run: Callable[[Test], None], size: int) -> None:
    """Of the last unit of a pull."""

    async def test(bench: Doubter) -> None:
        bench.write_unit(CHUNK_UNITS - 1, size.to_bytes(4, "big"), 8)
        await bench.answers(pull_at(0))
        assert bench.outcomes == [0]
        assert bench.by_python

    run(test)


@pytest.mark.parametrize("size", [1, 88, HUGE_BYTES])
def test_a_first_size_that_is_wrong_does_not_reach_the_thread(run: Callable[[Test], None], size: int) -> None:
    """A huge one would take its time and memory."""

    async def test(bench: Doubter) -> None:
        assert bench.log.max_phy_offset > HUGE_BYTES + bench.unit_at(0)[0]
        bench.write_unit(0, size.to_bytes(4, "big"), 8)
        await bench.answers(pull_at(0, 1))
        assert bench.outcomes == []
        assert bench.by_python

    run(test)


@pytest.mark.parametrize(
    "fields",
    [TAGGED, {"queueOffset": str(2 * BLOCK_UNITS)}],
    ids=["by tags", "at the end of the queue"],
)
def test_other_units_are_verified_by_python(run: Callable[[Test], None], fields: dict[str, str]) -> None:
    async def test(bench: Doubter) -> None:
        request = pull_at(0, **fields)
        answers = await bench.answers(request)
        assert bench.by_python
        assert bench.outcomes == []
        assert answers == bench.expected([request])

    run(test)


def test_a_queue_that_is_in_doubt_again_is_verified_again(run: Callable[[Test], None]) -> None:
    async def test(bench: Doubter) -> None:
        await bench.answers(pull_at(0), pull_at(CHUNK_UNITS))
        assert bench.known() == [0, 1]
        assert bench.queue.distrust(0)
        assert bench.known() == []
        await bench.answers(pull_at(CHUNK_UNITS))
        assert bench.known() == [1]
        assert bench.by_python == []

    run(test)


def test_units_of_before_are_forgotten_with_a_doubt(run: Callable[[Test], None]) -> None:
    async def test(bench: Doubter) -> None:
        await bench.answers(pull_at(0))
        bench.write_unit(7, bytes(UNIT_BYTES))
        bench.queue._doubt_all()
        bench.queue.unverified_chunks()  # as a disk thread, which verifies units of its own
        (answer,) = await bench.answers(pull_at(0))
        assert bench.by_python, "the thread was not given what the file no longer has"
        assert b"7" * 50 in answer

    run(test)
