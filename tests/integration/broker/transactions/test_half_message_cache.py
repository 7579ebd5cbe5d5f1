"""Halves at hand for their end: the same is stored as by a broker that reads them from its log."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.broker import send_wiring, wiring
from kourou.broker.connection_state import ConnectionState
from kourou.broker.controller import BrokerController
from kourou.broker.transactions import half_message_states as half_cache
from kourou.broker.transactions.half_message_states import CachedHalfMessage, HalfMessageCache
from kourou.protocol.codes import CommandFlag, RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.headers.transactions import EndTransactionRequestHeader
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.names import RMQ_SYS_TRANS_OP_HALF_TOPIC
from kourou.store.disk.files import Files
from kourou.testing.clock import FakeClock
from kourou.testing.faulty_files import FaultyFiles
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.settings import ConnectionLimits
from tests.e2e.broker.broker_kit import config, send_header
from tests.interop.kit.ports import free_port
from tests.unit.store.message_stores import read_queue

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
NOW_MS = 1_700_000_000_000
HALF = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01TX1\x02"
# What is kept, and (marked so) what has to be read from the log.
SENT = {
    "plain": HALF,
    "tags and keys": f"{HALF}TAGS\x01T\x02KEYS\x01a b  a\x02WAIT\x01false\x02me\x01you\x02",
    "no end": HALF[:-1],
    "two of each": f"TAGS\x01x\x02KEYS\x01y\x02PGROUP\x01Q\x02{HALF}TAGS\x01T\x02KEYS\x01k\x02TAGS\x01\x02",
    "other scripts": f"{HALF}TAGS\x01тег\x02KEYS\x01キー\x02me\x01💾\x02",
    "no id": "TRAN_MSG\x01true\x02PGROUP\x01PG\x02",
    "names of ours": f"REAL_TOPIC\x01Other\x02REAL_QID\x017\x02{HALF}MSG_REGION\x01x\x02TRACE_ON\x01x\x02",
    "our words inside": f"{HALF}me\x01REAL_TOPIC\x01x\x02XREAL_TOPIC\x01y\x02__transactionId__\x01z\x02",
    "read: a time of its own": f"{HALF}CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02",
    "read: no delay": f"{HALF}DELAY\x010\x02",
    "read: a word like a delay": f"{HALF}MY_DELAY\x015\x02",
}


class Forgetful(HalfMessageCache):
    """Keeps nothing."""

    def add(self, half: CachedHalfMessage, phy_offset: int, queue_offset: int) -> None:
        pass


class Broker:
    """A broker that is fed by hand, with one producer. Its clock stands still."""

    def __init__(self, controller: BrokerController, recent: HalfMessageCache) -> None:
        self.services = controller.services
        self.transactions = wiring.transactions(self.services)
        self.transactions.recent = recent
        sends, _ = send_wiring.sends(self.services, recent, None)
        ends = wiring.transactions_part(self.services, self.transactions)
        processors = {**sends.processors(), **ends.processors()}
        self.connection = Connection(
            self.services.cycles,
            Dispatcher(processors),
            ConnectionLimits(),
            InboundBudget(1 << 30),
            new_state=ConnectionState,
        )
        self.transport = MemoryTransport(self.connection)

    def feed(self, *commands: RemotingCommand) -> list[RemotingCommand]:
        """The answers to requests that come in one read."""
        self.connection.data_received(b"".join([command.encode() for command in commands]))
        self.services.cycles.close()
        return self.transport.commands()

    def half(self, body: bytes = b"half", properties: str = HALF, **fields: Any) -> SendMessageResponseHeader:
        """Where a half is that was taken."""
        (answer,) = self.feed(half(body, properties, **fields))
        assert answer.code == 0, answer.remark
        return answer.header(SendMessageResponseHeader)

    def log_bytes(self) -> bytes:
        log = self.services.store.log
        return log.read(0, log.max_phy_offset) or b""

    def indexed(self, key: str) -> list[int]:
        index = self.services.store.index
        assert index is not None
        return index.query("TopicTest", key, 64, 0, 1 << 60)

    def visible(self) -> list[bytes]:
        return [record.stored_body for record in read_queue(self.services.store, "TopicTest")]

    def ops(self) -> list[bytes]:
        return [record.stored_body for record in read_queue(self.services.store, RMQ_SYS_TRANS_OP_HALF_TOPIC)]


def half(body: bytes, properties: str, **fields: Any) -> RemotingCommand:
    given = {"producer_group": "PG", "sys_flag": 4, "born_timestamp": NOW_MS, **fields}
    header = send_header("TopicTest", properties, **given)
    return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)


def end(stored: SendMessageResponseHeader, how: int, **fields: Any) -> RemotingCommand:
    header = EndTransactionRequestHeader(
        **{
            "producer_group": "PG",
            "tran_state_table_offset": stored.queue_offset,
            "commit_log_offset": parse_offset_msg_id(stored.msg_id).phy_offset,
            "commit_or_rollback": how,
            "msg_id": "TX1",
            **fields,
        }
    )
    return RemotingCommand.request(RequestCode.END_TRANSACTION, header)


@asynccontextmanager
async def running(
    root: Path, recent: HalfMessageCache, *, files: Files | None = None, **keys: Any
) -> AsyncIterator[Broker]:
    settings = config(root, transaction_check_interval=3_600_000, **keys)
    async with BrokerController(settings, files=files, clock=FakeClock(NOW_MS)) as controller:
        yield Broker(controller, recent)


# -- the same as from the log ------------------------------------------------------------------------


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("name", SENT)
async def test_an_end_stores_what_the_record_of_its_half_would_have_made(
    tmp_path: Path, name: str, how: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kourou.protocol.message_id.UniqueIdGenerator.__call__", lambda _: "AC110001A1B218B4AAC2000000003039"
    )
    port = free_port()
    async with AsyncExitStack() as stack:
        quick, slow = [
            await stack.enter_async_context(
                running(tmp_path / host, recent, bind_address=host, listen_port=port)
            )
            for host, recent in (("127.0.0.1", HalfMessageCache()), ("127.0.0.2", Forgetful()))
        ]
        units = []
        for broker in (quick, slow):
            stored = broker.half(b"body", SENT[name], queue_id=3, flag=7, reconsume_times=2)
            assert len(broker.transactions.recent) == (broker is quick and not name.startswith("read: "))
            (answer,) = broker.feed(end(stored, how))
            assert answer.code == 0, answer.remark
            assert len(broker.transactions.recent) == 0
            queue = broker.services.store.queues.find("TopicTest", 3)
            units.append(queue.read_units(0, 10) if queue is not None else b"")
            assert len(units[-1]) == (20 if how == COMMIT else 0)
        assert quick.log_bytes() == slow.log_bytes()
        assert units[0] == units[1]
        for key in ("TX1", "a", "b", "k", "y", "キー", "AC110001A1B218B4AAC2000000003039"):
            assert quick.indexed(key) == slow.indexed(key)


# -- not what is at hand -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"producer_group": "Other"}, {"commit_log_offset": 1}, {"tran_state_table_offset": 1}]
)
async def test_an_end_that_does_not_fit_ends_nothing_and_the_right_one_still_does(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    async with running(tmp_path, HalfMessageCache()) as broker:
        stored = broker.half(b"1")
        broker.half(b"2")
        (answer,) = broker.feed(end(stored, COMMIT, **wrong))
        assert answer.code == 1
        assert (broker.visible(), broker.ops()) == ([], [])
        (answer,) = broker.feed(end(stored, COMMIT))
        assert (answer.code, broker.visible(), broker.ops()) == (0, [b"1"], [b"0"])


async def test_two_ends_in_one_read_are_one(tmp_path: Path) -> None:
    async with running(tmp_path, HalfMessageCache()) as broker:
        stored = broker.half()
        first, *_ = broker.feed(end(stored, COMMIT), end(stored, ROLLBACK), end(stored, COMMIT))
        assert first.code == 0
        await broker.services.requests.wait_idle(5)
        assert (broker.visible(), broker.ops()) == ([b"half"], [b"0"])


async def test_an_unknown_outcome_leaves_the_half_open(tmp_path: Path) -> None:
    async with running(tmp_path, HalfMessageCache()) as broker:
        stored = broker.half()
        assert broker.feed(end(stored, UNKNOWN)) == []
        assert len(broker.transactions.recent) == 1
        assert broker.feed(end(stored, COMMIT))[0].code == 0
        assert broker.visible() == [b"half"]


async def test_a_half_put_again_ends_by_its_copy(tmp_path: Path) -> None:
    async with running(tmp_path, HalfMessageCache()) as broker:
        stored = broker.half()
        record = read_queue(broker.services.store, "RMQ_SYS_TRANS_HALF_TOPIC")[0]
        broker.transactions.put_again(record, is_checked=True, done=None)
        broker.services.cycles.close()
        broker.feed(end(stored, COMMIT))
        await broker.services.requests.wait_idle(5)
        assert (broker.visible(), broker.ops()) == ([b"half"], [b"0", b"1"])


async def test_a_oneway_end_is_not_answered(tmp_path: Path) -> None:
    async with running(tmp_path, HalfMessageCache()) as broker:
        command = end(broker.half(), COMMIT)
        command.flag |= CommandFlag.ONEWAY
        assert broker.feed(command) == []
        assert (broker.visible(), broker.ops()) == ([b"half"], [b"0"])


# -- failures ----------------------------------------------------------------------------------------


async def test_a_half_that_could_not_be_written_is_not_at_hand_and_its_place_is_for_the_next(
    tmp_path: Path,
) -> None:
    files = FaultyFiles()
    async with running(tmp_path, HalfMessageCache(), files=files) as broker:
        stored = broker.half(b"0")
        files.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
        (answer,) = broker.feed(half(b"lost", HALF))
        assert answer.code != 0
        assert len(broker.transactions.recent) == 1
        later = broker.half(b"1")
        assert later.queue_offset == 1
        assert [each.code for each in broker.feed(end(stored, COMMIT), end(later, COMMIT))] == [0, 0]
        assert (broker.visible(), broker.ops()) == ([b"0", b"1"], [b"0", b"1"])


async def test_an_end_that_could_not_be_written_can_come_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with running(tmp_path, HalfMessageCache(), files=files) as broker:
        stored = broker.half()
        files.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
        (answer,) = broker.feed(end(stored, COMMIT))
        assert answer.code != 0
        assert (broker.visible(), broker.ops()) == ([], [])
        (answer,) = broker.feed(end(stored, COMMIT))
        assert (answer.code, broker.visible(), broker.ops()) == (0, [b"half"], [b"0"])


# -- bounds ------------------------------------------------------------------------------------------


def test_what_never_ends_costs_no_more_than_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_cache, "MAX_HALVES", 10)
    monkeypatch.setattr(half_cache, "MAX_BYTES", 500)
    halves = HalfMessageCache()
    for queue_offset in range(100):
        halves.add(recent(b"x" * 20), 0, queue_offset)
        assert 1 <= len(halves) <= 10
    newest = halves.take(99)
    assert newest is not None and newest.queue_offset == 99
    assert halves.take(99) is None
    halves = HalfMessageCache()
    for queue_offset in range(100):
        halves.add(recent(b"x" * 200), 0, queue_offset)
        assert len(halves) <= 4


def test_what_has_ended_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_cache, "MAX_BYTES", 500)
    halves = HalfMessageCache()
    halves.add(recent(b""), 0, 1_000)
    for queue_offset in range(100):
        halves.add(recent(b"x" * 200), 0, queue_offset)
        assert halves.take(queue_offset) is not None
    assert halves.take(1_000) is not None


@pytest.mark.parametrize(("properties", "keys"), [(b"p" * 100, ()), (b"", ("a", "b", "c"))])
def test_properties_and_keys_count_too(
    monkeypatch: pytest.MonkeyPatch, properties: bytes, keys: tuple[str, ...]
) -> None:
    monkeypatch.setattr(half_cache, "MAX_BYTES", 500)
    halves = HalfMessageCache()
    for queue_offset in range(100):
        halves.add(recent(b"", properties, keys), 0, queue_offset)
        assert len(halves) <= 4


def recent(body: bytes, properties: bytes = b"", keys: tuple[str, ...] = ()) -> CachedHalfMessage:
    return CachedHalfMessage("PG", "T", 0, body, properties, 0, keys, 0, b"", 0, 0, 0)
