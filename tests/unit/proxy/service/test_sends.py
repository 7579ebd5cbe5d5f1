"""SendMessage: what brokers get, and what clients are answered when brokers fail."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kourou.errors import CallTimeoutError, ConnectionLostError, ResponseError
from kourou.protocol.batch import split_batch
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.proxy.messages.limits import MessageLimits
from kourou.proxy.service.sends import Sends
from kourou.proxy.service.transactions import Transactions
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    Message,
    MessageType,
    Resource,
    SendMessageRequest,
    SystemProperties,
)
from tests.unit.proxy.recorded import ProxyKit, RecordedCall, SentRequest

SEND, SEND_BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
OFFSET_ID = "7F00000100002A9F0000000000000100"
_ids = itertools.count(1)


class SendKit:
    """The service behind recorded calls."""

    def __init__(self, kit: ProxyKit, limits: MessageLimits | None = None) -> None:
        self.kit = kit
        self.transactions = Transactions()
        sends = Sends(
            kit.brokers, self.transactions, limits or MessageLimits(), kit.tasks, now_ms=lambda: 1_000
        )
        self.handlers = sends.handlers(kit.make)

    async def send(self, *messages: Message, **call: Any) -> Any:
        """The response; None: there is none yet."""
        recorded = RecordedCall("SendMessage", SendMessageRequest(messages=messages), **call)
        await self.kit.call(self.handlers, recorded)
        return recorded.response if recorded.sent else None


@pytest.fixture
async def sends(kit: ProxyKit) -> AsyncIterator[SendKit]:
    kit.brokers.topics["T"] = TopicConfig("T", attributes={"message.type": "MIXED"})
    yield SendKit(kit)


def message(body: bytes = b"body", topic: str = "T", **system: Any) -> Message:
    system_properties = SystemProperties(message_id=f"01{next(_ids):032X}", **system)
    return Message(topic=Resource(name=topic), body=body, system_properties=system_properties)


def stored(sent: SentRequest) -> RemotingCommand:
    ids = [OFFSET_ID] * (len(split_batch(sent.command.body)) if sent.code == SEND_BATCH else 1)
    return answer(sent, ResponseCode.SUCCESS, msgId=",".join(ids))


def answer(sent: SentRequest, code: int, **fields: str) -> RemotingCommand:
    known = {"msgId": OFFSET_ID, "queueId": sent.fields["e"], "queueOffset": "7"}
    return RemotingCommand(code, ext_fields=known | fields)


def entry_codes(response: Any) -> list[int]:
    return [entry.status.code for entry in response.entries]


@pytest.mark.parametrize("is_known", [True, False])
async def test_the_request_to_the_broker(sends: SendKit, is_known: bool) -> None:
    brokers = sends.kit.brokers
    brokers.is_known, brokers.answers[SEND] = is_known, stored
    sent = message(b"body", tag="t")
    response = await sends.send(sent)
    (request,) = brokers.sent
    header = request.command.header(SendMessageRequestHeaderV2)
    assert header == SendMessageRequestHeaderV2(
        producer_group="T",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=header.queue_id,
        sys_flag=0,
        born_timestamp=1_000,
        flag=0,
        properties=header.properties,
        broker_name="broker-a",
    )
    assert 0 <= header.queue_id < 4 and request.command.body == b"body"
    (entry,) = response.entries
    assert (response.status.code, entry.status.code, entry.offset) == (Code.OK, Code.OK, 7)
    assert entry.message_id == sent.system_properties.message_id


async def test_queues_take_turns(sends: SendKit) -> None:
    brokers = sends.kit.brokers
    brokers.answers[SEND] = stored
    brokers.routes["Other"] = ["broker-a"]
    brokers.is_known = True
    for _ in range(8):
        # Sends to two topics alternate: each has its own turns.
        await sends.send(message())
        await sends.send(message(topic="Other"))
    queues = [int(sent.fields["e"]) for sent in brokers.sent if sent.fields["b"] == "T"]
    assert queues[:4] == queues[4:] and sorted(queues[:4]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE),
    ],
)
async def test_stored_but_not_as_safely_as_configured(sends: SendKit, code: int, expected: Code) -> None:
    sends.kit.brokers.answers[SEND] = lambda sent: answer(sent, code)
    response = await sends.send(message())
    assert (response.status.code, entry_codes(response)) == (expected, [expected])
    assert response.entries[0].offset == 7


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (RemotingCommand(ResponseCode.SYSTEM_BUSY, remark="busy"), Code.TOO_MANY_REQUESTS),
        (RemotingCommand(ResponseCode.NO_PERMISSION, remark="forbidden"), Code.FORBIDDEN),
        (RemotingCommand(ResponseCode.NO_PERMISSION, remark="check signature failed"), Code.UNAUTHORIZED),
        (RemotingCommand(ResponseCode.MESSAGE_ILLEGAL, remark="illegal"), Code.BAD_REQUEST),
        (RemotingCommand(ResponseCode.SUCCESS, ext_fields={"msgId": "x"}), Code.INTERNAL_SERVER_ERROR),
        (CallTimeoutError("a", SEND, 3_000), Code.PROXY_TIMEOUT),
        (ConnectionLostError("a", "gone"), Code.INTERNAL_SERVER_ERROR),
    ],
)
async def test_failures(sends: SendKit, failure: RemotingCommand | Exception, expected: Code) -> None:
    sends.kit.brokers.answers[SEND] = lambda _: failure
    response = await sends.send(message())
    assert (response.status.code, entry_codes(response)) == (expected, [expected])
    assert response.status.message


async def test_a_broker_that_has_failed_is_passed_over(sends: SendKit) -> None:
    brokers = sends.kit.brokers
    brokers.routes["T"] = ["broker-a", "broker-b"]

    def answers(sent: SentRequest) -> RemotingCommand | Exception:
        return ConnectionLostError("a", "gone") if sent.broker_name == "broker-a" else stored(sent)

    brokers.answers[SEND] = answers
    codes = [(await sends.send(message())).status.code for _ in range(40)]
    assert codes.count(Code.INTERNAL_SERVER_ERROR) == 1
    # A message group stays where it is.
    in_order = [await sends.send(message(message_group=f"group-{number}")) for number in range(20)]
    assert {each.status.code for each in in_order} == {Code.OK, Code.INTERNAL_SERVER_ERROR}


async def test_the_deadline_is_the_timeout(sends: SendKit) -> None:
    for timeout_s, expected_ms in ((None, 3_000), (1.5, 1_500), (900.0, 30_000), (0.0, 1)):
        sends.kit.brokers.sent.clear()
        assert await sends.send(message(), timeout_s=timeout_s) is None
        (sent,) = sends.kit.brokers.sent
        assert expected_ms - 500 <= sent.timeout_ms <= expected_ms


async def test_results_that_differ(sends: SendKit) -> None:
    sends.kit.brokers.answers[SEND_BATCH] = stored
    sends.kit.brokers.answers[SEND] = lambda sent: answer(sent, ResponseCode.SYSTEM_BUSY)
    half = {"message_type": MessageType.TRANSACTION}
    response = await sends.send(message(b"0"), message(b"1", **half), message(b"2"))
    assert response.status.code == Code.MULTIPLE_RESULTS
    assert entry_codes(response) == [Code.OK, Code.TOO_MANY_REQUESTS, Code.OK]
    assert [entry.offset for entry in response.entries] == [7, 0, 8]


async def test_batches_are_no_larger_than_a_message_may_be(sends: SendKit) -> None:
    sends.kit.brokers.answers[SEND_BATCH] = sends.kit.brokers.answers[SEND] = stored
    body = bytes(1_500_000)
    response = await sends.send(*(message(body) for _ in range(5)))
    assert entry_codes(response) == [Code.OK] * 5
    assert [sent.code for sent in sends.kit.brokers.sent] == [SEND_BATCH, SEND_BATCH, SEND]
    header = sends.kit.brokers.sent[0].command.header(SendMessageRequestHeaderV2)
    assert header.batch and all(len(sent.command.body) < 4 * 1024 * 1024 for sent in sends.kit.brokers.sent)


async def test_a_request_has_a_limit_of_messages(sends: SendKit) -> None:
    sends.kit.brokers.answers[SEND_BATCH] = stored
    assert len((await sends.send(*[message(b"x")] * 1_024)).entries) == 1_024
    assert (await sends.send(*[message(b"x")] * 1_025)).status.code == Code.PAYLOAD_TOO_LARGE


async def test_a_half_message_is_known_even_if_its_client_has_gone(sends: SendKit) -> None:
    call = RecordedCall(
        "SendMessage", SendMessageRequest(messages=[message(message_type=MessageType.TRANSACTION)])
    )
    await sends.kit.call(sends.handlers, call)
    call.cancel()
    (sent,) = sends.kit.brokers.sent
    sent.answer(stored(sent))
    assert len(sends.transactions) == 1 and not call.sent


async def test_nothing_is_sent_for_a_client_that_has_gone_while_its_topic_was_looked_for(
    sends: SendKit,
) -> None:
    call = RecordedCall("SendMessage", SendMessageRequest(messages=[message()]))
    sends.handlers[call.path](call)
    call.cancel()
    await sends.send(message())
    assert len(sends.kit.brokers.sent) == 1


@pytest.mark.parametrize(
    "config",
    [None, ResponseError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 351 not supported")],
)
async def test_brokers_that_do_not_name_types(sends: SendKit, config: Any) -> None:
    sends.kit.brokers.topics["T"] = config
    sends.kit.brokers.answers[SEND] = stored
    assert (await sends.send(message(message_group="g"))).status.code == Code.OK


async def test_the_check_of_types_can_be_switched_off(kit: ProxyKit) -> None:
    kit.brokers.topics["T"] = TopicConfig("T")
    kit.brokers.answers[SEND] = stored
    strict, lenient = SendKit(kit), SendKit(kit, MessageLimits(checks_types=False))
    refused = await strict.send(message(message_group="g"))
    assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    kit.brokers.topics["T"] = AssertionError("nobody asks")  # type: ignore[assignment]
    assert (await lenient.send(message(message_group="g"))).status.code == Code.OK
