"""All ConsumeQueues of a store: which there are, flush rounds, deleting."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from kourou.errors import StoreFormatError
from kourou.store.disk.files import Files
from kourou.store.queue import consume_queues
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.testing.faulty_files import FaultyFiles
from tests.unit.store.consume_queue_kit import (
    append,
    message,
    names,
    open_queues,
    queue_folder,
    read_all,
)


@pytest.fixture
def queues(tmp_path: Path) -> ConsumeQueues:
    return open_queues(tmp_path)


# -- which there are -----------------------------------------------------------------------------


def test_a_queue_is_made_once(queues: ConsumeQueues) -> None:
    assert queues.find("orders", 3) is None
    queue = queues.get("orders", 3)
    assert queues.get("orders", 3) is queue
    assert queues.find("orders", 3) is queue
    assert (queue.topic, queue.queue_id) == ("orders", 3)
    queues.get("orders", 1)
    queues.get("payments", 0)
    assert queues.topics() == ["orders", "payments"]
    assert queues.queue_ids("orders") == [1, 3]
    assert queues.queue_ids("nothing") == []
    assert [(queue.topic, queue.queue_id) for queue in queues.items()] == [
        ("orders", 3),
        ("orders", 1),
        ("payments", 0),
    ]
    assert len(queues) == 3
    assert queues.max_phy_offset() == -1


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "/etc", "../x", "a\0b"])
def test_a_topic_that_would_leave_the_folder_is_refused(queues: ConsumeQueues, topic: str) -> None:
    with pytest.raises(StoreFormatError, match="there can be no queue"):
        queues.get(topic, 0)
    with pytest.raises(StoreFormatError):
        queues.get("orders", -1)
    assert len(queues) == 0


def test_a_missing_folder_is_an_empty_store(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    assert len(queues) == 0
    assert queues.is_complete
    assert names(tmp_path) == []


def test_odd_topic_names_come_back(tmp_path: Path) -> None:
    topics = ["%RETRY%group", "Odd%Topic|x_1-A", "T" * 255, "queue of ünicode", " "]
    queues = open_queues(tmp_path)
    for number, topic in enumerate(topics):
        append(queues.get(topic, number), 1)
    queues.flush_round(least_bytes=0)
    assert sorted(open_queues(tmp_path).topics()) == sorted(topics)


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    append(queues.get("orders", 0), 3)
    queues.flush_round(least_bytes=0)
    root = tmp_path / "consumequeue"
    foreign = [
        root / "README",
        root / "orders" / "notes",
        root / "orders" / "01",
        root / "orders" / "0" / "x",
    ]
    for path in foreign:
        path.write_text("mine")
    queues = open_queues(tmp_path)
    assert [(queue.topic, queue.queue_id) for queue in queues.items()] == [("orders", 0)]
    assert all(path.read_text() == "mine" for path in foreign)


def test_a_file_where_a_queues_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "orders").mkdir(parents=True)
    (tmp_path / "consumequeue" / "orders" / "0").write_text("")
    with pytest.raises(StoreFormatError, match=r"orders/0: it should be a folder"):
        open_queues(tmp_path)


# -- flush rounds --------------------------------------------------------------------------------


def test_a_round_writes_every_queue_with_enough_units(tmp_path: Path) -> None:
    queues = ConsumeQueues(Files(), tmp_path / "consumequeue", 6_000_000)
    append(queues.get("full", 0), 300)
    append(queues.get("some", 0), 10)
    done = queues.flush_round(least_bytes=4096)
    assert (done.queue_count, done.unit_count, done.is_complete) == (1, 300, True)
    assert queues.unflushed_queues == 1
    assert names(tmp_path / "consumequeue") == ["full"]
    done = queues.flush_round(least_bytes=0)
    assert (done.queue_count, done.unit_count) == (1, 10)
    assert queues.unflushed_queues == 0
    assert queues.flush_round(least_bytes=0).queue_count == 0


def test_a_round_in_batches_writes_in_another_thread(queues: ConsumeQueues, tmp_path: Path) -> None:
    for number in range(10):
        append(queues.get("orders", number), 3)
    flush_round = queues.begin_round(least_bytes=0)
    batches = 0
    while (batch := flush_round.next_batch(max_queues=4)) is not None:
        writer = threading.Thread(target=batch.write)
        writer.start()
        append(queues.get("orders", 0), 1, first=3 + batches)
        writer.join()
        assert not flush_round.is_complete
        flush_round.finish(batch)
        batches += 1
    flush_round.sync()
    assert (batches, flush_round.queue_count, flush_round.unit_count) == (3, 10, 30)
    assert flush_round.is_complete
    assert read_all(queues.get("orders", 0)) == [message(number) for number in range(6)]
    assert queues.unflushed_queues == 1
    queues.flush_round(least_bytes=0)
    again = open_queues(tmp_path)
    assert read_all(again.get("orders", 0)) == [message(number) for number in range(6)]
    assert [again.get("orders", number).max_queue_offset for number in range(1, 10)] == [3] * 9


def test_a_queue_is_written_once_in_a_round_whatever_happened_before(queues: ConsumeQueues) -> None:
    queue = queues.get("orders", 0)
    append(queue, 2)
    queue.flush()
    append(queue, 2, first=2)
    done = queues.flush_round(least_bytes=0)
    assert (done.queue_count, done.unit_count) == (1, 2)
    assert queues.unflushed_queues == 0


def test_a_failed_round_keeps_what_it_could_not_write(tmp_path: Path) -> None:
    files = FaultyFiles()
    queues = open_queues(tmp_path, files)
    for number in range(6):
        append(queues.get("orders", number), 2)
    files.fail("pwrite", nth=3, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        queues.flush_round(least_bytes=0)
    assert queues.unflushed_queues == 4
    assert all(read_all(queue) == [message(0), message(1)] for queue in queues.items())
    assert queues.flush_round(least_bytes=0).queue_count == 4
    again = open_queues(tmp_path)
    assert all(read_all(again.get("orders", number)) == [message(0), message(1)] for number in range(6))


def test_after_a_failed_sync_no_other_succeeds(tmp_path: Path) -> None:
    files = FaultyFiles()
    queues = open_queues(tmp_path, files)
    append(queues.get("orders", 0), 2)
    files.fail("sync")
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            queues.flush_round(least_bytes=0, sync=True)
    assert read_all(queues.get("orders", 0)) == [message(0), message(1)]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_round_has_synced_survives_a_power_loss(tmp_path: Path, seed: int) -> None:
    files = FaultyFiles()
    queues = open_queues(tmp_path, files)
    for number in range(4):
        append(queues.get("orders", number), 7)
    queues.flush_round(least_bytes=0, sync=True)
    for number in range(4):
        append(queues.get("orders", number), 6, first=7)
    append(queues.get("later", 0), 2)
    queues.flush_round(least_bytes=0)
    files.crash(seed)
    again = open_queues(tmp_path, files)
    for number in range(4):
        found = read_all(again.get("orders", number))
        assert 7 <= len(found) <= 13
        assert found == [message(n) for n in range(len(found))]
    # Whatever is missing comes from the log, and then all is in order.
    for number in range(4):
        for n in range(13):
            again.get("orders", number).put(n, *message(n))
    again.flush_round(least_bytes=0, sync=True)
    last = open_queues(tmp_path, files)
    assert last.is_complete
    assert all(read_all(last.get("orders", n)) == [message(m) for m in range(13)] for n in range(4))


@pytest.mark.parametrize("seed", range(20))
def test_units_that_were_not_synced_are_dropped_and_dispatched_again(tmp_path: Path, seed: int) -> None:
    # A unit torn between two sectors may look whole and have another tags code: after a crash
    # nothing above what was synced can be believed.
    files = FaultyFiles()
    root = tmp_path / "consumequeue"
    queues = ConsumeQueues(files, root, 6_000)
    append(queues.get("orders", 0), 290)
    queues.flush_round(least_bytes=0, sync=True)
    append(queues.get("orders", 0), 400, first=290)
    queues.flush_round(least_bytes=0)
    files.crash(seed)
    again = ConsumeQueues(files, root, 6_000)
    again.load()
    again.truncate_all(2_900)
    queue = again.get("orders", 0)
    assert queue.max_queue_offset == 290
    for number in range(290, 690):
        assert queue.put(number, *message(number))
    again.flush_round(least_bytes=0, sync=True)
    files.crash(seed)
    last = ConsumeQueues(files, root, 6_000)
    last.load()
    assert last.is_complete
    assert read_all(last.get("orders", 0)) == [message(number) for number in range(690)]


class NoSyncAll(FaultyFiles):
    """A system without a sync for everything."""

    def sync_all(self, path: Path) -> bool:
        return False


@pytest.mark.parametrize("make_files", [FaultyFiles, NoSyncAll])
def test_many_queues_are_on_disk_after_a_sync(tmp_path: Path, make_files: type[FaultyFiles]) -> None:
    files = make_files()
    queues = open_queues(tmp_path, files)
    for number in range(300):
        append(queues.get("orders", number), 2)
    queues.flush_round(least_bytes=0)
    before = len(files.sync_points)
    queues.flush_round(least_bytes=0, sync=True)
    syncs = len(files.sync_points) - before
    assert syncs == 1 if make_files is FaultyFiles else syncs > 600
    files.crash(lambda times: False)
    again = open_queues(tmp_path, files)
    assert all(read_all(again.get("orders", number)) == [message(0), message(1)] for number in range(300))


def test_after_a_failed_sync_of_many_no_other_succeeds(tmp_path: Path) -> None:
    files = FaultyFiles()
    queues = open_queues(tmp_path, files)
    for number in range(300):
        append(queues.get("orders", number), 2)
    files.fail("sync")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            queues.flush_round(least_bytes=0, sync=True)


def test_an_ordinary_round_looks_at_some_queues_and_the_next_at_others(
    queues: ConsumeQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queues, "_LOOKS_AT_ONCE", 4)
    for number in range(10):
        append(queues.get("orders", number), 3 if number < 9 else 9)
    written = [queues.flush_round(least_bytes=100).unit_count for _ in range(3)]
    assert written == [0, 0, 9]
    assert queues.unflushed_queues == 9
    assert queues.flush_round(least_bytes=0).queue_count == 9


def test_few_files_are_open_however_many_queues_are_read(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)  # at most 3 open files
    for number in range(20):
        append(queues.get("orders", number), 3)
    queues.flush_round(least_bytes=0)
    before = len(names(Path("/proc/self/fd")))
    for _ in range(2):
        assert all(len(read_all(queue)) == 3 for queue in queues.items())
    assert len(names(Path("/proc/self/fd"))) <= before + 3
    queues.close()
    assert len(names(Path("/proc/self/fd"))) == before


# -- following the log ---------------------------------------------------------------------------


def test_all_queues_are_cut_to_the_log(queues: ConsumeQueues) -> None:
    for number in range(4):
        append(queues.get("orders", number), 3, first=number * 3)
    assert queues.max_phy_offset() == 120
    queues.truncate_all(70)
    assert [queues.get("orders", number).max_queue_offset for number in range(4)] == [3, 3, 1, 0]
    assert queues.max_phy_offset() == 70
    assert queues.is_complete


def test_a_unit_cut_although_its_record_is_there_is_to_be_rebuilt(queues: ConsumeQueues) -> None:
    append(queues.get("orders", 0), 3)
    queues.get("orders", 0).append(30, 99_999, 0)
    append(queues.get("orders", 1), 4)
    queues.truncate_all(40)
    assert queues.rebuild_phy_offset == 30


def test_expired_files_and_queues_go(queues: ConsumeQueues, tmp_path: Path) -> None:
    append(queues.get("orders", 0), 12)
    append(queues.get("orders", 1), 3)
    append(queues.get("kept", 0), 3)
    queues.get("never used", 0)
    queues.flush_round(least_bytes=0)
    assert queues.delete_expired(70) == 1
    assert names(queue_folder(tmp_path)) == ["00000000000000000100", "00000000000000000200"]
    assert queues.get("orders", 0).min_queue_offset == 7
    assert queues.clean_expired(70, keep_topics=["kept"]) == [("orders", 1)]
    assert queues.queue_ids("orders") == [0]
    assert names(tmp_path / "consumequeue" / "orders") == ["0"]
    assert queues.clean_expired(10_000) == [("orders", 0), ("kept", 0)]
    assert queues.topics() == ["never used"]


def test_a_deleted_topic_is_gone_from_disk_and_starts_at_0(queues: ConsumeQueues, tmp_path: Path) -> None:
    for number in range(3):
        append(queues.get("orders", number), 8)
    append(queues.get("payments", 0), 2)
    queues.flush_round(least_bytes=0)
    queues.get("orders", 0).read_units(0, 1)
    append(queues.get("orders", 0), 1, first=8)
    queues.delete_topic("orders")
    queues.delete_topic("no such topic")
    assert names(tmp_path / "consumequeue") == ["payments"]
    assert queues.topics() == ["payments"]
    queues.flush_round(least_bytes=0)
    assert names(tmp_path / "consumequeue") == ["payments"]
    append(queues.get("orders", 0), 2, first=100)
    queues.flush_round(least_bytes=0)
    assert read_all(queues.get("orders", 0)) == [message(100), message(101)]
    assert read_all(open_queues(tmp_path).get("orders", 0)) == [message(100), message(101)]


def test_a_round_under_way_does_not_bring_back_a_deleted_topic(queues: ConsumeQueues, tmp_path: Path) -> None:
    append(queues.get("orders", 0), 8)
    flush_round = queues.begin_round(least_bytes=0)
    batch = flush_round.next_batch()
    assert batch is not None
    queues.delete_topic("orders")
    batch.write()
    flush_round.finish(batch)
    flush_round.sync()
    assert names(tmp_path / "consumequeue") == []
    assert queues.unflushed_queues == 0


def test_one_queue_can_be_deleted(queues: ConsumeQueues, tmp_path: Path) -> None:
    append(queues.get("orders", 0), 2)
    append(queues.get("orders", 1), 2)
    queues.flush_round(least_bytes=0)
    queues.delete_queue("orders", 1)
    queues.delete_queue("orders", 1)
    assert queues.queue_ids("orders") == [0]
    queues.delete_queue("orders", 0)
    assert queues.topics() == []
    assert (tmp_path / "consumequeue" / "orders").exists()
