"""The snapshot: a quick start after a clean stop, and what is missed by it after any other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kourou.store.disk.files import Files, OpenFile
from kourou.store.queue import consume_queues
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.queue.queue_recovery import QueueState
from kourou.store.queue.queue_snapshot import decode_snapshot, encode_snapshot
from tests.unit.store.consume_queue_kit import FILE_BYTES, append, message, names, queue_folder, read_all

COVERED = 500


class CountingFiles(Files):
    """Counts the files opened."""

    __slots__ = ("opened",)

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(
        self, path: Path, *, writable: bool = True, create: bool = False, exclusive: bool = False
    ) -> OpenFile:
        self.opened.append(path.name)
        return super().open(path, writable=writable, create=create, exclusive=exclusive)


def load(
    root: Path, files: Files | None = None, *, ok: bool = True, end: int | None = COVERED
) -> ConsumeQueues:
    queues = ConsumeQueues(files or Files(), root / "consumequeue", FILE_BYTES)
    queues.load(ok, log_end_phy_offset=end)
    return queues


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Stopped cleanly: 17 messages of which 6 are expired, 3, and none."""
    queues = load(tmp_path)
    append(queues.get("orders", 0), 17)
    append(queues.get("orders", 1), 3)
    queues.get("idle", 0)
    queues.flush_round(least_bytes=0, sync=True)
    queues.delete_expired(60)
    queues.save_snapshot(COVERED)
    queues.close()
    return tmp_path


def assert_whole(queues: ConsumeQueues) -> None:
    queue = queues.get("orders", 0)
    assert (queue.min_queue_offset, queue.max_queue_offset, queue.max_phy_offset) == (6, 17, 170)
    assert read_all(queue) == [message(number) for number in range(6, 17)]
    assert queues.get("orders", 1).max_queue_offset == 3
    assert queues.is_complete


def test_after_a_clean_stop_no_queue_file_is_opened(store: Path) -> None:
    files = CountingFiles()
    queues = load(store, files)
    assert files.opened == ["consumequeue.snapshot"]
    assert_whole(queues)
    append(queues.get("orders", 0), 3, first=17)
    queues.flush_round(least_bytes=0)
    assert load(store, end=None, ok=False).get("orders", 0).max_queue_offset == 20


def test_the_minimum_needs_no_read_either(store: Path) -> None:
    files = CountingFiles()
    queues = load(store, files)
    queues.correct_min(60)
    assert files.opened == ["consumequeue.snapshot"]


@pytest.mark.parametrize(("ok", "end"), [(False, COVERED), (True, COVERED + 1), (True, 0), (True, None)])
def test_it_is_not_believed_after_a_crash_or_for_another_log(store: Path, ok: bool, end: int | None) -> None:
    files = CountingFiles()
    queues = load(store, files, ok=ok, end=end)
    assert len(files.opened) > 1
    queues.correct_min(60)
    assert_whole(queues)


def test_a_snapshot_taken_while_units_were_in_memory_is_looked_after(tmp_path: Path) -> None:
    queues = load(tmp_path)
    append(queues.get("orders", 0), 4)
    queues.flush_round(least_bytes=0, sync=True)
    append(queues.get("orders", 0), 2, first=4)
    queues.save_snapshot(COVERED)
    again = load(tmp_path)
    assert read_all(again.get("orders", 0)) == [message(number) for number in range(4)]
    assert again.get("orders", 0).max_phy_offset == 40


@pytest.mark.parametrize("first", [0, 5, 1_000])
def test_a_queue_that_begins_while_the_snapshot_is_made_is_not_missed(tmp_path: Path, first: int) -> None:
    queues = load(tmp_path)
    append(queues.get("orders", 0), 3)
    queues.flush_round(least_bytes=0, sync=True)
    queues.get("new", 0).put(first, 600, 10, 0)
    queues.save_snapshot(COVERED)
    queues.close()
    after = load(tmp_path, ok=False)
    assert after.is_complete and after.topics() == ["orders"]


def test_a_damaged_snapshot_is_ignored(store: Path) -> None:
    path = store / "consumequeue.snapshot"
    raw = path.read_bytes()
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :])
        queues = load(store)
        queues.correct_min(60)
        assert_whole(queues)
    for length in (0, 3, len(raw) - 1):
        path.write_bytes(raw[:length])
        assert load(store).get("orders", 0).max_queue_offset == 17


@pytest.mark.parametrize("ok", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize(
    ("lost", "rebuild_from"),
    [
        ("orders/0", 0),
        ("orders", 0),
        (".", 0),
        ("orders/0/00000000000000000100", 0),
        ("orders/0/00000000000000000200", 100),
        ("orders/0/00000000000000000300", 150),
        ("orders/1/00000000000000000000", 0),
    ],
)
def test_lost_files_are_missed_and_rebuilt(store: Path, lost: str, rebuild_from: int, ok: bool) -> None:
    path = store / "consumequeue" / lost
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    queues = load(store, ok=ok)
    assert queues.rebuild_phy_offset == rebuild_from
    for number in range(rebuild_from // 10, 17):
        if number >= 6:
            queues.get("orders", 0).put(number, *message(number))
        if number < 3:
            queues.get("orders", 1).put(number, *message(number))
    queues.correct_min(60)
    assert read_all(queues.get("orders", 0)) == [message(number) for number in range(6, 17)]
    queues.flush_round(least_bytes=0)
    again = load(store, ok=False)
    again.correct_min(60)
    assert_whole(again)


def test_a_truncated_file_is_noticed_after_a_clean_stop_too(store: Path) -> None:
    path = queue_folder(store) / "00000000000000000300"
    path.write_bytes(path.read_bytes()[:25])
    queues = load(store)
    assert queues.get("orders", 0).max_queue_offset == 16
    assert queues.rebuild_phy_offset == 160


def test_nothing_deleted_on_purpose_is_missed(store: Path) -> None:
    queues = load(store)
    queues.delete_topic("orders")
    assert names(store / "consumequeue") == []
    assert load(store).is_complete


@pytest.mark.parametrize("how", ["truncate", "expire", "delete"])
def test_what_goes_on_purpose_is_not_missed(store: Path, how: str) -> None:
    queues = load(store)
    if how == "truncate":
        queues.truncate_all(100)
    elif how == "expire":
        assert queues.delete_expired(120) == 1
    else:
        queues.delete_queue("orders", 1)
    assert (store / "consumequeue.snapshot").exists() == (how != "truncate")
    assert load(store, ok=False).is_complete


def test_a_deletion_leaves_what_is_known_of_other_queues(store: Path) -> None:
    load(store).delete_queue("orders", 1)
    shutil.rmtree(queue_folder(store, "orders", 0))
    assert load(store, ok=False).rebuild_phy_offset == 0


def test_a_cut_behind_what_the_snapshot_covers_leaves_it_alone(store: Path) -> None:
    queues = load(store)
    queues.get("orders", 0).append(600, 10, 0)
    queues.flush_round(least_bytes=0)
    queues.truncate_all(COVERED)
    assert_whole(queues)
    assert_whole(load(store))


def test_names_that_are_no_utf8_come_back() -> None:
    state = QueueState(100, 140, 6, 60, 170, True)
    raw = encode_snapshot(100, 7, [("caf\udce9", 3, state), ("", 0, state)])
    snapshot = decode_snapshot(raw)
    assert snapshot is not None
    assert (snapshot.file_bytes, snapshot.covered_phy_offset) == (100, 7)
    assert snapshot.queues == {("caf\udce9", 3): state, ("", 0): state}


def test_the_owner_gets_its_turns_while_many_queues_are_noted(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queues, "_LOOKS_AT_ONCE", 2)
    queues = load(store)
    steps = list(queues.snapshot_steps(COVERED))
    assert len(steps) == 2  # 3 queues: a pause behind two, then the file
    for step in steps:
        step()
    assert_whole(load(store))
