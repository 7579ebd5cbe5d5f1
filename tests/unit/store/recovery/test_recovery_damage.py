"""Recovery of a log with damage: reported, kept, served around, and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.protocol.layout import RECORD
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.store.recovery.recovery import Recovery, RecoveryReport
from kourou.testing.faulty_files import SimulatedCrash
from tests.unit.store.message_stores import (
    LOG_FILE_BYTES,
    StoreKit,
    listing,
    put,
)
from tests.unit.store.numbered_messages import (
    QUEUES,
    assert_all,
    fill,
    found_keys,
    lose,
    numbers,
    tear,
)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        yield made


@pytest.fixture
def store(kit: StoreKit) -> MessageStore:
    return kit.open()


def durable_store(kit: StoreKit, store: MessageStore, count: int = 50) -> int:
    """Fill, flush and stop; where the log ends. What follows damages it."""
    kit.is_checked = False
    fill(store, count)
    store.flush()
    end = store.log.max_phy_offset
    store.close()
    return end


@pytest.mark.parametrize("lost", ["queues", "nothing"])
@pytest.mark.parametrize("place", [3, 19, 20, 39])
def test_damage_is_reported_kept_and_served_around(
    kit: StoreKit, store: MessageStore, place: int, lost: str
) -> None:
    end = durable_store(kit, store)
    bad_at = place // 20 * LOG_FILE_BYTES + place % 20 * 200
    tear(kit, bad_at + 100)
    before = listing(kit.root / "commitlog")
    (kit.root / "checkpoint").write_bytes(rewound(kit.root / "checkpoint"))
    if lost == "queues":
        lose(kit.root, ("all queues", "index"))
    store = kit.open()
    (damage,) = store.report.damages
    path = kit.root / "commitlog" / f"{place // 20 * LOG_FILE_BYTES:020d}"
    assert (damage.path, damage.phy_offset) == (path, bad_at)
    assert damage.end_phy_offset == bad_at + (200 if place % 20 != 19 else LOG_FILE_BYTES - 19 * 200)
    assert f"{path}: no valid record from {bad_at} to " in str(damage)
    whole = [number for number in range(50) if number != place]
    assert numbers(store) == whole
    assert found_keys(store, 50) == whole
    assert (store.report.truncated_at, store.report.quarantine, store.log.max_phy_offset) == (None, None, end)
    assert listing(kit.root / "commitlog") == before
    fill(store, 3, 50)
    for again in (kit.reopen, kit.kill, kit.reopen):
        store = again(store)
        assert numbers(store) == [*whole, 50, 51, 52]
        assert store.report.damages == [damage]


def rewound(path: Path) -> bytes:
    """The checkpoint as it was before anything was derived, so that recovery reads the whole log."""
    from kourou.store.recovery.checkpoint import StoreCheckpoint

    checkpoint = StoreCheckpoint(Files(), path)
    checkpoint.load()
    checkpoint.logics_physical_offset = checkpoint.indexed_phy_offset = 0
    return checkpoint.encode()


def test_damage_over_many_records_and_a_file_border(kit: StoreKit, store: MessageStore) -> None:
    durable_store(kit, store)
    tear(kit, 15 * 200, bytes(LOG_FILE_BYTES - 15 * 200))
    tear(kit, LOG_FILE_BYTES, bytes(500))
    (kit.root / "checkpoint").write_bytes(rewound(kit.root / "checkpoint"))
    store = kit.open()
    (damage,) = store.report.damages
    assert (damage.phy_offset, damage.end_phy_offset) == (3000, LOG_FILE_BYTES + 600)
    assert numbers(store) == [*range(15), *range(23, 50)]


def test_damage_at_the_very_end_keeps_the_place(kit: StoreKit, store: MessageStore) -> None:
    """The end was durable: what comes next must not take the lost message's offsets."""
    end = durable_store(kit, store)
    tear(kit, end - 200, bytes(200))
    (kit.root / "checkpoint").write_bytes(rewound(kit.root / "checkpoint"))
    store = kit.open()
    (damage,) = store.report.damages
    assert (damage.phy_offset, damage.end_phy_offset, store.log.max_phy_offset) == (end - 200, end, end)
    assert numbers(store) == list(range(49))
    for again in (kit.kill, kit.reopen, kit.kill):
        store = again(store)
        assert store.max_offset_in_queue(*QUEUES[1]) == 17
        assert numbers(store) == list(range(49))
    result = put(store, b"050", *QUEUES[1])
    assert (result.phy_offset, result.queue_offset) == (end, 17)
    for again in (kit.kill, kit.reopen):
        store = again(store)
        assert numbers(store) == [*range(49), 50]


def test_a_queue_whose_only_message_is_damaged_goes_on_behind_it(kit: StoreKit, store: MessageStore) -> None:
    put(store, b"only", "rare")
    durable_store(kit, store)
    tear(kit, 0)
    (kit.root / "checkpoint").write_bytes(rewound(kit.root / "checkpoint"))
    store = kit.open()
    for again in (kit.kill, kit.reopen):
        assert len(store.report.damages) == 1
        assert (store.min_offset_in_queue("rare", 0), store.max_offset_in_queue("rare", 0)) == (1, 1)
        store = again(store)
    assert put(store, b"second", "rare").queue_offset == 1


def test_damage_below_and_a_torn_tail_above_what_was_durable(kit: StoreKit, store: MessageStore) -> None:
    kit.is_checked = False
    fill(store, 30)
    store.flush()
    durable = store.log.max_phy_offset
    fill(store, 5, 30)
    store.abandon()
    tear(kit, durable - 200, bytes(200))
    tear(kit, durable, bytes(200))
    store = kit.open()
    (damage,) = store.report.damages
    assert (damage.phy_offset, damage.end_phy_offset) == (durable - 200, durable)
    assert store.report.truncated_at == store.log.max_phy_offset == durable
    assert store.report.quarantine is not None
    assert numbers(store) == list(range(29))


def test_damage_is_remembered_by_a_recovery_that_begins_behind_it(
    kit: StoreKit, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one dies after it has kept its progress: the second does not see these bytes."""
    put(store, b"only", "rare")
    durable_store(kit, store, 100)
    tear(kit, 0)
    (kit.root / "checkpoint").write_bytes(rewound(kit.root / "checkpoint"))
    monkeypatch.setattr("kourou.store.recovery.recovery._PROGRESS_BYTES", LOG_FILE_BYTES)
    monkeypatch.setattr("kourou.store.recovery.log_walk._PIECE_BYTES", LOG_FILE_BYTES)
    keep = Recovery._keep
    kept: list[int] = []

    def keep_and_die(recovery: Recovery, report: RecoveryReport) -> None:
        keep(recovery, report)
        kept.append(report.end_phy_offset)
        raise SimulatedCrash

    with monkeypatch.context() as patch, pytest.raises(SimulatedCrash):
        patch.setattr(Recovery, "_keep", keep_and_die)
        kit.open()
    store = kit.open()
    assert 0 < store.report.start_phy_offset <= kept[0]
    assert store.report.start_phy_offset > 0
    (damage,) = store.report.damages
    assert damage.phy_offset == 0
    assert store.max_offset_in_queue("rare", 0) == 1
    assert numbers(store) == list(range(100))


def test_known_damage_is_one_warning_at_every_start(
    kit: StoreKit, store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    durable_store(kit, store)
    tear(kit, 600 + 100)
    (kit.root / "checkpoint").write_bytes(rewound(kit.root / "checkpoint"))
    store = kit.open()
    for again in (kit.reopen, kit.kill):
        caplog.clear()
        store = again(store)
        (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert line.startswith("known damage: 1 stretch of the CommitLog, 200 bytes in all, ")
        assert str(kit.root / "quarantine" / "damages.json") in line


def test_a_single_lost_message_is_reported_in_the_singular(
    kit: StoreKit, store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.damages.note_lost("T", 0, 99, 99)
    store.damages.note_lost("T", 0, 101, 102)
    one, two = (r.getMessage() for r in caplog.records if r.levelname == "ERROR")
    assert one.startswith("T/0: message 99 is lost: its record ") and one.endswith(" go on after it")
    assert two.startswith("T/0: messages 101 to 102 are lost: their records ")
    assert store.damages.lost_messages == 3


def test_repaired_damage_is_forgotten(
    kit: StoreKit, store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    durable_store(kit, store)
    path = kit.root / "commitlog" / ("0" * 20)
    copy = path.read_bytes()
    tear(kit, 600 + 100)
    (kit.root / "checkpoint").write_bytes(rewound(kit.root / "checkpoint"))
    store = kit.open()
    assert len(store.report.damages) == 1
    store.close()
    path.write_bytes(copy)
    caplog.clear()
    store = kit.open()
    assert store.report.damages == []
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert line.startswith(f"{path}: the damaged stretch from 600 to 800 holds valid records again")
    assert_all(store, 50)


def test_damage_goes_with_its_file(kit: StoreKit, store: MessageStore) -> None:
    durable_store(kit, store)
    tear(kit, 600 + 100)
    (kit.root / "checkpoint").write_bytes(rewound(kit.root / "checkpoint"))
    store = kit.open()
    store.log.delete_first()
    store = kit.reopen(store)
    assert store.report.damages == []


def test_a_record_with_an_impossible_queue_offset_is_damage(kit: StoreKit, store: MessageStore) -> None:
    """The header has no CRC. Recovery once ended with the error of the queue."""
    durable_store(kit, store)
    tear(kit, 600 + RECORD.at("queue_offset"), b"\x00\x00\x7f")
    lose(kit.root, ("all queues",))
    store = kit.open()
    (damage,) = store.report.damages
    assert damage.phy_offset == 600
    assert "queue_offset" in damage.reason
    assert numbers(store) == [number for number in range(50) if number != 3]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"damages": [{"file": 1}]}'])
def test_a_list_of_damages_that_cannot_be_read_is_ignored(
    kit: StoreKit, store: MessageStore, content: bytes
) -> None:
    fill(store, 20)
    store.close()
    (kit.root / "quarantine").mkdir()
    (kit.root / "quarantine" / "damages.json").write_bytes(content)
    store = kit.open()
    assert store.report.damages == []
    assert_all(store, 20)


def test_bodies_are_not_checked_if_that_is_switched_off(kit: StoreKit, store: MessageStore) -> None:
    fill(store, 20)
    store.abandon()
    tear(kit, 10 * 200 + 100)
    kit.is_checked = False
    store = kit.open(check_crc_on_recover=False)
    assert (store.report.records, store.report.truncated_at) == (20, None)
