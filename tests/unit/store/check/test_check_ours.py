"""The check on stores of our own: open, closed, killed, recovered, damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.store.check.check import CheckOptions, check_store
from kourou.store.check.invariants import Invariant
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.store.recovery.checkpoint import PAGE_BYTES, StoreCheckpoint
from kourou.store.settings import MessageStoreConfig
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from kourou.testing.store_check import assert_store_ok
from tests.unit.store.broken_stores import check, contents, cut, flip, named, put

LOG_FILE_BYTES = 16_384
NEXT_MS = 40


class Clock:
    """Goes on by itself."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        self.now_ms += NEXT_MS
        return self.now_ms


@pytest.fixture
def config(tmp_path: Path) -> MessageStoreConfig:
    return MessageStoreConfig(
        root=tmp_path / "store",
        commit_log_file_bytes=LOG_FILE_BYTES,
        consume_queue_file_bytes=400,
        index_slots=50,
        index_entries=200,
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(config: MessageStoreConfig, clock: Clock) -> MessageStore:
    return MessageStore.open(config, Files(), clock)


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        properties = f"KEYS\x01k{number} order\x02UNIQ_KEY\x01ID{number}\x02TAGS\x01t{number % 3}\x02"
        store.put_message(f"topic-{number % 3}", number % 2, b"b" * (number % 200), properties)


@pytest.fixture
def closed(config: MessageStoreConfig, clock: Clock) -> Path:
    """A store with 200 messages, closed."""
    store = opened(config, clock)
    fill(store, 200)
    store.close()
    return config.root


@pytest.fixture
def killed(closed: Path, config: MessageStoreConfig, clock: Clock) -> Path:
    """The same with 50 more that were flushed and 20 that were not, killed."""
    store = opened(config, clock)
    fill(store, 50)
    store.flush()
    fill(store, 20)
    store.abandon()
    return closed


def log_places(root: Path) -> tuple[Path, int]:
    """The file in which the log ends, and where in it."""
    end = check(root).log_end_phy_offset
    return root / f"commitlog/{end // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}", end % LOG_FILE_BYTES


def durable_phy_offset(root: Path) -> int:
    checkpoint = StoreCheckpoint(Files(), root / "checkpoint")
    checkpoint.load()
    return checkpoint.durable_phy_offset


def record_starts(root: Path) -> Iterator[int]:
    """Where the records of the last file begin."""
    path, end = log_places(root)
    raw, at = path.read_bytes(), 0
    while at < end:
        yield at
        at += int.from_bytes(raw[at : at + 4], "big")


def test_a_closed_store_has_no_fault_and_no_note(closed: Path) -> None:
    report = check(closed)
    assert report.ok and not report.recovery and not report.notes
    assert report.counts.units == 200 and report.counts.index_entries == 600


def test_an_open_store_is_noted_and_what_is_not_written_yet_too(
    closed: Path, config: MessageStoreConfig, clock: Clock
) -> None:
    store = opened(config, clock)
    fill(store, 10)
    before = contents(closed)
    report = check_store(Files(), closed)
    assert contents(closed) == before
    store.close()
    assert report.ok and report.in_use and not report.recovery
    texts = [found.text(closed) for found in report.notes]
    assert (
        texts[0]
        == "lock: a broker has this store open; what it writes meanwhile may be reported as inconsistent"
    )
    assert any("10 records from" in text and "not in the files of their queues yet" in text for text in texts)
    assert not check(closed).in_use


def test_a_killed_store_says_what_comes_and_is_sound_afterwards(
    killed: Path, config: MessageStoreConfig, clock: Clock
) -> None:
    report = check(killed)
    assert report.ok and not report.is_clean and not report.in_use
    assert any("dispatch 70 records from" in found.what for found in report.recovery)
    assert any("index 210 keys of records from" in found.what for found in report.recovery)
    opened(config, clock).close()
    report = assert_store_ok(killed)
    assert not report.recovery and report.counts.units == 270 and report.counts.index_entries == 810


def test_a_torn_record_at_the_end_will_be_cut_off(killed: Path) -> None:
    path, end = log_places(killed)
    put(path.relative_to(killed).as_posix(), end, path.read_bytes()[:50])(killed)
    report = check(killed)
    assert report.ok
    assert [found.position for found in report.recovery if found.path == path] == [end]


def test_a_bad_record_that_was_not_flushed_ends_the_log_and_the_rest_is_kept(killed: Path) -> None:
    path, _ = log_places(killed)
    start = int(path.name)
    bad = next(at for at in record_starts(killed) if start + at > durable_phy_offset(killed))
    flip(path.relative_to(killed).as_posix(), bad + 4)(killed)
    report = check(killed)
    assert report.ok and report.log_end_phy_offset == start + bad
    (found,) = [found for found in report.recovery if found.path == path]
    assert found.position == bad and found.what.endswith("valid records behind it are kept in `quarantine`")


def test_a_bad_record_that_was_flushed_is_damage(killed: Path) -> None:
    flip("commitlog/00000000000000000000", 4)(killed)
    assert named(check(killed)) == [(Invariant.LOG_RECORD, "commitlog/00000000000000000000", 0)]


def test_a_log_that_lost_its_flushed_end_is_named(closed: Path) -> None:
    path, end = log_places(closed)
    last = list(record_starts(closed))[-1]
    put(path.relative_to(closed).as_posix(), last, bytes(end - last))(closed)
    name = path.relative_to(closed).as_posix()
    assert (Invariant.LOG_END, name, last) in named(check(closed))


def test_bytes_behind_the_end_are_a_fault_after_our_own_clean_stop(closed: Path) -> None:
    path, end = log_places(closed)
    name = path.relative_to(closed).as_posix()
    put(name, end, b"x")(closed)
    assert (Invariant.LOG_ZEROS, name, end) in named(check(closed))


def test_units_for_records_that_were_flushed_long_ago_must_be_there_after_a_kill(killed: Path) -> None:
    name = "consumequeue/topic-0/0/00000000000000000000"
    put(name, 40, bytes(20))(killed)
    assert named(check(killed)) == [(Invariant.QUEUE_COMPLETE, name, 40)]


def test_an_index_file_that_is_not_whole_after_a_kill_will_be_repaired(killed: Path) -> None:
    newest = sorted((killed / "index").iterdir())[-1]
    flip(newest.relative_to(killed).as_posix(), 40 + 3)(killed)
    report = check(killed)
    assert report.ok
    assert any(found.path == newest and "repair or drop" in found.what for found in report.recovery)


@pytest.mark.parametrize("byte", [0, 13, 31, 47, 48, 55, 63, 71, 72, 119, 120, 123, 124, 127])
def test_a_damaged_byte_of_the_checkpoint_is_found(byte: int, closed: Path) -> None:
    flip("checkpoint", byte, byte % 8)(closed)
    assert (Invariant.CHECKPOINT, "checkpoint", byte) in named(check(closed))


def test_a_checkpoint_that_apache_wrote_over_is_a_note(closed: Path) -> None:
    checkpoint = StoreCheckpoint(Files(), closed / "checkpoint")
    checkpoint.load()
    earlier = checkpoint.physic_msg_timestamp - 10 * NEXT_MS
    put("checkpoint", 0, earlier.to_bytes(8, "big") + (earlier - NEXT_MS).to_bytes(8, "big"))(closed)
    report = check(closed)
    assert report.ok
    assert [found.what for found in report.notes] == ["another broker has run on this store since Kourou did"]


def test_a_checkpoint_of_noise_is_a_fault(closed: Path) -> None:
    put("checkpoint", 0, b"\xa5" * PAGE_BYTES)(closed)
    assert Invariant.CHECKPOINT in {found.invariant for found in check(closed).violations}


def test_a_lost_checkpoint_is_a_note(closed: Path) -> None:
    (closed / "checkpoint").unlink()
    report = check(closed)
    assert report.ok
    assert [found.what for found in report.notes] == ["there is none: the next start reads the whole log"]


def test_a_damaged_snapshot_of_the_queues_is_named(closed: Path) -> None:
    assert (closed / "consumequeue.snapshot").exists()
    flip("consumequeue.snapshot", 30)(closed)
    assert named(check(closed)) == [(Invariant.SNAPSHOT, "consumequeue.snapshot", None)]


def test_a_cut_queue_file_is_repaired_after_a_kill_as_far_as_the_log_is_dispatched_again(
    killed: Path,
) -> None:
    name = "consumequeue/topic-0/0/00000000000000000400"
    cut(name, 300)(killed)
    report = check(killed)
    assert any(found.path == killed / name and found.position == 300 for found in report.recovery)


def test_a_folder_without_files_is_no_queue(closed: Path) -> None:
    """What a crash leaves of a deleted topic that was about to come back was taken for a queue."""
    shutil.rmtree(closed / "consumequeue" / "topic-1")
    (closed / "consumequeue" / "topic-1" / "0").mkdir(parents=True)
    assert_store_ok(closed, deleted_topics=["topic-1"])
    assert not check(closed).ok


def test_deleted_topics_need_no_queues(config: MessageStoreConfig, clock: Clock) -> None:
    store = opened(config, clock)
    fill(store, 30)
    store.queues.delete_topic("topic-1")
    fill(store, 3)
    store.queues.delete_topic("topic-2")
    store.close()
    report = assert_store_ok(config.root)
    assert any("deleted and created again" in found.what for found in report.notes)
    assert any("it was deleted" in found.what for found in report.notes)


def test_records_stored_while_indexing_was_off_are_a_note(
    closed: Path, config: MessageStoreConfig, clock: Clock
) -> None:
    store = opened(replace(config, index_enable=False), clock)
    fill(store, 5)
    store.close()
    report = assert_store_ok(closed)
    assert [found.what.partition(" of ")[0] for found in report.notes] == ["15 keys"]
    assert report.notes[0].what.endswith("indexing was switched off")


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(12))
def test_what_a_power_loss_leaves_is_for_recovery_and_never_damage(
    seed: int, config: MessageStoreConfig, clock: Clock
) -> None:
    """What was not on disk may be lost, torn or out of order; none of it breaks an invariant."""
    chance = random.Random(seed)
    files = FaultyFiles()
    for _ in range(3):
        try:
            files.crash_at(files.changes + chance.randrange(1, 400))
            store = MessageStore.open(config, files, clock)
            for _ in range(chance.randrange(1, 12)):
                fill(store, chance.randrange(1, 12))
                if chance.random() < 0.5:
                    store.flush()
                if chance.random() < 0.5:
                    store.flush_derived(thorough=True)
            store.abandon()
        except SimulatedCrash:
            pass
        files.crash(chance.randrange(1 << 30))
        if files.exists(config.root / "lock"):
            assert_store_ok(config.root, files)
    store = MessageStore.open(config, files, clock)
    fill(store, 5)
    store.close()
    assert not assert_store_ok(config.root, files).recovery


def test_an_index_of_unusual_shape_is_checked_with_its_slots_given(
    config: MessageStoreConfig, clock: Clock
) -> None:
    store = opened(replace(config, index_slots=70), clock)
    fill(store, 100)
    store.close()
    (*_, asked) = check(config.root).violations
    assert asked.invariant is Invariant.INDEX_FILE_LENGTH and "--index-slots" in asked.what
    report = check_store(Files(), config.root, options=CheckOptions(index_slots=70))
    assert report.ok and report.counts.index_entries == 300
