"""An index file that is gone from between others is noticed at the next start, and built again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.store.index.index_links import following_files
from kourou.store.log.log_scanner import LogScanner
from kourou.store.message_store import MessageStore
from kourou.testing.store_check import assert_store_ok
from tests.unit.store.message_stores import NOW_MS, StoreKit, put

COUNT = 200


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        yield made


def fill(store: MessageStore, *, keyless: int = 0) -> None:
    """Messages with a key, and behind each some without."""
    for number in range(COUNT):
        put(store, b"%d" % number, properties=f"KEYS\x01k{number}\x02")
        for _ in range(keyless):
            put(store, b"nobody asks for it")


def assert_all_found(store: MessageStore) -> None:
    for number in range(COUNT):
        found = store.query_message("orders", f"k{number}", 64, 0, NOW_MS * 2)
        assert [message.body for message in found if message.keys == (f"k{number}",)] == [b"%d" % number]


def index_files(kit: StoreKit) -> list[Path]:
    return sorted((kit.root / "index").iterdir())


@pytest.mark.parametrize("keyless", [0, 3])
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_lost_file_is_built_again(kit: StoreKit, keyless: int, is_clean: bool) -> None:
    store = kit.open()
    fill(store, keyless=keyless)
    store.close()
    if not is_clean:
        kit.open().abandon()
    files = index_files(kit)
    assert len(files) == 4
    files[1].unlink()
    store = kit.open()
    assert_all_found(store)
    store.close()
    assert len(index_files(kit)) == 4
    assert_store_ok(kit.root)
    assert kit.open().report.records == 0


@pytest.mark.parametrize("keyless", [0, 3])
def test_files_that_follow_each_other_are_left_alone(kit: StoreKit, keyless: int) -> None:
    store = kit.open()
    fill(store, keyless=keyless)
    store.close()
    before = [(path, path.stat().st_mtime_ns) for path in index_files(kit)]
    store = kit.open()
    assert [(path, path.stat().st_mtime_ns) for path in index_files(kit)] == before
    assert store.report.records == 0


def test_a_second_start_after_a_kill_in_between_builds_the_rest(kit: StoreKit) -> None:
    store = kit.open()
    fill(store)
    store.close()
    index_files(kit)[1].unlink()
    kit.open().abandon()
    assert_all_found(kit.open())


def test_what_the_log_has_no_more_is_not_asked(kit: StoreKit) -> None:
    store = kit.open()
    fill(store)
    scanner = LogScanner(store.log, (), max_record_bytes=1 << 20)
    first, second, third = (0, 1000), (5000, 6000), (9000, 9500)
    ends = [put(store, b"x", properties="KEYS\x01k\x02").phy_offset for _ in range(3)]
    assert following_files([first, second, third], scanner, min_phy_offset=7000) == 3
    assert following_files([(0, ends[0]), (ends[1], ends[1]), (ends[2], ends[2])], scanner, 0) == 3
    assert following_files([(0, ends[0]), (ends[2], ends[2])], scanner, 0) == 1
    assert following_files([], scanner, 0) == 0
