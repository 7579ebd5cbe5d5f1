"""MessageStore as a whole: life, lookups, and what it says to folders and disks it cannot use."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kourou.errors import StorageError, StoreFormatError, StoreLockedError
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.tags import tags_code
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.store.queue.queue_time_search import BoundaryType
from kourou.testing.store_check import assert_store_ok
from tests.unit.store.message_stores import (
    BORN_HOST,
    LOG_FILE_BYTES,
    NOW_MS,
    StoreKit,
    bodies,
    body_for,
    entries,
    faulty,
    listing,
    put,
    read_queue,
)

FOR_EVER = (0, NOW_MS * 2)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        yield made


@pytest.fixture
def store(kit: StoreKit) -> MessageStore:
    return kit.open()


# -- life ----------------------------------------------------------------------------------------


def test_a_new_store_holds_nothing_and_has_no_log_file(kit: StoreKit, store: MessageStore) -> None:
    assert store.log.max_phy_offset == 0
    assert store.queues.topics() == []
    names = {path.name for path in kit.root.iterdir()}
    assert names == {"abort", "checkpoint", "consumequeue.snapshot", "lock"}
    store.close()
    assert_store_ok(kit.root)


def test_abort_is_there_while_the_store_is_open(kit: StoreKit, store: MessageStore) -> None:
    assert (kit.root / "abort").read_text() == str(os.getpid())
    store.close()
    assert not (kit.root / "abort").exists()


def test_what_was_put_is_there_after_a_clean_stop(kit: StoreKit, store: MessageStore) -> None:
    sent = [b"%d" % number * 50 for number in range(60)]
    for number, body in enumerate(sent):
        put(store, body, queue_id=number % 3, properties=f"KEYS\x01k{number}\x02")
    store = kit.reopen(store)
    assert store.report.clean_exit
    assert store.report.records == 0
    for queue_id in range(3):
        assert bodies(store, queue_id=queue_id) == sent[queue_id::3]
    assert [m.body for m in store.query_message("orders", "k41", 10, *FOR_EVER)] == [sent[41]]
    assert put(store, b"next").queue_offset == 20
    store.close()
    assert_store_ok(kit.root)


def test_a_clean_store_opens_without_looking_at_its_records(kit: StoreKit, store: MessageStore) -> None:
    for number in range(60):
        put(store, b"%d" % number * 50)
    end = store.log.max_phy_offset
    store = kit.reopen(store)
    assert (store.report.start_phy_offset, store.report.end_phy_offset, store.report.records) == (end, end, 0)


def test_a_clean_store_whose_log_ends_with_a_file_opens_without_a_scan(
    kit: StoreKit, store: MessageStore
) -> None:
    put(store, body_for(LOG_FILE_BYTES - 100))
    store.begin_cycle()
    with pytest.raises(Exception, match="does not fit"):
        store.appender.put(
            store.queue("orders", 0),
            body_for(200),
            b"",
            tags_code=0,
            keys=(),
            born_timestamp=1 << 70,
            born_host=BORN_HOST,
        )
    put(store, body_for(LOG_FILE_BYTES - 100))
    store = kit.reopen(store)
    assert store.report.records == 0
    assert len(bodies(store)) == 2


def test_a_stop_leaves_a_checkpoint_that_apache_reads(kit: StoreKit, store: MessageStore) -> None:
    """Times of messages, not of the clock; a zero would make Apache read the whole log again."""
    for number in range(40):
        kit.clock.advance(ms=1000)
        put(store, b"x", properties=f"KEYS\x01a{number} b{number}\x02")
    kit.clock.advance(ms=5000)
    store.close()
    times = struct.unpack_from(">3q", (kit.root / "checkpoint").read_bytes())
    assert times[:2] == (NOW_MS + 40_000, NOW_MS + 40_000)
    assert NOW_MS + 30_000 <= times[2] < NOW_MS + 40_000  # the end of the last index file that is full


def test_closing_twice_is_no_error(store: MessageStore) -> None:
    store.close()
    store.abandon()


def test_pending_puts_are_stored_by_close(kit: StoreKit, store: MessageStore) -> None:
    answers = []
    store.begin_cycle()
    store.appender.put_many(
        store.queue("orders", 0),
        entries(b"a", b"b"),
        born_timestamp=NOW_MS,
        born_host=BORN_HOST,
        done=lambda *answer: answers.append(answer),
    )
    store = kit.reopen(store)
    assert len(answers) == 1
    assert bodies(store) == [b"a", b"b"]


def test_a_failed_stop_leaves_abort(kit: StoreKit, store: MessageStore) -> None:
    put(store, b"x")
    faulty(kit).fail("pwrite", error=errno.ENOSPC, for_ever=True, part_of_path="consumequeue")
    with pytest.raises(OSError):
        store.close()
    assert (kit.root / "abort").exists()
    faulty(kit).heal()
    store = kit.open()
    assert bodies(store) == [b"x"]


def test_an_index_that_cannot_be_written_does_not_keep_the_store_from_working(
    kit: StoreKit, store: MessageStore
) -> None:
    faulty(kit).fail("create", error=errno.ENOSPC, for_ever=True, part_of_path="store/index/")
    put(store, b"x", properties="KEYS\x01k\x02")
    store.flush_derived(thorough=True)
    assert store.query_message("orders", "k", 10, *FOR_EVER) == []
    store.close()
    faulty(kit).heal()
    store = kit.open()
    assert [message.body for message in store.query_message("orders", "k", 10, *FOR_EVER)] == [b"x"]


def test_an_index_switched_on_later_finds_what_was_stored_before(kit: StoreKit) -> None:
    store = kit.open(index_enable=False)
    put(store, b"x", properties="KEYS\x01k\x02")
    store = kit.reopen(store, index_enable=True)
    put(store, b"y", properties="KEYS\x01k\x02")
    assert [m.body for m in store.query_message("orders", "k", 10, *FOR_EVER)] == [b"x", b"y"]
    store = kit.reopen(store, index_enable=False)
    put(store, b"z", properties="KEYS\x01k\x02")
    store = kit.reopen(store, index_enable=True)
    assert [m.body for m in store.query_message("orders", "k", 10, *FOR_EVER)] == [b"x", b"y", b"z"]


def test_a_log_over_several_folders(kit: StoreKit, tmp_path: Path) -> None:
    kit.is_checked = False  # the check looks for the log in the store's own folder
    folders = (tmp_path / "disk1" / "log", tmp_path / "disk2" / "log")
    store = kit.open(commit_log_folders=folders)
    for number in range(70):
        put(store, b"%03d" % number + body_for(190))
    for again in (kit.reopen, kit.kill):
        store = again(store, commit_log_folders=folders)
        assert [int(body[:3]) for body in bodies(store)] == list(range(70))
    assert {len(list(folder.iterdir())) for folder in folders} == {2}


def test_a_deleted_topic_begins_anew(kit: StoreKit, store: MessageStore) -> None:
    put(store, b"old")
    put(store, b"other", "payments")
    store.delete_topic("orders")
    store = kit.kill(store)
    assert store.queues.find("orders", 0) is None
    assert put(store, b"new").queue_offset == 0
    for again in (kit.reopen, kit.kill):
        store = again(store)
        assert bodies(store) == [b"new"]
        assert bodies(store, "payments") == [b"other"]


def test_queues_whose_messages_are_all_gone_can_be_cleaned(kit: StoreKit, store: MessageStore) -> None:
    put(store, b"old", "idle")
    for _ in range(40):
        put(store, body_for(200))
    store.flush()
    store.log.delete_first()
    assert store.clean_expired_queues(keep_topics={"idle"}) == []
    assert store.clean_expired_queues() == [("idle", 0)]
    store = kit.kill(store)
    assert put(store, b"again", "idle").queue_offset == 0


# -- tags codes ----------------------------------------------------------------------------------


def test_a_delayed_message_has_its_time_of_delivery_as_tags_code(kit: StoreKit, store: MessageStore) -> None:
    """As the code that recovery computes from the record."""
    put(store, b"later", SCHEDULE_TOPIC, 2, properties="DELAY\x013\x02TAGS\x01t\x02")
    put(store, b"now", properties="DELAY\x013\x02TAGS\x01t\x02")

    def codes(store: MessageStore) -> list[int]:
        units = [store.queue(SCHEDULE_TOPIC, 2).unit(0), store.queue("orders", 0).unit(0)]
        return [unit.tags_code for unit in units if unit is not None]

    expected = [NOW_MS + 10_000, tags_code("t")]
    assert codes(store) == expected
    assert codes(kit.kill(store)) == expected


# -- lookups -------------------------------------------------------------------------------------


def test_a_message_is_found_by_its_physical_offset_only(store: MessageStore) -> None:
    put(store, b"first")
    second = put(store, b"second").phy_offset
    message = store.look_message(second)
    assert message is not None
    assert (message.body, message.queue_offset) == (b"second", 1)
    assert parse_offset_msg_id(message.offset_msg_id).phy_offset == second
    for nowhere in (1, second - 1, second + 1, store.log.max_phy_offset, 1 << 50, -1):
        assert store.look_message(nowhere) is None
        assert store.lookup.store_timestamp(nowhere) == -1


def test_a_record_inside_a_body_is_no_message(store: MessageStore) -> None:
    put(store, b"first")
    inner = bytes(store.log.read(0, store.log.max_phy_offset) or b"")
    outer = put(store, inner).phy_offset
    assert store.look_message(outer + 88) is None


def test_a_message_with_a_damaged_body_is_not_given_out(store: MessageStore) -> None:
    place = put(store, b"damaged soon").phy_offset
    store.log.log_files[0].file.pwrite(b"D", place + 88)
    assert store.look_message(place) is None


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_a_message_with_a_damaged_size_is_not_given_out(store: MessageStore, size: bytes) -> None:
    put(store, b"damaged soon")
    store.log.log_files[0].file.pwrite(size, 0)
    assert store.look_message(0) is None


def test_keys_and_unique_ids_are_found_in_a_time_range(kit: StoreKit, store: MessageStore) -> None:
    for number in range(5):
        put(store, b"%d" % number, properties=f"KEYS\x01all only{number}\x02UNIQ_KEY\x01ID{number}\x02")
        kit.clock.advance(ms=10_000)

    def found(key: str, count: int = 32, begin_ms: int = 0, end_ms: int = NOW_MS * 2) -> list[bytes]:
        return [message.body for message in store.query_message("orders", key, count, begin_ms, end_ms)]

    assert found("all") == [b"0", b"1", b"2", b"3", b"4"]
    assert found("only3") == [b"3"]
    assert found("ID2") == [b"2"]
    assert found("all", 2) == [b"3", b"4"]
    assert found("all", begin_ms=NOW_MS + 10_000, end_ms=NOW_MS + 30_000) == [b"1", b"2", b"3"]
    assert found("nothing") == []
    assert store.query_message("payments", "all", 32, *FOR_EVER) == []


def test_offsets_by_time(kit: StoreKit, store: MessageStore) -> None:
    for step in (0, 100, 0, 0, 100):
        kit.clock.advance(ms=step)
        put(store, b"x")
    at = store.lookup.offset_in_queue_by_time

    def both(timestamp_ms: int) -> tuple[int, int]:
        return at("orders", 0, timestamp_ms), at("orders", 0, timestamp_ms, BoundaryType.UPPER)

    assert both(NOW_MS - 1) == (0, 0)
    assert both(NOW_MS) == (0, 0)
    assert both(NOW_MS + 50) == (1, 0)
    assert both(NOW_MS + 100) == (1, 3)
    assert both(NOW_MS + 150) == (4, 3)
    assert both(NOW_MS + 200) == (4, 4)
    assert both(NOW_MS + 201) == (5, 4)
    assert at("orders", 7, NOW_MS) == 0


def test_the_ends_of_a_queue_and_its_times(kit: StoreKit, store: MessageStore) -> None:
    assert store.min_offset_in_queue("orders", 0) == store.max_offset_in_queue("orders", 0) == 0
    assert store.lookup.earliest_message_time("orders", 0) == -1
    for _ in range(45):
        put(store, body_for(200))
        kit.clock.advance(ms=1)
    assert (store.min_offset_in_queue("orders", 0), store.max_offset_in_queue("orders", 0)) == (0, 45)
    assert store.lookup.earliest_message_time("orders", 0) == NOW_MS
    assert store.lookup.message_time("orders", 0, 7) == NOW_MS + 7
    assert store.lookup.message_time("orders", 0, 45) == -1
    store.flush()
    store.log.delete_first()
    store.queues.delete_expired(store.log.min_phy_offset)
    assert (store.min_offset_in_queue("orders", 0), store.max_offset_in_queue("orders", 0)) == (20, 45)
    assert store.lookup.earliest_message_time("orders", 0) == NOW_MS + 20
    assert store.lookup.offset_in_queue_by_time("orders", 0, 0) == 20


def test_ipv6_hosts(store: MessageStore) -> None:
    place = put(store, b"x", born_host=bytes(20)).phy_offset
    assert store.lookup.store_timestamp(place) == NOW_MS
    (message,) = read_queue(store)
    assert message.body == b"x"


# -- folders and disks that cannot be used: one clear error, nothing changed -------------------------


def refuse_open(kit: StoreKit, error: type[StorageError], match: str) -> None:
    """Opening fails in one way and changes nothing."""
    before = listing(kit.root.parent, without=("lock",))
    with pytest.raises(error, match=match):
        kit.open()
    assert listing(kit.root.parent, without=("lock",)) == before


def test_a_folder_with_other_files_is_no_store(kit: StoreKit) -> None:
    kit.root.mkdir()
    (kit.root / "letter.txt").write_text("dear")
    (kit.root / "photos").mkdir()
    refuse_open(kit, StoreFormatError, "not a store: it holds letter.txt and 1 more")
    assert not (kit.root / "lock").exists()


@pytest.mark.parametrize("name", [".hidden", "lost+found"])
def test_a_folder_that_is_as_good_as_empty_becomes_a_store(kit: StoreKit, name: str) -> None:
    kit.root.mkdir()
    (kit.root / name).mkdir()
    put(kit.open(), b"x")


def test_a_folder_with_configuration_only_becomes_a_store(kit: StoreKit) -> None:
    (kit.root / "config").mkdir(parents=True)
    (kit.root / "config" / "topics.json").write_text("{}")
    put(kit.open(), b"x")


def test_a_file_is_no_store(kit: StoreKit) -> None:
    kit.root.write_text("a file")
    refuse_open(kit, StorageError, "the store cannot be opened: (Not a directory|File exists)")


def test_a_folder_below_a_file_cannot_be_made(kit: StoreKit) -> None:
    kit.root.write_text("a file")
    below = StoreKit(kit.root / "store")
    with pytest.raises(StorageError, match="the store cannot be opened: Not a directory"):
        below.open()


def test_a_store_in_use_by_this_process(kit: StoreKit, store: MessageStore) -> None:
    put(store, b"x")
    before = listing(kit.root)
    with pytest.raises(StoreLockedError, match="the store is in use by process"):
        kit.open()
    assert listing(kit.root) == before
    put(store, b"y")


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_folder_that_may_not_be_written(kit: StoreKit, error: int) -> None:
    put(kit.open(), b"x")
    kit.close()
    faulty(kit).fail("lock", error=error)
    refuse_open(kit, StorageError, f"lock: cannot be locked: {os.strerror(error)}; check owner")


def test_a_folder_that_may_not_be_made(kit: StoreKit) -> None:
    faulty(kit).fail("make_folder", error=errno.EACCES)
    refuse_open(kit, StorageError, "the store cannot be opened: Permission denied")


@contextmanager
def rights_of_nobody() -> Iterator[None]:
    """Root may write everywhere: be another user for a moment."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_read_only_folder(is_new: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, StoreKit(Path(folder) / "store") as kit:
        kit.root.mkdir()
        if not is_new:
            store = kit.open()
            put(store, b"x")
            store.close()
        for path in (Path(folder), kit.root, *kit.root.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        with rights_of_nobody():
            refuse_open(kit, StorageError, "lock: cannot be locked: Permission denied; check owner")
        for path in (Path(folder), kit.root, *kit.root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_store_on_a_disk_without_room_for_a_mark_is_not_opened(kit: StoreKit) -> None:
    store = kit.open()
    put(store, b"x")
    store.close()
    faulty(kit).fail("pwrite", error=errno.ENOSPC, for_ever=True)
    refuse_open(kit, StorageError, "the store cannot be opened: No space left on device")
    faulty(kit).heal()
    store = kit.open()
    assert store.report.clean_exit
    assert bodies(store) == [b"x"]


def test_a_disk_that_is_full_after_the_start_only_costs_progress(kit: StoreKit) -> None:
    store = kit.open()
    put(store, b"x")
    store.abandon()
    faulty(kit).fail("pwrite", error=errno.ENOSPC, for_ever=True, part_of_path="consumequeue")
    store = kit.open()
    assert bodies(store) == [b"x"]
    faulty(kit).heal()
    assert bodies(kit.kill(store)) == [b"x"]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"commit_log_file_bytes": 8192}, "mappedFileSizeCommitLog"),
        ({"consume_queue_file_bytes": 6000}, "mappedFileSizeConsumeQueue"),
        ({"index_entries": 77}, "maxIndexNum"),
        ({"index_slots": 77}, "maxHashSlotNum"),
    ],
)
@pytest.mark.parametrize("is_clean", [True, False])
def test_other_sizes_than_the_store_was_written_with(
    kit: StoreKit, settings: dict[str, int], match: str, is_clean: bool
) -> None:
    store = kit.open()
    for number in range(60):
        put(store, body_for(200), properties=f"KEYS\x01k{number}\x02")
    store.flush_derived(thorough=True)
    if is_clean:
        store.close()
    else:
        store.abandon()
    # After a crash the index is checked, and written again as it is, before the queues are looked at.
    without = ("lock",) if is_clean else ("lock", "index")
    before = listing(kit.root, without)
    with pytest.raises(StoreFormatError, match=match):
        kit.open(**settings)
    assert listing(kit.root, without) == before
    assert len(bodies(kit.open())) == 60


def test_a_failed_open_leaves_no_lock_and_no_descriptor(kit: StoreKit) -> None:
    store = kit.open()
    for _ in range(60):
        put(store, body_for(200), properties="KEYS\x01k\x02")
    store.close()
    before = len(os.listdir("/proc/self/fd"))
    for settings in (
        {"consume_queue_file_bytes": 6000},
        {"index_slots": 77},
        {"commit_log_file_bytes": 8192},
    ):
        with pytest.raises(StoreFormatError):
            kit.open(**settings)
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(bodies(kit.open())) == 60


def test_foreign_files_in_the_tree_are_left_alone(kit: StoreKit, store: MessageStore) -> None:
    for _ in range(30):
        put(store, body_for(200), properties="KEYS\x01k\x02")
    store.close()
    foreign = [
        kit.root / "README",
        kit.root / "commitlog" / "README",
        kit.root / "consumequeue" / "README",
        kit.root / "consumequeue" / "orders" / "README",
        kit.root / "consumequeue" / "orders" / "0" / "README",
        kit.root / "index" / "README",
        kit.root / "timerwheel",
    ]
    for path in foreign:
        path.write_text("mine")
    for is_clean in (True, False):
        store = kit.open()
        assert len(bodies(store)) == 30
        if is_clean:
            store.close()
        else:
            store.abandon()
    assert [path.read_text() for path in foreign] == ["mine"] * len(foreign)


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("commitlog", "it should be the CommitLog's folder"),
        ("consumequeue", "(?i)not a directory|should be|no folder"),
        ("index", "(?i)not a directory|should be|no folder"),
    ],
)
def test_a_file_where_a_folder_should_be(kit: StoreKit, path: str, match: str) -> None:
    kit.root.mkdir()
    (kit.root / "config").mkdir()
    (kit.root / path).write_text("a file")
    refuse_open(kit, StorageError, match)


def test_the_real_files_too(tmp_path: Path) -> None:
    """The same store without the faulty twin in between."""
    with StoreKit(tmp_path / "store", Files()) as kit:
        store = kit.open()
        for number in range(60):
            put(store, b"%03d" % number + body_for(190), properties=f"KEYS\x01k{number}\x02")
        for again in (kit.kill, kit.reopen):
            store = again(store)
            assert [int(body[:3]) for body in bodies(store)] == list(range(60))
        store.close()
        assert_store_ok(kit.root)
