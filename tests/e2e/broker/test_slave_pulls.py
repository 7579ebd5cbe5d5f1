"""Pulls at a slave: what it serves, and that it neither moves consumers nor commits for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.protocol.codes import ResponseCode
from kourou.protocol.headers.pull import PullMessageResponseHeader
from tests.e2e.broker.broker_kit import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, messages
from tests.e2e.broker.replication_kit import equal, following, master, namesrv, slave, until

pytestmark = pytest.mark.e2e

MOVED, NOT_FOUND, AGAIN = (
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
)


@pytest.mark.parametrize("slave_read_enable", [False, True])
@pytest.mark.parametrize(("is_checked", "code", "next_offset"), [(False, AGAIN, 9), (True, MOVED, 2)])
async def test_a_slave_serves_pulls_and_moves_no_consumer_unless_it_is_to_check(
    tmp_path: Path, slave_read_enable: bool, is_checked: bool, code: ResponseCode, next_offset: int
) -> None:
    keys = {"offset_check_in_slave": is_checked, "slave_read_enable": slave_read_enable}
    async with namesrv() as address, master(tmp_path, address) as of_master:
        await of_master.send()
        await of_master.send()
        async with slave(tmp_path, address, **keys) as of_slave:
            await equal(of_master, of_slave)
            services = of_slave.controller.services
            await until(lambda: "TopicTest" in services.topics.table, "the topic arrives")
            flags = SUBSCRIPTION | COMMIT_OFFSET
            found = await of_slave.pull(sys_flag=flags, commit_offset=1)
            assert len(messages(found)) == 2
            assert found.header(PullMessageResponseHeader).suggest_which_broker_id == 0
            assert services.offsets.query("consumers", "TopicTest", 0) == -1
            beyond = await of_slave.pull(queue_offset=9, sys_flag=SUBSCRIPTION | SUSPEND)
            header = beyond.header(PullMessageResponseHeader)
            assert (beyond.code, header.next_begin_offset) == (code, next_offset)
            assert (header.min_offset, header.max_offset) == (0, 2)
            assert (await of_slave.pull(queue_offset=2)).code == NOT_FOUND


async def test_a_pull_waits_at_a_slave_until_the_master_has_sent_a_message_there(tmp_path: Path) -> None:
    async with namesrv() as address, master(tmp_path, address) as of_master:
        await of_master.send()
        async with slave(tmp_path, address) as of_slave:
            await following(of_master, 1)
            await equal(of_master, of_slave)
            topics = of_slave.controller.services.topics
            await until(lambda: "TopicTest" in topics.table, "the topic arrives")
            waiting = asyncio.ensure_future(
                of_slave.pull(queue_offset=1, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=60_000)
            )
            await of_slave.until_held(1)
            await of_master.send(body=b"replicated")
            assert [message.body for message in messages(await waiting)] == [b"replicated"]


async def test_a_pull_beyond_the_end_waits_at_a_slave_whose_master_is_away(tmp_path: Path) -> None:
    """It is never sent back: the master may have what the slave did not get."""
    async with namesrv() as address:
        async with slave(tmp_path, address) as of_slave:
            async with master(tmp_path, address) as of_master:
                await of_master.send()
                await equal(of_master, of_slave)
                topics = of_slave.controller.services.topics
                await until(lambda: "TopicTest" in topics.table, "the topic arrives")
            status = of_slave.controller.services.replica_status
            await until(lambda: status.why_not_following is not None, "the master is gone")
            flags = SUBSCRIPTION | SUSPEND
            answer = await of_slave.pull(queue_offset=3, sys_flag=flags, suspend_timeout_millis=50)
            header = answer.header(PullMessageResponseHeader)
            assert (answer.code, header.next_begin_offset) == (AGAIN, 3)
            waiting = asyncio.ensure_future(
                of_slave.pull(queue_offset=3, sys_flag=flags, suspend_timeout_millis=60_000)
            )
            await of_slave.until_held(1)
            async with master(tmp_path, address) as of_master:
                for number in range(1, 4):
                    await of_master.send(body=b"%d" % number)
                assert [message.body for message in messages(await waiting)] == [b"3"]


async def test_a_queue_that_the_tables_of_a_slave_do_not_have_yet_is_an_empty_one(tmp_path: Path) -> None:
    async with namesrv() as address, master(tmp_path, address) as of_master:
        async with slave(tmp_path, address) as of_slave:
            await of_master.send()
            await equal(of_master, of_slave)
            queue_id = of_master.controller.services.topics.table["TopicTest"].read_queue_nums
            refused = await of_master.pull(queue_id=queue_id)
            assert refused.code == ResponseCode.INVALID_PARAMETER
            assert (await of_slave.pull(queue_id=queue_id)).code == NOT_FOUND
            assert (await of_slave.pull(queue_id=-1)).code == ResponseCode.INVALID_PARAMETER


async def test_a_topic_that_came_just_before_a_kill_is_served_without_the_master(tmp_path: Path) -> None:
    async with namesrv() as address:
        async with master(tmp_path, address) as of_master, slave(tmp_path, address) as of_slave:
            await of_master.send(queue_id=3)
            await equal(of_master, of_slave)
        for path in (tmp_path / "slave-1" / "store" / "config").glob("topics.json*"):
            path.unlink()
        async with slave(tmp_path, address) as of_slave:
            assert len(messages(await of_slave.pull(queue_id=3))) == 1
