"""Recovery of an index that is behind the queues: they are left as they are, deleted topics stay deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.store.message_store import MessageStore
from kourou.testing.faulty_files import SimulatedCrash
from kourou.testing.store_check import assert_store_ok
from kourou.testing.survival import keep_all
from tests.unit.store.message_stores import LOG_FILE_BYTES, NOW_MS, StoreKit, bodies, faulty, put

COUNT = 60


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        made.deleted_topics.add("gone")
        yield made


@pytest.fixture
def closed(kit: StoreKit) -> Path:
    """A store whose topic `gone` was deleted; stopped."""
    store = kit.open()
    for number in range(COUNT):
        put(
            store,
            b"%d" % number,
            "gone" if number % 3 == 2 else "orders",
            properties=f"KEYS\x01k{number}\x02",
        )
    store.delete_topic("gone")
    put(store, b"last", properties="KEYS\x01last\x02")
    store.close()
    return kit.root


def assert_as_before(store: MessageStore) -> None:
    assert store.queues.topics() == ["orders"]
    assert bodies(store) == [*(b"%d" % number for number in range(COUNT) if number % 3 != 2), b"last"]
    for number in range(COUNT):
        topic = "gone" if number % 3 == 2 else "orders"
        assert len(store.query_message(topic, f"k{number}", 1, 0, NOW_MS * 2)) == 1, number
    assert len(store.query_message("orders", "last", 1, 0, NOW_MS * 2)) == 1


def queue_contents(root: Path) -> dict[str, tuple[bytes, int]]:
    queues = root / "consumequeue"
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in queues.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_lost_index_is_built_again_and_the_queues_are_not_touched(
    kit: StoreKit, closed: Path, is_clean: bool
) -> None:
    """A topic that had been deleted came back, with blanks where its first messages had been."""
    before = queue_contents(closed)
    shutil.rmtree(closed / "index")
    if not is_clean:
        (closed / "abort").touch()
    store = kit.open()
    assert store.report.records == COUNT + 1
    assert_as_before(store)
    assert queue_contents(closed) == before


@pytest.mark.parametrize("crash_at", [10, 20, 30, 45])
def test_a_second_crash_while_the_index_is_built_changes_nothing_of_that(
    kit: StoreKit, closed: Path, crash_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.store.recovery.recovery._PROGRESS_BYTES", LOG_FILE_BYTES // 2)
    monkeypatch.setattr("kourou.store.recovery.log_walk._PIECE_BYTES", 1024)
    shutil.rmtree(closed / "index")
    faulty(kit).crash_at(crash_at)
    with pytest.raises(SimulatedCrash):
        kit.open()
    faulty(kit).crash(keep_all)
    store = kit.open()
    assert_as_before(store)
    store.close()
    assert_store_ok(closed, deleted_topics=["gone"])


def test_messages_behind_what_the_queues_have_are_given_to_both(kit: StoreKit, closed: Path) -> None:
    store = kit.open()
    for number in range(5):
        put(store, b"more", "gone", properties=f"KEYS\x01more{number}\x02")
    store.flush()
    store.abandon()
    shutil.rmtree(closed / "index")
    store = kit.open()
    assert bodies(store, "gone") == [b"more"] * 5
    assert len(store.query_message("gone", "more4", 1, 0, NOW_MS * 2)) == 1


def test_a_topic_deleted_while_the_index_cannot_be_written_stays_deleted(kit: StoreKit) -> None:
    store = kit.open()
    put(store, b"old", properties="KEYS\x01k\x02")
    put(store, b"old", "gone", properties="KEYS\x01k\x02")
    faulty(kit).fail({"create", "pwrite", "sync"}, for_ever=True, part_of_path="/index/")
    store.delete_topic("gone")
    faulty(kit).heal()
    store = kit.kill(store)
    assert store.queues.topics() == ["orders"]
    assert len(store.query_message("orders", "k", 1, 0, NOW_MS * 2)) == 1
