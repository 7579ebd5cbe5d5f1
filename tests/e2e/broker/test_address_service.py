"""An HTTP server that knows the name servers, and one that does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from kourou.broker.registration.out_api import NamesrvAddresses
from kourou.config import BrokerConfig
from kourou.errors import ConnectError, ProtocolError
from kourou.transport.address_service import AddressService

pytestmark = pytest.mark.e2e

GOOD = "HTTP/1.1 200 OK\r\nServer: x\r\n\r\n"


class WebServer:
    """Answers every request with `answer`; keeps the requests."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.requests: list[str] = []
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(self.answer.encode())
        writer.close()
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def web_server(answer: str) -> AsyncIterator[WebServer]:
    web = WebServer(answer)
    server = await asyncio.start_server(web.serve, "127.0.0.1", 0)
    web.address = "127.0.0.1:" + str(server.sockets[0].getsockname()[1])
    async with server:
        yield web


async def test_the_first_line_of_the_answer_is_the_list() -> None:
    async with web_server(GOOD + "\n 10.0.0.1:9876;ns2:9876\nmore\n") as web:
        assert await AddressService(web.address, "nsaddr").fetch() == ["10.0.0.1:9876", "ns2:9876"]
        (request,) = web.requests
        assert request.startswith(f"GET /rocketmq/nsaddr HTTP/1.0\r\nHost: {web.address}\r\n")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("HTTP/1.1 404 Not Found\r\n\r\nno", "404 Not Found"),
        (GOOD, "not host:port"),
        (GOOD + "<html>", "'<html>', not host:port"),
        ("SSH-2.0-x\r\n", "SSH-2.0"),
        ("", "not 200"),
    ],
)
async def test_other_answers_are_named(answer: str, says: str) -> None:
    async with web_server(answer) as web:
        with pytest.raises(ProtocolError, match=says):
            await AddressService(web.address, "nsaddr").fetch()


async def test_no_broker_responds() -> None:
    with pytest.raises(ConnectError, match="http://127.0.0.1:1/rocketmq/nsaddr"):
        await AddressService("127.0.0.1:1", "nsaddr").fetch()


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    given_up = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        given_up.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ConnectError, match="did not answer within 50 ms"):
            await AddressService(f"127.0.0.1:{port}", "nsaddr").fetch(timeout_ms=50)
        await asyncio.wait_for(given_up.wait(), 5)


def test_the_port_is_8080_unless_one_is_given() -> None:
    assert AddressService("ns.example.com", "nsaddr").url == "http://ns.example.com:8080/rocketmq/nsaddr"
    assert AddressService("ns.example.com:80", "x").url == "http://ns.example.com:80/rocketmq/x"


async def test_a_broker_follows_the_service_and_keeps_its_list_when_that_fails() -> None:
    changes: list[tuple[list[str], list[str]]] = []
    async with web_server(GOOD + "a:1;b:2") as web:
        config = BrokerConfig(rmq_address_server_domain=web.address)
        known = NamesrvAddresses(lambda: config, lambda added, removed: changes.append((added, removed)))
        await known.refresh()
        assert known.current == ("a:1", "b:2")
        web.answer = GOOD + "b:2;c:3"
        await known.refresh()
        web.answer = "HTTP/1.1 500 no\r\n\r\n"
        await known.refresh()
        assert known.current == ("b:2", "c:3")
    assert changes == [(["a:1", "b:2"], []), (["c:3"], ["a:1"])]


async def test_configured_name_servers_win_over_the_service() -> None:
    config = BrokerConfig(rmq_address_server_domain="127.0.0.1:1", namesrv_addr="a:1")
    known = NamesrvAddresses(lambda: config, lambda *_: None)
    await known.refresh()
    assert known.current == ("a:1",)
