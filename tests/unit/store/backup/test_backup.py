"""Backups of a store that is open, and what a store that is made of them holds."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.errors import StorageError, StoreFormatError
from kourou.store.backup.backup import BackupOptions, back_up
from kourou.store.backup.log_copy import CopiedLog
from kourou.store.backup.manifest import Manifest
from kourou.store.backup.restore import restore
from kourou.store.check.compare import compare_stores
from kourou.store.disk.files import Files, OpenFile
from kourou.store.message_store import MessageStore
from kourou.store.queue.queue_view import QueueView
from kourou.store.recovery.checkpoint import StoreCheckpoint
from kourou.store.steps import run_steps
from kourou.store.store_layout import find_layout
from kourou.testing.store_check import assert_store_ok
from tests.golden.stores import extract_store
from tests.unit.store.message_stores import LOG_FILE_BYTES, NOW_MS, StoreKit, bodies, listing, put

NO_OPTIONS = BackupOptions()


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store", Files()) as kit:
        yield kit


def run_backup(
    root: Path, target: Path, options: BackupOptions = NO_OPTIONS, files: Files | None = None
) -> tuple[Manifest, CopiedLog]:
    return back_up(files or Files(), root, target, options, lambda: NOW_MS, lambda _: None)


def fill(store: MessageStore, count: int, first: int = 0, topic: str = "orders") -> list[bytes]:
    made = [f"{topic} {number}".encode().ljust(100, b".") for number in range(first, first + count)]
    for number, body in enumerate(made):
        put(store, body, topic, number % 2)
    return made


def restored(tmp_path: Path, backup: Path, name: str = "restored", **settings: object) -> StoreKit:
    restore(Files(), backup, tmp_path / name)
    assert_store_ok(tmp_path / name)
    return StoreKit(tmp_path / name, Files(), **settings)


def all_bodies(store: MessageStore) -> list[bytes]:
    queues = [
        (topic, queue_id) for topic in store.queues.topics() for queue_id in store.queues.queue_ids(topic)
    ]
    return sorted(body for queue in queues for body in bodies(store, *queue))


def test_a_store_in_use_is_copied_with_what_is_not_flushed(
    kit: StoreKit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = kit.open()
    durable = fill(store, 60)
    store.flush()
    store.flush_derived(thorough=True)
    unflushed = fill(store, 40, 60)
    manifest, _ = run_backup(kit.root, tmp_path / "backup")
    assert (manifest.min_phy_offset, manifest.end_phy_offset) == (0, store.log.max_phy_offset)
    with restored(tmp_path, tmp_path / "backup") as copy:
        opened = copy.open()
        assert all_bodies(opened) == sorted(durable + unflushed)
        assert opened.report.truncated_at is None and not opened.report.damages
        assert opened.report.start_phy_offset > 0, "the queues were copied, not rebuilt"
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
        put(opened, b"goes on")
    assert compare_stores(Files(), kit.root, tmp_path / "backup" / "store").is_equal


def test_a_queue_that_begins_while_the_queues_are_flushed(
    kit: StoreKit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = kit.open()
    made = fill(store, 60)
    store.flush()
    for number, step in enumerate(store.derived_steps(thorough=True)):
        step()
        made += fill(store, 4, topic=f"after-step-{number}")
    run_backup(kit.root, tmp_path / "backup")
    with restored(tmp_path, tmp_path / "backup") as copy:
        opened = copy.open()
        assert all_bodies(opened) == sorted(made)
        assert opened.report.start_phy_offset > 0, "the queues were copied, not rebuilt"
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_nothing_in_the_store_is_changed(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    fill(store, 60)
    store.flush_derived(thorough=True)
    before = listing(kit.root)
    run_backup(kit.root, tmp_path / "backup")
    assert listing(kit.root) == before


def test_only_full_durable_files_of_the_log_are_linked(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    fill(store, 60)
    store.flush()
    durable = store.log.max_phy_offset
    fill(store, 60, 60)  # rolls to files that no sync has covered
    manifest, counts = run_backup(kit.root, tmp_path / "backup")
    final = [file.path for file in manifest.files if file.is_final]
    assert final == [
        f"commitlog/{start:020d}" for start in range(0, durable - LOG_FILE_BYTES + 1, LOG_FILE_BYTES)
    ]
    assert counts.linked == len(final) > 0 and counts.copied >= 2
    linked = {
        str(path.relative_to(tmp_path / "backup" / "store"))
        for path in (tmp_path / "backup" / "store").rglob("*")
        if path.is_file() and path.stat().st_nlink > 1
    }
    assert linked == set(final)


def test_copies_share_no_file_and_keep_the_time_that_retention_reads(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    fill(store, 60)
    store.flush()
    first = "commitlog/00000000000000000000"
    os.utime(kit.root / first, (1_000_000, 1_000_000))
    _, counts = run_backup(kit.root, tmp_path / "backup", BackupOptions(copies_only=True))
    restore(Files(), tmp_path / "backup", tmp_path / "restored", copies_only=True)
    assert counts.linked == 0
    for folder in (tmp_path / "backup" / "store", tmp_path / "restored"):
        assert (folder / first).stat().st_nlink == 1
        assert (folder / first).stat().st_mtime == 1_000_000


class NoLinks(Files):
    """Two file systems: no file of the store can be linked."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def link(self, source: Path, target: Path) -> None:
        if self._root in source.parents:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        super().link(source, target)


def test_a_second_backup_on_another_file_system_links_to_the_first(kit: StoreKit, tmp_path: Path) -> None:
    files = NoLinks(kit.root)
    store = kit.open()
    fill(store, 60)
    store.flush()
    first, counts = run_backup(kit.root, tmp_path / "first", files=files)
    assert counts.linked == 0
    made = fill(store, 60, 60)
    store.flush()
    second, counts = run_backup(
        kit.root, tmp_path / "second", BackupOptions(base=tmp_path / "first"), files=files
    )
    final = [file for file in first.files if file.is_final]
    assert counts.linked == len(final) > 0
    assert [file for file in second.files if file in final] == final, "and their CRCs are taken over"
    with restored(tmp_path, tmp_path / "second") as copy:
        assert set(made) < set(all_bodies(copy.open()))


def test_a_file_that_has_changed_since_is_not_taken_from_the_base(kit: StoreKit, tmp_path: Path) -> None:
    files = NoLinks(kit.root)
    store = kit.open()
    fill(store, 60)
    store.flush()
    run_backup(kit.root, tmp_path / "first", files=files)
    os.utime(kit.root / "commitlog/00000000000000000000", (1_000_000, 1_000_000))
    _, counts = run_backup(kit.root, tmp_path / "second", BackupOptions(base=tmp_path / "first"), files=files)
    _, again = run_backup(kit.root, tmp_path / "third", BackupOptions(base=tmp_path / "second"), files=files)
    assert again.linked == counts.linked + 1


def test_queues_without_messages_keep_their_next_offset(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    fill(store, 10, topic="seldom")
    fill(store, 120)
    store.flush()
    store.flush_derived(thorough=True)
    while len(store.log.log_files) > 2:
        store.log.delete_first()
    store.queues.correct_min(store.log.min_phy_offset)
    store.flush_derived(thorough=True)
    run_backup(kit.root, tmp_path / "backup")
    with restored(tmp_path, tmp_path / "backup") as copy:
        opened = copy.open()
        assert (opened.min_offset_in_queue("seldom", 0), opened.max_offset_in_queue("seldom", 0)) == (5, 5)
        assert opened.min_offset_in_queue("orders", 0) == store.min_offset_in_queue("orders", 0) > 0


def test_units_behind_the_snapshot_are_not_copied(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    fill(store, 8)
    store.flush_derived(thorough=True)
    made = fill(store, 8, 8)
    store.queues.flush_round(least_bytes=0, sync=False)  # they may be torn while they are written
    run_backup(kit.root, tmp_path / "backup")
    layout = find_layout(Files(), tmp_path / "backup" / "store")
    ends = [
        QueueView(Files(), folder, layout.queue_file_bytes or 1).end_queue_offset
        for folder in layout.queues.values()
    ]
    assert ends == [4, 4]
    with restored(tmp_path, tmp_path / "backup") as copy:
        assert set(made) < set(all_bodies(copy.open()))


def test_a_deleted_topic_does_not_come_back(kit: StoreKit, tmp_path: Path) -> None:
    kit.deleted_topics = {"gone"}
    store = kit.open()
    fill(store, 10, topic="gone")
    kept = fill(store, 20)
    store.delete_topic("gone")
    run_backup(kit.root, tmp_path / "backup")
    restore(Files(), tmp_path / "backup", tmp_path / "restored")
    with StoreKit(tmp_path / "restored", Files()) as copy:
        copy.deleted_topics = {"gone"}
        assert all_bodies(copy.open()) == sorted(kept)


class Deleting(Files):
    """A broker that deletes the first file of the log while it is copied, and a queue's first file before."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.deletions = 0

    def link(self, source: Path, target: Path) -> None:
        if source.name == f"{2 * LOG_FILE_BYTES:020d}" and not self.deletions:
            self._delete()
        super().link(source, target)

    def _delete(self) -> None:
        self.deletions += 3
        for _ in range(3):
            self._store.log.delete_first()


def test_files_that_are_deleted_meanwhile_move_the_start_of_the_log(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    fill(store, 150)
    store.flush()
    store.flush_derived(thorough=True)
    manifest, _ = run_backup(kit.root, tmp_path / "backup", files=Deleting(store))
    assert manifest.min_phy_offset == store.log.min_phy_offset == 3 * LOG_FILE_BYTES
    assert min(file.path for file in manifest.files if file.path.startswith("commitlog/")) == (
        f"commitlog/{3 * LOG_FILE_BYTES:020d}"
    )
    with restored(tmp_path, tmp_path / "backup") as copy:
        assert copy.open().log.min_phy_offset == 3 * LOG_FILE_BYTES


def test_queue_files_that_are_deleted_meanwhile_start_the_copy_over(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    made = fill(store, 150)
    store.flush()
    store.flush_derived(thorough=True)

    class DeletingQueues(Files):
        attempts = 0

        def read(self, path: Path) -> bytes:
            raw = super().read(path)
            if path == kit.root / "consumequeue.snapshot":
                DeletingQueues.attempts += 1
                if DeletingQueues.attempts == 1:
                    store.log.delete_first()
                    store.log.delete_first()
                    store.queues.correct_min(store.log.min_phy_offset)
                    run_steps(store.queues.remove_first_steps(store.queues.expired_files()))
                    store.flush_derived(thorough=True)
            return raw

    run_backup(kit.root, tmp_path / "backup", files=DeletingQueues())
    assert DeletingQueues.attempts == 2
    with restored(tmp_path, tmp_path / "backup") as copy:
        assert set(all_bodies(copy.open())) < set(made)


def test_the_copy_fails_when_files_vanish_all_the_time(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    fill(store, 20)
    store.flush_derived(thorough=True)

    class Vanishing(Files):
        def link(self, source: Path, target: Path) -> None: ...

        def open(self, path: Path, **how: bool) -> OpenFile:
            if path.parent == kit.root / "index":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            return super().open(path, **how)

    (kit.root / "index").mkdir(exist_ok=True)
    (kit.root / "index" / "20231114221320000").touch()
    with pytest.raises(StorageError, match="removed while the store was copied, 20 times"):
        run_backup(kit.root, tmp_path / "backup", files=Vanishing())
    assert os.listdir(tmp_path / "backup") == []


def test_topics_that_are_made_meanwhile_are_in_the_backup(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    fill(store, 60)
    store.flush()
    (kit.root / "config").mkdir()
    (kit.root / "config" / "topics.json").write_text("{}")
    (kit.root / "config" / "consumerOffset.json").write_text("{}")

    class Growing(Files):
        def link(self, source: Path, target: Path) -> None:
            (kit.root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
            (kit.root / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
            super().link(source, target)

    run_backup(kit.root, tmp_path / "backup", files=Growing())
    config = tmp_path / "backup" / "store" / "config"
    assert (config / "topics.json").read_text() == '{"topicConfigTable":{}}'
    assert (config / "consumerOffset.json").read_text() == "{}", "not ahead of the log"


def test_between_two_renames_only_the_bak_is_there(kit: StoreKit, tmp_path: Path) -> None:
    kit.open()
    (kit.root / "config").mkdir()
    for name in ("consumerOffset.json.bak", "consumerOffset.json.tmp"):
        (kit.root / "config" / name).write_text("{}")
    manifest, _ = run_backup(kit.root, tmp_path / "backup")
    names = [file.path for file in manifest.files if file.path.startswith("config/")]
    assert names == ["config/consumerOffset.json.bak"]


def test_what_is_not_copied_is_named(kit: StoreKit, tmp_path: Path) -> None:
    kit.open()
    (kit.root / "rocksdbstore").mkdir()
    (kit.root / "config" / "inner").mkdir(parents=True)
    manifest, _ = run_backup(kit.root, tmp_path / "backup")
    assert manifest.left_out == ["config/inner", "rocksdbstore"]


def test_the_end_of_the_copied_log_counts_as_durable(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    fill(store, 20)
    store.flush()
    fill(store, 20, 20)
    manifest, _ = run_backup(kit.root, tmp_path / "backup")
    checkpoint = StoreCheckpoint(Files(), tmp_path / "backup" / "store" / "checkpoint")
    checkpoint.load()
    assert checkpoint.is_ours and checkpoint.durable_phy_offset == manifest.end_phy_offset


def test_a_torn_record_at_the_end_is_not_copied(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    made = fill(store, 10)
    end = store.log.max_phy_offset
    store.log.write(end, b"\0\0\0\xc8\xda\xa3\x20\xa7 half a record")
    manifest, _ = run_backup(kit.root, tmp_path / "backup")
    assert manifest.end_phy_offset == end
    with restored(tmp_path, tmp_path / "backup") as copy:
        opened = copy.open()
        assert all_bodies(opened) == sorted(made) and opened.report.truncated_at is None
    store.log.undo(end, end + 100)


def test_a_tail_that_is_cut_off_while_it_is_copied_is_noticed(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    fill(store, 10)
    kept = store.log.max_phy_offset
    fill(store, 5, 10)

    class Cutting(Files):
        """A broker that is killed and started again: its recovery ends the log earlier."""

        def open(self, path: Path, **how: bool) -> OpenFile:
            if path == tmp_path / "backup" / "store" / "commitlog" / f"{0:020d}":
                store.log.undo(kept, store.log.max_phy_offset)
            return super().open(path, **how)

    with pytest.raises(
        StorageError, match=f"was cut to {kept} while it was copied: the broker was restarted"
    ):
        run_backup(kit.root, tmp_path / "backup", files=Cutting())
    assert os.listdir(tmp_path / "backup") == []
    kit.is_checked = False


def test_a_closed_store_stays_closed(kit: StoreKit, tmp_path: Path) -> None:
    store = kit.open()
    made = fill(store, 30)
    store.close()
    run_backup(kit.root, tmp_path / "backup")
    with restored(tmp_path, tmp_path / "backup") as copy:
        opened = copy.open()
        assert opened.report.clean_exit and opened.report.records == 0
        assert all_bodies(opened) == sorted(made)


def test_a_store_in_use_whose_abort_is_elsewhere_is_not_taken_for_closed(
    kit: StoreKit, tmp_path: Path
) -> None:
    kit.is_checked = False  # without its `abort` it looks closed
    store = kit.open(abort_path=tmp_path / "abort")
    made = fill(store, 30)
    run_backup(kit.root, tmp_path / "backup")
    with restored(tmp_path, tmp_path / "backup") as copy:
        opened = copy.open()
        assert not opened.report.clean_exit and all_bodies(opened) == sorted(made)


def test_a_store_whose_queues_are_elsewhere_is_refused(tmp_path: Path) -> None:
    kit = StoreKit(tmp_path / "store", Files(), consume_queue_folder=tmp_path / "queues")
    store = kit.open()
    fill(store, 10)
    store.flush()
    store.flush_derived(thorough=True)
    with pytest.raises(StoreFormatError, match="consumequeue: the ConsumeQueues are missing, or elsewhere"):
        run_backup(kit.root, tmp_path / "backup")
    assert os.listdir(tmp_path / "backup") == []
    kit.close()


def test_an_empty_store(kit: StoreKit, tmp_path: Path) -> None:
    kit.open()
    manifest, _ = run_backup(kit.root, tmp_path / "backup")
    assert manifest.end_phy_offset == 0
    with restored(tmp_path, tmp_path / "backup") as copy:
        put(copy.open(), b"first")


@pytest.mark.parametrize("version", ["4.9.7", "4.9.7-crash"])
def test_a_store_of_apache_is_copied_and_never_linked(version: str, tmp_path: Path) -> None:
    root = extract_store(version, tmp_path)
    manifest, counts = run_backup(root, tmp_path / "backup")
    assert counts.linked == 0
    restore(Files(), tmp_path / "backup", tmp_path / "restored")
    report = assert_store_ok(tmp_path / "restored")
    assert report.log_end_phy_offset == manifest.end_phy_offset
    assert compare_stores(Files(), root, tmp_path / "restored").is_equal


# -- bad targets -----------------------------------------------------------------------------------


def test_targets_that_are_refused(kit: StoreKit, tmp_path: Path) -> None:
    kit.open()
    full, remains, file = tmp_path / "full", tmp_path / "remains", tmp_path / "file"
    full.mkdir()
    (full / "photos").touch()
    (remains / "store").mkdir(parents=True)
    file.touch()
    for target, reason in (
        (full, "not empty: it has photos"),
        (remains, "not empty: remains of an interrupted backup"),
        (file, "it is a file"),
        (kit.root, "it is part of the store"),
        (kit.root / "config" / "backup", "it is part of the store"),
    ):
        with pytest.raises(StoreFormatError, match=reason):
            run_backup(kit.root, target)
    with pytest.raises(StoreFormatError, match="there is no such folder"):
        run_backup(tmp_path / "nothing", tmp_path / "target")
    with pytest.raises(StoreFormatError, match="not a backup: it has no backup.json"):
        run_backup(kit.root, tmp_path / "target", BackupOptions(base=kit.root))
    assert not (tmp_path / "target").exists()
