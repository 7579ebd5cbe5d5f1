"""A master and its slaves in one process, and a hand-made slave that speaks the HA link itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.replication.master_part import MasterPart
from kourou.broker.replication.replica_server import ReplicaServer
from kourou.config.namesrv import NamesrvConfig
from kourou.namesrv.server import NameServer
from kourou.protocol.ha import (
    HA_HELLO,
    HA_TRANSFER,
    MasterHello,
    MasterStream,
    SlaveHello,
    Transfer,
    encode_hello,
    encode_report,
)
from tests.e2e.broker.broker_kit import Peer, running

FILE_BYTES = 1024 * 1024


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 10) -> None:
    """Wait until something holds."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def namesrv() -> AsyncIterator[str]:
    """A name server; its address."""
    async with NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1")) as running_namesrv:
        yield running_namesrv.address


@contextlib.asynccontextmanager
async def master(root: Path, namesrv_addr: str | None = None, **keys: Any) -> AsyncIterator[Peer]:
    """A master with its store in `root/master`."""
    async with running(root / "master", namesrv_addr=namesrv_addr, **keys) as peer:
        yield peer


@contextlib.asynccontextmanager
async def slave(
    root: Path, namesrv_addr: str | None = None, broker_id: int = 1, **keys: Any
) -> AsyncIterator[Peer]:
    """A slave with its store in `root/slave-ID`."""
    role = {"broker_role": "SLAVE", "broker_id": broker_id}
    async with running(root / f"slave-{broker_id}", namesrv_addr=namesrv_addr, **role, **keys) as peer:
        yield peer


@contextlib.asynccontextmanager
async def pair(root: Path, **master_keys: Any) -> AsyncIterator[tuple[Peer, Peer]]:
    """A master and a slave that follows it."""
    async with (
        namesrv() as address,
        master(root, address, **master_keys) as of_master,
        slave(root, address) as of_slave,
    ):
        await following(of_master, 1)
        yield of_master, of_slave


def ha_address(peer: Peer) -> str:
    """Where a master listens for slaves."""
    return f"127.0.0.1:{peer.controller.config.ha_listen_port}"


def server(peer: Peer) -> ReplicaServer:
    """The port for slaves."""
    (part,) = (part for part in peer.controller._open.running.parts if isinstance(part, MasterPart))
    return part.server


def links(peer: Peer) -> list[Any]:
    """The slaves that a master serves."""
    return [link for link in server(peer).links if link.is_reporting]


async def following(peer: Peer, count: int) -> None:
    """Wait until so many slaves follow."""
    await until(lambda: len(links(peer)) == count, f"{count} slaves follow")


async def not_following(peer: Peer, reason: str) -> None:
    """Wait until a slave says that it does not follow its master for this reason."""
    status = peer.controller.services.replica_status
    await until(lambda: reason in (status.why_not_following or ""), reason)


def warnings_of_port(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the port for slaves has warned of."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == ReplicaServer.__module__ and record.levelno >= logging.WARNING
    ]


def log_end(peer: Peer) -> int:
    return peer.controller.services.store.log.max_phy_offset


async def equal(of_master: Peer, of_slave: Peer) -> None:
    """Wait until the slave has everything and has dispatched it; then compare the logs."""
    store = of_slave.controller.services.store
    await until(
        lambda: log_end(of_slave) == log_end(of_master) and not store.log.incomplete_bytes,
        "the slave has the whole log",
    )
    assert log_bytes(of_slave) == log_bytes(of_master, start=store.log.min_phy_offset)


def log_bytes(peer: Peer, start: int | None = None) -> bytes:
    """The log of a broker, from the first byte on or from another."""
    log = peer.controller.services.store.log
    at = log.min_phy_offset if start is None else start
    raw = b""
    while at < log.max_phy_offset:
        piece = log.read(at, min(FILE_BYTES - at % FILE_BYTES, log.max_phy_offset - at))
        assert piece is not None
        raw, at = raw + piece, at + len(piece)
    return raw


class HandSlave:
    """Speaks the HA link by hand: reports what the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, peer: Peer) -> AsyncIterator[HandSlave]:
        host, _, port = ha_address(peer).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def write(self, raw: bytes) -> None:
        self._writer.write(raw)
        await self._writer.drain()

    async def report(self, max_phy_offset: int) -> None:
        await self.write(encode_report(max_phy_offset))

    async def greet(self, **fields: Any) -> MasterHello:
        """Send a hello and return the answer."""
        default: dict[str, Any] = {
            "cluster": "DefaultCluster",
            "broker_name": "broker-a",
            "broker_id": 1,
            "address": "hand:1",
            "min_phy_offset": 0,
            "max_phy_offset": 0,
            "file_bytes": FILE_BYTES,
        }
        await self.write(encode_hello(SlaveHello(**{**default, **fields})))
        head = await self._reader.readexactly(HA_HELLO.size)
        body = await self._reader.readexactly(int.from_bytes(head[-4:], "big"))
        stream = MasterStream(FILE_BYTES, expects_hello=True)
        stream.room()[: len(head + body)] = head + body
        stream.filled(len(head + body))
        answer = stream.next()
        assert isinstance(answer, MasterHello)
        return answer

    async def transfer(self) -> Transfer:
        """The next transfer."""
        head = await asyncio.wait_for(self._reader.readexactly(HA_TRANSFER.size), 10)
        size = int.from_bytes(head[8:], "big")
        data = await asyncio.wait_for(self._reader.readexactly(size), 10)
        return Transfer(int.from_bytes(head[:8], "big"), memoryview(data))

    async def is_closed(self) -> bool:
        """Wait for the end of the connection."""
        with contextlib.suppress(ConnectionError):
            while await asyncio.wait_for(self._reader.read(65536), 10):
                pass
        return True
