"""A broker's life: start, what stops a start, what fails while it runs, stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from pathlib import Path

import pytest

from kourou.broker.assembly import ServingPart
from kourou.broker.controller import BrokerController
from kourou.broker.delay.delayed_delivery import DelayedDelivery
from kourou.broker.delay.schedule_service import ScheduleService
from kourou.broker.part import BrokerPart
from kourou.broker.storage.part import StoragePart, UpkeepPart
from kourou.broker.tables.part import TablesPart
from kourou.config import NamesrvConfig
from kourou.errors import ConfigError, StoreLockedError
from kourou.namesrv import NameServer
from kourou.protocol.bodies import TopicRouteData, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import GetRouteInfoRequestHeader
from kourou.store.disk.file_lock import FileLock
from kourou.store.disk.files import Files
from kourou.testing.faulty_files import FaultyFiles
from tests.e2e.broker.broker_kit import Peer, config, messages, running

pytestmark = pytest.mark.e2e


async def test_a_store_in_use_is_refused_and_its_broker_unharmed(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        with pytest.raises(StoreLockedError):
            await BrokerController(config(tmp_path)).start()
        assert (await peer.send()).code == 0


async def test_a_port_in_use_is_refused_and_the_store_left_in_order(tmp_path: Path) -> None:
    async with running(tmp_path / "one") as peer:
        taken = peer.controller.port
        with pytest.raises(ConfigError, match=str(taken)):
            await BrokerController(config(tmp_path / "two", listen_port=taken)).start()
    assert not (tmp_path / "two" / "store" / "abort").exists()
    async with running(tmp_path / "two") as peer:
        assert (await peer.send()).code == 0


async def test_parts_start_in_order_and_stop_in_reverse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []

    def spy(part_type: type[BrokerPart], name: str) -> None:
        original = getattr(part_type, name)

        def spied(part: BrokerPart, *arguments: object) -> object:
            calls.append((name, part_type.__name__))
            return original(part, *arguments)

        monkeypatch.setattr(part_type, name, spied)

    types: list[type[BrokerPart]] = [StoragePart, TablesPart, DelayedDelivery, UpkeepPart, ServingPart]
    for part_type in types:
        for name in ("recover", "start", "stop"):
            spy(part_type, name)
    async with running(tmp_path):
        pass
    names = [part_type.__name__ for part_type in types]
    assert calls == [
        *(("recover", name) for name in names),
        *(("start", name) for name in names),
        *(("stop", name) for name in reversed(names)),
    ]


async def test_a_part_that_fails_to_stop_does_not_keep_the_others_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("this part does not stop")

    controller = BrokerController(config(tmp_path))
    await controller.start()
    with monkeypatch.context() as patch:
        patch.setattr(DelayedDelivery, "stop", fail)
        patch.setattr(TablesPart, "stop", fail)
        with pytest.raises(RuntimeError, match="does not stop"):
            await controller.stop()
    assert not (tmp_path / "store" / "abort").exists()


async def test_timers_of_a_start_that_failed_early_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ConfigError("a table cannot be read")

    saved: list[object] = []
    monkeypatch.setattr(TablesPart, "recover", fail)
    monkeypatch.setattr(ScheduleService, "save_at_stop", saved.append)
    with pytest.raises(ConfigError, match="cannot be read"):
        await BrokerController(config(tmp_path)).start()
    assert saved == [] and not (tmp_path / "store" / "abort").exists()


class SlowFiles(Files):
    """Files of a store that takes its time to open."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def lock(self, path: Path) -> FileLock:
        assert self.go_on.wait(30)
        return super().lock(path)


async def test_waiting_for_a_store_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.broker.storage.part._SLOW_OPEN_S", 0.0)
    files = SlowFiles()
    controller = BrokerController(config(tmp_path), files=files)
    starting = asyncio.ensure_future(controller.start())
    try:
        async with asyncio.timeout(10):
            while "is still being opened" not in caplog.text:  # noqa: ASYNC110 (logging knows no events)
                await asyncio.sleep(0.01)
        assert caplog.records[-1].levelname == "WARNING"
    finally:
        files.go_on.set()
        await starting
        await controller.stop()


async def test_a_recovery_says_so_when_it_begins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
    (tmp_path / "store" / "abort").touch()
    with caplog.at_level(logging.INFO, logger="kourou.store"):
        async with running(tmp_path):
            pass
    root = tmp_path / "store"
    first, second = caplog.messages[:2]
    assert first == f"store {root} was not closed: it is recovered now"
    assert second.startswith("recovery reads the CommitLog from ")


async def test_a_part_that_dies_is_noticed(tmp_path: Path) -> None:
    controller = BrokerController(config(tmp_path))
    await controller.start()

    async def broken() -> None:
        raise RuntimeError("the part is broken")

    try:
        controller.services.tasks.start(broken(), "broken")
        async with asyncio.timeout(5):
            with pytest.raises(RuntimeError, match="the part is broken"):
                await controller.wait_failed()
    finally:
        await controller.stop()


async def test_stopping_twice_and_waiting_for_failure_end(tmp_path: Path) -> None:
    controller = BrokerController(config(tmp_path))
    await controller.start()
    waiting = asyncio.ensure_future(controller.wait_failed())
    await controller.stop()
    await controller.stop()
    async with asyncio.timeout(5):
        await waiting


# -- name servers --------------------------------------------------------------------------------


async def route(server: NameServer, peer: Peer, topic: str) -> TopicRouteData | None:
    command = RemotingCommand.request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
    )
    answer = await peer.client.call(server.address, command)
    return decode_body(answer.body, TopicRouteData) if answer.code == 0 else None


async def test_a_broker_is_known_while_it_runs_and_a_new_topic_at_once(tmp_path: Path) -> None:
    async with NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1")) as server:
        async with running(tmp_path, namesrv_addr=server.address) as peer:
            found = await route(server, peer, "TBW102")
            assert found is not None
            assert found.broker_datas[0].broker_addrs == {0: peer.controller.address}
            await peer.send("Fresh")
            async with asyncio.timeout(5):
                while (found := await route(server, peer, "Fresh")) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert found.queue_datas[0].write_queue_nums == 4
            await peer.controller.stop()
            assert await route(server, peer, "Fresh") is None


async def test_a_broker_starts_without_its_name_servers_and_finds_them_later(tmp_path: Path) -> None:
    async with NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1")) as server:
        async with running(tmp_path, namesrv_addr="127.0.0.1:1") as peer:
            peer.controller.services.update_config({"namesrvAddr": server.address})
            async with asyncio.timeout(5):
                while await route(server, peer, "TBW102") is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


# -- the disk ------------------------------------------------------------------------------------


async def test_a_disk_that_is_full_refuses_and_takes_messages_again_by_itself(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with running(tmp_path, files=files) as peer:
        await peer.send(body=b"before")
        files.fail("pwrite", error=errno.ENOSPC, for_ever=True, part_of_path="commitlog")
        answer = await peer.send(body=b"refused")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert [message.body for message in messages(await peer.pull())] == [b"before"]
        files.heal()
        assert (await peer.send(body=b"after")).code == 0
        assert [message.body for message in messages(await peer.pull())] == [b"before", b"after"]


async def test_a_failed_sync_fences_the_broker_and_reads_go_on(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with running(tmp_path, files=files, flush_disk_type="SYNC_FLUSH") as peer:
        assert (await peer.send(body=b"before")).code == 0
        files.fail("sync", for_ever=True, part_of_path="commitlog")
        assert (await peer.send(body=b"lost")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        files.heal()
        answer = await peer.send(body=b"no more")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "cannot be synced" in (answer.remark or "")
        assert [message.body for message in messages(await peer.pull())] == [b"before"]


async def test_offsets_and_groups_are_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        peer.controller.services.groups.find("readers")
        peer.controller.services.offsets.commit("readers", "TopicTest", 0, 1, "here")
    async with running(tmp_path) as peer:
        assert peer.controller.services.groups.get("readers") is not None
        assert peer.controller.services.offsets.query("readers", "TopicTest", 0) == 1


async def test_changed_keys_are_in_force_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        assert (await peer.send(body=bytes(2000))).code == 0
        peer.controller.services.update_config({"maxMessageSize": "1024"})
        assert (await peer.send(body=bytes(2000))).code == ResponseCode.MESSAGE_ILLEGAL


async def test_senders_that_wait_for_the_disk_are_answered_before_the_stop(tmp_path: Path) -> None:
    async with running(tmp_path, flush_disk_type="SYNC_FLUSH") as peer:
        sending = [asyncio.ensure_future(peer.send(body=b"%d" % number)) for number in range(50)]
        while peer.controller.services.store.log.max_phy_offset == 0:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await peer.controller.stop()
        answers = await asyncio.gather(*sending, return_exceptions=True)
        stored = [answer for answer in answers if isinstance(answer, RemotingCommand)]
        assert stored and all(answer.code == 0 for answer in stored)
    async with running(tmp_path) as peer:
        found = messages(await peer.pull(max_msg_nums=100, kourou_large_pull=True))
        assert len(found) >= len(stored)


async def test_an_error_while_a_synced_batch_is_published_is_noticed(tmp_path: Path) -> None:
    controller = BrokerController(config(tmp_path, flush_disk_type="SYNC_FLUSH"))
    await controller.start()
    peer = Peer(controller)

    def broken(batch: object) -> None:
        raise RuntimeError("cannot be published")

    try:
        controller.services.store.publish = broken  # type: ignore[method-assign, assignment]
        sending = asyncio.ensure_future(peer.send())
        async with asyncio.timeout(5):
            with pytest.raises(RuntimeError, match="cannot be published"):
                await controller.wait_failed()
        sending.cancel()
    finally:
        await peer.client.stop()
        await controller.stop(timeout_ms=200)


async def test_the_flush_mode_can_be_changed_while_messages_wait(tmp_path: Path) -> None:
    async with running(tmp_path, flush_disk_type="SYNC_FLUSH") as peer:
        services = peer.controller.services
        sending = [asyncio.ensure_future(peer.send(body=b"%d" % number)) for number in range(20)]
        while not services.commit_cycle.is_waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        services.update_config({"flushDiskType": "ASYNC_FLUSH"})
        sending += [asyncio.ensure_future(peer.send(body=b"%d" % number)) for number in range(20, 40)]
        assert all(answer.code == 0 for answer in await asyncio.gather(*sending))
        found = [
            message.body for message in messages(await peer.pull(max_msg_nums=100, kourou_large_pull=True))
        ]
        assert found == [b"%d" % number for number in range(40)]
        assert not services.commit_cycle.waits_for_flush


async def test_every_stop_of_a_broker_waits_until_it_has_stopped(tmp_path: Path) -> None:
    controller = BrokerController(config(tmp_path))
    await controller.start()
    first = asyncio.ensure_future(controller.stop())
    await controller.stop()
    assert not (tmp_path / "store" / "abort").exists()
    await first


async def test_a_start_that_is_cancelled_leaves_the_store_in_order(tmp_path: Path) -> None:
    starting = asyncio.ensure_future(BrokerController(config(tmp_path)).start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with running(tmp_path) as peer:
        assert (await peer.send()).code == 0
