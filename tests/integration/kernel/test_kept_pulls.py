"""What a connection's pulls may get is kept by the kernel across reads, but not when anything has changed of
what it was decided by; so are the units and the windows of the log that were found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from types import ModuleType
from typing import Any

import msgspec
import pytest

from kourou.broker.connection_state import ConnectionState
from kourou.broker.groups.producers import ClientChannel
from kourou.broker.pull import kernel_targets, pull_places
from kourou.protocol.bodies import ConsumerData, MessageModel, SubscriptionData
from kourou.protocol.codes import LanguageCode
from kourou.protocol.layout import PULL_NOTE
from kourou.store.log.commit_log import CommitLog
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection
from tests.integration.kernel.kernel_kit import FedBroker, install
from tests.integration.kernel.test_answer_pulls import pulls
from tests.integration.kernel.twins import ID, Twins, frame, send, started

MESSAGES = 3_000


@pytest.fixture(scope="module")
def twins(kernel: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        install(kernel, patch)
        stack = AsyncExitStack()
        folder = tmp_path_factory.mktemp("kept")
        twins = started(runner, stack, folder, flush_interval_consume_queue=3_600_000)
        sends = (f"UNIQ_KEY\x01{ID}\x02TAGS\x01Tag{n % 3}\x02" for n in range(MESSAGES))
        twins.feed(frame(send()))
        twins.feed(b"".join(frame(send({"i": tags})) for tags in sends))
        twins.feed(pulls())
        yield twins
        runner.run(stack.aclose())


class Reader:
    """One connection to each of the brokers; both get the same answers. `asked` counts how often the kernel
    asked what a pull may get."""

    def __init__(self, twins: Twins, patch: pytest.MonkeyPatch) -> None:
        self.twins = twins
        self.asked = 0
        self._connections = [twins.run(_connected(broker)) for broker in twins.brokers]
        targets = twins.brokers[0].services.pulls.targets
        known = targets.known

        def counted(*arguments: Any) -> Any:
            self.asked += 1
            return known(*arguments)

        patch.setattr(targets, "known", counted)

    @property
    def connections(self) -> list[Connection]:
        return [connection for connection, _ in self._connections]

    def read(self, data: bytes) -> bytes:
        """What both answer."""
        first, second = (
            self.twins.run(_answered(broker, *pair, data))
            for broker, pair in zip(self.twins.brokers, self._connections, strict=True)
        )
        assert first == second
        return first

    def read_later(self, data: bytes) -> bytes:
        """What the broker with a kernel answers to a pull that has to wait for the disk."""
        connection, transport = self._connections[0]

        async def answered() -> bytes:
            assert await _answered(self.twins.brokers[0], connection, transport, data) == b""
            while not transport.written:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            return b"".join(transport.written)

        return self.twins.run(asyncio.wait_for(answered(), 10))

    def pulled(self, data: bytes) -> tuple[int, int]:
        """How many pulls the kernel answers of these, and how often it asked."""
        broker = self.twins.brokers[0]
        before = broker.pulled, self.asked
        self.read(data)
        return broker.pulled - before[0], self.asked - before[1]


async def _connected(broker: FedBroker) -> tuple[Connection, MemoryTransport]:
    return broker.connect()


async def _answered(
    broker: FedBroker, connection: Connection, transport: MemoryTransport, data: bytes
) -> bytes:
    transport.written.clear()
    connection.data_received(data)
    broker.services.cycles.close()
    await asyncio.sleep(0)
    return b"".join(transport.written)


@pytest.fixture
def reader(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> Reader:
    for broker in twins.brokers:
        for queue in broker.services.store.queues.items():
            # A test has had them doubted.
            queue._doubtful_end, queue.unverified, queue.doubted = 0, None, {}
    reader = Reader(twins, monkeypatch)
    reader.read(pulls())
    return reader


# -- what a pull may get ------------------------------------------------------------------------------


def test_it_is_asked_once_for_each_kind_of_pull(reader: Reader) -> None:
    tagged = pulls({"subscription": "Tag1"})
    reader.read(tagged + pulls())  # the general way has decided the first one now, and the topic's other one
    for _ in range(3):
        reader.read(pulls({"queueOffset": "7"}, opaque=9))
    asked = reader.asked
    assert reader.pulled(pulls({"queueOffset": "70"}) * 3) == (3, 0)
    assert reader.asked == asked


def _changed(broker: FedBroker, change: str) -> Callable[[], None]:
    """Make a change that concerns pulls; what undoes it."""
    services = broker.services
    if change == "ruling":
        services.admission.invalidate()
        return services.admission.invalidate
    if change == "topic":
        topic = services.topics.table["TopicTest"]
        services.topics.update(msgspec.structs.replace(topic, read_queue_nums=2))
        return lambda: services.topics.update(topic)
    if change == "topic deleted":
        topic = services.topics.table.pop("TopicTest")
        return lambda: services.topics.table.update({"TopicTest": topic})
    group = services.groups.find("readers")
    assert group is not None
    services.groups.update(msgspec.structs.replace(group, consume_enable=False))
    return lambda: services.groups.update(msgspec.structs.replace(group, consume_enable=True))


@pytest.mark.parametrize("change", ["ruling", "topic", "topic deleted", "group"])
def test_a_change_is_noticed_by_the_next_read(reader: Reader, change: str) -> None:
    reader.read(pulls())
    assert reader.pulled(pulls()) == (1, 0)
    undo = [_changed(broker, change) for broker in reader.twins.brokers]
    answered, asked = reader.pulled(pulls())
    for each in undo:
        each()
    reader.read(pulls())
    assert (answered, asked > 0) == (0, True)
    assert reader.pulled(pulls())[0] == 1


def test_another_connection_asks_for_itself(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Reader(reader.twins, monkeypatch)
    assert other.pulled(pulls()) == (1, 1)


def test_few_kinds_of_pulls_are_kept(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_targets, "_MAX_KNOWN", 3)
    known = reader.connections[0].state.known_pulls
    for bits in range(8):
        reader.read(pulls({"sysFlag": str(4 | bits & 3), "commitOffset": "0", "subVersion": str(bits)}))
        assert len(known) <= 3


def test_a_key_that_is_too_long_is_left_to_the_slow_path(reader: Reader) -> None:
    long = pulls({"subscription": "a" * 2_000})
    reader.read(long)
    known = len(reader.connections[0].state.known_pulls)
    assert reader.pulled(long)[0] == 0
    assert len(reader.connections[0].state.known_pulls) == known


# -- subscriptions by heartbeat -----------------------------------------------------------------------

MEMBER = {"consumerGroup": "members", "sysFlag": "0", "subscription": None, "subVersion": "1"}


def _heartbeat(
    reader: Reader, text: str, version: int, *, own: bool, model: MessageModel | None = None
) -> None:
    wanted = SubscriptionData(topic="TopicTest", sub_string=text, sub_version=version)
    data = ConsumerData(
        group_name="members", message_model=model or MessageModel.CLUSTERING, subscription_data_set=[wanted]
    )

    async def register(broker: FedBroker, connection: Connection) -> None:
        state: ConnectionState = connection.state
        if own:
            state.record_subscriptions(data)
        channel = ClientChannel(connection, "client", LanguageCode.JAVA, 501, 0)
        broker.services.consumers.register(channel, data)

    for broker, connection in zip(reader.twins.brokers, reader.connections, strict=True):
        reader.twins.run(register(broker, connection))


@pytest.mark.parametrize(
    ("change", "is_asked"),
    [
        (lambda reader: _heartbeat(reader, "Tag1", 3, own=True), True),
        (lambda reader: _heartbeat(reader, "Tag1", 3, own=False), True),
        (lambda reader: _heartbeat(reader, "*", 1, own=True), True),
        (lambda reader: _heartbeat(reader, "*", 1, own=False), False),
        (lambda reader: _heartbeat(reader, "*", 1, own=False, model=MessageModel.BROADCASTING), True),
        (lambda reader: _left(reader), True),
    ],
    ids=["newer", "newer of another member", "the same", "the same of another", "model", "left"],
)
def test_a_heartbeat_that_changes_anything_is_noticed(
    reader: Reader, change: Callable[[Reader], None], is_asked: bool
) -> None:
    _heartbeat(reader, "*", 1, own=True)
    reader.read(pulls(MEMBER))
    reader.read(pulls(MEMBER))
    assert reader.pulled(pulls(MEMBER)) == (1, 0)
    change(reader)
    assert (reader.pulled(pulls(MEMBER))[1] > 0) == is_asked
    _left(reader)


def _left(reader: Reader) -> None:
    for broker, connection in zip(reader.twins.brokers, reader.connections, strict=True):
        broker.services.consumers.groups.pop("members", None)
        connection.state.subscriptions.clear()


# -- units --------------------------------------------------------------------------------------------


@pytest.fixture
def flushed(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> ConsumeQueue:
    """The queue of the broker with a kernel, as if all of its units but the last were in files; these cannot
    be read."""
    queue = twins.brokers[0].services.store.queues.find("TopicTest", 0)
    assert queue is not None
    if queue.flushed_queue_offset == 0:
        for broker in twins.brokers:
            each = broker.services.store.queues.find("TopicTest", 0)
            assert each is not None
            each.flush()
            each.read_units(0, 1)
    return queue


@pytest.mark.parametrize(
    ("offset", "count"),
    [
        ("0", "32"),
        ("5", "32"),
        ("1020", "32"),
        ("2016", "32"),
        ("0", "1024"),
        ("5", "1024"),
        ("1024", "1024"),
    ],
)
def test_units_of_blocks_are_read_once(
    reader: Reader, flushed: ConsumeQueue, monkeypatch: pytest.MonkeyPatch, offset: str, count: str
) -> None:
    asked = pulls({"queueOffset": offset, "maxMsgNums": count, "kourouLargePull": "true"})
    reader.read(asked)

    def fail(*_: Any) -> None:
        raise AssertionError

    answers = reader.read(asked)
    before = reader.twins.brokers[0].pulled
    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueue, "read_units_nowait", fail)
        connection, transport = reader._connections[0]
        assert reader.twins.run(_answered(reader.twins.brokers[0], connection, transport, asked)) == answers
    assert reader.twins.brokers[0].pulled == before + 1


def test_units_in_doubt_are_not_used(reader: Reader, flushed: ConsumeQueue) -> None:
    """They are verified first, which takes the disk where not all of them are sent."""
    asked = pulls({"queueOffset": "1020", "subscription": "Tag1"})
    broker = reader.twins.brokers[0]
    reader.read(asked)
    answer = reader.read(asked)
    assert flushed.blocks and flushed._files.verifier is not None
    before = broker.pulled

    flushed.distrust(1020)
    assert not flushed.blocks
    assert reader.read_later(asked) == answer
    assert broker.pulled == before
    reader.read_later(pulls())  # what most tests pull is the last that was decided


# -- the log ------------------------------------------------------------------------------------------


def test_a_window_is_found_once(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    path = reader.twins.brokers[0].fast_paths
    assert path is not None
    path.pulls._places.windows.clear()
    monkeypatch.setattr(pull_places, "_KEPT_S", 60.0)
    found: list[int] = []
    window_at = CommitLog.window_at

    def spied(log: CommitLog, phy_offset: int) -> Any:
        if log is reader.twins.brokers[0].services.store.log:
            found.append(phy_offset)
        return window_at(log, phy_offset)

    monkeypatch.setattr(CommitLog, "window_at", spied)
    for _ in range(3):
        assert reader.pulled(pulls() * 3) == (3, 0)
    assert len(found) == 1
    monkeypatch.setattr(pull_places, "_KEPT_S", -1.0)
    reader.read(pulls())
    reader.read(pulls())
    assert len(found) == 3


def test_a_map_that_is_gone_is_not_read(reader: Reader) -> None:
    path = reader.twins.brokers[0].fast_paths
    assert path is not None
    reader.read(pulls())
    (log_file, *_), *_ = path.pulls._places.windows.values()
    log_file.unmap()
    assert log_file.map_in_use is None
    assert reader.pulled(pulls())[0] == 1, "it is mapped again"
    log_file.is_broken = True
    before = reader.twins.brokers[0].pulled
    assert reader.read_later(pulls()).count(b'"remark":"FOUND"') == 1
    assert reader.twins.brokers[0].pulled == before
    log_file.is_broken = False
    assert reader.pulled(pulls())[0] == 1


def test_a_log_that_was_shortened_ends_what_is_read(reader: Reader) -> None:
    log = reader.twins.brokers[0].services.store.log
    last = pulls({"queueOffset": str(MESSAGES)})
    assert reader.pulled(last)[0] == 1
    end, log.max_phy_offset = log.max_phy_offset, log.max_phy_offset - 1
    try:
        connection, transport = reader._connections[0]
        before = reader.twins.brokers[0].pulled
        reader.twins.run(_answered(reader.twins.brokers[0], connection, transport, last))
        assert reader.twins.brokers[0].pulled == before
    finally:
        log.max_phy_offset = end


# -- what is counted later ----------------------------------------------------------------------------


def test_what_was_pulled_is_counted_before_it_is_asked_for(reader: Reader) -> None:
    services = reader.twins.brokers[0].services
    before = services.stats.rates.get_nums, services.stats.user_get_nums
    reader.read(pulls({"queueOffset": "11", "maxMsgNums": "3"}))
    path = reader.twins.brokers[0].fast_paths
    assert path is not None and path.pulls.notes.noted
    assert services.offsets.query_pull("readers", "TopicTest", 0) == 14
    assert not path.pulls.notes.noted
    reader.read(pulls({"queueOffset": "11", "maxMsgNums": "4"}))
    assert services.stats.rates.get_nums - before[0] == 7
    assert services.stats.user_get_nums - before[1] == 7


def test_so_much_waits_to_be_counted(reader: Reader) -> None:
    path = reader.twins.brokers[0].fast_paths
    assert path is not None
    for _ in range(10):
        reader.read(pulls() * 200)
        waiting = sum(len(known.notes) for known in path.pulls.notes.noted) // PULL_NOTE.size
        assert waiting < 512
