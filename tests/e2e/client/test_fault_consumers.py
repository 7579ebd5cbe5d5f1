"""Consumers whose links break, whose broker or name server goes, or whose process is ended: they go on."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from kourou.client.core import instance
from kourou.client.producer.producer import AsyncProducer
from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
from kourou.client.pull.queue_reader import QueueReader
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.config import NamesrvConfig
from kourou.embed import Broker, NameServer
from kourou.errors import KourouError, NoNameServerError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message, MessageExt
from kourou.testing.cluster import broker_config, cluster
from tests.e2e.client.kit.fault_kit import QUICK, FaultyCluster, faulty_cluster
from tests.e2e.client.kit.push_kit import (
    GROUP,
    TOPIC,
    Notes,
    consuming,
    make_topic,
    send,
    stored_offset,
    until,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FAULTS = ["cut", "half a request", "half an answer", "restart", "forgotten"]


def options_of(running: FaultyCluster) -> dict[str, Any]:
    return {"namesrv": running.namesrv_addr, "consume_from": "first", **QUICK}


async def push_resumes(folder: Path, fault: str, *, orderly: bool) -> None:
    notes = Notes()
    async with faulty_cluster(folder) as running:
        consumer = AsyncPushConsumer(GROUP, orderly=orderly, persist_interval_ms=50, **options_of(running))
        await consumer.subscribe(TOPIC, notes)
        async with consumer:
            await running.put(b"before")
            await until(lambda: notes.bodies == [b"before"])
            await running.do(fault)
            await running.put(b"after")
            await until(lambda: notes.bodies[-1] == b"after")
            await running.put(b"and on")
            await until(lambda: notes.bodies[-1] == b"and on")
            await until(lambda: running.broker.services.offsets.query(GROUP, TOPIC, 0) == 3)
        assert running.proxy.halved == ("half" in fault)


async def lite_pull_resumes(folder: Path, fault: str) -> None:
    polled: list[bytes] = []
    async with faulty_cluster(folder) as running:
        consumer = AsyncLitePullConsumer(GROUP, auto_commit_interval_ms=1_000, **options_of(running))
        await consumer.subscribe(TOPIC)

        async def poll_until(body: bytes) -> None:
            async with asyncio.timeout(20):
                while body not in polled:
                    polled.extend(each.body for each in await consumer.poll(1_000))

        async with consumer:
            await running.put(b"before")
            await poll_until(b"before")
            await running.do(fault)
            await running.put(b"after")
            await poll_until(b"after")
            await running.put(b"and on")
            await poll_until(b"and on")
        assert running.proxy.halved == ("half" in fault)
        assert await stored_offset(running.inside) == 3


@pytest.mark.parametrize("fault", FAULTS)
async def test_consumers_resume(tmp_path: Path, fault: str) -> None:
    """Each with a cluster of its own, so that each has its fault; at once, for they wait most of the time."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(push_resumes(tmp_path / "concurrent", fault, orderly=False))
        tasks.create_task(push_resumes(tmp_path / "orderly", fault, orderly=True))
        tasks.create_task(lite_pull_resumes(tmp_path / "lite", fault))


async def test_a_queue_is_read_to_its_end_although_links_are_cut(tmp_path: Path) -> None:
    bodies = [b"message %d" % number for number in range(300)]
    async with faulty_cluster(tmp_path) as running:
        await running.put(*bodies)
        read: list[bytes] = []
        faults = ["cut", "half a request", "half an answer"]
        queue = MessageQueue(TOPIC, "broker-a", 0)
        async with QueueReader(
            queue, group="exports", namesrv=running.namesrv_addr, max_bytes=4_096, **QUICK
        ) as reader:
            async for chunk in reader:
                read += [message.body for message in chunk.messages()]
                if faults:
                    await running.do(faults.pop())
        assert read == bodies


async def test_a_name_server_link_that_was_forgotten_is_made_anew(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path) as running:
        async with AsyncProducer("producers", namesrv=running.namesrv_addr, **QUICK) as producer:
            await producer.send(Message(TOPIC, b"known"))
            running.namesrv_proxy.kill_links()
            with pytest.raises(NoNameServerError):
                await producer.queues("TBW102")
            assert await producer.queues("TBW102")
            assert running.namesrv_proxy.connections == 2


async def test_clients_follow_the_name_server_that_their_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name servers move: the file is read again, and new topics are found at the new place."""
    monkeypatch.setattr(instance, "_NAMESRV_REFRESH_MS", 50)  # two minutes
    file, notes = tmp_path / "client.properties", Notes()
    config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0)
    async with NameServer(config) as first, NameServer(config) as second:
        file.write_text(f"rocketmq.namesrv.addr={first.address}\n")
        both = broker_config(tmp_path, 0, f"{first.address};{second.address}")
        options: dict[str, Any] = {"config_file": file, "poll_namesrv_interval_ms": 100}
        consumer = AsyncPushConsumer(GROUP, consume_from="first", rebalance_interval_ms=100, **options)
        await consumer.subscribe("Later", notes)
        async with Broker(both), AsyncProducer("producers", **options) as producer, consumer:
            await producer.send(Message(TOPIC, b"before"))
            await first.stop()
            file.write_text(f"rocketmq.namesrv.addr={second.address}\n")

            async def sent() -> bool:
                try:
                    await producer.send(Message("Later", b"after"))
                except KourouError:
                    return False
                return True

            async with asyncio.timeout(20):
                while not await sent():  # noqa: ASYNC110 (there is no notification)
                    await asyncio.sleep(0.02)
            await until(lambda: b"after" in notes.bodies)


CONSUMER = f"""
import asyncio, sys
from kourou.client.push.push_consumer import AsyncPushConsumer

async def handler(messages):
    print(len(messages), flush=True)
    await asyncio.to_thread(sys.stdin.readline)

async def main():
    consumer = AsyncPushConsumer(
        "{GROUP}", namesrv=sys.argv[1], consume_from="first", batch_size=8, concurrency=1
    )
    await consumer.subscribe("{TOPIC}", handler)
    await consumer.run()

asyncio.run(main())
"""

PRODUCER = f"""
import sys
from kourou.client.sync.producer import Producer
from kourou.protocol.message import Message, MessageExt

with Producer("producers", namesrv=sys.argv[1]) as producer:
    number = 0
    while True:
        bodies = [b"%d" % (number + part) for part in range(50)]
        producer.send_many([Message("{TOPIC}", body) for body in bodies])
        number += len(bodies)
        print(number, flush=True)
"""


async def run_program(program: str, namesrv_addr: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    arguments = (sys.executable, "-W", "error", "-c", program, namesrv_addr)
    return await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe, stderr=pipe)


async def test_sigterm_in_the_middle_of_a_batch_finishes_it_and_leaves_the_rest(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"%d" % number for number in range(20)])  # in one pull
        process = await run_program(CONSUMER, running.namesrv_addr)
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"8\n"
            process.send_signal(signal.SIGTERM)
            out, err = await process.communicate(b"\n")  # lets the handler end
        assert (process.returncode, err) == (0, b"")
        # The signal and the end of the first batch may cross; which batch it was is all the same.
        done = 8 + sum(int(size) for size in out.split())
        assert await stored_offset(running) == done
        async with consuming(running, notes):
            await until(lambda: len(notes.messages) == 20 - done)
        assert sorted(notes.bodies, key=int) == [b"%d" % number for number in range(done, 20)]


async def test_a_producer_that_is_killed_in_the_middle_of_a_batch_keeps_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    async with faulty_cluster(tmp_path) as running:
        process = await run_program(PRODUCER, running.namesrv_addr)
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            out, err = await process.communicate()
        assert (process.returncode, err) == (-signal.SIGTERM, b"")
        reported = int(out.split()[-1]) if out else 50
        assert {b"%d" % number for number in range(reported)} <= set(running.stored())


# -- handlers of an orderly consumer; others are in test_push_consumer_retry.py ------------------------


async def test_an_orderly_handler_that_blocks_for_ever_is_cancelled_by_stop_and_its_message_comes_again(
    tmp_path: Path,
) -> None:
    notes, begun = Notes(), asyncio.Event()

    async def handler(_: MessageExt) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"unfinished", b"behind it"])
        async with consuming(running, handler, orderly=True, stop_timeout_ms=100):
            await begun.wait()
        async with consuming(running, notes, orderly=True):
            await until(lambda: notes.bodies == [b"unfinished", b"behind it"])


async def test_an_orderly_handler_that_is_cancelled_from_within_is_called_again_in_its_place(
    tmp_path: Path,
) -> None:
    consumed: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        consumed.append(message.body)
        if len(consumed) == 1:
            raise asyncio.CancelledError

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b"])
        async with consuming(running, handler, orderly=True, suspend_ms=10):
            await until(lambda: len(consumed) == 3)
        assert consumed == [b"a", b"a", b"b"]
        assert await stored_offset(running) == 2
