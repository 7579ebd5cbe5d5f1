"""read_records: what the kernel reads of a log is what Python reads, and a slave derives the same from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.layout import INDEX_KEY, MAX_TOPIC_BYTES_V1, RECORD
from kourou.protocol.producer_sequence import SEQUENCE_PROPERTY
from kourou.protocol.record import decode_record
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.index.index_hash import key_hash
from kourou.store.kernel import ReadRecords
from kourou.store.log.dispatch_request import DispatchRequest, read_dispatch_request
from kourou.store.message_store import MessageStore
from kourou.store.queue.cq_unit import UNIT
from kourou.store.recovery.columns_dispatcher import ColumnsDispatcher
from kourou.store.replica.replica_log import ReplicaError, ReplicaLog
from tests.unit.store.message_stores import StoreKit, put
from tests.unit.store.recovery.test_log_walk import FILE_BYTES, derived, fill
from tests.unit.store.replica.test_replica_log import copy, log_bytes

TOPIC = SCHEDULE_TOPIC.encode()
MAX_BYTES = 1 << 20
_index_key = INDEX_KEY.struct()


@pytest.fixture
def kits(tmp_path: Path) -> Iterator[tuple[StoreKit, StoreKit]]:
    def kit(name: str) -> StoreKit:
        return StoreKit(tmp_path / name, commit_log_file_bytes=FILE_BYTES, index_slots=64, index_entries=256)

    with kit("master") as master, kit("slave") as slave:
        yield master, slave


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Two messages of one queue, with a host of each kind."""
    properties = "KEYS\x01k1 k2\x02TAGS\x01TagA\x02UNIQ_KEY\x01AB12\x02"
    with StoreKit(tmp_path_factory.mktemp("read") / "store") as kit:
        store = kit.open()
        for born_host in (bytes(8), bytes(20)):
            put(store, b"body" * 20, "orders", 3, properties=properties, born_host=born_host)
            properties += "__KOUROU_SEQ\x01@loader-7:0:41\x02"
        return store.log.read(0, store.log.max_phy_offset) or b""


class CountedKernel:
    """A kernel that counts the records it has read."""

    def __init__(self, kernel: ModuleType) -> None:
        self._kernel = kernel
        self.records = 0

    def read_records(self, *arguments: object) -> ReadRecords | None:
        read: ReadRecords | None = self._kernel.read_records(*arguments)
        self.records += sum(len(units) // UNIT.size for *_, units in read[3]) if read else 0
        return read


def replica_of(store: MessageStore, kernel: CountedKernel) -> ReplicaLog:
    columns = ColumnsDispatcher(store.dispatcher, store.queues, store.index)
    return ReplicaLog(
        store.log,
        store.dispatcher,
        columns,
        store.producers,
        store.config.delay_levels,
        kernel,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("max_bytes", [100, 3_000, 40_000])
def test_a_slave_derives_what_its_master_has(
    kits: tuple[StoreKit, StoreKit], kernel: ModuleType, max_bytes: int
) -> None:
    master, slave = (kit.open() for kit in kits)
    fill(master)
    counted = CountedKernel(kernel)
    end = master.log.max_phy_offset
    copy(master, replica_of(slave, counted), 0, end, max_bytes)
    assert log_bytes(slave, 0, end) == log_bytes(master, 0, end)
    assert derived(slave) == derived(master)
    assert slave.dispatcher.dispatched_timestamp == master.dispatcher.dispatched_timestamp
    # All of the 408 but prepared and rolled back ones, a delayed one, one with a long topic, one with a zero.
    assert counted.records == 365


def numbered(store: MessageStore, queue_offsets: Sequence[int]) -> bytes:
    """A log with messages of one queue that have these numbers."""
    starts = [put(store, b"%d" % each, "t0", 0).phy_offset for each in queue_offsets]
    raw = bytearray(store.log.read(0, store.log.max_phy_offset) or b"")
    for start, queue_offset in zip(starts, queue_offsets, strict=True):
        at = start + RECORD.at("queue_offset")
        raw[at : at + 8] = queue_offset.to_bytes(8, "big")
    return bytes(raw)


@pytest.mark.parametrize(
    "queue_offsets",
    [(0, 1, 2, 3), (7, 8, 9), (0, 1, 5, 6, 9), (4, 5, 0, 1), (0, 1, 1, 2, 0, 5)],
    ids=["as it is", "begins later", "gaps", "starts over", "taken places"],
)
def test_numbers_of_a_queue(
    kits: tuple[StoreKit, StoreKit], kernel: ModuleType, queue_offsets: tuple[int, ...]
) -> None:
    raw = numbered(kits[0].open(), queue_offsets)
    counted = CountedKernel(kernel)
    with StoreKit(kits[1].root.with_name("python"), commit_log_file_bytes=FILE_BYTES) as kit:
        stores = kits[1].open(), kit.open()
        for replica in (replica_of(stores[0], counted), stores[1].replica_log()):
            replica.append(0, raw)
            replica.dispatch()
        queues = [store.queue("t0", 0) for store in stores]
        assert repr(queues[0]) == repr(queues[1])
        assert counted.records == len(queue_offsets)
        places = range(queues[1].max_queue_offset)
        assert [queues[0].unit(at) for at in places] == [queues[1].unit(at) for at in places]
        assert stores[0].dispatcher.dispatched_phy_offset == stores[1].dispatcher.dispatched_phy_offset


def test_a_number_that_no_queue_has_is_reported(kits: tuple[StoreKit, StoreKit], kernel: ModuleType) -> None:
    kits[1].is_checked = False
    raw = numbered(kits[0].open(), (0, 1 << 50))
    replica = replica_of(kits[1].open(), CountedKernel(kernel))
    replica.append(0, raw)
    with pytest.raises(
        ReplicaError, match=r"the records that the master sent from \d+ to .* ahead of the queue"
    ):
        replica.dispatch()


def as_python_reads(raw: bytes, phy_offset: int) -> ReadRecords | None:
    """The same by `read_dispatch_request`."""
    at, hashed, timestamp, has_sequences = 0, b"", 0, False
    queues: dict[tuple[str, int], tuple[int, bytes]] = {}
    while at < len(raw):
        try:
            found = read_dispatch_request(raw, at, phy_offset + at, ())
        except ProtocolError:
            break
        if not isinstance(found, DispatchRequest) or not found.in_consume_queue:
            break
        first, units = queues.get((found.topic, found.queue_id), (found.queue_offset, b""))
        if first + len(units) // UNIT.size != found.queue_offset:
            break
        units += UNIT.pack(found.phy_offset, found.size, found.tags_code)
        queues[found.topic, found.queue_id] = first, units
        timestamp = found.store_timestamp
        for key in found.keys:
            hashed += _index_key.pack(key_hash(found.topic, key), found.phy_offset, timestamp)
        has_sequences |= bool(decode_record(raw, at).get_property(SEQUENCE_PROPERTY))
        at += found.size
    if not at:
        return None
    return phy_offset + at, timestamp, hashed, [(*key, *of) for key, of in queues.items()], has_sequences


def test_records_are_read_as_python_reads_them(kernel: ModuleType, records: bytes) -> None:
    expected = as_python_reads(records, 0)
    assert expected is not None and expected[0] == len(records)
    assert kernel.read_records(records, 0, MAX_BYTES, TOPIC) == expected
    assert kernel.read_records(memoryview(bytearray(records)), 0, MAX_BYTES, TOPIC) == expected


def test_what_is_not_complete_is_not_read(kernel: ModuleType, records: bytes) -> None:
    for end in range(len(records)):
        # The record goes on behind the part of the memory that is passed: a look there would find it whole.
        part = memoryview(records)[:end]
        assert kernel.read_records(part, 0, MAX_BYTES, TOPIC) == as_python_reads(records[:end], 0), end


@pytest.mark.parametrize("bit", [0, 4, 7])
def test_no_flipped_bit_is_taken_for_right(kernel: ModuleType, records: bytes, bit: int) -> None:
    taken = 0
    for position in range(len(records)):
        damaged = bytearray(records)
        damaged[position] ^= 1 << bit
        read = kernel.read_records(damaged, 0, MAX_BYTES, TOPIC)
        expected = as_python_reads(bytes(damaged), 0)
        if read != expected:
            # It left a record to Python.
            assert expected is not None and (read is None or read[0] < expected[0]), f"byte {position}"
        taken += read is not None and read[0] == len(records)
    assert taken, "some fields, such as the born host, are in no unit and under no checksum"


@pytest.mark.parametrize("topic", ["%RETRY%" + "g" * MAX_TOPIC_BYTES_V1, SCHEDULE_TOPIC, "Größe"])
def test_topics_that_are_left_to_python(kernel: ModuleType, tmp_path: Path, topic: str) -> None:
    with StoreKit(tmp_path / "store") as kit:
        store = kit.open()
        put(store, b"body", "t" * MAX_TOPIC_BYTES_V1)
        left_at = put(store, b"body", topic).phy_offset
        raw = store.log.read(0, store.log.max_phy_offset) or b""
        read = kernel.read_records(raw, 0, MAX_BYTES, TOPIC)
        assert read is not None and read[0] == left_at


@pytest.mark.parametrize("topic", [b"a/b", b"..", b".", b"a\0b", b"\xff"])
def test_topics_that_name_no_folder_are_left_to_python(
    kernel: ModuleType, tmp_path: Path, topic: bytes
) -> None:
    with StoreKit(tmp_path / "store") as kit:
        store = kit.open()
        put(store, b"", "t" * len(topic))
        raw = store.log.read(0, store.log.max_phy_offset) or b""
        at = RECORD.size + 1
        assert kernel.read_records(raw, 0, MAX_BYTES, TOPIC) is not None
        assert kernel.read_records(raw[:at] + topic + raw[at + len(topic) :], 0, MAX_BYTES, TOPIC) is None


def test_bounds(kernel: ModuleType, records: bytes) -> None:
    first = int.from_bytes(records[:4], "big")
    assert kernel.read_records(records, 0, first - 1, TOPIC) is None
    read = kernel.read_records(records, 0, first, TOPIC)
    assert read is not None and read[0] == first
    assert kernel.read_records(records, 1, MAX_BYTES, TOPIC) is None
    assert kernel.read_records(b"", 0, MAX_BYTES, TOPIC) is None
    with pytest.raises(TypeError):
        kernel.read_records("text", 0, MAX_BYTES, TOPIC)


def test_many_records_are_read_with_the_interpreter_lock_released(kernel: ModuleType, tmp_path: Path) -> None:
    with StoreKit(tmp_path / "store", commit_log_file_bytes=1 << 20) as kit:
        store = kit.open()
        for number in range(300):
            put(store, b"%d" % number * 400, f"t{number % 3}", properties=f"KEYS\x01k{number} k\x02")
        raw = store.log.read(0, store.log.max_phy_offset) or b""
    assert len(raw) > 256 * 1024
    assert kernel.read_records(raw, 0, MAX_BYTES, TOPIC) == as_python_reads(raw, 0)
