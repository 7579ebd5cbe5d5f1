"""What a broker makes of its transactions after it was killed: a write cut anywhere, Apache's stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.broker.storage.inner_message import MessageWriter
from kourou.broker.transactions.half_message_states import OPEN
from kourou.broker.transactions.half_messages import committed
from kourou.broker.transactions.transactions import Transactions
from kourou.protocol.message import MessageExt
from kourou.protocol.names import RMQ_SYS_TRANS_HALF_TOPIC
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.store.settings import MessageStoreConfig
from kourou.transport.cycles import Cycles
from tests.golden import stores
from tests.unit.broker.half_kit import COMMIT, ROLLBACK, HalfBroker, half_broker
from tests.unit.broker.tables_kit import Tables
from tests.unit.store.message_stores import NOW_MS, read_queue

DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
PENDING = {"4.9.7": {b"transaction half"}, "5.5.0": {b"transaction half, left open"}}
Deed = Callable[[Transactions, MessageExt], object]

DEEDS: dict[str, Deed] = {
    "commit": lambda transactions, half: transactions.commit(half, None),
    "roll back": lambda transactions, half: transactions.roll_back(half, None),
    "give up": lambda transactions, half: transactions.give_up(half, None),
    "put again": lambda transactions, half: transactions.put_again(half, is_checked=True, done=None),
}


def cut(broker: HalfBroker, phy_offset: int) -> None:
    """Kill the broker, lose the log from `phy_offset` on, and start again."""
    end = broker.store.log.max_phy_offset
    broker.store.abandon()
    log = broker.store_kit.root / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(phy_offset)
        file.write(bytes(end - phy_offset))
    broker.store = broker.store_kit.open(read_window_bytes=0)
    broker._serve()


def outcomes(broker: HalfBroker) -> tuple[int, int, int]:
    """How often the one transaction was committed, given up, is open."""
    return len(broker.visible()), len(read_queue(broker.store, DISCARD_TOPIC)), len(broker.open_halves())


@pytest.mark.parametrize("name", DEEDS)
async def test_a_write_that_is_cut_anywhere_leaves_one_outcome(tmp_path: Path, name: str) -> None:
    async with half_broker(tmp_path / "first") as broker:
        half = broker.put_half(b"half")
        begin = broker.store.log.max_phy_offset
        DEEDS[name](broker.transactions, half)
        broker.cycles.close()
        size = broker.store.log.max_phy_offset - begin
        whole = outcomes(broker)
    assert sum(whole) == (0 if name == "roll back" else 1)
    for cut_bytes in (*range(0, size, 37), size - 1, size):
        async with half_broker(tmp_path / str(cut_bytes)) as broker:
            half = broker.put_half(b"half")
            DEEDS[name](broker.transactions, half)
            broker.cycles.close()
            cut(broker, begin + cut_bytes)
            assert outcomes(broker) in ((0, 0, 1), whole), f"cut after {cut_bytes} of {size} bytes"
            await _end_twice(broker, half)
            assert sum(outcomes(broker)) <= 1
            assert sorted(map(int, broker.op_bodies())) == list(range(len(broker.halves())))


async def _end_twice(broker: HalfBroker, half: MessageExt) -> None:
    producer = await broker.producer().join()
    codes = [(await producer.end(half, end)).code for end in (COMMIT, ROLLBACK, COMMIT)]
    assert codes in ([0, 1, 1], [1, 1, 1])
    # And once more, from what the disk says alone.
    before = outcomes(broker)
    broker.restart()
    assert outcomes(broker) == before


async def test_a_commit_without_its_op_record_gets_it_before_anything_else(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        half = broker.put_half(b"half")
        broker.writer.put_now(committed(half), None)
        broker.cycles.close()
        broker.restart()
        assert (broker.visible(), broker.op_bodies(), broker.open_halves()) == ([b"half"], [b"0"], [])
        broker.restart()
        assert broker.op_bodies() == [b"0"]


async def test_both_ways_to_commit_store_the_same(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        for more in ("TAGS\x01A\x02KEYS\x01k1 k2\x02", "", "__KOUROU_MOVED_FROM\x017\x02"):
            half = broker.put_half(b"half", "TX1", more)
            broker.writer.put_now(committed(half), None)
            broker.transactions.commit(half, None)
            broker.cycles.close()
            one, two = read_queue(broker.store, "T", 1)[-2:]
            assert one.properties == two.properties and "__KOUROU_MOVED_FROM" not in one.properties
            for name in ("stored_body", "sys_flag", "raw_born_host", "prepared_transaction_offset"):
                assert getattr(one, name) == getattr(two, name)
            queue = broker.store.queue("T", 1)
            units = [queue.unit(queue.max_queue_offset - back) for back in (1, 2)]
            assert len({unit.tags_code for unit in units if unit is not None}) == 1


async def test_the_commit_of_a_copy_ends_the_copy(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        first = broker.put_half(b"half")
        broker.transactions.put_again(first, is_checked=True, done=None)
        broker.cycles.close()
        broker.writer.put_now(committed(broker.halves()[-1]), None)
        broker.cycles.close()
        broker.restart()
        assert (broker.op_bodies(), broker.open_halves()) == ([b"0", b"1"], [])


async def test_a_record_that_only_looks_like_a_commit_ends_nothing(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        half = broker.put_half(b"half")
        assert half.phy_offset == 0
        message = committed(half)
        message.set_property("UNIQ_KEY", "another")
        broker.writer.put_now(message, None)
        broker.cycles.close()
        broker.restart()
        assert broker.open_halves() == [0] and not broker.op_bodies()


async def test_a_start_from_noted_progress_knows_what_lies_above_it(tmp_path: Path) -> None:
    async with half_broker(tmp_path) as broker:
        producer = await broker.producer().join()
        halves = [broker.put_half(b"%d" % number, f"TX{number}") for number in range(6)]
        for number in (0, 1, 3):
            assert (await producer.end(halves[number], COMMIT)).code == 0
        broker.store.flush()
        await broker.check()
        await broker.check()
        broker.restart()
        table = broker.transactions.table
        assert (table.half_queue_offset, table.op_queue_offset) == (2, 2)
        assert broker.open_halves() == [2, 4, 5]
        producer = await broker.producer().join()
        for half in halves:
            await producer.end(half, COMMIT)
        assert sorted(broker.visible()) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
async def test_halves_of_apaches_are_known_by_its_op_records_and_progress(
    tmp_path: Path, version: str
) -> None:
    root = stores.extract_store(version, tmp_path)
    config = MessageStoreConfig(
        root=root,
        commit_log_file_bytes=stores.COMMIT_LOG_FILE_BYTES,
        consume_queue_file_bytes=stores.CONSUME_QUEUE_FILE_BYTES,
        index_slots=stores.INDEX_SLOTS,
        index_entries=stores.INDEX_ENTRIES,
    )
    store = MessageStore.open(config, Files(), lambda: NOW_MS)
    try:
        transactions = transactions_of(root, store)
        transactions.recover(is_slave=False)
        noted = stores.manifest(version)["committedOffsets"]
        half_offset = noted[f"{RMQ_SYS_TRANS_HALF_TOPIC}@CID_RMQ_SYS_TRANS"]["0"]
        assert transactions.table.half_queue_offset == half_offset
        pending = [
            half.stored_body
            for half in read_queue(store, RMQ_SYS_TRANS_HALF_TOPIC)
            if transactions.table.state(half.queue_offset) == OPEN
        ]
        assert set(pending) == PENDING[version]
    finally:
        store.abandon()


def transactions_of(root: Path, store: MessageStore) -> Transactions:
    """Those of a broker on this store, which has not started."""
    tables, cycles = Tables(root), Cycles()
    tables.offsets.load()
    writer = MessageWriter(
        cycles=cycles,
        appender=store.appender,
        queues=store.queues,
        delay_levels=store.config.delay_levels,
        delay=lambda message: None,
    )
    return Transactions(
        store=store,
        log=store.log,
        queues=store.queues,
        appender=store.appender,
        cycles=cycles,
        writer=writer,
        topics=tables.topics,
        offsets=tables.offsets,
        store_host=store.config.store_host,
        now_ms=tables.clock,
    )
