"""link_entries: the kernel chains index entries as numpy does, and nothing outside the arrays is touched."""

from __future__ import annotations

import errno
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.store.index.index_entry import IndexBatch, IndexHeader, IndexLayout
from kourou.store.index.index_file import IndexFile
from kourou.store.index.index_slots import SlotTable
from kourou.store.kernel import Kernel
from kourou.testing.faulty_files import FaultyFiles

NOW_MS = 1_700_000_000_000


def contents(table: SlotTable) -> tuple[list[int], list[bool]]:
    return table._values.tolist(), table._dirty.tolist()


@given(
    slots=st.sampled_from([1, 2, 7, 1_013, 1_014, 1_015, 3_000]),
    runs=st.lists(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=30), max_size=4),
)
def test_entries_are_chained_as_without_the_kernel(
    kernel: ModuleType, slots: int, runs: list[list[int]]
) -> None:
    plain, compiled = SlotTable(slots), SlotTable(slots)
    index = 1
    for run in runs:
        hashes = np.array(run, np.int32)
        prev_indexes = compiled.add(hashes, index, cast(Kernel, kernel))
        assert prev_indexes.tolist() == plain.add(hashes, index).tolist()
        index += len(run)
    assert contents(compiled) == contents(plain)


def int32(*numbers: int) -> bytes:
    return np.array(numbers, np.int32).tobytes()


@pytest.mark.parametrize(
    "arguments",
    [
        (int32(1), bytearray(), bytearray(9), 1, 0, 1024),
        (int32(1), bytearray(4 * 1024 - 1), bytearray(9), 1, 0, 1024),
        (int32(1)[1:], bytearray(4 * 1024), bytearray(9), 1, 0, 1024),
        (int32(1), bytearray(4 * 1025), bytearray(1), 1, 0, 1024),
        (int32(1), bytearray(4 * 1015), bytearray(1), 1, 10, 1024),
        (int32(1), bytearray(4 * 8), bytearray(9), 1, -1, 1024),
        (int32(1), bytearray(4 * 8), bytearray(9), 1, (1 << 63) - 8, 1024),
        (int32(1), bytearray(4 * 8), bytearray(9), 1, 0, 0),
        (int32(1), bytearray(4 * 8), bytearray(9), 0, 0, 1024),
        (int32(1), bytearray(4 * 8), bytearray(9), (1 << 31) - 1, 0, 1024),
    ],
)
def test_what_does_not_fit_is_refused(kernel: ModuleType, arguments: tuple[Any, ...]) -> None:
    _, values, dirty = (bytes(each) for each in arguments[:3])
    with pytest.raises(ValueError, match="do not fit"):
        kernel.link_entries(*arguments)
    assert (bytes(arguments[1]), bytes(arguments[2])) == (values, dirty)


@pytest.mark.parametrize(("slots", "shift", "blocks"), [(1024, 0, 1), (1014, 10, 1), (1015, 10, 2)])
def test_arrays_that_just_fit_are_taken(kernel: ModuleType, slots: int, shift: int, blocks: int) -> None:
    values, dirty = bytearray(4 * slots), bytearray(blocks)
    assert kernel.link_entries(int32(slots - 1), values, dirty, (1 << 31) - 2, shift, 1024) == int32(0)
    assert values[-4:] == int32((1 << 31) - 2) and dirty[-1] == 1


@pytest.mark.parametrize("is_read_only", [0, 1])
def test_arrays_have_to_be_writable(kernel: ModuleType, is_read_only: int) -> None:
    arrays: list[bytes | bytearray] = [bytearray(4 * 8), bytearray(9)]
    arrays[is_read_only] = bytes(arrays[is_read_only])
    with pytest.raises(TypeError):
        kernel.link_entries(int32(1), *arrays, 1, 0, 1024)


@pytest.mark.parametrize("has_kernel", [True, False])
def test_entries_that_cannot_be_written_are_taken_back(
    kernel: ModuleType, tmp_path: Path, has_kernel: bool
) -> None:
    files = FaultyFiles()
    index_file = IndexFile.create(files, tmp_path / "index", IndexLayout(10, 100), IndexHeader())

    def batch(*hashes: int) -> IndexBatch:
        ones = np.ones(len(hashes), np.int64)
        return IndexBatch(np.array(hashes, np.int32), ones * 100, ones * NOW_MS)

    compiled = cast(Kernel, kernel) if has_kernel else None
    index_file.append(batch(3, 13, 4), compiled)
    before = index_file._load_slots()._values.tolist()
    files.fail("pwrite", error=errno.ENOSPC, written_bytes=30)
    with pytest.raises(OSError, match="No space"):
        index_file.append(batch(23, 4, 5), compiled)
    assert index_file._load_slots()._values.tolist() == before
    assert index_file.append(batch(23, 4, 5), compiled) == 3
    index_file.close()
