"""Delayed messages, their recall, and half messages."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from kourou import AsyncTransactionProducer, Message, MessageExt, TransactionState
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import make_topic
from tests.integration.admin.dead_broker import register_dead_broker
from tests.integration.console.kit import Console, console_of
from tests.integration.console.test_messages import send

TOPIC = "Reminders"
HOUR_MS = 3_600_000


async def fresh(console: Console, path: str) -> Any:
    console.context.sessions.forget()
    return await console.get(path)


def waiting(delays: Any) -> list[dict[str, Any]]:
    return sorted(
        (row for broker in delays["brokers"] for row in broker["waiting"]), key=lambda row: row["due"]
    )


async def test_delayed_by_level_and_by_timer(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    assert waiting(await console.get("/delayed")) == []
    before = time.time_ns() // 1_000_000
    await send(
        running,
        Message(TOPIC, b"level", keys=["level"], delay_time_level=18),
        Message(TOPIC, b"timer", keys=["timer"], tags="<b>", delay_time_ms=3 * HOUR_MS),
        Message(TOPIC, b"soon", keys=["soon"], delay_time_ms=HOUR_MS),
    )
    # The wheel takes them in a moment later.
    while True:
        delays = await fresh(console, "/delayed")
        counts = [count for broker in delays["brokers"] for count in broker["timer_counts"].values()]
        if sum(counts) == 2:
            break
    rows = waiting(delays)
    assert [(row["keys"], row["level"], row["topic"]) for row in rows] == [
        ("soon", None, TOPIC),
        ("level", 18, TOPIC),
        ("timer", None, TOPIC),
    ]
    for row, delay_ms in zip(rows, (HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS), strict=True):
        assert before + delay_ms - 1_000 <= row["due"] <= time.time_ns() // 1_000_000 + delay_ms + 2_000
        place = f"{row['broker_name']}:{row['queue_id']}:{row['queue_offset']}"
        found = await console.get(f"/messages/{row['stored_topic']}/{place}")
        assert found["message"]["keys"] == row["keys"]
    (level,) = [one for broker in delays["brokers"] for one in broker["levels"] if one["waiting"]]
    assert (level["level"], level["delay"], level["waiting"]) == (18, "2h", 1)
    assert level["next_due"] == rows[1]["due"]
    assert all(broker["is_complete"] and not broker["timer_problem"] for broker in delays["brokers"])


async def test_recall(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    (msg_id,) = await send(running, Message(TOPIC, b"timer", delay_time_ms=HOUR_MS))
    (row,) = waiting(await fresh(console, "/delayed"))
    path = f"/delayed/{row['broker_name']}/{row['queue_offset']}/recall"
    preview = await console.preview("POST", path)
    (effect,) = preview["effects"]
    assert effect.startswith(f"Recalls message {msg_id} of topic {TOPIC}, due at ")
    done = await console.change("POST", path, plan=preview["plan"])
    assert done["outcomes"] == [{"target": msg_id, "is_done": True, "problem": ""}]
    assert waiting(await fresh(console, "/delayed")) == []
    await console.preview("POST", f"/delayed/{row['broker_name']}/99/recall", status=404)
    await console.preview("POST", f"/delayed/{row['broker_name']}/x/recall", status=400)
    await console.preview("POST", "/delayed/broker-x/0/recall", status=400)


async def test_recall_that_the_broker_refuses(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path / "cluster", recall_message_enable=False) as running,
        console_of(running.namesrv_addr, tmp_path) as console,
    ):
        await make_topic(running, TOPIC, queues=1)
        await send(running, Message(TOPIC, b"timer", delay_time_ms=HOUR_MS))
        (row,) = waiting(await console.get("/delayed"))
        answer = await console.change("POST", f"/delayed/broker-a/{row['queue_offset']}/recall", status=403)
        assert "recallMessageEnable is false" in answer["error"]["message"]


async def test_brokers_without_timers_and_brokers_that_are_away(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path / "cluster", timer_wheel_enable=False) as running,
        console_of(running.namesrv_addr, tmp_path) as console,
    ):
        await register_dead_broker(running, "Any")
        delays = await console.get("/delayed")
        (broker,) = delays["brokers"]
        assert "timerWheelEnable is false" in broker["timer_problem"]
        assert "broker-dead" in delays["problems"][0]
        assert "broker-dead" in (await console.get("/half-messages"))["problems"][0]


async def test_half_messages(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)

    async def unknown(message: MessageExt) -> TransactionState:
        return TransactionState.UNKNOWN

    async with AsyncTransactionProducer("cashier", namesrv=running.namesrv_addr, check=unknown) as producer:
        for number in range(3):
            async with producer.transaction(Message(TOPIC, b"open", keys=[f"open-{number}"])) as transaction:
                transaction.unknown()
        await producer.send(Message(TOPIC, b"done", keys=["done"]))
        async with producer.transaction(Message(TOPIC, b"back", keys=["back"])) as transaction:
            transaction.rollback()
        halves = await fresh(console, "/half-messages")
    rows = [half for broker in halves["brokers"] for half in broker["open"]]
    assert sorted(half["keys"] for half in rows) == ["open-0", "open-1", "open-2"]
    assert {(half["topic"], half["producer_group"], half["check_times"]) for half in rows} == {
        (TOPIC, "cashier", 0)
    }
    assert all(broker["is_complete"] and not broker["given_up_count"] for broker in halves["brokers"])
    half = rows[0]
    place = f"{half['broker_name']}:{half['queue_id']}:{half['queue_offset']}"
    found = await console.get(f"/messages/{half['stored_topic']}/{place}")
    assert found["message"]["keys"] == half["keys"]


async def test_half_messages_that_were_checked_and_given_up(tmp_path: Path) -> None:
    quick = {"transaction_time_out": 100, "transaction_check_interval": 100, "transaction_check_max": 2}
    async with (
        cluster(tmp_path / "cluster", **quick) as running,  # type: ignore[arg-type]
        console_of(running.namesrv_addr, tmp_path) as console,
    ):
        await make_topic(running, TOPIC, queues=1)
        checks: list[str] = []

        async def unknown(message: MessageExt) -> TransactionState:
            checks.append(message.msg_id)
            return TransactionState.UNKNOWN

        async with AsyncTransactionProducer(
            "cashier", namesrv=running.namesrv_addr, check=unknown
        ) as producer:
            async with producer.transaction(Message(TOPIC, b"open", keys=["open"])) as transaction:
                transaction.unknown()
            while True:
                (broker,) = (await fresh(console, "/half-messages"))["brokers"]
                # Copied first, then ended: for a moment it is in both lists.
                if broker["given_up_count"] and not broker["open"]:
                    break
        assert len(checks) == 2
        assert [half["keys"] for half in broker["given_up"]] == ["open"]
