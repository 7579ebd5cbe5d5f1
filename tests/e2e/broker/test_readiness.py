"""`GET /readyz` of a broker: 200 exactly while clients can send, from before its store is opened on."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.controller import BrokerController
from kourou.config import NamesrvConfig
from kourou.errors import ConfigError, StoreLockedError
from kourou.namesrv import NameServer
from kourou.protocol.codes import ResponseCode
from kourou.store.disk.file_lock import FileLock
from kourou.store.disk.files import DiskUsage, Files
from kourou.store.flush_job import FlushJob
from kourou.testing.faulty_files import FaultyFiles
from kourou.transport.http_get import HttpAnswer, http_get
from tests.e2e.broker.broker_kit import Peer, config, messages, running
from tests.e2e.broker.replication_kit import following, master, slave

pytestmark = pytest.mark.e2e

TIMEOUT_MS = 10_000


async def readyz(server: BrokerController | NameServer, path: str = "/readyz") -> HttpAnswer:
    assert server.probe_address is not None
    return await http_get(server.probe_address, path, TIMEOUT_MS)


async def why_not(peer: Peer) -> str:
    """What a broker says that is not ready."""
    answer = await readyz(peer.controller)
    assert answer.status == "503", answer
    assert (await readyz(peer.controller, "/livez")).status == "200"
    return answer.first_line


async def is_ready(peer: Peer) -> bool:
    answer = await readyz(peer.controller)
    return (answer.status, answer.body) == ("200", "ready\n")


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 (nothing tells us)
            await asyncio.sleep(0.01)


class SlowFiles(Files):
    """Files of a store that takes its time to open."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def lock(self, path: Path) -> FileLock:
        assert self.go_on.wait(30)
        return super().lock(path)


async def test_a_broker_is_ready_from_the_end_of_its_start_to_its_stop(tmp_path: Path) -> None:
    files = SlowFiles()
    controller = BrokerController(config(tmp_path, http_port=0), files=files)
    starting = asyncio.ensure_future(controller.start())
    try:
        await until(lambda: controller.probe_address is not None)
        peer = Peer(controller)
        assert "its store is opened" in await why_not(peer)
        files.go_on.set()
        await starting
        assert await is_ready(peer)
        stored = controller.services.store.log.max_phy_offset
        assert await is_ready(peer)
        assert controller.services.store.log.max_phy_offset == stored  # a check stores nothing
        stopping = asyncio.ensure_future(controller.stop())
        await asyncio.sleep(0)
        assert await controller.why_not_ready() == "the broker is stopping"
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await readyz(controller)
    finally:
        files.go_on.set()
        await asyncio.gather(starting, return_exceptions=True)
        await controller.stop()


async def test_a_start_that_fails_or_is_given_up_leaves_no_listener(tmp_path: Path) -> None:
    async with running(tmp_path):
        refused = BrokerController(config(tmp_path, http_port=0))
        with pytest.raises(StoreLockedError):
            await refused.start()
    files = SlowFiles()
    given_up = BrokerController(config(tmp_path / "other", http_port=0), files=files)
    starting = asyncio.ensure_future(given_up.start())
    await until(lambda: given_up.probe_address is not None)
    starting.cancel()
    files.go_on.set()
    await asyncio.gather(starting, return_exceptions=True)
    assert starting.cancelled()
    for controller in (refused, given_up):
        with pytest.raises(ConnectionRefusedError):
            await readyz(controller)


async def test_a_port_that_is_taken_stops_the_start_before_the_store_is_opened(tmp_path: Path) -> None:
    async with running(tmp_path / "one", http_port=0) as peer:
        taken = int(str(peer.controller.probe_address).split(":")[1])
        with pytest.raises(ConfigError, match=f":{taken}: the port is taken; .* another httpPort"):
            await BrokerController(config(tmp_path / "two", http_port=taken)).start()
    assert not (tmp_path / "two").exists()


async def test_without_the_key_there_is_no_listener(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        assert peer.controller.probe_address is None
        assert await peer.controller.why_not_ready() is None


async def test_the_listener_may_have_an_address_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0, http_bind_address="127.0.0.2") as peer:
        assert str(peer.controller.probe_address).startswith("127.0.0.2:")
        assert await is_ready(peer)


# -- what the operator says ----------------------------------------------------------------------


async def test_a_broker_that_may_not_be_written_to_is_not_ready(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0) as peer:
        peer.controller.services.update_config({"brokerPermission": "4"})
        assert await why_not(peer) == "brokerPermission=4: clients may not send to it"
        peer.controller.services.update_config({"brokerPermission": "2"})
        assert await is_ready(peer)
        peer.controller.services.update_config({"startAcceptSendRequestTimeStamp": str(2**62)})
        assert "messages are refused until then" in await why_not(peer)


# -- what the disk says --------------------------------------------------------------------------


async def test_a_broker_whose_disk_is_over_its_limit_is_not_ready(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.usage = DiskUsage(100, 50, 50)
    async with running(tmp_path, files=files, http_port=0, clean_resource_interval=10) as peer:
        appender = peer.controller.services.store.appender
        files.usage = DiskUsage(100, 5, 5)
        await until(lambda: appender.refusal is not None)
        assert (await peer.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "the disk is full (95% in use)" in await why_not(peer)
        files.usage = DiskUsage(100, 50, 50)
        await until(lambda: appender.refusal is None)
        assert (await peer.send()).code == 0
        assert await is_ready(peer)


async def test_after_a_failed_write_a_broker_is_ready_when_one_went_through(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with running(tmp_path, files=files, http_port=0) as peer:
        files.fail("pwrite", error=errno.ENOSPC, for_ever=True, part_of_path="commitlog")
        assert await is_ready(peer)  # not detected yet
        assert (await peer.send()).code != 0
        assert await why_not(peer) == "the CommitLog cannot be written: No space left on device"
        files.heal()
        assert await is_ready(peer)
        stored = messages(await peer.pull("broker-a"))
        assert [message.body for message in stored] == [b"ready?"]
        assert await is_ready(peer)
        assert len(messages(await peer.pull("broker-a"))) == 1  # once is enough


async def test_a_broker_whose_store_is_fenced_is_not_ready(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with running(tmp_path, files=files, http_port=0, flush_disk_type="SYNC_FLUSH") as peer:
        files.fail("sync", for_ever=True, part_of_path="commitlog")
        assert (await peer.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE
        files.heal()
        assert (await why_not(peer)).startswith("the store takes no more messages: ")


async def test_a_broker_whose_syncs_are_overdue_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def slow_run(job: FlushJob) -> None:
        assert go_on.wait(30)
        run(job)

    run = FlushJob.run
    keys: dict[str, Any] = {"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout": 100}
    async with running(tmp_path, http_port=0, **keys) as peer:
        assert await is_ready(peer)
        monkeypatch.setattr(FlushJob, "run", slow_run)
        try:
            assert (await peer.send()).code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert await why_not(peer) == "the disk is slow: a sync takes longer than syncFlushTimeout"
        finally:
            go_on.set()
        await until(lambda: not peer.controller.services.commit_cycle.is_waiting)
        assert await is_ready(peer)


# -- what the name servers say -------------------------------------------------------------------


def namesrv(**keys: Any) -> NameServer:
    return NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0, **keys))


async def test_a_slave_is_ready_also_while_its_master_is_away(tmp_path: Path) -> None:
    async with (
        namesrv() as server,
        master(tmp_path, server.address) as of_master,
        slave(tmp_path, server.address, http_port=0) as of_slave,
    ):
        await following(of_master, 1)
        assert await is_ready(of_slave)
        await of_master.controller.stop()
        assert await is_ready(of_slave)


async def test_a_broker_that_no_name_server_knows_is_not_ready(tmp_path: Path) -> None:
    async with namesrv() as gone:
        address = gone.address
    async with running(tmp_path, http_port=0, namesrv_addr=address) as peer:
        assert await why_not(peer) == f"no name server knows this broker yet: {address}"
        async with namesrv() as server:
            peer.controller.services.update_config({"namesrvAddr": server.address})
            async with asyncio.timeout(10):
                while not await is_ready(peer):  # noqa: ASYNC110 (nothing tells us)
                    await asyncio.sleep(0.01)
        assert await is_ready(peer)  # clients that know it go on without a name server


async def test_a_name_server_is_ready_when_it_gives_routes() -> None:
    async with namesrv(http_port=0) as server:
        assert (await readyz(server)).body == "ready\n"
        address = str(server.probe_address)
    with pytest.raises(ConnectionRefusedError):
        await http_get(address, "/readyz", TIMEOUT_MS)
    assert await server.why_not_ready() == "the name server is stopping"
    clock = [0]
    config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0, http_port=0, need_wait_for_service=True)
    async with NameServer(config, clock=lambda: clock[0]) as server:
        answer = await readyz(server)
        assert (answer.status, answer.first_line) == (
            "503",
            "needWaitForService: routes are given 45 s after the start",
        )
        clock[0] = 45_000
        assert (await readyz(server)).status == "200"


async def test_a_name_server_that_does_not_start_leaves_no_listener(tmp_path: Path) -> None:
    async with namesrv() as first:
        config = NamesrvConfig(bind_address="127.0.0.1", listen_port=first.port, http_port=0)
        second = NameServer(config)
        with pytest.raises(ConfigError, match="another listenPort"):
            await second.start()
    with pytest.raises(ConnectionRefusedError):
        await http_get(str(second.probe_address), "/readyz", TIMEOUT_MS)
