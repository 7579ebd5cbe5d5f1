"""Offsets of groups in the console's API: previews, resets, copies; online and offline, and brokers away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou import AsyncProducer
from kourou.protocol.bodies import MessageQueue
from kourou.testing.cluster import Cluster, cluster
from tests.integration.admin.dead_broker import register_dead_broker
from tests.integration.admin.group_kit import GROUP, TOPIC, Traffic, until
from tests.integration.console.kit import Console, console_of


@pytest.fixture
async def traffic(console: Console, running: Cluster) -> AsyncIterator[Traffic]:
    """A topic of 8 messages on two brokers with 4 queues, all consumed; the group is offline again."""
    await console.change("POST", "/topics", {"topic": TOPIC, "read_queues": 2, "write_queues": 2})
    async with AsyncProducer("shop", namesrv=running.namesrv_addr) as producer:
        found = Traffic(running, producer, console.context.sessions.own.admin)
        await found.send(8)
        async with found.consumer():
            await found.until_consumed()
        console.context.sessions.forget()
        yield found


def _target(broker_name: str, queue_id: int, offset: int) -> dict[str, object]:
    return {"broker_name": broker_name, "queue_id": queue_id, "offset": offset}


async def _offset(
    console: Console, group: str, broker_index: int, queue_id: int, running: Cluster
) -> int | None:
    broker = running.brokers[broker_index]
    queue = MessageQueue(TOPIC, "", queue_id)
    return await console.context.sessions.own.admin.api.consumer_offset(
        broker.address, group, queue, only_stored=True
    )


async def test_an_offline_group_is_reset_to_the_beginning(console: Console, traffic: Traffic) -> None:
    body = {"groups": [GROUP], "to": "earliest"}
    preview = await console.preview("POST", f"/topics/{TOPIC}/offsets", body)
    assert preview["effects"] == [
        f"Resets group {GROUP} in topic {TOPIC}, 4 queues on broker-a, broker-b, to the first message that "
        "still exists"
    ]
    assert preview["warnings"] == []
    assert (preview["details"]["skipped"], preview["details"]["repeated"]) == (0, 8)
    assert preview["details"]["moves"][0] == {
        "group": GROUP,
        "broker_name": "broker-a",
        "queue_id": 0,
        "min_offset": 0,
        "max_offset": 2,
        "old_offset": 2,
        "new_offset": 0,
        "skipped": 0,
        "repeated": 2,
    }
    done = await console.change("POST", f"/topics/{TOPIC}/offsets", body, plan=preview["plan"])
    assert [one["is_done"] for one in done["outcomes"]] == [True, True]
    assert await _offset(console, GROUP, 0, 1, traffic.running) == 0

    # Back to the end: the same messages are skipped.
    preview = await console.preview("POST", f"/topics/{TOPIC}/offsets", {"groups": [GROUP], "to": "latest"})
    assert (preview["details"]["skipped"], preview["details"]["repeated"]) == (8, 0)
    assert "skipAccumulatedMessage" in preview["commands"][0]


async def test_online_members_get_messages_again(console: Console, traffic: Traffic) -> None:
    async with traffic.consumer():
        await traffic.until_consumed()
        traffic.seen.clear()
        console.context.sessions.forget()
        body = {"groups": [GROUP], "to": "time", "timestamp_ms": 1}
        preview = await console.preview("POST", f"/topics/{TOPIC}/offsets", body)
        assert preview["warnings"] == [
            f"{GROUP} has 1 member online; consumption continues at the new offsets"
        ]
        assert "1970-01-01T00:00:00.001Z" in preview["effects"][0]
        # Messages that arrive after the preview do not make it another plan.
        await traffic.send(4)
        await console.change("POST", f"/topics/{TOPIC}/offsets", body, plan=preview["plan"])

        async def all_again() -> bool | None:
            return True if len(traffic.seen) >= 12 else None

        await until(all_again)


async def test_one_queue_is_reset_to_an_exact_offset(console: Console, traffic: Traffic) -> None:
    queues = [{"broker_name": "broker-b", "queue_id": 1, "offset": 1}]
    body = {"groups": [GROUP], "to": "offset", "queues": queues}
    preview = await console.preview("POST", f"/topics/{TOPIC}/offsets", body)
    assert preview["effects"] == [
        f"Resets group {GROUP} in topic {TOPIC}, 1 queue on broker-b, to broker-b/1 to 1"
    ]
    assert preview["commands"][0].endswith("-q 1 -o 1")
    await console.change("POST", f"/topics/{TOPIC}/offsets", body, plan=preview["plan"])
    assert await _offset(console, GROUP, 1, 1, traffic.running) == 1
    assert await _offset(console, GROUP, 1, 0, traffic.running) == 2
    # Two administrators: the second one's plan is another now.
    other = {**body, "queues": [{"broker_name": "broker-b", "queue_id": 1, "offset": 2}]}
    assert (await console.preview("POST", f"/topics/{TOPIC}/offsets", other))["plan"] != preview["plan"]


async def test_offsets_of_another_group_are_copied(console: Console, traffic: Traffic) -> None:
    await console.change("POST", "/groups", {"group": "copy"})
    body = {"source": GROUP, "topic": TOPIC}
    preview = await console.preview("POST", "/groups/copy/offset-copies", body)
    assert preview["effects"] == [
        f"Sets the offsets of group copy in topic {TOPIC} to those of group {GROUP}: 4 queues"
    ]
    assert preview["details"]["moves"][0]["old_offset"] is None
    await console.change("POST", "/groups/copy/offset-copies", body, plan=preview["plan"])
    assert await _offset(console, "copy", 1, 0, traffic.running) == 2
    # It never had a member, and so no retry topic.
    (progress,) = (await console.get("/groups/copy"))["topics"]
    assert (progress["topic"], len(progress["queues"])) == (TOPIC, 4)


async def test_a_broker_away_is_named_before_and_after(console: Console, traffic: Traffic) -> None:
    await register_dead_broker(traffic.running, TOPIC)
    console.context.sessions.forget()
    body = {"groups": [GROUP], "to": "earliest"}
    preview = await console.preview("POST", f"/topics/{TOPIC}/offsets", body)
    assert "127.0.0.1:1" in preview["warnings"][0] and "not reset" in preview["warnings"][0]
    done = await console.change("POST", f"/topics/{TOPIC}/offsets", body, status=207, plan=preview["plan"])
    assert [one["is_done"] for one in done["outcomes"]] == [True, True, False]
    assert await _offset(console, GROUP, 0, 0, traffic.running) == 0


async def test_bad_resets_are_refused(console: Console, traffic: Traffic) -> None:
    path = f"/topics/{TOPIC}/offsets"
    for body, status, reason in (
        ({"groups": [GROUP], "to": "time"}, 400, "timestamp_ms"),
        ({"groups": [GROUP], "to": "offset"}, 400, "queues"),
        ({"groups": [GROUP], "to": "yesterday"}, 400, "$.to"),
        ({"groups": [], "to": "latest"}, 400, "$.groups"),
        ({"groups": ["biling"], "to": "latest"}, 404, "group biling does not exist"),
        (
            {
                "groups": [GROUP],
                "to": "offset",
                "queues": [{"broker_name": "broker-a", "queue_id": 0, "offset": 9}],
            },
            400,
            "broker-a, queue 0: 9 is outside of its offsets, 0 to 2",
        ),
        (
            {
                "groups": [GROUP],
                "to": "offset",
                "queues": [{"broker_name": "broker-a", "queue_id": 7, "offset": 0}],
            },
            400,
            "no queue 7",
        ),
    ):
        answer = await console.change("POST", path, body, status=status)
        assert reason in answer["error"]["message"], answer
    copy = {"source": GROUP, "topic": TOPIC}
    answer = await console.change("POST", f"/groups/{GROUP}/offset-copies", copy, status=400)
    assert "itself" in answer["error"]["message"]


async def test_brokers_that_leave_a_reset_to_the_members(tmp_path: Path) -> None:
    """As those of RocketMQ 4: one queue cannot be reset while members are online; offline, offsets are
    written."""
    async with (
        cluster(tmp_path / "cluster", use_server_side_reset_offset=False) as running,
        console_of(running.namesrv_addr, tmp_path) as console,
        AsyncProducer("shop", namesrv=running.namesrv_addr) as producer,
    ):
        await console.change("POST", "/topics", {"topic": TOPIC, "read_queues": 2, "write_queues": 2})
        traffic = Traffic(running, producer, console.context.sessions.own.admin)
        await traffic.send(8)
        path = f"/topics/{TOPIC}/offsets"
        one = {"groups": [GROUP], "to": "offset", "queues": [_target("broker-a", 1, 1)]}
        async with traffic.consumer():
            await traffic.until_consumed()
            done = await console.change("POST", path, one, status=502)
            assert "stop them first" in done["outcomes"][0]["problem"]
            assert await _offset(console, GROUP, 0, 0, running) == 4

        await console.change("POST", path, one)
        assert [await _offset(console, GROUP, 0, queue, running) for queue in (0, 1)] == [4, 1]
        await console.change("POST", path, {"groups": [GROUP], "to": "earliest"})
        assert [await _offset(console, GROUP, 0, queue, running) for queue in (0, 1)] == [0, 0]
        preview = await console.preview("POST", path, {"groups": [GROUP], "to": "latest"})
        assert preview["details"]["skipped"] == 8
