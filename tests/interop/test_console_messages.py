"""The console's operations on messages at Apache's brokers, of both lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kourou import AsyncProducer, AsyncTransactionProducer, Message, MessageExt, TransactionState
from tests.integration.console.kit import Console, console_of
from tests.interop.kit import apache
from tests.interop.kit.broker_cluster import BrokerCluster
from tests.interop.kit.lanes import DELAY_LEVELS_S, Lanes
from tests.unit.cli.daily.command_line import run_kourou

pytestmark = pytest.mark.interop

HOUR_MS = 3_600_000
LIMIT_S = 30.0
V5 = "5."
LEVEL = len(DELAY_LEVELS_S)


@pytest.fixture(params=apache.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


@pytest.fixture
def cluster(shared_lanes: Lanes, version: str) -> BrokerCluster:
    return shared_lanes.cluster(version)


@pytest.fixture
def topic(cluster: BrokerCluster) -> str:
    name = cluster.new_name("console")
    words = ("topic", "create", name, "-q", "2", "-b", cluster.broker_name)
    assert run_kourou(*words, "-n", namesrv(cluster)).exit_code == 0
    return name


def namesrv(cluster: BrokerCluster) -> str:
    address: str = cluster.namesrvs[-1].address
    return address


async def until(read: Callable[[], Awaitable[Any]]) -> Any:
    """The first result of a read that is true; brokers index and dispatch a moment after they answer."""
    end = time.monotonic() + LIMIT_S
    while not (found := await read()):
        assert time.monotonic() < end, "not in time"
        await asyncio.sleep(0.1)
    return found


async def send(cluster: BrokerCluster, *messages: Message) -> list[str]:
    async with AsyncProducer("console", namesrv=namesrv(cluster)) as producer:
        return [(await producer.send(message)).msg_id for message in messages]


async def search(console: Console, topic: str, **body: Any) -> Any:
    progress = await console.change("POST", "/message-searches", {"topic": topic, **body})
    while progress["state"] == "running":
        await asyncio.sleep(0.05)
        progress = await console.get(f"/message-searches/{progress['id']}")
    return progress


async def test_lists_searches_and_single_messages(
    cluster: BrokerCluster, topic: str, version: str, tmp_path: Path
) -> None:
    messages = [
        Message(topic, b"%d" % number, tags="even" if number % 2 == 0 else "odd", keys=[f"k{number}"],
                properties={"amount": str(number)})
        for number in range(12)
    ]  # fmt: skip
    async with console_of(namesrv(cluster), tmp_path) as console:
        ids = await send(cluster, *messages)

        async def all_of_it() -> Any:
            page = await console.get("/messages", topic=topic, order="oldest")
            return page if len(page["items"]) == 12 else None

        page = await until(all_of_it)
        assert page["is_complete"] and page["next"] is None, page["problems"]
        assert sorted(item["msg_id"] for item in page["items"]) == sorted(ids)
        first = await console.get("/messages", topic=topic, limit=5)
        rest = await console.get("/messages", topic=topic, limit=20, cursor=first["next"])
        assert sorted(item["msg_id"] for item in first["items"] + rest["items"]) == sorted(ids)
        # The last message, too, with an end after it: RocketMQ 4 finds the offset before.
        last_ms = page["items"][-1]["store_timestamp"]
        for query, count in (
            ({"end": last_ms + 1}, 12),
            ({"end": last_ms + HOUR_MS}, 12),
            ({"tag": "odd"}, 6),
        ):
            found = await console.get("/messages", topic=topic, **query)
            assert len(found["items"]) == count, query
        assert (await console.get("/messages", topic=topic, begin=last_ms + 1))["items"] == []
        row = page["items"][3]
        place = f"{row['broker_name']}:{row['queue_id']}:{row['queue_offset']}"
        await until(lambda: console.http.get(f"/api/messages/{topic}/{row['msg_id']}"))
        for msg_id in (row["msg_id"], row["offset_msg_id"], place):
            message = (await console.get(f"/messages/{topic}/{msg_id}"))["message"]
            assert (message["msg_id"], message["broker_name"]) == (row["msg_id"], row["broker_name"])
        assert (await console.get(f"/messages/{topic}/{place}/groups"))["items"] == []
        assert len((await console.get("/messages/by-key", topic=topic, key="k3"))["items"]) == 1
        for body in ({"sql": "amount > 9"}, {"sql": "amount > 8", "contains": "1"}):
            progress = await search(console, topic, **body)
            assert sorted(item["body_start"] for item in progress["items"]) == ["10", "11"]
            assert progress["is_complete"], progress


async def test_delayed_messages_and_recall(
    cluster: BrokerCluster, topic: str, version: str, tmp_path: Path
) -> None:
    async with console_of(namesrv(cluster), tmp_path) as console:

        async def rows(key: str) -> list[dict[str, Any]]:
            console.context.sessions.forget()
            data = await console.get("/delayed")
            assert data["problems"] == []
            waiting = [row for one in data["brokers"] for row in one["waiting"]]
            return [row for row in waiting if (row["topic"], row["keys"]) == (topic, key)]

        async def rows_by_level() -> list[dict[str, Any]]:
            # The levels of these brokers are short: one may be delivered before it is seen.
            await send(cluster, Message(topic, b"level", keys=["level"], delay_time_level=LEVEL))
            return await rows("level")

        level = (await until(rows_by_level))[0]
        assert level["level"] == LEVEL
        assert level["due"] - level["store_timestamp"] == DELAY_LEVELS_S[-1] * 1000
        if not version.startswith(V5):
            return
        due_ms = time.time_ns() // 1_000_000 + 3 * HOUR_MS
        await send(cluster, Message(topic, b"timer", keys=["timer"], deliver_time_ms=due_ms))
        (timer,) = await until(lambda: rows("timer"))
        assert timer["level"] is None
        assert abs(timer["due"] - due_ms) <= 2_000  # slots of a second
        await console.change("POST", f"/delayed/{timer['broker_name']}/{timer['queue_offset']}/recall")

        async def is_recalled() -> bool:
            return not await rows("timer")

        await until(is_recalled)


async def test_half_messages(cluster: BrokerCluster, topic: str, tmp_path: Path) -> None:
    async def unknown(message: MessageExt) -> TransactionState:
        return TransactionState.UNKNOWN

    async with console_of(namesrv(cluster), tmp_path) as console:
        group = cluster.new_name("cashier")
        async with AsyncTransactionProducer(group, namesrv=namesrv(cluster), check=unknown) as producer:
            async with producer.transaction(Message(topic, b"open", keys=["open"])) as transaction:
                transaction.unknown()
            await producer.send(Message(topic, b"done", keys=["done"]))

            async def only_the_open_one() -> Any:
                console.context.sessions.forget()
                data = await console.get("/half-messages")
                assert data["problems"] == []
                found = [half for one in data["brokers"] for half in one["open"] if half["topic"] == topic]
                return found if [half["keys"] for half in found] == ["open"] else None

            # Brokers of 5.x write ends in batches, some seconds later.
            (half,) = await until(only_the_open_one)
            assert half["producer_group"] == group
