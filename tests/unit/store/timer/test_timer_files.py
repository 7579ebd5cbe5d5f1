"""The files of the timers: wheel, log and checkpoint, byte by byte where Apache reads them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from kourou.store.disk.files import Files
from kourou.store.timer.timer_checkpoint import (
    TimerCheckpoint,
    decode_timer_checkpoint,
    load_timer_checkpoint,
    save_timer_checkpoint,
)
from kourou.store.timer.timer_log import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    TimerLog,
    TimerUnit,
    decode_unit,
)
from kourou.store.timer.timer_wheel import TIMER_WHEEL_SLOTS, Slot, TimerWheel

NOW_MS = 1_700_000_000_000
FILE_BYTES = 300  # five units and a blank


def unit(number: int, *, prev_pos: int = -1, slot_ms: int = NOW_MS + 5_000) -> TimerUnit:
    return TimerUnit(prev_pos, MAGIC_DEFAULT, NOW_MS, slot_ms - NOW_MS, 1000 * number, 100, 7)


# -- wheel -----------------------------------------------------------------------------------------


def test_a_slot_is_where_apache_looks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "timerwheel"
    wheel = TimerWheel(Files(), path, 1000)
    wheel.put(NOW_MS, Slot(52, 104, 2))
    wheel.write_pages(wheel.dirty_pages())
    raw = path.read_bytes()
    assert len(raw) == 38_707_200
    at = NOW_MS // 1000 % (2 * TIMER_WHEEL_SLOTS) * 32
    assert struct.unpack(">qqqii", raw[at : at + 32]) == (NOW_MS // 1000, 52, 104, 2, 0)
    assert raw.count(0) >= len(raw) - 32  # nothing else
    wheel.close()


def test_a_wheel_that_nothing_was_put_into_is_not_searched(tmp_path: Path) -> None:
    """Each stop of a broker without timer messages once read 37 MB of zeros."""
    wheel = TimerWheel(Files(), tmp_path / "timerwheel", 1000)
    wheel.close()  # whatever looks at the slots fails from here on
    assert wheel.first_pos(NOW_MS) is None
    assert wheel.next_ms(NOW_MS) is None
    assert not wheel.correct(NOW_MS, {}, 0)


def test_messages_are_counted_between_two_times_also_over_the_end_of_the_ring(tmp_path: Path) -> None:
    ring_ms = 2 * TIMER_WHEEL_SLOTS * 1000
    end_ms = NOW_MS // ring_ms * ring_ms + ring_ms
    wheel = TimerWheel(Files(), tmp_path / "timerwheel", 1000)
    assert wheel.count_between(end_ms - 60_000, end_ms + 60_000) == 0
    for offset_ms, num in ((-60_000, 1), (-1_000, 2), (0, 4), (30_000, 8), (60_000, 16)):
        wheel.put(end_ms + offset_ms, Slot(0, 0, num))
    wheel.put(end_ms + 10_000 - ring_ms, Slot(0, 0, 32))  # of the round before
    assert wheel.count_between(end_ms - 60_000, end_ms + 60_000) == 15
    assert wheel.count_between(end_ms - 59_000, end_ms) == 2
    assert wheel.count_between(end_ms + 60_000, end_ms + 61_000) == 16
    assert wheel.count_between(end_ms, end_ms) == 0
    wheel.close()


def test_a_wheel_is_read_again(tmp_path: Path) -> None:
    wheel = TimerWheel(Files(), tmp_path / "timerwheel", 1000)
    wheel.load()  # no file yet
    wheel.put(NOW_MS, Slot(0, 52, 2))
    wheel.put(NOW_MS + 999_000, Slot(104, 104, 1))
    wheel.write_pages(wheel.dirty_pages())
    assert not wheel.dirty_pages()
    again = TimerWheel(Files(), tmp_path / "timerwheel", 1000)
    again.load()
    assert again.slot(NOW_MS) == (0, 52, 2)
    assert again.slot(NOW_MS + 999) == (0, 52, 2)  # the same second
    assert again.slot(NOW_MS + 999_000) == (104, 104, 1)
    assert again.slot(NOW_MS + 1_000) is None
    # The ring comes round: a slot counts only for the time it says.
    assert again.slot(NOW_MS + 2 * TIMER_WHEEL_SLOTS * 1000) is None
    wheel.close()
    again.close()


@pytest.mark.parametrize(
    ("stored", "right", "is_wrong"),
    [
        ((0, 52, 2), (0, 52, 2), False),
        ((0, 52, 2), None, True),
        (None, (0, 52, 2), True),
        ((0, 0, 1), (0, 52, 2), True),
        ((0, 52, 1), (0, 52, 2), True),
        ((0, 208, 4), (0, 52, 2), False),  # behind the checkpoint, and lost with the end of the log
        ((0, 52, 2), (0, 104, 3), False),  # behind the checkpoint, and not in the wheel yet
    ],
)
def test_slots_are_corrected_by_the_log(
    tmp_path: Path, stored: tuple[int, int, int] | None, right: tuple[int, int, int] | None, is_wrong: bool
) -> None:
    wheel = TimerWheel(Files(), tmp_path / "timerwheel", 1000)
    wheel.put(NOW_MS - 1000, Slot(0, 0, 1))  # over: nothing is known of it any more
    if stored is not None:
        wheel.put(NOW_MS, Slot(*stored))
    assert wheel.correct(NOW_MS, {} if right is None else {NOW_MS: Slot(*right)}, 104) is is_wrong
    assert wheel.slot(NOW_MS) == right
    assert wheel.slot(NOW_MS - 1000) == (0, 0, 1)
    wheel.close()


def test_the_oldest_unit_that_waits(tmp_path: Path) -> None:
    wheel = TimerWheel(Files(), tmp_path / "timerwheel", 1000)
    assert wheel.first_pos(NOW_MS) is None
    wheel.put(NOW_MS - 1000, Slot(0, 0, 1))
    wheel.put(NOW_MS, Slot(104, 208, 2))
    wheel.put(NOW_MS + 9_000, Slot(52, 52, 1))
    assert wheel.first_pos(NOW_MS) == 52
    assert wheel.first_pos(NOW_MS - 1000) == 0
    assert wheel.first_pos(NOW_MS + 10_000) is None
    wheel.close()


# -- log -------------------------------------------------------------------------------------------


def test_a_unit_has_apaches_52_bytes() -> None:
    entry = TimerUnit(52, MAGIC_DEFAULT | MAGIC_ROLL | MAGIC_DELETE, NOW_MS, 3000, 4711, 200, -5)
    fields = struct.pack(">iqiqiqii", 52, 52, 7, NOW_MS, 3000, 4711, 200, -5)
    # The last eight bytes Apache writes as 0, and never reads.
    assert entry.encode() == fields + struct.pack(">II", 0x4B54, zlib.crc32(fields))
    assert (entry.is_roll, entry.is_delete, entry.slot_ms) == (True, True, NOW_MS + 3000)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_chain_goes_from_the_newest_to_the_oldest(tmp_path: Path, is_written: bool) -> None:
    log = TimerLog(Files(), tmp_path, FILE_BYTES)
    prev_pos, positions = -1, []
    for number in range(12):
        log.append(unit(100 + number, slot_ms=NOW_MS + 9_000))  # of another slot
        prev_pos = log.append(unit(number, prev_pos=prev_pos))
        positions.append(prev_pos)
    if is_written:
        log.write()
        log.close()
        end_pos = log.end_pos
        log = TimerLog(Files(), tmp_path, FILE_BYTES)
        log.load(end_pos)
    found = log.chain(positions[0], positions[-1], NOW_MS + 5_000)
    assert found is not None
    assert [each.phy_offset for each in found] == [1000 * number for number in range(12)]
    log.close()


def test_files_have_one_length_and_end_with_a_blank(tmp_path: Path) -> None:
    log = TimerLog(Files(), tmp_path, FILE_BYTES)
    for number in range(6):
        log.append(unit(number))
    log.write()
    assert log.starts() == [0, 300]
    raw = (tmp_path / f"{0:020d}").read_bytes()
    assert len(raw) == len((tmp_path / f"{300:020d}").read_bytes()) == FILE_BYTES
    assert struct.unpack(">iqI", raw[260:276]) == (40, 0, 0xCBD43194)
    found = list(log.units(0, 10_000))
    assert [pos for pos, _ in found] == [0, 52, 104, 156, 208, 300]
    log.close()


def test_units_end_where_nothing_was_written(tmp_path: Path) -> None:
    log = TimerLog(Files(), tmp_path, FILE_BYTES)
    log.append(unit(1))
    log.write()
    assert [each.phy_offset for _, each in log.units(0, FILE_BYTES)] == [1000]
    assert log.unit(52) is None and log.unit(-1) is None
    log.close()


def test_a_chain_that_does_not_lead_to_its_first_unit_is_damaged(tmp_path: Path) -> None:
    log = TimerLog(Files(), tmp_path, FILE_BYTES)
    for prev_pos in (52, 0, 52, -1):
        log.append(unit(1, prev_pos=prev_pos))
    assert log.chain(104, 52, NOW_MS + 5_000) is None  # a circle
    assert log.chain(0, 156, NOW_MS + 5_000) is None  # ends too early
    assert log.chain(156, 156, NOW_MS + 9_000) is None  # of another slot
    assert log.chain(0, 104, NOW_MS + 5_000) is not None
    log.close()


@pytest.mark.parametrize("bit", range(0, 52 * 8, 5))
def test_a_bit_that_flips_in_a_unit_is_noticed(bit: int) -> None:
    raw = bytearray(unit(1).encode())
    raw[bit // 8] ^= 1 << bit % 8
    assert decode_unit(bytes(raw)) is None


def test_files_of_another_length_are_cleared_too(tmp_path: Path) -> None:
    """The checkpoint that tells their length may be gone when the broker starts with another one."""
    folder = tmp_path / "timerlog"
    folder.mkdir()
    for start in (0, 1000, 2000):
        (folder / f"{start:020d}").write_bytes(bytes(1000))
    TimerLog(Files(), folder, 1500).clear()
    assert not list(folder.iterdir())


def test_the_oldest_file_goes(tmp_path: Path) -> None:
    log = TimerLog(Files(), tmp_path, FILE_BYTES)
    for number in range(11):
        log.append(unit(number))
    log.write()
    log.delete_first()
    assert log.starts() == [300, 600]
    assert log.unit(0) is None
    assert log.unit(300) == unit(5)
    log.close()


# -- checkpoint ------------------------------------------------------------------------------------


def test_a_checkpoint_is_apaches_with_a_note_behind(tmp_path: Path) -> None:
    path = tmp_path / "config" / "timercheck"
    saved = TimerCheckpoint(NOW_MS, 104, 3, 4711, NOW_MS + 1, 9, 52, 1040)
    assert load_timer_checkpoint(Files(), path) is None
    save_timer_checkpoint(Files(), path, saved)
    raw = path.read_bytes()
    assert len(raw) == 4096
    assert struct.unpack(">7q", raw[:56]) == (NOW_MS, 104, 3, 3, 0, NOW_MS + 1, 9)
    assert load_timer_checkpoint(Files(), path) == saved


def test_a_checkpoint_that_apache_wrote_over_has_no_note() -> None:
    raw = bytearray(TimerCheckpoint(NOW_MS, 104, 3, 4711).encode())
    struct.pack_into(">q", raw, 0, NOW_MS + 1000)
    found = decode_timer_checkpoint(bytes(raw))
    assert found is not None
    assert (found.last_read_ms, found.queue_offset, found.noted_phy_offset) == (NOW_MS + 1000, 3, None)
    assert found.is_doubtful


def test_a_note_of_the_first_versions_counts() -> None:
    raw = bytearray(TimerCheckpoint(NOW_MS, 104, 3).encode())
    noted = struct.pack(">q", 4711)
    struct.pack_into(">Q8sI", raw, 64, 0x4B4F55524F555F54, noted, zlib.crc32(bytes(raw[:56]) + noted))
    assert decode_timer_checkpoint(bytes(raw)) == TimerCheckpoint(NOW_MS, 104, 3, 4711)


def test_a_file_that_is_cut_off_says_nothing() -> None:
    assert decode_timer_checkpoint(bytes(20)) is None
