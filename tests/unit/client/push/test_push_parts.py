"""The parts of a push consumer that decide, without network: limits, offsets, options, copies, rates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from kourou import LitePullConsumer, PushConsumer
from kourou.client.core.namespaces import Namespace
from kourou.client.core.subscription import (
    Subscription,
    Subscriptions,
    subscription_data,
    subscription_refused,
)
from kourou.client.push import consumer_stats
from kourou.client.push.assigned_queue import AssignedQueue, FlowLimits
from kourou.client.push.consumer_options import (
    UNLIMITED,
    ConsumerOptions,
    split_consumer_keywords,
)
from kourou.client.push.consumer_stats import StatsTable
from kourou.client.push.handlers import handler_of
from kourou.client.push.send_back import copy_properties
from kourou.errors import ProtocolError, ResponseError
from kourou.protocol.bodies import ConsumeFromWhere, MessageModel, MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import encode_properties
from kourou.protocol.record import RecordEncoder, decode_record

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
QUEUE = MessageQueue("TopicTest", "broker-a", 0)


def message(queue_offset: int = 0, topic: str = "TopicTest", **properties: str) -> MessageExt:
    parts = RecordEncoder(topic, 0, HOST).parts(
        b"body", encode_properties(properties).encode(), queue_offset, 1_000 + queue_offset, 1, 1, HOST
    )
    return decode_record(b"".join(parts))


def messages(*queue_offsets: int) -> list[MessageExt]:
    return [message(queue_offset) for queue_offset in queue_offsets]


def assigned(limits: FlowLimits | None = None) -> AssignedQueue:
    subscription = Subscription.of(subscription_data("TopicTest"), handler_of(print))
    return AssignedQueue(QUEUE, subscription, limits or FlowLimits(1_000, 10**9, 2_000))


# -- how far a group is --------------------------------------------------------------------------


async def test_the_consumed_offset_is_the_first_in_hand_or_the_next_to_pull() -> None:
    queue = assigned()
    assert queue.consumed_offset is None
    first, second, third = messages(5, 6, 8)
    queue.pulled_messages([first, second, third], 9)
    assert queue.consumed_offset == 5
    assert queue.ack(second) and queue.consumed_offset == 5
    assert queue.ack(first) and queue.consumed_offset == 8
    assert not queue.ack(first)
    queue.pulled_messages([], 20)  # 9 to 19 did not match
    assert queue.consumed_offset == 8
    assert queue.ack(third) and queue.consumed_offset == 20
    assert (queue.count, queue.size_bytes) == (0, 0)


async def test_what_an_orderly_handler_has_taken_is_not_consumed_yet() -> None:
    queue = assigned()
    queue.pulled_messages(messages(0, 1, 2), 3)
    taken = queue.take(2)
    assert queue.consumed_offset == 0
    queue.put_back(taken[1:])
    queue.commit_taken()
    assert queue.consumed_offset == 1


# -- flow control --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (FlowLimits(2, 10**9, None), "pull_threshold_messages=2"),
        (FlowLimits(100, 100, None), "pull_threshold_bytes=100"),
        (FlowLimits(100, 10**9, 9), "max_span=9"),
    ],
)
async def test_each_limit_stops_pulls_until_enough_is_consumed(limits: FlowLimits, word: str) -> None:
    queue = assigned(limits)
    first, *rest = messages(0, 5, 10)
    assert queue.flow_problem() is None
    queue.pulled_messages([first, *rest], 11)
    assert word in (queue.flow_problem() or "")
    waiting = asyncio.ensure_future(queue.wait_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    for each in [first, *rest]:
        queue.ack(each)
    await asyncio.wait_for(waiting, 5)


async def test_limits_may_be_reached_and_the_span_of_orderly_ones_is_free() -> None:
    assert FlowLimits(3, 3, 3).problem(3, 3, 3) is None
    assert FlowLimits(3, 3, None).problem(1, 1, 10**9) is None


async def test_a_queue_that_is_dropped_lets_go_of_who_waits() -> None:
    queue = assigned(FlowLimits(1, 10**9, None))
    queue.pulled_messages(messages(0, 1), 2)
    waiting = asyncio.ensure_future(queue.wait_room())
    await asyncio.sleep(0)
    queue.drop()
    await asyncio.wait_for(waiting, 5)


async def test_a_queue_leaves_from_the_moment_when_it_was_dropped() -> None:
    queue = assigned()
    queue.lock_ms -= 19_000  # when its lock was renewed last does not matter: its handler has all the time
    queue.drop()
    assert 0 <= queue.leaving_ms < 10_000


# -- subscriptions -------------------------------------------------------------------------------


def test_tags_are_compared_as_text_and_messages_without_are_left_out() -> None:
    subscription = Subscription.of(subscription_data("TopicTest", " Aa || C "), None)
    found = [
        message(0, TAGS="Aa"),
        message(1, TAGS="BB"),
        message(2),
        message(3, KEYS="C"),
        message(4, TAGS="C"),
    ]
    assert [kept.queue_offset for kept in subscription.keeps(found)] == [0, 4]


@pytest.mark.parametrize("expression", ["*", ""])
def test_everything_is_everything(expression: str) -> None:
    data = subscription_data("TopicTest", expression)
    assert (data.sub_string, data.tags_set, data.code_set) == ("*", [], [])
    found = [message(0), message(1, TAGS="a")]
    assert Subscription.of(data, None).keeps(found) is found


def test_sql_is_left_to_the_broker() -> None:
    data = subscription_data("TopicTest", "a > 5", "SQL92")
    assert (data.sub_string, data.expression_type, data.tags_set) == ("a > 5", "SQL92", [])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(("||",), ProtocolError), ((" ", "SQL92"), ValueError), (("*", "REGEX"), ValueError)],
)
def test_expressions_that_select_nothing_are_refused(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        subscription_data("TopicTest", *arguments)


def test_a_retried_message_goes_to_its_topics_handler_or_the_only_one() -> None:
    subscriptions = Subscriptions()
    one, two = handler_of(lambda m: None), handler_of(lambda m: None)
    subscriptions.add("A", Subscription.of(subscription_data("A"), one))
    assert subscriptions.handler("gone") is one
    subscriptions.add("B", Subscription.of(subscription_data("B"), two))
    assert (subscriptions.handler("B"), subscriptions.handler("gone")) == (two, None)
    subscriptions.remove("B", "B")
    assert (subscriptions.topics, len(subscriptions)) == (["A"], 1)


def first(message: MessageExt) -> None: ...


def second(message: MessageExt) -> None: ...


def test_a_second_handler_of_a_topic_is_logged_with_the_one_that_it_replaces(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = PushConsumer("billing")
    consumer.subscribe("Orders", first)
    consumer.subscribe("Orders", "TagA", first)
    assert caplog.messages == []
    consumer.subscribe("Orders", second)
    assert caplog.messages == [
        "topic Orders is subscribed to again: its messages now go to second, no longer to first; "
        "a consumer has one handler for each topic"
    ]
    caplog.clear()
    consumer.unsubscribe("Orders")
    consumer.subscribe("Orders", first)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("expression", "tag", "found"),
    [("price > 10", "price > 10", ">"), ("A || B, C", "B, C", ","), ("A B", "A B", " "), ("a=1", "a=1", "=")],
)
def test_a_condition_or_a_list_given_as_a_tag_is_logged(
    expression: str, tag: str, found: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        f"topic ShopOrders: tag {tag!r} contains {found!r}, and matches only messages with exactly this tag; "
        "tags are separated by ||; for a condition give expression_type='SQL92'"
    )
    PushConsumer("billing").subscribe("ShopOrders", expression, first)
    LitePullConsumer("billing").subscribe("ShopOrders", expression)
    LitePullConsumer("billing").assign([MessageQueue("ShopOrders", "broker-a", 0)], expression)
    assert caplog.messages == [text] * 3
    caplog.clear()
    PushConsumer("billing").subscribe("ShopOrders", "price > 10", first, expression_type="SQL92")
    PushConsumer("billing").subscribe("ShopOrders", "A || B-1", first)
    assert caplog.messages == []


# -- options -------------------------------------------------------------------------------------


def test_defaults_are_javas() -> None:
    options = ConsumerOptions()
    assert (options.concurrency, options.batch_size, options.pull_batch_size) == (20, 1, 32)
    assert (options.pull_threshold_messages, options.max_span, options.suspend_ms) == (1000, 2000, 1000)
    assert (options.pull_threshold_bytes, options.consume_timeout_ms) == (100 * 1024**2, 900_000)
    assert (options.max_attempts, options.suspend_timeout_ms) == (16, 15_000)
    assert ConsumerOptions(orderly=True).max_attempts == UNLIMITED
    assert ConsumerOptions(orderly=True, max_reconsume_times=0).max_attempts == 0


def test_the_options_in_requests_to_brokers() -> None:
    assert ConsumerOptions().consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert ConsumerOptions(consume_from="first").consume_from_where is (
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    at = ConsumerOptions(consume_from=datetime(2024, 5, 1, tzinfo=UTC))
    assert at.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    assert at.consume_timestamp_ms == 1_714_521_600_000
    assert ConsumerOptions(model="broadcasting").message_model is MessageModel.BROADCASTING


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": "both"},
        {"consume_from": "yesterday"},
        {"concurrency": 0},
        {"batch_size": 0},
        {"max_reconsume_times": -2},
        {"suspend_ms": 9},
        {"suspend_ms": 30_001},
        {"stop_timeout_ms": -1},
    ],
)
def test_wrong_options_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ConsumerOptions(**wrong)


def test_keywords_are_split_and_unknown_ones_named() -> None:
    options, settings = split_consumer_keywords({"namesrv": "a:1", "orderly": True})
    assert (options.orderly, settings.namesrv) == (True, "a:1")
    with pytest.raises(TypeError, match="ordrely"):
        split_consumer_keywords({"ordrely": True})  # type: ignore[typeddict-unknown-key]


# -- copies for the retry topic ------------------------------------------------------------------


def test_a_copy_remembers_where_it_came_from_and_waits_longer_each_time() -> None:
    original = message(3, KEYS="k", TRAN_MSG="true", UNIQ_KEY="ID1")
    original.reconsume_times = 4
    assert copy_properties(original, Namespace("shop")) == {
        "KEYS": "k",
        "UNIQ_KEY": "ID1",
        "ORIGIN_MESSAGE_ID": original.offset_msg_id,
        "RETRY_TOPIC": "shop%TopicTest",
        "DELAY": "7",
    }
    again = message(4, ORIGIN_MESSAGE_ID="FIRST")
    assert copy_properties(again, Namespace())["ORIGIN_MESSAGE_ID"] == "FIRST"


# -- rates ---------------------------------------------------------------------------------------


async def test_rates_are_those_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    clock: Callable[[], float] = lambda: now[0]  # noqa: E731
    monkeypatch.setattr(consumer_stats.time, "monotonic", clock)
    table = StatsTable()
    stats = table.of("T")
    for _ in range(12):  # two minutes
        stats.pulls, stats.pulled, stats.pull_s = stats.pulls + 1, stats.pulled + 100, stats.pull_s + 0.02
        stats.consumed, stats.failed = stats.consumed + 90, stats.failed + 10
        stats.consume_s += 0.5
        now[0] += 10
        await table.sample()
    status = table.status("T")
    assert (status.pull_tps, status.consume_ok_tps, status.consume_failed_tps) == pytest.approx((10, 9, 1))
    assert (status.pull_rt, status.consume_rt) == pytest.approx((20, 5))
    assert status.consume_failed_msgs == 120  # of the last hour
    assert table.status("new").consume_rt == 0


@pytest.mark.parametrize(
    ("kind", "code", "next_step"),
    [
        ("SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "correct the expression"),
        ("SQL92", ResponseCode.SYSTEM_ERROR, "enablePropertyFilter=true at the broker allows SQL92"),
        ("PLUGIN", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "correct the expression"),
        ("PLUGIN", ResponseCode.SYSTEM_BUSY, "the log of the broker says what is wrong with the filter"),
    ],
)
def test_a_rejected_expression_says_how_to_fix_it(
    kind: Literal["SQL92", "PLUGIN"], code: ResponseCode, next_step: str
) -> None:
    data = subscription_data("TopicTest", "a >", kind)
    reported = str(
        subscription_refused(data, "127.0.0.1:10911", ResponseError(code, "no", "127.0.0.1:10911"))
    )
    assert reported == (
        f"topic 'TopicTest': broker 127.0.0.1:10911 rejects {kind} 'a >': no (code {code.value}); {next_step}"
    )
