"""A slave that is cut off, stopped, out of disk or torn: it catches up, and the master never waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.protocol.ha import transfer_head
from kourou.testing.faulty_files import FaultyFiles
from tests.e2e.broker.broker_kit import Peer
from tests.e2e.broker.replication_kit import (
    FILE_BYTES,
    equal,
    following,
    ha_address,
    log_bytes,
    log_end,
    master,
    slave,
    until,
)

pytestmark = pytest.mark.e2e


class CuttingProxy:
    """Passes bytes on to a master, and breaks each connection after so many of them."""

    def __init__(self, target: str, cuts: list[int]) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._cuts = cuts
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[CuttingProxy]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(self._host, self._port)
        left = self._cuts.pop(0) if self._cuts else None
        back = asyncio.ensure_future(self._copy(reader, to_writer, None))
        try:
            await self._copy(to_reader, writer, left)
        finally:
            back.cancel()
            for each in (writer, to_writer):
                each.close()
                with contextlib.suppress(ConnectionError):
                    await each.wait_closed()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4_096):
                piece = data if left is None else data[:left]
                writer.write(piece)
                await writer.drain()
                if left is not None:
                    left -= len(piece)
                    if not left:
                        return


async def fill(peer: Peer, count: int = 40) -> None:
    for number in range(count):
        assert (await peer.send(body=b"%d" % number * 10_000)).code == 0


@pytest.mark.parametrize("count", [1, pytest.param(8, marks=pytest.mark.slow)])
async def test_a_link_that_is_cut_in_the_middle_of_transfers(tmp_path: Path, count: int) -> None:
    chance = random.Random(7)
    cuts = [chance.randint(1, 60_000) for _ in range(count)]
    async with master(tmp_path) as of_master:
        await fill(of_master)
        async with CuttingProxy(ha_address(of_master), cuts).running() as proxy:
            async with slave(tmp_path, ha_master_address=proxy.address) as of_slave:
                await until(lambda: not cuts, "all cuts are made", 60)
                await fill(of_master)
                await equal(of_master, of_slave)


async def test_what_came_before_the_link_broke_can_be_read(tmp_path: Path) -> None:
    """Consumers read from a slave while its master is away."""
    async with master(tmp_path) as of_master:
        await fill(of_master, 3)
        end, records = log_end(of_master), log_bytes(of_master)

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        # In one piece: what follows the records is no transfer that continues them.
        writer.write(transfer_head(0, end) + records + transfer_head(end + 1, 1) + b"x")
        await reader.read()
        writer.close()

    dying = await asyncio.start_server(break_off, "127.0.0.1", 0)
    address = f"127.0.0.1:{dying.sockets[0].getsockname()[1]}"
    async with dying, slave(tmp_path, ha_master_address=address) as of_slave:
        queues = of_slave.controller.services.store.queues
        await until(lambda: log_end(of_slave) == end, "the records are copied")
        await until(lambda: sum(queue.max_queue_offset for queue in queues.items()) == 3, "they can be read")


async def test_a_slave_whose_log_was_torn_goes_on_behind_the_last_whole_record(tmp_path: Path) -> None:
    async with master(tmp_path) as of_master:
        await fill(of_master)
        address = ha_address(of_master)
        async with slave(tmp_path, ha_master_address=address) as of_slave:
            await equal(of_master, of_slave)
            end = log_end(of_slave)
        name = f"{end - end % FILE_BYTES:020d}"
        path = tmp_path / "slave-1" / "store" / "commitlog" / name
        raw = path.read_bytes()
        path.write_bytes(raw[: end % FILE_BYTES - 700] + bytes(700) + raw[end % FILE_BYTES :])
        (tmp_path / "slave-1" / "store" / "abort").touch()
        (tmp_path / "slave-1" / "store" / "checkpoint").unlink()
        async with slave(tmp_path, ha_master_address=address) as of_slave:
            await equal(of_master, of_slave)


async def test_a_slave_without_room_goes_on_when_there_is_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    async with master(tmp_path) as of_master:
        async with slave(tmp_path, ha_master_address=ha_address(of_master), files=files) as of_slave:
            await following(of_master, 1)
            await fill(of_master, 5)
            await equal(of_master, of_slave)
            files.fail("pwrite", error=errno.ENOSPC, for_ever=True, part_of_path="commitlog")
            await fill(of_master, 5)
            await until(lambda: "No space left on device" in caplog.text, "it is reported")
            assert log_end(of_slave) < log_end(of_master)
            files.heal()
            await equal(of_master, of_slave)
