"""Searches by properties and bodies: what is found, progress, bounds, cancellation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kourou import Message
from kourou.admin.messages.message_pages import PageRequest, read_page
from kourou.console import message_scans
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import make_topic
from tests.integration.admin.dead_broker import register_dead_broker
from tests.integration.console.kit import ADMINISTRATOR, READER, Console, console_of
from tests.integration.console.test_messages import send

TOPIC = "Orders"
PATH = "/message-searches"


async def send_orders(running: Cluster, count: int = 40) -> None:
    await make_topic(running, TOPIC, queues=2)
    await send(
        running,
        *(
            Message(
                TOPIC,
                json.dumps(
                    {"order": {"id": number, "items": [{"sku": f"s{number}"}, {"sku": "pen"}]}}
                ).encode(),
                tags="even" if number % 2 == 0 else "odd",
                properties={"amount": str(number), "region": "north" if number < 20 else "south"},
            )
            for number in range(count)
        ),
        Message(TOPIC, b"\xff\x00 no json", properties={"amount": "1000"}),
    )


async def search(console: Console, **body: Any) -> Any:
    """The result of a search."""
    return await search_end(console, await console.change("POST", PATH, {"topic": TOPIC, **body}))


async def search_end(console: Console, progress: Any) -> Any:
    while progress["state"] == "running":
        await asyncio.sleep(0.01)
        progress = await console.get(f"{PATH}/{progress['id']}")
    return progress


def ids(progress: Any) -> list[int]:
    return sorted(json.loads(item["body_start"])["order"]["id"] for item in progress["items"])


CONDITIONS: list[tuple[dict[str, Any], list[int]]] = [
    ({"sql": "amount > 37 AND amount < 1000"}, [38, 39]),
    ({"sql": "region = 'north' AND amount >= 18"}, [18, 19]),
    ({"sql": "region = 'north' AND amount >= 18", "tag": "even"}, [18]),
    ({"contains": '"id": 7,'}, [7]),
    ({"json_path": "order.id", "json_value": "12"}, [12]),
    ({"json_path": "$.order.items[*].sku", "json_value": "s3"}, [3]),
    ({"json_path": "order.items[1].sku", "json_value": "s3"}, []),
    ({"json_path": "order.items[0].sku", "sql": "amount = 5"}, [5]),
]


@pytest.mark.parametrize("is_filtered_by_brokers", [True, False])
async def test_conditions(tmp_path: Path, is_filtered_by_brokers: bool) -> None:
    async with (
        cluster(tmp_path / "cluster", enable_property_filter=is_filtered_by_brokers) as running,
        console_of(running.namesrv_addr, tmp_path) as console,
    ):
        await send_orders(running)
        for condition, found in CONDITIONS:
            progress = await search(console, **condition)
            assert ids(progress) == found, condition
            assert (progress["state"], progress["is_complete"], progress["left"]) == ("done", True, 0)
            assert progress["scanned"] == 41
            is_here = "sql" in condition and not is_filtered_by_brokers
            assert progress["filtered_here"] == (["broker-a"] if is_here else [])


async def test_bad_conditions_are_refused(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"sql": "amount >"}, "SQL92 expression: unexpected end at position 9"),
        ({"json_path": "a..b"}, "a..b"),
        ({"json_value": "1"}, "json_path"),
        ({"most_found": 5_000}, "most_found"),
        ({"topic": ""}, "topic"),
    ]
    for body, named in refused:
        answer = await console.change("POST", PATH, {"topic": TOPIC, **body}, status=400)
        assert named in answer["error"]["message"]


async def test_bounds_are_reported(running: Cluster, console: Console) -> None:
    await send_orders(running)
    few = await search(console, most_found=3)
    assert (few["stopped_by"], few["is_complete"], len(few["items"])) == ("found", False, 3)
    short = await search(console, most_messages=10, order="oldest")
    assert (short["stopped_by"], short["is_complete"]) == ("messages", False)
    assert 10 <= short["scanned"] < 41 and short["left"] == 41 - short["scanned"]


async def test_a_missing_broker_ends_the_search_with_a_problem(running: Cluster, console: Console) -> None:
    await send_orders(running)
    await register_dead_broker(running, TOPIC)
    progress = await search(console, sql="amount = 5")
    assert ids(progress) == [5]
    assert (progress["state"], progress["is_complete"]) == ("done", False)
    assert "broker-dead" in progress["problems"][0]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Searches that wait until the event is set."""
    gate = asyncio.Event()

    async def read_slowly(*arguments: Any) -> Any:
        await gate.wait()
        return await read_page(*arguments)

    monkeypatch.setattr(message_scans, "read_page", read_slowly)
    return gate


async def test_cancel_and_the_bound_on_concurrent_searches(
    running: Cluster, console: Console, gate: asyncio.Event
) -> None:
    await send_orders(running, 4)
    started = [await console.change("POST", PATH, {"topic": TOPIC}) for _ in range(message_scans.MAX_RUNNING)]
    assert {one["state"] for one in started} == {"running"}
    refused = await console.change("POST", PATH, {"topic": TOPIC}, status=429)
    assert refused["error"]["code"] == "too_many_scans"
    cancelled = await console.change("DELETE", f"{PATH}/{started[0]['id']}")
    assert (cancelled["state"], cancelled["is_complete"]) == ("cancelled", False)
    await console.change("POST", PATH, {"topic": TOPIC})
    gate.set()
    assert len((await search_end(console, started[1]))["items"]) == 5
    # Cancelling one that has ended changes nothing.
    assert (await console.change("DELETE", f"{PATH}/{started[1]['id']}"))["state"] == "done"
    await console.get(f"{PATH}/none", status=404)


async def test_a_search_whose_progress_is_not_read_ends(
    running: Cluster, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send_orders(running)
    monkeypatch.setattr(message_scans, "_PART_OFFSETS", 1)
    now = 0.0
    scans = message_scans.MessageScans(clock=lambda: now)
    bounds = message_scans.ScanBounds(most_messages=10**6, most_seconds=600, most_found=1_000)
    request = PageRequest(topic=TOPIC)
    scan = scans.start(console.context.sessions.own.admin, "", request, bounds)
    now = 31.0
    assert scan.task is not None
    await scan.task
    assert (scan.state, scan.stopped_by) == ("done", "abandoned")
    assert 0 < scan.scanned < 41


async def test_searches_belong_to_their_user(running: Cluster, tmp_path: Path) -> None:
    await send_orders(running, 1)
    async with console_of(running.namesrv_addr, tmp_path, users=True) as console:
        await console.log_in(READER)
        progress = await console.change("POST", PATH, {"topic": TOPIC})
        await console.log_in(ADMINISTRATOR)
        await console.get(f"{PATH}/{progress['id']}", status=404)
        await console.change("DELETE", f"{PATH}/{progress['id']}", status=404)
