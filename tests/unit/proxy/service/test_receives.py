"""Receives: what a pop asks for, and what becomes of the messages that it finds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kourou.errors import CallTimeoutError
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.proxy.clients.client_settings import ClientPolicy
from kourou.proxy.clients.held_messages import HeldMessages
from kourou.proxy.service.dead_letters import Leftovers
from kourou.proxy.service.receives import Receives
from kourou.proxy.wire.rocketmq_v2 import (
    Broker,
    ClientType,
    Code,
    Duration,
    FilterExpression,
    FilterType,
    MessageQueue,
    ReceiveMessageRequest,
    Resource,
)
from tests.unit.proxy.recorded import (
    ProxyKit,
    RecordedCall,
    SentRequest,
    consumer_settings,
    settle,
)
from tests.unit.proxy.service.popped import handle, pop_answer, receipt

POP = RequestCode.POP_MESSAGE
ACK = RequestCode.ACK_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
BURY = RequestCode.CONSUMER_SEND_MSG_BACK


class Receiver:
    """The service, with a consumer of group g."""

    def __init__(self, kit: ProxyKit) -> None:
        self.kit = kit
        self.held = HeldMessages()
        policy, leftovers = ClientPolicy(), Leftovers()
        service = Receives(
            kit.brokers, self.held, leftovers, policy, kit.tasks, lambda: 1_700_000_000_500_000_000
        )
        self.handlers = service.handlers(kit.make)
        kit.client(consumer_settings())

    def call(self, *, timeout_s: float | None = 23.0, version: str = "5.2.0", **fields: Any) -> RecordedCall:
        """Receive; the pop waits at the broker, or is answered as the kit says."""
        fields = {
            "group": Resource(name="g"),
            "message_queue": MessageQueue(topic=Resource(name="T"), id=7, broker=Broker(name="broker-a")),
            "batch_size": 32,
            "auto_renew": True,
            "long_polling_timeout": Duration(seconds=20),
            **fields,
        }
        request = ReceiveMessageRequest(
            **{name: value for name, value in fields.items() if value is not None}
        )
        call = RecordedCall("ReceiveMessage", request, timeout_s=timeout_s, x_mq_client_version=version)
        self.handlers[call.path](call)
        return call

    def pop(self, **call: Any) -> SentRequest:
        """The pop of a receive."""
        self.call(**call)
        (pop,) = self.kit.brokers.requests(POP)
        return pop

    def code(self, **call: Any) -> int:
        """The code of a receive that no broker gets to see."""
        made = self.call(**call)
        assert self.kit.brokers.sent == []
        code: int = made.response.status.code
        return code


@pytest.fixture
async def receiver(kit: ProxyKit) -> Receiver:
    return Receiver(kit)


# -- what is asked for ---------------------------------------------------------------------------


async def test_a_push_consumer_pops_any_queue_of_the_broker_for_a_minute(receiver: Receiver) -> None:
    pop = receiver.pop(attempt_id="again")
    assert pop.broker_name == "broker-a"
    assert pop.fields == {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "60000",
        "pollTime": "20000",
        "bornTime": "0",
        "initMode": "1",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
        "attemptId": "again",
    }
    assert pop.timeout_ms == 25_000


async def test_a_group_in_order_pops_in_order(receiver: Receiver) -> None:
    receiver.kit.client(consumer_settings(), consume_message_orderly=True)
    assert receiver.pop().fields["order"] == "true"


async def test_the_rules_of_a_group_are_read_where_they_are_not_known(receiver: Receiver) -> None:
    receiver.kit.client().rules = None
    receiver.kit.brokers.groups["g"] = SubscriptionGroupConfig(consume_message_orderly=True)
    receiver.call()
    await settle()
    assert [pop.fields["order"] for pop in receiver.kit.brokers.requests(POP)] == ["true"]


async def test_a_client_that_receives_for_another_group_gets_the_rules_of_that_one(
    receiver: Receiver,
) -> None:
    receiver.kit.brokers.groups["other"] = SubscriptionGroupConfig(consume_message_orderly=True)
    receiver.call(group=Resource(name="other"))
    await settle()
    receiver.call()
    await settle()
    pops = receiver.kit.brokers.requests(POP)
    assert [(pop.fields["consumerGroup"], pop.fields["order"]) for pop in pops] == [
        ("other", "true"),
        ("g", "false"),
    ]


@pytest.mark.parametrize(
    ("kind", "expression", "expected"),
    [
        (FilterType.TAG, "A || B", ("TAG", "A || B")),
        (FilterType.FILTER_TYPE_UNSPECIFIED, "", ("TAG", "*")),
        (FilterType.SQL, "a > 5", ("SQL92", "a > 5")),
        (FilterType.SQL, "PLUGIN json $.total > 5", ("SQL92", "PLUGIN json $.total > 5")),
    ],
)
async def test_the_filter_of_the_request_counts(
    receiver: Receiver, kind: FilterType, expression: str, expected: tuple[str, str]
) -> None:
    fields = receiver.pop(filter_expression=FilterExpression(type=kind, expression=expression)).fields
    assert (fields["expType"], fields["exp"]) == expected


@pytest.mark.parametrize(
    ("polling_s", "timeout_s", "low_ms", "high_ms"),
    [
        (20, 23, 20_000, 20_000),
        (1, 23, 5_000, 5_000),
        (60, 70, 20_000, 20_000),
        # Go's simple consumer sends none: what is left less half the request timeout of 3 s.
        (None, 13, 11_000, 11_500),
        (None, None, 20_000, 20_000),
        (20, None, 20_000, 20_000),
        # The answer has to arrive before the deadline.
        (20, 7, 6_000, 6_500),
        (5, 5.01, 5_000, 5_000),
    ],
)
async def test_a_pop_waits_within_limits_and_the_deadline(
    receiver: Receiver, polling_s: int | None, timeout_s: float | None, low_ms: int, high_ms: int
) -> None:
    polling = None if polling_s is None else Duration(seconds=polling_s)
    pop = receiver.pop(long_polling_timeout=polling, timeout_s=timeout_s)
    assert low_ms <= int(pop.fields["pollTime"]) <= high_ms


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("5.2.0", Code.ILLEGAL_POLLING_TIME),
        ("5.0.3-SNAPSHOT", Code.ILLEGAL_POLLING_TIME),
        ("5.0.2", Code.BAD_REQUEST),
        ("", Code.BAD_REQUEST),
    ],
)
async def test_a_deadline_that_is_too_near_is_refused(receiver: Receiver, version: str, code: Code) -> None:
    assert receiver.code(timeout_s=4, version=version) == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"auto_renew": False}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"auto_renew": False, "invisible_duration": Duration(seconds=9)}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"auto_renew": False, "invisible_duration": Duration(seconds=43_201)}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"batch_size": 0}, Code.BAD_REQUEST),
        ({"group": Resource()}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": None}, Code.ILLEGAL_TOPIC),
        ({"filter_expression": FilterExpression(type=9)}, Code.ILLEGAL_FILTER_EXPRESSION),
    ],
)
async def test_receives_that_cannot_be_served_are_refused(
    receiver: Receiver, fields: dict[str, Any], code: Code
) -> None:
    assert receiver.code(**fields) == code


async def test_a_client_receives_before_its_settings_are_known(receiver: Receiver) -> None:
    """Go's and Python's clients send them again up to five minutes after a restart of the proxy."""
    client = receiver.kit.client()
    client.settings = None
    assert receiver.pop().fields["consumerGroup"] == "g"
    assert client.settings is None


async def test_a_simple_consumer_says_for_how_long_messages_are_its_own(receiver: Receiver) -> None:
    receiver.kit.client(consumer_settings(client_type=ClientType.SIMPLE_CONSUMER))
    fields = receiver.pop(auto_renew=False, invisible_duration=Duration(seconds=15), batch_size=100).fields
    assert (fields["invisibleTime"], fields["maxMsgNums"]) == ("15000", "32")


# -- what is answered ----------------------------------------------------------------------------


async def test_the_status_comes_first_and_the_time_of_delivery_last(receiver: Receiver) -> None:
    receiver.kit.brokers.answers[POP] = lambda _: pop_answer(7, 9)
    status, first, second, delivered = receiver.call().responses
    assert (status.status.code, delivered.delivery_timestamp.seconds) == (Code.OK, 1_700_000_000)
    assert [each.message.system_properties.queue_offset for each in (first, second)] == [7, 9]
    assert first.message.system_properties.receipt_handle == handle(7)
    assert (first.message.topic.name, first.message.body) == ("T", b"body")
    assert first.message.system_properties.delivery_attempt == 1


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ResponseCode.POLLING_TIMEOUT, Code.MESSAGE_NOT_FOUND),
        (ResponseCode.PULL_NOT_FOUND, Code.MESSAGE_NOT_FOUND),
        (ResponseCode.POLLING_FULL, Code.TOO_MANY_REQUESTS),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Code.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.TOPIC_NOT_EXIST, Code.TOPIC_NOT_FOUND),
        (ResponseCode.NO_PERMISSION, Code.FORBIDDEN),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, Code.ILLEGAL_FILTER_EXPRESSION),
    ],
)
async def test_every_other_answer_is_one_status(receiver: Receiver, answer: int, code: Code) -> None:
    receiver.kit.brokers.say(POP, answer, "why")
    call = receiver.call()
    assert (call.response.status.code, call.is_over) == (code, True)


async def test_a_broker_that_does_not_answer_is_a_status(receiver: Receiver) -> None:
    receiver.kit.brokers.answers[POP] = lambda _: CallTimeoutError("broker-a", POP, 25_000)
    assert receiver.call().response.status.code == Code.PROXY_TIMEOUT


@pytest.mark.parametrize("fields", [{}, {"popTime": "1"}, {"popTime": "a", "msgOffsetInfo": "x"}])
async def test_an_answer_that_is_none_is_a_status(receiver: Receiver, fields: dict[str, str]) -> None:
    receiver.kit.brokers.answers[POP] = lambda _: RemotingCommand(0, ext_fields=fields, body=b"junk")
    assert receiver.call().response.status.code == Code.INTERNAL_SERVER_ERROR


async def test_messages_in_order_have_the_counts_of_the_answer(receiver: Receiver) -> None:
    receiver.kit.brokers.answers[POP] = lambda _: pop_answer(7, 9, order_counts="0 qo0%9 4;0 0 1")
    messages = [each.message for each in receiver.call().responses if each.HasField("message")]
    assert [message.system_properties.delivery_attempt for message in messages] == [2, 5]


async def test_a_tag_that_only_has_the_same_hash_is_acknowledged(receiver: Receiver) -> None:
    receiver.kit.brokers.answers[POP] = lambda _: pop_answer(7, TAGS="BB")
    expression = FilterExpression(type=FilterType.TAG, expression="Aa")
    assert receiver.call(filter_expression=expression).response.status.code == Code.MESSAGE_NOT_FOUND
    (ack,) = receiver.kit.brokers.requests(ACK)
    assert (ack.fields["extraInfo"], ack.fields["offset"]) == (receipt(7).encode(), "7")


async def test_a_message_that_came_too_often_becomes_a_dead_letter(receiver: Receiver) -> None:
    receiver.kit.client(consumer_settings(), retry_max_times=2)
    receiver.kit.brokers.answers[POP] = lambda _: pop_answer(7, 9, order_counts="0 qo0%9 3;0 0 2")
    messages = [each.message for each in receiver.call().responses if each.HasField("message")]
    assert [message.system_properties.queue_offset for message in messages] == [7]
    (buried,) = receiver.kit.brokers.requests(BURY)
    assert (buried.fields["offset"], buried.fields["delayLevel"], buried.fields["group"]) == (
        "9000",
        "-1",
        "g",
    )
    assert receiver.kit.brokers.requests(ACK) == []
    buried.answer(RemotingCommand(0))
    assert [ack.fields["offset"] for ack in receiver.kit.brokers.requests(ACK)] == ["9"]


async def test_a_dead_letter_that_is_not_stored_is_not_acknowledged(receiver: Receiver) -> None:
    receiver.kit.client(consumer_settings(), retry_max_times=0)
    receiver.kit.brokers.answers[POP] = lambda _: pop_answer(9, order_counts="0 0 1")
    receiver.kit.brokers.say(BURY, ResponseCode.SYSTEM_ERROR, "the disk is full")
    assert receiver.call().response.status.code == Code.MESSAGE_NOT_FOUND
    assert receiver.kit.brokers.requests(ACK) == []


async def test_messages_for_a_client_that_is_gone_are_given_back(receiver: Receiver) -> None:
    call = receiver.call()
    call.cancel()
    receiver.kit.brokers.requests(POP)[0].answer(pop_answer(7, 9))
    given_back = receiver.kit.brokers.requests(CHANGE)
    assert [(each.fields["offset"], each.fields["invisibleTime"]) for each in given_back] == [
        ("7", "1000"),
        ("9", "1000"),
    ]
    assert (call.sent, len(receiver.held)) == ([], 0)


@pytest.mark.parametrize("auto_renew", [True, False])
async def test_messages_that_a_client_has_not_read_are_given_back(
    receiver: Receiver, auto_renew: bool
) -> None:
    receiver.kit.brokers.answers[POP] = lambda _: pop_answer(7, 9)
    call = receiver.call(auto_renew=auto_renew, invisible_duration=Duration(seconds=20))
    assert call.on_unsent is not None
    call.on_unsent()
    given_back = receiver.kit.brokers.requests(CHANGE)
    assert [(each.fields["offset"], each.fields["invisibleTime"]) for each in given_back] == [
        ("7", "1000"),
        ("9", "1000"),
    ]
    assert len(receiver.held) == 0


async def test_only_push_consumers_have_their_messages_extended(receiver: Receiver) -> None:
    receiver.kit.brokers.answers[POP] = lambda _: pop_answer(7, 9)
    receiver.call(auto_renew=False, invisible_duration=Duration(seconds=20))
    assert len(receiver.held) == 0
    receiver.call()
    held = receiver.held.find(receiver.kit.client(), ("g", "T", handle(9)))
    assert len(receiver.held) == 2 and held is not None and held.handle == receipt(9)


async def test_thousands_of_receives_wait_without_tasks(receiver: Receiver) -> None:
    before = len(asyncio.all_tasks())
    calls = [receiver.call() for _ in range(3_000)]
    assert len(receiver.kit.brokers.requests(POP)) == 3_000
    assert len(asyncio.all_tasks()) == before
    for pop in receiver.kit.brokers.requests(POP):
        pop.answer(RemotingCommand(ResponseCode.POLLING_TIMEOUT))
    assert {call.response.status.code for call in calls} == {Code.MESSAGE_NOT_FOUND}
