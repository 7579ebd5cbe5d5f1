"""The files of a store and its sizes, derived from the files; and folders that are not a store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kourou.errors import StorageError, StoreFormatError
from kourou.store.disk.files import Files
from kourou.store.store_layout import find_layout, index_layout
from tests.golden.stores import (
    COMMIT_LOG_FILE_BYTES,
    CONSUME_QUEUE_FILE_BYTES,
    INDEX_ENTRIES,
    INDEX_SLOTS,
    VERSIONS,
    extract_store,
    manifest,
)


@pytest.mark.parametrize("version", VERSIONS)
def test_sizes_are_those_the_broker_had(version: str, tmp_path: Path) -> None:
    layout = find_layout(Files(), extract_store(version, tmp_path))
    assert layout.log_file_bytes == COMMIT_LOG_FILE_BYTES
    assert layout.queue_file_bytes == CONSUME_QUEUE_FILE_BYTES
    assert layout.index_file_bytes is not None
    shape = index_layout(layout.index_file_bytes)
    assert shape is not None and (shape.slot_count, shape.entry_count) == (INDEX_SLOTS, INDEX_ENTRIES)
    assert layout.has_abort == (version == "4.9.7-crash") and not layout.foreign
    assert len(layout.queues) == len(manifest(version)["consumeQueues"])


def test_the_length_that_most_files_have_is_the_size(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    for start, length in ((0, 100), (100, 100), (200, 40)):
        (folder / f"{start:020d}").write_bytes(bytes(length))
    assert find_layout(Files(), tmp_path).log_file_bytes == 100
    (folder / f"{0:020d}").unlink()
    assert find_layout(Files(), tmp_path).log_file_bytes == 100, "of two, the one that was not cut"


@pytest.mark.parametrize(
    ("length", "slots", "expected"),
    [
        (420_000_040, None, (5_000_000, 20_000_000)),
        (40 + 84, None, (1, 4)),
        (40 + 84 + 4, None, None),
        (40 + 500 * 4 + 4000 * 20, 500, (500, 4000)),
        (40 + 500 * 4 + 4000 * 20, 499, None),
        (40, None, None),
        (0, None, None),
        (420_000_040, 200_000_000, None),
    ],
)
def test_slots_and_entries_follow_from_the_length(
    length: int, slots: int | None, expected: tuple[int, int] | None
) -> None:
    layout = index_layout(length, slots)
    assert expected == (None if layout is None else (layout.slot_count, layout.entry_count))


def test_a_folder_that_is_not_there_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError, match="nothing: there is no such folder$"):
        find_layout(Files(), tmp_path / "nothing")


def test_a_file_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(StoreFormatError, match="file: it is a file; give the folder that holds `commitlog`$"):
        find_layout(Files(), path)


def test_a_folder_with_other_things_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(StoreFormatError, match="not a store: it has no folder `commitlog`$"):
        find_layout(Files(), tmp_path)


def test_the_folder_above_a_store_says_where_the_store_is(tmp_path: Path) -> None:
    root = extract_store("4.9.7", tmp_path)
    with pytest.raises(StoreFormatError, match=f"not a store: did you mean {root}\\?$"):
        find_layout(Files(), tmp_path)


def test_a_commit_log_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError, match="gone: there is no such folder for the CommitLog$"):
        find_layout(Files(), tmp_path, [tmp_path / "gone"])


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    class Refusing(Files):
        def list_names(self, path: Path) -> list[str]:
            if path.name == "consumequeue":
                raise PermissionError(13, "Permission denied", str(path))
            return super().list_names(path)

    root = extract_store("4.9.7", tmp_path)
    with pytest.raises(StorageError, match="consumequeue: cannot be read: Permission denied$"):
        find_layout(Refusing(), root)


def test_files_that_a_broker_deletes_meanwhile_are_left_out(tmp_path: Path) -> None:
    root = extract_store("4.9.7", tmp_path)
    whole = find_layout(Files(), root)

    class Deleting(Files):
        def list_names(self, path: Path) -> list[str]:
            names = super().list_names(path)
            if path.name in ("commitlog", "index"):
                (path / names[0]).unlink()
            return names

    layout = find_layout(Deleting(), root)
    assert layout.log_files == whole.log_files[1:] and layout.index_files == whole.index_files[1:]


def test_a_store_that_was_only_opened_is_one(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("lock")
    layout = find_layout(Files(), tmp_path)
    assert layout.log_files == [] and layout.log_file_bytes is None and layout.queues == {}


def test_a_store_without_queues_and_index_has_no_sizes_for_them(tmp_path: Path) -> None:
    root = extract_store("4.9.7", tmp_path)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    layout = find_layout(Files(), root)
    assert layout.queue_file_bytes is None and layout.index_file_bytes is None
