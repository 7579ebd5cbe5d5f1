"""Messages in encode_again: put again, byte for byte, as without the kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kourou.broker.pop.contracts import Popped
from kourou.broker.storage.inner_message import InnerMessage
from kourou.protocol.layout import BORN_V6, MAX_PROPERTIES_BYTES
from kourou.protocol.message_id import encode_host
from kourou.protocol.properties import decode_properties, properties_from_bytes
from kourou.protocol.record import decode_record
from kourou.store.log.put_status import PutStatus
from kourou.store.queue.cq_unit import UNIT
from tests.integration.kernel.kernel_kit import FedBroker
from tests.integration.kernel.twins import ID, Twins

GROUP, POP_TIME = "g", 1_700_000_000_000
HOST = encode_host("10.0.0.1", 4711)
ORDINARY = f"KEYS\x01k1 k2\x02UNIQ_KEY\x01{ID}\x02TAGS\x01TagA\x02"
FIRST, ORIGIN = "1ST_POP_TIME\x0117\x02", f"ORIGIN_GROUP\x01{GROUP}\x02"
PIECES = [
    *(
        "KEYS\x01k1",
        "TAGS\x01a",
        "TAGS\x01é",
        "TAGS\x01",
        "KEYS",
        "",
        "\x01",
        "x\x01é",
        "x\0",
        "UNIQ_KEY\x01b",
    ),
    *("1ST_POP_TIME", "1ST_POP_TIME\x01", "1ST_POP_TIME\x0117", "1ST_POP_TIMES\x011"),
    *("ORIGIN_GROUP", "ORIGIN_GROUP\x01", f"ORIGIN_GROUP\x01{GROUP}", "ORIGIN_GROUP\x01other"),
    *("__KOUROU_SEQ\x01a:0:1", "TRAN_MSG\x01true", "WAIT\x01false", "DELAY\x013"),
]


def message(properties: str = ORDINARY, **fields: Any) -> InnerMessage:
    default = {"body": b"hello", "born_timestamp": POP_TIME - 5, "born_host": HOST}
    return InnerMessage("TopicTest", 1, properties=properties, **{**default, **fields})


async def _revive(broker: FedBroker, messages: Sequence[InnerMessage], counted: list[int]) -> None:
    """Store messages, take them as a pop does, and revive them."""
    running = broker.services
    queue = running.store.queues.get("TopicTest", 1)
    first = queue.next_queue_offset
    for each in messages:
        running.writer.put_now(each, None)
    running.cycles.close()
    part = broker.in_flight
    popped = Popped(
        "TopicTest", GROUP, 1, first, range(first, first + len(messages)), 0, POP_TIME + first, 60_000, 0
    )
    statuses: list[PutStatus] = []
    part.in_flight.take(popped, statuses.append)
    running.cycles.close()
    assert statuses == [PutStatus.PUT_OK]
    service, table = part._revive, part.in_flight._table
    (check_point,) = table.take_due(1 << 60, 10)
    runs, put = service._runs, service._runs.put

    def count(*arguments: Any) -> int:
        counted.append(put(*arguments))
        return counted[-1]

    runs.put = count  # type: ignore[method-assign]
    try:
        await service._revive([check_point])
    finally:
        runs.put = put  # type: ignore[method-assign]
    await asyncio.sleep(0)


def revived(twins: Twins, *messages: InnerMessage) -> int:
    """How many the kernel took. Both brokers have to store the same."""
    counts: list[list[int]] = [[], []]
    logs = []
    for broker, counted in zip(twins.brokers, counts, strict=True):
        end = broker.services.store.log.max_phy_offset
        twins.run(_revive(broker, messages, counted))
        logs.append(broker.log_bytes(end))
    assert logs[0] == logs[1]
    assert not any(counts[1])
    return sum(counts[0])


def test_messages_that_come_again_are_taken(twins: Twins) -> None:
    """From the first time on to the last, the properties as Python would write them."""
    assert revived(twins, message(), message(ORDINARY[:-1]), message(""), message("a\x01é\x02")) == 4
    again = [message(ORDINARY + FIRST + ORIGIN, reconsume_times=times) for times in (1, 15)]
    assert revived(twins, *again, message(ORDINARY + FIRST, reconsume_times=2)) == 3
    assert revived(twins, message(ORDINARY, reconsume_times=1), message(flag=-5, sys_flag=1)) == 2
    broker = twins.brokers[0]
    queue = broker.services.store.queues.get(f"%RETRY%{GROUP}_TopicTest", 0)
    found = broker.services.store.get_message(queue.topic, 0, queue.max_queue_offset - 2, 1)
    (raw,) = found.buffers
    record = decode_record(bytes(raw))
    properties = decode_properties(properties_from_bytes(record.raw_properties))
    assert record.reconsume_times == 2 and properties["TAGS"] == "TagA"
    assert properties["ORIGIN_GROUP"] == GROUP and int(properties["1ST_POP_TIME"]) >= POP_TIME


@pytest.mark.parametrize(
    "odd",
    [
        message(ORDINARY + FIRST),
        message(ORDINARY + ORIGIN),
        message("ORIGIN_GROUP\x01other\x02" + FIRST, reconsume_times=1),
        message(ORIGIN + ORIGIN + FIRST, reconsume_times=1),
        message(ORDINARY + ORIGIN, reconsume_times=1),
        message("TAGS\x01é\x02"),
        message("x\x01a\0b\x02"),
        message("__KOUROU_SEQ\x01a:0:1\x02"),
        message(reconsume_times=16),
        message("x\x01" + "y" * (MAX_PROPERTIES_BYTES - 3)),
        message(born_host=encode_host("::1", 4711), sys_flag=BORN_V6),
    ],
)
def test_what_needs_a_look_is_left_to_python(twins: Twins, odd: InnerMessage) -> None:
    """And what follows is taken again."""
    assert revived(twins, message(), odd, message(), message()) == 3


def test_runs_go_on_in_the_next_file(twins: Twins) -> None:
    """Of a run that does not fit, the first message that has no room is left to Python."""
    taken = sum(revived(twins, *[message(body=b"x" * 2_000)] * 32) for _ in range(40))
    assert 0 < 32 * 40 - taken < 40


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(
    st.lists(
        st.builds(
            message,
            st.one_of(
                st.just(ORDINARY + FIRST + ORIGIN),
                st.lists(st.sampled_from(PIECES), max_size=5).map("\2".join),
            ),
            body=st.binary(max_size=40),
            flag=st.integers(-(2**31), 2**31 - 1),
            reconsume_times=st.integers(0, 17),
            sys_flag=st.sampled_from([0, 1, 8]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_random_messages_are_revived_the_same(twins: Twins, messages: list[InnerMessage]) -> None:
    revived(twins, *messages)


def test_a_damaged_record_is_left_to_python(kernel: ModuleType, twins: Twins) -> None:
    """Cut off, changed, or of another place: it is not encoded."""
    store = twins.brokers[0].services.store
    revived(twins, message())
    queue = store.queues.get("TopicTest", 1)
    unit = queue.unit(queue.max_queue_offset - 1)
    assert unit is not None
    raw = store.log.read(unit.phy_offset, unit.size) or b""

    def encoded(record: bytes, *, topic: bytes = b"TopicTest", queue_id: int = 1) -> object:
        return kernel.encode_again(
            [record],
            UNIT.pack(*unit),
            (topic, queue_id, 16),
            (FIRST.encode(), ORIGIN.encode()),
            queue,
            HOST,
            *(0, 1 << 20, POP_TIME, 1 << 20, 1 << 20),
        )

    assert encoded(raw) is not None
    assert encoded(raw, topic=b"TopicTesu") is None and encoded(raw, queue_id=2) is None
    for end in range(0, len(raw), 7):
        assert encoded(raw[:end]) is None
    for at in (0, 5, 9, 13, 30, 85, 89):  # size, magic, CRC, queue, place, length of the body, body
        changed = bytearray(raw)
        changed[at] ^= 0x40
        assert encoded(bytes(changed)) is None
