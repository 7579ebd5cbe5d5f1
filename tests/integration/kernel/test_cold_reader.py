"""ColdReader: a thread answers pulls of old messages, and writes to the socket in turns with the loop."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kourou.broker.connection_state import ConnectionState
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.store.kernel import KernelChoice
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.settings import ConnectionLimits
from tests.integration.kernel.kernel_kit import FedBroker, fed_broker, install
from tests.integration.kernel.test_answer_pulls import pulls, setup, split_frames
from tests.integration.kernel.twins import frame, send
from tests.interop.kit.ports import free_port

MESSAGES = 40
BODY_BYTES = 3_000
FILE_BYTES = 64 * 1024

Test = Callable[["Bench"], Awaitable[None]]


class Bench:
    """A broker with old messages in several files, while others are put."""

    def __init__(self, broker: FedBroker) -> None:
        self.broker = broker
        assert broker.fast_paths is not None
        self.pulls = broker.fast_paths.pulls
        assert self.pulls._cold_answers is not None
        self.cold_answers = self.pulls._cold_answers
        self.log = broker.services.store.log
        self.log._window = 0

    @asynccontextmanager
    async def connected(self, **limits: int) -> AsyncIterator[tuple[Connection, socket.socket]]:
        """A connection over a real socket, and the peer's side of it."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
            if limits:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits["buffer_bytes"])
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits["buffer_bytes"])
        services = self.broker.services
        connection = Connection(
            services.cycles,
            Dispatcher(services.pulls.processors(), services.admission.request_checks),
            ConnectionLimits(),
            InboundBudget(1 << 30),
            bulk=self.broker.fast_paths,
            new_state=ConnectionState,
        )
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: connection, ours)
        try:
            yield connection, theirs
        finally:
            connection.abort("the test is over")
            theirs.close()
            await asyncio.sleep(0)

    def expected(self, requests: list[bytes]) -> list[bytes]:
        """The answers of Python, sorted."""
        status = self.broker.services.kernel
        current, status.current = status.current, KernelChoice(None, "for the test")
        self.log._window = 1 << 40  # nothing is old
        try:
            answers = self.broker.feed([b"".join(requests)])[0]
        finally:
            status.current, self.log._window = current, 0
        return sorted(split_frames(answers))


async def received(peer: socket.socket, count: int) -> list[bytes]:
    """As many frames as the peer gets."""
    loop, data, frames = asyncio.get_running_loop(), b"", list[bytes]()
    async with asyncio.timeout(20):
        while len(frames) < count:
            part = await loop.sock_recv(peer, 1 << 20)
            assert part, "the connection ended"
            data += part
            end = _whole(data)
            frames += split_frames(data[:end])
            data = data[end:]
    assert not data
    return frames


def _whole(data: bytes) -> int:
    """Where the last whole frame of these bytes ends."""
    end = 0
    while end + 4 <= len(data) and end + 4 + int.from_bytes(data[end : end + 4], "big") <= len(data):
        end += 4 + int.from_bytes(data[end : end + 4], "big")
    return end


def old_pulls(count: int, *, most: int = 3, first: int = 0) -> list[bytes]:
    return [
        pulls({"queueOffset": str((first + n) % MESSAGES), "maxMsgNums": str(1 + n % most)}, opaque=n)
        for n in range(count)
    ]


@pytest.fixture
def run(kernel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Test], None]:
    """Runs a test on a broker with two cores and a sender that never stops."""
    monkeypatch.setattr("kourou.broker.pull.cold_pulls.SENDING_S", 600.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    install(kernel, monkeypatch)

    def run(test: Test) -> None:
        async def on_broker() -> None:
            keys: dict[str, Any] = {"mapped_file_size_commit_log": FILE_BYTES}
            async with fed_broker(
                tmp_path, host="127.0.0.1", port=free_port(), kernel=True, **keys
            ) as broker:
                for n in range(MESSAGES):
                    broker.feed([frame(send(), bytes([n]) * BODY_BYTES)])
                broker.feed([pulls()])
                await test(Bench(broker))

        asyncio.run(on_broker())

    return run


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- answers ------------------------------------------------------------------------------------------


def test_answers_are_those_of_python(run: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        requests = old_pulls(MESSAGES)
        sent: list[int] = []
        answered = bench.pulls.notes.answered
        bench.pulls.notes.answered = lambda pulls, took_s: (sent.append(pulls), answered(pulls, took_s))[1]
        async with bench.connected() as (_, peer):
            for request in requests:
                await asyncio.get_running_loop().sock_sendall(peer, request)
            answers = await received(peer, len(requests))
            await bench.pulls.wait_idle()
        # All but those that lie in two files.
        assert sum(sent) > MESSAGES // 2
        assert sorted(answers) == bench.expected(requests)

    run(test)


def test_answers_of_one_connection_leave_in_order(run: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        async with bench.connected() as (_, peer):
            requests = [pulls({"queueOffset": "1", "maxMsgNums": "1"}, opaque=n) for n in range(40)]
            await asyncio.get_running_loop().sock_sendall(peer, b"".join(requests))
            answers = await received(peer, len(requests))
        opaques = [decode_command(each).opaque for data in answers for each in FrameDecoder().feed(data)]
        assert opaques == list(range(40))

    run(test)


def test_a_peer_that_reads_slowly_gets_whole_answers(run: Callable[[Test], None]) -> None:
    """Its socket takes a part of an answer: the loop writes the rest, and nothing in between."""

    async def test(bench: Bench) -> None:
        requests = old_pulls(200, most=16)
        async with bench.connected(buffer_bytes=4_096) as (_, peer):
            loop = asyncio.get_running_loop()
            sending = asyncio.ensure_future(loop.sock_sendall(peer, b"".join(requests)))
            await asyncio.sleep(0.05)
            answers = await received(peer, len(requests))
            await sending
        assert sorted(answers) == bench.expected(requests)

    run(test)


def test_records_that_are_damaged_are_left_to_python(run: Callable[[Test], None]) -> None:
    """The thread answers nothing but what its units say."""

    async def test(bench: Bench) -> None:
        log_file = bench.log.log_files[0]
        head = log_file.file.pread(8, 0)
        log_file.file.pwrite(head[:4] + b"\0\0\0\0", 0)  # the magic of the first record
        reports: list[Any] = []
        finish = bench.cold_answers._finish
        bench.cold_answers._finish = lambda *of: (reports.append(of[1][0]), finish(*of))[1]
        async with bench.connected() as (_, peer):
            request = pulls({"queueOffset": "0", "maxMsgNums": "1"})
            await asyncio.get_running_loop().sock_sendall(peer, request)
            answers = await received(peer, 1)
        assert reports == [0]
        assert len(answers) == 1

    run(test)


@pytest.mark.parametrize("way", ["one read", "no sends", "later"])
def test_an_answer_of_the_thread_does_not_go_into_one_of_the_loop(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The peer takes a part of the answer with new messages; the other pull is of an old one."""

    async def test(bench: Bench) -> None:
        bench.log._window = 45_000
        bench.pulls._turns._credit_s = 1.0
        new = pulls({"queueOffset": "30", "maxMsgNums": "10"}, opaque=1)
        old = pulls({"queueOffset": "2", "maxMsgNums": "1"}, opaque=2)
        async with bench.connected(buffer_bytes=4_096) as (connection, peer):
            if way == "one read":
                connection.data_received(new + old)
            elif way == "no sends":
                connection.data_received(new)
                monkeypatch.setattr(bench.pulls._cold_reads, "is_sending", lambda: False)
                monkeypatch.setattr(bench.log, "region_at", lambda *_: None)  # not in the page cache
                connection.data_received(old)
            else:
                connection.data_received(new)
                connection.state.reads_later += 1
                bench.pulls._collect_later(connection, old)
            time.sleep(0.02)  # noqa: ASYNC251 (the thread is done before the loop goes on)
            answers = await received(peer, 2)
        assert sorted(answers) == bench.expected([new, old])

    run(test)


def test_new_messages_behind_old_ones_are_not_left_to_the_thread(run: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        bench.log._window = 45_000
        new = pulls({"queueOffset": "39", "maxMsgNums": "1"}, opaque=1)
        old = pulls({"queueOffset": "25", "maxMsgNums": "1"}, opaque=2)
        low, high = (bench.log.file_at(_phy_offset(bench, at)) for at in (25, 39))
        assert low is high, "in one file"
        async with bench.connected() as (connection, peer):
            bench.pulls._turns._credit_s = 1.0
            bench.pulls._places.windows.clear()
            connection.data_received(old + new)
            assert bench.cold_answers.reader.under_way() == 1
            assert sorted(await received(peer, 2)) == bench.expected([new, old])
            await bench.pulls.wait_idle()
            bench.cold_answers.collect()

            connection.data_received(old + new + old)
            assert bench.cold_answers.reader.under_way() == 2
            assert connection.state.reads_old, "the thread may write"
            assert sorted(await received(peer, 3)) == bench.expected([new, old, old])

    run(test)


def _phy_offset(bench: Bench, queue_offset: int) -> int:
    queue = bench.broker.services.store.queues.get("TopicTest", 0)
    unit = None if queue is None else queue.unit(queue_offset)
    assert unit is not None
    return unit[0]


def test_a_pull_that_the_thread_does_not_answer_commits_once(run: Callable[[Test], None]) -> None:
    """What the client has committed since is not moved back."""

    async def test(bench: Bench) -> None:
        log_file = bench.log.log_files[0]
        head = log_file.file.pread(8, 0)
        log_file.file.pwrite(head[:4] + b"\0\0\0\0", 0)  # the magic of the first record
        offsets = bench.broker.services.offsets
        async with bench.connected() as (connection, peer):
            bench.pulls._turns._credit_s = 1.0
            fields = {"queueOffset": "0", "maxMsgNums": "1", "commitOffset": "5", "sysFlag": "5"}
            connection.data_received(pulls(fields))
            ((key, queues),) = offsets.offset_table.items()
            assert list(queues.values()) == [5]
            topic, group = key.split("@")
            offsets.commit(group, topic, next(iter(queues)), 20, "the test")
            await received(peer, 1)
        assert list(queues.values()) == [20]

    run(test)


def test_a_consumer_that_has_caught_up_does_not_wait_for_turns(run: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        async with bench.connected() as (connection, peer):
            bench.pulls._turns._credit_s = 1.0
            connection.data_received(old_pulls(1)[0])
            await received(peer, 1)
            assert connection.state.reads_old
            end = {"queueOffset": str(MESSAGES), "suspendTimeoutMillis": "20", "sysFlag": "6"}
            connection.data_received(pulls(end))
            await received(peer, 1)
            assert not connection.state.reads_old
            assert bench.pulls._turns._began_s is None, "what follows is not charged"

    run(test)


def test_a_connection_whose_pulls_wait_is_not_served_before_them(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than may wait for a turn are handled as all requests are."""

    async def test(bench: Bench) -> None:
        monkeypatch.setattr("kourou.broker.pull.fast_pull_path._MAX_LATER", 2)
        async with bench.connected() as (connection, peer):
            turns = bench.pulls._turns
            turns._credit_s = 1.0
            connection.data_received(old_pulls(1)[0])
            await received(peer, 1)
            await bench.pulls.wait_idle()
            bench.cold_answers.collect()
            turns._refilled_s, turns._credit_s = turns._clock(), -1.0
            for request in old_pulls(3):
                connection.data_received(request)
            assert bench.cold_answers.reader.under_way() == 0
            assert connection.state.reads_later == 2
            assert sorted(await received(peer, 3)) == bench.expected(old_pulls(3))

    run(test)


# -- ends ---------------------------------------------------------------------------------------------


def test_a_peer_that_goes_away_leaves_no_descriptor(run: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        await bench.pulls.wait_idle()
        before = open_descriptors()
        for _ in range(20):
            async with bench.connected(buffer_bytes=4_096) as (_, peer):
                await asyncio.get_running_loop().sock_sendall(peer, b"".join(old_pulls(20, most=16)))
                await asyncio.sleep(0.002)
        await bench.pulls.wait_idle()
        await asyncio.sleep(0.05)
        assert open_descriptors() <= before

    run(test)


def test_what_is_collected_is_written_before_the_connection_closes(run: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        async with bench.connected() as (connection, peer):
            await asyncio.get_running_loop().sock_sendall(peer, old_pulls(1)[0])
            await received(peer, 1)
            connection.send(frame(b"{}", b"the last words"))
            connection.close("the test closes it")
            assert (await received(peer, 1))[0].endswith(b"the last words")
            assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""

    run(test)


def test_pulls_under_way_are_answered_when_the_thread_ends(run: Callable[[Test], None]) -> None:
    async def test(bench: Bench) -> None:
        async with bench.connected() as (connection, peer):
            bench.pulls._turns._credit_s = 1.0
            connection.data_received(b"".join(old_pulls(50)))
            await bench.pulls.stop()
            answers = await received(peer, 50)
        assert len(answers) == 50

    run(test)


def test_files_that_are_deleted_meanwhile(run: Callable[[Test], None]) -> None:
    """Each pull is answered, with messages or with where to go on."""

    async def test(bench: Bench) -> None:
        async with bench.connected() as (connection, peer):
            connection.data_received(b"".join(old_pulls(MESSAGES)))
            bench.log.delete_first()
            assert len(await received(peer, MESSAGES)) == MESSAGES

    run(test)


# -- decisions ----------------------------------------------------------------------------------------


def test_an_answer_that_took_long_is_decided_again(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.broker.pull.cold_answers._DECIDED_MS", -1)

    async def test(bench: Bench) -> None:
        async with bench.connected() as (connection, peer):
            connection.data_received(pulls({"queueOffset": "1", "maxMsgNums": "1"}))
            (answer,) = await received(peer, 1)
            assert b'"remark":"FOUND"' in answer
            connection.data_received(pulls({"queueOffset": "1", "maxMsgNums": "1"}))
            topics = bench.broker.services.topics
            config = topics.table["TopicTest"]
            topics.table["TopicTest"] = type(config)(**{**_fields(config), "perm": 2})
            (answer,) = await received(peer, 1)
        (refusal,) = FrameDecoder().feed(answer)
        assert decode_command(refusal).code == ResponseCode.NO_PERMISSION

    run(test)


def _fields(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


# -- turns --------------------------------------------------------------------------------------------


def test_a_socket_is_written_to_in_turns(kernel: ModuleType) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = open_descriptors()
        shared = kernel.SharedSocket(ours.fileno())
        assert open_descriptors() == before + 1
        assert shared.claim()
        shared.release()
        assert shared.claim()
        shared.close()
        shared.close()
        assert open_descriptors() == before
        assert shared.claim(), "nothing else writes to a socket that is closed"


def test_a_socket_that_is_forgotten_is_closed(kernel: ModuleType) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = open_descriptors()
        kernel.SharedSocket(ours.fileno())
        assert open_descriptors() == before
        with pytest.raises(OSError, match="descriptor"):
            kernel.SharedSocket(10_000_000)


def test_a_reader_without_jobs(kernel: ModuleType) -> None:
    before = open_descriptors()
    reader = kernel.ColdReader(100, 0)
    assert reader.collect([], 0) == (0, 0, [])
    assert reader.under_way() == 0
    reader.stop()
    reader.stop()
    del reader
    assert open_descriptors() == before


@pytest.mark.parametrize("cold", [1, (1, 2), ()])
def test_what_is_no_reader_is_refused(kernel: ModuleType, cold: object) -> None:
    with pytest.raises(TypeError, match="a ColdReader"):
        kernel.answer_pulls(None, {}, b"", 0, 0, -1, setup(reader=cold), 0, 0)
