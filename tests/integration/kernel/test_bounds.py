"""Each bound at its value, one below and one above: with the kernel a broker does what it does without, and
the kernel takes exactly what lies inside. The bounds come from the table of layouts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.layout import (
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MAX_TOPIC_FOLDER_BYTES,
    PROPERTIES_LENGTH,
    RECORD,
    SEND_FIELDS,
    TOPIC_LENGTH_V1,
    TRANSACTION_MASK,
    SendField,
)
from kourou.store.log.put_batch import RunRoom
from tests.integration.kernel.kernel_kit import NOW_MS, FedBroker
from tests.integration.kernel.twins import ID, Twins, binary_send, frame, send

MAX_BODY = 64 * 1024  # tests/e2e/broker/broker_kit.py
QUEUES = 4
MAX_QUEUES = 256
MAX_DIGITS = 18
TOPIC = "TopicTest"


def around(bound: int) -> tuple[int, int, int]:
    return bound - 1, bound, bound + 1


def number_cases() -> list[tuple[SendField, int]]:
    """Each number of a send around its bounds, and around the lengths that the kernel reads."""
    lengths = [*around(10**MAX_DIGITS), *around(-(10**MAX_DIGITS))]
    return [
        (field, number)
        for field in SEND_FIELDS
        if field.kind == "number"
        for number in sorted({*around(field.low), *around(field.high), *lengths, 0, 1})
    ]


def is_taken(field: SendField, number: int) -> bool:
    """Whether the kernel takes a send with this number."""
    is_inside = field.low <= number <= field.high and len(str(abs(number))) <= MAX_DIGITS
    if field.name == "queue_id":
        return is_inside and number < QUEUES
    return is_inside and not (field.name == "sys_flag" and number & TRANSACTION_MASK)


@pytest.mark.parametrize("is_binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize(
    ("field", "number"), number_cases(), ids=lambda case: getattr(case, "name", str(case))
)
def test_numbers_of_a_send(twins: Twins, field: SendField, number: int, is_binary: bool) -> None:
    fields = {field.letter: str(number)}
    header = binary_send(fields) if is_binary else send(fields)
    before = twins.taken
    twins.feed(frame(header, serialize_type=int(is_binary)))
    assert twins.taken - before == is_taken(field, number)


@pytest.mark.parametrize("queue_id", around(QUEUES))
def test_queues_of_a_topic(twins: Twins, queue_id: int) -> None:
    before = twins.taken
    answer = twins.feed(frame(send({"e": str(queue_id)})))
    assert twins.taken - before == (queue_id < QUEUES) == (b'"code":0' in answer)


@pytest.mark.parametrize("is_binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("size", around(MAX_PROPERTIES_BYTES))
def test_properties_of_a_record(twins: Twins, size: int, is_binary: bool) -> None:
    own = len(twins.brokers[0].own_properties)
    start = f"UNIQ_KEY\x01{ID}\x02x\x01"
    fields = {"i": f"{start}{'y' * (size - own - len(start) - 1)}\x02"}
    header = binary_send(fields) if is_binary else send(fields)
    before = twins.taken
    twins.feed(frame(header, serialize_type=int(is_binary)))
    assert twins.taken - before == (size <= MAX_PROPERTIES_BYTES)


@pytest.mark.parametrize("size", [*around(MAX_PROPERTIES_BYTES)[:2], 0, 1])
def test_properties_in_a_batch(twins: Twins, size: int) -> None:
    entries = [BatchEntry(0, b"b", b"x" * size), BatchEntry(0, b"b", b"")]
    before = twins.taken
    twins.feed(frame(send({"m": "true"}, code=320), encode_batch_entries(entries)))
    assert twins.taken - before == 1


def test_properties_in_a_batch_that_are_longer_than_their_length_can_say(twins: Twins) -> None:
    body = bytearray(encode_batch_entries([BatchEntry(0, b"b", b"x" * MAX_PROPERTIES_BYTES)]) + b"x")
    body[0:4] = len(body).to_bytes(4, "big")
    at = len(body) - MAX_PROPERTIES_BYTES - 1 - PROPERTIES_LENGTH.size
    body[at : at + PROPERTIES_LENGTH.size] = (MAX_PROPERTIES_BYTES + 1).to_bytes(2, "big")
    before = twins.taken
    assert b'"code":0' not in twins.feed(frame(send({"m": "true"}, code=320), bytes(body)))
    assert twins.taken == before


@pytest.mark.parametrize("is_batch", [False, True], ids=["one", "batch"])
@pytest.mark.parametrize("size", [*around(MAX_TOPIC_BYTES_V1)[:2], 1, 2])
def test_names_of_topics(twins: Twins, size: int, is_batch: bool) -> None:
    fields = {"b": "t" * size, "m": str(is_batch).lower()}
    body = encode_batch_entries([BatchEntry(0, b"b", b"")]) if is_batch else b"b"
    twins.feed(frame(send(fields), body))  # creates the topic
    before = twins.taken
    twins.feed(frame(send(fields), body))
    assert twins.taken - before == 1


@pytest.mark.parametrize("size", [*around(MAX_TOPIC_FOLDER_BYTES), MAX_TOPIC_BYTES_V1 + 1, 0])
def test_names_of_topics_that_no_send_can_have(twins: Twins, size: int) -> None:
    before = twins.taken
    for topic in ("t" * size, ("%RETRY%" + "g" * size)[:size]):
        assert b'"code":0' not in twins.feed(frame(send({"b": topic})) * 2)
    assert twins.taken == before


@pytest.mark.parametrize("is_batch", [False, True], ids=["one", "batch"])
@pytest.mark.parametrize("size", around(MAX_BODY))
def test_bodies(twins: Twins, size: int, is_batch: bool) -> None:
    entry = BatchEntry(0, bytes(size // 2), b"")
    body = (
        encode_batch_entries([entry, entry._replace(body=bytes(size - size // 2))])
        if is_batch
        else bytes(size)
    )
    before = twins.taken
    answer = twins.feed(frame(send({"m": str(is_batch).lower()}), body))
    assert (b'"code":0' in answer) == (twins.taken - before)
    assert is_batch or twins.taken - before == (size <= MAX_BODY)


@pytest.mark.parametrize("above", [-1, 0, 1])
def test_the_end_of_a_file_of_the_log(twins: Twins, above: int) -> None:
    properties = f"UNIQ_KEY\x01{ID}\x02"
    fixed = record_bytes(twins.brokers[0], TOPIC, properties, 0)
    while left(twins) > fixed + MAX_BODY:
        twins.feed(frame(send(), bytes(min(MAX_BODY, left(twins) - fixed - 2_000))))
    body = bytes(left(twins) - fixed + above)
    before, files = twins.taken, len(twins.brokers[0].services.store.log.log_files)
    twins.feed(frame(send({"i": properties}), body))
    assert twins.taken - before == (above <= 0)
    twins.feed(frame(send()))
    assert len(twins.brokers[0].services.store.log.log_files) > files


def left(twins: Twins) -> int:
    """How many bytes a record may have that goes into the current file."""
    appender = twins.brokers[0].services.store.appender
    appender.begin_cycle()
    room = appender.run_room()
    assert room is not None
    return room[1] - room[0]


def record_bytes(broker: FedBroker, topic: str, properties: str, body_bytes: int) -> int:
    properties_bytes = len(properties) + len(broker.own_properties)
    topic_bytes = TOPIC_LENGTH_V1.size + len(topic)
    return RECORD.size + body_bytes + topic_bytes + PROPERTIES_LENGTH.size + properties_bytes


@pytest.mark.parametrize("above", [-1, 0, 1])
@pytest.mark.parametrize(
    "room",
    [
        lambda size, body: (1000, 1000 + size, NOW_MS, 1 << 20, 1 << 20),
        lambda size, body: (1000, 1 << 30, NOW_MS, 1 << 20, size),
        lambda size, body: (1000, 1 << 30, NOW_MS, body, 1 << 20),
    ],
    ids=["end of the file", "longest record", "longest body"],
)
@pytest.mark.parametrize("is_batch", [False, True], ids=["one", "batch"])
def test_the_room_for_a_run(
    twins: Twins, room: Callable[[int, int], RunRoom], above: int, is_batch: bool
) -> None:
    properties, body, broker = f"UNIQ_KEY\x01{ID}\x02", b"b" * 100, twins.brokers[0]
    size = record_bytes(broker, TOPIC, properties, len(body))
    data = frame(send({"i": properties}), body)
    if is_batch:  # the broker adds nothing to its messages
        size = 2 * (size - len(broker.own_properties))
        entries = [BatchEntry(0, body, properties.encode())] * 2
        data, body = frame(send({"m": "true"}), encode_batch_entries(entries)), body * 2
    taken = twins.run(broker.count_ordinary([data], room(size - above, len(body) - above)))
    assert taken == (above <= 0)


def test_queues_of_a_run(twins: Twins) -> None:
    topic = {"b": "Wide", "d": str(MAX_QUEUES + 2)}
    for broker in twins.brokers:
        config = broker.services.topics.create_in_send_back("Wide", MAX_QUEUES + 2, 6)
        assert config is not None
    twins.feed(frame(send(topic)))
    before = twins.taken
    data = b"".join(frame(send({**topic, "e": str(n % (MAX_QUEUES + 2))})) for n in range(MAX_QUEUES + 3))
    assert twins.feed(data).count(b'"code":0') == MAX_QUEUES + 3
    assert twins.taken - before == MAX_QUEUES
