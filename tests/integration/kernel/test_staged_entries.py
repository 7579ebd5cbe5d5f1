"""Staged entries in check_entries and encode_staged: checked and published, byte for byte, as without the
kernel."""

from __future__ import annotations

import struct
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kourou.broker.atomic.journal_records import Staged
from kourou.broker.atomic.staged_entries import EntryPuts, StagedRest, rests_of
from kourou.broker.settings import KernelStatus
from kourou.errors import ProtocolError
from kourou.protocol.atomic import StagedGroup
from kourou.protocol.batch import BatchEntry, encode_batch_entries, split_batch
from kourou.protocol.layout import MAX_PROPERTIES_BYTES
from kourou.protocol.message_id import encode_host
from kourou.protocol.properties import decode_properties, properties_from_bytes
from kourou.protocol.record import decode_record
from kourou.store.kernel import KernelChoice
from kourou.store.log.put_status import PutRefusedError, PutStatus
from tests.integration.kernel.kernel_kit import FedBroker
from tests.integration.kernel.twins import ID, Twins

ATOMIC_ID = "@loader-7:3:41"
HOST = encode_host("10.0.0.1", 4711)
HOST_V6 = encode_host("::1", 4711)
PROPERTIES = f"KEYS\x01k1 k2\x02UNIQ_KEY\x01{ID}\x02TAGS\x01TagA\x02".encode()
PIECES = [
    b"KEYS\x01k1",
    b"TAGS\x01a",
    b"TAGS\x01",
    b"KEYS",
    b"\0",
    b"x\x01\xff",
    b"TRAN_MSG\x01true",
    b"",
    b"\x01",
]
NAMES = (b"DELAY", b"TRAN_MSG", b"__KOUROU_ATOMIC")


def entries(*properties: bytes, body: bytes = b"hello") -> list[BatchEntry]:
    return [BatchEntry(number, body, raw) for number, raw in enumerate(properties)]


def rest_of(staged: list[BatchEntry], *, host: bytes = HOST, sys_flag: int = 0) -> StagedRest:
    group = StagedGroup("TopicTest", 1, sys_flag, 1_700_000_000_000, encode_batch_entries(staged))
    (rest,) = rests_of(Staged(ATOMIC_ID, 0, "broker-a", "g", 0, 0, host, [group], len(staged)))
    return rest


def entry_puts(broker: FedBroker, kernel: KernelStatus | None = None) -> EntryPuts:
    services = broker.services
    return EntryPuts(
        appender=services.store.appender,
        queues=services.store.queues,
        kernel=kernel or services.kernel,
        store_host=services.store_host,
    )


async def publish(broker: FedBroker, puts: EntryPuts, rest: StagedRest, number: int) -> list[int | str]:
    """Put all, one chunk after the other: the size of each, or why it was refused."""
    services, statuses = broker.services, list[PutStatus]()
    found: list[int | str] = []
    services.cycles.open()
    try:
        while rest.size_bytes:
            count = puts.put(rest, number, statuses.append)
            found.append(count)
            number += count
    except PutRefusedError as error:
        return [*found, str(error)]
    finally:
        services.cycles.close()
    assert statuses == [PutStatus.PUT_OK] * len(found)
    return found


def published(
    twins: Twins, staged: list[BatchEntry], number: int = 0, **more: object
) -> tuple[list[int | str], bool]:
    """The chunks, and whether the kernel took them all. Both brokers have to store the same."""
    chunks, logs, is_taken = [], [], []
    for broker in twins.brokers:
        end, rest = broker.services.store.log.max_phy_offset, rest_of(staged, **more)  # type: ignore[arg-type]
        chunks.append(twins.run(publish(broker, entry_puts(broker), rest, number)))
        logs.append(broker.log_bytes(end))
        is_taken.append(rest.entries is None)
    assert chunks[0] == chunks[1] and logs[0] == logs[1]
    assert not is_taken[1]
    return chunks[0], is_taken[0]


def last_properties(twins: Twins) -> dict[str, str]:
    broker = twins.brokers[0]
    queue = broker.services.store.queues.get("TopicTest", 1)
    found = broker.services.store.get_message("TopicTest", 1, queue.max_queue_offset - 1, 1)
    (raw,) = found.buffers
    return decode_properties(properties_from_bytes(decode_record(bytes(raw)).raw_properties))


@pytest.mark.parametrize("last", [PROPERTIES, PROPERTIES[:-1], b"", b"a\x01b\x02"])
def test_ordinary_entries_are_taken_and_numbered(twins: Twins, last: bytes) -> None:
    assert published(twins, entries(PROPERTIES, b"", last), number=998) == ([3], True)
    found = last_properties(twins)
    assert found.pop("__KOUROU_ATOMIC") == f"{ATOMIC_ID}:1000"
    assert found == decode_properties(properties_from_bytes(last))


def test_many_entries_are_put_in_the_same_chunks(twins: Twins) -> None:
    """Some of them end a file of the log: their chunk, and what is behind it, is left to Python."""
    staged = [BatchEntry(0, b"x" * (number % 700), PROPERTIES) for number in range(1, 2_000)]
    chunks, _ = published(twins, staged, number=7)
    assert len(chunks) > 10 and sum(map(int, chunks)) == len(staged)
    assert last_properties(twins)["__KOUROU_ATOMIC"] == f"{ATOMIC_ID}:{7 + len(staged) - 1}"


@pytest.mark.parametrize(
    "odd",
    [
        entries(PROPERTIES, "TAGS\x01é\x02".encode()),
        entries(PROPERTIES, b"TAGS\x01\x02"),
        entries(PROPERTIES, b"x\x01y\0"),
        entries(PROPERTIES, b"__KOUROU_SEQ\x01a:0:1\x02"),
        entries(PROPERTIES, b"TRAN_MSG\x01true\x02"),
        entries(PROPERTIES, b"x" * MAX_PROPERTIES_BYTES),
        entries(PROPERTIES, body=b"x" * (64 * 1024 + 1)),
    ],
)
def test_what_needs_a_look_is_left_to_python(twins: Twins, odd: list[BatchEntry]) -> None:
    assert not published(twins, odd)[1]


def test_entries_of_an_ipv6_host_are_left_to_python(twins: Twins) -> None:
    assert published(twins, entries(PROPERTIES), host=HOST_V6) == ([1], False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.builds(
            BatchEntry,
            st.integers(-(2**31), 2**31 - 1),
            st.binary(min_size=1, max_size=40),
            st.one_of(
                st.just(PROPERTIES), st.binary(max_size=30), st.lists(st.sampled_from(PIECES)).map(b"\2".join)
            ),
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 2**62),
    st.sampled_from([0, 1, 2, 16, 48]),
)
def test_random_entries_are_stored_the_same(
    twins: Twins, staged: list[BatchEntry], number: int, sys_flag: int
) -> None:
    published(twins, staged, number, sys_flag=sys_flag)


def test_a_kernel_that_fails_is_not_used_again(twins: Twins) -> None:
    class Broken:
        def encode_staged(self, *_: object) -> None:
            raise RuntimeError("broken")

    broker = twins.brokers[0]
    status = KernelStatus(KernelChoice(Broken()))  # type: ignore[arg-type]
    puts = entry_puts(broker, status)
    for both, used in zip(twins.brokers, (puts, entry_puts(twins.brokers[1])), strict=True):
        assert twins.run(publish(both, used, rest_of(entries(PROPERTIES)), 0)) == [1]
    assert status.current.problem == "it failed during an atomic publish"


# -- checks ----------------------------------------------------------------------------------------


def plain_count(body: bytes, max_body: int, max_properties: int) -> int:
    """What check_entries says, in Python."""
    try:
        found = split_batch(body)
    except ProtocolError:
        return 0
    for _, message, raw in found:
        names = {pair.partition(b"\x01")[0] for pair in raw.split(b"\x02")}
        if not 0 < len(message) <= max_body or len(raw) > max_properties or names & set(NAMES):
            return 0
    return len(found)


def test_entries_are_counted(kernel: ModuleType) -> None:
    body = encode_batch_entries(entries(PROPERTIES, b"", b"aDELAY\x01DELAY\x02DELAYS\x013"))
    assert kernel.check_entries(body, 5, len(PROPERTIES), NAMES) == 3
    assert kernel.check_entries(body, 4, len(PROPERTIES), NAMES) == 0
    assert kernel.check_entries(body, 5, len(PROPERTIES) - 1, NAMES) == 0
    assert kernel.check_entries(body[:-1], 5, 100, NAMES) == 0


@pytest.mark.parametrize(
    "raw", [b"DELAY", b"a\x01b\x02DELAY\x013", b"\x02\x02TRAN_MSG\x01", b"__KOUROU_ATOMIC\x01x\x02"]
)
def test_noted_names_are_found(kernel: ModuleType, raw: bytes) -> None:
    assert kernel.check_entries(encode_batch_entries(entries(PROPERTIES, raw)), 100, 100, NAMES) == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.tuples(
            st.lists(st.sampled_from([PROPERTIES, *PIECES, b"", b"DELAY\x013\x02"]), min_size=1, max_size=4),
            st.integers(0, 200),
            st.binary(max_size=4),
            st.binary(max_size=3),
        ).map(lambda made: _damaged(*made)),
    )
)
def test_random_bytes_are_checked_as_python_does(kernel: ModuleType, body: bytes) -> None:
    assert kernel.check_entries(body, 30, 60, NAMES) == plain_count(body, 30, 60)


def _damaged(properties: list[bytes], at: int, put: bytes, more: bytes) -> bytes:
    body = encode_batch_entries(entries(*properties))
    at = min(at, len(body))
    return body[:at] + put + body[at + len(put) :] + more


@pytest.mark.parametrize("size", [-1, 0, 22, 24, 2**31 - 1, -(2**31)])
def test_wrong_sizes_are_found(kernel: ModuleType, size: int) -> None:
    assert kernel.check_entries(struct.pack(">iiiii", size, 0, 0, 0, 1) + b"x\0\0", 9, 9, NAMES) == 0
