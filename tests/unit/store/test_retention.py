"""Retention: by age and hour, under pressure only what was read, and a disk that is full for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import DiskFullError
from kourou.protocol.codes import ResponseCode
from kourou.store.disk.files import DiskUsage
from kourou.store.log.put_status import PutRefusedError
from kourou.store.message_store import MessageStore
from kourou.store.retention import Retention, RetentionConfig, RetentionRound
from kourou.store.steps import Steps, no_steps
from tests.unit.store.message_stores import LOG_FILE_BYTES, StoreKit, bodies, body_for, faulty, put

HOUR_MS = 3_600_000
NOON_MS = int(datetime(2026, 5, 5, 12, 30).timestamp() * 1000)
FOUR_MS = int(datetime(2026, 5, 5, 4, 30).timestamp() * 1000)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        set_usage(made, 0.50)
        yield made


@pytest.fixture
def store(kit: StoreKit) -> MessageStore:
    return kit.open()


def set_usage(kit: StoreKit, ratio: float) -> None:
    used = round(ratio * 1000)
    faulty(kit).usage = DiskUsage(1000, 1000 - used, 1000 - used)


def fill_files(store: MessageStore, count: int, modified_ms: int = NOON_MS) -> None:
    """Messages in so many files of the log, 20 in each, all last written at `modified_ms`."""
    for number in range(count * 20):
        put(store, b"%03d" % number + body_for(197))
    store.flush()
    for log_file in store.log.log_files:
        set_modified(log_file.path, modified_ms)


def set_modified(path: Path, modified_ms: int) -> None:
    os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


def retention(kit: StoreKit, store: MessageStore, unread: int | None = None, **settings: Any) -> Retention:
    return Retention(store, kit.files, RetentionConfig(**settings), lambda: no_steps(unread))


def first_number(store: MessageStore) -> int:
    return int(bodies(store)[0][:3])


# -- by age --------------------------------------------------------------------------------------


def test_files_go_at_the_hour_when_their_time_is_over(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 4, FOUR_MS - 72 * HOUR_MS)
    set_modified(store.log.log_files[2].path, FOUR_MS - 72 * HOUR_MS + 1)
    done = retention(kit, store).run(FOUR_MS)
    assert [path.name for path in done.deleted] == ["0" * 20, f"{LOG_FILE_BYTES:020d}"]
    assert store.log.min_phy_offset == 2 * LOG_FILE_BYTES
    assert store.min_offset_in_queue("orders", 0) == 40
    assert first_number(store) == 40
    assert (done.used_ratio, done.refuses_puts) == (0.5, False)


def test_at_other_hours_nothing_is_deleted_unless_requested(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 3, NOON_MS - 100 * HOUR_MS)
    keeper = retention(kit, store)
    assert keeper.run(NOON_MS).deleted == []
    assert len(keeper.run(NOON_MS, manual=True).deleted) == 2


def test_other_hours_can_be_chosen(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 3, NOON_MS - 100 * HOUR_MS)
    keeper = retention(kit, store, delete_when=frozenset({3, 12}), file_reserved_ms=100 * HOUR_MS)
    assert keeper.run(FOUR_MS).deleted == []
    assert len(keeper.run(NOON_MS).deleted) == 2


def test_the_last_file_stays_however_old_it_is(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 1, 0)
    assert retention(kit, store).run(FOUR_MS).deleted == []


def test_a_younger_file_keeps_those_behind_it(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 4, 0)
    set_modified(store.log.log_files[1].path, FOUR_MS)
    assert len(retention(kit, store).run(FOUR_MS).deleted) == 1


def test_a_round_deletes_so_many_files_at_most(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 6, 0)
    keeper = retention(kit, store, max_files_per_round=2)
    assert [len(keeper.run(FOUR_MS).deleted) for _ in range(4)] == [2, 2, 1, 0]


def test_what_is_not_durable_stays(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 3, 0)
    store.log.flushed_phy_offset = LOG_FILE_BYTES + 100
    assert len(retention(kit, store).run(FOUR_MS).deleted) == 1


def test_a_file_that_cannot_be_deleted_is_tried_again(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 4, 0)
    faulty(kit).fail("remove", 2)
    keeper = retention(kit, store)
    with pytest.raises(OSError):
        keeper.run(FOUR_MS)
    assert store.log.min_phy_offset == LOG_FILE_BYTES
    assert len(keeper.run(FOUR_MS).deleted) == 2
    assert store.min_offset_in_queue("orders", 0) == 60


def test_queues_and_index_follow_the_log(kit: StoreKit) -> None:
    store = kit.open(index_slots=4, index_entries=16)
    for number in range(80):
        put(store, b"%03d" % number + body_for(190 - 3), properties=f"KEYS\x01k{number % 9}\x02")
    store.flush()
    store.flush_derived(thorough=True)
    assert store.index is not None
    index_files = len(store.index.paths)
    for log_file in store.log.log_files:
        set_modified(log_file.path, 0)
    retention(kit, store).run(FOUR_MS)
    low = store.min_offset_in_queue("orders", 0)
    assert low > 40
    queue_files = sorted(path.name for path in (store.config.queue_folder / "orders" / "0").iterdir())
    assert int(queue_files[0]) == low // 10 * 200
    assert len(store.index.paths) < index_files
    found = store.query_message("orders", "k1", 64, 0, kit.clock() * 2)
    assert [int(message.body[:3]) for message in found] == [n for n in range(low, 80) if n % 9 == 1]


def test_what_was_deleted_stays_deleted_after_a_restart(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 3, 0)
    retention(kit, store).run(FOUR_MS)
    for again in (kit.reopen, kit.kill):
        store = again(store)
        assert (store.min_offset_in_queue("orders", 0), store.max_offset_in_queue("orders", 0)) == (40, 60)
        assert first_number(store) == 40
        assert store.report.damages == []


# -- in steps ------------------------------------------------------------------------------------


def run_busily(store: MessageStore, steps: Steps[RetentionRound]) -> RetentionRound:
    """Do work in steps while messages come in, none of which is flushed by itself."""
    try:
        while True:
            next(steps)()
            put(store, b"new")
    except StopIteration as end:
        done: RetentionRound = end.value
        return done


def test_messages_may_come_in_between_the_steps_of_a_round(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 4, 0)
    done = run_busily(store, retention(kit, store).steps(FOUR_MS))
    assert len(done.deleted) == 3
    low, high = store.min_offset_in_queue("orders", 0), store.max_offset_in_queue("orders", 0)
    assert low == 60
    queue_files = sorted(path.name for path in (store.config.queue_folder / "orders" / "0").iterdir())
    assert int(queue_files[0]) == low * 20
    store = kit.kill(store)
    assert (store.min_offset_in_queue("orders", 0), store.max_offset_in_queue("orders", 0)) == (low, high)
    assert len(bodies(store)) == high - low


@pytest.mark.parametrize("last", range(12))
def test_a_round_may_end_behind_any_step_and_the_next_goes_on(
    kit: StoreKit, store: MessageStore, last: int
) -> None:
    fill_files(store, 4, 0)
    keeper = retention(kit, store)
    steps = keeper.steps(FOUR_MS)
    for _ in range(last):
        next(steps)()
    steps.close()
    put(store, b"999")
    assert first_number(store) % 20 == 0
    keeper.run(FOUR_MS)
    assert (store.log.min_phy_offset, store.min_offset_in_queue("orders", 0)) == (3 * LOG_FILE_BYTES, 60)
    store = kit.kill(store)
    assert (store.min_offset_in_queue("orders", 0), store.max_offset_in_queue("orders", 0)) == (60, 81)


# -- under pressure ------------------------------------------------------------------------------


def test_above_three_quarters_expired_files_go_at_any_hour(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 3, 0)
    set_usage(kit, 0.75)
    assert retention(kit, store).run(NOON_MS).deleted == []
    set_usage(kit, 0.76)
    assert len(retention(kit, store).run(NOON_MS).deleted) == 2


def test_above_the_forcible_ratio_only_what_everybody_has_read_goes(
    kit: StoreKit, store: MessageStore
) -> None:
    fill_files(store, 5)
    set_usage(kit, 0.86)
    assert retention(kit, store, unread=None).run(NOON_MS).deleted == []
    assert retention(kit, store, unread=LOG_FILE_BYTES - 1).run(NOON_MS).deleted == []
    assert len(retention(kit, store, unread=3 * LOG_FILE_BYTES + 5).run(NOON_MS).deleted) == 3


def test_apaches_way_can_be_chosen(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 3)
    set_usage(kit, 0.86)
    keeper = retention(kit, store, unread=0, delete_unread_under_pressure=True)
    assert len(keeper.run(NOON_MS).deleted) == 2


def test_deleting_before_the_age_can_be_switched_off(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 3)
    set_usage(kit, 0.95)
    assert retention(kit, store, unread=1 << 40, clean_forcibly_enable=False).run(NOON_MS).deleted == []


def test_at_the_forcible_ratio_itself_nothing_goes(kit: StoreKit, store: MessageStore) -> None:
    fill_files(store, 3)
    set_usage(kit, 0.85)
    assert retention(kit, store, unread=1 << 40).run(NOON_MS).deleted == []


# -- a full disk ---------------------------------------------------------------------------------


def test_a_full_disk_refuses_writes_and_reads_go_on_until_there_is_room(
    kit: StoreKit, store: MessageStore
) -> None:
    put(store, b"before")
    keeper = retention(kit, store)
    set_usage(kit, 0.91)
    assert keeper.run(NOON_MS).refuses_puts
    with pytest.raises(PutRefusedError, match="the disk is full \\(91% in use\\)") as caught:
        put(store, b"refused")
    assert caught.value.response_code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert isinstance(caught.value.__cause__, DiskFullError)
    assert caught.value.__cause__.ratio == 0.91
    assert "service not available now" in str(caught.value)
    assert bodies(store) == [b"before"]
    set_usage(kit, 0.90)
    assert not keeper.run(NOON_MS).refuses_puts
    put(store, b"after")
    assert bodies(store) == [b"before", b"after"]


def test_space_does_not_lift_what_others_refuse(kit: StoreKit, store: MessageStore) -> None:
    keeper = retention(kit, store)
    store.appender.fence("the disk lies")
    set_usage(kit, 0.95)
    keeper.run(NOON_MS)
    set_usage(kit, 0.50)
    keeper.run(NOON_MS)
    with pytest.raises(PutRefusedError, match="the disk lies"):
        put(store, b"x")


def test_of_several_folders_the_emptiest_counts_and_full_ones_are_left_out(
    kit: StoreKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.is_checked = False  # the check looks for the log in the store's own folder
    one, two = tmp_path / "one", tmp_path / "two"
    ratios = {one: 0.93, two: 0.40}
    monkeypatch.setattr(
        kit.files, "disk_usage", lambda path: DiskUsage(100, *[100 - round(100 * ratios.get(path, 0.30))] * 2)
    )
    store = kit.open(commit_log_folders=(one, two))
    keeper = retention(kit, store)
    done = keeper.run(NOON_MS)
    assert (done.used_ratio, done.refuses_puts) == (0.40, False)
    fill_files(store, 3)
    assert not one.exists()
    assert len(list(two.iterdir())) == 3
    ratios[two] = 0.92
    assert keeper.run(NOON_MS).refuses_puts
