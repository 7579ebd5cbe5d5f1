"""The ends of consumers: by a handler, by two at once, by one who gives up waiting, after a failure."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.pull.pull_schedule import AsyncPullSchedule
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.client.push.handlers import ConsumerHook
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.sync.push_consumer import PushConsumer
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.errors import ClientStateError
from kourou.protocol.message import MessageExt
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.pull_kit import ClusterThread, cluster_thread
from tests.e2e.client.kit.push_kit import (
    GROUP,
    TOPIC,
    Notes,
    consumer_of,
    consuming,
    make_topic,
    send,
    stored_offset,
    until,
)

pytestmark = pytest.mark.e2e

BODIES = [b"%d" % number for number in range(20)]
# Long after every limit of these tests: who waits for its own handler would fail them.
STOP_TIMEOUT_MS = 60_000
SOON_S = 20.0


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ClusterThread]:
    with cluster_thread(tmp_path) as found:
        found.run(lambda each: make_topic(each, queues=1))
        found.put(BODIES)
        yield found


def plain_consumer(running: ClusterThread, **options: Any) -> PushConsumer:
    defaults: dict[str, Any] = {"consume_from": "first", "concurrency": 1, "stop_timeout_ms": STOP_TIMEOUT_MS}
    return PushConsumer(GROUP, namesrv=running.namesrv_addr, **{**defaults, **options})


def portal_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "kourou-client"]


# -- a handler stops its consumer ----------------------------------------------------------------


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("hooks", [[], [ConsumerHook()]], ids=["short", "hooked"])
def test_a_handler_stops_its_plain_consumer_after_some_messages(
    running: ClusterThread, orderly: bool, is_async: bool, hooks: list[ConsumerHook]
) -> None:
    seen: list[bytes] = []
    after: list[bytes] = []

    def on_message(message: MessageExt) -> None:
        seen.append(message.body)
        if len(seen) == 5:
            consumer.stop()
            after.append(message.body)

    async def on_message_async(message: MessageExt) -> None:
        on_message(message)

    began = time.monotonic()
    with plain_consumer(running, orderly=orderly, hooks=hooks) as consumer:
        consumer.subscribe(TOPIC, on_message_async if is_async else on_message)
        consumer.run()
        assert consumer._client.is_stopped
    assert time.monotonic() - began < SOON_S
    assert seen == BODIES[:5] and after == BODIES[4:5]
    assert running.run(stored_offset) == 5
    assert portal_threads() == []


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_handler_stops_its_async_consumer_after_some_messages(tmp_path: Path, is_async: bool) -> None:
    seen: list[bytes] = []
    loop = asyncio.get_running_loop()

    async def on_message(message: MessageExt) -> None:
        seen.append(message.body)
        if len(seen) == 5:
            await consumer.stop()

    def on_message_in_thread(message: MessageExt) -> None:
        asyncio.run_coroutine_threadsafe(on_message(message), loop).result(SOON_S)

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, BODIES)
        consumer = consumer_of(running, concurrency=1, stop_timeout_ms=STOP_TIMEOUT_MS)
        await consumer.subscribe(TOPIC, on_message if is_async else on_message_in_thread)
        async with asyncio.timeout(SOON_S):
            await consumer.run()
        assert consumer.is_stopped
        assert seen == BODIES[:5]
        assert await stored_offset(running) == 5


def test_run_of_a_consumer_that_a_handler_has_stopped_already_returns(running: ClusterThread) -> None:
    with plain_consumer(running) as consumer:
        consumer.subscribe(TOPIC, lambda message: consumer.stop())
        assert consumer._is_ended.wait(SOON_S)
        consumer.run()
    assert portal_threads() == []


# -- two at once ---------------------------------------------------------------------------------


def test_a_second_stop_of_a_plain_consumer_waits_for_the_first(running: ClusterThread) -> None:
    is_begun, go_on = threading.Event(), threading.Event()

    def on_message(message: MessageExt) -> None:
        is_begun.set()
        go_on.wait(SOON_S)

    consumer = plain_consumer(running)
    consumer.subscribe(TOPIC, on_message)
    consumer.start()
    assert is_begun.wait(SOON_S)
    stops = [threading.Thread(target=consumer.stop) for _ in range(3)]
    for stop in stops:
        stop.start()
    stops[0].join(0.3)
    assert [stop.is_alive() for stop in stops] == [True] * 3
    go_on.set()
    for stop in stops:
        stop.join(SOON_S)
    assert [stop.is_alive() for stop in stops] == [False] * 3
    assert running.run(stored_offset) == 1
    assert portal_threads() == []


async def test_a_stop_after_a_cancelled_one_waits_for_the_handlers(tmp_path: Path) -> None:
    is_begun, go_on = asyncio.Event(), asyncio.Event()

    async def on_message(message: MessageExt) -> None:
        is_begun.set()
        await go_on.wait()

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a"])
        consumer = consumer_of(running, stop_timeout_ms=STOP_TIMEOUT_MS)
        await consumer.subscribe(TOPIC, on_message)
        await consumer.start()
        await asyncio.wait_for(is_begun.wait(), SOON_S)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.stop(), 0.05)
        again = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0.05)
        assert not again.done() and consumer.stats().running_handlers == 1
        go_on.set()
        await asyncio.wait_for(again, SOON_S)
        assert consumer.stats().running_handlers == 0
        assert await stored_offset(running) == 1


# -- batches that succeed in part ----------------------------------------------------------------


@pytest.mark.parametrize("ends", ["raises", pytest.param("later", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind", ["async", pytest.param("plain", marks=pytest.mark.slow), "hooked", "orderly"]
)
async def test_those_up_to_the_ack_index_do_not_come_again_when_the_next_one_fails(
    tmp_path: Path, kind: str, ends: str
) -> None:
    batches: list[list[bytes]] = []

    def on_messages(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        is_first = not batches
        batches.append([message.body for message in messages])
        for index in range(3 if is_first else len(messages)):
            context.ack_index = index
        if is_first and ends == "raises":
            raise ValueError("the fourth one is bad")
        return ConsumeResult.LATER if is_first else None

    async def on_messages_async(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        return on_messages(messages, context)

    handler = on_messages_async if kind == "async" else on_messages
    options: dict[str, Any] = {"orderly": kind == "orderly", "suspend_ms": 10}
    if kind == "hooked":
        options["hooks"] = [ConsumerHook()]
    async with cluster(tmp_path, message_delay_level="1s 1s 1s") as running:
        await make_topic(running, queues=1)
        await send(running, BODIES[:6])
        async with consuming(running, handler, batch_size=6, concurrency=1, **options) as consumer:
            await until(lambda: sum(map(len, batches)) >= 9 and consumer.stats().consumed == 6)
            assert consumer.stats().failed == 3
        assert batches[0] == BODIES[:6]
        assert sorted(body for batch in batches[1:] for body in batch) == BODIES[3:6]
        assert await stored_offset(running) == 6


# -- what is reported ----------------------------------------------------------------------------


async def test_a_failure_in_the_background_is_logged_counted_and_raised_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        consumer = consumer_of(running)
        await consumer.subscribe(TOPIC, Notes())
        failure = ZeroDivisionError("a bug of ours")
        with pytest.raises(ClientStateError, match="a bug of ours") as reported:
            async with consumer:
                assert consumer.stats().failure is None
                consumer._instance.tasks.fail(failure)
                assert consumer.stats().failure is failure
        assert reported.value.__cause__ is failure
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert [record.exc_info and record.exc_info[1] for record in errors] == [failure]


def test_a_plain_consumer_that_failed_says_so_at_the_end_of_its_block(running: ClusterThread) -> None:
    with pytest.raises(ClientStateError, match="a bug of ours"):
        with plain_consumer(running) as consumer:
            tasks = consumer._client._instance.tasks
            consumer._do(lambda: tasks.fail(ZeroDivisionError("a bug of ours")))
            assert isinstance(consumer.stats().failure, ZeroDivisionError)
    assert portal_threads() == []


async def test_a_strategy_that_gives_nonsense_is_reported_without_ending_anything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Strange:
        name = "STRANGE"

        def allocate(self, *arguments: Any) -> Any:
            return ["queue 0"]

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        async with consuming(running, Notes(), strategy=Strange()) as consumer:
            await until(lambda: "cannot allocate" in caplog.text)
            assert consumer.stats().failure is None
        reported = f"strategy Strange cannot allocate topic '{TOPIC}': TypeError("
        assert reported in caplog.text and "no route" not in caplog.text


async def test_who_waits_without_a_subscription_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as running:
        consumer: AsyncPushConsumer = consumer_of(running)
        run = asyncio.ensure_future(consumer.run())
        await until(lambda: "subscribed to no topic" in caplog.text)
        await consumer.stop()
        await run


# -- starts that come to nothing -----------------------------------------------------------------


def clients_of(namesrv: str, folder: Path) -> list[Any]:
    return [
        AsyncProducer("producers", namesrv=namesrv, trace=True),
        AsyncTransactionProducer("tx", namesrv=namesrv, check=lambda message: TransactionState.COMMIT),
        AsyncPushConsumer("pushed", namesrv=namesrv),
        AsyncPushConsumer("heard", namesrv=namesrv, model="broadcasting", offset_store_dir=folder),
        AsyncLitePullConsumer("polled", namesrv=namesrv),
        AsyncPullConsumer("readers", namesrv=namesrv),
        AsyncPullSchedule("scheduled", namesrv=namesrv),
    ]


@pytest.mark.parametrize("number", range(7))
async def test_a_start_that_is_cancelled_anywhere_leaves_no_task(tmp_path: Path, number: int) -> None:
    async with cluster(tmp_path / "stores") as running:
        await make_topic(running, queues=1)
        before = asyncio.all_tasks()
        turns = 0
        while True:
            client = clients_of(running.namesrv_addr, tmp_path)[number]
            starting = asyncio.ensure_future(client.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            is_late = starting.done()
            starting.cancel()
            await asyncio.wait([starting])
            await asyncio.wait_for(client.stop(), SOON_S)
            left = [task for task in asyncio.all_tasks() - before if "connection" not in task.get_name()]
            assert left == [], (turns, left)
            if is_late:
                break
            turns += 1
        assert turns > 2


# The connections of these clients stay open.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_clients_that_are_not_stopped_before_their_loop_ends_are_named_in_one_line_each(
    running: ClusterThread, caplog: pytest.LogCaptureFixture
) -> None:
    async def forget() -> None:
        notes = Notes()
        clients = [
            AsyncProducer("p", namesrv=running.namesrv_addr),
            AsyncPushConsumer("c", namesrv=running.namesrv_addr, consume_from="first"),
            AsyncLitePullConsumer("l", namesrv=running.namesrv_addr),
        ]
        await clients[1].subscribe(TOPIC, notes)
        await clients[2].subscribe(TOPIC)
        for client in clients:
            await client.start()
        await until(lambda: len(notes.messages) == len(BODIES))  # its workers run, too

    asyncio.run(forget())
    gc.collect()  # a failure without a reader would be reported by asyncio now
    end = "was not stopped before its event loop ended; use `async with`, or `await stop()`"
    logged = [
        r.getMessage() for r in caplog.records if r.name.startswith(("asyncio", "kourou.transport.tasks"))
    ]
    assert sorted(logged) == [
        f"{name} {end}" for name in ("lite pull consumer l", "producer p", "push consumer c")
    ]
