"""units_fit: the kernel accepts a unit only if the record matches it when read in Python; units_fit_in_file:
the same for records in a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from types import ModuleType

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.layout import (
    BORN_V6,
    RECORD,
    STORE_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from kourou.protocol.tags import tags_code
from kourou.store.log.dispatch_request import DispatchRequest, read_dispatch_request
from kourou.store.queue.cq_unit import UNIT
from tests.unit.store.message_stores import StoreKit

PROPERTIES = "KEYS\x01k1\x02TAGS\x01TagA\x02WAIT\x01true\x02"
START = 0
QUEUE_ID = 3


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The second message of a queue, behind one of the same size."""
    with StoreKit(tmp_path_factory.mktemp("fit") / "store") as kit:
        store = kit.open()
        for number in range(2):
            store.put_message("orders", QUEUE_ID, b"%d" % number * 100, PROPERTIES)
        raw = store.log.read(0, store.log.max_phy_offset)
        assert raw is not None
        return raw


def unit_of(record: bytes) -> bytes:
    return UNIT.pack(len(record) // 2, len(record) // 2, tags_code("TagA"))


def is_right(record: bytes, unit: bytes) -> bool:
    """The same from `read_dispatch_request`."""
    phy_offset, size, code = UNIT.unpack(unit)
    if not (0 <= phy_offset <= len(record) and 0 < size <= len(record) - phy_offset):
        return False
    try:
        found = read_dispatch_request(record[phy_offset : phy_offset + size], 0, phy_offset, ())
    except ProtocolError:
        return False
    if not isinstance(found, DispatchRequest):
        return False
    reported = (found.topic, found.queue_id, found.queue_offset, found.size, found.tags_code)
    return found.in_consume_queue and reported == ("orders", QUEUE_ID, 1, size, code)


@pytest.fixture
def fd() -> Iterator[int]:
    """An empty file."""
    with tempfile.TemporaryFile() as file:
        yield file.fileno()


def fits(kernel: ModuleType, record: bytes, unit: bytes) -> bool:
    return bool(kernel.units_fit(record, START, unit, 1, b"orders", QUEUE_ID, True))


def fits_in_file(kernel: ModuleType, fd: int, record: bytes, unit: bytes) -> bool:
    os.pwrite(fd, record, 0)
    place = (fd, START, START + len(record))
    return bool(kernel.units_fit_in_file(*place, unit, 1, b"orders", QUEUE_ID, True, 0))


def test_a_unit_that_fits(kernel: ModuleType, record: bytes) -> None:
    assert is_right(record, unit_of(record)) and fits(kernel, record, unit_of(record))
    both = UNIT.pack(0, len(record) // 2, tags_code("TagA")) + unit_of(record)
    assert kernel.units_fit(record, START, both, 0, b"orders", QUEUE_ID, True)
    assert not kernel.units_fit(record, START, both[::-1], 0, b"orders", QUEUE_ID, True)


@pytest.mark.parametrize(
    "sys_flag",
    [TRANSACTION_PREPARED, TRANSACTION_MASK ^ TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, BORN_V6, STORE_V6],
)
def test_flags_decide_whether_a_queue_has_a_unit(kernel: ModuleType, record: bytes, sys_flag: int) -> None:
    at = len(record) // 2 + RECORD.at("sys_flag")
    flagged = record[:at] + sys_flag.to_bytes(4, "big") + record[at + 4 :]
    assert fits(kernel, flagged, unit_of(record)) == is_right(flagged, unit_of(record))
    assert fits(kernel, flagged, unit_of(record)) == (sys_flag == TRANSACTION_MASK ^ TRANSACTION_PREPARED)


@pytest.mark.parametrize("missing", [1, 2, 100])
def test_no_record_that_ends_behind_the_data_fits(kernel: ModuleType, record: bytes, missing: int) -> None:
    # The record goes on behind the part of the memory that is passed: a look there would find it whole.
    assert not kernel.units_fit(
        memoryview(record)[:-missing], 0, unit_of(record), 1, b"orders", QUEUE_ID, True
    )
    assert not kernel.units_fit(memoryview(record)[missing:], missing, *_first(record))


def _first(record: bytes) -> tuple[bytes, int, bytes, int, bool]:
    return UNIT.pack(0, len(record) // 2, tags_code("TagA")), 0, b"orders", QUEUE_ID, True


@pytest.mark.parametrize("bit", [0, 4, 7])
def test_no_flipped_bit_of_a_record_is_taken_for_right(
    kernel: ModuleType, record: bytes, bit: int, fd: int
) -> None:
    taken = 0
    for position in range(len(record) // 2, len(record)):
        damaged = bytearray(record)
        damaged[position] ^= 1 << bit
        is_fit = fits(kernel, bytes(damaged), unit_of(record))
        assert fits_in_file(kernel, fd, bytes(damaged), unit_of(record)) == is_fit
        if is_fit:
            assert is_right(bytes(damaged), unit_of(record)), f"byte {position}"
            taken += 1
    assert taken, "some fields, such as the born host, are in no unit and under no checksum"


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_of_a_unit_is_taken_for_right(
    kernel: ModuleType, record: bytes, bit: int, fd: int
) -> None:
    for position in range(UNIT.size):
        damaged = bytearray(unit_of(record))
        damaged[position] ^= 1 << bit
        assert not fits(kernel, record, bytes(damaged)), f"byte {position}"
        assert not fits_in_file(kernel, fd, record, bytes(damaged)), f"byte {position}"


@pytest.mark.parametrize(
    ("topic", "queue_id", "queue_offset"), [(b"order", 3, 1), (b"orderz", 3, 1), (b"orders", 2, 1)]
)
def test_a_record_of_another_queue_does_not_fit(
    kernel: ModuleType, record: bytes, topic: bytes, queue_id: int, queue_offset: int
) -> None:
    assert not kernel.units_fit(record, START, unit_of(record), queue_offset, topic, queue_id, True)
    assert not kernel.units_fit(record, START, unit_of(record), 2, b"orders", 3, True)


def test_tags_are_compared_only_if_asked_for(kernel: ModuleType, record: bytes) -> None:
    unit = UNIT.pack(len(record) // 2, len(record) // 2, 42)
    assert kernel.units_fit(record, START, unit, 1, b"orders", QUEUE_ID, False)


GAPS = (0, 1, 8 * 1024, 8 * 1024 + 1, 300 * 1024)
"""Between records that are read together, and those that are not."""
FILE_START = 1 << 30


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """A part of the log with records of a queue, farther and farther apart, and the units of the queue."""
    root = tmp_path_factory.mktemp("spread") / "store"
    with StoreKit(root, commit_log_file_bytes=4 << 20, consume_queue_file_bytes=100 * UNIT.size) as kit:
        store = kit.open()
        for number, gap in enumerate((*GAPS, *GAPS)):
            store.put_message("orders", QUEUE_ID, b"%d" % number * 5_000, PROPERTIES)
            if gap:
                store.put_message("others", 0, b"-" * max(1, gap - 130), "")
        raw = store.log.read(0, store.log.max_phy_offset)
        queue = store.queues.find("orders", QUEUE_ID)
        assert raw is not None and queue is not None
        return raw, queue.read_units(0, 2 * len(GAPS))


def _fit_spread(kernel: ModuleType, place: tuple[int, int, int], units: bytes, first: int = 0) -> bool:
    return bool(kernel.units_fit_in_file(*place, units, first, b"orders", QUEUE_ID, True, 4096))


def test_records_apart_in_a_file_fit(kernel: ModuleType, spread: tuple[bytes, bytes], fd: int) -> None:
    raw, units = spread
    os.pwrite(fd, raw, 0)
    place = fd, 0, len(raw)
    assert kernel.units_fit(raw, 0, units, 0, b"orders", QUEUE_ID, True)
    assert _fit_spread(kernel, place, units)
    for first in range(len(units) // UNIT.size):
        assert _fit_spread(kernel, place, units[first * UNIT.size :], first)
        assert not _fit_spread(kernel, place, units[first * UNIT.size :], first + 1)
        turned = units[: first * UNIT.size] + units[(first + 1) * UNIT.size :]
        assert _fit_spread(kernel, place, turned) == (turned == units[: len(turned)])
    assert _fit_spread(kernel, place, b"")


def test_a_damaged_record_among_others_does_not_fit(
    kernel: ModuleType, spread: tuple[bytes, bytes], fd: int
) -> None:
    raw, units = spread
    os.pwrite(fd, raw, 0)
    for phy_offset, size, _ in UNIT.iter_unpack(units):
        at = phy_offset + size // 2
        os.pwrite(fd, b"?", at)
        assert not _fit_spread(kernel, (fd, 0, len(raw)), units), phy_offset
        os.pwrite(fd, raw[at : at + 1], at)
    assert _fit_spread(kernel, (fd, 0, len(raw)), units)


def test_no_record_outside_of_the_part_of_the_file_fits(
    kernel: ModuleType, spread: tuple[bytes, bytes], fd: int
) -> None:
    raw, units = spread
    os.pwrite(fd, raw, 0)
    phy_offset, size, _ = UNIT.unpack_from(units, len(units) - UNIT.size)
    assert _fit_spread(kernel, (fd, 0, phy_offset + size), units)
    assert not _fit_spread(kernel, (fd, 0, phy_offset + size - 1), units)
    assert not _fit_spread(kernel, (fd, 1, len(raw)), units)
    assert not _fit_spread(kernel, (fd, FILE_START, FILE_START + len(raw)), units)


def test_a_file_that_is_too_short_or_closed_does_not_fit(
    kernel: ModuleType, spread: tuple[bytes, bytes], fd: int
) -> None:
    raw, units = spread
    os.pwrite(fd, raw, 0)
    phy_offset, size, _ = UNIT.unpack_from(units, len(units) - UNIT.size)
    os.ftruncate(fd, phy_offset + size - 1)
    assert not _fit_spread(kernel, (fd, 0, len(raw)), units)
    assert _fit_spread(kernel, (fd, 0, len(raw)), units[: -UNIT.size])
    assert not _fit_spread(kernel, (-1, 0, len(raw)), units)


def test_a_record_lies_in_its_file_behind_the_start_of_that(
    kernel: ModuleType, spread: tuple[bytes, bytes], fd: int
) -> None:
    raw, units = spread
    begin = UNIT.unpack_from(units, UNIT.size)[0]
    os.pwrite(fd, raw[begin:], 0)
    assert _fit_spread(kernel, (fd, begin, len(raw)), units[UNIT.size :], 1)
    assert not _fit_spread(kernel, (fd, begin, len(raw)), units)
