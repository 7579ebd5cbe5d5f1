"""`mqadmin updateTopic -a`, `mqadmin topicOverflow` and `mqadmin doctor` with overflow policies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kourou import AsyncProducer, Message
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.push_kit import until
from tests.unit.admin.command_line import run_line

pytestmark = pytest.mark.e2e


async def test_a_policy_is_set_shown_examined_and_taken_away(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as running,
        AsyncProducer("loaders", namesrv=running.namesrv_addr, wait_for_topic_limit=False) as producer,
    ):
        where = ["-c", "DefaultCluster", "-t", "orders"]

        async def update(changes: str) -> str:
            done = await run_line(
                running.namesrv_addr, "updateTopic", *where, "-r", "1", "-w", "1", "-a", changes
            )
            return done.stdout + done.stderr

        shown = await run_line(running.namesrv_addr, "topicOverflow")
        assert shown.lines[-1].startswith("no topic has an overflow policy")
        refused = await update("+overflow.policy=reject")
        assert "CODE: 29" in refused and "needs a limit" in refused
        unknown = await run_line(running.namesrv_addr, "topicOverflow", "-t", "Nope")
        assert unknown.exit_code != 0 and "CODE: 17" in unknown.stdout + unknown.stderr
        await update("+message.type=NORMAL")
        shown = await run_line(running.namesrv_addr, "topicOverflow", "-t", "orders")
        assert shown.lines[-1].startswith("topic orders has no overflow policy")
        await update("+overflow.policy=drop-oldest,+overflow.messages=4,+overflow.bytes=1g")
        for number in range(4):
            await producer.send(Message("orders", b"%d" % number))
        (broker,) = running.brokers
        broker.services.offsets.commit("billing", "orders", 0, 0, "here")
        await update("+overflow.messages=2")
        await until(lambda: broker.services.offsets.query("billing", "orders", 0) == 3)
        shown = await run_line(running.namesrv_addr, "topicOverflow", "-t", "orders")
        (line,) = shown.lines[1:]
        assert line.split()[1:3] == ["orders", "drop-oldest"]
        assert "of 2 messages" in line and "of 1073741824 bytes" in line
        assert "billing: 3 dropped, 0 dead-lettered" in line
        (listed,) = json.loads((await run_line(running.namesrv_addr, "topicOverflow", "--json")).stdout)
        assert listed["topics"][0]["groups"] == [{"group": "billing", "dropped": 3, "deadLettered": 0}]
        assert listed["topics"][0]["sizeBytes"] >= 0 and listed["topics"][0]["ageMs"] is None
        found = await run_line(running.namesrv_addr, "doctor", "--watch", "0")
        assert "the group does not get all messages: the policy is drop-oldest" in found.stdout
        await update("-overflow.policy,-overflow.messages,-overflow.bytes")
        shown = await run_line(running.namesrv_addr, "topicOverflow")
        assert "none any more" in shown.stdout, "what was dropped is still counted"
