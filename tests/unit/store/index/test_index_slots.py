"""SlotTable: chains, and blocks on their way to the file and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kourou.store.disk.files import Files, OpenFile
from kourou.store.index.index_slots import SlotTable

SLOTS = 5000  # five blocks of a page, the last one not full


@pytest.fixture
def file(tmp_path: Path) -> OpenFile:
    file = Files().open(tmp_path / "index", create=True)
    file.set_length(40 + 4 * SLOTS)
    return file


def hashes(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def add(table: SlotTable, first_index: int, *key_hashes: int) -> list[int]:
    links = table.link(hashes(*key_hashes), first_index)
    table.apply(links)
    return links.prev_indexes.tolist()


def test_entries_of_one_slot_are_chained_in_their_order() -> None:
    table = SlotTable(10)
    assert add(table, 1, 3, 13, 4, 23, 3) == [0, 1, 0, 2, 4]
    assert (table[3], table[4], table[5]) == (5, 3, 0)
    assert add(table, 6, 4, 5, 33) == [3, 0, 5]
    assert (table[3], table[4], table[5]) == (8, 6, 7)


def test_linking_alone_changes_nothing() -> None:
    table = SlotTable(10)
    table.link(hashes(1, 2, 3), 1)
    assert [table[slot] for slot in range(10)] == [0] * 10
    assert not table.is_dirty


def test_entries_are_taken_back_to_what_was_before() -> None:
    table = SlotTable(10)
    add(table, 1, 3, 13, 4)
    prev_indexes = add(table, 4, 23, 5, 4, 3)
    table.unlink(hashes(23, 5, 4, 3), hashes(*prev_indexes))
    assert (table[3], table[4], table[5]) == (2, 3, 0)


def test_what_is_written_is_loaded(file: OpenFile) -> None:
    table = SlotTable(SLOTS)
    add(table, 1, 0, 1013, 1014, 3000, 4999)
    table.write(file)
    assert not table.is_dirty
    loaded = SlotTable.load(file, SLOTS, 6)
    assert [loaded[slot] for slot in (0, 1013, 1014, 3000, 4999, 1, 4998)] == [1, 2, 3, 4, 5, 0, 0]
    assert not loaded.is_dirty


def test_only_blocks_that_changed_are_written(file: OpenFile) -> None:
    table = SlotTable(SLOTS)
    add(table, 1, 1014)
    table.write(file)
    # The block is a page of the file: slots 1014 to 2037 lie in bytes 4096 to 8191.
    assert file.pread(4, 4096) == b"\x00\x00\x00\x01"
    file.pwrite(b"\xff" * 4, 40)
    add(table, 2, 2037)
    table.write(file)
    assert file.pread(4, 40) == b"\xff" * 4
    assert file.pread(4, 8188) == b"\x00\x00\x00\x02"


def test_values_that_are_no_entry_are_loaded_as_none_and_written_over(file: OpenFile) -> None:
    file.pwrite((7).to_bytes(4, "big"), 40 + 4 * 10)
    file.pwrite((6).to_bytes(4, "big"), 40 + 4 * 11)
    file.pwrite(b"\xff\xff\xff\xff", 40 + 4 * 12)
    table = SlotTable.load(file, SLOTS, 7)
    assert (table[10], table[11], table[12]) == (0, 6, 0)
    assert table.is_dirty
    table.write(file)
    assert file.pread(12, 40 + 4 * 10) == bytes(4) + (6).to_bytes(4, "big") + bytes(4)


def test_comparing_finds_every_difference(file: OpenFile) -> None:
    table = SlotTable(SLOTS)
    add(table, 1, 1, 2, 4000)
    table.write(file)
    table.compare(file)
    assert not table.is_dirty
    file.pwrite(b"\x00\x00\x00\x09", 40 + 4 * 4999)
    table.compare(file)
    assert table.is_dirty
    table.write(file)
    assert file.pread(4, 40 + 4 * 4999) == bytes(4)
