"""kill -9 of a broker under gRPC clients: of one with a proxy of its own, while another proxy lives on. Each
message whose send was answered is handled, and none that was acknowledged comes again."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest

from kourou.admin.session import Admin
from kourou.admin.topics import create_topic
from kourou.config.namesrv import NamesrvConfig
from kourou.embed import NameServer
from kourou.protocol.bodies.topics import TopicConfig
from kourou.proxy.assembly import Proxy
from kourou.proxy.http2.settings import GrpcServerConfig
from kourou.proxy.settings import ProxySettings
from kourou.proxy.wire.rocketmq_v2 import ClientType, Code, SendMessageRequest
from kourou.testing.store_check import assert_store_ok
from tests.crash.killed_broker import KilledBroker
from tests.integration.proxy.grpc_consumer import GrpcConsumer
from tests.integration.proxy.proxy_kit import message
from tests.integration.proxy.wire_client import connected
from tests.interop.kit.ports import free_port

TOPIC = "Orders"
_KILLS = 3
_INVISIBLE_S = 10
"""The shortest: what was received and not acknowledged comes again after it."""
_SETTLE_S = 60
_AWAY = (OSError, AssertionError, TimeoutError)
"""What a call ends with when its connection breaks."""


class Program:
    """A producer and a consumer at one proxy, with what was answered. They connect again by themselves."""

    def __init__(self, port: int, name: str, numbers: Iterator[int], shared: Program | None = None) -> None:
        self._port = port
        self._name = name
        self._numbers = numbers
        self.sent: set[int] = set()
        self.received: set[int] = set() if shared is None else shared.received
        self.acked: set[int] = set() if shared is None else shared.acked
        self.came_again: list[int] = [] if shared is None else shared.came_again
        self.sessions = 0
        self.progress = asyncio.Event()

    async def produce(self) -> None:
        """Send until cancelled."""
        while True:
            try:
                async with connected(self._port, f"producer-{self._name}") as client:
                    while True:
                        number = next(self._numbers)
                        request = SendMessageRequest(messages=[message(TOPIC, b"%d" % number)])
                        async with asyncio.timeout(5):
                            response = await client.unary("SendMessage", request)
                        if response.status.code == Code.OK:
                            self.sent.add(number)
                        await asyncio.sleep(0.01 if response.status.code == Code.OK else 0.1)
            except _AWAY:
                await asyncio.sleep(0.1)

    async def consume(self) -> None:
        """Receive and acknowledge until cancelled."""
        while True:
            try:
                async with connected(self._port, f"consumer-{self._name}") as client:
                    consumer = GrpcConsumer(client, TOPIC)
                    async with asyncio.timeout(10):
                        await consumer.start(client_type=ClientType.SIMPLE_CONSUMER)
                    self.sessions += 1
                    while True:
                        await self._receive(consumer)
            except _AWAY:
                await asyncio.sleep(0.1)

    async def _receive(self, consumer: GrpcConsumer) -> None:
        async with asyncio.timeout(15):
            code, messages = await consumer.end(consumer.begin(invisible_s=_INVISIBLE_S, batch_size=8))
        if code == Code.UNRECOGNIZED_CLIENT_TYPE:
            raise AssertionError("the proxy has forgotten the settings")
        if code not in (Code.OK, Code.MESSAGE_NOT_FOUND):
            await asyncio.sleep(0.1)
        for each in messages:
            number = int(each.body)
            self.received.add(number)
            if number in self.acked:
                self.came_again.append(number)
            async with asyncio.timeout(5):
                if await consumer.ack(each) == [Code.OK]:
                    self.acked.add(number)
                    self.progress.set()


@pytest.mark.slow
async def test_grpc_clients_go_on_after_kills(tmp_path: Path) -> None:
    chance = random.Random(20_261_119)
    port, numbers = free_port(), count()
    proxy_file = tmp_path / "rmq-proxy.json"
    proxy_file.write_text(json.dumps({"grpcServerPort": port}))
    async with AsyncExitStack() as stack:
        namesrv = NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0))
        await stack.enter_async_context(namesrv)
        broker = KilledBroker(
            tmp_path, arguments=["--enable-proxy", "-pc", str(proxy_file)], namesrvAddr=namesrv.address
        )
        stack.callback(broker.kill)
        await asyncio.to_thread(broker.start)
        async with Admin(namesrv=namesrv.address) as admin:
            await create_topic(admin, broker.address, TopicConfig(topic_name=TOPIC))
        proxy = Proxy(ProxySettings(grpc=GrpcServerConfig(), namesrv=namesrv.address))
        await stack.enter_async_context(proxy)
        beside = Program(proxy.port, "beside", numbers)
        programs = [beside, Program(port, "inside", numbers, beside)]
        works = [asyncio.ensure_future(program.produce()) for program in programs]
        works += [asyncio.ensure_future(program.consume()) for program in programs]
        stack.push_async_callback(asyncio.wait, works)
        stack.callback(lambda: [work.cancel() for work in works])
        for _ in range(_KILLS):
            await asyncio.sleep(chance.uniform(1.0, 3.0))
            broker.kill()
            await asyncio.to_thread(broker.start)
        await asyncio.sleep(3)
        for work in works[:2]:
            work.cancel()
        sent = programs[0].sent | programs[1].sent
        async with asyncio.timeout(_SETTLE_S):
            while sent - beside.acked:
                for program in programs:
                    program.progress.clear()
                waits = [asyncio.ensure_future(program.progress.wait()) for program in programs]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
        assert all(not work.done() for work in works[2:])
    assert min(len(program.sent) for program in programs) > 20
    assert programs[1].sessions > _KILLS / 2, "clients of the killed proxy have connected again"
    assert not beside.came_again, "acknowledged, and yet it came again"
    assert_store_ok(broker.store)
