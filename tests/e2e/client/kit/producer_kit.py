"""For tests of producers: clusters whose brokers refuse, hang or are out of reach, and what they stored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kourou.client.producer.producer import AsyncProducer
from kourou.config import NamesrvConfig
from kourou.embed import Broker, BrokerHooks, NameServer, SendContext
from kourou.errors import RequestError
from kourou.protocol.message import MessageExt
from kourou.testing.cluster import broker_config
from tests.e2e.broker.transaction_kit import stored

TOPIC = "TopicTest"


class Pair:
    """A name server and two brokers, `broker-a` and `broker-b`. `codes` are what a broker refuses sends with,
    by its name; `asked` are the brokers that a send came to, in order."""

    def __init__(self, namesrv: NameServer) -> None:
        self.namesrv = namesrv
        self.brokers: dict[str, Broker] = {}
        self.codes: dict[str, int] = {}
        self.asked: list[str] = []

    @property
    def namesrv_addr(self) -> str:
        return self.namesrv.address

    def hooks(self, broker_name: str) -> BrokerHooks:
        def before_send(context: SendContext) -> None:
            self.asked.append(broker_name)
            if (code := self.codes.get(broker_name)) is not None:
                raise RequestError(code, f"{broker_name} was told to refuse")

        return BrokerHooks(before_send=[before_send])


@contextlib.asynccontextmanager
async def pair(folder: Path, **settings: Any) -> AsyncIterator[Pair]:
    """Run two brokers; a test may stop one of them itself."""
    async with contextlib.AsyncExitStack() as stack:
        namesrv = NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0))
        running = Pair(await stack.enter_async_context(namesrv))
        for index, name in enumerate(("broker-a", "broker-b")):
            config = broker_config(folder, index, namesrv.address, **settings)
            broker = Broker(config, hooks=running.hooks(name))
            running.brokers[name] = await stack.enter_async_context(broker)
        yield running


def all_stored(broker: Broker, topic: str = TOPIC, queues: int = 8) -> list[MessageExt]:
    """Every message of a topic at one broker."""
    return [message for queue_id in range(queues) for message in stored(broker, topic, queue_id)]


class Link:
    """Forwards bytes to a broker until it is set to hold them."""

    def __init__(self, host: str, port: int, target_host: str) -> None:
        self._address = (host, port)
        self._target_host = target_host
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    async def __aenter__(self) -> Link:
        self._server = await asyncio.start_server(self._serve, *self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._open.set()
        self.cut()
        await self._server.wait_closed()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def freeze(self) -> None:
        """Pass nothing on, in both directions; connections stay open."""
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def cut(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection(self._target_host, self._address[1])
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers |= {writer, far_writer}
        try:
            await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))
        finally:
            self._writers -= {writer, far_writer}
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def linked_broker(folder: Path, **settings: Any) -> AsyncIterator[tuple[str, Broker, Link]]:
    """A broker that clients reach through a link, at another loopback address: name server, broker, link."""
    async with NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as namesrv:
        config = broker_config(folder, 0, namesrv.address, broker_ip1="127.0.0.2", **settings)
        async with Broker(config) as broker:
            async with Link("127.0.0.2", int(broker.address.rpartition(":")[2]), "127.0.0.1") as link:
                yield namesrv.address, broker, link


@contextlib.asynccontextmanager
async def producing(namesrv_addr: str, **options: Any) -> AsyncIterator[AsyncProducer]:
    """A producer that must not fail in the background."""
    async with AsyncProducer("ProducerGroup", namesrv=namesrv_addr, **options) as producer:
        failed = asyncio.ensure_future(producer.wait_failed())
        yield producer
        assert not failed.done(), failed
    await failed
