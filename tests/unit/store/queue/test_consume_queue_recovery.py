"""What a ConsumeQueue makes of its files after a restart: whole, cut, damaged, missing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kourou.errors import StoreFormatError
from kourou.store.disk.files import Files
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.queue.cq_unit import BLANK_UNIT, UNIT
from kourou.store.queue.queue_recovery import sound_units, used_units
from tests.unit.store.consume_queue_kit import (
    FILE_BYTES,
    Unit,
    append,
    message,
    names,
    open_queues,
    queue_folder,
    read_all,
    tree,
)

# More than two pages.
_LARGE_BYTES = 500 * 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A queue of 17 messages in four files, closed."""
    queues = open_queues(tmp_path)
    append(queues.get("orders", 0), 17)
    queues.flush_round(least_bytes=0)
    queues.close()
    return queue_folder(tmp_path)


def overwrite(folder: Path, number: int, *units: Unit) -> None:
    """Put other units in place of those from `number` on."""
    for at, unit in enumerate(units, number):
        with (folder / f"{at // 5 * FILE_BYTES:020d}").open("r+b") as file:
            file.seek(at % 5 * 20)
            file.write(UNIT.pack(*unit))


def assert_cut(root: Path, kept: int, *, sound: bool = False) -> None:
    """After a restart the first `kept` messages are there, on disk nothing else, and it is known."""
    queues = open_queues(root)
    queue = queues.get("orders", 0)
    assert read_all(queue) == [message(number) for number in range(kept)]
    assert queue.max_phy_offset == (kept * 10 or -1)
    assert queues.is_complete is sound
    assert queues.rebuild_phy_offset == (None if sound else kept * 10)
    on_disk = b"".join(path.read_bytes() for path in sorted(queue_folder(root).glob("*")))
    assert len(on_disk) == -(-kept // 5) * FILE_BYTES
    assert on_disk == b"".join(UNIT.pack(*message(n)) for n in range(kept)).ljust(len(on_disk), b"\0")
    # What was cut is put back from the log, and the next start finds all of it in order.
    for number in range(17):
        queue.put(number, *message(number))
    queues.flush_round(least_bytes=0)
    queues.close()
    again = open_queues(root)
    assert read_all(again.get("orders", 0)) == [message(number) for number in range(17)]
    assert again.is_complete


def test_whole_files_are_taken_as_they_are(folder: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    queues = open_queues(tmp_path)
    queue = queues.get("orders", 0)
    assert read_all(queue) == [message(number) for number in range(17)]
    assert (queue.min_queue_offset, queue.max_queue_offset, queue.next_queue_offset) == (0, 17, 17)
    assert queue.max_phy_offset == queues.max_phy_offset() == 170
    assert queues.is_complete
    assert tree(tmp_path) == before


def test_a_file_made_but_never_written_is_removed(folder: Path, tmp_path: Path) -> None:
    (folder / "00000000000000000400").write_bytes(bytes(FILE_BYTES))
    assert_cut(tmp_path, 17, sound=True)


def test_a_file_made_without_length_is_removed(folder: Path, tmp_path: Path) -> None:
    (folder / "00000000000000000400").touch()
    assert_cut(tmp_path, 17)


@pytest.mark.parametrize("number", [8, 9, 10, 14, 16])
@pytest.mark.parametrize(
    "wrong",
    [(-1, 10, 0), (1 << 62 | 1, 10, 0), (0, 0, 0), (5, -10, 0), (0, 0, 7)],
    ids=["negative", "huge", "zeros", "no size", "tags only"],
)
def test_a_unit_that_is_none_ends_the_queue(folder: Path, tmp_path: Path, number: int, wrong: Unit) -> None:
    overwrite(folder, number, wrong)
    zeros_at_the_end = number == 16 and wrong == (0, 0, 0)
    assert_cut(tmp_path, number, sound=zeros_at_the_end)


@pytest.mark.parametrize("number", [8, 9, 10, 14, 16])
def test_of_two_units_that_overlap_neither_is_believed(folder: Path, tmp_path: Path, number: int) -> None:
    overwrite(folder, number, (number * 10 - 5, 10, 0))
    assert_cut(tmp_path, number - 1)


def test_a_unit_far_ahead_is_cut_with_what_follows(folder: Path, tmp_path: Path) -> None:
    overwrite(folder, 11, (10**12, 10, 0))
    assert_cut(tmp_path, 11)


def test_old_units_behind_the_end_are_cut(folder: Path, tmp_path: Path) -> None:
    # A process that only moved its position back, as RocketMQ does, and wrote over part of it.
    overwrite(folder, 17, message(3), message(4))
    assert_cut(tmp_path, 16)


def test_a_lost_page_in_the_middle_ends_the_queue(folder: Path, tmp_path: Path) -> None:
    (folder / "00000000000000000200").write_bytes(bytes(FILE_BYTES))
    assert_cut(tmp_path, 10)


@pytest.mark.parametrize("length", [0, 1, 20, 45, 99])
def test_a_short_file_is_cut_to_whole_units(folder: Path, tmp_path: Path, length: int) -> None:
    path = folder / "00000000000000000200"
    path.write_bytes(path.read_bytes()[:length])
    assert_cut(tmp_path, 10 + length // 20)


@pytest.mark.parametrize("length", [0, 1, 20, 39, 40, 41])
def test_a_short_last_file_is_cut_to_whole_units(folder: Path, tmp_path: Path, length: int) -> None:
    path = folder / "00000000000000000300"
    path.write_bytes(path.read_bytes()[:length])
    assert_cut(tmp_path, 15 + length // 20)


@pytest.mark.parametrize("tags_code", [0, 7, -1 << 40])
@pytest.mark.parametrize("written_bytes", [4096, 8192])
def test_a_unit_whose_write_ended_with_a_page_is_cut(
    tmp_path: Path, written_bytes: int, tags_code: int
) -> None:
    """A kill, or a full disk, ends a write between two pages: the rest of the file is a hole."""
    queues = open_queues(tmp_path, file_bytes=_LARGE_BYTES)
    queue = queues.get("orders", 0)
    for number in range(450):
        queue.put(number, number * 10, 10, tags_code)
    queues.flush_round(least_bytes=0)
    queues.close()
    (path,) = queue_folder(tmp_path).glob("*")
    written = path.read_bytes()[:written_bytes]
    path.unlink()
    with path.open("wb") as file:
        file.write(written)
        file.truncate(_LARGE_BYTES)

    queues = open_queues(tmp_path, file_bytes=_LARGE_BYTES)
    kept = written_bytes // 20
    assert queues.get("orders", 0).next_queue_offset == kept
    assert queues.rebuild_phy_offset == kept * 10
    assert path.read_bytes() == written[: kept * 20].ljust(_LARGE_BYTES, b"\0")


def test_a_file_that_is_made_longer_is_reported(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be whole, and the configuration another than that it was written with."""
    path = folder / "00000000000000000300"
    path.write_bytes(path.read_bytes()[:60])
    assert_cut(tmp_path, 17)
    assert f"{path} has 60 bytes where 100 are configured" in caplog.text
    assert "another mappedFileSizeConsumeQueue?" in caplog.text
    caplog.clear()
    assert_cut(tmp_path, 17, sound=True)
    assert caplog.text == ""


def test_a_missing_file_ends_the_queue(folder: Path, tmp_path: Path) -> None:
    (folder / "00000000000000000200").unlink()
    assert_cut(tmp_path, 10)


def test_units_of_nothing_at_the_end_are_left_out(folder: Path, tmp_path: Path) -> None:
    with (folder / "00000000000000000300").open("r+b") as file:
        file.seek(40)
        file.write(BLANK_UNIT * 3)
    for start in range(400, 900, 100):
        (folder / f"{start:020d}").write_bytes(BLANK_UNIT * 5)
    assert_cut(tmp_path, 17)


def test_a_queue_without_any_message_is_empty_and_keeps_counting(tmp_path: Path) -> None:
    folder = queue_folder(tmp_path)
    folder.mkdir(parents=True)
    (folder / "00000000000000000300").write_bytes(bytes(FILE_BYTES))
    queue = open_queues(tmp_path).get("orders", 0)
    assert (queue.min_queue_offset, queue.max_queue_offset, queue.max_phy_offset) == (15, 15, -1)
    queue.append(*message(15))
    queue.flush()
    assert names(folder) == ["00000000000000000300"]
    assert open_queues(tmp_path).get("orders", 0).unit(15) == message(15)


def test_last_units_that_point_at_no_record_are_dropped(folder: Path, tmp_path: Path) -> None:
    overwrite(folder, 15, (150, 12, 0), (170, 4000, 0))
    queues = open_queues(tmp_path, load=False)
    queues.load(is_record=lambda phy_offset, size: size == 10 and phy_offset % 10 == 0)
    assert queues.get("orders", 0).max_queue_offset == 15
    assert queues.rebuild_phy_offset == 150


def test_no_last_unit_points_at_a_record(folder: Path, tmp_path: Path) -> None:
    queues = open_queues(tmp_path, load=False)
    queues.load(is_record=lambda phy_offset, size: False)
    assert queues.get("orders", 0).max_phy_offset == -1
    assert queues.rebuild_phy_offset == 0
    assert names(folder) == []


def test_read_only_finds_the_same_end_and_changes_nothing(folder: Path, tmp_path: Path) -> None:
    overwrite(folder, 11, (-1, 10, 0))
    before = tree(tmp_path)
    queues = ConsumeQueues(Files(), tmp_path / "consumequeue", FILE_BYTES, read_only=True)
    queues.load()
    assert queues.get("orders", 0).max_queue_offset == 11
    assert not queues.is_complete
    assert tree(tmp_path) == before


@pytest.mark.parametrize("file_bytes", [40, 60, 200, 6_000_000])
def test_another_file_size_is_refused_and_nothing_changed(tmp_path: Path, file_bytes: int) -> None:
    queues = open_queues(tmp_path)
    append(queues.get("a", 0), 2)  # one file: its size alone says little
    append(queues.get("orders", 0), 17)
    queues.flush_round(least_bytes=0)
    before = tree(tmp_path)
    wrong = ConsumeQueues(Files(), tmp_path / "consumequeue", file_bytes)
    with pytest.raises(StoreFormatError, match="mappedFileSizeConsumeQueue"):
        wrong.load()
    assert tree(tmp_path) == before


def test_the_loop_and_the_array_agree_on_what_is_sound() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(300):
        units, phy_offset = [], 0
        for _ in range(dice.randrange(1, 100)):
            phy_offset += dice.choice([10, 10, 10, 17])
            units.append(UNIT.pack(phy_offset, dice.randrange(1, 11), dice.randrange(-9, 9)))
        for _ in range(dice.choice([0, 0, 1, 2])):
            wrong = dice.choice(
                [(0, 0, 0), (-5, 3, 0), (1 << 62, 10, 0), (phy_offset // 2, 99, 0), (3, 2, 1)]
            )
            units[dice.randrange(len(units))] = UNIT.pack(*wrong)
        if dice.random() < 0.3:
            units[dice.randrange(len(units))] = BLANK_UNIT
        raw = b"".join(units)
        count = used_units(raw)
        # Far more blank units behind them switch to the array and change nothing.
        few = min(sound_units(raw, count), count) if count <= 64 else sound_units(raw[:1280], 64)
        many = sound_units(raw[: min(count, 64) * 20] + BLANK_UNIT * 100, min(count, 64) + 100)
        expected = min(count, 64) + 100 if few == min(count, 64) else few
        assert many == expected
