"""gather: with the kernel a pull gets, byte for byte, what it gets without."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import ModuleType
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.store.kernel import Kernel
from kourou.store.message_store import MessageStore
from kourou.store.queue.cq_unit import UNIT
from kourou.store.read.get_message import MessageReader
from kourou.store.read.get_message_result import GetMessageResult
from tests.unit.store.message_stores import StoreKit, body_for, put

QUEUES = 3
MESSAGES = 1_200
FILE_BYTES = 512 * 1024


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """Messages of three queues between one another, in several files."""
    with StoreKit(tmp_path_factory.mktemp("gather") / "store") as kit:
        opened = kit.open(commit_log_file_bytes=FILE_BYTES, consume_queue_file_bytes=4_096 * UNIT.size)
        sizes = random.Random(1)
        for _ in range(MESSAGES):
            put(opened, body_for(sizes.choice((3, 200, 1_500))), queue_id=sizes.randrange(QUEUES))
        yield opened


@pytest.fixture(scope="module")
def readers(store: MessageStore, kernel: ModuleType) -> tuple[MessageReader, MessageReader]:
    """One with the kernel, one without."""
    limits = {"max_transfer_bytes": 1 << 20, "max_filter_units": 800}
    return MessageReader(store.log, **limits, kernel=cast(Kernel, kernel)), MessageReader(store.log, **limits)


def shown(result: GetMessageResult) -> tuple[object, ...]:
    assert result.is_loaded
    return (
        result.status,
        result.message_count,
        result.size_bytes,
        result.last_phy_offset,
        result.next_begin_offset,
        b"".join(result.buffers),
    )


@given(
    queue_id=st.integers(0, QUEUES - 1),
    queue_offset=st.integers(0, MESSAGES // QUEUES + 30),
    max_messages=st.integers(0, 450),
    max_bytes=st.one_of(st.none(), st.integers(1, 300_000)),
    damaged=st.one_of(st.just([]), st.just([(5_000, 9_000)])),
)
def test_pulls_come_out_the_same(
    store: MessageStore,
    readers: tuple[MessageReader, MessageReader],
    queue_id: int,
    queue_offset: int,
    max_messages: int,
    max_bytes: int | None,
    damaged: list[tuple[int, int]],
) -> None:
    queue = store.queues.find("orders", queue_id)
    found = []
    for reader in readers:
        reader.damaged = damaged
        found.append(shown(reader.get_message(queue, queue_offset, max_messages, max_bytes=max_bytes)))
    assert found[0] == found[1]


def test_the_kernel_is_used(store: MessageStore, readers: tuple[MessageReader, MessageReader]) -> None:
    queue = store.queues.find("orders", 0)
    for reader in readers:
        reader.damaged = []
    with_kernel, without = (reader.get_message(queue, 0, 8) for reader in readers)
    assert len(with_kernel.buffers) == 1 < len(without.buffers)


def test_bulk_readers_get_one_copy_too(
    store: MessageStore, readers: tuple[MessageReader, MessageReader]
) -> None:
    queue = store.queues.find("orders", 0)
    for reader in readers:
        reader.damaged = []
    with_kernel, without = (reader.get_message(queue, 0, 270) for reader in readers)
    assert with_kernel.message_count == 270 and len(with_kernel.buffers) == 1
    assert shown(with_kernel) == shown(without)


LOG = bytes(range(200))


def units(*places: tuple[int, int]) -> bytes:
    return b"".join(UNIT.pack(at, size, 0) for at, size in places)


def test_records_in_their_order(kernel: ModuleType) -> None:
    found = kernel.gather(LOG, 1_000, 1_000, 1_200, units((1_010, 3), (1_150, 2)), 9, 99, 999)
    assert found == (2, 1_150, bytes((10, 11, 12, 150, 151)))


@pytest.mark.parametrize(
    ("places", "max_messages", "max_bytes", "count"),
    [
        (((1_010, 3), (1_020, 3)), 1, 99, 1),
        (((1_010, 3), (1_020, 3)), 9, 5, 1),
        (((1_010, 3), (1_020, 3)), 9, 6, 2),
        (((1_010, 30),), 9, 1, 1),  # one in any case
        (((1_010, 3), (0, 0x7FFF_FFFF)), 9, 99, 1),  # the place of one that never came
    ],
)
def test_limits(
    kernel: ModuleType, places: tuple[tuple[int, int], ...], max_messages: int, max_bytes: int, count: int
) -> None:
    found = kernel.gather(LOG, 1_000, 1_000, 1_200, units(*places), max_messages, max_bytes, 999)
    assert found is not None and found[0] == count


@pytest.mark.parametrize(
    "place",
    [(999, 2), (1_004, 2), (1_190, 11), (1_195, 6), (1_300, 1), (-1, 5), (1_010, 0), (1_010, -3)]
    + [(2**63 - 1, 2**31 - 1), (-(2**63), 1), (0, 0x7FFF_FFFF)],
)
def test_nothing_outside_is_read(kernel: ModuleType, place: tuple[int, int]) -> None:
    low, end = 1_005, 1_200
    assert kernel.gather(LOG, 1_000, low, end, units(place), 9, 1 << 40, 1 << 40) is None
    assert kernel.gather(LOG, 1_000, low, 1 << 40, units(place), 9, 1 << 40, 1 << 40) is None
    assert kernel.gather(LOG, 1_000, 0, end, units(place), 9, 1 << 40, 1 << 40) is None or place[0] == 1_004


def test_much_is_not_copied(kernel: ModuleType) -> None:
    assert kernel.gather(LOG, 0, 0, 200, units((0, 50), (50, 50)), 9, 999, 99) is None


@pytest.mark.parametrize("raw", [b"", bytes(19), bytes(20)])
def test_units_that_are_none(kernel: ModuleType, raw: bytes) -> None:
    assert kernel.gather(LOG, 0, 0, 200, raw, 9, 999, 999) is None
