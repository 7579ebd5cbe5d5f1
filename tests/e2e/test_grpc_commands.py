"""gRPC clients at the servers that users start: standalone, a broker with a proxy, a proxy of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kourou import AsyncProducer, Message
from kourou.proxy.wire.rocketmq_v2 import Code, SendMessageRequest
from kourou.transport.tls import throw_away_certificate
from tests.e2e.server_process import ServerProcess
from tests.integration.proxy.grpc_consumer import GrpcConsumer
from tests.integration.proxy.proxy_kit import message, producer_settings
from tests.integration.proxy.wire_client import WireClient

pytestmark = pytest.mark.e2e

Spawn = Callable[..., ServerProcess]
GRPC = re.compile(r"gRPC: (\S+):(\d+), (.+)")


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Starts a server with a home folder of the test's own; what still runs at the end is killed."""
    left_out = ("XDG_", "ROCKETMQ_", "NAMESRV_")
    environ = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
    started: list[ServerProcess] = []

    def start(module: str, *arguments: str) -> ServerProcess:
        folder = tmp_path / f"process-{len(started)}"
        home = {"HOME": str(tmp_path / "home")}
        started.append(ServerProcess(f"kourou.cli.{module}", list(arguments), environ | home, folder))
        return started[-1]

    (tmp_path / "home").mkdir()
    yield start
    for server in started:
        server.kill()


def grpc_port(server: ServerProcess) -> tuple[int, str]:
    """The port of gRPC clients, and how they may connect."""
    server.wait_output("gRPC: ")
    found = GRPC.search(server.output)
    assert found is not None
    return int(found[2]), found[3]


@asynccontextmanager
async def client_of(port: int, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[WireClient]:
    server_name = None if tls is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=server_name)
    client = WireClient(reader, writer, x_mq_client_id="client-1")
    try:
        yield client
    finally:
        await client.close()
        with suppress(OSError):
            await writer.wait_closed()


def any_certificate() -> ssl.SSLContext:
    """TLS as clients have it by default."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


async def send_and_receive(port: int, namesrv: str, tls: ssl.SSLContext | None = None) -> None:
    """A message by remoting, one by gRPC; a gRPC consumer gets both."""
    async with AsyncProducer("makers", namesrv=namesrv) as producer:
        await producer.send(Message("Orders", b"by remoting"))
    async with client_of(port, tls=tls) as client:
        await client.telemetry(producer_settings("Orders"))
        request = SendMessageRequest(messages=[message("Orders", b"by gRPC")])
        assert (await client.unary("SendMessage", request)).status.code == Code.OK
        consumer = GrpcConsumer(client, "Orders", "readers")
        await consumer.start()
        bodies: set[bytes] = set()
        async with asyncio.timeout(30):
            while len(bodies) < 2:
                bodies |= {each.body for each in await consumer.receive_some()}
    assert bodies == {b"by remoting", b"by gRPC"}


def test_standalone_serves_both_protocols(spawn: Spawn, tmp_path: Path) -> None:
    free = ["--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "0", "--http-port", "0"]
    server = spawn("main", "standalone", "--store", str(tmp_path / "store"), *free)
    namesrv = server.wait_first_line().partition("namesrvAddr=")[2].split()[0]
    port, words = grpc_port(server)
    assert words == "plaintext and TLS; the certificate is self-made, clients cannot verify it"
    asyncio.run(send_and_receive(port, namesrv, any_certificate()))
    server.wait_output("metrics: ")
    found = re.search(r"metrics: (http://\S+)", server.output)
    assert found is not None
    with urllib.request.urlopen(found[1]) as answer:
        text = answer.read().decode()
    assert 'kourou_proxy_call_latency_seconds_count{rpc="SendMessage",status="ok"} 1' in text
    assert server.stop() == 0


def test_a_proxy_and_a_broker_with_one(spawn: Spawn, tmp_path: Path) -> None:
    namesrv_process = spawn("main", "namesrv", "--host", "127.0.0.1", "--port", "0")
    namesrv = namesrv_process.wait_first_line().rpartition(" ")[2]
    certificate, key = throw_away_certificate("localhost")
    (tmp_path / "cert.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(key)
    keys = {
        "bindAddress": "127.0.0.1",
        "grpcServerPort": 0,
        "tlsCertPath": str(tmp_path / "cert.pem"),
        "tlsKeyPath": str(tmp_path / "key.pem"),
        "grpcThreadPoolNums": 7,
    }
    (tmp_path / "rmq-proxy.json").write_text(json.dumps(keys))
    of_broker = {
        "bindAddress": "127.0.0.1",
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": "0",
        "haListenPort": "0",
        "fastListenPort": "0",
        "storePathRootDir": str(tmp_path / "store"),
    }
    settings = [f"--set={name}={text}" for name, text in of_broker.items()]
    broker = spawn(
        "mqbroker", "-n", namesrv, "--enable-proxy", "-pc", str(tmp_path / "rmq-proxy.json"), *settings
    )
    port, words = grpc_port(broker)
    assert words == "plaintext and TLS" and "grpcThreadPoolNums has no effect" in broker.errors
    trusting = any_certificate()
    trusting.load_verify_locations(cafile=tmp_path / "cert.pem")
    trusting.verify_mode = ssl.CERT_REQUIRED
    asyncio.run(send_and_receive(port, namesrv, trusting))
    proxy = spawn("mqproxy", "-n", namesrv, "-pc", str(tmp_path / "rmq-proxy.json"))
    assert proxy.wait_first_line().startswith("rocketmq-proxy startup successfully")
    asyncio.run(send_one(grpc_port(proxy)[0]))
    assert [proxy.stop(), broker.stop(), namesrv_process.stop()] == [0, 0, 0]


async def send_one(port: int) -> None:
    async with client_of(port) as client:
        request = SendMessageRequest(messages=[message("Orders", b"by the proxy")])
        assert (await client.unary("SendMessage", request)).status.code == Code.OK


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"tlsCertPath": "/none.pem"}, "tlsCertPath: /none.pem is not a file"),
        ({"grpcServerPort": "x"}, "grpcServerPort=x: must be a whole number"),
        ({}, "no name server is given"),
    ],
)
def test_a_proxy_that_cannot_start_says_why(
    spawn: Spawn, tmp_path: Path, keys: dict[str, object], problem: str
) -> None:
    path = tmp_path / "rmq-proxy.json"
    path.write_text(json.dumps({"bindAddress": "127.0.0.1", "grpcServerPort": 0, **keys}))
    namesrv = ["-n", "127.0.0.1:1"] if keys else []
    proxy = spawn("main", "proxy", "-c", str(path), *namesrv)
    assert proxy.wait_end() != 0
    assert problem in proxy.errors and "Traceback" not in proxy.errors
