"""The lite pull consumer against a broker: polls, seeks, pauses, commits, and queues shared in a group."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Unpack

import pytest

from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
from kourou.client.pull.lite_pull_options import LitePullKeywords
from kourou.errors import ClientError, ClientStateError
from kourou.protocol.bodies import (
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueue,
    decode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.clients import GetConsumerRunningInfoRequestHeader
from kourou.protocol.headers.command_header import CommandHeader
from kourou.protocol.headers.offsets import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from kourou.protocol.message import MessageExt
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.pull_kit import TOPIC, numbered, put, until

pytestmark = pytest.mark.e2e


def consumer_of(
    running: Cluster, group: str = "pollers", **keywords: Unpack[LitePullKeywords]
) -> AsyncLitePullConsumer:
    return AsyncLitePullConsumer(
        group, **{"namesrv": running.namesrv_addr, "client_ip": "127.0.0.1", **keywords}
    )


async def polled(consumer: AsyncLitePullConsumer, count: int, timeout_s: float = 10) -> list[MessageExt]:
    """At least so many messages."""
    found: list[MessageExt] = []
    async with asyncio.timeout(timeout_s):
        while len(found) < count:
            found += await consumer.poll(1_000)
    return found


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return [message.body for message in messages]


# -- assigned ------------------------------------------------------------------------------------


async def test_assigned_queues_are_polled_in_order_and_from_where_the_group_is(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(100))
        async with consumer_of(running) as consumer:
            await consumer.assign([queue])
            found = await polled(consumer, 45)
            assert consumer.assignment() == [queue]
            assert consumer.position(queue) == len(found) == consumer.stats().polled
        async with consumer_of(running) as consumer:
            await consumer.assign([queue])
            found += await polled(consumer, 100 - len(found))
        assert bodies(found) == numbered(100)


async def test_a_poll_without_a_topic_or_queue_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        assert [await consumer.poll(0), await consumer.poll(0)] == [[], []]
    line = "lite pull consumer pollers polls without a topic or queue; call subscribe() or assign() first"
    assert [r.getMessage() for r in caplog.records if "polls without" in r.getMessage()] == [line]


async def test_messages_that_come_later_end_a_poll_that_waits(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running, consume_from="first") as consumer:
        queue = await put(running, [b"one"])
        await consumer.assign([queue])
        assert bodies(await polled(consumer, 1)) == [b"one"]
        polling = asyncio.ensure_future(consumer.poll(10_000))
        await until(lambda: len(running.broker.services.holds) == 1)
        await put(running, [b"two"])
        assert bodies(await polling) == [b"two"]
        assert await consumer.poll(20) == []
        assert await consumer.poll(0) == []


async def test_without_an_offset_a_group_begins_where_configured(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(50))
        # Only a broker that was restarted does not know that the queue begins at 0 in memory.
        when = datetime.now(UTC) + timedelta(hours=1)
        for group, consume_from in (("first", "first"), ("later", when)):
            async with consumer_of(running, group, consume_from=consume_from) as consumer:
                await consumer.assign([queue])
                await until(lambda: consumer.position(queue) is not None)  # noqa: B023
                assert consumer.position(queue) == 0


async def test_seeks_forget_what_is_in_hand_and_on_its_way(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        queue = await put(running, numbered(100))
        await consumer.assign([queue])
        await until(lambda: consumer.stats().in_hand >= 30)
        await consumer.seek(queue, 60)
        assert bodies(await polled(consumer, 1)) == numbered(10, 60)
        await consumer.seek_to_begin(queue)
        assert bodies(await polled(consumer, 1)) == numbered(10)
        await consumer.seek_to_end(queue)
        assert await consumer.poll(50) == []
        await until(lambda: len(running.broker.services.holds) >= 1)  # a pull waits at the end…
        await consumer.seek(queue, 95)  # …and is not waited for
        assert bodies(await polled(consumer, 5, timeout_s=3)) == numbered(5, 95)
        await consumer.seek_to_time(queue, datetime.now(UTC) - timedelta(hours=1))
        assert bodies(await polled(consumer, 1)) == numbered(10)
        with pytest.raises(ValueError, match=r"offset 101 is outside \[0, 100\]"):
            await consumer.seek(queue, 101)
        with pytest.raises(ClientStateError, match="is not assigned"):
            await consumer.seek(MessageQueue(TOPIC, "broker-a", 1), 0)


async def test_a_paused_queue_rests_while_others_go_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        first = await put(running, numbered(20), queue_id=0)
        second = await put(running, numbered(20, 100), queue_id=1)
        await consumer.assign([first, second])
        await until(lambda: consumer.stats().in_hand == 40)
        consumer.pause([first])
        found = await polled(consumer, 20)
        assert bodies(found) == numbered(20, 100)
        assert await consumer.poll(20) == []
        consumer.resume([first])
        assert bodies(await polled(consumer, 20)) == numbered(20)


async def test_what_is_in_hand_is_bounded_and_everything_comes_in_the_end(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queues = [await put(running, numbered(100, 100 * n), queue_id=n) for n in range(3)]
        limits: LitePullKeywords = {"pull_threshold_messages": 20, "pull_threshold_all": 50}
        async with consumer_of(running, **limits) as consumer:
            await consumer.assign(queues)
            await until(lambda: consumer.stats().in_hand >= 50)
            found = await polled(consumer, 300)
            assert consumer.stats().in_hand_bytes == 0
        assert sorted(bodies(found)) == sorted(numbered(300))
        assert consumer.stats().in_hand == 0


async def test_no_more_is_pulled_than_the_thresholds_allow(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(100))
        async with consumer_of(running, pull_threshold_messages=25) as consumer:
            await consumer.assign([queue])
            await until(lambda: consumer.stats().in_hand == 30)
            # The next pull would be under way by now: the broker holds none, and gives none.
            await consumer.committed(queue)
            assert consumer.stats().in_hand == 30
        async with consumer_of(running, max_span=5) as consumer:
            await consumer.assign([queue])
            await until(lambda: consumer.stats().in_hand == 10)
            await consumer.committed(queue)
            assert consumer.stats().in_hand == 10


async def test_another_assignment_keeps_the_place_in_queues_that_stay(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        first = await put(running, numbered(30), queue_id=0)
        second = await put(running, numbered(30, 100), queue_id=1)
        await consumer.assign([first])
        found = bodies(await polled(consumer, 10))
        await consumer.assign([first, second])
        found += bodies(await polled(consumer, 60 - len(found)))
        assert sorted(found) == sorted(numbered(30) + numbered(30, 100))
        await consumer.assign([second])
        assert consumer.assignment() == [second]


async def test_tags_select_and_what_is_passed_over_is_committed_too(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        for n in range(30):
            queue = await put(running, [b"%d" % n], properties=f"TAGS\x01{'A' if n % 3 else 'B'}\x02")
        await consumer.assign([queue], "B")
        assert bodies(await polled(consumer, 10)) == [b"%d" % n for n in range(0, 30, 3)]
        await until(lambda: consumer.position(queue) == 30)
        await consumer.commit()
        assert await consumer.committed(queue) == 30


# -- commits -------------------------------------------------------------------------------------


async def test_what_was_polled_is_committed_when_a_later_poll_shows_that_it_is_done(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running, auto_commit_interval_ms=20) as consumer:
        queue = await put(running, numbered(20))
        await consumer.assign([queue])
        await polled(consumer, 1)
        await asyncio.gather(*(consumer.committed(queue) for _ in range(3)))
        assert not await consumer.committed(queue)
        await polled(consumer, 1)
        async with asyncio.timeout(5):
            while await consumer.committed(queue) != 10:  # noqa: ASYNC110 (nothing tells us)
                await asyncio.sleep(0.01)


async def test_a_block_that_ends_by_an_exception_commits_only_what_is_done(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(30))
        with pytest.raises(RuntimeError, match="in the middle"):
            async with consumer_of(running) as consumer:
                await consumer.assign([queue])
                await polled(consumer, 1)
                await polled(consumer, 1)
                raise RuntimeError("in the middle of the second ten")
        async with consumer_of(running, auto_commit=False) as consumer:
            await consumer.assign([queue])
            assert bodies(await polled(consumer, 1)) == numbered(10, 10)


async def test_without_auto_commit_only_commits_count(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(30))
        async with consumer_of(running, auto_commit=False, consume_from="first") as consumer:
            await consumer.assign([queue])
            await polled(consumer, 1)
            await consumer.commit()
            assert await consumer.committed(queue) == 10
            await polled(consumer, 1)
        async with consumer_of(running, auto_commit=False) as consumer:
            await consumer.assign([queue])
            assert bodies(await polled(consumer, 1)) == numbered(10, 10)
            await consumer.commit({queue: 7})
            assert await consumer.committed(queue) == 7


async def test_a_broadcasting_consumer_keeps_its_offsets_in_a_file(tmp_path: Path) -> None:
    keywords: LitePullKeywords = {
        "model": "broadcasting",
        "consume_from": "first",
        "instance_name": "one",
        "offset_store_dir": tmp_path / "offsets",
    }
    async with cluster(tmp_path) as running:
        queue = await put(running, numbered(30))
        async with consumer_of(running, **keywords) as consumer:
            await consumer.subscribe(TOPIC)
            assert bodies(await polled(consumer, 1)) == numbered(10)
            await consumer.commit()
            assert await consumer.committed(queue) == 10
        async with consumer_of(running, **keywords) as consumer:
            await consumer.subscribe(TOPIC)
            assert bodies(await polled(consumer, 1)) == numbered(10, 10)
        async with consumer_of(running, **{**keywords, "instance_name": "two"}) as consumer:
            await consumer.subscribe(TOPIC)
            assert bodies(await polled(consumer, 1)) == numbered(10)


# -- subscribed ----------------------------------------------------------------------------------


async def test_a_group_shares_the_queues_and_takes_over_from_who_leaves(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        for queue_id in range(4):
            await put(running, numbered(10, queue_id * 10), queue_id=queue_id)
        async with consumer_of(running) as first:
            await first.subscribe(TOPIC)
            await until(lambda: len(first.assignment()) == 4)
            found = bodies(await polled(first, 40))
            await first.commit()
            async with consumer_of(running) as second:
                await second.subscribe(TOPIC)
                await until(lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2)
                assert not set(first.assignment()) & set(second.assignment())
                mine = second.assignment()[0]
                await put(running, [b"for the second"], queue_id=mine.queue_id)
                assert bodies(await polled(second, 1)) == [b"for the second"]
            await until(lambda: len(first.assignment()) == 4)
        assert sorted(found) == sorted(numbered(40))


async def test_a_topic_can_be_let_go_of(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        await put(running, [b"x"])
        await put(running, [b"y"], topic="Other")
        await consumer.subscribe(TOPIC)
        await consumer.subscribe("Other")
        await until(lambda: len(consumer.assignment()) == 8)
        await consumer.unsubscribe("Other")
        await until(lambda: {queue.topic for queue in consumer.assignment()} == {TOPIC})


async def test_subscribing_before_the_start_and_sql_expressions(tmp_path: Path) -> None:
    async with cluster(tmp_path, enable_property_filter=True) as running:
        for n in range(5):
            await put(running, [b"%d" % n], properties=f"n\x01{n}\x02")
        consumer = consumer_of(running)
        await consumer.subscribe(TOPIC, "n > 2", expression_type="SQL92")
        async with consumer:
            assert bodies(await polled(consumer, 2)) == [b"3", b"4"]
        consumer = consumer_of(running)
        await consumer.subscribe(TOPIC, "n >", expression_type="SQL92")
        with pytest.raises(ClientError, match="rejects SQL92 'n >'"):
            await consumer.start()


async def test_subscribe_and_assign_exclude_each_other(tmp_path: Path) -> None:
    queue = MessageQueue(TOPIC, "broker-a", 0)
    one, other = AsyncLitePullConsumer("pollers"), AsyncLitePullConsumer("pollers")
    await one.assign([queue])
    with pytest.raises(ClientStateError, match="cannot subscribe"):
        await one.subscribe(TOPIC)
    await other.subscribe(TOPIC)
    with pytest.raises(ClientStateError, match="cannot use `assign`"):
        await other.assign([queue])


async def test_names_in_a_namespace_are_hidden_from_the_user(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await put(running, [b"inside"], topic=f"shop%{TOPIC}")
        async with consumer_of(running, namespace="shop") as consumer:
            await consumer.subscribe(TOPIC)
            messages = await polled(consumer, 1)
            assert [(message.topic, message.body) for message in messages] == [(TOPIC, b"inside")]
            assert {queue.topic for queue in consumer.assignment()} == {TOPIC}
            await consumer.commit()
            assert await consumer.committed(MessageQueue(TOPIC, "broker-a", 0)) == 1
        assert running.broker.services.offsets.query("shop%pollers", f"shop%{TOPIC}", 0) == 1


# -- changes and troubles ------------------------------------------------------------------------


async def test_a_listener_is_called_for_new_queues_and_may_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[tuple[str, int]] = []

    async def listener(topic: str, queues: list[MessageQueue]) -> None:
        received.append((topic, len(queues)))
        raise ValueError("a listener's own mistake")

    async with (
        cluster(tmp_path, brokers=2) as running,
        consumer_of(running, topic_check_interval_ms=20) as consumer,
    ):
        await put(running, [b"x"], broker=0)
        await consumer.on_topic_change(TOPIC, listener)
        await put(running, [b"y"], broker=1)
        await until(lambda: bool(received))
        assert received == [(TOPIC, 8)]
        await until(lambda: "the listener of topic TopicTest failed" in caplog.text)


async def test_a_broker_that_comes_back_is_polled_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        queue = await put(running, numbered(10))
        await consumer.assign([queue])
        assert bodies(await polled(consumer, 10)) == numbered(10)
        before = running.broker
        await before.stop()
        await until(lambda: f"pull of {queue}" in caplog.text)
        assert await consumer.poll(10) == []
        async with type(before)(before.config) as again:
            running.brokers[0] = again
            await put(running, numbered(5, 10))
            assert bodies(await polled(consumer, 5, timeout_s=15)) == numbered(5, 10)
        running.brokers[0] = before


async def test_a_failure_of_our_own_reaches_the_poll(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        queue = await put(running, [b"x"])
        await consumer.assign([queue])
        await polled(consumer, 1)
        polling = asyncio.ensure_future(consumer.poll(10_000))
        await until(lambda: len(running.broker.services.holds) == 1)
        consumer._instance.tasks.fail(ZeroDivisionError("a bug of ours"))
        with pytest.raises(ClientStateError, match="a bug of ours"):
            await asyncio.wait_for(polling, 5)


async def test_a_stop_ends_a_poll_that_waits(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        await consumer.assign([await put(running, [b"x"])])
        await polled(consumer, 1)
        polling = asyncio.ensure_future(consumer.poll(10_000))
        await until(lambda: len(running.broker.services.holds) == 1)
        await consumer.stop()
        await consumer.stop()
        with pytest.raises(ClientStateError):
            await asyncio.wait_for(polling, 5)
        with pytest.raises(ClientStateError, match="is stopped"):
            await consumer.poll(10)


async def test_a_second_stop_ends_with_the_first(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        await consumer.assign([await put(running, [b"x"])])
        await polled(consumer, 1)
        first = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        await consumer.stop()
        assert not consumer._instance.is_running
        await asyncio.wait_for(first, 5)


async def test_a_stop_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(tmp_path) as running:
        await put(running, numbered(3))
        consumer = AsyncLitePullConsumer("billing", namesrv=running.namesrv_addr, consume_from="first")
        await consumer.subscribe(TOPIC)
        async with consumer:
            failed = asyncio.ensure_future(consumer.wait_failed())
            assert await consumer.poll(10_000)
        await failed
        assert not caplog.records


async def test_operators_see_the_consumer_and_its_offsets(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, consumer_of(running) as consumer:
        queue = await put(running, numbered(20))
        await consumer.subscribe(TOPIC)
        await until(lambda: len(consumer.assignment()) == 4)
        await polled(consumer, 20)
        running_info = GetConsumerRunningInfoRequestHeader(
            consumer_group="pollers", client_id=consumer.client_id, jstack_enable=False
        )
        answer = await ask(running, RequestCode.GET_CONSUMER_RUNNING_INFO, running_info)
        shown = decode_body(answer.body, ConsumerRunningInfo)
        assert shown.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert queue in shown.mq_table and [data.topic for data in shown.subscription_set] == [TOPIC]
        status = GetConsumerStatusRequestHeader(topic=TOPIC, group="pollers")
        answer = await ask(running, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
        table = decode_body(answer.body, GetConsumerStatusBody).consumer_table
        assert table[consumer.client_id][queue] == 10


@pytest.mark.parametrize("by_server", [True, False])
async def test_operators_reset_the_offsets_of_a_running_consumer(tmp_path: Path, by_server: bool) -> None:
    async with (
        cluster(tmp_path, use_server_side_reset_offset=by_server) as running,
        consumer_of(running) as consumer,
    ):
        await put(running, numbered(20))
        await consumer.subscribe(TOPIC)
        assert bodies(await polled(consumer, 20)) == numbered(20)
        await consumer.commit()
        await until(lambda: len(running.broker.services.holds) == 4)
        reset = ResetOffsetRequestHeader(topic=TOPIC, group="pollers", timestamp=0, is_force=True)
        await ask(running, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        assert bodies(await polled(consumer, 20)) == numbered(20)


async def ask(running: Cluster, code: int, header: CommandHeader) -> RemotingCommand:
    """Ask the broker as a tool does."""
    command = RemotingCommand.request(code, header)
    answer = await running.client.call(running.broker.address, command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


@pytest.mark.parametrize(
    ("keywords", "problem"),
    [
        ({"pull_batch_size": 0}, "pull_batch_size is 0"),
        ({"suspend_ms": 30_000}, "suspended_pull_timeout_ms"),
        ({"model": "both"}, "model is"),
        ({"consume_from": "middle"}, "consume_from is"),
    ],
)
def test_options_are_checked(keywords: LitePullKeywords, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        AsyncLitePullConsumer("pollers", **keywords)
