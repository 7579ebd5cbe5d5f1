"""ProducerLog: whatever happens to a store, the table knows what the log has, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kourou.errors import StoreFormatError
from kourou.protocol.producer_sequence import ProducerOpening, format_opening, parse_sequence
from kourou.protocol.record import decode_records
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.message_store import MessageStore
from kourou.store.producers.producer_table import SequenceRuling
from kourou.testing.store_check import assert_store_ok
from tests.unit.store.message_stores import StoreKit, faulty, put, read_queue

IDS = ("@loader", "0123456789abcdef")


def open_producer(store: MessageStore, producer_id: str) -> None:
    table = store.producers.table
    opening = ProducerOpening(producer_id, table.next_epoch(producer_id, 0), allows_gaps=False)
    table.note_opened(opening, 0)
    put(store, b"", "rmq_sys_kourou_producers", properties=f"__KOUROU_SEQ\x01{format_opening(opening)}\x02")


def send(store: MessageStore, producer_id: str, queue_id: int = 0, *, waits: bool = False) -> bool:
    """Send the next message; False if the store takes none. One that waits lies in another queue."""
    table = store.producers.table
    sequence = table.last_sequences(producer_id, "orders").get(queue_id, -1) + 1
    value = f"{table.producers[producer_id].identity}:{sequence}"
    properties = f"__KOUROU_SEQ\x01{value}\x02"
    table.note(parse_sequence(value), "orders", queue_id, store.appender.end_phy_offset, 0)
    if waits:
        properties += f"REAL_TOPIC\x01orders\x02REAL_QID\x01{queue_id}\x02"
        return put(store, b"x" * 40, SCHEDULE_TOPIC, 3, properties=properties).status.is_stored
    return put(store, b"x" * 40, "orders", queue_id, properties=properties).status.is_stored


def in_log(store: MessageStore) -> set[tuple[str, int, int]]:
    """Producer, queue and sequence of all messages."""
    found = set()
    for topic, queue_id in (("orders", 0), ("orders", 1), (SCHEDULE_TOPIC, 3)):
        for message in read_queue(store, topic, queue_id):
            sent = parse_sequence(message.properties["__KOUROU_SEQ"])
            real = int(message.properties.get("REAL_QID", queue_id))
            found.add((sent.producer_id, real, sent.sequence))
    return found


def known(store: MessageStore) -> set[tuple[str, int, int]]:
    """The same as the table has it, of windows that are not full."""
    table = store.producers.table
    return {
        (producer_id, queue_id, sequence)
        for producer_id, producer in table.producers.items()
        for queue_id in (0, 1)
        for sequence in range(200)
        if table.rule(parse_sequence(f"{producer.identity}:{sequence}"), "orders", queue_id)
        is SequenceRuling.REPEAT
    }


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "killed"])
def test_a_store_is_opened_again(tmp_path: Path, is_stopped: bool) -> None:
    with StoreKit(tmp_path / "store") as kit:
        store = kit.open()
        for producer_id in IDS:
            open_producer(store, producer_id)
            for number in range(30):
                send(store, producer_id, number % 2, waits=number % 5 == 4)
            store.flush_derived(thorough=True)
        send(store, IDS[0])
        before = known(store)
        assert before == in_log(store) and len(before) == 61
        store = kit.reopen(store) if is_stopped else kit.kill(store)
        assert known(store) == before
        assert [store.producers.table.producers[one].epoch for one in IDS] == [0, 0]


STEPS = st.lists(
    st.sampled_from(["send", "send", "wait", "open", "flush", "derived", "kill", "fail"]), max_size=40
)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 2**32), is_killed=st.booleans())
def test_after_a_power_loss_the_table_knows_what_the_log_has(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], seed: int, is_killed: bool
) -> None:
    with StoreKit(tmp_path_factory.mktemp("power") / "store") as kit:
        store = kit.open()
        open_producer(store, IDS[0])
        for step in steps:
            if step in ("send", "wait"):
                send(store, IDS[0], len(step) % 2, waits=step == "wait")
            elif step == "open":
                open_producer(store, IDS[0])
            elif step == "flush":
                store.flush()
            elif step == "derived":
                store.flush_derived(thorough=True)
            elif step == "kill":
                store = kit.kill(store)
            else:
                faulty(kit).fail("pwrite", error=28, part_of_path="commitlog")
                send(store, IDS[0])
                faulty(kit).heal()
        assert known(store) == in_log(store)
        store.abandon()
        if not is_killed:
            faulty(kit).crash(seed)
        store = kit.open()
        if IDS[0] in store.producers.table.producers:
            assert known(store) == in_log(store)
        else:
            assert in_log(store) == set()


def test_what_is_no_longer_in_the_log_is_in_the_snapshot(tmp_path: Path) -> None:
    with StoreKit(tmp_path / "store") as kit:
        store = kit.open()
        open_producer(store, IDS[0])
        for _ in range(60):
            send(store, IDS[0])
        store.log.delete_first()
        before = known(store)
        store = kit.reopen(store)
        assert known(store) == before


def test_a_snapshot_that_knows_more_than_the_log_stops_the_start(tmp_path: Path) -> None:
    path = "config/kourouProducers"
    with StoreKit(tmp_path / "store") as kit:
        store = kit.open()
        open_producer(store, IDS[0])
        send(store, IDS[0])
        store.close()
    with StoreKit(tmp_path / "other") as kit:
        store = kit.open()
        open_producer(store, IDS[1])
        store.close()
        (tmp_path / "other" / path).write_bytes((tmp_path / "store" / path).read_bytes())
        with pytest.raises(StoreFormatError, match="covers the CommitLog up to"):
            kit.open()


def test_without_its_snapshot_a_store_with_openings_is_read_from_the_beginning(tmp_path: Path) -> None:
    with StoreKit(tmp_path / "store") as kit:
        store = kit.open()
        open_producer(store, IDS[0])
        send(store, IDS[0])
        before = known(store)
        store.close()
        (tmp_path / "store/config/kourouProducers").unlink()
        assert known(kit.open()) == before


def test_places_that_a_client_invents_do_not_count(tmp_path: Path) -> None:
    with StoreKit(tmp_path / "store") as kit:
        store = kit.open()
        open_producer(store, IDS[0])
        identity = store.producers.table.producers[IDS[0]].identity
        invented = f"REAL_TOPIC\x01Other\x02REAL_QID\x01{'9' * 30}\x02"
        put(store, b"", "orders", 0, properties=f"__KOUROU_SEQ\x01{identity}:0\x02{invented}")
        put(store, b"", "orders", 1, properties="__KOUROU_SEQ\x01@forged:7:open\x02")
        put(store, b"", SCHEDULE_TOPIC, 1, properties=f"__KOUROU_SEQ\x01{identity}:1\x02{invented}")
        store = kit.kill(store)
        assert store.flush_derived(thorough=True)
        assert known(store) == {(IDS[0], 0, 0)}
        assert set(store.producers.table.producers) == {IDS[0]}


def test_damaged_records_do_not_keep_a_store_from_opening(tmp_path: Path) -> None:
    with StoreKit(tmp_path / "store") as kit:
        store = kit.open()
        open_producer(store, IDS[0])
        begin = store.max_phy_offset
        for _ in range(3):
            send(store, IDS[0])
        size = (store.max_phy_offset - begin) // 3
        store.flush()
        store.abandon()
        path = tmp_path / "store/commitlog/00000000000000000000"
        whole = path.read_bytes()
        for position in range(begin + size, begin + 2 * size):
            damaged = bytearray(whole)
            damaged[position] ^= 0x41
            path.write_bytes(damaged)
            kit.open().abandon()
        kit.is_checked = False


def test_a_damaged_snapshot_stops_the_start(tmp_path: Path) -> None:
    with StoreKit(tmp_path / "store") as kit:
        store = kit.open()
        open_producer(store, IDS[0])
        store.close()
        path = tmp_path / "store/config/kourouProducers"
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(StoreFormatError, match="put it back from a backup"):
            kit.open()
        kit.is_checked = False
        with pytest.raises(AssertionError, match="not a snapshot of idempotent producers"):
            assert_store_ok(tmp_path / "store")


def test_a_malformed_property_in_the_log_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with StoreKit(tmp_path / "store") as kit:
        store = kit.open()
        put(store, b"__KOUROU_SEQ\x01in a body", "orders", properties="__KOUROU_SEQ\x01nonsense\x02")
        open_producer(store, IDS[0])
        send(store, IDS[0], 1)
        store = kit.kill(store)
        assert known(store) == {(IDS[0], 1, 0)}
        assert "its sequence is ignored" in caplog.text
        assert len(list(decode_records(store.log.read(0, store.log.max_phy_offset) or b""))) == 3
