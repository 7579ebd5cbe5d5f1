"""The decisions around a send: retries, results, requests, and what a user reads."""

from __future__ import annotations

import base64
import logging

import pytest

from kourou.client.core.namespaces import Namespace
from kourou.client.core.unique_id import UniqueIds
from kourou.client.producer.outgoing import Outgoing
from kourou.client.producer.pending_send import (
    RETRY_CODES,
    describe_attempt,
    is_master_away,
    is_retriable,
    is_route_stale,
)
from kourou.client.producer.producer_groups import enter_group, leave_group
from kourou.client.producer.producer_options import ProducerKeywords, ProducerOptions, split_keywords
from kourou.client.producer.queue_choice import QueueChoice
from kourou.client.producer.send_result import (
    SendResult,
    SendStatus,
    broker_of_handle,
    send_result,
    split_result,
)
from kourou.errors import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    HeaderFieldError,
    MessageRefusedError,
    NoRouteError,
    PartlySentError,
    ResponseError,
    SendFailedError,
    TlsError,
    TooManyRequestsError,
)
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import CommandHead
from kourou.protocol.compression import CompressionType
from kourou.protocol.message import Message
from kourou.protocol.properties import decode_properties

QUEUE = MessageQueue("TopicTest", "broker-a", 1)
ANSWER = {"msgId": "OFFSET-ID", "queueId": "1", "queueOffset": "7"}


def outgoing(namespace: str = "", **options: object) -> Outgoing:
    return Outgoing(Namespace(namespace), ProducerOptions(**options), UniqueIds("10.0.0.1"))  # type: ignore[arg-type]


# -- retries -------------------------------------------------------------------------------------------


def test_the_codes_of_java_5_are_tried_again() -> None:
    apache = {1, 2, 14, 16, 17, 204, 205, 1500}
    assert RETRY_CODES == apache | {ResponseCode.KOUROU_DISK_FULL, ResponseCode.KOUROU_NOT_STORED}
    assert is_retriable(ResponseError(2, "busy"))
    assert not is_retriable(ResponseError(13, "illegal"))


@pytest.mark.parametrize(
    ("error", "again", "stale"),
    [
        (ConnectError("a:1", "refused"), True, True),
        (ConnectionLostError("a:1", "reset"), True, True),
        (CallTimeoutError("a:1", 310, 100), True, False),
        (NoRouteError("T", "no master"), True, True),
        (TooManyRequestsError("a:1", "calls", 5), False, False),
        (TlsError("a:1", "no certificate"), False, False),
        (ValueError("of a selector"), False, False),
    ],
)
def test_what_the_network_does_is_tried_again(error: Exception, again: bool, stale: bool) -> None:
    assert (is_retriable(error), is_route_stale(error)) == (again, stale)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectError("a:1", "refused"), True),
        (ConnectionLostError("a:1", "reset"), True),
        (NoRouteError("T", "no master"), True),
        (ResponseError(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is not master"), True),
        (ResponseError(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough: 1 of 2 copies"), True),
        (ResponseError(ResponseCode.SYSTEM_ERROR, "a bug"), False),
        (ResponseError(ResponseCode.SYSTEM_BUSY, "too many sends"), False),
        (CallTimeoutError("a:1", 310, 100), False),
    ],
)
def test_a_send_waits_for_a_master_only_where_one_may_come(error: Exception, expected: bool) -> None:
    assert is_master_away(error) is expected


def test_an_attempt_names_the_broker_and_the_next_step() -> None:
    refused = describe_attempt("broker-a", "10.0.0.1:10911", ResponseError(2, "broker busy"))
    assert refused == "broker broker-a at 10.0.0.1:10911 answered code 2: broker busy"
    unreachable = describe_attempt(
        "broker-a", "172.17.0.2:10911", ConnectError("172.17.0.2:10911", "refused")
    )
    assert unreachable.startswith("broker broker-a: cannot connect to 172.17.0.2:10911: refused (")
    assert "set brokerIP1" in unreachable


def test_errors_read_well() -> None:
    error = SendFailedError("T", ["first", "second"], 3000)
    assert str(error) == "topic 'T': not sent after 2 attempts within 3000 ms: first; second"
    same = SendFailedError("T", ["refused", "late", "refused"], 3000)
    assert str(same) == "topic 'T': not sent after 3 attempts within 3000 ms: refused (2 times); late"
    assert same.attempts == ["refused", "late", "refused"]
    partly = PartlySentError("T", [object(), error, error], 3000)
    assert str(partly) == f"2 of 3 messages were not stored: {error}"


# -- results -------------------------------------------------------------------------------------------


def test_an_answer_becomes_a_result() -> None:
    fields = {**ANSWER, "transactionId": "TX", "recallHandle": "H", "MSG_REGION": "eu", "TRACE_ON": "false"}
    result = send_result(CommandHead(0, ext_fields=fields), SendStatus.SEND_OK, QUEUE, "ID", "TopicTest")
    assert result == SendResult(SendStatus.SEND_OK, "ID", QUEUE, 7, "OFFSET-ID", "TX", "H", "eu", False)
    plain = send_result(CommandHead(0, ext_fields=ANSWER), SendStatus.SEND_OK, QUEUE, "ID", "TopicTest")
    assert (plain.transaction_id, plain.recall_handle, plain.trace_on) == (None, None, True)
    assert plain.queue is QUEUE


def test_a_broker_that_chose_another_queue_is_believed() -> None:
    fields = {**ANSWER, "queueId": "3"}
    result = send_result(CommandHead(0, ext_fields=fields), SendStatus.SEND_OK, QUEUE, "ID", "Mine")
    assert result.queue == MessageQueue("Mine", "broker-a", 3)


@pytest.mark.parametrize("fields", [None, {}, {**ANSWER, "queueOffset": "x"}, {"queueId": "1"}])
def test_an_answer_without_its_fields_is_refused(fields: dict[str, str] | None) -> None:
    with pytest.raises(HeaderFieldError, match="SendMessageResponseHeader: "):
        send_result(CommandHead(0, ext_fields=fields), SendStatus.SEND_OK, QUEUE, "ID", "TopicTest")


def test_the_result_of_a_batch_is_one_for_each_message() -> None:
    batch = SendResult(SendStatus.SEND_OK, "BATCH", QUEUE, 7, "O1,O2,O3", region_id="eu")
    results = split_result(batch, ["A", "B", "C"])
    assert [(r.msg_id, r.queue_offset, r.offset_msg_id) for r in results] == [
        ("A", 7, "O1"),
        ("B", 8, "O2"),
        ("C", 9, "O3"),
    ]
    assert {r.region_id for r in results} == {"eu"}
    as_one = split_result(SendResult(SendStatus.SEND_OK, "BATCH", QUEUE, 7, "O1"), ["A", "B"])
    assert [r.offset_msg_id for r in as_one] == ["O1", "O1"]


@pytest.mark.parametrize(
    ("ids", "queue_offsets", "expected"),
    [
        (",X", "7,3", [("A", 7), ("X", 3)]),
        ("P,Q,R", "7,3", [("A", 7), ("B", 3)]),  # an id of another client, with a comma in it
        (",X", "7", [("A", 7), ("B", 8)]),
    ],
)
def test_repeats_in_a_batch_have_the_ids_and_places_of_their_originals(
    ids: str, queue_offsets: str, expected: list[tuple[str, int]]
) -> None:
    fields = {**ANSWER, "queueOffset": "7", "kourouMsgIds": ids, "kourouQueueOffsets": queue_offsets}
    batch = send_result(CommandHead(0, ext_fields=fields), SendStatus.SEND_OK, QUEUE, "A", "TopicTest")
    assert [(r.msg_id, r.queue_offset) for r in split_result(batch, ["A", "B"])] == expected


# -- requests ------------------------------------------------------------------------------------------


def test_a_message_gets_an_id_once() -> None:
    message = Message("TopicTest", b"x")
    first, second = outgoing().request(message), outgoing().request(message)
    assert first.uniq_key == second.uniq_key == message.get_property("UNIQ_KEY")
    assert first.properties == f"UNIQ_KEY\x01{first.uniq_key}\x02"


def test_what_a_request_adds_leaves_the_message_alone() -> None:
    message = Message("TopicTest", b"x" * 5_000, tags="T")
    request = outgoing("shop").request(message, extra="A\x01b\x02", sys_flag=4)
    assert set(message.properties) == {"TAGS", "UNIQ_KEY"} and message.topic == "TopicTest"
    assert request.topic == "shop%TopicTest" and request.sys_flag == 4 | 0x301
    assert decode_properties(request.properties)["INSTANCE_ID"] == "shop"
    assert request.extra_properties == "A\x01b\x02INSTANCE_ID\x01shop\x02"


@pytest.mark.parametrize("kind", list(CompressionType))
def test_bodies_are_compressed_as_configured(kind: CompressionType) -> None:
    request = outgoing(compression=kind, compress_over_bytes=10).request(Message("T", b"x" * 100))
    assert request.sys_flag == kind.sys_flag and len(request.body) < 100
    assert outgoing(compress_over_bytes=10).request(Message("T", b"x" * 9)).sys_flag == 0
    assert outgoing(compress_over_bytes=1).request(Message("T", b"x")).body == b"x", "it would only grow"


def test_a_batch_has_an_id_for_each_message_and_no_compression() -> None:
    messages = [Message("T", b"x" * 10_000), Message("T", b"y" * 10_000)]
    request = outgoing().batch(messages)
    assert (request.code, request.batch, request.sys_flag, request.properties) == (320, True, 0, "")
    assert len(request.body) > 20_000
    assert len({message.get_property("UNIQ_KEY") for message in messages}) == 2
    unsafe = outgoing().batch([Message("T", b"1", wait_store_msg_ok=False)])
    assert unsafe.properties == "WAIT\x01false\x02"
    with pytest.raises(MessageRefusedError, match="at most 100 are allowed"):
        outgoing(max_message_bytes=100).batch([Message("T", b"x" * 60), Message("T", b"y" * 60)])


def test_replies_have_a_code_of_their_own_and_no_namespace() -> None:
    reply = Message("DefaultCluster_REPLY_TOPIC", b"x")
    reply.put_property("MSG_TYPE", "reply")
    request = outgoing("shop").request(reply)
    assert (request.code, request.topic) == (325, "DefaultCluster_REPLY_TOPIC")


def test_a_topic_is_checked_every_time_its_name_is_new() -> None:
    requests = outgoing()
    message = Message("T", b"x")
    requests.request(message)
    message.topic = "no such character: é"
    with pytest.raises(MessageRefusedError, match="contains"):
        requests.request(message)
    with pytest.raises(MessageRefusedError, match="the body is empty"):
        requests.request(Message("T", b""))


# -- choices -------------------------------------------------------------------------------------------


def test_a_selector_sees_the_users_names() -> None:
    wire = [MessageQueue("shop%T", "broker-a", number) for number in range(4)]
    choice = QueueChoice(Namespace("shop"))
    message = Message("T", b"x")
    assert choice(message) is None
    shown: list[MessageQueue] = []

    def selector(queues: object, message: Message, arg: object) -> MessageQueue:
        shown.extend(queues)  # type: ignore[arg-type]
        return MessageQueue("T", "broker-a", int(str(arg)))

    chosen = choice(message, selector=selector, arg=3)
    assert chosen is not None and chosen(wire) == wire[3]
    assert {queue.topic for queue in shown} == {"T"}
    fixed = choice(message, queue=MessageQueue("T", "broker-b", 9))
    assert fixed is not None and fixed(wire) == MessageQueue("shop%T", "broker-b", 9)
    hashed = choice(message, sharding_key="a")
    assert hashed is not None and hashed(wire) in wire
    assert message.get_property("__SHARDINGKEY") == "a"
    with pytest.raises(MessageRefusedError, match="the sharding key is empty"):
        choice(message, sharding_key="")


def test_a_recall_handle_names_its_broker() -> None:
    text = b"v1 Orders broker-a 1700000000000 7F000001"
    assert broker_of_handle(base64.urlsafe_b64encode(text).decode()) == "broker-a"
    assert broker_of_handle(base64.urlsafe_b64encode(text).decode().rstrip("=")) == "broker-a"
    for wrong in ("", "v1", "????", base64.urlsafe_b64encode(b"v2 a b 1 c").decode(), "é"):
        with pytest.raises(ValueError, match="is not a recall handle"):
            broker_of_handle(wrong)


# -- options -------------------------------------------------------------------------------------------


def test_keywords_are_sorted_and_unknown_ones_named() -> None:
    options, settings = split_keywords({"retry_times": 5, "namesrv": "a:1"})
    assert (options.retry_times, options.send_timeout_ms, settings.namesrv) == (5, 3000, "a:1")
    with pytest.raises(TypeError, match="retries"):
        split_keywords({"retries": 5})  # type: ignore[typeddict-unknown-key]


def test_keywords_and_options_are_the_same() -> None:
    own = set(ProducerKeywords.__annotations__)
    assert set(ProducerOptions.__dataclass_fields__) <= own


@pytest.mark.parametrize(
    "name", ["send_timeout_ms", "max_in_flight", "max_batch_bytes", "attempt_timeout_ms"]
)
def test_numbers_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        ProducerOptions(**{name: 0})
    with pytest.raises(ValueError, match="retry_times is -1; it must be at least 0"):
        ProducerOptions(retry_times=-1)


def test_a_group_in_two_uses_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    enter_group("mixed", transactional=False)
    enter_group("mixed", transactional=False)
    assert caplog.text == ""
    enter_group("mixed", transactional=True)
    assert "producer group 'mixed' is used with and without transactions" in caplog.text
    caplog.clear()
    for transactional in (True, False, False):
        leave_group("mixed", transactional=transactional)
    enter_group("mixed", transactional=True)
    leave_group("mixed", transactional=True)
    assert caplog.text == ""
