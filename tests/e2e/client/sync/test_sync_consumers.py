"""PullConsumer and LitePullConsumer, from plain threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kourou.client.pull.pulls import PullStatus
from kourou.client.sync.lite_pull_consumer import LitePullConsumer
from kourou.client.sync.pull_consumer import PullConsumer
from kourou.errors import ClientStateError, NoRouteError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.topics import CreateTopicRequestHeader
from kourou.protocol.message import MessageExt
from kourou.testing.cluster import Cluster
from tests.e2e.client.kit.pull_kit import TOPIC, ClusterThread, cluster_thread, numbered

pytestmark = pytest.mark.e2e


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ClusterThread]:
    with cluster_thread(tmp_path) as cluster:
        yield cluster


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return [message.body for message in messages]


# -- pull ----------------------------------------------------------------------------------------


def test_a_queue_is_pulled_to_its_end_and_committed(running: ClusterThread) -> None:
    running.put(numbered(100))
    with PullConsumer("pullers", namesrv=running.namesrv_addr) as consumer:
        queue = consumer.fetch_queues(TOPIC)[0]
        found: list[MessageExt] = []
        queue_offset = consumer.min_offset(queue)
        while (result := consumer.pull(queue, queue_offset=queue_offset)).status is PullStatus.FOUND:
            found += result.messages()
            queue_offset = result.next_begin_offset
        assert bodies(found) == numbered(100)
        assert queue_offset == consumer.max_offset(queue) == 100
        assert consumer.search_offset(queue, 0) == 0
        consumer.commit(queue, queue_offset)
        assert consumer.committed(queue) == 100
        with pytest.raises(NoRouteError):
            consumer.fetch_queues("Unknown")


def test_a_pull_that_waits_lets_other_threads_work(running: ClusterThread) -> None:
    queue = running.put([b"old"])
    with PullConsumer("pullers", namesrv=running.namesrv_addr) as consumer, ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(consumer.pull_block_if_not_found, queue, queue_offset=1) for _ in range(4)]
        while running.run(_held) < 4:
            assert consumer.max_offset(queue) == 1
        running.put([b"new"])
        assert [bodies(each.result(10).messages()) for each in waiting] == [[b"new"]] * 4


async def _held(cluster: Cluster) -> int:
    return len(cluster.broker.services.holds)


def test_a_queue_is_read_in_bulk(running: ClusterThread) -> None:
    queue = running.put(numbered(3_000))
    with PullConsumer("pullers", namesrv=running.namesrv_addr) as consumer:
        found = [
            body for chunk in consumer.read(queue, max_bytes=20_000) for body in bodies(chunk.messages())
        ]
        assert found == numbered(3_000)
        for chunk in consumer.read(queue, max_bytes=1_000, in_flight=4):
            assert chunk.begin_offset == 0
            break
        assert consumer.max_offset(queue) == 3_000
        with pytest.raises(ValueError, match="in_flight"):
            consumer.read(queue, in_flight=0)


def test_a_stop_ends_a_pull_of_another_thread(running: ClusterThread) -> None:
    queue = running.put([b"old"])
    consumer = PullConsumer("pullers", namesrv=running.namesrv_addr)
    consumer.start()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.pull_block_if_not_found, queue, queue_offset=1)
        while running.run(_held) < 1:
            assert not waiting.done()
        consumer.stop()
        with pytest.raises(Exception, match="lost|stopped"):
            waiting.result(10)
    with pytest.raises(ClientStateError, match="is stopped"):
        consumer.max_offset(queue)


# -- lite pull -----------------------------------------------------------------------------------


def polled(consumer: LitePullConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.poll(10_000)
        assert messages, f"only {len(found)} of {count} came"
        found += bodies(messages)
    return found


def test_subscribed_messages_are_polled_and_committed_at_the_end(running: ClusterThread) -> None:
    running.put(numbered(50))
    consumer = LitePullConsumer("pollers", namesrv=running.namesrv_addr)
    consumer.subscribe(TOPIC)
    with consumer:
        assert polled(consumer, 50) == numbered(50)
        assert len(consumer.assignment()) == 4
        assert consumer.stats().polled == 50
    assert consumer.stats().polled == 50
    running.put([b"later"])
    with LitePullConsumer("pollers", namesrv=running.namesrv_addr) as consumer:
        consumer.subscribe(TOPIC)
        assert polled(consumer, 1) == [b"later"]
        consumer.unsubscribe(TOPIC)


def test_assigned_queues_are_sought_paused_and_committed(running: ClusterThread) -> None:
    queue = running.put(numbered(50))
    with LitePullConsumer("pollers", namesrv=running.namesrv_addr, auto_commit=False) as consumer:
        assert queue in consumer.fetch_queues(TOPIC)
        consumer.assign([queue])
        assert polled(consumer, 10) == numbered(10)
        consumer.commit()
        assert consumer.committed(queue) == consumer.position(queue) == 10
        consumer.seek(queue, 40)
        assert polled(consumer, 10) == numbered(10, 40)
        consumer.seek_to_begin(queue)
        assert polled(consumer, 10) == numbered(10)
        consumer.seek_to_time(queue, 0)
        consumer.pause([queue])
        assert consumer.poll(20) == []
        consumer.resume([queue])
        assert polled(consumer, 10) == numbered(10)
        consumer.seek_to_end(queue)
        assert consumer.search_offset(queue, 0) == 0
        consumer.commit({queue: 3})
        assert consumer.committed(queue) == 3


def test_a_block_that_ends_by_an_exception_commits_only_what_is_done(running: ClusterThread) -> None:
    queue = running.put(numbered(30))
    consumer = LitePullConsumer("pollers", namesrv=running.namesrv_addr)
    consumer.assign([queue])
    with pytest.raises(RuntimeError, match="in the middle"), consumer:
        polled(consumer, 10)
        polled(consumer, 10)
        raise RuntimeError("in the middle of the second ten")
    with LitePullConsumer("pollers", namesrv=running.namesrv_addr) as consumer:
        consumer.assign([queue])
        assert polled(consumer, 10) == numbered(10, 10)


def test_a_listener_may_assign_the_new_queues(running: ClusterThread) -> None:
    running.put([b"x"])
    received = threading.Event()
    with LitePullConsumer("pollers", namesrv=running.namesrv_addr, topic_check_interval_ms=20) as consumer:

        def listener(topic: str, queues: list[MessageQueue]) -> None:
            consumer.assign(queues)
            received.set()

        consumer.on_topic_change(TOPIC, listener)
        known = consumer.fetch_queues(TOPIC)
        running.run(_grow)
        assert received.wait(10)
        assert len(consumer.assignment()) > len(known)


async def _grow(cluster: Cluster) -> None:
    """Give the topic more queues, as an operator does."""
    header = CreateTopicRequestHeader(
        topic=TOPIC,
        default_topic="TBW102",
        read_queue_nums=8,
        write_queue_nums=8,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    answer = await cluster.client.call(cluster.broker.address, command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
