"""Golden stores broken in every way: each fault is named, at its file and its byte."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from kourou.store.check.invariants import Invariant
from kourou.store.queue.cq_unit import BLANK_UNIT
from tests.golden.stores import extract_store, manifest
from tests.memory_folder import disk_tmp_path  # noqa: F401 (beside what it links to)
from tests.unit.store.broken_stores import Break, check, cut, edit, flip, linked_copy, named, put, remove

VERSION = "4.9.7"
LOG = "commitlog/00000000000000524288"
LOG_START = 524_288
LAST_LOG = "commitlog/00000000000001048576"
LOG_END = 1_109_259 - 1_048_576
QUEUE = "consumequeue/BulkTopic/0/00000000000000000000"
QUEUE_2 = "consumequeue/BulkTopic/0/00000000000000006000"
SCHEDULE = "consumequeue/SCHEDULE_TOPIC_XXXX/17/00000000000000000000"
INDEX = "index/20261115030244307"
INDEX_2 = "index/20261115030251708"
ENTRIES = 40 + 1000 * 4  # where entry 0 would be


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_store(VERSION, tmp_path_factory.mktemp("sound"))


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """A sound store to be broken."""
    return linked_copy(sound, tmp_path / "store")


def swapped(raw: bytearray) -> None:
    raw[40:60], raw[60:80] = raw[60:80], raw[40:60]


def doubled(raw: bytearray) -> None:
    raw[60:80] = raw[40:60]


# The first record of LOG is 1 KiB and more; its fields begin at byte 0.
LOG_FAULTS = [
    ("body", flip(LOG, 95), Invariant.LOG_RECORD, LOG, 0),
    ("total size", flip(LOG, 3), Invariant.LOG_RECORD, LOG, 0),
    ("magic", flip(LOG, 5), Invariant.LOG_RECORD, LOG, 0),
    ("phy_offset", flip(LOG, 35), Invariant.LOG_RECORD, LOG, 0),
    ("body length", flip(LOG, 87), Invariant.LOG_RECORD, LOG, 0),
    ("blank magic", flip(LOG, 777_514 - LOG_START + 5), Invariant.LOG_RECORD, LOG, 777_514 - LOG_START),
    ("blank size", flip(LOG, 777_514 - LOG_START + 3), Invariant.LOG_RECORD, LOG, 777_514 - LOG_START),
    ("blank gone", put(LOG, 777_514 - LOG_START, bytes(8)), Invariant.LOG_BLANK, LOG, 777_514 - LOG_START),
    ("cut", cut(LOG, 100_000), Invariant.LOG_FILE_LENGTH, LOG, 100_000),
    ("longer", edit(LOG, lambda raw: raw + bytes(20)), Invariant.LOG_FILE_LENGTH, LOG, 262_144),
    ("empty", cut(LOG, 0), Invariant.LOG_FILE_LENGTH, LOG, 0),
    ("file missing", remove(LOG), Invariant.LOG_CONTIGUOUS, "commitlog/00000000000000786432", None),
    ("last file missing", remove(LAST_LOG), Invariant.LOG_END, "commitlog/00000000000000786432", 262_144),
    (
        "name",
        lambda root: (root / LAST_LOG).rename(root / "commitlog/00000000000001048577"),
        Invariant.LOG_FILE_NAME,
        "commitlog/00000000000001048577",
        None,
    ),
]

QUEUE_FAULTS = [
    ("phy_offset", flip(QUEUE, 47, 4), Invariant.QUEUE_UNIT, QUEUE, 40),
    ("phy_offset far off", flip(QUEUE, 41, 4), Invariant.QUEUE_UNIT, QUEUE, 40),
    ("size", flip(QUEUE, 51, 4), Invariant.QUEUE_UNIT, QUEUE, 40),
    ("tags code", flip(QUEUE, 59, 4), Invariant.QUEUE_UNIT, QUEUE, 40),
    ("delivery time", flip(SCHEDULE, 18), Invariant.QUEUE_UNIT, SCHEDULE, 0),
    ("two swapped", edit(QUEUE, swapped), Invariant.QUEUE_UNIT, QUEUE, 40),
    ("one doubled", edit(QUEUE, doubled), Invariant.QUEUE_UNIT, QUEUE, 60),
    ("zero", put(QUEUE, 60, bytes(20)), Invariant.QUEUE_COMPLETE, QUEUE, 60),
    ("blank", put(QUEUE, 60, BLANK_UNIT), Invariant.QUEUE_UNIT, QUEUE, 60),
    (
        "one too many",
        put(QUEUE_2, 2800, struct.pack(">qiq", 100, 177, 0)),
        Invariant.QUEUE_UNIT,
        QUEUE_2,
        2800,
    ),
    (
        "one behind the log",
        put(QUEUE_2, 2800, struct.pack(">qiq", 1 << 40, 177, 0)),
        Invariant.QUEUE_UNIT,
        QUEUE_2,
        2800,
    ),
    ("cut", cut(QUEUE, 3000), Invariant.QUEUE_FILE_LENGTH, QUEUE, 3000),
    ("cut inside a unit", cut(QUEUE, 3010), Invariant.QUEUE_FILE_LENGTH, QUEUE, 3010),
    ("first file missing", remove(QUEUE), Invariant.QUEUE_COMPLETE, QUEUE, 0),
    ("last file missing", remove(QUEUE_2), Invariant.QUEUE_COMPLETE, QUEUE_2, 0),
    (
        "queue missing",
        lambda root: shutil.rmtree(root / "consumequeue/BulkTopic/0"),
        Invariant.QUEUE_COMPLETE,
        QUEUE,
        0,
    ),
    (
        "topic missing",
        lambda root: shutil.rmtree(root / "consumequeue/BulkTopic"),
        Invariant.QUEUE_COMPLETE,
        QUEUE,
        0,
    ),
    (
        "renamed",
        lambda root: (root / QUEUE_2).rename(root / QUEUE_2.replace("6000", "6020")),
        Invariant.QUEUE_FILE_NAME,
        QUEUE_2.replace("6000", "6020"),
        None,
    ),
    (
        "gap between files",
        lambda root: (root / QUEUE_2).rename(root / QUEUE_2.replace("06000", "12000")),
        Invariant.QUEUE_CONTIGUOUS,
        QUEUE_2.replace("06000", "12000"),
        None,
    ),
]

INDEX_FAULTS = [
    ("slot", flip(INDEX, 40 + 500 * 4 + 3, 1), Invariant.INDEX_CHAIN, INDEX, 40 + 500 * 4),
    ("hash", flip(INDEX, ENTRIES + 100 * 20 + 1), Invariant.INDEX_ENTRY, INDEX, ENTRIES + 100 * 20),
    ("phy_offset", flip(INDEX, ENTRIES + 100 * 20 + 10), Invariant.INDEX_ORDER, INDEX, ENTRIES + 100 * 20),
    ("time", flip(INDEX, ENTRIES + 100 * 20 + 15), Invariant.INDEX_ENTRY, INDEX, ENTRIES + 100 * 20 + 12),
    ("chain", flip(INDEX, ENTRIES + 100 * 20 + 19), Invariant.INDEX_CHAIN, INDEX, ENTRIES + 100 * 20),
    ("begin timestamp", flip(INDEX, 7), Invariant.INDEX_HEADER, INDEX, 0),
    ("end timestamp", flip(INDEX, 15), Invariant.INDEX_HEADER, INDEX, 8),
    ("begin offset", flip(INDEX, 23), Invariant.INDEX_HEADER, INDEX, 16),
    ("end offset", flip(INDEX, 31), Invariant.INDEX_HEADER, INDEX, 24),
    ("slot count", flip(INDEX, 35), Invariant.INDEX_HEADER, INDEX, 32),
    ("entry count too high", flip(INDEX, 39), Invariant.INDEX_HEADER, INDEX, 36),
    ("entry count far too high", flip(INDEX_2, 36, 6), Invariant.INDEX_HEADER, INDEX_2, 36),
    ("entry count too low", flip(INDEX_2, 38, 3), Invariant.INDEX_COMPLETE, INDEX_2, None),
    ("cut", cut(INDEX, 30_000), Invariant.INDEX_FILE_LENGTH, INDEX, 30_000),
    ("first file missing", remove(INDEX), Invariant.INDEX_COMPLETE, INDEX_2, None),
    ("last file missing", remove(INDEX_2), Invariant.INDEX_COMPLETE, INDEX, None),
    ("all missing", lambda root: shutil.rmtree(root / "index"), Invariant.INDEX_COMPLETE, "index", None),
]

OTHER_FAULTS = [
    ("checkpoint time", flip("checkpoint", 2), Invariant.CHECKPOINT, "checkpoint", 0),
    ("checkpoint time below zero", flip("checkpoint", 8, 7), Invariant.CHECKPOINT, "checkpoint", 0),
    ("checkpoint offset", flip("checkpoint", 34), Invariant.CHECKPOINT, "checkpoint", 32),
    ("checkpoint short", cut("checkpoint", 20), Invariant.CHECKPOINT, "checkpoint", 20),
    ("checkpoint longer", edit("checkpoint", lambda raw: raw * 2), Invariant.CHECKPOINT, "checkpoint", 8192),
    ("checkpoint garbage", flip("checkpoint", 100), Invariant.CHECKPOINT, "checkpoint", 100),
    ("topics cut", cut("config/topics.json", 100), Invariant.CONFIG, "config/topics.json", None),
    (
        "offsets empty",
        cut("config/consumerOffset.json", 0),
        Invariant.CONFIG,
        "config/consumerOffset.json",
        None,
    ),
    ("delays", flip("config/delayOffset.json", 0), Invariant.CONFIG, "config/delayOffset.json", None),
]


@pytest.mark.parametrize(
    ("what", "fault", "invariant", "name", "position"),
    [*LOG_FAULTS, *QUEUE_FAULTS, *INDEX_FAULTS, *OTHER_FAULTS],
    ids=[
        f"{kind}: {fault[0]}"
        for kind, faults in (
            ("log", LOG_FAULTS),
            ("queue", QUEUE_FAULTS),
            ("index", INDEX_FAULTS),
            ("other", OTHER_FAULTS),
        )
        for fault in faults
    ],
)
def test_a_fault_is_named_where_it_is(
    what: str, fault: Break, invariant: Invariant, name: str, position: int | None, root: Path
) -> None:
    fault(root)
    report = check(root)
    assert not report.ok
    assert (invariant, name, position) in named(report)


@pytest.mark.parametrize(
    ("fault", "count"),
    [
        (flip(LOG, 95), 1),
        (remove(LOG), 1),
        (put(LOG, 4096 * 3, bytes(4096)), 1),
        (flip(QUEUE, 47, 4), 1),
        (edit(QUEUE, swapped), 2),
        (flip(INDEX, 40 + 500 * 4 + 3, 1), 1),
        (remove(INDEX), 1),
    ],
    ids=[
        "bad record",
        "log file missing",
        "page of zeros",
        "bad unit",
        "swapped units",
        "bad slot",
        "index missing",
    ],
)
def test_one_cause_is_not_reported_many_times(fault: Break, count: int, root: Path) -> None:
    fault(root)
    assert len(check(root).violations) == count


def test_a_wrong_queue_offset_in_a_record_is_reported_at_its_unit(root: Path) -> None:
    record = next(
        message for message in manifest(VERSION)["messages"] if message["commitLogOffset"] > LOG_START
    )
    flip(LOG, record["commitLogOffset"] - LOG_START + 23, 2)(root)  # 2**34 too high
    (found,) = check(root).violations
    queue = f"consumequeue/{record['topic']}/{record['queueId']}/00000000000000000000"
    assert found.path == root / queue and found.position == record["queueOffset"] * 20
    assert found.what == (
        f"unit {record['queueOffset']} points at the record at {record['commitLogOffset']}, "
        f"which says queue_offset {record['queueOffset'] + (1 << 34)}"
    )


def test_a_wrong_queue_in_a_record_is_reported_at_the_unit_that_points_at_it(root: Path) -> None:
    record = next(message for message in manifest(VERSION)["messages"] if message["topic"] == "BulkTopic")
    name = f"commitlog/{record['commitLogOffset'] // 262_144 * 262_144:020d}"
    flip(name, record["commitLogOffset"] % 262_144 + 15)(root)
    unit = f"consumequeue/BulkTopic/{record['queueId']}/00000000000000000000"
    assert (Invariant.QUEUE_UNIT, unit, record["queueOffset"] * 20) in named(check(root))


def test_damage_says_why_and_how_much_is_lost(root: Path) -> None:
    flip(LOG, 95)(root)
    (found,) = check(root).violations
    size = next(m["storeSize"] for m in manifest(VERSION)["messages"] if m["commitLogOffset"] == LOG_START)
    assert found.what.startswith("no valid record: the body does not match its CRC ")
    assert found.what.endswith(f"; the next valid record is {size} bytes further on")


def test_units_that_point_into_damage_are_a_note(root: Path) -> None:
    remove(LOG)(root)
    lost = [m for m in manifest(VERSION)["messages"] if 0 <= m["commitLogOffset"] - LOG_START < 262_144]
    notes = [found.what for found in check(root).notes]
    assert f"units that point into damaged or missing parts of the log: {len(lost)}" in notes


def test_bytes_behind_the_end_are_a_note_where_apache_wrote_last(root: Path) -> None:
    """Apache does not clear what a recovery cut off."""
    put(LAST_LOG, LOG_END, (root / LAST_LOG).read_bytes()[:500])(root)
    report = check(root)
    assert report.ok
    assert [(found.path, found.position) for found in report.notes] == [(root / LAST_LOG, LOG_END)]


def test_a_checkpoint_time_that_no_record_has_is_a_note(root: Path) -> None:
    flip("checkpoint", 7, 1)(root)
    report = check(root)
    assert report.ok and [found.position for found in report.notes] == [0]


def test_a_missing_config_file_with_its_backup_is_a_note(root: Path) -> None:
    remove("config/topics.json")(root)
    (found,) = check(root).notes
    assert found.what == "it is missing; the next start takes topics.json.bak"


def test_foreign_files_are_notes(root: Path) -> None:
    foreign = ["x.txt", "commitlog/.keep", "consumequeue/readme", "consumequeue/BulkTopic/abc", "index/old"]
    for name in foreign:
        (root / name).write_text("hello")
    (root / "consumequeue/BulkTopic/00").mkdir()
    report = check(root)
    assert report.ok
    assert {found.path.relative_to(root).as_posix() for found in report.notes} == {
        *foreign,
        "consumequeue/BulkTopic/00",
    }


def test_an_index_of_another_shape_asks_for_its_slots(root: Path) -> None:
    for name in (INDEX, INDEX_2):
        # 500 slots and 4,000 entries: the length does not tell, and what is there looks like nothing.
        edit(name, lambda raw: raw[:40] + raw[2040:])(root)
    report = check(root)
    assert {found.invariant for found in report.violations} == {Invariant.INDEX_FILE_LENGTH}
    assert all("--index-slots" in found.what for found in report.violations)


# One seed finds a part of the format that nothing covers; the others flip more of its bits.
SEEDS = pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 10))]
)


@SEEDS
def test_any_flipped_bit_in_units_in_use_is_found(seed: int, root: Path) -> None:
    chance = random.Random(seed)
    queues = [queue for queue in manifest(VERSION)["consumeQueues"] if queue["entries"]]
    for _ in range(15):
        queue = chance.choice(queues)
        byte = chance.randrange(queue["maxOffset"] * 20)
        name = f"consumequeue/{queue['topic']}/{queue['queueId']}/{byte // 6000 * 6000:020d}"
        bit = chance.randrange(8)
        flip(name, byte % 6000, bit)(root)
        places = {(path, position) for _, path, position in named(check(root))}
        assert (name, byte % 6000 // 20 * 20) in places, f"seed {seed}: {name} byte {byte} bit {bit}"
        flip(name, byte % 6000, bit)(root)


@SEEDS
def test_any_flipped_bit_in_an_index_file_is_found(seed: int, root: Path) -> None:
    chance = random.Random(seed)
    for _ in range(15):
        # Header and slots, then the entries in use; entry 0 never is.
        byte = chance.choice([chance.randrange(ENTRIES), chance.randrange(ENTRIES + 20, ENTRIES + 4000 * 20)])
        bit = chance.randrange(8)
        flip(INDEX, byte, bit)(root)
        report = check(root)
        assert any(found.path == root / INDEX for found in report.violations), (
            f"seed {seed}: {byte} bit {bit}"
        )
        flip(INDEX, byte, bit)(root)


@SEEDS
def test_any_flipped_bit_in_the_part_of_a_record_that_something_covers_is_found(
    seed: int, root: Path
) -> None:
    """Sizes, magic, CRC, place in queue and log, body, topic, and the length of the properties."""
    chance = random.Random(seed)
    messages = [m for m in manifest(VERSION)["messages"] if m.get("storedBodyLength", m["bodyLength"])]
    for _ in range(15):
        message = chance.choice(messages)
        body_end = 88 + message.get("storedBodyLength", message["bodyLength"])
        topic_end = body_end + 1 + len(message["topic"].encode())
        byte = chance.choice(
            [chance.randrange(16), chance.randrange(20, 36), chance.randrange(84, topic_end + 2)]
        )
        bit = chance.randrange(8)
        start = message["commitLogOffset"] // 262_144 * 262_144
        name = f"commitlog/{start:020d}"
        flip(name, message["commitLogOffset"] - start + byte, bit)(root)
        assert not check(root).ok, f"seed {seed}: {message['commitLogOffset']} byte {byte} bit {bit}"
        flip(name, message["commitLogOffset"] - start + byte, bit)(root)
