"""Answers to pops: which handle each message gets, and what acks and changes make of it."""

from __future__ import annotations

import pytest

from kourou.client.pop.pop_calls import batch_acks, changed_handle, is_temporary
from kourou.client.pop.popped import LeasedMessage, popped_messages, retry_delay_ms
from kourou.errors import (
    AccessDeniedError,
    CallTimeoutError,
    ConnectError,
    NoRouteError,
    PopNotSupportedError,
    ProtocolError,
    ResponseError,
)
from kourou.protocol.codes import ResponseCode
from kourou.protocol.headers.pop import ChangeInvisibleTimeResponseHeader, PopMessageResponseHeader
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind
from kourou.protocol.properties import encode_properties, properties_to_bytes
from kourou.protocol.record import encode_record
from tests.unit.protocol.test_message import stored

POP_TIME = 1_700_000_000_000


def record(queue_id: int, queue_offset: int, topic: str = "T", **properties: str) -> bytes:
    raw = properties_to_bytes(encode_properties(properties))
    return encode_record(stored(b"x", raw, topic=topic, queue_id=queue_id, queue_offset=queue_offset))


def popped(body: bytes, starts: str, offsets: str) -> list[LeasedMessage]:
    header = PopMessageResponseHeader(
        pop_time=POP_TIME,
        invisible_time=60_000,
        revive_qid=3,
        rest_num=0,
        start_offset_info=starts,
        msg_offset_info=offsets,
    )
    return popped_messages(
        body, header, topic="T", group="g", broker_name="broker-a", ends_at=60.0, shown_topic="T"
    )


def handle(start: int, queue_id: int, offset: int, kind: PopTopicKind = PopTopicKind.NORMAL) -> ReceiptHandle:
    return ReceiptHandle(start, POP_TIME, 60_000, 3, kind, "broker-a", queue_id, offset)


def test_a_message_has_the_check_point_of_its_queue_and_its_own_offset() -> None:
    body = record(1, 7) + record(1, 9) + record(0, 4)
    messages = popped(body, "0 1 5;0 0 4", "0 1 7,9;0 0 4")
    assert [message.lease.handle for message in messages] == [
        handle(5, 1, 7),
        handle(5, 1, 9),
        handle(4, 0, 4),
    ]
    assert {(message.broker_name, message.topic, message.body) for message in messages} == {
        ("broker-a", "T", b"x")
    }


def test_a_message_of_a_retry_topic_has_the_handle_that_the_broker_wrote() -> None:
    written = handle(11, 0, 12, PopTopicKind.RETRY_V1)
    (message,) = popped(record(0, 12, POP_CK=written.encode()), "1 0 11", "1 0 12")
    assert message.lease.handle == written
    assert message.lease.queue.topic == "%RETRY%g_T"


def test_a_handle_from_elsewhere_in_a_property_is_not_used() -> None:
    other = handle(1, 0, 1)._replace(pop_time=POP_TIME - 1)
    for text in (other.encode(), "no handle"):
        (message,) = popped(record(0, 12, POP_CK=text), "0 0 11", "0 0 12")
        assert message.lease.handle == handle(11, 0, 12)


@pytest.mark.parametrize(
    ("topic", "kind"), [("%RETRY%g_T", PopTopicKind.RETRY_V1), ("%RETRY%g+T", PopTopicKind.RETRY_V2)]
)
def test_a_record_under_the_name_of_a_retry_topic_is_acknowledged_there(
    topic: str, kind: PopTopicKind
) -> None:
    (message,) = popped(record(0, 5, topic), f"{kind.value} 0 5", f"{kind.value} 0 5")
    assert (message.lease.handle, message.topic) == (handle(5, 0, 5, kind), "T")
    assert message.lease.queue.topic == topic


@pytest.mark.parametrize(("starts", "offsets"), [("", ""), ("0 0 1", "0 0 1"), ("0 1 1", "0 1 1")])
def test_an_answer_that_does_not_list_its_messages_is_refused(starts: str, offsets: str) -> None:
    with pytest.raises(ProtocolError, match="does not list"):
        popped(record(0, 1) + record(0, 2), starts, offsets)


def test_acks_of_a_check_point_are_one_entry() -> None:
    messages = popped(record(1, 5) + record(1, 14) + record(0, 4), "0 1 5;0 0 4", "0 1 5,14;0 0 4")
    entries = batch_acks("g", [(message.lease.topic, message.lease.handle) for message in messages])
    assert [(entry.topic, entry.retry, entry.queue_id) for entry in entries] == [("T", "0", 1), ("T", "0", 0)]
    assert [entry.queue_offsets() for entry in entries] == [[5, 14], [4]]
    assert [(entry.start_offset, entry.pop_time, entry.revive_queue_id) for entry in entries] == [
        (5, POP_TIME, 3),
        (4, POP_TIME, 3),
    ]


def test_acks_of_two_topics_are_never_one_entry() -> None:
    (message,) = popped(record(0, 4), "0 0 4", "0 0 4")
    entries = batch_acks("g", [("T", message.lease.handle), ("U", message.lease.handle)])
    assert [entry.topic for entry in entries] == ["T", "U"]


def test_a_changed_message_has_a_check_point_of_its_own() -> None:
    changed = ChangeInvisibleTimeResponseHeader(pop_time=POP_TIME + 9, invisible_time=5_000, revive_qid=3)
    after = changed_handle(handle(5, 1, 9), changed)
    assert (after.start_offset, after.queue_offset) == (9, 9)
    assert (after.pop_time, after.invisible_time, after.queue_id) == (POP_TIME + 9, 5_000, 1)


def test_delays_grow_as_in_java() -> None:
    assert [retry_delay_ms(times) // 1000 for times in range(17)] == [
        *[10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200, 7200]
    ]


def test_which_errors_may_pass() -> None:
    temporary = [
        ConnectError("a:1", "refused"),
        CallTimeoutError("a:1", 1, 1),
        NoRouteError("T", "gone"),
        ResponseError(ResponseCode.SYSTEM_BUSY, ""),
        ResponseError(ResponseCode.SLAVE_NOT_AVAILABLE, ""),
    ]
    lasting = [
        PopNotSupportedError("broker-a", "a:1"),
        AccessDeniedError(ResponseCode.SYSTEM_ERROR, "", ""),
        ResponseError(ResponseCode.TOPIC_NOT_EXIST, ""),
        ResponseError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, ""),
        ProtocolError("no record"),
    ]
    assert [error for error in temporary if not is_temporary(error)] == []
    assert [error for error in lasting if is_temporary(error)] == []
