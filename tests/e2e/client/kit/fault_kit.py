"""For tests of faults: a name server and a broker that clients reach through proxies only."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

from kourou.config import NamesrvConfig
from kourou.embed import Broker, NameServer
from kourou.errors import KourouError
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_records
from kourou.testing.cluster import Cluster, broker_config
from kourou.testing.tcp_proxy import Direction, TcpProxy
from kourou.transport.client import RemotingClient
from tests.e2e.client.kit.push_kit import TOPIC, make_topic, send

# Bounds are of calls on a machine that does other things too.
SLACK_S = 10.0
QUICK: dict[str, Any] = {"request_timeout_ms": 300, "heartbeat_interval_ms": 300}
"""Options of a client that notices soon what a patient one notices after half a minute."""


class _Inside:
    """The broker as test kits call it, past the proxy."""

    def __init__(self, address: str) -> None:
        self.address = address


class FaultyCluster:
    """What runs. Clients get the addresses of the proxies; the test itself bypasses them."""

    def __init__(
        self, namesrv_proxy: TcpProxy, broker: Broker, proxy: TcpProxy, inside: Cluster, queues: int
    ) -> None:
        self.namesrv_proxy = namesrv_proxy
        self.broker = broker
        self.proxy = proxy
        self.inside = inside
        self._queues = queues

    @property
    def namesrv_addr(self) -> str:
        return self.namesrv_proxy.address

    async def put(self, *bodies: bytes, queue_id: int = 0) -> None:
        """Store messages, whatever the links do."""
        await send(self.inside, list(bodies), queue_id=queue_id)

    def records(self) -> list[MessageExt]:
        """All that is stored of the topic, however much that is."""
        store = self.broker.services.store
        found: list[MessageExt] = []
        for queue_id in range(self._queues):
            queue_offset = store.min_offset_in_queue(TOPIC, queue_id)
            while queue_offset < store.max_offset_in_queue(TOPIC, queue_id):
                result = store.get_message(TOPIC, queue_id, queue_offset, 1_000)
                part = [record for buffer in result.buffers for record in decode_records(bytes(buffer))]
                assert part, (queue_id, queue_offset)
                found += part
                queue_offset = part[-1].queue_offset + 1
        return found

    def stored(self) -> list[bytes]:
        return [message.body for message in self.records()]

    async def restart(self) -> None:
        """The broker ends in order and comes up again, at the same address."""
        port = self.broker.port
        await self.broker.stop()
        self.broker = Broker(dataclasses.replace(self.broker.config, listen_port=port))
        await self.broker.start()

    async def do(self, fault: str) -> None:
        """Let something happen to the broker's links that are open now, after which new ones work."""
        if fault == "cut":
            await self.proxy.cut()
        elif fault == "forgotten":
            self.proxy.kill_links()
        elif fault == "half a request":
            self.proxy.halve(Direction.TO_SERVER)
        elif fault == "half an answer":
            self.proxy.halve(Direction.TO_CLIENT)
        elif fault == "restart":
            await self.restart()
        else:
            raise AssertionError(fault)


@contextlib.asynccontextmanager
async def faulty_cluster(folder: Path, *, queues: int = 1, **settings: Any) -> AsyncIterator[FaultyCluster]:
    """One broker with one topic. It listens at one loopback address and is registered with another, at
    which the proxy listens: both have the advertised port."""
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        namesrv = await enter(NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)))
        namesrv_proxy = await enter(TcpProxy("127.0.0.1", int(namesrv.address.rpartition(":")[2])))
        config = broker_config(folder, 0, namesrv.address, broker_ip1="127.0.0.2", **settings)
        broker = Broker(config)
        await broker.start()
        client = RemotingClient()
        stack.push_async_callback(client.stop)
        inside: Any = Cluster(namesrv, [_Inside(f"127.0.0.1:{broker.port}")], client)  # type: ignore[list-item]
        proxy = TcpProxy("127.0.0.1", broker.port, host="127.0.0.2", port=broker.port)
        running = FaultyCluster(namesrv_proxy, broker, proxy, inside, queues)

        async def stop_broker() -> None:
            await running.broker.stop()

        stack.push_async_callback(stop_broker)
        await enter(proxy)
        await make_topic(inside, TOPIC, queues)
        yield running


async def ends_within(seconds: float, call: Awaitable[object]) -> object:
    """The result of a call, or its error; it must take no longer than that."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(60):
            return await call
    except KourouError as error:
        return error
    finally:
        took = time.monotonic() - began
        assert took < seconds + SLACK_S, f"{took:.1f} s in place of {seconds}"
