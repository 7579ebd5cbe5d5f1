"""Log files that are removed, moved, replaced or cut short while the store is open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kourou.errors import DamageError, StorageError, StoreFencedError, StoreLockedError
from kourou.store.disk.files import Files
from kourou.store.disk.store_lock import StoreLock
from kourou.store.log.log_snapshot import LogSnapshot
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.store.message_store import MessageStore
from kourou.store.read.get_message_result import GetMessageStatus
from kourou.store.retention import Retention, RetentionConfig
from kourou.store.settings import FlushDiskType
from kourou.store.steps import no_steps, run_steps
from tests.unit.store.message_stores import LOG_FILE_BYTES, StoreKit

TOPIC = "orders"
BODY = bytes(200)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    kit = StoreKit(tmp_path / "store", Files())
    yield kit
    for store in kit.stores:
        store.abandon()


def put(store: MessageStore, count: int = 1) -> list[PutStatus]:
    return [store.put_message(TOPIC, 0, BODY).status for _ in range(count)]


def look(store: MessageStore) -> None:
    run_steps(store.watch.look_steps())


def reason(store: MessageStore) -> str:
    assert isinstance(store.appender.refusal, StoreFencedError)
    return store.appender.refusal.reason


def first_log(kit: StoreKit) -> Path:
    return kit.root / "commitlog" / "0".zfill(20)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- removed and moved -------------------------------------------------------------------------------


def test_under_sync_flush_a_removed_commitlog_acknowledges_nothing(kit: StoreKit) -> None:
    store = kit.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    assert put(store, 3) == [PutStatus.PUT_OK] * 3
    shutil.rmtree(kit.root / "commitlog")
    assert put(store) == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert "was removed while it was in use" in reason(store)
    with pytest.raises(PutRefusedError, match="was removed while it was in use"):
        put(store)


def test_under_sync_flush_a_log_file_cut_short_acknowledges_nothing(kit: StoreKit) -> None:
    store = kit.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    put(store, 3)
    os.truncate(first_log(kit), 100)
    assert put(store) == [PutStatus.SERVICE_NOT_AVAILABLE]
    assert "was cut short while it was in use" in reason(store)


def test_a_flush_of_a_removed_file_moves_no_mark(kit: StoreKit) -> None:
    store = kit.open()
    put(store)
    store.flush()
    durable = store.log.flushed_phy_offset
    put(store)
    first_log(kit).unlink()
    store.flush()
    assert store.appender.is_fenced
    assert store.log.flushed_phy_offset == durable


def test_on_a_file_system_that_counts_no_links_nothing_is_taken_for_removed(
    kit: StoreKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kourou.store.disk.files import OpenFile

    status = OpenFile.status
    monkeypatch.setattr(OpenFile, "status", lambda file: status(file)._replace(links=0))
    store = kit.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    assert put(store, 2) == [PutStatus.PUT_OK] * 2


def move_away(root: Path) -> None:
    root.rename(root.with_name("elsewhere"))


def replace_by_another(root: Path) -> None:
    move_away(root)
    shutil.copytree(root.with_name("elsewhere"), root)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (move_away, "store was moved or removed while the broker was running"),
        (shutil.rmtree, "store was moved or removed while the broker was running"),
        (replace_by_another, "store was replaced by another folder"),
        (lambda root: shutil.rmtree(root / "commitlog"), "was removed while it was in use"),
        (lambda root: move_away(root / "commitlog"), "was moved or removed while it was in use"),
        (lambda root: replace_by_another(root / "commitlog"), "was replaced by another file"),
    ],
)
def test_a_look_fences_a_store_whose_log_is_no_longer_there(
    kit: StoreKit, damage: Callable[[Path], None], words: str
) -> None:
    store = kit.open()
    put(store, 3)
    look(store)
    assert not store.appender.is_fenced
    damage(kit.root)
    look(store)
    assert words in reason(store)
    assert "before the broker is restarted" in str(store.appender.refusal)
    assert "check the disk" not in str(store.appender.refusal)
    found = store.get_message(TOPIC, 0, 0)
    assert (found.status, found.message_count) == (GetMessageStatus.FOUND, 3)
    store.close()


@pytest.mark.parametrize("damage", [move_away, shutil.rmtree, replace_by_another])
def test_in_the_place_of_a_displaced_store_nothing_is_written(
    kit: StoreKit, damage: Callable[[Path], None]
) -> None:
    store = kit.open()
    put(store, 3)
    damage(kit.root)
    before = contents(kit.root)
    store.close()
    assert contents(kit.root) == before
    assert kit.root.exists() == bool(before)
    elsewhere = kit.root.with_name("elsewhere")
    assert not elsewhere.exists() or (elsewhere / "abort").exists(), "it was not closed cleanly"


def test_units_of_a_displaced_store_are_not_read_from_other_files(kit: StoreKit) -> None:
    store = kit.open()
    put(store, 3)
    store.flush_derived(thorough=True)
    move_away(kit.root)
    look(store)
    with pytest.raises(StorageError, match="was moved or removed while the broker was running; put .* back"):
        store.get_message(TOPIC, 0, 0)


def test_without_its_commitlog_a_store_is_closed_without_an_error_and_not_clean(kit: StoreKit) -> None:
    store = kit.open()
    put(store, 30)
    store.log.prepare_next()
    shutil.rmtree(kit.root / "commitlog")
    store.close()
    assert (kit.root / "abort").exists()
    assert not (kit.root / "commitlog").exists()


def test_a_removed_commitlog_folder_is_not_made_anew_for_the_next_file(kit: StoreKit) -> None:
    store = kit.open()
    put(store)
    shutil.rmtree(kit.root / "commitlog")
    statuses = put(store, 2 * LOG_FILE_BYTES // len(BODY))
    assert statuses[-1] is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert not (kit.root / "commitlog").exists()


def test_a_file_that_was_rolled_since_the_last_look_counts(kit: StoreKit) -> None:
    store = kit.open()
    put(store)
    look(store)
    first_log(kit).rename(kit.root / "moved")
    put(store, LOG_FILE_BYTES // len(BODY))
    assert len(store.log.log_files) > 1
    look(store)
    assert "was moved or removed while it was in use" in reason(store)


def test_an_old_file_that_was_removed_is_reported_once_and_new_messages_are_taken(
    kit: StoreKit, caplog: pytest.LogCaptureFixture
) -> None:
    store = kit.open()
    put(store, 2 * LOG_FILE_BYTES // len(BODY))
    look(store)
    first_log(kit).unlink()
    look(store)
    look(store)
    assert [record.message for record in caplog.records if "can be read until" in record.message] == [
        f"{first_log(kit)} was removed while it was in use; its messages can be read until the broker stops"
    ]
    assert put(store) == [PutStatus.PUT_OK]


def test_a_file_that_was_removed_by_another_process_does_not_stop_retention(kit: StoreKit) -> None:
    store = kit.open()
    put(store, 3 * LOG_FILE_BYTES // len(BODY))
    store.flush()
    look(store)
    first_log(kit).unlink()
    retention = Retention(store, kit.files, RetentionConfig(), lambda: no_steps(None))
    retention.run(kit.clock(), manual=True)
    assert store.log.min_phy_offset == LOG_FILE_BYTES


def test_a_file_that_is_being_deleted_here_is_not_missed(kit: StoreKit) -> None:
    store = kit.open()
    put(store, 2 * LOG_FILE_BYTES // len(BODY))
    store.flush()
    looking = store.watch.look_steps()
    first_look = next(looking)
    deleting = store.log.delete_first_steps()
    next(deleting)()
    first_look()
    with pytest.raises(StopIteration):
        next(looking)
    assert not store.appender.is_fenced
    run_steps(deleting)


def test_a_file_that_is_deleted_while_it_is_verified_can_be_read_to_the_end(kit: StoreKit) -> None:
    store = kit.open()
    while len(store.log.log_files) < 3:
        put(store)
    store.log.log_files[0].mapped()
    with closing(LogSnapshot(kit.files, store.log)) as snapshot:
        begin = snapshot.read(0, 100)
        store.log.delete_first()
        view = snapshot.view(0, 100)
        assert view is not None and bytes(view) == begin


def test_a_fenced_store_deletes_nothing(kit: StoreKit) -> None:
    store = kit.open()
    put(store, 2 * LOG_FILE_BYTES // len(BODY))
    store.flush()
    kit.clock.advance(10**12)
    os.truncate(first_log(kit), 0)
    Retention(store, kit.files, RetentionConfig(), lambda: no_steps(None)).run(kit.clock(), manual=True)
    assert store.appender.is_fenced
    assert store.log.min_phy_offset == 0


# -- cut short ---------------------------------------------------------------------------------------


def test_a_file_cut_short_is_not_read_through_its_map(kit: StoreKit) -> None:
    store = kit.open()
    put(store, 3)
    assert store.log.window_at(0) is not None and store.log.region_at(0) is not None
    os.truncate(first_log(kit), 0)
    assert store.log.window_at(0) is None
    assert store.log.region_at(0) is None
    assert store.log.read_nowait(0, 10) is None


def test_what_a_file_cut_short_still_has_is_read_and_the_rest_is_damaged(kit: StoreKit) -> None:
    store = kit.open()
    results = [store.put_message(TOPIC, 0, BODY) for _ in range(3)]
    os.truncate(first_log(kit), results[2].phy_offset + 10)
    assert store.get_message(TOPIC, 0, 0, 2).message_count == 2
    with pytest.raises(DamageError, match="cut short while it was in use"):
        store.get_message(TOPIC, 0, 2)


def test_zeros_where_a_file_cut_short_has_grown_again_are_no_messages(kit: StoreKit) -> None:
    store = kit.open()
    put(store, 3)
    os.truncate(first_log(kit), 0)
    assert put(store) == [PutStatus.PUT_OK], "nothing has looked yet"
    with pytest.raises(DamageError, match="cut short while it was in use"):
        store.get_message(TOPIC, 0, 0)
    assert store.get_message(TOPIC, 0, 3).message_count == 1


# -- lock and derived files --------------------------------------------------------------------------


def test_a_removed_lock_is_taken_again(kit: StoreKit) -> None:
    store = kit.open()
    (kit.root / "lock").unlink()
    look(store)
    assert put(store) == [PutStatus.PUT_OK]
    with pytest.raises(StoreLockedError):
        StoreLock.acquire(Files(), kit.root)


def test_a_store_whose_removed_lock_another_broker_took_is_fenced(kit: StoreKit) -> None:
    store = kit.open()
    put(store)
    (kit.root / "lock").unlink()
    with StoreLock.acquire(Files(), kit.root):
        look(store)
    assert "another broker may write there" in reason(store)
    assert "stop the other broker" in str(store.appender.refusal)


def test_removed_consume_queues_fence_nothing(kit: StoreKit) -> None:
    store = kit.open()
    put(store, 3)
    store.flush_derived(thorough=True)
    shutil.rmtree(kit.root / "consumequeue")
    look(store)
    assert put(store) == [PutStatus.PUT_OK]
    store.flush_derived(thorough=True)
    assert not store.appender.is_fenced


def test_a_removed_abort_file_does_not_keep_a_store_from_closing(kit: StoreKit) -> None:
    store = kit.open()
    (kit.root / "abort").unlink()
    store.close()


def test_units_of_an_earlier_life_are_not_blanked_when_their_log_is_moved_away(kit: StoreKit) -> None:
    store = kit.open()
    put(store, 3)
    store = kit.reopen(store)
    move_away(kit.root / "commitlog")
    with pytest.raises(StorageError, match="was moved or removed while it was in use"):
        store.get_message(TOPIC, 0, 0)
    (kit.root / "elsewhere").rename(kit.root / "commitlog")
    assert store.get_message(TOPIC, 0, 0).message_count == 3
