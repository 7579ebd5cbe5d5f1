"""Records of a retry topic as messages of the topic that a consumer has subscribed to."""

from __future__ import annotations

import pytest

from kourou.broker.pop.pop_answer import records_with_handles
from kourou.protocol.layout import MAX_PROPERTIES_BYTES
from kourou.protocol.message_id import encode_host
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind
from kourou.protocol.record import RecordEncoder, append_property_crc, decode_records

RETRY = "%RETRY%G_T"
HANDLE = ReceiptHandle(7, 1_000, 60_000, 3, PopTopicKind.RETRY_V1, "broker-a", 0, 0)
HOST = encode_host("127.0.0.1", 10911)


def record(
    body: bytes = b"body", properties: bytes = b"", queue_offset: int = 0, topic: str = RETRY
) -> bytes:
    parts = RecordEncoder(topic, 0, HOST).parts(body, properties, queue_offset, 500, 1, 2, HOST, 4, 5, 6)
    return b"".join(parts)


def test_topic_and_handle_are_set_and_all_else_stays() -> None:
    records = record(b"a", b"KEYS\x01k\x02", 8) + record(b"b", b"", 9)
    first, second = decode_records(records_with_handles(records, "T", HANDLE))
    assert first.properties == {"KEYS": "k", "POP_CK": HANDLE._replace(queue_offset=8).encode()}
    assert second.properties == {"POP_CK": HANDLE._replace(queue_offset=9).encode()}
    for message, offset in ((first, 8), (second, 9)):
        assert message.topic == "T" and message.queue_offset == offset and message.phy_offset == 500
        assert (message.sys_flag, message.flag, message.reconsume_times) == (4, 5, 6)
    assert (first.stored_body, second.stored_body) == (b"a", b"b")


def test_a_handle_that_came_with_the_message_is_another_one() -> None:
    (message,) = decode_records(records_with_handles(record(properties=b"POP_CK\x01old\x02"), "T", HANDLE))
    assert message.properties == {"POP_CK": HANDLE.encode()}


def test_a_crc_of_the_record_as_it_was_goes() -> None:
    records = append_property_crc(record(properties=b"KEYS\x01k\x02"))
    (message,) = decode_records(records_with_handles(records, "T", HANDLE))
    assert set(message.properties) == {"KEYS", "POP_CK"}


def test_without_room_for_the_handle_a_record_stays_as_it_is() -> None:
    full = b"a\x01" + b"x" * (MAX_PROPERTIES_BYTES - 3) + b"\x02"
    assert records_with_handles(record(properties=full), "T", HANDLE) == record(properties=full)


@pytest.mark.parametrize("topic", ["t" * 127, "t" * 128])
def test_topics_of_any_length(topic: str) -> None:
    (message,) = decode_records(records_with_handles(record(topic=f"%RETRY%G_{topic}"), topic, HANDLE))
    assert message.topic == topic
