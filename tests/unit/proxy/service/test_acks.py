"""Acks, changes of the invisible time and dead letters: handles that are current, renewed, over, forged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kourou.errors import CallTimeoutError, ConnectionLostError
from kourou.protocol.bodies.batch_ack import decode_batch_acks
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.proxy.clients.held_messages import HeldMessage, HeldMessages
from kourou.proxy.clients.renewals import Renewals
from kourou.proxy.service.acks import MAX_ENTRIES, Acks, Handles
from kourou.proxy.service.dead_letters import DeadLetters
from kourou.proxy.wire.rocketmq_v2 import (
    AckMessageEntry,
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    Code,
    Duration,
    ForwardMessageToDeadLetterQueueRequest,
    Resource,
)
from tests.unit.proxy.recorded import ProxyKit, RecordedCall, SentRequest, consumer_settings
from tests.unit.proxy.service.popped import INVISIBLE_MS, POP_TIME, handle, receipt

ACK = RequestCode.ACK_MESSAGE
BATCH = RequestCode.BATCH_ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
BURY = RequestCode.CONSUMER_SEND_MSG_BACK
HOPELESS = (
    ResponseCode.NO_MESSAGE,
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
)


class Consumer:
    """A consumer of group g that has received messages of T."""

    def __init__(self, kit: ProxyKit) -> None:
        self.kit = kit
        self.brokers = kit.brokers
        self.wall_ms = POP_TIME + 1_000
        self.held = HeldMessages()
        self.renewals = Renewals(self.held, kit.tasks)
        handles = Handles(self.held, lambda: self.wall_ms)
        self.handlers = Acks(handles).handlers(kit.make) | DeadLetters(handles).handlers(kit.make)
        self.client = kit.client(consumer_settings())
        self.names = {"group": Resource(name="g"), "topic": Resource(name="T")}

    def _call(self, method: str, request: Any) -> RecordedCall:
        call = RecordedCall(method, request)
        self.handlers[call.path](call)
        return call

    def ack(self, *handles: str) -> RecordedCall:
        entries = [AckMessageEntry(message_id=f"m{i}", receipt_handle=text) for i, text in enumerate(handles)]
        return self._call("AckMessage", AckMessageRequest(**self.names, entries=entries))

    def change(self, text: str, seconds: int = 30, **fields: Any) -> RecordedCall:
        request = ChangeInvisibleDurationRequest(
            **self.names, receipt_handle=text, invisible_duration=Duration(seconds=seconds), **fields
        )
        return self._call("ChangeInvisibleDuration", request)

    def forward(self, text: str) -> RecordedCall:
        request = ForwardMessageToDeadLetterQueueRequest(**self.names, receipt_handle=text, message_id="id")
        return self._call("ForwardMessageToDeadLetterQueue", request)

    def hold(self, queue_offset: int) -> HeldMessage:
        """Receive a message whose time is extended."""
        now_s = asyncio.get_running_loop().time()
        key = "g", "T", handle(queue_offset)
        self.held.add(self.client, key, receipt(queue_offset), reconsume_times=0, received_s=now_s)
        held = self.held.find(self.client, key)
        assert held is not None
        return held

    def extend(self) -> SentRequest:
        """Begin to extend the time of the one message that is held."""
        self.renewals.extend_due(asyncio.get_running_loop().time() + 55)
        return self.brokers.requests(CHANGE)[-1]


@pytest.fixture
async def consumer(kit: ProxyKit) -> Consumer:
    return Consumer(kit)


def renewed(pop_time: int = POP_TIME + 50_000) -> RemotingCommand:
    fields = {"popTime": str(pop_time), "invisibleTime": "60000", "reviveQid": "4"}
    return RemotingCommand(0, ext_fields=fields)


# -- acks ----------------------------------------------------------------------------------------


async def test_one_ack_is_one_request(consumer: Consumer) -> None:
    call = consumer.ack(handle(7))
    (sent,) = consumer.brokers.sent
    assert (sent.code, sent.broker_name) == (ACK, "broker-a")
    assert sent.fields == {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "extraInfo": receipt(7).encode(),
        "offset": "7",
    }
    assert not call.is_over
    sent.answer(RemotingCommand(0))
    (entry,) = call.response.entries
    assert (call.response.status.code, entry.status.code) == (Code.OK, Code.OK)
    assert (entry.message_id, entry.receipt_handle) == ("m0", handle(7))


async def test_acks_of_several_messages_are_one_request_for_each_broker(consumer: Consumer) -> None:
    consumer.brokers.say(BATCH)
    consumer.brokers.say(ACK)
    call = consumer.ack(handle(7), handle(4, "broker-b"), handle(9))
    assert [(each.code, each.broker_name) for each in consumer.brokers.sent] == [
        (BATCH, "broker-a"),
        (ACK, "broker-b"),
    ]
    (ack,) = decode_batch_acks(consumer.brokers.sent[0].command.body).acks
    assert (ack.consumer_group, ack.topic, ack.queue_offsets()) == ("g", "T", [7, 9])
    assert [entry.receipt_handle for entry in call.response.entries] == [
        handle(7),
        handle(4, "broker-b"),
        handle(9),
    ]
    assert call.response.status.code == Code.OK


async def test_a_batch_that_fails_is_repeated_message_by_message(consumer: Consumer) -> None:
    def answer(sent: SentRequest) -> RemotingCommand:
        return RemotingCommand(ResponseCode.NO_MESSAGE if sent.fields["offset"] == "9" else 0)

    consumer.brokers.say(BATCH, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    consumer.brokers.answers[ACK] = answer
    response = consumer.ack(handle(7), handle(9)).response
    assert response.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in response.entries] == [Code.OK, Code.INVALID_RECEIPT_HANDLE]


@pytest.mark.parametrize("answer", HOPELESS)
async def test_an_ack_that_can_never_succeed_is_an_invalid_handle(consumer: Consumer, answer: int) -> None:
    consumer.brokers.say(ACK, answer, "why")
    assert consumer.ack(handle(7)).response.entries[0].status.code == Code.INVALID_RECEIPT_HANDLE


@pytest.mark.parametrize(
    "text",
    ["", "junk", "5 0 60000 3 0 broker-a 0", handle(7).replace("0 broker", "9 broker"), handle(7) * 50],
)
async def test_a_forged_handle_reaches_no_broker(consumer: Consumer, text: str) -> None:
    for call in consumer.ack(text), consumer.change(text), consumer.forward(text):
        assert call.response.status.code == Code.INVALID_RECEIPT_HANDLE
    assert consumer.brokers.sent == []


async def test_a_handle_whose_time_is_over_reaches_no_broker(consumer: Consumer) -> None:
    consumer.wall_ms = POP_TIME + INVISIBLE_MS
    for call in consumer.ack(handle(7)), consumer.change(handle(7)), consumer.forward(handle(7)):
        assert call.response.status.code == Code.INVALID_RECEIPT_HANDLE
    assert consumer.brokers.sent == []


async def test_an_ack_that_may_succeed_later_is_another_status(consumer: Consumer) -> None:
    consumer.brokers.answers[ACK] = lambda _: CallTimeoutError("broker-a", ACK, 3_000)
    consumer.brokers.answers[BATCH] = lambda _: ConnectionLostError("broker-a", "killed")
    assert consumer.ack(handle(7)).response.status.code == Code.PROXY_TIMEOUT
    response = consumer.ack(handle(7), handle(9)).response
    assert {entry.status.code for entry in response.entries} == {Code.INTERNAL_SERVER_ERROR}


@pytest.mark.parametrize("count", [0, MAX_ENTRIES + 1])
async def test_requests_without_entries_or_with_too_many_are_refused(consumer: Consumer, count: int) -> None:
    assert consumer.ack(*["x"] * count).response.status.code == Code.BAD_REQUEST


async def test_an_ack_of_a_message_from_a_retry_topic_names_that_topic(consumer: Consumer) -> None:
    text = handle(7).replace("3 0 broker", "3 1 broker")
    consumer.ack(text)
    assert consumer.brokers.sent[0].fields["topic"] == "%RETRY%g_T"


# -- changes -------------------------------------------------------------------------------------


async def test_a_change_returns_the_new_handle(consumer: Consumer) -> None:
    call = consumer.change(handle(7), suspend=True)
    (sent,) = consumer.brokers.sent
    assert (sent.code, sent.fields["invisibleTime"], sent.fields["suspend"]) == (CHANGE, "30000", "true")
    sent.answer(renewed())
    # Of a check point of its own, which begins at the message.
    expected = receipt(7, start_offset=7, pop_time=POP_TIME + 50_000, revive_queue_id=4).encode() + " 7000"
    assert (call.response.status.code, call.response.receipt_handle) == (Code.OK, expected)


async def test_a_change_that_fails_returns_the_old_handle(consumer: Consumer) -> None:
    consumer.brokers.say(CHANGE, ResponseCode.SYSTEM_ERROR, "busy", popTime=0, invisibleTime=0, reviveQid=0)
    failed = consumer.change(handle(7)).response
    assert (failed.status.code, failed.receipt_handle) == (Code.INTERNAL_SERVER_ERROR, handle(7))
    assert consumer.change("junk").response.receipt_handle == "junk"


@pytest.mark.parametrize("seconds", [-1, 43_201])
async def test_a_time_outside_the_limits_is_refused(consumer: Consumer, seconds: int) -> None:
    response = consumer.change(handle(7), seconds).response
    assert (response.status.code, response.receipt_handle) == (Code.ILLEGAL_INVISIBLE_TIME, handle(7))


async def test_a_change_of_what_is_acknowledged_keeps_the_handle(consumer: Consumer) -> None:
    consumer.brokers.say(CHANGE, popTime=0, invisibleTime=0, reviveQid=0)
    assert consumer.change(handle(7)).response.receipt_handle == handle(7)


# -- dead letters --------------------------------------------------------------------------------


async def test_a_dead_letter_is_sent_back_and_then_acknowledged(consumer: Consumer) -> None:
    held = consumer.hold(7)
    call = consumer.forward(handle(7))
    (buried,) = consumer.brokers.sent
    assert (buried.code, buried.fields["offset"], buried.fields["delayLevel"]) == (BURY, "7000", "-1")
    assert (buried.fields["originTopic"], buried.fields["originMsgId"]) == ("T", "id")
    buried.answer(RemotingCommand(0))
    assert not call.is_over
    consumer.brokers.requests(ACK)[0].answer(RemotingCommand(0))
    assert call.response.status.code == Code.OK
    assert (held.is_settled, len(consumer.held)) == (True, 0)


async def test_a_dead_letter_is_not_sent_twice_for_a_lost_ack(consumer: Consumer) -> None:
    consumer.brokers.say(BURY)
    consumer.brokers.answers[ACK] = lambda _: ConnectionLostError("broker-a", "killed")
    assert consumer.forward(handle(7)).response.status.code == Code.OK


async def test_a_dead_letter_that_is_not_stored_stays_with_the_consumer(consumer: Consumer) -> None:
    held = consumer.hold(7)
    consumer.brokers.say(BURY, ResponseCode.SYSTEM_ERROR, "the disk is full")
    assert consumer.forward(handle(7)).response.status.code == Code.INTERNAL_SERVER_ERROR
    assert (held.is_used, len(consumer.held)) == (False, 1)


async def test_a_handle_without_the_place_in_the_log_is_of_no_use_there(consumer: Consumer) -> None:
    assert consumer.forward(receipt(7).encode()).response.status.code == Code.INVALID_RECEIPT_HANDLE


# -- messages whose time is extended -------------------------------------------------------------


async def test_an_ack_with_the_first_handle_reaches_the_renewed_one(consumer: Consumer) -> None:
    consumer.hold(7)
    consumer.extend().answer(renewed())
    consumer.wall_ms = POP_TIME + INVISIBLE_MS + 1  # the first handle is over by now
    call = consumer.ack(handle(7))
    (ack,) = consumer.brokers.requests(ACK)
    expected = receipt(7, start_offset=7, pop_time=POP_TIME + 50_000, revive_queue_id=4)
    assert ack.fields["extraInfo"] == expected.encode()
    ack.answer(RemotingCommand(0))
    assert (call.response.entries[0].receipt_handle, len(consumer.held)) == (handle(7), 0)


async def test_an_ack_waits_for_an_extension_under_way(consumer: Consumer) -> None:
    consumer.hold(7)
    change = consumer.extend()
    calls = [consumer.ack(handle(7)), consumer.ack(handle(7), handle(9))]
    assert [each.fields["offset"] for each in consumer.brokers.requests(ACK)] == ["9"]
    change.answer(renewed())
    first = consumer.brokers.requests(ACK)[-1]
    assert first.fields["extraInfo"].startswith("7 ")
    consumer.brokers.say(ACK)
    for ack in consumer.brokers.requests(ACK):
        ack.answer(RemotingCommand(0))
    assert calls[0].response.status.code == Code.OK
    # It was acknowledged by the first call meanwhile: brokers answer that as they do the first time.
    assert [entry.status.code for entry in calls[1].response.entries] == [Code.OK, Code.OK]


async def test_a_message_that_is_acknowledged_meanwhile_is_not_returned(consumer: Consumer) -> None:
    consumer.hold(7)
    acked, changed = consumer.ack(handle(7)), consumer.change(handle(7))
    consumer.brokers.requests(ACK)[0].answer(RemotingCommand(0))
    assert acked.response.status.code == Code.OK
    assert changed.response.status.code == Code.INVALID_RECEIPT_HANDLE
    assert consumer.brokers.requests(CHANGE) == []


async def test_an_ack_that_fails_leaves_the_message_held(consumer: Consumer) -> None:
    held = consumer.hold(7)
    consumer.brokers.answers[ACK] = lambda _: ConnectionLostError("broker-a", "killed")
    consumer.ack(handle(7))
    assert (held.is_used, held.is_gone, len(consumer.held)) == (False, False, 1)
    consumer.brokers.say(ACK)
    assert consumer.ack(handle(7)).response.status.code == Code.OK
    assert len(consumer.held) == 0


async def test_a_returned_message_is_not_extended_any_more(consumer: Consumer) -> None:
    consumer.hold(7)
    consumer.brokers.answers[CHANGE] = lambda _: renewed()
    assert consumer.change(handle(7), 5).response.status.code == Code.OK
    assert len(consumer.held) == 0


async def test_a_held_message_whose_time_is_over_is_dropped(consumer: Consumer) -> None:
    held = consumer.hold(7)
    held.expires_s = asyncio.get_running_loop().time() - 1
    assert consumer.ack(handle(7)).response.status.code == Code.INVALID_RECEIPT_HANDLE
    assert (consumer.brokers.sent, len(consumer.held)) == ([], 0)
