"""FaultyFiles: what a power loss leaves of files and names that were not synced."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kourou.store.disk.files import Files, OpenFile
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from kourou.testing.survival import Survival, drop_all, keep_all

PAGE_BYTES = 4096
SEEDS = range(200)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


def put(files: Files, path: Path, content: bytes) -> OpenFile:
    """A file whose name and content are on disk."""
    file = files.open(path, create=True)
    file.pwrite(content, 0)
    file.sync()
    files.sync_folder(path.parent)
    return file


def tree(folder: Path) -> dict[str, bytes | None]:
    """Names and contents below a folder; None for folders."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def outcomes(
    tmp_path: Path, prepare: Callable[[FaultyFiles, Path], object], seeds: Sequence[int] = SEEDS
) -> list[dict[str, bytes | None]]:
    """The tree after each of many power losses at the end of the same work."""
    found = []
    for seed in seeds:
        files, folder = FaultyFiles(), tmp_path / str(seed)
        folder.mkdir()
        prepare(files, folder)
        files.crash(seed)
        found.append(tree(folder))
    return found


# ── content ──────────────────────────────────────────────────────────────────────────────────


def test_unsynced_writes_are_dropped_or_kept(files: FaultyFiles, tmp_path: Path) -> None:
    for survival, expected in ((drop_all, b"old"), (keep_all, b"new")):
        put(files, tmp_path / "a", b"old").pwrite(b"new", 0)
        assert files.unsynced_paths() == [tmp_path / "a"]
        files.crash(survival)
        assert files.read(tmp_path / "a") == expected
        assert files.unsynced_paths() == []


def test_what_was_synced_stays(files: FaultyFiles, tmp_path: Path) -> None:
    file = put(files, tmp_path / "a", b"one")
    file.pwrite(b"two", 3)
    file.sync()
    file.pwrite(b"three", 6)
    files.crash(drop_all)
    assert files.read(tmp_path / "a") == b"onetwo"


@pytest.mark.parametrize("sector_bytes", [512, 4096])
def test_a_write_is_torn_at_sectors(files: FaultyFiles, tmp_path: Path, sector_bytes: int) -> None:
    put(files, tmp_path / "a", b"o" * 4 * PAGE_BYTES).pwrite(b"n" * (4 * PAGE_BYTES - 200), 100)
    turns = iter(range(1000))
    files.crash(lambda times: next(turns) % 2, sector_bytes=sector_bytes)
    found = files.read(tmp_path / "a")
    kinds = [set(found[at : at + sector_bytes]) for at in range(0, len(found), sector_bytes)]
    assert kinds[1:-1] == [{ord("on"[index % 2])} for index in range(1, len(kinds) - 1)]


def test_a_later_write_may_be_on_disk_without_an_earlier_one(files: FaultyFiles, tmp_path: Path) -> None:
    file = put(files, tmp_path / "a", b"-" * 2 * PAGE_BYTES)
    file.pwrite(b"first", 0)
    file.pwrite(b"second", PAGE_BYTES)
    sectors = iter(["first", "second"])
    files.crash(lambda times: len(times) if next(sectors) == "second" else 0)
    found = files.read(tmp_path / "a")
    assert (found[:5], found[PAGE_BYTES : PAGE_BYTES + 6]) == (b"-----", b"second")


def test_seeds_drop_keep_tear_and_reorder(tmp_path: Path) -> None:
    def work(files: FaultyFiles, folder: Path) -> None:
        file = put(files, folder / "a", b"-" * 2 * PAGE_BYTES)
        file.pwrite(b"1" * PAGE_BYTES, 0)
        file.pwrite(b"2" * PAGE_BYTES, PAGE_BYTES)

    halves = [
        (set(found["a"][:PAGE_BYTES]), set(found["a"][PAGE_BYTES:]))
        for found in outcomes(tmp_path, work)
        if found["a"] is not None
    ]
    assert (set(b"-"), set(b"-")) in halves
    assert (set(b"1"), set(b"2")) in halves
    assert (set(b"1"), set(b"-")) in halves
    assert (set(b"-"), set(b"2")) in halves
    assert (set(b"1-"), set(b"-")) in halves
    assert (set(b"1"), set(b"2-")) in halves


def test_a_seed_gives_the_same_loss_again(tmp_path: Path) -> None:
    def work(files: FaultyFiles, folder: Path) -> None:
        chance = random.Random(5)
        file = put(files, folder / "a", bytes(8 * PAGE_BYTES))
        for _ in range(50):
            file.pwrite(chance.randbytes(700), chance.randrange(7 * PAGE_BYTES))
        files.replace(folder / "b", b"b")
        files.open(folder / "c", create=True).pwrite(b"c", 0)

    (tmp_path / "first").mkdir()
    (tmp_path / "again").mkdir()
    first = outcomes(tmp_path / "first", work, range(40))
    assert first == outcomes(tmp_path / "again", work, range(40))
    assert len({found["a"] for found in first}) > 20


@pytest.mark.parametrize("seed", range(40))
def test_each_sector_is_as_it_was_at_some_time_since_the_sync(
    files: FaultyFiles, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    size_bytes = 5 * PAGE_BYTES + 123
    file = put(files, tmp_path / "a", chance.randbytes(size_bytes))
    states = [file.pread(size_bytes, 0)]
    for _ in range(30):
        if chance.random() < 0.1:
            file.sync()
            states.clear()
        else:
            position = chance.randrange(size_bytes)
            file.pwrite(chance.randbytes(min(chance.choice((3, 300, 9000)), size_bytes - position)), position)
        states.append(file.pread(size_bytes, 0))
    files.crash(seed)
    found = files.read(tmp_path / "a")
    assert len(found) == size_bytes
    sector_bytes = 512 if seed % 2 else 4096
    for at in range(0, size_bytes, sector_bytes):
        assert found[at : at + sector_bytes] in {state[at : at + sector_bytes] for state in states}


# ── length ───────────────────────────────────────────────────────────────────────────────────


def test_a_longer_file_is_short_again(files: FaultyFiles, tmp_path: Path) -> None:
    for grow in (
        lambda file: file.pwrite(b"x" * 10000, 1),
        lambda file: file.set_length(10000),
        lambda file: file.preallocate(10000),
    ):
        grow(put(files, tmp_path / "a", b"old"))
        files.crash(drop_all)
        assert files.read(tmp_path / "a") == b"old"


def test_the_length_may_be_there_and_the_content_not(tmp_path: Path) -> None:
    def work(files: FaultyFiles, folder: Path) -> None:
        put(files, folder / "a", b"").pwrite(b"x" * 1024, 0)

    found = [state["a"] for state in outcomes(tmp_path, work)]
    assert {b"", b"x" * 1024, bytes(1024), b"x" * 512 + bytes(512)} <= set(found)


def test_what_was_cut_off_comes_back(files: FaultyFiles, tmp_path: Path) -> None:
    content = bytes(range(256)) * 64
    file = put(files, tmp_path / "a", content)
    file.set_length(100)
    file.pwrite(b"new", 100)
    file.set_length(20000)
    files.crash(drop_all)
    assert files.read(tmp_path / "a") == content


def test_a_cut_that_is_kept_leaves_nothing_behind_it(files: FaultyFiles, tmp_path: Path) -> None:
    file = put(files, tmp_path / "a", b"o" * 9000)
    file.set_length(100)
    file.set_length(9000)
    files.crash(keep_all)
    assert files.read(tmp_path / "a") == b"o" * 100 + bytes(8900)


def test_holes_stay_holes(files: FaultyFiles, tmp_path: Path) -> None:
    file = put(files, tmp_path / "a", b"")
    file.set_length(1 << 30)
    file.sync()
    file.pwrite(b"x", 1 << 29)
    files.crash(keep_all)
    with files.open(tmp_path / "a") as file:
        assert file.length() == 1 << 30
        assert file.pread(1, 1 << 29) == b"x"
    assert (tmp_path / "a").stat().st_blocks * 512 < 1 << 20


def test_a_map_of_before_does_not_die_with_the_file(files: FaultyFiles, tmp_path: Path) -> None:
    file = put(files, tmp_path / "a", b"old")
    file.set_length(3 * PAGE_BYTES)
    file.pwrite(b"new", 2 * PAGE_BYTES)
    view = file.map_readonly(3 * PAGE_BYTES)
    files.crash(drop_all)
    assert view[2 * PAGE_BYTES : 2 * PAGE_BYTES + 3] == b"new"
    assert files.read(tmp_path / "a") == b"old"
    view.close()


# ── a sync that fails ────────────────────────────────────────────────────────────────────────


def test_a_second_sync_does_not_save_what_the_first_failed_to(files: FaultyFiles, tmp_path: Path) -> None:
    file = put(files, tmp_path / "a", b"-" * 3 * PAGE_BYTES)
    file.pwrite(b"lost", 0)
    files.fail("sync")
    with pytest.raises(OSError):
        file.sync()
    file.pwrite(b"kept", PAGE_BYTES)
    file.sync()
    assert file.pread(4, 0) == b"lost"
    assert files.unsynced_paths() == [tmp_path / "a"]
    files.crash(drop_all)
    found = files.read(tmp_path / "a")
    assert (found[:4], found[PAGE_BYTES : PAGE_BYTES + 4]) == (b"----", b"kept")


def test_writing_the_page_again_saves_it(files: FaultyFiles, tmp_path: Path) -> None:
    file = put(files, tmp_path / "a", b"-" * PAGE_BYTES)
    file.pwrite(b"one", 0)
    files.fail("sync")
    with pytest.raises(OSError):
        file.sync()
    file.pwrite(b"two", 10)
    file.sync()
    file.pwrite(b"three", 20)
    files.crash(drop_all)
    assert files.read(tmp_path / "a")[:30] == b"one-------two-----------------"


def test_what_was_synced_behind_a_failed_sync_is_not_undone(files: FaultyFiles, tmp_path: Path) -> None:
    file = put(files, tmp_path / "a", b"-" * 2 * PAGE_BYTES)
    file.pwrite(b"lost", 0)
    files.fail("sync")
    with pytest.raises(OSError):
        file.sync()
    for content in (b"one", b"two"):
        file.pwrite(content, PAGE_BYTES)
        file.sync()
    file.pwrite(b"three", PAGE_BYTES + 10)
    files.crash(lambda times: min(1, len(times)))
    assert files.read(tmp_path / "a")[PAGE_BYTES : PAGE_BYTES + 15] == b"two-------three"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_power_that_goes_during_a_sync_may_lose_all_of_it(
    files: FaultyFiles, tmp_path: Path, kind: str
) -> None:
    file = put(files, tmp_path / "a", b"old")
    file.pwrite(b"new", 0)
    files.rename(tmp_path / "a", tmp_path / "b")
    files.crash_at(1)
    with pytest.raises(SimulatedCrash):
        if kind == "file":
            file.sync()
        else:
            files.sync_folder(tmp_path)
    files.crash(drop_all)
    assert tree(tmp_path) == {"a": b"old"}


# ── names ────────────────────────────────────────────────────────────────────────────────────


def test_a_new_file_is_gone_with_all_that_was_synced_in_it(files: FaultyFiles, tmp_path: Path) -> None:
    for survival, expected in ((drop_all, {}), (keep_all, {"a": b"content"})):
        with files.open(tmp_path / "a", create=True) as file:
            file.pwrite(b"content", 0)
            file.sync()
        files.crash(survival)
        assert tree(tmp_path) == expected


def test_a_new_folder_is_gone_with_all_in_it(files: FaultyFiles, tmp_path: Path) -> None:
    files.make_folder(tmp_path / "a" / "b")
    put(files, tmp_path / "a" / "b" / "file", b"content")
    files.sync_folder(tmp_path / "a")
    assert files.unsynced_paths() == [tmp_path / "a"]
    files.crash(drop_all)
    assert tree(tmp_path) == {}
    files.make_folder(tmp_path / "a" / "b")
    put(files, tmp_path / "a" / "b" / "file", b"content")
    files.sync_folder(tmp_path / "a")
    files.sync_folder(tmp_path)
    files.crash(drop_all)
    assert tree(tmp_path) == {"a": None, "a/b": None, "a/b/file": b"content"}


def test_a_rename_is_lost(files: FaultyFiles, tmp_path: Path) -> None:
    put(files, tmp_path / "new", b"new").close()
    put(files, tmp_path / "main", b"old").close()
    files.rename(tmp_path / "new", tmp_path / "main")
    assert tree(tmp_path) == {"main": b"new"}
    files.crash(drop_all)
    assert tree(tmp_path) == {"main": b"old", "new": b"new"}
    files.rename(tmp_path / "new", tmp_path / "main")
    files.sync_folder(tmp_path)
    files.crash(drop_all)
    assert tree(tmp_path) == {"main": b"new"}


def test_unsynced_content_goes_with_the_name(files: FaultyFiles, tmp_path: Path) -> None:
    file = put(files, tmp_path / "a", b"old")
    file.pwrite(b"new", 0)
    files.rename(tmp_path / "a", tmp_path / "b")
    files.sync_folder(tmp_path)
    files.crash(drop_all)
    assert tree(tmp_path) == {"b": b"old"}


def test_a_folder_takes_its_files_along(files: FaultyFiles, tmp_path: Path) -> None:
    files.make_folder(tmp_path / "a")
    put(files, tmp_path / "a" / "file", b"old").pwrite(b"new", 0)
    files.sync_folder(tmp_path)
    files.rename(tmp_path / "a", tmp_path / "b")
    assert tree(tmp_path) == {"b": None, "b/file": b"new"}
    files.crash(drop_all)
    assert tree(tmp_path) == {"a": None, "a/file": b"old"}


def test_a_rename_between_folders_needs_both_synced(files: FaultyFiles, tmp_path: Path) -> None:
    for name in ("a", "b"):
        files.make_folder(tmp_path / name)
    files.sync_folder(tmp_path)
    put(files, tmp_path / "a" / "file", b"content").close()
    files.rename(tmp_path / "a" / "file", tmp_path / "b" / "file")
    files.sync_folder(tmp_path / "b")
    files.crash(drop_all)
    assert tree(tmp_path) == {"a": None, "a/file": b"content", "b": None}


def test_a_removed_file_comes_back(files: FaultyFiles, tmp_path: Path) -> None:
    files.make_folder(tmp_path / "a")
    files.sync_folder(tmp_path)
    file = put(files, tmp_path / "a" / "file", b"old")
    file.pwrite(b"new", 0)
    files.remove_tree(tmp_path / "a")
    assert tree(tmp_path) == {}
    files.crash(drop_all)
    assert tree(tmp_path) == {"a": None, "a/file": b"old"}
    files.remove_tree(tmp_path / "a")
    files.crash(keep_all)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("survival", [drop_all, *range(20)])
def test_a_removed_folder_takes_what_happened_in_it_along(
    files: FaultyFiles, tmp_path: Path, survival: int | Survival
) -> None:
    files.make_folder(tmp_path / "folder")
    files.sync_folder(tmp_path)
    put(files, tmp_path / "folder" / "a", b"a").close()
    files.remove_tree(tmp_path / "folder")
    files.sync_folder(tmp_path)
    files.make_folder(tmp_path / "folder")
    files.sync_folder(tmp_path)
    files.crash(survival)
    assert tree(tmp_path) == {"folder": None}


def test_names_survive_in_any_order_except_that_a_file_needs_its_folder(tmp_path: Path) -> None:
    def work(files: FaultyFiles, folder: Path) -> None:
        files.make_folder(folder / "a")
        files.open(folder / "a" / "file", create=True).close()
        files.open(folder / "b", create=True).close()

    found = {tuple(state) for state in outcomes(tmp_path, work)}
    assert found == {(), ("a",), ("b",), ("a", "b"), ("a", "a/file"), ("a", "a/file", "b")}


def test_a_new_lock_file_may_vanish(files: FaultyFiles, tmp_path: Path) -> None:
    files.lock(tmp_path / "lock")
    files.crash(drop_all)
    assert tree(tmp_path) == {}


# ── all of it ────────────────────────────────────────────────────────────────────────────────


def random_work(files: FaultyFiles, folder: Path, chance: random.Random) -> None:
    """Writes, cuts, renames, removals in two folders, none of it synced."""
    names = [folder / sub / name for sub in ("x", "y") for name in "abc"]
    for sub in ("x", "y"):
        files.make_folder(folder / sub)
    for _ in range(40):
        path, other = chance.sample(names, 2)
        if not files.exists(path) or chance.random() < 0.6:
            with files.open(path, create=True) as file:
                file.pwrite(chance.randbytes(chance.choice((10, 5000))), chance.randrange(6000))
                if chance.random() < 0.3:
                    file.set_length(chance.randrange(9000))
        elif chance.random() < 0.5:
            files.rename(path, other)
        else:
            files.remove(path)


def sync_all(files: FaultyFiles, folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            files.sync_folder(path)
        else:
            with files.open(path) as file:
                file.sync()


@pytest.mark.parametrize("seed", range(30))
def test_with_everything_synced_a_crash_changes_nothing(
    files: FaultyFiles, tmp_path: Path, seed: int
) -> None:
    random_work(files, tmp_path, random.Random(seed))
    sync_all(files, tmp_path)
    before = tree(tmp_path)
    assert files.unsynced_paths() == []
    files.crash(seed)
    assert tree(tmp_path) == before
    files.crash(drop_all)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("seed", range(30))
def test_dropping_all_goes_back_to_the_last_sync(files: FaultyFiles, tmp_path: Path, seed: int) -> None:
    random_work(files, tmp_path, random.Random(seed))
    sync_all(files, tmp_path)
    before = tree(tmp_path)
    random_work(files, tmp_path, random.Random(seed + 1000))
    assert tree(tmp_path) != before
    files.crash(drop_all)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("seed", range(30))
def test_keeping_all_changes_nothing(files: FaultyFiles, tmp_path: Path, seed: int) -> None:
    random_work(files, tmp_path, random.Random(seed))
    before = tree(tmp_path)
    files.crash(keep_all)
    assert tree(tmp_path) == before


def replaced_at_every_step(
    tmp_path: Path, replace: Callable[[Files, Path], None], survivals: Sequence[int | Survival]
) -> set[tuple[bytes | None, bytes | None]]:
    """Content of file and backup after a crash at each change within `replace`, which puts b"new"."""
    found = set()
    for at in range(1, 12):
        for number, survival in enumerate(survivals):
            files, folder = FaultyFiles(), tmp_path / f"{at}-{number}"
            folder.mkdir()
            put(files, folder / "file", b"old").close()
            files.crash_at(at)
            try:
                replace(files, folder / "file")
            except SimulatedCrash:
                pass
            files.crash(survival)
            state = tree(folder)
            found.add((state.get("file"), state.get("file.bak")))
    return found


def test_replace_leaves_old_or_new_whenever_the_machine_stops(tmp_path: Path) -> None:
    def replace(files: Files, path: Path) -> None:
        files.replace(path, b"new", backup=path.with_name("file.bak"))

    found = replaced_at_every_step(tmp_path, replace, [drop_all, keep_all, *range(30)])
    assert found == {(b"old", None), (None, b"old"), (b"new", b"old")}


def test_a_replace_without_sync_is_found_out(tmp_path: Path) -> None:
    def replace(files: Files, path: Path) -> None:
        with files.open(path.with_name("temporary"), create=True) as file:
            file.pwrite(b"new", 0)
        files.rename(path.with_name("temporary"), path)
        files.sync_folder(path.parent)

    found = replaced_at_every_step(tmp_path, replace, [drop_all, keep_all])
    assert (b"", None) in found
