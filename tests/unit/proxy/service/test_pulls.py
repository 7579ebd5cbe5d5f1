"""Pulls and offsets: the requests that they become, and their answers."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.proxy.service.pulls import Pulls
from kourou.proxy.wire.rocketmq_v2 import (
    Broker,
    Code,
    Duration,
    FilterExpression,
    FilterType,
    GetOffsetRequest,
    MessageQueue,
    PullMessageRequest,
    QueryOffsetPolicy,
    QueryOffsetRequest,
    Resource,
    SyncLiteSubscriptionRequest,
    Timestamp,
    UpdateOffsetRequest,
)
from tests.unit.proxy.recorded import ProxyKit, RecordedCall
from tests.unit.proxy.service.popped import pop_answer

QUEUE = MessageQueue(topic=Resource(name="T"), id=3, broker=Broker(name="broker-a"))
GROUP = Resource(name="g")
PLACE = {"nextBeginOffset": "12", "minOffset": "2", "maxOffset": "20", "suggestWhichBrokerId": "0"}


async def make(kit: ProxyKit, method: str, request: Any) -> RecordedCall:
    return await kit.call(Pulls().handlers(kit.make), RecordedCall(method, request))


def pull(**fields: Any) -> PullMessageRequest:
    return PullMessageRequest(group=GROUP, message_queue=QUEUE, offset=10, batch_size=100, **fields)


async def test_a_pull_reads_one_queue_from_an_offset(kit: ProxyKit) -> None:
    found = pop_answer(10, 11, TAGS="A")
    kit.brokers.answers[RequestCode.PULL_MESSAGE] = lambda _: RemotingCommand(
        0, ext_fields=PLACE, body=found.body
    )
    expression = FilterExpression(type=FilterType.TAG, expression="A")
    call = await make(
        kit, "PullMessage", pull(filter_expression=expression, long_polling_timeout=Duration(seconds=9))
    )
    (sent,) = kit.brokers.sent
    assert (sent.broker_name, sent.fields["queueId"], sent.fields["queueOffset"]) == ("broker-a", "3", "10")
    assert (sent.fields["maxMsgNums"], sent.fields["subscription"]) == ("32", "A")
    assert int(sent.fields["sysFlag"]) == PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION
    assert (sent.fields["suspendTimeoutMillis"], sent.timeout_ms) == ("9000", 14_000)
    status, first, second, end = call.responses
    assert (status.status.code, end.next_offset) == (Code.OK, 12)
    assert [each.message.system_properties.queue_offset for each in (first, second)] == [10, 11]
    assert not first.message.system_properties.receipt_handle


async def test_a_pull_drops_tags_that_only_have_the_same_hash(kit: ProxyKit) -> None:
    found = pop_answer(10, TAGS="BB")
    kit.brokers.answers[RequestCode.PULL_MESSAGE] = lambda _: RemotingCommand(
        0, ext_fields=PLACE, body=found.body
    )
    expression = FilterExpression(type=FilterType.TAG, expression="Aa")
    call = await make(kit, "PullMessage", pull(filter_expression=expression))
    assert [each.WhichOneof("content") for each in call.responses] == ["status", "next_offset"]


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY])
async def test_a_pull_that_finds_nothing_says_where_to_continue(kit: ProxyKit, code: int) -> None:
    kit.brokers.say(RequestCode.PULL_MESSAGE, code, **PLACE)
    status, end = (await make(kit, "PullMessage", pull())).responses
    assert (status.status.code, end.next_offset) == (Code.MESSAGE_NOT_FOUND, 12)


async def test_an_offset_outside_the_queue_is_illegal(kit: ProxyKit) -> None:
    kit.brokers.say(RequestCode.PULL_MESSAGE, ResponseCode.PULL_OFFSET_MOVED, **PLACE)
    status = (await make(kit, "PullMessage", pull())).response.status
    assert status.code == Code.ILLEGAL_OFFSET and "2 to 20; continue at 12" in status.message


async def test_offsets_of_a_group_are_stored_and_read(kit: ProxyKit) -> None:
    kit.brokers.say(RequestCode.UPDATE_CONSUMER_OFFSET)
    kit.brokers.say(RequestCode.QUERY_CONSUMER_OFFSET, **{"offset": 7})
    updated = await make(kit, "UpdateOffset", UpdateOffsetRequest(group=GROUP, message_queue=QUEUE, offset=7))
    assert updated.response.status.code == Code.OK
    assert kit.brokers.sent[0].fields == {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "3",
        "commitOffset": "7",
    }
    found = await make(kit, "GetOffset", GetOffsetRequest(group=GROUP, message_queue=QUEUE))
    assert (found.response.status.code, found.response.offset) == (Code.OK, 7)


async def test_a_group_without_an_offset_has_none(kit: ProxyKit) -> None:
    kit.brokers.say(RequestCode.QUERY_CONSUMER_OFFSET, ResponseCode.QUERY_NOT_FOUND)
    found = await make(kit, "GetOffset", GetOffsetRequest(group=GROUP, message_queue=QUEUE))
    assert found.response.status.code == Code.OFFSET_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"query_offset_policy": QueryOffsetPolicy.BEGINNING}, RequestCode.GET_MIN_OFFSET),
        ({"query_offset_policy": QueryOffsetPolicy.END}, RequestCode.GET_MAX_OFFSET),
        (
            {"query_offset_policy": QueryOffsetPolicy.TIMESTAMP, "timestamp": Timestamp(seconds=9)},
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        ),
    ],
)
async def test_offsets_of_a_queue(kit: ProxyKit, fields: dict[str, Any], code: int) -> None:
    kit.brokers.say(code, **{"offset": 7})
    found = await make(kit, "QueryOffset", QueryOffsetRequest(message_queue=QUEUE, **fields))
    assert (found.response.status.code, found.response.offset) == (Code.OK, 7)
    assert kit.brokers.sent[0].fields.get("timestamp") == ("9000" if "timestamp" in fields else None)


@pytest.mark.parametrize(
    ("method", "request_made", "code"),
    [
        ("QueryOffset", QueryOffsetRequest(message_queue=QUEUE, query_offset_policy=2), Code.BAD_REQUEST),
        (
            "UpdateOffset",
            UpdateOffsetRequest(group=GROUP, message_queue=QUEUE, offset=-1),
            Code.ILLEGAL_OFFSET,
        ),
        ("GetOffset", GetOffsetRequest(message_queue=QUEUE), Code.ILLEGAL_CONSUMER_GROUP),
        ("SyncLiteSubscription", SyncLiteSubscriptionRequest(), Code.UNSUPPORTED),
    ],
)
async def test_requests_that_cannot_be_served_are_refused(
    kit: ProxyKit, method: str, request_made: Any, code: Code
) -> None:
    assert (await make(kit, method, request_made)).response.status.code == code
    assert kit.brokers.sent == []
