"""LogWalk: many records at once or one by one, the queues and the index are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.log.log_scanner import LogScanner
from kourou.store.log.record_columns import RecordColumns
from kourou.store.message_store import MessageStore
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.recovery.columns_dispatcher import ColumnsDispatcher
from kourou.store.recovery.log_walk import LogWalk
from tests.unit.store.message_stores import BORN_HOST, NOW_MS, StoreKit, body_for, entries, put

FILE_BYTES = 64 * 1024


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(
        tmp_path / "store", commit_log_file_bytes=FILE_BYTES, index_slots=64, index_entries=256
    ) as made:
        yield made


def fill(store: MessageStore) -> None:
    """All kinds of records, over several files."""
    for number in range(400):
        tags = f"TAGS\x01tag{number % 5}\x02" if number % 3 else ""
        keys = f"KEYS\x01k{number % 7} only{number}\x02" if number % 2 else ""
        uniq = f"UNIQ_KEY\x01ID{number}\x02" if number % 4 else ""
        sys_flag = {11: 4, 12: 8, 13: 12}.get(number % 20, 0)
        put(
            store,
            b"%d" % number,
            f"t{number % 3}",
            number % 2,
            properties=tags + keys + uniq,
            sys_flag=sys_flag,
        )
        if number == 200:
            put(store, b"later", SCHEDULE_TOPIC, 2, properties="DELAY\x013\x02TAGS\x01t\x02")
            put(store, b"six", "t0", 0, born_host=bytes(20))
            put(store, b"long", "%RETRY%" + "g" * 150, 0, properties="KEYS\x01k\x02")
            put(store, b"odd", "t0", 0, properties="note\x01a\0b\x02KEYS\x01k\x02")
    store.begin_cycle()
    store.appender.put_many(
        store.queue("t1", 0), entries(b"a", b"b", b"c"), born_timestamp=NOW_MS, born_host=BORN_HOST
    )
    store.write_and_publish()
    put(store, body_for(60_000))


def derived(store: MessageStore) -> dict[str, object]:
    """What a store has derived from its log."""
    found: dict[str, object] = {
        f"{queue.topic}/{queue.queue_id}": [queue.unit(at) for at in range(queue.max_queue_offset)]
        for queue in store.queues.items()
    }
    for topic in ("t0", "t1", "t2"):
        for key in ("k1", "k", "only33", "ID77"):
            messages = store.query_message(topic, key, 64, 0, NOW_MS * 2)
            found[f"{topic}#{key}"] = [message.phy_offset for message in messages]
    return found


def lose_derived(kit: StoreKit) -> None:
    for path in sorted(kit.root.rglob("*"), reverse=True):
        if "commitlog" not in path.parts and path.name != "commitlog":
            path.rmdir() if path.is_dir() else path.unlink()


def test_both_ways_give_the_same(kit: StoreKit, monkeypatch: pytest.MonkeyPatch) -> None:
    store = kit.open()
    fill(store)
    expected = derived(store)
    count = store.log.max_phy_offset
    store.close()
    taken: list[bool] = []
    dispatch = ColumnsDispatcher.dispatch

    def counted(columns_dispatcher: ColumnsDispatcher, columns: RecordColumns) -> list[ConsumeQueue] | None:
        grown = dispatch(columns_dispatcher, columns)
        taken.append(grown is not None)
        return grown

    monkeypatch.setattr(ColumnsDispatcher, "dispatch", counted)
    lose_derived(kit)
    store = kit.open()
    assert store.report.records == 408
    assert store.log.max_phy_offset == count
    assert derived(store) == expected
    assert True in taken
    store.close()
    monkeypatch.setattr(ColumnsDispatcher, "dispatch", lambda *_: None)
    lose_derived(kit)
    store = kit.open()
    assert store.report.records == 408
    assert derived(store) == expected


@pytest.mark.parametrize("piece_bytes", [200, 1000, 5000])
def test_small_pieces_give_the_same(kit: StoreKit, monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    store = kit.open()
    fill(store)
    expected = derived(store)
    store.close()
    monkeypatch.setattr("kourou.store.recovery.log_walk._PIECE_BYTES", piece_bytes)
    lose_derived(kit)
    assert derived(kit.open()) == expected


def test_a_step_says_how_far_it_came(kit: StoreKit) -> None:
    store = kit.open()
    for _ in range(3):
        put(store, body_for(200))
    put(store, body_for(65_000))
    store.log.log_files[0].file.pwrite(b"?", 400)
    scanner = LogScanner(store.log, (), max_record_bytes=1 << 20)
    walk = LogWalk(
        store.log, scanner, store.dispatcher, ColumnsDispatcher(store.dispatcher, store.queues, store.index)
    )
    kit.is_checked = False
    assert walk.step(0)[:2] == (2, 400)
    records, end, bad, _ = walk.step(400)
    assert (records, end) == (0, 400)
    assert bad is not None
    assert "does not fit" in bad.reason or "magic" in bad.reason
    assert walk.step(600) == (0, FILE_BYTES, None, False)
    assert walk.step(FILE_BYTES)[:3] == (1, FILE_BYTES + 65_000, None)
    assert walk.step(2 * FILE_BYTES).bad is not None
    assert store.queue("orders", 0).max_queue_offset == 4
