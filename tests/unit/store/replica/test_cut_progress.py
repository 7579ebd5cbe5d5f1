"""What the files beside a log record is set back when the log is cut: no more is done than the log says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.broker.transactions.half_message_states import ENDED, OPEN, HalfMessageStates
from kourou.protocol.names import CID_SYS_RMQ_TRANS, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from kourou.protocol.op_record import ended_halves
from kourou.store.config_tables import ConsumerOffsetTable, NotedDelayOffsetTable, dump_table, load_table
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.message_store import MessageStore
from tests.unit.store.message_stores import BORN_HOST, StoreKit, put, read_queue
from tests.unit.store.replica.cut_kit import cut, new_kit

HALVES = f"{RMQ_SYS_TRANS_HALF_TOPIC}@{CID_SYS_RMQ_TRANS}"
OPS = f"{RMQ_SYS_TRANS_OP_HALF_TOPIC}@{CID_SYS_RMQ_TRANS}"


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with new_kit(tmp_path / "store") as made:
        yield made


def config(kit: StoreKit, name: str) -> Path:
    folder = kit.root / "config"
    folder.mkdir(exist_ok=True)
    return folder / name


def store_offsets(kit: StoreKit, offsets: dict[str, dict[int, int]]) -> None:
    config(kit, "consumerOffset.json").write_bytes(dump_table(ConsumerOffsetTable(offsets)))


def offsets(kit: StoreKit) -> dict[str, dict[int, int]]:
    return load_table(config(kit, "consumerOffset.json").read_bytes(), ConsumerOffsetTable).offset_table


# -- consumers -------------------------------------------------------------------------------------


def test_no_group_is_beyond_the_end_of_a_queue(kit: StoreKit) -> None:
    store = kit.open()
    for _ in range(5):
        put(store, b"kept")
    end = store.log.max_phy_offset
    for _ in range(5):
        put(store, b"cut off")
        put(store, b"cut off", "gone")
    store.close()
    store_offsets(kit, {"orders@a": {0: 9}, "orders@b": {0: 3}, "orders@c": {0: 5}, "gone@a": {0: 2}})
    cut(kit, end)
    assert offsets(kit) == {"orders@a": {0: 5}, "orders@b": {0: 3}, "orders@c": {0: 5}, "gone@a": {0: 0}}


# -- delays ----------------------------------------------------------------------------------------


def delay(store: MessageStore) -> int:
    return put(store, b"later", SCHEDULE_TOPIC, 2, properties="DELAY\x013\x02").phy_offset


def deliver(store: MessageStore, phy_offset: int, level: int = 3) -> None:
    store.begin_cycle()
    properties = f"DELAY\x01{level}\x02".encode()
    store.appender.put(
        store.queue("orders", 0), b"later", properties, 0, (), 0, BORN_HOST, 0, 0, 0, phy_offset + 1
    )
    store.write_and_publish()


def delays(kit: StoreKit) -> tuple[dict[int, int], int | None]:
    table = load_table(config(kit, "delayOffset.json").read_bytes(), NotedDelayOffsetTable)
    return table.offset_table, table.log_phy_offset


@pytest.mark.parametrize("delivered_behind", [0, 2, 3])
def test_what_was_delivered_behind_the_cut_is_to_be_delivered_again(
    kit: StoreKit, delivered_behind: int
) -> None:
    store = kit.open()
    origins = [delay(store) for _ in range(4)]
    for origin in origins[:2]:
        deliver(store, origin)
    end = store.log.max_phy_offset
    origins.append(delay(store))
    for origin in origins[2 : 2 + delivered_behind]:
        deliver(store, origin)
    log_end = store.log.max_phy_offset
    store.close()
    noted = NotedDelayOffsetTable({3: 2 + delivered_behind, 4: 7}, None, log_end)
    config(kit, "delayOffset.json").write_bytes(dump_table(noted))
    cut(kit, end)
    # Level 4 has no queue any more.
    assert delays(kit) == ({3: 2, 4: 0}, end)


def test_progress_that_was_noted_before_the_cut_stays(kit: StoreKit) -> None:
    store = kit.open()
    origins = [delay(store) for _ in range(4)]
    deliver(store, origins[0])
    noted_end = store.log.max_phy_offset
    deliver(store, origins[1])
    end = store.log.max_phy_offset
    deliver(store, origins[2])
    store.close()
    config(kit, "delayOffset.json").write_bytes(dump_table(NotedDelayOffsetTable({3: 1}, None, noted_end)))
    cut(kit, end)
    assert delays(kit) == ({3: 1}, noted_end)


# -- transactions ----------------------------------------------------------------------------------


def half(store: MessageStore) -> None:
    put(store, b"half", RMQ_SYS_TRANS_HALF_TOPIC)


def op(store: MessageStore, text: bytes) -> None:
    put(store, text, RMQ_SYS_TRANS_OP_HALF_TOPIC, properties="TAGS\x01d\x02")


def states(kit: StoreKit) -> list[int]:
    """What a broker that starts with this store knows of the halves."""
    store, noted = kit.open(), offsets(kit)
    table = HalfMessageStates(noted[HALVES][0], noted[OPS][0])
    end = store.max_offset_in_queue(RMQ_SYS_TRANS_HALF_TOPIC, 0)
    for record in read_queue(store, RMQ_SYS_TRANS_OP_HALF_TOPIC)[noted[OPS][0] :]:
        table.load(record.queue_offset, [each for each in ended_halves(record) if each < end])
    store.close()
    return [table.state(number) for number in range(end)]


@pytest.mark.parametrize("text", [b"2", b"2,4,"], ids=["one", "several"])
def test_a_transaction_whose_end_is_cut_off_is_open_again(kit: StoreKit, text: bytes) -> None:
    store = kit.open()
    half(store), half(store)
    op(store, b"0")
    half(store), half(store)
    op(store, b"1"), op(store, b"3")
    end = store.log.max_phy_offset
    half(store)
    op(store, text)
    store.close()
    store_offsets(kit, {HALVES: {0: 5}, OPS: {0: 4}})
    cut(kit, end)
    assert offsets(kit) == {HALVES: {0: 2}, OPS: {0: 1}}
    assert states(kit) == [ENDED, ENDED, OPEN, ENDED]


def test_progress_of_transactions_that_ended_before_the_cut_stays(kit: StoreKit) -> None:
    store = kit.open()
    half(store), half(store)
    op(store, b"0")
    end = store.log.max_phy_offset
    op(store, b"1")
    store.close()
    store_offsets(kit, {HALVES: {0: 1}, OPS: {0: 1}})
    cut(kit, end)
    assert offsets(kit) == {HALVES: {0: 1}, OPS: {0: 1}}


# -- timers ----------------------------------------------------------------------------------------


def test_the_files_of_timers_do_not_count_any_more(kit: StoreKit) -> None:
    store = kit.open()
    put(store, b"kept")
    end = store.log.max_phy_offset
    put(store, b"cut off")
    store.close()
    config(kit, "timercheck").write_bytes(bytes(4096))
    cut(kit, end)
    assert not config(kit, "timercheck").exists()
