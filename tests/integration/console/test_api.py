"""What all operations of the API have in common: errors, bounds, the description."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kourou.console.api.doctor import Doctor
from kourou.console.app import CSRF_HEADER, ENDPOINTS, MAX_BODY_BYTES, make_app
from kourou.testing.cluster import Cluster
from tests.integration.console.kit import Console, console_of


@pytest.fixture
async def away(tmp_path: Path) -> AsyncIterator[Console]:
    """A console of a cluster that is away."""
    async with console_of("127.0.0.1:1", tmp_path) as console:
        yield console


async def test_bad_parameters_are_named(away: Console) -> None:
    for query, named in (
        ({"limit": "many"}, "$.limit"),
        ({"limit": 0}, "$.limit"),
        ({"offset": -1}, "$.offset"),
        ({"colour": "red"}, "colour"),
    ):
        answer = await away.get("/audit", status=400, **query)
        assert answer["error"]["code"] == "bad_input"
        assert named in answer["error"]["message"]


async def test_bodies_that_are_no_json_or_too_large_are_refused(away: Console) -> None:
    headers = {CSRF_HEADER: away.csrf_token}
    for text in (b"{", b'{"user": "\xff"}', b'{"user": ' + b"[" * 100_000):
        answer = await away.http.post("/api/login", content=text, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_input")
    answer = await away.http.post("/api/login", content=b" " * (MAX_BODY_BYTES + 1), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


async def test_a_cluster_that_is_away_is_reported(away: Console) -> None:
    assert "127.0.0.1:1" in (await away.get("/session"))["problem"]


async def test_every_operation_is_described(away: Console) -> None:
    document: dict[str, Any] = await away.get("/openapi.json")
    described = {
        (operation["operationId"], method.upper(), operation["x-role"])
        for operations in document["paths"].values()
        for method, operation in operations.items()
    }
    assert described == {(one.name, one.method, one.role.label) for one in ENDPOINTS}
    assert len(described) == len(ENDPOINTS)


async def test_the_metrics_of_the_cluster(running: Cluster, console: Console) -> None:
    text = (await console.http.get("/metrics/exporter")).text
    assert f'rocketmq_broker_tps{{cluster="DefaultCluster",brokerIP="{running.brokers[0].address}"' in text
    answer = await console.http.get("/metrics")
    assert "process_resident_memory_bytes" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")


async def test_a_preview_that_is_neither_true_nor_false_changes_nothing(
    running: Cluster, console: Console
) -> None:
    for text in ("1", "True", "yes", ""):
        answer = await console.change("POST", "/topics", {"topic": "Orders"}, status=400, preview=text)
        assert answer["error"]["message"] == f"preview: {text!r} is neither true nor false"
    assert not (await console.get("/topics", search="Orders"))["items"]
    assert not (await console.get("/audit"))["items"]


async def test_two_administrators_who_confirm_the_same_preview(running: Cluster, console: Console) -> None:
    await console.change("POST", "/topics", {"topic": "Orders"})
    body = {"read_queues": 4}
    plan = (await console.preview("PUT", "/topics/Orders", body))["plan"]
    headers = {CSRF_HEADER: console.csrf_token}
    answers = await asyncio.gather(
        *(
            console.http.put("/api/topics/Orders", params={"plan": plan}, json=body, headers=headers)
            for _ in range(2)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200, 400]
    refused = next(answer for answer in answers if answer.status_code == 400)
    assert "has these settings already" in refused.json()["error"]["message"]
    done = [record["outcome"] for record in (await console.get("/audit"))["items"]]
    assert done == ["done", "done"]


async def test_a_request_under_way_when_the_console_stops(running: Cluster, tmp_path: Path) -> None:
    async with console_of(running.namesrv_addr, tmp_path) as console:
        session = console.context.sessions.own
        doctor = session.doctor = Doctor(session.admin, limiter=asyncio.Semaphore(), watch_s=60)
        app = make_app(console.context)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            request = asyncio.create_task(http.get("/api/doctor"))
            while not doctor._shared._tasks:  # noqa: ASYNC110  # until the request waits for it
                await asyncio.sleep(0)
            await doctor.stop()
            answer = await request
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")


async def test_it_is_ready_while_the_cluster_can_be_reached(away: Console, console: Console) -> None:
    assert (await console.http.get("/readyz")).text == "ready\n"
    assert (await away.http.get("/readyz")).status_code == 503
