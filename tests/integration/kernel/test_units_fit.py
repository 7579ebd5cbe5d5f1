"""units_fit: the kernel accepts a unit only if the record matches it when read in Python."""

from __future__ import annotations

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


def fits(kernel: ModuleType, record: bytes, unit: bytes) -> bool:
    return bool(kernel.units_fit(record, START, unit, 1, b"orders", QUEUE_ID, True))


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
def test_no_flipped_bit_of_a_record_is_taken_for_right(kernel: ModuleType, record: bytes, bit: int) -> None:
    taken = 0
    for position in range(len(record) // 2, len(record)):
        damaged = bytearray(record)
        damaged[position] ^= 1 << bit
        if fits(kernel, bytes(damaged), unit_of(record)):
            assert is_right(bytes(damaged), unit_of(record)), f"byte {position}"
            taken += 1
    assert taken, "some fields, such as the born host, are in no unit and under no checksum"


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_of_a_unit_is_taken_for_right(kernel: ModuleType, record: bytes, bit: int) -> None:
    for position in range(UNIT.size):
        damaged = bytearray(unit_of(record))
        damaged[position] ^= 1 << bit
        assert not fits(kernel, record, bytes(damaged)), f"byte {position}"


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
