"""Links that are cut, slow, frozen or end in the middle of a frame: calls end in time, nothing is lost."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.client.core import api
from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_result import SendResult
from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.sync.producer import Producer
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.errors import KourouError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message
from kourou.testing.tcp_proxy import Direction, TcpProxy
from tests.e2e.client.kit.fault_kit import QUICK, SLACK_S, FaultyCluster, ends_within, faulty_cluster
from tests.e2e.client.kit.push_kit import GROUP, TOPIC, Notes, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TIMEOUT_MS = 500
HANDLE = base64.urlsafe_b64encode(b"v1 TopicTest broker-a 1700000000000 7F00").decode()
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
STANDING: dict[str, Callable[[TcpProxy], None]] = {
    "frozen": lambda proxy: proxy.freeze(),
    "requests frozen": lambda proxy: proxy.freeze(Direction.TO_SERVER),
    "answers frozen": lambda proxy: proxy.freeze(Direction.TO_CLIENT),
    "slow": lambda proxy: proxy.delay(4_000),
    "every request halved": lambda proxy: proxy.halve(Direction.TO_SERVER, 1_000_000),
    "every answer halved": lambda proxy: proxy.halve(Direction.TO_CLIENT, 1_000_000),
}


@pytest.fixture(autouse=True)
def short_offset_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's 5 s for offsets are no option of a client."""
    monkeypatch.setattr(api, "OFFSET_TIMEOUT_MS", TIMEOUT_MS)


def message(body: bytes = b"x") -> Message:
    return Message(TOPIC, body)


# -- every call ends in time ---------------------------------------------------------------------------


def producer_of(running: FaultyCluster, **options: Any) -> AsyncProducer:
    return AsyncProducer("producers", namesrv=running.namesrv_addr, send_timeout_ms=TIMEOUT_MS, **options)


def reader_of(running: FaultyCluster) -> AsyncPullConsumer:
    return AsyncPullConsumer(
        "readers",
        namesrv=running.namesrv_addr,
        pull_timeout_ms=TIMEOUT_MS,
        request_timeout_ms=TIMEOUT_MS,
    )


@pytest.mark.parametrize("fault", STANDING)
async def test_every_call_ends_in_its_time_over_a_broken_link(tmp_path: Path, fault: str) -> None:
    async with faulty_cluster(tmp_path) as running:
        producer, reader = producer_of(running, request_timeout_ms=TIMEOUT_MS), reader_of(running)
        async with producer, reader:
            await producer.send(message(), timeout_ms=10_000)
            await reader.committed(QUEUE)
            STANDING[fault](running.proxy)
            seconds = TIMEOUT_MS / 1000
            outcomes = await asyncio.gather(
                ends_within(seconds, producer.send(message())),
                ends_within(seconds, producer.send(message(), queue=QUEUE)),
                ends_within(seconds, producer.send_nowait(message())),
                ends_within(seconds, producer.send_many([message(b"m"), message(b"n")])),
                ends_within(seconds, producer.request(message())),
                ends_within(seconds, reader.pull(QUEUE, queue_offset=0)),
                ends_within(seconds, reader.committed(QUEUE)),
                ends_within(seconds, reader.commit(QUEUE, 1)),
                ends_within(seconds, producer.flush()),
            )
            assert all(isinstance(outcome, KourouError) for outcome in outcomes[:-1]), outcomes
            one_way = await ends_within(seconds, producer.send_oneway(message()))
            assert one_way is None or isinstance(one_way, KourouError)
            began = time.monotonic()
        # Unregistrations, which do not arrive.
        assert time.monotonic() - began < 2 * TIMEOUT_MS / 1000 + SLACK_S


@pytest.mark.parametrize("fault", STANDING)
async def test_every_call_ends_in_its_time_when_the_name_server_does_not_answer(
    tmp_path: Path, fault: str
) -> None:
    async with faulty_cluster(tmp_path) as running:
        # What a route may take by itself is more than these sends have.
        producer, reader = producer_of(running, request_timeout_ms=5_000), reader_of(running)
        late = producer_of(running)
        async with producer, reader:
            STANDING[fault](running.namesrv_proxy)
            seconds = TIMEOUT_MS / 1000
            outcomes = await asyncio.gather(
                ends_within(seconds, producer.send(message())),
                ends_within(seconds, producer.send_many([message(b"m"), message(b"n")])),
                ends_within(seconds, producer.send_oneway(message())),
                ends_within(seconds, producer.request(message())),
                ends_within(seconds, producer.recall(TOPIC, HANDLE, timeout_ms=TIMEOUT_MS)),
                ends_within(seconds, reader.pull(QUEUE, queue_offset=0)),
                ends_within(seconds, reader.commit(QUEUE, 1)),
                ends_within(seconds, reader.fetch_queues(TOPIC)),
                ends_within(seconds, late.start()),
            )
            # To connect is all that a producer needs of a name server at first.
            assert outcomes.pop() is None
            await late.stop()
            assert all(isinstance(outcome, KourouError) for outcome in outcomes), outcomes


async def test_plain_calls_end_in_their_time_over_a_frozen_link(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path) as running:
        options: dict[str, Any] = {"send_timeout_ms": TIMEOUT_MS, "request_timeout_ms": TIMEOUT_MS}

        def use(is_frozen: threading.Event, may_go_on: threading.Event) -> list[float]:
            calls: list[Callable[[Producer], object]] = [
                lambda producer: producer.send(message()),
                lambda producer: producer.send_many([message(b"m"), message(b"n")]),
                lambda producer: producer.request(message()),
                lambda producer: producer.send_oneway(message()),
                lambda producer: producer.stop(),
            ]
            with Producer("producers", namesrv=running.namesrv_addr, **options) as producer:
                producer.send(message())
                is_frozen.set()
                assert may_go_on.wait(20)
                return [_seconds_of(call, producer) for call in calls]

        is_frozen, may_go_on = threading.Event(), threading.Event()
        used = asyncio.ensure_future(asyncio.to_thread(use, is_frozen, may_go_on))
        await until(is_frozen.is_set)
        running.proxy.freeze()
        may_go_on.set()
        assert max(await used) < 2 * TIMEOUT_MS / 1000 + SLACK_S


def _seconds_of(call: Callable[[Producer], object], producer: Producer) -> float:
    began = time.monotonic()
    with contextlib.suppress(KourouError):
        call(producer)
    return time.monotonic() - began


@pytest.mark.parametrize("fault", ["frozen", "slow", "every answer halved"])
async def test_every_client_stops_in_time_over_a_broken_link(tmp_path: Path, fault: str) -> None:
    async with faulty_cluster(tmp_path) as running:
        options: dict[str, Any] = {"namesrv": running.namesrv_addr, **QUICK}
        await running.put(b"a", b"b")
        clients = [
            producer := AsyncProducer("producers", send_timeout_ms=TIMEOUT_MS, **options),
            half := AsyncTransactionProducer(
                "tx", check=lambda _: TransactionState.UNKNOWN, send_timeout_ms=TIMEOUT_MS, **options
            ),
            reader := AsyncPullConsumer("readers", **options),
            push := AsyncPushConsumer(GROUP, consume_from="first", stop_timeout_ms=TIMEOUT_MS, **options),
            orderly := AsyncPushConsumer(
                "orderly", consume_from="first", orderly=True, stop_timeout_ms=TIMEOUT_MS, **options
            ),
            lite := AsyncLitePullConsumer("lite", consume_from="first", **options),
        ]
        seen, in_order = Notes(), Notes()
        await push.subscribe(TOPIC, seen)
        await orderly.subscribe(TOPIC, in_order)
        await lite.subscribe(TOPIC)
        for client in clients:
            await client.start()
        await producer.send(message(b"c"))
        async with half.transaction(message(b"d")):
            pass
        await reader.committed(QUEUE)
        assert await lite.poll(10_000)
        await until(lambda: len(seen.messages) == len(in_order.messages) == 4)
        STANDING[fault](running.proxy)
        unanswered = producer.send_nowait(message())
        # Offsets, locks and goodbyes, each of which may take its own time after what is in hand.
        seconds = (TIMEOUT_MS + TIMEOUT_MS + api.LOCK_TIMEOUT_MS + 300) / 1000
        await asyncio.gather(*(ends_within(seconds, client.stop()) for client in clients))
        with pytest.raises(KourouError):
            await unanswered


async def test_a_stop_leaves_no_socket_to_a_broker_that_does_not_read(tmp_path: Path) -> None:
    body = bytes(range(256)) * 4_096
    async with faulty_cluster(tmp_path) as running:
        options: dict[str, Any] = {"compress_over_bytes": len(body) + 1, "request_timeout_ms": TIMEOUT_MS}
        async with producer_of(running, **options) as producer:
            await producer.send(message())
            running.proxy.freeze()
            sends = [producer.send_nowait(message(body), timeout_ms=20_000) for _ in range(40)]
            began = time.monotonic()
        assert time.monotonic() - began < 2 * TIMEOUT_MS / 1000 + 1 + SLACK_S
        # Their connection is gone, with all that was not written yet.
        assert all(send.done() for send in sends)
        failures = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(failure, KourouError) for failure in failures)


# -- nothing acknowledged is lost ----------------------------------------------------------------------


async def send_on(producer: AsyncProducer, name: str, done: asyncio.Event) -> list[bytes]:
    """Send until `done`, one by one and in batches; what was acknowledged."""
    acknowledged: list[bytes] = []
    number = 0
    while not done.is_set():
        number += 1
        bodies = [f"{name}-{number}-{part}".encode() for part in range(3)]
        with contextlib.suppress(KourouError):
            await producer.send(message(bodies[0]))
            acknowledged.append(bodies[0])
            await producer.send_many([message(body) for body in bodies[1:]])
            acknowledged += bodies[1:]
        await asyncio.sleep(0.005)
    return acknowledged


async def test_what_is_acknowledged_is_stored_and_consumed_whatever_the_links_do(tmp_path: Path) -> None:
    notes = Notes()
    async with faulty_cluster(tmp_path) as running:
        options: dict[str, Any] = {"namesrv": running.namesrv_addr, **QUICK}
        consumer = AsyncPushConsumer(GROUP, consume_from="first", **options)
        await consumer.subscribe(TOPIC, notes)
        async with AsyncProducer("producers", send_timeout_ms=1_000, **options) as producer, consumer:
            done = asyncio.Event()
            senders = [asyncio.ensure_future(send_on(producer, f"s{name}", done)) for name in range(4)]
            for fault in ("cut", "half a request", "half an answer", "restart", "forgotten", "cut"):
                sent = producer.stats().sent
                await until(lambda sent=sent: producer.stats().sent >= sent + 20, fault)
                await running.do(fault)
            sent = producer.stats().sent
            await until(lambda: producer.stats().sent >= sent + 20)
            done.set()
            acknowledged = [body for each in await asyncio.gather(*senders) for body in each]
            assert len(acknowledged) > 100
            assert set(acknowledged) <= set(running.stored())
            await until(lambda: set(acknowledged) <= set(notes.bodies))


async def test_late_responses_are_not_mixed_up(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path, queues=4) as running:
        async with AsyncProducer("producers", namesrv=running.namesrv_addr) as producer:
            await producer.send(message())
            running.proxy.delay(100)
            in_time: list[asyncio.Future[SendResult]] = []
            late: list[asyncio.Future[SendResult]] = []
            # Answers come all the time: no reason to give the connection up.
            while len(in_time) < 60:
                in_time.append(producer.send_nowait(message(b"%d" % len(in_time))))
                if producer.stats().sent > 1 and len(late) < 10:
                    late.append(producer.send_nowait(message(), timeout_ms=100))
                await asyncio.sleep(0.01)
            failures = await asyncio.gather(*late, return_exceptions=True)
            assert len(failures) == 10 and all(isinstance(failure, KourouError) for failure in failures)
            results = await asyncio.gather(*in_time)
            assert running.proxy.connections == 1
        stored = {record.msg_id: record.body for record in running.records()}
        assert [stored[result.msg_id] for result in results] == [b"%d" % number for number in range(60)]
