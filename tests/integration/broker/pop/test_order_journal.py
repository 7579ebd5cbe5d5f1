"""What orderly POP has handed out survives a kill at any moment, by its journal in the log."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.pop.order_info import AckResult, OrderKey
from kourou.broker.pop.order_part import OrderPart
from kourou.broker.pop.orders import OrderService
from kourou.broker.tables.offsets import NONE
from kourou.errors import StorageError
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.names import ORDER_TOPIC
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import (
    ConsumerOrderInfoTable,
    NotedConsumerOrderInfoTable,
    OrderInfo,
    dump_table,
    load_table,
)
from kourou.store.disk.files import Files
from kourou.store.log.put_status import PutStatus
from tests.e2e.broker.broker_kit import Peer, running
from tests.e2e.broker.replication_kit import equal, pair

KEY = OrderKey("TopicTest", "CG", 0)
LONG_MS = 600_000
# The tables are written by the stop only: what a kill leaves is in the journal.
NEVER_MS = 3_600_000


def orders(peer: Peer) -> OrderService:
    (part,) = (part for part in peer.controller._open.running.parts if isinstance(part, OrderPart))
    return part.service


async def prepared(peer: Peer, count: int = 6) -> None:
    """A topic with messages, and the group."""
    for number in range(count):
        assert (await peer.send(KEY.topic, b"%d" % number)).code == 0
    peer.controller.services.groups.update(SubscriptionGroupConfig(group_name=KEY.group))


def now_ms(peer: Peer) -> int:
    return peer.controller.services.now_ms()


async def pop(peer: Peer, *offsets: int, attempt_id: str = "a-1") -> tuple[int, PutStatus]:
    """As the processor does it: the committed offset is where the pop began."""
    stored: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
    pop_time = now_ms(peer)
    peer.controller.services.offsets.commit(KEY.group, KEY.topic, KEY.queue_id, offsets[0], "test")
    orders(peer).pop(
        KEY,
        attempt_id=attempt_id,
        pop_time=pop_time,
        invisible_time_ms=LONG_MS,
        offsets=offsets,
        done=stored.set_result,
    )
    return pop_time, await asyncio.wait_for(stored, 5)


async def ack(peer: Peer, queue_offset: int, pop_time: int) -> AckResult:
    stored: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
    result = orders(peer).ack(
        KEY, queue_offset=queue_offset, pop_time=pop_time, client_host="test", done=stored.set_result
    )
    if result is AckResult.DONE:
        assert (await asyncio.wait_for(stored, 5)).is_stored
    return result


def committed(peer: Peer) -> int:
    return peer.controller.services.offsets.query(KEY.group, KEY.topic, KEY.queue_id)


def killed(root: Path) -> Path:
    """What a kill of the broker at this moment would leave, where another one can start."""
    copy = root.parent / f"{root.name}-killed"
    shutil.copytree(root, copy)
    return copy


def order_file(root: Path) -> JsonConfigFile:
    return JsonConfigFile(Files(), root / "store" / "config" / "consumerOrderInfo.json")


def broker(root: Path, **keys: Any) -> Any:
    return running(root, flush_consumer_offset_interval=NEVER_MS, **keys)


async def test_a_kill_loses_neither_pops_nor_acks(tmp_path: Path) -> None:
    async with broker(tmp_path / "a") as peer:
        await prepared(peer)
        pop_time, status = await pop(peer, 0, 1, 2)
        assert status.is_stored
        assert await ack(peer, 0, pop_time) is AckResult.DONE
        root = killed(tmp_path / "a")
    async with broker(root) as peer:
        assert committed(peer) == 1
        assert orders(peer).is_blocked(KEY, "a-2")
        assert not orders(peer).is_blocked(KEY, "a-1")
        assert orders(peer).in_flight(KEY) == 2
        assert await ack(peer, 0, pop_time) is AckResult.OLD
        assert await ack(peer, 2, pop_time) is AckResult.DONE
        assert await ack(peer, 1, pop_time) is AckResult.DONE
        assert (committed(peer), orders(peer).is_blocked(KEY, "a-2")) == (3, False)


async def test_a_restart_goes_on_from_the_file(tmp_path: Path) -> None:
    async with broker(tmp_path) as peer:
        await prepared(peer)
        pop_time, _ = await pop(peer, 0, 1)
    stored = load_table(order_file(tmp_path).load() or b"", NotedConsumerOrderInfoTable)
    assert stored.table["TopicTest@CG"][0].offset_list == [0, 1]
    assert stored.journal_offset == 1
    async with broker(tmp_path) as peer:
        assert orders(peer).is_blocked(KEY, "a-2")
        assert await ack(peer, 0, pop_time) is AckResult.DONE


async def test_the_changes_of_a_queue_in_one_cycle_are_one_record(tmp_path: Path) -> None:
    async with broker(tmp_path) as peer:
        await prepared(peer)
        pop_time, _ = await pop(peer, 0, 1, 2, 3)
        await asyncio.gather(*(ack(peer, offset, pop_time) for offset in range(4)))
        queue = peer.controller.services.store.queues.find(ORDER_TOPIC, 0)
        assert queue is not None and queue.max_queue_offset == 2
        assert committed(peer) == 4


async def test_a_pop_that_is_not_stored_is_undone(tmp_path: Path) -> None:
    async with broker(tmp_path) as peer:
        await prepared(peer)
        pop_time, _ = await pop(peer, 0)
        await ack(peer, 0, pop_time)
        appender = peer.controller.services.store.appender
        appender.refuse("test", StorageError("no room"))
        _, status = await pop(peer, 1, 2)
        assert status is PutStatus.SERVICE_NOT_AVAILABLE
        appender.refuse("test", None)
        await asyncio.sleep(0)
        assert not orders(peer).is_blocked(KEY, "a-2")
        assert orders(peer).in_flight(KEY) == 0


async def test_a_reset_survives_a_kill(tmp_path: Path) -> None:
    async with broker(tmp_path / "a") as peer:
        await prepared(peer)
        pop_time, _ = await pop(peer, 4, 5)
        await ack(peer, 4, pop_time)
        offsets = peer.controller.services.offsets
        offsets.commit(KEY.group, KEY.topic, KEY.queue_id, 1, "test")
        orders(peer).clear(KEY)
        await pop(peer, 1, attempt_id="a-2")
        root = killed(tmp_path / "a")
    async with broker(root) as peer:
        assert committed(peer) == 1
        assert orders(peer).in_flight(KEY) == 1


async def test_newer_offsets_on_disk_are_not_moved_back(tmp_path: Path) -> None:
    async with broker(tmp_path / "a") as peer:
        await prepared(peer)
        await pop(peer, 0)
        offsets = peer.controller.services.offsets
        offsets.commit(KEY.group, KEY.topic, KEY.queue_id, 5, "test")
        offsets.persist()
        root = killed(tmp_path / "a")
    async with broker(root) as peer:
        assert committed(peer) == 5


async def test_offsets_are_on_disk_before_the_table(tmp_path: Path) -> None:
    async with broker(tmp_path / "a") as peer:
        await prepared(peer)
        pop_time, _ = await pop(peer, 0, 1)
        await ack(peer, 0, pop_time)
        peer.controller.services.order_table.persist()
        root = killed(tmp_path / "a")
    async with broker(root) as peer:
        assert committed(peer) == 1


async def test_a_file_that_apache_wrote_is_newer_than_the_journal(tmp_path: Path) -> None:
    async with broker(tmp_path) as peer:
        await prepared(peer)
        await pop(peer, 0, 1)
    apaches = ConsumerOrderInfoTable(
        {"TopicTest@CG": {0: OrderInfo(1, 1, [5], last_consume_timestamp=2**60)}}
    )
    order_file(tmp_path).store(dump_table(apaches))
    async with broker(tmp_path) as peer:
        entry = peer.controller.services.order_table.pops.entry(KEY)
        assert entry is not None and entry.offsets == (5,)
        await pop(peer, 3)
        root = killed(tmp_path)
    async with broker(root) as peer:
        entry = peer.controller.services.order_table.pops.entry(KEY)
        assert entry is not None and entry.offsets == (3,)


@pytest.mark.parametrize(("place", "phy_offset"), [(9, 100), (1, 12_345)])
async def test_a_journal_that_was_cut_is_read_anew(tmp_path: Path, place: int, phy_offset: int) -> None:
    async with broker(tmp_path) as peer:
        await prepared(peer)
        await pop(peer, 0, 1)
    other = NotedConsumerOrderInfoTable({}, journal_offset=place, journal_phy_offset=phy_offset)
    order_file(tmp_path).store(dump_table(other))
    async with broker(tmp_path) as peer:
        assert orders(peer).in_flight(KEY) == 2


async def test_what_a_deleted_topic_had_in_flight_is_dropped(tmp_path: Path) -> None:
    async with broker(tmp_path) as peer:
        await prepared(peer)
        await pop(peer, 0)
        orders(peer).clean()
        assert orders(peer).is_blocked(KEY, "a-2")
        peer.controller.services.topics.delete(KEY.topic)
        orders(peer).clean()
        assert not orders(peer).is_blocked(KEY, "a-2")


async def test_the_end_of_a_block_wakes(tmp_path: Path) -> None:
    async with broker(tmp_path) as peer:
        await prepared(peer)
        woken: asyncio.Queue[OrderKey] = asyncio.Queue()
        service = orders(peer)
        service.wake = woken.put_nowait
        pop_time, _ = await pop(peer, 0, 1)
        for offset in (0, 1):
            change: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
            assert woken.empty() and service.is_blocked(KEY, "a-2")
            result = service.change_invisible_time(
                KEY, queue_offset=offset, pop_time=pop_time, invisible_time_ms=20, done=change.set_result
            )
            assert result is AckResult.DONE and (await change).is_stored
        assert await asyncio.wait_for(woken.get(), 5) == KEY
        assert not service.is_blocked(KEY, "a-2")
        pop_time, _ = await pop(peer, 0, attempt_id="a-2")
        await ack(peer, 0, pop_time)
        assert woken.get_nowait() == KEY


async def test_nothing_is_known_of_a_group_that_never_popped(tmp_path: Path) -> None:
    async with broker(tmp_path) as peer:
        await prepared(peer)
        assert committed(peer) == NONE
        assert not orders(peer).is_blocked(KEY, None)


async def test_a_slave_that_is_made_master_goes_on(tmp_path: Path) -> None:
    """With what it has read of the journal, and with what it has not read yet."""
    async with pair(tmp_path) as (of_master, of_slave):
        await prepared(of_master)
        pop_time, _ = await pop(of_master, 0, 1, 2)
        await equal(of_master, of_slave)
        slave = of_slave.controller._open.running.slave
        assert slave is not None
        await slave.copy_tables()
        read = of_slave.controller.services.order_table.pops
        assert read.in_flight(KEY) == 3
        await ack(of_master, 0, pop_time)
        await equal(of_master, of_slave)
    async with broker(tmp_path / "slave-1") as peer:
        assert committed(peer) == 1
        assert orders(peer).in_flight(KEY) == 2
        assert orders(peer).is_blocked(KEY, "a-2")
        assert await ack(peer, 1, pop_time) is AckResult.DONE
