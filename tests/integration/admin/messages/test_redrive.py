"""Dead letters are sent back: to which group, how often, which ones, and the output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.admin.messages.redrive import REDRIVEN_FROM
from kourou.client.producer.producer import AsyncProducer
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.protocol.bodies import LockBatchRequestBody, MessageQueue, encode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.message import Message, MessageExt
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import Notes, call, make_topic, until
from tests.integration.admin.on_terminal import run_on_terminal
from tests.unit.admin.command_line import Result, run_line

pytestmark = pytest.mark.e2e

TOPIC = "Orders"
GROUP = "billing"
OTHER = "shipping"


async def give_up(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
    context.delay_level = -1
    return ConsumeResult.LATER


@asynccontextmanager
async def consumer(
    running: Cluster, handler: Any, *, group: str = GROUP, **options: Any
) -> AsyncIterator[AsyncPushConsumer]:
    options = {"consume_from": "first", "persist_interval_ms": 50, "stop_timeout_ms": 2_000, **options}
    member = AsyncPushConsumer(group, namesrv=running.namesrv_addr, **options)
    await member.subscribe(TOPIC, handler)
    async with member:
        yield member


async def send(running: Cluster, *messages: Message) -> None:
    async with AsyncProducer("orders", namesrv=running.namesrv_addr) as producer:
        for message in messages:
            await producer.send(message)


def order(number: int, **properties: str) -> Message:
    return Message(TOPIC, f"order {number}".encode(), keys=[f"o{number}"], properties=properties)


@asynccontextmanager
async def with_dead_letters(
    folder: Path, *messages: Message, brokers: int = 1, **settings: Any
) -> AsyncIterator[Cluster]:
    """A cluster in which GROUP gave these messages up and OTHER has consumed them."""
    others = Notes()
    async with cluster(folder, brokers=brokers, **settings) as running:
        await make_topic(running, TOPIC, queues=1)
        await send(running, *messages)
        async with consumer(running, give_up) as failing, consumer(running, others, group=OTHER) as fine:
            await until(lambda: failing.stats().failed == len(messages) and failing.stats().in_hand == 0)
            await until(lambda: fine.stats().consumed == len(messages))
        yield running


async def redrive(running: Cluster, *words: str, group: str = GROUP) -> Result:
    return await run_line(running.namesrv_addr, "redrive", "-g", group, *words)


async def test_each_goes_once_to_its_group_only_and_looks_like_new(tmp_path: Path) -> None:
    async with with_dead_letters(tmp_path, order(1), order(2, colour="red"), brokers=2) as running:
        result = await redrive(running)
        assert result.exit_code == 0 and result.lines[-1] == "2 sent", result
        assert result.lines[0].split() == [
            "#",
            "Message",
            "Id",
            "Keys",
            "Topic",
            "Born",
            "Times",
            "Result",
            "Body",
        ]
        notes, others = Notes(), Notes()
        async with consumer(running, notes), consumer(running, others, group=OTHER):
            await until(lambda: len(notes.messages) == 2)
            # A message for both comes after: nothing is between.
            await send(running, order(3))
            await until(lambda: len(notes.messages) == 3 and len(others.messages) == 1)
        assert sorted(notes.bodies) == [b"order 1", b"order 2", b"order 3"]
        assert others.bodies == [b"order 3"]
        red = next(message for message in notes.messages if message.body == b"order 2")
        assert (red.topic, red.reconsume_times, red.keys) == (TOPIC, 0, ("o2",))
        assert red.properties["colour"] == "red"
        assert "DELAY" not in red.properties


async def test_a_second_run_sends_nothing_unless_requested(tmp_path: Path) -> None:
    async with with_dead_letters(tmp_path, order(1), order(2)) as running:
        assert (await redrive(running, "-k", "o1")).lines[-1] == "1 sent"
        assert (await redrive(running)).lines[-1] == "1 sent, 1 redriven before"
        assert (await redrive(running)).lines[-1] == "2 redriven before"
        # What went to the group is not sent to everybody either.
        assert (await redrive(running, "--to-topic")).lines[-1] == "2 redriven before"
        assert (await redrive(running, "--again")).lines[-1] == "2 sent"


async def test_one_that_fails_again_is_a_new_dead_letter_that_can_go_back(tmp_path: Path) -> None:
    async with with_dead_letters(tmp_path, order(1)) as running:
        for _ in range(2):
            assert (await redrive(running)).lines[-1].startswith("1 sent")
            async with consumer(running, give_up) as failing:
                await until(lambda failing=failing: failing.stats().failed == 1)  # type: ignore[misc]
                await until(lambda failing=failing: failing.stats().in_hand == 0)  # type: ignore[misc]
        result = await redrive(running, "--json")
        assert '"sent"' in result.lines[-1]
        assert [line.count("redriven before") for line in result.lines] == [1, 1, 0]
        notes = Notes()
        async with consumer(running, notes):
            await until(lambda: len(notes.messages) == 1)
        assert len(notes.messages[0].properties[REDRIVEN_FROM].split(",")) == 3


async def test_to_topic_all_groups_get_it(tmp_path: Path) -> None:
    async with with_dead_letters(tmp_path, order(1)) as running:
        assert (await redrive(running, "--to-topic")).lines[-1] == "1 sent"
        assert (await redrive(running)).lines[-1] == "1 redriven before"
        notes, others = Notes(), Notes()
        async with consumer(running, notes), consumer(running, others, group=OTHER):
            await until(lambda: notes.bodies == [b"order 1"] == others.bodies)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-k", "o2"), [b"order 2"]),
        (("--expression", "colour = 'red' AND size > 3"), [b"order 3"]),
        (("--limit", "2"), [b"order 1", b"order 2"]),
        (("-t", "Nothing"), []),
        (("-t", TOPIC, "-b", "0", "-e", "2000-01-01#00:00:00:000"), []),
        (("-b", "2000-01-01#00:00:00:000"), [b"order 1", b"order 2", b"order 3"]),
    ],
)
async def test_only_what_is_selected(tmp_path: Path, words: tuple[str, ...], expected: list[bytes]) -> None:
    messages = order(1), order(2, colour="red", size="3"), order(3, colour="red", size="4")
    async with with_dead_letters(tmp_path, *messages) as running:
        shown = await redrive(running, "--dry-run", *words)
        assert shown.exit_code == 0
        assert [line.split()[-2:] for line in shown.lines[1:-1]] == [
            body.decode().split() for body in expected
        ]
        result = await redrive(running, *words)
        assert result.exit_code == 0, result
        notes = Notes()
        async with consumer(running, notes):
            await send(running, order(9))
            await until(lambda: len(notes.messages) == len(expected) + 1)
        assert sorted(notes.bodies) == [*expected, b"order 9"]


async def test_a_dry_run_sends_nothing(tmp_path: Path) -> None:
    async with with_dead_letters(tmp_path, order(1)) as running:
        for _ in range(2):
            result = await redrive(running, "--dry-run")
            assert result.lines[-1] == "1 would be sent" and "would be sent" in result.lines[1]


async def test_a_group_that_consumes_in_order_gets_it_too(tmp_path: Path) -> None:
    async with with_dead_letters(tmp_path, order(1), order(2)) as running:
        notes = Notes()
        async with consumer(running, notes, orderly=True):
            # It holds its queues when it has consumed something.
            await send(running, order(3))
            await until(lambda: notes.bodies == [b"order 3"])
            assert (await redrive(running)).lines[-1] == "2 sent"
            await until(lambda: len(notes.messages) == 3)
            assert sorted(notes.bodies) == [b"order 1", b"order 2", b"order 3"]
            assert (await redrive(running)).lines[-1] == "2 redriven before"


async def test_a_group_whose_locks_outlive_it_gets_it_once(tmp_path: Path) -> None:
    async with with_dead_letters(tmp_path, order(1)) as running:
        lock = LockBatchRequestBody(
            consumer_group=GROUP, client_id="gone@1", mq_set=[MessageQueue(TOPIC, "broker-a", 0)]
        )
        assert (await call(running, RequestCode.LOCK_BATCH_MQ, body=encode_body(lock))).code == 0
        assert (await redrive(running)).lines[-1] == "1 sent"
        assert (await redrive(running)).lines[-1] == "2 redriven before"


async def test_the_reason_of_a_failure_is_reported_and_it_can_be_sent_later(tmp_path: Path) -> None:
    async with with_dead_letters(tmp_path, order(1), order(2)) as running:
        change = ("updateTopic", "-t", f"%RETRY%{GROUP}", "-b", running.broker.address, "-r", "1", "-w", "1")
        assert (await run_line(running.namesrv_addr, *change, "-p", "4")).exit_code == 0
        result = await redrive(running)
        assert result.exit_code == 1
        assert result.lines[-1] == "2 failed"
        *reasons, last = result.stderr.splitlines()
        assert len(reasons) == 2 and all(
            "none of its brokers can be written to" in reason for reason in reasons
        )
        assert "2 dead letters of billing could not be sent back" in last
        assert (await run_line(running.namesrv_addr, *change, "-p", "6")).exit_code == 0
        assert (await redrive(running)).lines[-1] == "2 sent"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo terminals")
@pytest.mark.parametrize(
    ("typed", "exit_code", "reported", "after"),
    [
        (b"n\n", 1, "nothing was sent; --yes skips the question", "1 would be sent"),
        (b"\x03", 130, "interrupted", "1 would be sent"),
        (b"y\n", 0, "1 sent", "1 redriven before"),
    ],
)
async def test_on_a_terminal_it_shows_and_asks(
    tmp_path: Path, typed: bytes, exit_code: int, reported: str, after: str
) -> None:
    async with with_dead_letters(tmp_path, order(1)) as running:
        line = ("redrive", "-n", running.namesrv_addr, "-g", GROUP)
        shown, ended = await asyncio.to_thread(
            run_on_terminal, line, lambda shown: "again? [y/N]" in shown, typed
        )
        assert (ended, reported in shown) == (exit_code, True), shown
        assert "would be sent   order 1" in shown
        assert (await redrive(running, "--dry-run")).lines[-1] == after


async def test_bad_words(tmp_path: Path) -> None:
    cases = [
        (("-b", "noon"), "noon: not a time"),
        (("--limit", "0"), "--limit 0: must be a number above 0"),
        (("--expression", "a >"), "SQL92 expression"),
    ]
    async with cluster(tmp_path) as running:
        for words, problem in cases:
            assert problem in (await redrive(running, *words)).problem


async def test_an_unknown_group_is_an_error_one_without_dead_letters_is_not(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, TOPIC)
        assert "no broker knows group nobody" in (await redrive(running, group="nobody")).problem
        async with consumer(running, Notes()):
            pass
        result = await redrive(running)
        assert (result.exit_code, result.lines[-1]) == (0, "no dead letters match")


async def test_a_name_server_that_is_not_there() -> None:
    result = await run_line("127.0.0.1:1", "redrive", "-g", GROUP, "--timeout", "500")
    assert "no name server answers" in result.problem
