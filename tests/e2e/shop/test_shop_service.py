"""A service waits for what is away, at the start and later, answers errors as JSON, and ends on SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.needed import need_module

for name in ("psycopg_pool", "fastapi", "httpx", "uvicorn"):
    need_module(name)

import httpx  # noqa: E402
import psycopg  # noqa: E402

from kourou import AsyncProducer  # noqa: E402
from kourou.testing import LocalCluster  # noqa: E402
from tests.e2e.shop.shop_kit import create_topics, new_cluster, new_database, settings_of, until  # noqa: E402
from webshop.errors import AwayError, Code, RefusedError  # noqa: E402
from webshop.events import Kind, OrderEvent, Topic, message_of  # noqa: E402
from webshop.kit.calls import Calls, path_of  # noqa: E402
from webshop.kit.emit import Unit  # noqa: E402
from webshop.kit.http_client import HttpClient, HttpError  # noqa: E402
from webshop.kit.service import Service  # noqa: E402
from webshop.settings import VARIABLE, Settings, Way  # noqa: E402

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[3] / "examples" / "shop"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with new_cluster() as cluster:
        create_topics(cluster)
        yield cluster


@pytest.fixture
def settings(postgres: int, cluster: LocalCluster) -> Settings:
    return settings_of(cluster, new_database(postgres), "goods")


def counting_service() -> Service:
    """A service that stores the cancelled orders."""
    service = Service("goods", tables="CREATE TABLE IF NOT EXISTS cancelled (order_id text)")

    @service.consumes(Topic.ORDERS, Kind.ORDER_CANCELLED)
    async def store(event: OrderEvent, unit: Unit) -> None:
        await unit.connection.execute("INSERT INTO cancelled VALUES (%s)", [event.order_id])

    @service.app.get("/cancelled")
    async def cancelled(limit: int) -> list[str]:
        rows = await service.database.rows("SELECT order_id FROM cancelled LIMIT %s", limit)
        return [row.order_id for row in rows]

    @service.app.get("/refused")
    async def refused() -> None:
        raise RefusedError(Code.OUT_OF_STOCK, "no tea is left; order less")

    return service


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{settings.address('goods')}", timeout=20) as client:
        yield client


async def answers(http: httpx.AsyncClient, status: int) -> bool:
    try:
        return (await http.get("/health")).status_code == status
    except httpx.TransportError:
        return False


def allow(settings: Settings, *, is_allowed: bool) -> None:
    """As if the database was stopped, or started."""
    url, _, name = settings.database.rpartition("/")
    with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {is_allowed}")  # type: ignore[arg-type]
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )


def cancelled(order_id: str) -> OrderEvent:
    return OrderEvent(
        kind=Kind.ORDER_CANCELLED,
        order_id=order_id,
        way=Way.OUTBOX,
        user_id="ada",
        items=(),
        goods_total=0,
        shipping=0,
        coupon_id=None,
        coupon_value=0,
        balance_paid=0,
        amount_due=0,
    )


async def test_a_service_waits_for_the_database_at_the_start_and_later_and_loses_no_event(
    settings: Settings, http: httpx.AsyncClient
) -> None:
    allow(settings, is_allowed=False)
    async with (
        counting_service().running(settings),
        AsyncProducer("test", namesrv=settings.namesrv) as producer,
    ):
        await until(lambda: answers(http, 503))
        assert (await http.get("/cancelled")).json()["code"] == "AWAY"
        allow(settings, is_allowed=True)
        await until(lambda: answers(http, 200))
        allow(settings, is_allowed=False)
        response = await http.get("/cancelled", params={"limit": 9})
        assert (response.status_code, response.json()["code"]) == (503, "AWAY")
        seven, eight = cancelled("7"), cancelled("8")
        for event in (seven, seven, eight):
            await producer.send(message_of(event), sharding_key=event.order_id)
        await asyncio.sleep(0.5)  # some attempts fail
        allow(settings, is_allowed=True)

        async def are_stored() -> bool:
            found = await http.get("/cancelled", params={"limit": 9})
            return found.is_success and sorted(found.json()) == ["7", "8"]

        await until(are_stored)


async def test_errors_are_json_that_says_what_to_do(settings: Settings, http: httpx.AsyncClient) -> None:
    async with counting_service().running(settings):
        await until(lambda: answers(http, 200))
        refused = await http.get("/refused")
        assert (refused.status_code, refused.json()) == (
            *(409, {"error": "no tea is left; order less", "code": "OUT_OF_STOCK"}),
        )
        bad = await http.get("/cancelled", params={"limit": "many"})
        assert (bad.status_code, bad.json()["code"]) == (422, "BAD_REQUEST")
        assert "limit" in bad.json()["error"]


async def test_an_event_whose_handler_fails_is_named_in_the_log_and_comes_again(
    settings: Settings, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service("goods")

    @service.consumes(Topic.ORDERS, Kind.ORDER_CANCELLED)
    async def fail(event: OrderEvent, unit: Unit) -> None:
        raise RefusedError(Code.ORDER_UNKNOWN, f"there is no order {event.order_id}")

    async with service.running(settings), AsyncProducer("test", namesrv=settings.namesrv) as producer:
        await until(lambda: answers(http, 200))
        await producer.send(message_of(cancelled("7")), sharding_key="7")

        async def is_logged() -> bool:
            return "EVENT FAILED: ORDER_CANCELLED" in caplog.text

        await until(is_logged)


async def test_a_service_that_cannot_start_ends(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    service = Service("goods", tables="CREATE TABEL goods")
    async with service.running(settings), asyncio.timeout(20):
        await service._stop.wait()
    assert "goods cannot go on" in caplog.text
    assert 'syntax error at or near "TABEL"' in caplog.text


async def test_sigterm_ends_a_service(settings: Settings, http: httpx.AsyncClient, tmp_path: Path) -> None:
    settings.save(tmp_path / "settings.json")
    path = os.pathsep.join([str(EXAMPLE), os.environ.get("PYTHONPATH", "")])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "webshop.goods"),
        env={**os.environ, "PYTHONPATH": path, VARIABLE: str(tmp_path / "settings.json")},
    )
    try:
        await until(lambda: answers(http, 200))
        process.terminate()
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


# -- requests to other services ------------------------------------------------------------------


async def test_a_request_is_repeated_while_its_service_is_away(settings: Settings) -> None:
    calls = Calls(settings)
    asked = asyncio.create_task(calls.get("goods", "/health", within_s=20))
    await asyncio.sleep(0.1)
    async with counting_service().running(settings):
        assert await asked == {"service": "goods"}
        with pytest.raises(RefusedError, match="no tea is left") as refusal:
            await calls.get("goods", "/refused")
        assert refusal.value.code is Code.OUT_OF_STOCK
        with pytest.raises(RefusedError) as refusal:
            await calls.get("goods", "/cancelled", limit="many")
        assert refusal.value.status == 422
        for path in ("/health?x", "/%68ealth", "/a b", "/é", "health"):
            with pytest.raises(RefusedError, match="is no path"):
                await calls.get("goods", path)
        with pytest.raises(RefusedError) as refusal:
            await calls.get("goods", path_of("%68ealth"))
        assert refusal.value.status == 404
    with pytest.raises(AwayError, match=r"goods is away: no answer to GET /health in 0.1 s"):
        await calls.get("goods", "/health", within_s=0.1)
    await calls.close()


async def test_connections_are_used_again_unless_the_server_has_closed_them() -> None:
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(0)
        while await reader.readline():
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            body = b'{"echo": %s}' % await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            await asyncio.sleep(0)
            writer.write(body)
            connections[-1] += 1
            if connections[-1] == 2:
                break
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        client = HttpClient()
        for number in range(4):
            response = await client.request(
                "POST", f"http://{host}:{port}/?a=1", json.dumps(number).encode(), timeout_s=10
            )
            assert (response.status, response.json()) == (200, {"echo": number})
            await asyncio.sleep(0.05)  # the end of the connection arrives
        assert connections == [2, 2]
        await client.close()
    with pytest.raises(HttpError, match=f"{host}:{port}"):
        await client.request("GET", f"http://{host}:{port}/", timeout_s=10)


async def test_a_server_that_hangs_is_given_up_after_the_timeout() -> None:
    is_closed = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        is_closed.set()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(HttpError, match="does not answer within 0.1 s"):
            await HttpClient().request("GET", f"http://{host}:{port}/", timeout_s=0.1)
        await is_closed.wait()  # the client has closed its connection
