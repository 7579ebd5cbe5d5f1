"""The wheel and its log together: what waits where, and what is found again after a kill."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.delay.timer_messages import TimerEntry, TimerMessages
from kourou.store.message_store import MessageStore
from kourou.store.steps import run_steps
from tests.unit.broker.tables_kit import broker_config
from tests.unit.store.message_stores import NOW_MS, StoreKit, put

DAY_MS = 24 * 3_600_000


class Kit:
    """Timers on a store with some records to point to."""

    def __init__(self, store_kit: StoreKit, store: MessageStore) -> None:
        self.store_kit = store_kit
        self.store = store
        self.places = [put(store, b"x" * 20).phy_offset for _ in range(30)]
        store.flush()

    def open(self, now_ms: int = NOW_MS, **keys: Any) -> TimerMessages:
        config = broker_config(**keys)
        opened = TimerMessages(self.store_kit.files, self.store.config.root, config, self.store.log, now_ms)
        opened.load(now_ms)
        return opened

    def entry(self, out_ms: int, number: int = 0, *, is_delete: bool = False) -> TimerEntry:
        return TimerEntry(out_ms, self.places[number], 100, "T", is_delete)

    def taken(self, timers: TimerMessages, now_ms: int) -> list[tuple[int, int]]:
        """The slots that are over: time and number of each message in them."""
        found = []
        while (slot := timers.next_over(now_ms)) is not None:
            units = timers.units_of(slot)
            found += [(timers.read_ms, self.places.index(unit.phy_offset)) for unit in units]
            timers.slot_done(units, now_ms)
        return found


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    with StoreKit(tmp_path, commit_log_file_bytes=64 * 1024) as store_kit:
        store_kit.is_checked = False
        yield Kit(store_kit, store_kit.open())


def test_a_slot_is_taken_out_when_it_is_over(kit: Kit) -> None:
    timers = kit.open()
    timers.enter(kit.entry(NOW_MS + 5_000, 1), NOW_MS)
    timers.enter(kit.entry(NOW_MS + 5_000, 2), NOW_MS)
    timers.enter(kit.entry(NOW_MS + 3_000, 3), NOW_MS)
    assert kit.taken(timers, NOW_MS + 3_999) == []
    assert kit.taken(timers, NOW_MS + 4_000) == [(NOW_MS + 3_000, 3)]
    assert kit.taken(timers, NOW_MS + 60_000) == [(NOW_MS + 5_000, 1), (NOW_MS + 5_000, 2)]
    assert timers.wait_ms(NOW_MS + 60_000) == 1_000
    timers.close()


def test_one_that_is_late_waits_for_the_next_slot(kit: Kit) -> None:
    timers = kit.open()
    timers.enter(kit.entry(NOW_MS - 50_000, 1), NOW_MS)
    assert kit.taken(timers, NOW_MS + 1_000) == [(NOW_MS, 1)]
    timers.close()


@pytest.mark.parametrize(
    ("ahead_ms", "waits_ms", "is_roll"),
    [
        (2 * DAY_MS - 1_000, 2 * DAY_MS - 1_000, False),
        (2 * DAY_MS, DAY_MS, True),  # little left behind the window: half of it first
        (2 * DAY_MS + 16 * 3_600_000, 2 * DAY_MS, True),
        (20 * DAY_MS, 2 * DAY_MS, True),
    ],
)
def test_one_that_is_far_away_waits_on_the_way(kit: Kit, ahead_ms: int, waits_ms: int, is_roll: bool) -> None:
    timers = kit.open()
    timers.enter(kit.entry(NOW_MS + ahead_ms, 1), NOW_MS)
    now_ms = NOW_MS + waits_ms + 1_000
    slot = None
    while slot is None and timers.read_ms < NOW_MS + waits_ms + 1_000:
        slot = timers.next_over(now_ms)  # gives others a turn now and then
    assert slot is not None and timers.read_ms == NOW_MS + waits_ms
    assert [unit.is_roll for unit in timers.units_of(slot)] == [is_roll]
    timers.close()


def test_messages_of_a_second_are_counted(kit: Kit) -> None:
    timers = kit.open()
    timers.enter(kit.entry(NOW_MS + 5_000, 1), NOW_MS)
    timers.enter(kit.entry(NOW_MS + 5_000, 2), NOW_MS)
    assert timers.count_at(NOW_MS + 5_999) == 2
    timers.enter(kit.entry(NOW_MS + 5_000, 3, is_delete=True), NOW_MS)
    assert timers.count_at(NOW_MS + 5_000) == 1
    assert timers.count_at(NOW_MS + 6_000) == 0
    timers.close()


def test_what_was_flushed_is_there_again(kit: Kit) -> None:
    timers = kit.open()
    timers.queue_offset = 2
    timers.enter(kit.entry(NOW_MS + 5_000, 1), NOW_MS)
    timers.enter(kit.entry(NOW_MS + 9_000, 2), NOW_MS)
    assert kit.taken(timers, NOW_MS + 6_000) == [(NOW_MS + 5_000, 1)]
    assert timers.wants_flush
    run_steps(timers.flush_steps(NOW_MS + 6_000))
    assert not timers.wants_flush
    timers.close()
    again = kit.open(NOW_MS + 7_000)
    assert (again.read_ms, again.queue_offset) == (NOW_MS + 6_000, 2)
    assert again.noted_phy_offset == kit.store.log.max_phy_offset
    assert again.last_entered_phy_offset is None
    assert kit.taken(again, NOW_MS + 60_000) == [(NOW_MS + 9_000, 2)]
    again.close()


def test_a_checkpoint_waits_until_what_it_counts_is_durable(kit: Kit) -> None:
    timers = kit.open()
    place = put(kit.store, b"not durable").phy_offset
    timers.enter(kit.entry(NOW_MS + 5_000, 1), NOW_MS)
    run_steps(timers.flush_steps(NOW_MS))
    assert timers.wants_flush
    assert not (kit.store.config.root / "config" / "timercheck").exists()
    kit.store.flush()
    run_steps(timers.flush_steps(NOW_MS))
    assert not timers.wants_flush
    assert timers.noted_phy_offset is not None and timers.noted_phy_offset > place
    timers.close()


def test_a_slot_that_is_half_delivered_keeps_the_note_back(kit: Kit) -> None:
    """Stopped in the midst of a slot: its deliveries have to be found in the log."""
    timers = kit.open()
    timers.enter(kit.entry(NOW_MS + 5_000, 1), NOW_MS)
    slot = timers.next_over(NOW_MS + 6_000)
    assert slot is not None
    units = timers.units_of(slot)
    before = kit.store.log.max_phy_offset
    timers.begin_slot()
    put(kit.store, b"delivered")
    kit.store.flush()
    run_steps(timers.flush_steps(NOW_MS))
    assert timers.noted_phy_offset == before
    timers.slot_done(units, NOW_MS)
    run_steps(timers.flush_steps(NOW_MS))
    assert timers.noted_phy_offset == kit.store.log.max_phy_offset
    timers.close()


def test_what_a_killed_broker_delivered_keeps_the_note_back(kit: Kit) -> None:
    """Killed twice, the second time before the slots are over that the first kill left half done."""
    timers = kit.open()
    timers.recovered_note = kit.places[3]
    run_steps(timers.flush_steps(NOW_MS))
    assert timers.noted_phy_offset == kit.places[3]
    timers.recovered_note = None
    run_steps(timers.flush_steps(NOW_MS))
    assert timers.noted_phy_offset == kit.store.log.max_phy_offset
    timers.close()


def test_units_behind_the_checkpoint_are_linked_again(kit: Kit) -> None:
    """Killed after the log of the wheel was written, and before the wheel was."""
    timers = kit.open()
    timers.enter(kit.entry(NOW_MS + 5_000, 1), NOW_MS)
    run_steps(timers.flush_steps(NOW_MS))
    timers.enter(kit.entry(NOW_MS + 5_000, 2), NOW_MS)
    timers.enter(kit.entry(NOW_MS + 8_000, 3), NOW_MS)
    next(timers.flush_steps(NOW_MS))()
    timers.close()
    again = kit.open(NOW_MS + 1_000)
    assert again.last_entered_phy_offset == kit.places[3]
    assert [number for _, number in kit.taken(again, NOW_MS + 60_000)] == [1, 2, 3]
    again.close()


def test_units_of_messages_that_were_lost_are_dropped(kit: Kit) -> None:
    """A power loss took the end of the CommitLog, not that of the wheel's log."""
    timers = kit.open()
    timers.enter(kit.entry(NOW_MS + 5_000, 1), NOW_MS)
    run_steps(timers.flush_steps(NOW_MS))
    before = (kit.store.config.root / "config" / "timercheck").read_bytes()
    timers.enter(TimerEntry(NOW_MS + 5_000, 1 << 40, 100, "T", False), NOW_MS)
    timers.enter(TimerEntry(NOW_MS + 7_000, 1 << 40, 100, "T", False), NOW_MS)
    for step in timers.flush_steps(NOW_MS):
        step()
    timers.close()
    (kit.store.config.root / "config" / "timercheck").write_bytes(before)
    again = kit.open(NOW_MS + 1_000)
    assert kit.taken(again, NOW_MS + 60_000) == [(NOW_MS + 5_000, 1)]
    assert again.damage_count == 0
    again.close()


def test_a_checkpoint_of_apache_makes_us_look_back_one_file(kit: Kit) -> None:
    timers = kit.open(mapped_file_size_timer_log=1040)
    for number in range(30):
        timers.enter(kit.entry(NOW_MS + 5_000, number), NOW_MS)
    run_steps(timers.flush_steps(NOW_MS))
    timers.close()
    path = kit.store.config.root / "config" / "timercheck"
    path.write_bytes(path.read_bytes()[:56].ljust(4096, b"\0"))  # without our note
    again = kit.open(NOW_MS + 1_000)
    assert again.noted_phy_offset is None
    assert again.last_entered_phy_offset == kit.places[29]
    assert [number for _, number in kit.taken(again, NOW_MS + 60_000)] == list(range(30))
    again.close()


def test_files_whose_messages_are_gone_go(kit: Kit) -> None:
    timers = kit.open(mapped_file_size_timer_log=1040)
    for number in range(30):
        timers.enter(kit.entry(NOW_MS + 5_000, number), NOW_MS)
    run_steps(timers.flush_steps(NOW_MS))
    folder = kit.store.config.root / "timerlog"
    before = len(list(folder.iterdir()))
    timers.delete_expired()
    assert len(list(folder.iterdir())) == before  # all of them are still in the log
    timers.close()


# -- how many wait -------------------------------------------------------------------------------


def counts(timers: TimerMessages) -> dict[str, int]:
    snapshot = timers.metrics.snapshot({"T"})
    return {topic: metric.count for topic, metric in snapshot.timing_count.items()}


def test_messages_are_counted_until_their_slot_is_over(kit: Kit) -> None:
    timers = kit.open()
    for number, seconds in enumerate((5, 5, 9)):
        timers.enter(kit.entry(NOW_MS + seconds * 1_000, number), NOW_MS)
    assert counts(timers) == {"T": 3}
    timers.enter(kit.entry(NOW_MS + 5_000, 3, is_delete=True), NOW_MS)
    assert counts(timers) == {"T": 2}
    before = timers.metrics.snapshot({"T"}).data_version
    kit.taken(timers, NOW_MS + 6_000)
    assert counts(timers) == {"T": 1}
    assert timers.metrics.snapshot({"T"}).data_version.counter > before.counter
    assert timers.metrics.snapshot(()).timing_count == {}, "the topic is deleted"
    timers.close()


def test_after_a_kill_those_are_counted_that_still_wait(kit: Kit) -> None:
    """The log of the timers tells; the file with the numbers is as old as it is."""
    timers = kit.open(mapped_file_size_timer_log=1040)
    timers.enter(kit.entry(NOW_MS + 1_000, 0), NOW_MS)
    timers.metrics.store(timers.metrics.snapshot({"T"}))
    for number in range(1, 25):
        timers.enter(kit.entry(NOW_MS + 1_000 + number * 1_000, number), NOW_MS)
    timers.enter(kit.entry(NOW_MS + 20_000, 29, is_delete=True), NOW_MS)
    kit.taken(timers, NOW_MS + 6_000)
    assert counts(timers) == {"T": 19}
    version = timers.metrics.snapshot({"T"}).data_version
    kit.store.flush()
    run_steps(timers.flush_steps(NOW_MS))
    timers.close()
    again = kit.open(mapped_file_size_timer_log=1040)
    assert counts(again) == {"T": 19}
    assert again.metrics.snapshot({"T"}).data_version.counter <= version.counter
    again.close()


def test_a_file_of_numbers_that_is_damaged_is_written_anew(kit: Kit) -> None:
    (kit.store.config.root / "config").mkdir(exist_ok=True)
    (kit.store.config.root / "config" / "timermetrics").write_text("{not json")
    timers = kit.open()
    timers.enter(kit.entry(NOW_MS + 5_000), NOW_MS)
    timers.metrics.store(timers.metrics.snapshot({"T"}))
    text = (kit.store.config.root / "config" / "timermetrics").read_text()
    assert json.loads(text)["timingCount"]["T"] == {"count": 1, "timeStamp": NOW_MS}
    timers.close()


def test_slots_of_another_length_are_rebuilt(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    timers = kit.open(timer_precision_ms=100)
    timers.enter(kit.entry(NOW_MS + 5_300, 1), NOW_MS)
    run_steps(timers.flush_steps(NOW_MS))
    timers.close()
    again = kit.open(NOW_MS + 1_000)
    assert (again.is_rebuilt, again.queue_offset) == (True, 0)
    assert "timerPrecisionMs" in caplog.text
    again.close()


def test_a_file_that_begins_where_none_can_is_damage(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """A broker could not be started after that: FileNotFoundError."""
    timers = kit.open()
    timers.enter(kit.entry(NOW_MS + 5_000, 1), NOW_MS)
    timers.drop_candidate()
    run_steps(timers.flush_steps(NOW_MS))
    timers.close()
    folder = kit.store.config.root / "timerlog"
    (folder / f"{0:020d}").rename(folder / f"{1:020d}")
    again = kit.open()
    assert again.is_rebuilt
    assert "begins at 1" in caplog.text
    assert not list(folder.iterdir())


def test_a_unit_can_wait_in_a_wheel_that_stands_still_for_months(kit: Kit) -> None:
    """`timerStopDequeue`: the delay of a unit, from when it was entered to its slot, has 32 bits."""
    timers = kit.open()
    now_ms = NOW_MS + 90 * DAY_MS
    timers.enter(kit.entry(NOW_MS + 89 * DAY_MS, 1), now_ms)
    timers.enter(kit.entry(NOW_MS, 2), now_ms)
    assert not timers.has_room(now_ms)
    assert kit.taken(timers, NOW_MS + 1_000) == [(NOW_MS, 2)]
    timers.close()


class RandomWork:
    """Entering, taking out, flushing and kills between any two writes, in any order."""

    def __init__(self, kit: Kit, seed: int) -> None:
        self._kit = kit
        self._random = random.Random(seed)
        self.now_ms = NOW_MS
        self.entries: list[TimerEntry] = []
        self.taken: set[int] = set()
        self._open()
        run_steps(self.timers.flush_steps(self.now_ms))

    def _open(self) -> None:
        self.timers = self._kit.open(self.now_ms, mapped_file_size_timer_log=1040)

    def send(self) -> None:
        for _ in range(self._random.randint(1, 12)):
            number, out_ms = len(self.entries), self.now_ms + self._random.randint(0, 9) * 1_000
            self.entries.append(TimerEntry(out_ms, number, 1, "T", number % 11 == 0))
        self.enter()

    def enter(self) -> None:
        for entry in self.entries[self.timers.queue_offset :]:
            self.timers.enter(entry, self.now_ms)
        self.timers.queue_offset = len(self.entries)

    def take(self, pass_ms: int | None = None) -> None:
        self.now_ms += self._random.randint(0, 4_000) if pass_ms is None else pass_ms
        while (slot := self.timers.next_over(self.now_ms)) is not None:
            units = self.timers.units_of(slot)
            self.taken |= {unit.phy_offset for unit in units}
            self.timers.slot_done(units, self.now_ms)
        if self._random.random() < 0.3:
            self.timers.find_first()

    def flush(self) -> None:
        run_steps(self.timers.flush_steps(self.now_ms))

    def kill(self) -> None:
        """After some of the writes of a flush."""
        for step in islice(self.timers.flush_steps(self.now_ms), self._random.randint(0, 3)):
            step()
        self.timers.close()
        self._open()
        assert self.timers.damage_count == 0
        last = self.timers.last_entered_phy_offset
        if last is not None:
            self.timers.queue_offset = last + 1
        self.enter()

    def go_on(self) -> None:
        self._random.choice((self.send, self.send, self.take, self.flush, self.kill))()


@pytest.mark.parametrize("seed", range(2))
def test_kills_between_any_two_writes_lose_nothing_and_look_like_no_damage(kit: Kit, seed: int) -> None:
    work = RandomWork(kit, seed)
    for _ in range(60):
        work.go_on()
    work.take(20_000)
    assert work.taken == set(range(len(work.entries)))
    work.timers.close()
