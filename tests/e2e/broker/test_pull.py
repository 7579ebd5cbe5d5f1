"""Pulling from a real broker: at once, when something comes, when it is off the disk, and refusals."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.hooks import BrokerHooks, PullContext
from kourou.broker.pull import cold_pulls as read_turns
from kourou.broker.pull import long_polling
from kourou.broker.pull.cold_pulls import MAX_UNDER_WAY, ColdReadThrottle
from kourou.protocol.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    encode_body,
)
from kourou.protocol.codes import PermName, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.headers.pull import PullMessageResponseHeader
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.queue_files import QueueFiles
from kourou.store.read.get_message_result import GetMessageResult
from tests.e2e.broker.broker_kit import (
    COMMIT_OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    Peer,
    messages,
    pull_header,
    running,
)

pytestmark = pytest.mark.e2e

WAITING = SUBSCRIPTION | SUSPEND


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages(answer)]


def offsets(answer: RemotingCommand) -> tuple[int, int, int]:
    header = answer.header(PullMessageResponseHeader)
    return header.next_begin_offset, header.min_offset, header.max_offset


async def send_some(peer: Peer, count: int, **fields: Any) -> None:
    for number in range(count):
        await peer.send(body=b"%d" % number, **fields)


async def test_messages_come_in_order_up_to_the_number_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 5)
        answer = await peer.pull(max_msg_nums=3)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert bodies(answer) == [b"0", b"1", b"2"] and offsets(answer) == (3, 0, 5)
        assert bodies(await peer.pull(queue_offset=3)) == [b"3", b"4"]


async def test_a_large_pull_gets_as_much_as_it_asks_for(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 100)
        assert len(bodies(await peer.pull(max_msg_nums=100, kourou_large_pull=True))) == 100
        answer = await peer.pull(max_msg_nums=100, max_msg_bytes=1, kourou_large_pull=True)
        assert len(bodies(answer)) == 1


EXPRESSIONS: tuple[dict[str, Any], ...] = (
    {},
    {"subscription": "a"},
    {"subscription": "TAGS = 'a'", "expression_type": "SQL92"},
)


@pytest.mark.parametrize("filter_fields", EXPRESSIONS, ids=["all", "tag", "SQL92"])
async def test_a_pull_of_a_stock_client_gets_what_apache_would_give(
    tmp_path: Path, filter_fields: dict[str, Any]
) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 60, properties="TAGS\x01a\x02")
        asked = {"max_msg_nums": 50, **filter_fields}
        assert len(bodies(await peer.pull(**asked))) == 32
        assert len(bodies(await peer.pull(**asked, max_msg_bytes=1))) == 1
        size = len((await peer.pull(max_msg_nums=1)).body)

        async def set_keys(**keys: int) -> None:
            body = "".join(f"{key}={value}\n" for key, value in keys.items()).encode()
            assert (await peer.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == 0

        await set_keys(maxTransferBytesOnMessageInMemory=3 * size)
        assert len(bodies(await peer.pull(**asked))) == 3
        await set_keys(maxTransferCountOnMessageInMemory=2)
        assert len(bodies(await peer.pull(**asked))) == 2
        await set_keys(accessMessageInMemoryMaxRatio=0)
        assert len(bodies(await peer.pull(**asked))) == 8
        await set_keys(maxTransferBytesOnMessageInDisk=7 * size)
        assert len(bodies(await peer.pull(**asked))) == 7
        await set_keys(maxTransferCountOnMessageInDisk=5)
        assert len(bodies(await peer.pull(**asked))) == 5
        assert len(bodies(await peer.pull(**asked, kourou_large_pull=True))) == 50


async def test_a_pull_that_waited_gets_no_more_than_others(tmp_path: Path) -> None:
    async with running(tmp_path, max_transfer_count_on_message_in_memory=2) as peer:
        await peer.send(topic="TopicTest", queue_id=1)  # makes the topic
        held = asyncio.create_task(peer.pull(sys_flag=WAITING))
        await peer.until_held(1)
        await peer.send_batch("TopicTest", [b"0", b"1", b"2"])
        assert bodies(await held) == [b"0", b"1"]


@pytest.mark.parametrize(
    ("queue_offset", "code", "remark", "following"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (99, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
async def test_an_offset_outside_is_answered_with_the_right_one(
    tmp_path: Path, queue_offset: int, code: int, remark: str, following: int
) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 3)
        answer = await peer.pull(queue_offset=queue_offset)
        assert (answer.code, answer.remark, offsets(answer)) == (code, remark, (following, 0, 3))


async def test_an_empty_queue_is_waited_at_from_its_start_and_moved_to_from_elsewhere(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send(queue_id=0)
        assert (await peer.pull(queue_id=1)).code == ResponseCode.PULL_NOT_FOUND
        answer = await peer.pull(queue_offset=7, queue_id=1)
        assert (answer.code, offsets(answer)) == (ResponseCode.PULL_OFFSET_MOVED, (0, 0, 0))


# -- tags ----------------------------------------------------------------------------------------


async def test_tags_select_messages_and_the_offset_moves_on(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        for number, tag in enumerate("abcab"):
            await peer.send(body=b"%d" % number, properties=f"TAGS\x01{tag}\x02")
        answer = await peer.pull(subscription="a || c")
        assert bodies(answer) == [b"0", b"2", b"3"] and offsets(answer)[0] == 5
        answer = await peer.pull(subscription="none")
        assert (answer.code, offsets(answer)[0]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 5)


async def test_an_expression_that_names_nothing_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        answer = await peer.pull(subscription="||")
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_sql_is_refused_in_apache_s_words(tmp_path: Path) -> None:
    async with running(tmp_path, enable_property_filter=False) as peer:
        await peer.send()
        answer = await peer.pull(subscription="a > 1", expression_type="SQL92")
        assert "does not support consumer to filter message by SQL92" in (answer.remark or "")


# -- long polling --------------------------------------------------------------------------------


async def test_a_pull_waits_for_the_message_that_comes(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send(body=b"first")
        waiting = asyncio.ensure_future(peer.pull(queue_offset=1, sys_flag=WAITING))
        await peer.until_held(1)
        await peer.send(body=b"second")
        answer = await waiting
        assert bodies(answer) == [b"second"] and offsets(answer) == (2, 0, 2)


async def test_a_pull_waits_at_a_queue_that_has_never_been_written(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send(queue_id=0)
        waiting = asyncio.ensure_future(peer.pull(queue_id=2, sys_flag=WAITING))
        await peer.until_held(1)
        await peer.send(body=b"first", queue_id=2)
        assert bodies(await waiting) == [b"first"]


async def test_other_tags_do_not_wake_a_pull(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send(properties="TAGS\x01a\x02")
        waiting = asyncio.ensure_future(peer.pull(queue_offset=1, sys_flag=WAITING, subscription="b"))
        await peer.until_held(1)
        await peer.send(properties="TAGS\x01a\x02")
        assert len(peer.controller.services.holds) == 1
        await peer.send(body=b"mine", properties="TAGS\x01b\x02")
        assert bodies(await waiting) == [b"mine"]


async def test_the_regular_look_moves_a_pull_on_that_waits_for_rare_tags(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send(properties="TAGS\x01a\x02")
        waiting = asyncio.ensure_future(peer.pull(queue_offset=1, sys_flag=WAITING, subscription="b"))
        await peer.until_held(1)
        await peer.send(properties="TAGS\x01a\x02")
        peer.controller.services.holds.check()
        answer = await waiting
        assert (answer.code, offsets(answer)[0]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2)


async def test_a_pull_that_has_waited_long_enough_gets_a_response(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        answer = await peer.pull(queue_offset=1, sys_flag=WAITING, suspend_timeout_millis=50)
        assert (answer.code, offsets(answer)) == (ResponseCode.PULL_NOT_FOUND, (1, 0, 1))
        assert not len(peer.controller.services.holds)


async def test_all_who_wait_are_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        waiting = asyncio.ensure_future(peer.pull(queue_offset=1, sys_flag=WAITING))
        await peer.until_held(1)
        await peer.controller.stop()
        assert (await waiting).code == ResponseCode.PULL_NOT_FOUND


async def test_many_consumers_wait_at_one_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        waiting = [
            asyncio.ensure_future(peer.pull(queue_offset=1, sys_flag=WAITING, consumer_group=f"g{number}"))
            for number in range(200)
        ]
        await peer.until_held(200)
        await peer.send(body=b"for all")
        assert [bodies(await pull) for pull in waiting] == [[b"for all"]] * 200


# -- offsets --------------------------------------------------------------------------------------


async def test_a_pull_may_commit_an_offset(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 3)
        await peer.pull(queue_offset=2, sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=2)
        assert peer.controller.services.offsets.query("consumers", "TopicTest", 0) == 2


async def test_a_reset_by_the_server_is_reported_to_the_next_pull_once(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 3)
        peer.controller.services.offsets.assign_reset("TopicTest", "consumers", 0, 1)
        answer = await peer.pull(queue_offset=3)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert offsets(answer) == (1, 0, 3)
        assert bodies(await peer.pull(queue_offset=1)) == [b"1", b"2"]


# -- from disk -----------------------------------------------------------------------------------


class DiskReads:
    """Spies on reads that may wait: in which threads they were made, and how many of messages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unit_threads: list[str] = []
        self.load_threads: list[str] = []
        self.may_load = threading.Event()
        self.may_load.set()
        read_units, load = ConsumeQueue.read_units, GetMessageResult.load

        def spied_read(queue: ConsumeQueue, queue_offset: int, max_units: int) -> bytes:
            self.unit_threads.append(threading.current_thread().name)
            return read_units(queue, queue_offset, max_units)

        def spied_load(result: GetMessageResult) -> None:
            self.load_threads.append(threading.current_thread().name)
            assert self.may_load.wait(5)
            load(result)

        monkeypatch.setattr(ConsumeQueue, "read_units", spied_read)
        monkeypatch.setattr(GetMessageResult, "load", spied_load)

    async def until_loading(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.load_threads) < count:  # noqa: ASYNC110 (threads tell us nothing)
                await asyncio.sleep(0.005)


def forget_log(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no record is found in memory."""
    log = peer.controller.services.store.log
    monkeypatch.setattr(log, "window_at", lambda *_: None)
    monkeypatch.setattr(log, "region_at", lambda *_: None)
    monkeypatch.setattr(log, "read_nowait", lambda *_: None)


def forget_queues(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no unit of a queue is found in memory."""
    peer.controller.services.store.flush_derived(thorough=True)
    monkeypatch.setattr(QueueFiles, "read_nowait", lambda *_: None)


def are_of_disk(threads: list[str]) -> bool:
    return bool(threads) and all(name.startswith("broker-disk") for name in threads)


async def test_what_is_not_in_memory_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 5)
        forget_log(peer, monkeypatch)
        reads = DiskReads(monkeypatch)
        assert bodies(await peer.pull()) == [b"0", b"1", b"2", b"3", b"4"]
        assert are_of_disk(reads.load_threads) and reads.unit_threads == []


async def test_a_pull_that_waits_for_the_disk_is_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 5)
        forget_log(peer, monkeypatch)
        reads = DiskReads(monkeypatch)
        reads.may_load.clear()
        waiting = asyncio.ensure_future(peer.pull())
        await reads.until_loading(1)
        peer.controller.services.update_config({"brokerPermission": "2"})
        reads.may_load.set()
        answer = await waiting
        assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")
        assert answer.ext_fields["forbiddenType"] == "1"


async def test_pulls_of_old_messages_take_turns_with_concurrent_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_turns, "SENDING_S", 60.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    turns: list[bool] = []
    take_nowait = ColdReadThrottle.take_nowait

    def spied(waiting: ColdReadThrottle) -> bool:
        turns.append(take_nowait(waiting))
        return turns[-1]

    monkeypatch.setattr(ColdReadThrottle, "take_nowait", spied)
    async with running(tmp_path) as peer:
        await send_some(peer, 5)
        assert bodies(await peer.pull()) == [b"0", b"1", b"2", b"3", b"4"]
        assert turns == [], "the newest messages wait for nobody"
        monkeypatch.setattr(peer.controller.services.store.log, "_window", 0)
        answers = await asyncio.gather(*(peer.pull(queue_offset=offset) for offset in range(5)))
        assert [bodies(answer)[0] for answer in answers] == [b"0", b"1", b"2", b"3", b"4"]
        assert turns[:2] == [True, False]


async def test_a_read_of_old_messages_is_charged_for_its_own_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for what the loop does until the read's task has its turn."""
    steps: list[str] = []

    def take_nowait() -> bool:
        steps.append("take")
        return True

    async with running(tmp_path) as peer:
        await send_some(peer, 1)
        forget_log(peer, monkeypatch)
        monkeypatch.setattr(peer.controller.services.store.log, "_window", 0)
        throttle = peer.controller.services.cold_reads
        monkeypatch.setattr(throttle, "take_nowait", take_nowait)
        monkeypatch.setattr(throttle, "resume", lambda: steps.append("resume"))
        monkeypatch.setattr(throttle, "spend", lambda _: steps.append("spend"))
        assert bodies(await peer.pull()) == [b"0"]
    assert steps == ["take", "resume", "spend", "resume", "spend"]


@pytest.mark.parametrize("subscription", ["*", "a"])
async def test_a_queue_that_is_not_in_memory_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subscription: str
) -> None:
    """All of it: only as much as a filter looks at was read there once, the rest by the loop."""
    async with running(tmp_path, max_filter_message_size=20 * 30) as peer:
        await send_some(peer, 40, properties="TAGS\x01a\x02")
        forget_queues(peer, monkeypatch)
        reads = DiskReads(monkeypatch)
        answer = await peer.pull(
            queue_offset=2, max_msg_nums=100, subscription=subscription, kourou_large_pull=True
        )
        assert len(bodies(answer)) == (38 if subscription == "*" else 30)
        assert are_of_disk(reads.unit_threads) and len(reads.unit_threads) == 1


async def test_a_queue_in_the_page_cache_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 5)
        peer.controller.services.store.flush_derived(thorough=True)
        await peer.pull()  # the file is open from here on
        reads = DiskReads(monkeypatch)
        places: list[int] = []
        read_nowait = QueueFiles.read_nowait

        def spied(files: QueueFiles, topic: str, queue_id: int, position: int, size: int) -> bytes | None:
            places.append(position)
            return read_nowait(files, topic, queue_id, position, size)

        monkeypatch.setattr(QueueFiles, "read_nowait", spied)
        assert bodies(await peer.pull(queue_offset=3)) == [b"3", b"4"]
        assert places == [60] and reads.unit_threads == []


def pulls(count: int) -> bytes:
    """Pulls of the first queue, side by side."""
    frames = []
    for opaque in range(count):
        header = pull_header("TopicTest", 0, kourou_large_pull=True)
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        command.opaque = opaque
        frames.append(command.encode())
    return b"".join(frames)


async def test_a_slow_consumer_far_behind_is_not_closed_for_what_it_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve answers of 4 MB were once made at a time: more than may be unsent."""
    count = 12
    big: dict[str, Any] = {"max_message_size": 1024 * 1024, "mapped_file_size_commit_log": 16 * 1024 * 1024}
    async with running(tmp_path, **big) as peer:
        for _ in range(8):
            await peer.send(body=b"x" * 520_000)
        forget_log(peer, monkeypatch)
        reads = DiskReads(monkeypatch)
        host, _, port = peer.controller.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(pulls(count))
        await reads.until_loading(2)
        await asyncio.sleep(0.3)  # busy with something else
        assert len(reads.load_threads) < count  # nothing is read ahead for one who does not take it
        opaques: list[int] = []
        async with asyncio.timeout(10):
            while len(opaques) < count:
                frame = await reader.readexactly(4)
                frame += await reader.readexactly(int.from_bytes(frame, "big"))
                answer = decode_command(FrameDecoder().feed(frame)[0])
                assert answer.code == 0 and len(messages(answer)) == 8
                opaques.append(answer.opaque)
        assert sorted(opaques) == list(range(count)) and are_of_disk(reads.load_threads)
        writer.close()


async def test_nothing_is_read_for_a_connection_that_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        forget_log(peer, monkeypatch)
        reads = DiskReads(monkeypatch)
        reads.may_load.clear()
        host, _, port = peer.controller.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(pulls(12))
        await reads.until_loading(MAX_UNDER_WAY)
        await peer.call(RequestCode.GET_BROKER_RUNTIME_INFO)  # the broker goes on
        writer.close()
        server = peer.controller.services.requests
        await asyncio.sleep(0.1)  # until the broker notices
        reads.may_load.set()
        await server.wait_idle(5)
        assert len(reads.load_threads) == MAX_UNDER_WAY
        assert peer.controller.services.store.log.log_files[0]._pins == 0


async def test_pulls_that_wait_are_not_answered_into_a_full_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        waiting = asyncio.ensure_future(peer.pull(queue_offset=1, sys_flag=WAITING))
        await peer.until_held(1)
        held = next(iter(peer.controller.services.holds._held.values()))
        connection = next(iter(held)).request.connection
        other = Peer(peer.controller)
        connection.pause_writing()
        await other.send(body=b"news")
        assert not waiting.done() and len(peer.controller.services.holds) == 0
        connection.resume_writing()
        assert bodies(await waiting) == [b"news"]
        await other.client.stop()


# -- settings ------------------------------------------------------------------------------------


async def test_without_long_polling_a_pull_waits_as_long_as_the_broker_says(tmp_path: Path) -> None:
    async with running(tmp_path, long_polling_enable=False, short_polling_time_mills=50) as peer:
        await peer.send()
        answer = await peer.pull(queue_offset=1, sys_flag=WAITING, suspend_timeout_millis=60_000)
        assert (answer.code, offsets(answer)) == (ResponseCode.PULL_NOT_FOUND, (1, 0, 1))


async def test_a_pull_beyond_those_that_may_wait_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polling, "MAX_HELD", 1)
    async with running(tmp_path) as peer:
        await peer.send()
        waiting = asyncio.ensure_future(peer.pull(queue_offset=1, sys_flag=WAITING))
        await peer.until_held(1)
        answer = await peer.pull(queue_offset=1, sys_flag=WAITING, suspend_timeout_millis=60_000)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        await peer.send(body=b"for the first")
        assert bodies(await waiting) == [b"for the first"]


@pytest.mark.parametrize(("slave_read_enable", "far", "near"), [(True, 3, 2), (False, 0, 0)])
async def test_a_consumer_far_behind_is_sent_to_a_slave_if_slaves_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slave_read_enable: bool, far: int, near: int
) -> None:
    monkeypatch.setattr("kourou.broker.settings.memory_bytes", lambda: 1_250)  # of which 40 %
    async with running(tmp_path, slave_read_enable=slave_read_enable) as peer:
        services = peer.controller.services
        services.groups.update(
            SubscriptionGroupConfig(group_name="consumers", broker_id=2, which_broker_when_consume_slowly=3)
        )
        await send_some(peer, 10)

        async def suggested(queue_offset: int) -> int:
            answer = await peer.pull(queue_offset=queue_offset, max_msg_nums=1)
            return answer.header(PullMessageResponseHeader).suggest_which_broker_id

        assert (await suggested(1), await suggested(9)) == (far, near)


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "fields", "code", "says"),
    [
        ("NoSuch", {}, ResponseCode.TOPIC_NOT_EXIST, "topic[NoSuch] not exist"),
        ("TopicTest", {"queue_id": 4}, ResponseCode.INVALID_PARAMETER, "queueId[4] is illegal"),
        ("TopicTest", {"queue_id": -1}, ResponseCode.INVALID_PARAMETER, "queueId[-1] is illegal"),
        ("TopicTest", {"sys_flag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "group info not exist"),
    ],
)
async def test_what_cannot_be_pulled_is_refused(
    tmp_path: Path, topic: str, fields: dict[str, int], code: int, says: str
) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        answer = await peer.pull(topic, **fields)
        assert answer.code == code and says in (answer.remark or "")


def forbidden_type(answer: RemotingCommand) -> str:
    assert answer.code == ResponseCode.NO_PERMISSION
    return (answer.ext_fields or {})["forbiddenType"]


async def test_a_group_that_may_not_consume_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        disabled = SubscriptionGroupConfig(group_name="consumers", consume_enable=False)
        peer.controller.services.groups.update(disabled)
        assert forbidden_type(await peer.pull()) == "2"


async def test_a_group_that_is_forbidden_a_topic_may_read_others(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        await peer.send("Other")
        waiting = asyncio.ensure_future(peer.pull(queue_offset=1, sys_flag=WAITING))
        await peer.until_held(1)
        groups = peer.controller.services.groups
        groups.update_forbidden("consumers", "TopicTest", PermName.WRITE.value, is_forbidden=True)
        assert (await peer.pull()).code == 0
        groups.update_forbidden("consumers", "TopicTest", PermName.READ.value, is_forbidden=True)
        answer = await peer.pull()
        assert forbidden_type(answer) == "5"
        assert answer.remark == "the consumer group[consumers] is forbidden for topic[TopicTest]"
        await peer.send()
        assert forbidden_type(await waiting) == "5"
        assert bodies(await peer.pull("Other")) == [b"hello"]
        groups.update_forbidden("consumers", "TopicTest", PermName.READ.value, is_forbidden=False)
        assert (await peer.pull()).code == 0


async def test_a_broker_without_read_permission_gives_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, broker_permission=2) as peer:
        await peer.send()
        assert forbidden_type(await peer.pull()) == "1"


async def test_a_topic_without_read_permission_gives_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        peer.controller.services.topics.update(TopicConfig(topic_name="TopicTest", perm=2))
        assert forbidden_type(await peer.pull()) == "3"


async def test_a_group_that_may_not_broadcast_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        data = ConsumerData(
            group_name="consumers",
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.BROADCASTING,
            subscription_data_set=[SubscriptionData("TopicTest", "*", sub_version=0)],
        )
        heartbeat = HeartbeatData(client_id="c", consumer_data_set=[data])
        await peer.call(RequestCode.HEART_BEAT, body=encode_body(heartbeat))
        assert bodies(await peer.pull(sys_flag=0)) == [b"hello"]
        peer.controller.services.groups.update(
            SubscriptionGroupConfig(group_name="consumers", consume_broadcast_enable=False)
        )
        assert forbidden_type(await peer.pull(sys_flag=0)) == "4"


async def test_lite_pull_is_a_pull_that_may_be_switched_off(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        assert bodies(await peer.call(RequestCode.LITE_PULL_MESSAGE, pull_header("TopicTest", 0))) == [
            b"hello"
        ]
    async with running(tmp_path, lite_pull_message_enable=False) as peer:
        answer = await peer.call(RequestCode.LITE_PULL_MESSAGE, pull_header("TopicTest", 0))
        assert forbidden_type(answer) == "1"


async def test_a_hook_is_called_for_pulls(tmp_path: Path) -> None:
    seen: list[PullContext] = []
    async with running(tmp_path, hooks=BrokerHooks(after_pull=[seen.append])) as peer:
        await send_some(peer, 2)
        await peer.pull()
        assert [(context.consumer_group, context.message_count) for context in seen] == [("consumers", 2)]
