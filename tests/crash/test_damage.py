"""Damage at rest: flipped bits and cut files, in each kind of file a store has.

Each is found: by the check, by recovery, or because the file is made anew with the right content. Where
the log itself is damaged the messages on both sides are still served, and nothing is deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kourou.errors import StoreFormatError
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_mark
from kourou.store.check.check import CheckReport, check_store
from kourou.store.check.invariants import Invariant
from kourou.store.config_file import JsonConfigFile
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.store.read.get_message_result import GetMessageStatus
from kourou.testing.faulty_files import FaultyFiles
from tests.crash.ledger import read_queue
from tests.crash.stored_log import log_paths, stored_records
from tests.crash.workload import small_config

TOPICS = ("orders", "logs")
MESSAGES = 60


def now_ms() -> int:
    return 1_700_000_000_000


def body_of(number: int) -> bytes:
    return b"%d:" % number + b"b" * (number * 37 % 1200)


def open_store(root: Path) -> MessageStore:
    return MessageStore.open(small_config(root), Files(), now_ms)


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several files of each kind, stopped cleanly."""
    root = tmp_path_factory.mktemp("sound") / "store"
    store = open_store(root)
    for number in range(MESSAGES):
        properties = (
            f"UNIQ_KEY\x01ID{number}\x02KEYS\x01k{number % 7}\x02TAGS\x01t{number % 3}\x02WAIT\x01true\x02"
        )
        store.put_message(TOPICS[number % 2], number % 3, body_of(number), properties)
        if number % 20 == 0:
            store.flush_derived(thorough=True)
    JsonConfigFile(Files(), root / "config" / "topics.json").store(
        b'{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{"orders":{"topicName":"orders"},'
        b'"logs":{"topicName":"logs"}}}'
    )
    store.close()
    report = check_store(Files(), root)
    assert report.ok and not report.recovery, report.as_json()
    return root


@pytest.fixture
def root(sound_store: Path, folder: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(sound_store, folder / "store"))


def flip(path: Path, position: int) -> Callable[[], None]:
    """Flip a bit, another one in each byte; the result takes it back."""
    files = FaultyFiles()
    bit = position % 8
    files.flip_bit(path, position, bit)
    return lambda: files.flip_bit(path, position, bit)


def check(root: Path) -> CheckReport:
    return check_store(Files(), root)


def undetected(root: Path, path: Path, positions: Iterable[int]) -> list[int]:
    """The bytes of a file in which a flipped bit is not found by the check."""
    missed = []
    for position in positions:
        take_back = flip(path, position)
        if check(root).ok:
            missed.append(position)
        take_back()
    assert check(root).ok
    return missed


def all_messages(store: MessageStore) -> dict[tuple[str, int, int], bytes]:
    return {
        (topic, queue_id, queue_offset): raw
        for topic in TOPICS
        for queue_id in store.queues.queue_ids(topic)
        for queue_offset, raw in read_queue(store, topic, queue_id).items()
    }


def assert_all_served(root: Path) -> None:
    """Everything is read, found and sound after a start; the store is closed again."""
    store = open_store(root)
    served = sorted(all_messages(store).values())
    assert served == sorted(raw for raw, _ in stored_records(root))
    assert sorted(map(body_of, range(MESSAGES))) == sorted(decode_record(raw).body for raw in served)
    for number in range(MESSAGES):
        found = store.query_message(TOPICS[number % 2], f"ID{number}", 10, 0, 1 << 60)
        assert [message.msg_id for message in found] == [f"ID{number}"]
    store.close()
    assert check(root).ok


# -- the log -------------------------------------------------------------------------------------

# Of a record the format protects lengths, magic, place and body. Topic, queue and tags have to agree
# with the ConsumeQueue, keys and time with the index. There is no checksum for these:
UNPROTECTED = {
    "flag": range(16, 20),
    "sys_flag": range(36, 40),
    "born_timestamp, born_host": range(40, 56),
    "store_timestamp": range(56, 64),
    "store_host": range(64, 72),
    "reconsume_times, prepared_transaction_offset": range(72, 84),
}


def test_every_flip_in_a_record_is_found_where_the_format_allows(root: Path) -> None:
    path = log_paths(root)[1]
    raw = path.read_bytes()
    size, _ = record_mark(raw)
    body_end = raw.index(b"\x06orders") if b"\x06orders" in raw[:size] else raw.index(b"\x04logs")
    missed = undetected(root, path, [*range(88), *range(88, body_end, 60), *range(body_end, size)])
    text = raw.index(b"WAIT\x01true\x02")
    allowed = {position for fields in UNPROTECTED.values() for position in fields}
    allowed |= {*range(text, text + len(b"WAIT\x01true\x02"))}  # a property that nothing else knows of
    assert set(missed) <= allowed, [position for position in missed if position not in allowed]


@pytest.mark.parametrize("where", ["body", "size", "magic", "phy_offset", "properties length"])
def test_damage_in_the_log_is_named_and_served_around(root: Path, where: str) -> None:
    path = log_paths(root)[1]
    records = stored_records(root)
    victim = next(
        stored for _, stored in records if stored.phy_offset > int(path.name) and stored.stored_body
    )
    position = victim.phy_offset - int(path.name)
    lengths = {"body": 88, "size": 3, "magic": 5, "phy_offset": 33}
    lengths["properties length"] = victim.store_size - len(victim.raw_properties) - 1
    flip(path, position + lengths[where])
    found = check(root).violations
    assert (found[0].path, found[0].position, found[0].invariant) == (path, position, Invariant.LOG_RECORD)

    damaged = path.read_bytes()
    for forget in (False, True, False):
        if forget:  # what was derived has to come from the log again: now recovery walks over it
            shutil.rmtree(root / "consumequeue")
            shutil.rmtree(root / "index")
        store = open_store(root)
        if forget:
            (damage,) = store.report.damages
            assert (damage.path, damage.phy_offset) == (path, victim.phy_offset)
            assert damage.end_phy_offset == victim.phy_offset + victim.store_size
        assert_served_around(store, [raw for raw, stored in records if stored is not victim])
        result = store.put_message("orders", 0, b"goes on")
        assert result.phy_offset > records[-1][1].phy_offset
        store.close()
        assert path.read_bytes() == damaged


def assert_served_around(store: MessageStore, others: list[bytes]) -> None:
    """All records but one are read, each by itself: the one between them must not hide others."""
    served = []
    for topic in TOPICS:
        for queue_id in store.queues.queue_ids(topic):
            queue = store.queue(topic, queue_id)
            for queue_offset in range(queue.min_queue_offset, queue.max_queue_offset):
                result = store.get_message(topic, queue_id, queue_offset, 1)
                if result.status is GetMessageStatus.FOUND:
                    served.append(b"".join(result.buffers))
    missing = [decode_record(raw) for raw in others if raw not in served]
    assert not missing, missing


def test_a_damaged_blank_ends_one_file_only(root: Path) -> None:
    path = log_paths(root)[0]
    records = [raw for raw, _ in stored_records(root)]
    last = [stored for _, stored in stored_records(root) if stored.phy_offset < int(log_paths(root)[1].name)][
        -1
    ]
    blank = last.phy_offset + last.store_size
    for position in range(8):
        take_back = flip(path, blank + position)
        (found,) = check(root).violations
        assert (found.path, found.position) == (path, blank)
        take_back()
    flip(path, blank + 2)
    shutil.rmtree(root / "consumequeue")
    store = open_store(root)
    (damage,) = store.report.damages
    assert (damage.path, damage.phy_offset) == (path, blank)
    assert sorted(all_messages(store).values()) == sorted(records)
    store.close()


def test_bytes_behind_the_end_are_found_and_cut_off(root: Path) -> None:
    path = log_paths(root)[-1]
    end = stored_records(root)[-1][1]
    behind = end.phy_offset + end.store_size - int(path.name)
    for position in (behind, behind + 100, path.stat().st_size - 1):
        flip(path, position)
        assert [found.invariant for found in check(root).violations] == [Invariant.LOG_ZEROS]
        assert_all_served(root)


@pytest.mark.parametrize("kept", [0, 1, 5000])
@pytest.mark.parametrize("index", [0, 1, -1], ids=["first", "second", "last"])
def test_a_cut_log_file_is_refused_and_nothing_changes(root: Path, index: int, kept: int) -> None:
    path = log_paths(root)[index]
    with path.open("r+b") as file:
        file.truncate(kept)
    assert not check(root).ok
    before = snapshot(root)
    with pytest.raises(StoreFormatError):
        open_store(root)
    assert snapshot(root) == before


def snapshot(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}


# -- ConsumeQueues -------------------------------------------------------------------------------


def queue_files(root: Path) -> list[Path]:
    return sorted((root / "consumequeue").glob("*/*/[0-9]*"))


def test_every_flip_in_a_queue_is_found_and_a_removed_queue_made_anew(root: Path) -> None:
    first, last = queue_files(root)[0], queue_files(root)[-1]
    assert undetected(root, first, range(100)) == []
    assert undetected(root, last, range(100)) == []
    flip(first, 5)
    shutil.rmtree(first.parent)
    assert_all_served(root)


def test_a_flip_in_the_last_units_is_repaired_after_a_kill(root: Path) -> None:
    open_store(root).abandon()
    for path in queue_files(root):
        used = len(path.read_bytes().rstrip(b"\0")) // 20 * 20
        flip(path, used - 15)
    assert_all_served(root)


@pytest.mark.parametrize("kept", [0, 7, 40])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_cut_queue_file_is_found_and_made_anew(root: Path, kept: int, clean: bool) -> None:
    if not clean:
        open_store(root).abandon()
    for queue in sorted({path.parent for path in queue_files(root)}):
        with max(queue.iterdir()).open("r+b") as file:
            file.truncate(kept)
    assert clean is False or not check(root).ok
    assert_all_served(root)


def test_a_lost_queue_file_is_missed_and_made_anew(root: Path) -> None:
    for path in queue_files(root)[::2]:
        path.unlink()
    assert not check(root).ok
    assert_all_served(root)


# -- the index -----------------------------------------------------------------------------------


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def test_every_flip_in_an_index_is_found_and_a_removed_index_made_anew(root: Path) -> None:
    path = index_files(root)[0]
    header, slots, entries = range(40), range(40, 40 + 8 * 4), range(40 + 8 * 4 + 20, 40 + 8 * 4 + 32 * 20)
    assert undetected(root, path, header) == []
    assert undetected(root, path, slots) == []
    assert undetected(root, path, entries[::7]) == []
    flip(path, entries[10])
    shutil.rmtree(path.parent)
    assert_all_served(root)


@pytest.mark.parametrize("area", ["header", "slots", "entries"])
def test_a_flip_in_an_index_is_repaired_after_a_kill(root: Path, area: str) -> None:
    """The files that may not be whole are checked then: the last ones."""
    open_store(root).abandon()
    path = index_files(root)[-1]
    flip(path, {"header": 30, "slots": 41, "entries": 40 + 8 * 4 + 20 + 6}[area])
    assert_all_served(root)


@pytest.mark.parametrize("kept", [0, 300])
@pytest.mark.parametrize("which", [slice(0, 1), slice(1, 2), slice(None)], ids=["first", "second", "all"])
def test_a_cut_index_file_is_found_and_made_anew(root: Path, which: slice, kept: int) -> None:
    for path in index_files(root)[which]:
        with path.open("r+b") as file:
            file.truncate(kept)
    assert not check(root).ok
    assert_all_served(root)


# -- the small files -----------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_found_and_done_without(root: Path) -> None:
    path = root / "checkpoint"
    whole = path.read_bytes()
    assert undetected(root, path, range(128)) == []
    for position in range(0, 128, 8):
        path.write_bytes(whole)
        flip(path, position)
        assert_all_served(root)
    for kept in (0, 40, 127):
        path.write_bytes(whole[:kept])
        assert_all_served(root)
    path.unlink()
    assert_all_served(root)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_damaged_snapshot_is_done_without(root: Path, clean: bool) -> None:
    path = root / "consumequeue.snapshot"
    for position in range(0, path.stat().st_size, 41):
        if not clean:
            open_store(root).abandon()
        flip(path, position)
        assert_all_served(root)
    for kept in (0, 10, path.stat().st_size - 1):
        path.write_bytes(path.read_bytes()[:kept])
        assert_all_served(root)


def test_damaged_json_is_found_and_the_one_before_is_used(root: Path) -> None:
    path = root / "config" / "topics.json"
    config_file = JsonConfigFile(Files(), path)
    before = path.read_bytes()
    config_file.store(before.replace(b"1", b"2"))
    whole = path.read_bytes()
    structure = [position for position, byte in enumerate(whole) if byte in b'{}":,']
    for damaged in (*(flipped(whole, position) for position in structure), whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        assert not check(root).ok
        assert config_file.load() == before
        assert config_file.problem is not None


def flipped(raw: bytes, position: int) -> bytes:
    return raw[:position] + bytes([raw[position] ^ 0x80]) + raw[position + 1 :]
