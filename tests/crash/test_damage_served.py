"""Damage while a store is closed or in use: `file x damage x kernel`.

Each case ends with every message consumed once, in order, or named as damaged in the log, and with the
lag right. A message counts as damaged exactly if bytes of its record were overwritten.
"""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from kourou.protocol.record import decode_record, decode_records
from kourou.protocol.tags import tags_code
from kourou.store.check.check import check_store
from kourou.store.disk.files import Files, OpenFile
from kourou.store.kernel import Kernel
from kourou.store.message_store import MessageStore
from kourou.store.read.get_message_result import GetMessageStatus
from kourou.store.settings import MessageStoreConfig
from kourou.store.steps import run_steps
from tests.crash.stored_log import log_paths, stored_records
from tests.integration.kernel.kernel_kit import build, build_problem

TOPICS = ("orders", "logs")
QUEUES = 2
MESSAGES = 600
UNIT_BYTES = 20
QUEUE_FILE_UNITS = 50
LOG_FILE_BYTES = 64 * 1024
INDEX_SLOTS = 32
ZEROS = bytes(4096)
RANDOM = random.Random(18).randbytes(4096)
INSIDE = (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.MESSAGE_WAS_REMOVING)

Key = tuple[str, int, int]
Stretch = tuple[int, int]


class Stored(NamedTuple):
    """One message as it was stored."""

    number: int
    phy_offset: int
    end_phy_offset: int


@pytest.fixture(scope="module", params=["python", "kernel"])
def kernel(request: pytest.FixtureRequest) -> Kernel | None:
    """None, and the compiled kernel where it can be compiled."""
    if request.param == "python":
        return None
    problem = build_problem()
    if problem is not None:
        pytest.skip(f"the kernel needs {problem}")
    return cast(Kernel, build())


def config(root: Path) -> MessageStoreConfig:
    return MessageStoreConfig(
        root=root,
        commit_log_file_bytes=LOG_FILE_BYTES,
        consume_queue_file_bytes=QUEUE_FILE_UNITS * UNIT_BYTES,
        index_slots=INDEX_SLOTS,
        index_entries=4 * INDEX_SLOTS,
    )


def open_store(root: Path, kernel: Kernel | None = None) -> MessageStore:
    return MessageStore.open(config(root), Files(), lambda: 1_700_000_000_000, kernel)


def put_numbered(store: MessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        topic, queue_id = TOPICS[number % 2], number // 2 % QUEUES
        body = b"%d:" % number + b"b" * (number * 37 % 400)
        properties = f"UNIQ_KEY\x01ID{number}\x02TAGS\x01t{number % 3}\x02"
        store.put_message(topic, queue_id, body, properties)


def number_of(body: bytes) -> int:
    return int(body.split(b":")[0])


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several files of each kind, stopped cleanly."""
    root = tmp_path_factory.mktemp("sound") / "store"
    store = open_store(root)
    put_numbered(store, 0, MESSAGES)
    store.close()
    report = check_store(Files(), root)
    assert report.ok and not report.recovery, report.as_json()
    assert len(log_paths(root)) > 2
    return root


@pytest.fixture(scope="module")
def stored(sound_store: Path) -> dict[Key, Stored]:
    """What the store had before it was damaged."""
    return {
        (m.topic, m.queue_id, m.queue_offset): Stored(
            number_of(m.body), m.phy_offset, m.phy_offset + m.store_size
        )
        for _, m in stored_records(sound_store)
    }


@pytest.fixture
def root(sound_store: Path, folder: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(sound_store, folder / "store"))


# -- consuming -----------------------------------------------------------------------------------


def consume(store: MessageStore, max_messages: int = 32) -> dict[Key, int]:
    """Every message, by pulls as a consumer makes them; no pull may repeat another, none may give what a
    client cannot decode."""
    consumed: dict[Key, int] = {}
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            at, end = store.min_offset_in_queue(topic, queue_id), store.max_offset_in_queue(topic, queue_id)
            while at < end:
                result = store.get_message(topic, queue_id, at, max_messages)
                assert result.status in INSIDE and result.next_begin_offset > at, result
                for message in decode_records(b"".join(result.buffers)):
                    decode_record(message_bytes(store, message.phy_offset), verify_body_crc=True)
                    key = message.topic, message.queue_id, message.queue_offset
                    assert key[:2] == (topic, queue_id) and key not in consumed
                    consumed[key] = number_of(message.body)
                at = result.next_begin_offset
    return consumed


def message_bytes(store: MessageStore, phy_offset: int) -> bytes:
    head = store.log.read(phy_offset, 4)
    assert head is not None
    return store.log.read(phy_offset, int.from_bytes(head, "big")) or b""


_LOST = re.compile(r"(\w+)/(\d+): messages? (\d+)(?: to (\d+))? (?:is|are) lost")


def named_as_lost(caplog: pytest.LogCaptureFixture) -> set[Key]:
    """The messages that the log names as lost; no message is named twice."""
    named: list[Key] = []
    for record in caplog.records:
        for topic, queue_id, first, last in _LOST.findall(record.getMessage()):
            named += [(topic, int(queue_id), offset) for offset in range(int(first), int(last or first) + 1)]
    assert len(named) == len(set(named))
    return set(named)


def hit(stored: dict[Key, Stored], stretches: list[Stretch]) -> set[Key]:
    """The messages whose records lie in these stretches, or partly."""
    return {
        key
        for key, message in stored.items()
        if any(message.phy_offset < end and begin < message.end_phy_offset for begin, end in stretches)
    }


def assert_consumed(store: MessageStore, stored: dict[Key, Stored], lost: set[Key]) -> None:
    expected = {key: message.number for key, message in stored.items() if key not in lost}
    for max_messages in (32, 1024):  # the second time from what was verified
        assert consume(store, max_messages) == expected
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            count = sum(key[:2] == (topic, queue_id) for key in stored)
            assert store.max_offset_in_queue(topic, queue_id) == count


# -- the CommitLog -------------------------------------------------------------------------------

STRETCHES = {
    "first file": [25_000],
    "end of a file": [LOG_FILE_BYTES - 2048],
    "last file": [2 * LOG_FILE_BYTES + 1000],
    "start of the log": [0],
    "several places": [5_000, 20_000, 70_000, 150_000],
}


def overwrite(root: Path, begin: int, raw: bytes) -> Stretch:
    """Write into the log, over the border of two files if need be."""
    for offset in range(0, len(raw), 512):
        at = begin + offset
        path = root / "commitlog" / f"{at // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}"
        with path.open("r+b") as file:
            file.seek(at % LOG_FILE_BYTES)
            file.write(raw[offset : offset + 512])
    return begin, begin + len(raw)


@pytest.mark.parametrize("raw", [ZEROS, RANDOM], ids=["zeros", "random"])
@pytest.mark.parametrize("where", STRETCHES)
def test_a_damaged_stretch_of_the_log_does_not_block_its_queues(
    root: Path,
    stored: dict[Key, Stored],
    kernel: Kernel | None,
    where: str,
    raw: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stretches = [overwrite(root, begin, raw) for begin in STRETCHES[where]]
    lost = hit(stored, stretches)
    store = open_store(root, kernel)
    assert_consumed(store, stored, lost)
    assert named_as_lost(caplog) == lost
    assert store.damages.lost_messages == len(lost)
    named = [r.getMessage() for r in caplog.records if "no valid record from" in r.getMessage()]
    # Not with every pull; a stretch that turns out to be longer is reported once more.
    assert len(stretches) <= len(named) == len(set(named)) <= 2 * len(stretches)
    assert len(store.damages.damages) == len(stretches)
    for key in lost:
        # Random bytes in the properties alone are seen by the unit only.
        looked = store.look_message(stored[key].phy_offset)
        assert looked is None or (raw is RANDOM and number_of(looked.body) == stored[key].number)
    store.close()
    caplog.clear()
    store = open_store(root, kernel)  # what is known is not said again
    put_numbered(store, MESSAGES, 8)
    served = consume(store)
    assert {key for key in stored if key not in served} == lost
    assert len(served) == len(stored) - len(lost) + 8
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]
    store.close()


@pytest.mark.parametrize("of", ["this process", "an earlier one"])
def test_a_stretch_that_is_damaged_in_use_does_not_block_its_queues(
    root: Path,
    stored: dict[Key, Stored],
    kernel: Kernel | None,
    of: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if of == "this process":
        shutil.rmtree(root)
    store = open_store(root, kernel)
    if of == "this process":
        put_numbered(store, 0, MESSAGES)
    assert_consumed(store, stored, set())
    run_steps(store.watch.look_steps())
    path = log_paths(root)[0]
    before = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == before:  # the system's time of writes goes in steps
        stretch = overwrite(root, 30_000, RANDOM)
    run_steps(store.watch.look_steps())
    lost = hit(stored, [stretch])
    assert_consumed(store, stored, lost)
    assert named_as_lost(caplog) == lost
    assert f"something else has written to {path}" in caplog.text
    caplog.clear()
    run_steps(store.watch.look_steps())
    put_numbered(store, MESSAGES, 20)
    run_steps(store.watch.look_steps())
    run_steps(store.watch.look_steps())
    assert len(consume(store)) == MESSAGES - len(lost) + 20
    assert not caplog.records, "own writes are not taken for foreign ones"
    store.close()


def test_what_is_put_back_from_a_copy_is_served_again(
    root: Path, sound_store: Path, stored: dict[Key, Stored], caplog: pytest.LogCaptureFixture
) -> None:
    overwrite(root, 70_000, RANDOM)
    store = open_store(root)
    assert len(consume(store)) < len(stored)
    store.close()
    path = log_paths(root)[1]
    shutil.copy(sound_store / "commitlog" / path.name, path)
    store = open_store(root)
    assert_consumed(store, stored, set())
    store.close()
    assert check_store(Files(), root).ok


class DeletingFiles(Files):
    """Deletes the first file of a store's log when a verifier is about to open it."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self.store: MessageStore | None = None

    def open(self, path: Path, **options: Any) -> OpenFile:
        if self.store is not None and path == log_paths(self._root)[0]:
            store, self.store = self.store, None
            store.log.delete_first()
        return super().open(path, **options)


def open_deleting(root: Path) -> tuple[MessageStore, DeletingFiles]:
    files = DeletingFiles(root)
    files.store = store = MessageStore.open(config(root), files, lambda: 1_700_000_000_000)
    return store, files


def test_a_query_is_answered_while_retention_deletes_what_it_verifies(root: Path) -> None:
    store, files = open_deleting(root)
    number = MESSAGES - 1
    for _ in range(2):
        assert store.query_message(TOPICS[number % 2], f"ID{number}", 10, 0, 1 << 60)
    assert files.store is None
    store.close()


def test_what_retention_deletes_while_it_is_verified_is_not_damaged(
    root: Path, stored: dict[Key, Stored], caplog: pytest.LogCaptureFixture
) -> None:
    store, files = open_deleting(root)
    gone = hit(stored, [(0, LOG_FILE_BYTES)])
    assert consume(store) == {key: message.number for key, message in stored.items() if key not in gone}
    assert files.store is None and not store.damages.damages and not named_as_lost(caplog)
    store.close()


# -- ConsumeQueues -------------------------------------------------------------------------------


def queue_files(root: Path) -> list[Path]:
    return sorted((root / "consumequeue").glob("*/*/[0-9]*"))


def used_units(path: Path) -> int:
    return -(-len(path.read_bytes().rstrip(b"\0")) // UNIT_BYTES)


def random_units(path: Path) -> None:
    rand = random.Random(path.parent.name + path.name)
    with path.open("r+b") as file:
        for unit in rand.sample(range(used_units(path)), min(20, used_units(path))):
            file.seek(unit * UNIT_BYTES)
            file.write(rand.randbytes(UNIT_BYTES))


def random_file(path: Path) -> None:
    path.write_bytes(random.Random(str(path.name)).randbytes(path.stat().st_size))


def zero_file(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def cut_file(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: used_units(path) // 2 * UNIT_BYTES + 7])


def swap_units(path: Path) -> None:
    """Units that are well but stand in each other's place."""
    raw = path.read_bytes()
    path.write_bytes(raw[UNIT_BYTES : 2 * UNIT_BYTES] + raw[:UNIT_BYTES] + raw[2 * UNIT_BYTES :])


def wrong_tags(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[5 * UNIT_BYTES + 19] ^= 1
    path.write_bytes(raw)


QUEUE_DAMAGES: dict[str, Callable[[Path], None]] = {
    "20 random units": random_units,
    "random": random_file,
    "zeros": zero_file,
    "cut short": cut_file,
    "removed": Path.unlink,
    "two units swapped": swap_units,
    "wrong tags code": wrong_tags,
}


@pytest.mark.parametrize("which", [slice(None), slice(1)], ids=["all files", "first files"])
@pytest.mark.parametrize("damage", QUEUE_DAMAGES)
def test_a_damaged_consume_queue_skips_nothing(
    root: Path,
    stored: dict[Key, Stored],
    kernel: Kernel | None,
    damage: str,
    which: slice,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for folder in sorted({path.parent for path in queue_files(root)}):
        for path in sorted(folder.iterdir())[which]:
            QUEUE_DAMAGES[damage](path)
    store = open_store(root, kernel)
    assert_consumed(store, stored, set())
    assert [r for r in caplog.records if r.levelno >= logging.WARNING], "damage was not reported"
    assert not named_as_lost(caplog)
    store.close()
    report = check_store(Files(), root)
    assert report.ok, report.as_json()


@pytest.mark.parametrize("damage", QUEUE_DAMAGES)
def test_a_damaged_consume_queue_skips_nothing_after_a_kill(
    root: Path, stored: dict[Key, Stored], damage: str
) -> None:
    open_store(root).abandon()
    for path in queue_files(root):
        QUEUE_DAMAGES[damage](path)
    store = open_store(root)
    assert_consumed(store, stored, set())
    store.close()
    report = check_store(Files(), root)
    assert report.ok, report.as_json()


# A page of zeros may end within a unit: then it still has its size.
EXPIRED_LOG = {
    "zeros": (0, bytes(5 * UNIT_BYTES)),
    "random": (0, random.Random(18).randbytes(5 * UNIT_BYTES)),
    "negative": (0, b"\xff" * 5 * UNIT_BYTES),
    "zeros up to a size": (10 * UNIT_BYTES, bytes(8)),
}


@pytest.mark.parametrize("has_snapshot", [True, False])
@pytest.mark.parametrize("damage", EXPIRED_LOG)
def test_where_the_log_has_lost_its_start_damaged_units_are_not_taken_for_expired(
    root: Path, stored: dict[Key, Stored], kernel: Kernel | None, damage: str, has_snapshot: bool
) -> None:
    store = open_store(root)
    store.log.delete_first()
    kept = {key: m for key, m in stored.items() if m.phy_offset >= store.log.min_phy_offset}
    firsts = {key[:2]: min(k[2] for k in kept if k[:2] == key[:2]) for key in kept}
    store.close()
    if not has_snapshot:
        (root / "consumequeue.snapshot").unlink()
    begin, raw = EXPIRED_LOG[damage]
    for (topic, queue_id), first in firsts.items():
        for at, byte in enumerate(raw, first * UNIT_BYTES + begin):
            start = at - at % (QUEUE_FILE_UNITS * UNIT_BYTES)
            with (root / "consumequeue" / topic / str(queue_id) / f"{start:020d}").open("r+b") as file:
                file.seek(at - start)
                file.write(bytes([byte]))
    store = open_store(root, kernel)
    for (topic, queue_id), first in firsts.items():
        assert store.min_offset_in_queue(topic, queue_id) <= first
    assert consume(store) == {key: message.number for key, message in kept.items()}
    store.close()


@pytest.mark.parametrize("damage", ["20 random units", "random", "zeros", "cut short", "removed"])
def test_a_consume_queue_that_is_damaged_in_use_skips_nothing(
    root: Path, stored: dict[Key, Stored], kernel: Kernel | None, damage: str
) -> None:
    """Also units that this process wrote itself."""
    shutil.rmtree(root)
    store = open_store(root, kernel)
    put_numbered(store, 0, MESSAGES)
    store.flush_derived(thorough=True)
    for path in queue_files(root):
        QUEUE_DAMAGES[damage](path)
    assert_consumed(store, stored, set())
    store.close()


def test_pulls_from_the_middle_of_a_damaged_queue_are_served(root: Path, stored: dict[Key, Stored]) -> None:
    for path in queue_files(root):
        random_file(path)
    store = open_store(root)
    for queue_offset in (125, 60, 61, 30, 149):
        result = store.get_message("orders", 1, queue_offset, 1)
        (message,) = decode_records(b"".join(result.buffers))
        assert number_of(message.body) == stored["orders", 1, queue_offset].number
    store.close()


def test_a_queue_that_was_deleted_and_made_anew_is_rebuilt_without_what_was_before(folder: Path) -> None:
    """The log still has the records of the deleted topic, with the same offsets."""
    store = open_store(folder / "store")
    put_numbered(store, 0, 200)
    store.delete_topic("orders")
    put_numbered(store, 200, 100)
    store.close()
    for path in queue_files(folder / "store"):
        random_file(path)
    store = open_store(folder / "store")
    consumed = consume(store)
    assert [number for key, number in consumed.items() if key[0] == "orders"] == [
        number for queue_id in range(QUEUES) for number in range(200, 300) if number % 4 == 2 * queue_id
    ]
    assert sum(key[0] == "logs" for key in consumed) == 150
    store.close()


def test_tag_filters_see_what_the_records_say(root: Path, stored: dict[Key, Stored]) -> None:
    for path in queue_files(root):
        random_units(path)
    store = open_store(root)
    wanted = tags_code("t1")
    found: list[int] = []
    at = 0
    while at < store.max_offset_in_queue("logs", 0):
        result = store.get_message("logs", 0, at, 32, tags_filter=lambda code: code == wanted)
        found += [number_of(message.body) for message in decode_records(b"".join(result.buffers))]
        at = result.next_begin_offset
    expected = [m.number for key, m in stored.items() if key[:2] == ("logs", 0) and m.number % 3 == 1]
    assert found == expected
    store.close()


def both(root: Path) -> Iterator[Stretch]:
    for path in queue_files(root):
        random_units(path)
    yield overwrite(root, 35_000, RANDOM)
    yield overwrite(root, 100_000, ZEROS)


def test_log_and_queues_damaged_together(
    root: Path, stored: dict[Key, Stored], kernel: Kernel | None, caplog: pytest.LogCaptureFixture
) -> None:
    lost = hit(stored, list(both(root)))
    store = open_store(root, kernel)
    assert_consumed(store, stored, lost)
    assert named_as_lost(caplog) == lost
    store.close()


# -- the index -----------------------------------------------------------------------------------

FIRST_ENTRY = 40 + INDEX_SLOTS * 4 + 20


def overwrite_bytes(path: Path, position: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(raw)


def random_slots(path: Path) -> None:
    rand = random.Random(path.name)
    slots = [rand.randrange(0, 100).to_bytes(4, "big") for _ in range(INDEX_SLOTS)]
    overwrite_bytes(path, 40, b"".join(slots))


def zero_slots(path: Path) -> None:
    overwrite_bytes(path, 40, bytes(4 * INDEX_SLOTS))


def random_entries(path: Path) -> None:
    rand = random.Random(path.name)
    for index in rand.sample(range(100), 15):
        overwrite_bytes(path, FIRST_ENTRY + index * 20, rand.randbytes(20))


def wrong_links(path: Path) -> None:
    for index in range(10, 100, 7):
        overwrite_bytes(path, FIRST_ENTRY + index * 20 + 16, (index // 2).to_bytes(4, "big"))


def wrong_hashes(path: Path) -> None:
    for index in range(10, 100, 7):
        overwrite_bytes(path, FIRST_ENTRY + index * 20, (index * 7919).to_bytes(4, "big"))


def wrong_times(path: Path) -> None:
    overwrite_bytes(path, 0, (1 << 50).to_bytes(8, "big") * 2)


INDEX_DAMAGES: dict[str, Callable[[Path], None]] = {
    "slots of zeros": zero_slots,
    "random slots": random_slots,
    "random entries": random_entries,
    "wrong links": wrong_links,
    "wrong hashes": wrong_hashes,
    "wrong times in the header": wrong_times,
    "random": random_file,
    "zeros": zero_file,
    "cut short": lambda path: os.truncate(path, 777),
    "removed": Path.unlink,
}


def assert_found(store: MessageStore, count: int = MESSAGES) -> None:
    for number in range(count):
        found = store.query_message(TOPICS[number % 2], f"ID{number}", 10, 0, 1 << 60)
        assert [message.msg_id for message in found] == [f"ID{number}"]


@pytest.mark.parametrize("which", [slice(0, 1), slice(None)], ids=["first file", "all files"])
@pytest.mark.parametrize("damage", INDEX_DAMAGES)
def test_a_damaged_index_finds_every_message(
    root: Path, damage: str, which: slice, caplog: pytest.LogCaptureFixture
) -> None:
    paths = sorted((root / "index").iterdir())
    assert len(paths) > 3
    for path in paths[which]:
        INDEX_DAMAGES[damage](path)
    store = open_store(root)
    put_numbered(store, MESSAGES, 20)
    assert_found(store, MESSAGES + 20)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING], "damage was not reported"
    store.close()
    report = check_store(Files(), root)
    assert report.ok, report.as_json()


def test_an_index_whose_records_are_gone_is_built_again_at_the_next_start(
    root: Path, stored: dict[Key, Stored], caplog: pytest.LogCaptureFixture
) -> None:
    paths = sorted((root / "index").iterdir())
    stretch = overwrite(root, 15_000, ZEROS)
    lost = {stored[key].number for key in hit(stored, [stretch])}
    random_entries(paths[0])
    for _ in range(2):
        store = open_store(root)
        found = {
            number
            for number in range(MESSAGES)
            if store.query_message(TOPICS[number % 2], f"ID{number}", 10, 0, 1 << 60)
        }
        store.close()
    assert found == set(range(MESSAGES)) - lost
    assert "queries by key may miss messages until the next start" in caplog.text
