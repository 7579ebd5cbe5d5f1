"""The live view: rates and lag of a cluster in which something goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou.admin.brokers import GroupQueueLag
from kourou.admin.top import TopSample, view
from kourou.client.producer.producer import AsyncProducer
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.protocol.message import Message, MessageExt
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import make_topic, until
from tests.integration.admin.gone_broker import register
from tests.integration.admin.on_terminal import run_on_terminal
from tests.unit.admin.command_line import run_line

TOPIC = "Orders"
IN_PLACE = "\x1b[H\x1b[J"


@contextlib.asynccontextmanager
async def busy(folder: Path) -> AsyncIterator[Cluster]:
    """A cluster with two groups: one keeps up, one is offline while messages come."""

    async def fine(message: MessageExt) -> None:
        return

    async with cluster(folder) as running:
        await make_topic(running, TOPIC)
        await make_topic(running, "Quiet")
        options: Any = {"namesrv": running.namesrv_addr, "consume_from": "first", "persist_interval_ms": 50}
        for group in ("quick", "asleep"):
            member = AsyncPushConsumer(group, **options)
            await member.subscribe(TOPIC, fine)
            async with AsyncProducer("orders", namesrv=running.namesrv_addr) as producer, member:
                for _ in range(8):
                    await producer.send(Message(TOPIC, b"first"))
                await until(lambda member=member: member.stats().consumed >= 8)  # type: ignore[misc]
        quick = AsyncPushConsumer("quick", **options)
        await quick.subscribe(TOPIC, fine)

        async def go_on() -> None:
            async with AsyncProducer("orders", namesrv=running.namesrv_addr) as producer:
                while True:
                    await producer.send(Message(TOPIC, b"more"))
                    await asyncio.sleep(0.005)

        async with quick:
            task = asyncio.create_task(go_on(), name="sending")
            try:
                yield running
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


@pytest.mark.e2e
async def test_rates_and_lag_of_what_goes_on(tmp_path: Path) -> None:
    async with busy(tmp_path) as running:
        result = await run_line(running.namesrv_addr, "top", "--once", "--json")
        assert result.exit_code == 0, result
        found = json.loads(result.stdout)
        assert [topic["topic"] for topic in found["topics"]] == [TOPIC, "Quiet"]
        orders = found["topics"][0]
        assert orders["in_tps"] > 5 and orders["out_tps"] > 0 and orders["groups"] == 2
        groups = {group["group"]: group for group in found["groups"]}
        assert groups["quick"]["consume_tps"] > 0
        asleep = groups["asleep"]
        assert asleep["consume_tps"] == 0 and asleep["lag"] > 0 and asleep["lag_change"] > 5
        assert asleep["behind_s"] > 0
        assert found["brokers"][0]["broker_name"] == "broker-a" and found["problems"] == []


@pytest.mark.e2e
async def test_tables_in_a_file_as_often_as_asked(tmp_path: Path) -> None:
    async with busy(tmp_path) as running:
        result = await run_line(running.namesrv_addr, "top", "-k", "2", "-i", "0.2", "--rows", "1")
        assert result.exit_code == 0
        for head in ("BROKER", "TOPIC ", "GROUP "):
            assert sum(line.startswith(head) for line in result.lines) == 2
        assert "… 1 more; --rows shows them" in result.lines
        assert "\x1b" not in result.stdout


@pytest.mark.e2e
async def test_a_broker_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await register(running, "gone", "127.0.0.1:1")
        result = await run_line(running.namesrv_addr, "top", "--once")
        assert "2 brokers" in result.lines[0]
        assert any(line.startswith("gone ") and line.endswith("no answer") for line in result.lines)
        assert result.exit_code == 1 and "broker gone (127.0.0.1:1)" in result.stderr


@pytest.mark.e2e
async def test_bad_words(tmp_path: Path) -> None:
    cases = [
        (("-i", "0"), "from 0.1 to 3600"),
        (("-i", "often"), "must be a number of seconds"),
        (("-k", "0"), "must be a number above 0"),
        (("-c", "nowhere"), "cluster [nowhere] not exist"),
    ]
    async with cluster(tmp_path) as running:
        for words, problem in cases:
            assert problem in (await run_line(running.namesrv_addr, "top", *words)).problem


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo terminals")
@pytest.mark.parametrize("key", [b"\x03", pytest.param(b"q", marks=pytest.mark.slow)])
async def test_on_a_terminal_it_is_drawn_in_place_until_control_c_or_q(tmp_path: Path, key: bytes) -> None:
    async with busy(tmp_path) as running:
        line = ("top", "-n", running.namesrv_addr, "-i", "0.2")
        shown, exit_code = await asyncio.to_thread(
            run_on_terminal, line, lambda shown: shown.count(IN_PLACE) > 2, key
        )
    assert "Orders" in shown and "asleep" in shown
    assert exit_code == 0 and "interrupted" not in shown


# -- the difference of two looks ---------------------------------------------------------------------


def queue(consumer_offset: int, broker_offset: int, *, topic: str = TOPIC, group: str = "g") -> GroupQueueLag:
    return GroupQueueLag(topic, group, "broker-a", 0, broker_offset, consumer_offset, 0)


def test_rates_are_of_the_time_between() -> None:
    before = TopSample(10.0, [], {TOPIC: 100, "Quiet": 7}, [queue(90, 100)])
    after = TopSample(12.0, [], {TOPIC: 140, "Quiet": 7}, [queue(96, 140)])
    found = view(before, after)
    assert [(row.topic, row.in_tps, row.out_tps) for row in found.topics] == [
        (TOPIC, 20.0, 3.0),
        ("Quiet", 0, 0),
    ]
    (group,) = found.groups
    assert (group.consume_tps, group.lag, group.lag_change) == (3.0, 44, 17.0)


def test_what_is_new_or_moved_back_has_no_rate() -> None:
    before = TopSample(10.0, [], {TOPIC: 100}, [queue(90, 100)])
    after = TopSample(11.0, [], {TOPIC: 10, "New": 5}, [queue(20, 100), queue(5, 5, topic="New")])
    found = view(before, after)
    assert all(row.in_tps == row.out_tps == 0 for row in found.topics)
    assert [(row.consume_tps, row.lag) for row in found.groups] == [(0, 80)]
