"""For tests of consumers: messages put into queues of an in-process cluster, and a cluster in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.testing.cluster import Cluster, cluster

TOPIC = "TopicTest"
T = TypeVar("T")


async def put(
    running: Cluster,
    bodies: Sequence[bytes],
    *,
    topic: str = TOPIC,
    queue_id: int = 0,
    broker: int = 0,
    properties: str = "",
) -> MessageQueue:
    """Store messages in one queue, in their order; the queue."""
    for first in range(0, len(bodies), 500):
        entries = [BatchEntry(0, body, properties.encode()) for body in bodies[first : first + 500]]
        header = SendMessageRequestHeaderV2(
            producer_group="producers",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties="",
            batch=True,
        )
        command = RemotingCommand.request(
            RequestCode.SEND_BATCH_MESSAGE, header, encode_batch_entries(entries)
        )
        answer = await running.client.call(running.brokers[broker].address, command)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    return MessageQueue(topic, running.brokers[broker].config.broker_name, queue_id)


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Bodies that tell which message each is."""
    return [b"message %d" % number for number in range(first, first + count)]


async def until(is_so: Callable[[], bool], timeout_s: float = 10) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110 (nothing tells us)
            await asyncio.sleep(0.005)


class ClusterThread:
    """A cluster on a loop of its own, for tests of plain clients."""

    def __init__(self, loop: asyncio.AbstractEventLoop, running: Cluster) -> None:
        self._loop = loop
        self.running = running
        self.namesrv_addr = running.namesrv_addr

    def run(self, make: Callable[[Cluster], Awaitable[T]]) -> T:
        """Do something with the cluster, on its loop."""

        async def work() -> T:
            return await make(self.running)

        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(30)

    def put(self, bodies: Sequence[bytes], **where: Any) -> MessageQueue:
        """Store messages in one queue."""
        return self.run(lambda running: put(running, bodies, **where))


@contextlib.contextmanager
def cluster_thread(folder: Path, **settings: Any) -> Iterator[ClusterThread]:
    """Run a cluster in a thread for as long as the context lasts."""
    started: list[ClusterThread] = []
    problems: list[BaseException] = []
    is_ready = threading.Event()
    stop: list[asyncio.Event] = []

    async def serve() -> None:
        async with cluster(folder, **settings) as running:
            stop.append(asyncio.Event())
            started.append(ClusterThread(asyncio.get_running_loop(), running))
            is_ready.set()
            await stop[0].wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            problems.append(error)
        finally:
            is_ready.set()

    thread = threading.Thread(target=run, name="test-cluster")
    thread.start()
    assert is_ready.wait(30)
    try:
        if started:
            yield started[0]
    finally:
        if started:
            started[0]._loop.call_soon_threadsafe(stop[0].set)
        thread.join(30)
        if problems:
            raise problems[0]
