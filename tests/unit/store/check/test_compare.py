"""From which offset on two stores differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kourou.protocol.ha import Epoch
from kourou.store.check import compare
from kourou.store.check.compare import Comparison, QueueDifference, compare_stores
from kourou.store.disk.files import Files, OpenFile
from kourou.store.message_store import MessageStore
from kourou.store.replica.epochs import EpochFile
from tests.unit.store.message_stores import LOG_FILE_BYTES, StoreKit, put


def fill(store: MessageStore, count: int, body: bytes = b"body") -> None:
    for number in range(count):
        put(store, (b"%s %d" % (body, number)).ljust(200, b"."), queue_id=number % 2)
    store.flush()
    store.flush_derived(thorough=True)


def make(root: Path, *parts: tuple[int, bytes]) -> Path:
    """A closed store with so many messages of each body."""
    with StoreKit(root, Files()) as kit:
        store = kit.open()
        for count, body in parts:
            fill(store, count, body)
        store.close()
    return root


def run(a: Path, b: Path, files: Files | None = None) -> Comparison:
    return compare_stores(files or Files(), a, b)


def test_a_copy_is_equal_and_one_may_be_longer(tmp_path: Path) -> None:
    a = make(tmp_path / "a", (50, b"x"))
    b = shutil.copytree(a, tmp_path / "b")
    found = run(a, b)
    assert found.is_equal and found.queues == []
    assert found.end_phy_offset == found.a.end_phy_offset == found.b.end_phy_offset > LOG_FILE_BYTES
    make(b, (50, b"y"))
    for found in (run(a, b), run(b, a)):
        assert found.is_equal and found.queues == []
        assert found.end_phy_offset < max(found.a.end_phy_offset, found.b.end_phy_offset)


@pytest.mark.parametrize("common", [0, 1, 40])
@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_the_record_that_differs_first(
    common: int, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "_BLOCK_BYTES", block_bytes)
    a = make(tmp_path / "a", (common, b"same"), (30, b"one"))
    b = make(tmp_path / "b", (common, b"same"), (40, b"two"))
    found = run(a, b)
    assert not found.is_equal and found.divergence is not None
    at = found.divergence
    first_file = make(tmp_path / "c", (common, b"same"))
    assert at.phy_offset == run(first_file, first_file).end_phy_offset
    assert at.phy_offset < at.byte_phy_offset < at.phy_offset + at.a.size
    assert (at.a.topic, at.a.queue_offset, at.a.problem) == ("orders", (common + 1) // 2, "")
    assert at.a.msg_id == at.b.msg_id != "", "an id of the offset, as no client gave one"
    assert found.queues == [], "the queues are the same up to there"


def test_a_damaged_byte_and_what_lies_there(tmp_path: Path) -> None:
    a = make(tmp_path / "a", (50, b"x"))
    b = shutil.copytree(a, tmp_path / "b")
    path = b / "commitlog" / f"{LOG_FILE_BYTES:020d}"
    raw = bytearray(path.read_bytes())
    raw[400] ^= 1
    path.write_bytes(raw)
    at = run(a, b).divergence
    assert at is not None and at.byte_phy_offset == LOG_FILE_BYTES + 400
    assert LOG_FILE_BYTES < at.phy_offset <= at.byte_phy_offset
    assert at.a.topic == "orders" and "CRC" in at.b.problem


def test_logs_of_other_ranges(tmp_path: Path) -> None:
    a = make(tmp_path / "a", (80, b"x"))
    b = shutil.copytree(a, tmp_path / "b")
    files = sorted((b / "commitlog").iterdir())
    files[0].unlink()
    found = run(a, b)
    assert (found.min_phy_offset, found.is_equal) == (LOG_FILE_BYTES, True)
    c = make(tmp_path / "c", (5, b"x"))
    found = run(b, c)
    assert not found.has_common_range and not found.is_equal
    empty = make(tmp_path / "empty")
    assert run(a, empty).is_equal and run(empty, b).is_equal


def test_queues_that_end_elsewhere(tmp_path: Path) -> None:
    a = make(tmp_path / "a", (20, b"x"))
    b = shutil.copytree(a, tmp_path / "b")
    shutil.rmtree(b / "consumequeue" / "orders" / "1")
    last = b / "consumequeue" / "orders" / "0" / f"{0:020d}"
    last.write_bytes(last.read_bytes()[: 9 * 20].ljust(last.stat().st_size, b"\0"))
    found = run(a, b)
    assert found.divergence is None and not found.is_equal
    assert found.queues == [QueueDifference("orders", 0, 10, 9), QueueDifference("orders", 1, 10, None)]
    (b / "abort").touch()
    assert run(a, b).is_equal, "a start would write the missing units"


def test_a_store_that_grows_and_loses_files_meanwhile(tmp_path: Path) -> None:
    with StoreKit(tmp_path / "a", Files()) as kit:
        store = kit.open()
        fill(store, 80)
        b = shutil.copytree(kit.root, tmp_path / "b")
        end = store.log.max_phy_offset

        class Meanwhile(Files):
            has_grown = False

            def open(self, path: Path, **how: bool) -> OpenFile:
                if path == b / "commitlog" / f"{0:020d}" and not Meanwhile.has_grown:
                    Meanwhile.has_grown = True
                    fill(store, 20, b"more")
                if path == b / "commitlog" / f"{LOG_FILE_BYTES:020d}" and len(store.log.log_files) > 3:
                    while len(store.log.log_files) > 3:
                        store.log.delete_first()
                return super().open(path, **how)

        found = run(b, kit.root, Meanwhile())
        assert found.is_equal and found.b.in_use and found.end_phy_offset == end
        assert found.min_phy_offset == store.log.min_phy_offset > 2 * LOG_FILE_BYTES


def test_epochs_say_how_far_logs_can_be_equal(tmp_path: Path) -> None:
    a = make(tmp_path / "a", (20, b"x"))
    b = shutil.copytree(a, tmp_path / "b")
    assert run(a, b).epochs_end is None
    for root, epochs in ((a, [Epoch(1, 0), Epoch(2, 1000)]), (b, [Epoch(1, 0), Epoch(3, 1200)])):
        EpochFile(Files(), root).follow(epochs, 1 << 40)
    found = run(a, b)
    assert found.epochs_end == 1000 and found.is_equal


def test_a_record_that_is_larger_than_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "_WALK_BYTES", 64)
    a = make(tmp_path / "a", (3, b"same"), (5, b"one"))
    b = make(tmp_path / "b", (3, b"same"), (5, b"two"))
    at = run(a, b).divergence
    assert at is not None and at.phy_offset == 3 * at.a.size and at.a.problem == ""
