"""A store that Apache worked on since Kourou did: its part of the checkpoint counts, ours does not.

Apache's work is stood in for by our own: what follows keeps of the checkpoint only the bytes that Apache
writes, and the snapshot of the queues, which it does not know, as it was before.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.store.disk.files import DiskUsage
from kourou.store.message_store import MessageStore
from kourou.store.recovery.checkpoint import APACHE_BYTES, StoreCheckpoint
from kourou.store.retention import Retention, RetentionConfig
from kourou.store.steps import no_steps
from tests.unit.store.message_stores import LOG_FILE_BYTES, StoreKit, bodies, body_for, faulty, put

_FOR_EVER_MS = 1 << 50


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        faulty(made).usage = DiskUsage(100, 50, 50)
        yield made


def fill(kit: StoreKit, store: MessageStore, count: int, start: int = 0) -> None:
    """Numbered messages, 20 to a file of the log; the clock goes on by a second each."""
    for number in range(start, start + count):
        kit.clock.advance(ms=1000)
        key = f"KEYS\x01k{number}\x02"
        put(store, b"%03d" % number + body_for(197 - len(key)), properties=key)


def small_files(root: Path) -> dict[str, bytes]:
    return {name: (root / name).read_bytes() for name in ("checkpoint", "consumequeue.snapshot")}


def take_over(root: Path, before: dict[str, bytes]) -> None:
    """Leave the small files as Apache would have: it was at work since `before`."""
    checkpoint = (root / "checkpoint").read_bytes()[:APACHE_BYTES] + before["checkpoint"][APACHE_BYTES:]
    (root / "checkpoint").write_bytes(checkpoint)
    (root / "consumequeue.snapshot").write_bytes(before["consumequeue.snapshot"])


def numbers(store: MessageStore) -> list[int]:
    return [int(body[:3]) for body in bodies(store)]


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_log_that_grew_is_not_read_from_its_first_file(kit: StoreKit, is_clean: bool) -> None:
    store = kit.open()
    fill(kit, store, 30)
    store.close()
    before = small_files(kit.root)
    store = kit.open()
    fill(kit, store, 70, 30)
    store.close()
    take_over(kit.root, before)
    if not is_clean:
        (kit.root / "abort").touch()
    store = kit.open()
    assert store.report.clean_exit is is_clean
    assert store.report.start_phy_offset in (3 * LOG_FILE_BYTES, 4 * LOG_FILE_BYTES)
    assert numbers(store) == list(range(100))
    assert len(store.query_message("orders", "k99", 1, 0, 1 << 60)) == 1
    store = kit.reopen(store)
    assert store.report.records == 0, "the checkpoint is ours again"


def test_what_our_part_says_of_a_log_that_was_cut_since_is_not_believed(kit: StoreKit) -> None:
    """Else the end of the log would be damage, or the whole store be refused for files that are missing."""
    store = kit.open()
    fill(kit, store, 50)
    store.close()
    shutil.copytree(kit.root, kit.root.with_name("cut"))
    store = kit.open()
    fill(kit, store, 50, 50)
    store.close()
    after = small_files(kit.root)
    shutil.rmtree(kit.root)
    shutil.copytree(kit.root.with_name("cut"), kit.root)
    store = kit.open()
    fill(kit, store, 3, 50)
    store.close()
    take_over(kit.root, after)
    store = kit.open()
    assert (store.report.damages, store.report.truncated_at) == ([], None)
    assert numbers(store) == list(range(53))


def test_queue_files_that_were_deleted_since_are_not_missed(kit: StoreKit) -> None:
    store = kit.open()
    fill(kit, store, 50)
    store.close()
    before = small_files(kit.root)
    store = kit.open()
    fill(kit, store, 50, 50)
    config = RetentionConfig(file_reserved_ms=0, max_files_per_round=2)
    Retention(store, kit.files, config, lambda: no_steps(None)).run(kit.clock() + _FOR_EVER_MS, manual=True)
    assert store.log.min_phy_offset == 2 * LOG_FILE_BYTES
    store.close()
    take_over(kit.root, before)
    store = kit.open()
    assert store.queues.problems == []
    assert store.report.start_phy_offset > 2 * LOG_FILE_BYTES
    assert numbers(store) == list(range(40, 100))


def test_a_copy_that_differs_in_one_byte_is_damage(kit: StoreKit) -> None:
    store = kit.open()
    fill(kit, store, 50)
    store.close()
    path = kit.root / "checkpoint"
    raw = bytearray(path.read_bytes())
    raw[5] ^= 1
    path.write_bytes(raw)
    checkpoint = StoreCheckpoint(kit.files, path)
    checkpoint.load()
    assert (checkpoint.is_ours, checkpoint.is_taken_over) == (False, False)
    assert checkpoint.problem == "its byte 5 is damaged"
    store = kit.open()
    assert store.report.start_phy_offset == 0
    assert numbers(store) == list(range(50))
