"""Messages that a handler fails on: when they come again, and when they are given up."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.client.push import concurrent_service, push_engine
from kourou.client.push.assigned_queue import AssignedQueue
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.embed import BrokerHooks, SendContext
from kourou.errors import RequestError
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_records
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.broker.broker_kit import pull_header
from tests.e2e.client.kit.push_kit import (
    GROUP,
    TOPIC,
    Notes,
    call,
    consumer_of,
    consuming,
    make_topic,
    send,
    stored_offset,
    until,
)

pytestmark = pytest.mark.e2e

DLQ = f"%DLQ%{GROUP}"
SHORT_DELAYS = " ".join(["1s"] * 18)
PULL_MESSAGE = 11


async def dead_letters(running: Cluster) -> list[MessageExt]:
    answer = await call(running, PULL_MESSAGE, pull_header(DLQ, 0, suspend_timeout_millis=0))
    return list(decode_records(answer.body)) if answer.code == 0 else []


@pytest.mark.parametrize(
    "failure",
    [ConsumeResult.LATER, pytest.param(ConsumeResult.SUSPEND, marks=pytest.mark.slow), ValueError("no")],
)
async def test_a_message_that_failed_comes_again_under_its_own_topic(
    tmp_path: Path, failure: ConsumeResult | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes(failure)
    async with cluster(tmp_path, message_delay_level=SHORT_DELAYS) as running:
        await make_topic(running, queues=1)
        await send(running, [b"again"], TAGS="TagA", UNIQ_KEY="ID1")
        async with consuming(running, notes, expression="TagA") as consumer:
            await until(lambda: len(notes.messages) == 2)
            await until(lambda: consumer.stats().consumed == 1)
            assert consumer.stats().failed == 1
            # Acknowledged where it was: it is the retry topic's now.
            await until(lambda: consumer.stats().in_hand == 0)
        first, second = notes.messages
        assert [m.topic for m in notes.messages] == [TOPIC, TOPIC]
        assert [m.reconsume_times for m in notes.messages] == [0, 1]
        assert (second.body, second.msg_id) == (b"again", "ID1")
        assert second.properties["ORIGIN_MESSAGE_ID"] == first.offset_msg_id
        assert await stored_offset(running) == 1
        was_logged = any("failed" in r.getMessage() and r.exc_info for r in caplog.records)
        assert was_logged == isinstance(failure, Exception)


async def test_a_handler_that_fails_for_every_message_is_summed_up_while_it_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_engine, "REPORT_INTERVAL_MS", 20)
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"%d" % number for number in range(50)])
        async with consuming(running, Notes(*[ValueError("no")] * 50)) as consumer:
            await until(lambda: consumer.stats().failed == 50)
            await until(lambda: "more times in " in caplog.text)
    logged = [record for record in caplog.records if record.name.endswith("failure_log")]
    again = [re.search(r"failed (\d+|once) more", record.getMessage()) for record in logged]
    counts = [0 if found is None else 1 if found[1] == "once" else int(found[1]) for found in again]
    assert [record.exc_info is not None for record in logged] == [found is None for found in again]
    assert sum(counts) + again.count(None) == 50


def given_up(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for record in caplog.records if "gave up" in (text := record.getMessage())]


async def test_after_the_last_attempt_it_is_a_dead_letter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes(*[ConsumeResult.LATER] * 10)
    async with cluster(tmp_path, message_delay_level=SHORT_DELAYS) as running:
        await make_topic(running, queues=1)
        await send(running, [b"poison"])
        async with consuming(running, notes, max_reconsume_times=1) as consumer:
            await until(lambda: consumer.stats().failed == 2)
            await until(lambda: consumer.stats().in_hand == 0)
        (dead,) = await dead_letters(running)
        assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"poison", TOPIC)
        assert [m.reconsume_times for m in notes.messages] == [0, 1]
        assert given_up(caplog) == [
            f"group {GROUP} gave up a message of {TOPIC}: "
            f"message {dead.msg_id}, after 2 attempts, now in {DLQ}"
        ]


async def test_a_handler_chooses_the_delay_or_gives_up_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
        context.delay_level = -1 if message.body == b"hopeless" else 1
        return ConsumeResult.SUCCESS if message.reconsume_times else ConsumeResult.LATER

    # Only the first level is short.
    async with cluster(tmp_path, message_delay_level="1s 1h 1h 1h") as running:
        await make_topic(running, queues=1)
        await send(running, [b"hopeless", b"soon"])
        async with consuming(running, handler) as consumer:
            await until(lambda: consumer.stats().consumed == 1)
        assert [dead.body for dead in await dead_letters(running)] == [b"hopeless"]
        (line,) = given_up(caplog)
        assert line.endswith(f", after 1 attempt, now in {DLQ}")


@pytest.mark.slow
async def test_a_handler_that_returns_nonsense_has_failed(tmp_path: Path) -> None:
    async def handler(message: MessageExt) -> object:
        return None if message.reconsume_times else "fine"

    async with cluster(tmp_path, message_delay_level=SHORT_DELAYS) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a"])
        async with consuming(running, handler) as consumer:
            await until(lambda: consumer.stats().consumed == 1)
            assert consumer.stats().failed == 1


# An async handler as it is, and behind a plain function that returns its coroutine.
in_both_ways = pytest.mark.parametrize(
    "way",
    [
        pytest.param(lambda handler: handler, id="async", marks=pytest.mark.slow),
        pytest.param(lambda handler: lambda message: handler(message), id="plain"),
    ],
)


@in_both_ways
async def test_a_handler_that_is_cancelled_from_within_has_failed_and_its_worker_goes_on(
    tmp_path: Path, way: Callable[[Any], Any]
) -> None:
    async def handler(message: MessageExt) -> None:
        if not message.reconsume_times:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(0)

    async with cluster(tmp_path, message_delay_level=SHORT_DELAYS) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b"])
        async with consuming(running, way(handler), concurrency=1) as consumer:
            await until(lambda: consumer.stats().consumed == 2)
            assert consumer.stats().failed == 2


@in_both_ways
async def test_an_async_handler_that_takes_too_long_is_cancelled_and_the_message_sent_back(
    tmp_path: Path, way: Callable[[Any], Any]
) -> None:
    cancelled: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        if message.reconsume_times:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.body)
            raise

    # Level 3, as Java sends them back with.
    async with cluster(tmp_path, message_delay_level="1h 1h 1s 1h") as running:
        await make_topic(running, queues=1)
        await send(running, [b"stuck", b"stuck too"])
        async with consuming(running, way(handler), consume_timeout_ms=200, concurrency=1) as consumer:
            await until(lambda: consumer.stats().consumed == 2)
            assert consumer.stats().timed_out == 2
        assert cancelled == [b"stuck", b"stuck too"]
        assert await stored_offset(running) == 2


async def test_a_plain_handler_that_blocks_is_sent_back_and_stop_does_not_hang(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    seen: list[int] = []

    def handler(message: MessageExt) -> None:
        seen.append(message.reconsume_times)
        if not message.reconsume_times:
            release.wait(60)

    async with cluster(tmp_path, message_delay_level="1h 1h 1s 1h") as running:
        await make_topic(running, queues=1)
        await send(running, [b"stuck"])
        loop = asyncio.get_running_loop()
        options = {"consume_timeout_ms": 200, "concurrency": 2, "stop_timeout_ms": 300}
        async with consuming(running, handler, **options) as consumer:
            await until(lambda: seen == [0, 1])
            await until(lambda: consumer.stats().in_hand == 0)
            began = loop.time()
        assert loop.time() - began < 5
        assert await stored_offset(running) == 1
        assert "1 thread abandoned in handlers" in caplog.text
        release.set()
        await until(lambda: not [t for t in threading.enumerate() if f"{GROUP}-handler" in t.name])


@in_both_ways
async def test_stop_cancels_an_async_handler_that_does_not_end_and_its_message_comes_again(
    tmp_path: Path, way: Callable[[Any], Any]
) -> None:
    notes = Notes()
    started = asyncio.Event()

    async def handler(message: MessageExt) -> None:
        started.set()
        await asyncio.Event().wait()

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"unfinished", b"not begun"])
        async with consuming(running, way(handler), stop_timeout_ms=100, concurrency=1):
            await started.wait()
        async with consuming(running, notes):
            await until(lambda: sorted(notes.bodies) == [b"not begun", b"unfinished"])


@pytest.mark.slow
async def test_stop_does_not_hang_on_a_handler_that_swallows_its_cancellation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def handler(message: MessageExt) -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"stubborn"])
        async with consuming(running, handler, stop_timeout_ms=50):
            await started.wait()
        assert "still running after cancellation" in caplog.text
        release.set()
        await until(lambda: not [t for t in asyncio.all_tasks() if ":worker-" in t.get_name()])


class Lost(Notes):
    """Fails on messages whose record the broker does not find when they are sent back."""

    async def __call__(self, message: MessageExt) -> ConsumeResult | None:
        message.phy_offset = 1 << 40
        return await super().__call__(message)


@in_both_ways
async def test_stop_finishes_handlers_that_run_and_leaves_the_rest(
    tmp_path: Path, way: Callable[[Any], Any]
) -> None:
    gate = asyncio.Event()
    done: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        await gate.wait()
        done.append(message.body)

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        bodies = [b"one", b"two", b"three"]
        await send(running, bodies)
        async with consuming(running, way(handler), concurrency=2) as consumer:
            await until(lambda: consumer.stats().running_handlers == 2)
            stopping = asyncio.ensure_future(consumer.stop())
            await asyncio.sleep(0)
            gate.set()
            await stopping
        (left,) = set(bodies) - set(done)  # the last one, where no threads are in between
        assert await stored_offset(running) == bodies.index(left)


@pytest.mark.slow
async def test_what_cannot_be_sent_back_is_copied_to_the_retry_topic_by_the_client(tmp_path: Path) -> None:
    notes = Lost(ConsumeResult.LATER)
    async with cluster(tmp_path, message_delay_level=SHORT_DELAYS) as running:
        await make_topic(running, queues=1)
        await send(running, [b"again"], UNIQ_KEY="ID1", TAGS="TagA")
        async with consuming(running, notes) as consumer:
            await until(lambda: consumer.stats().consumed == 1)
        again = notes.messages[1]
        assert (again.topic, again.body, again.reconsume_times) == (TOPIC, b"again", 1)
        assert (again.tags, again.msg_id) == ("TagA", "ID1")
        assert again.properties["ORIGIN_MESSAGE_ID"] == notes.messages[0].offset_msg_id


async def test_what_no_broker_takes_back_is_retried_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_copies(context: SendContext) -> None:
        if context.topic.startswith("%RETRY%"):
            raise RequestError(1, "not today")

    monkeypatch.setattr(concurrent_service, "AGAIN_LOCALLY_S", 0.05)
    notes = Lost(ConsumeResult.LATER, ConsumeResult.LATER)
    hooks = BrokerHooks(before_send=[refuse_copies])
    async with cluster(tmp_path, hooks=hooks) as running:
        await make_topic(running, queues=1)
        await send(running, [b"again"])
        async with consuming(running, notes) as consumer:
            await until(lambda: consumer.stats().consumed == 1)
        assert len(notes.messages) == 3
        assert notes.messages[0].reconsume_times == 2  # the same object each time
        assert await stored_offset(running) == 1


async def test_a_failure_of_our_own_reaches_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        consumer = consumer_of(running)
        await consumer.subscribe(TOPIC, Notes())
        async with consumer:
            waiting = asyncio.ensure_future(consumer.wait())
            monkeypatch.setattr(AssignedQueue, "pulled_messages", None)
            await send(running, [b"a"])
            with pytest.raises(TypeError):
                await asyncio.wait_for(waiting, 10)
