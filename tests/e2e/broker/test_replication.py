"""A master and its slave: equal logs, what senders wait for, what a slave serves and refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.topics import CreateTopicRequestHeader
from tests.e2e.broker.broker_kit import messages
from tests.e2e.broker.replication_kit import (
    HandSlave,
    equal,
    following,
    ha_address,
    links,
    log_bytes,
    log_end,
    master,
    namesrv,
    pair,
    slave,
    until,
)

pytestmark = pytest.mark.e2e

OK, SLAVE_TIMEOUT, NO_SLAVE = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_slave_has_its_masters_log_and_serves_it(tmp_path: Path, role: str, flush: str) -> None:
    async with pair(tmp_path, broker_role=role, flush_disk_type=flush) as (of_master, of_slave):
        for number in range(30):
            answer = await of_master.send(body=b"x" * 50_000, properties=f"KEYS\x01k{number}\x02")
            assert answer.code == OK
        assert (await of_master.send_batch("TopicTest", [b"one", b"two"])).code == OK
        await equal(of_master, of_slave)
        assert log_end(of_slave) > 1024 * 1024, "more than one file"
        await until(lambda: "TopicTest" in of_slave.controller.services.topics.table, "the topic arrives")
        found = await of_slave.pull(queue_offset=20)
        assert found.body and found.body == (await of_master.pull(queue_offset=20)).body
        store = of_slave.controller.services.store
        (message,) = store.query_message("TopicTest", "k7", 10, 0, 2**62)
        assert message.queue_offset == 7


async def test_a_slave_that_comes_late_gets_everything(tmp_path: Path) -> None:
    async with namesrv() as address, master(tmp_path, address) as of_master:
        for _ in range(30):
            await of_master.send(body=b"x" * 50_000)
        async with slave(tmp_path, address) as of_slave:
            await equal(of_master, of_slave)
            assert of_slave.controller.services.store.log.min_phy_offset == 0


async def test_with_the_key_it_gets_the_last_file_as_behind_apaches_masters(tmp_path: Path) -> None:
    async with namesrv() as address, master(tmp_path, address, sync_from_last_file=True) as of_master:
        for _ in range(30):
            await of_master.send(body=b"x" * 50_000)
        async with slave(tmp_path, address) as of_slave:
            await equal(of_master, of_slave)
            assert of_slave.controller.services.store.log.min_phy_offset == 1024 * 1024


async def test_apaches_link_needs_no_name_server(tmp_path: Path) -> None:
    async with master(tmp_path) as of_master:
        await of_master.send()
        async with slave(tmp_path, ha_master_address=ha_address(of_master)) as of_slave:
            await equal(of_master, of_slave)
            await of_master.send_batch("TopicTest", [b"x" * 60_000] * 40)
            await equal(of_master, of_slave)
            assert links(of_master)[0].slave is None, "no hello"


async def test_two_slaves_follow_one_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as (of_master, first):
        address = first.controller.config.namesrv_addr
        async with slave(tmp_path, address, broker_id=2) as second:
            await following(of_master, 2)
            assert len(of_master.controller.services.commit_cycle.after_write) == 1
            await of_master.send()
            await equal(of_master, first)
            await equal(of_master, second)


async def test_a_slave_goes_on_after_either_was_restarted(tmp_path: Path) -> None:
    async with namesrv() as address:
        async with master(tmp_path, address) as of_master:
            async with slave(tmp_path, address) as of_slave:
                await of_master.send()
                await equal(of_master, of_slave)
            after_write = of_master.controller.services.commit_cycle.after_write
            await until(lambda: not after_write, "nothing is called for the slave that is gone")
            await of_master.send()
            async with slave(tmp_path, address) as of_slave:
                await equal(of_master, of_slave)
        async with slave(tmp_path, address) as of_slave:
            end = log_end(of_slave)
            assert len(messages(await of_slave.pull())) == 2, "without its master it serves what it has"
            async with master(tmp_path, address) as of_master:
                await of_master.send()
                await until(lambda: log_end(of_slave) > end, "the slave has found its master again")
                await equal(of_master, of_slave)


async def test_a_master_that_is_restarted_with_another_port_for_slaves_is_found(tmp_path: Path) -> None:
    """By the name servers, as the known port refuses connections: long before the next registration."""
    async with namesrv() as address, slave(tmp_path, address) as of_slave:
        async with master(tmp_path, address) as of_master:
            await of_master.send()
            await equal(of_master, of_slave)
            config = of_master.controller.config
            ports = {"listen_port": config.listen_port}
            left = config.ha_listen_port
        async with master(tmp_path, address, ha_listen_port=0, **ports) as of_master:
            assert of_master.controller.config.ha_listen_port != left
            await of_master.send()
            await equal(of_master, of_slave)


# -- what a slave refuses ------------------------------------------------------------------------------------


async def test_a_slave_stores_nothing_of_its_own(tmp_path: Path) -> None:
    async with pair(tmp_path) as (of_master, of_slave):
        await of_master.send()
        await equal(of_master, of_slave)
        before = log_bytes(of_slave)
        for answer in (
            await of_slave.send(),
            await of_slave.send("Other"),
            await of_slave.send_batch("TopicTest", [b"x"]),
        ):
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert answer.remark is not None and "messages are put to the slave" in answer.remark
        header = CreateTopicRequestHeader(
            topic="New", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
            topic_filter_type="SINGLE_TAG", order=False,
        )  # fmt: skip
        answer = await of_slave.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "this broker is a slave, whose tables are its master's; change them there"
        assert log_bytes(of_slave) == before
        assert "Other" not in of_slave.controller.services.topics.table


async def test_tables_are_the_masters(tmp_path: Path) -> None:
    async with pair(tmp_path) as (of_master, of_slave):
        services, copied = of_master.controller.services, of_slave.controller.services
        services.topics.update(
            TopicConfig(topic_name="Orders", read_queue_nums=3, write_queue_nums=3, perm=6)
        )
        services.groups.find("billing")
        services.offsets.commit("billing", "Orders", 1, 42, "test")
        await of_master.send("Orders")
        await until(lambda: copied.topics.get("Orders") is not None, "the topic arrives")
        await until(lambda: copied.groups.get("billing") is not None, "the group arrives")
        assert copied.topics.get("Orders") == services.topics.get("Orders")
        assert copied.offsets.query("billing", "Orders", 1) == 42
        assert copied.topics.data_version == services.topics.data_version


async def test_a_topic_is_served_before_the_masters_table_comes(tmp_path: Path) -> None:
    """The HA link alone: the slave never gets a table."""
    async with master(tmp_path) as of_master:
        async with slave(tmp_path, ha_master_address=ha_address(of_master)) as of_slave:
            await of_master.send("New", queue_id=0)
            await of_master.send("New", queue_id=2)
            await equal(of_master, of_slave)
            assert len(messages(await of_slave.pull("New", queue_id=2))) == 1
            derived = of_slave.controller.services.topics.get("New")
            assert derived is not None and derived.read_queue_nums == 3


# -- what senders wait for -----------------------------------------------------------------------------------


async def test_without_a_slave_a_synchronous_master_answers_at_once(tmp_path: Path) -> None:
    async with master(tmp_path, broker_role="SYNC_MASTER") as of_master:
        assert (await of_master.send()).code == NO_SLAVE
        assert (await of_master.send(properties="WAIT\x01false\x02")).code == OK
        assert len(messages(await of_master.pull())) == 2, "they are visible"


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_message_is_visible_when_a_slave_has_it(tmp_path: Path, flush: str) -> None:
    keys = {"broker_role": "SYNC_MASTER", "flush_disk_type": flush, "slave_timeout": 60_000}
    async with master(tmp_path, **keys) as of_master, HandSlave.connected(of_master) as hand:
        await hand.report(0)
        await following(of_master, 1)
        sent = asyncio.ensure_future(of_master.send(body=b"one"))
        transfer = await hand.transfer()
        assert (transfer.phy_offset, len(transfer.data)) == (0, log_end(of_master))
        assert not sent.done() and messages(await of_master.pull()) == []
        await hand.report(len(transfer.data) - 1)
        await asyncio.sleep(0.05)
        assert not sent.done(), "a byte is missing"
        await hand.report(len(transfer.data))
        assert (await sent).code == OK
        assert [message.body for message in messages(await of_master.pull())] == [b"one"]


async def test_after_a_timeout_it_is_visible_once_the_slave_has_it_or_is_gone(tmp_path: Path) -> None:
    keys = {"broker_role": "SYNC_MASTER", "slave_timeout": 50}
    async with master(tmp_path, **keys) as of_master:
        async with HandSlave.connected(of_master) as hand:
            await hand.report(0)
            await following(of_master, 1)
            assert (await of_master.send(body=b"one")).code == SLAVE_TIMEOUT
            assert messages(await of_master.pull()) == []
            await hand.report(log_end(of_master))
            await until(
                lambda: not of_master.controller.services.commit_cycle.is_waiting, "it is acknowledged"
            )
            assert len(messages(await of_master.pull())) == 1
            assert (await of_master.send(body=b"two")).code == SLAVE_TIMEOUT
            assert len(messages(await of_master.pull())) == 1
        await until(lambda: not of_master.controller.services.commit_cycle.is_waiting, "the slave is gone")
        assert len(messages(await of_master.pull())) == 2
        assert (await of_master.send(body=b"three")).code == NO_SLAVE


async def test_with_in_sync_replicas_senders_wait_for_as_many(tmp_path: Path) -> None:
    keys = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 3, "slave_timeout": 60_000}
    async with (
        master(tmp_path, **keys) as of_master,
        HandSlave.connected(of_master) as first,
        HandSlave.connected(of_master) as second,
    ):
        await first.report(0)
        await second.report(0)
        await following(of_master, 2)
        sent = asyncio.ensure_future(of_master.send())
        await first.transfer()
        await first.report(log_end(of_master))
        await asyncio.sleep(0.05)
        assert not sent.done()
        await second.report(log_end(of_master))
        assert (await sent).code == OK


async def test_with_in_sync_replicas_a_send_is_rejected_while_there_are_too_few(tmp_path: Path) -> None:
    keys = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "slave_timeout": 60_000}
    async with namesrv() as address, master(tmp_path, address, **keys) as of_master:

        async def assert_rejected() -> None:
            end = log_end(of_master)
            for sending in (of_master.send(), of_master.send_batch("TopicTest", [b"a", b"b"])):
                answer = await sending
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert answer.remark == (
                    "in-sync replicas not enough: 1 of 2 copies, the master's among them"
                )
            assert log_end(of_master) == end, "nothing is stored"
            assert "too few slaves" in (await of_master.controller.why_not_ready() or "")

        await assert_rejected()
        assert (await of_master.send(body=b"unwaited", properties="WAIT\x01false")).code == OK
        async with slave(tmp_path, address) as of_slave:
            await following(of_master, 1)
            # After the first one of a connection sends take the fast path.
            for number in range(3):
                assert (await of_master.send(body=b"%d" % number)).code == OK
            assert await of_master.controller.why_not_ready() is None
            await equal(of_master, of_slave)
        await until(lambda: not links(of_master), "the slave is gone")
        await assert_rejected()
        of_master.controller.services.update_config({"enableAutoInSyncReplicas": "true"})
        assert (await of_master.send(body=b"one copy is enough")).code == OK


async def test_a_slave_that_is_too_far_behind_is_not_waited_for(tmp_path: Path) -> None:
    keys = {"broker_role": "SYNC_MASTER", "ha_max_gap_not_in_sync": 1_000}
    async with master(tmp_path, **keys) as of_master, HandSlave.connected(of_master) as hand:
        await of_master.send(body=b"x" * 2_000)
        await hand.report(0)
        await following(of_master, 1)
        assert (await of_master.send()).code == NO_SLAVE
        await hand.report(log_end(of_master))
        await until(lambda: links(of_master)[0].ack_phy_offset == log_end(of_master), "it has caught up")
        sent = asyncio.ensure_future(of_master.send())
        await until(lambda: of_master.controller.services.commit_cycle.is_waiting, "the sender waits")
        await hand.report(log_end(of_master))
        assert (await sent).code == OK
