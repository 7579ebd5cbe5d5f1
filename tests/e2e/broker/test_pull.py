"""Pulling from a real broker: at once, when something comes, when it is off the disk, and refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.broker.hooks import BrokerHooks, PullContext
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageResponseHeader
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


async def send_some(peer: Peer, count: int, **fields: object) -> None:
    for number in range(count):
        await peer.send(body=b"%d" % number, **fields)


async def test_messages_come_in_order_up_to_the_number_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 5)
        answer = await peer.pull(max_msg_nums=3)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert bodies(answer) == [b"0", b"1", b"2"] and offsets(answer) == (3, 0, 5)
        assert bodies(await peer.pull(queue_offset=3)) == [b"3", b"4"]


async def test_the_client_s_number_of_messages_rules_and_its_bytes_too(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 100)
        assert len(bodies(await peer.pull(max_msg_nums=100))) == 100
        assert len(bodies(await peer.pull(max_msg_nums=100, max_msg_bytes=1))) == 1


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


async def test_a_pull_that_has_waited_long_enough_is_told_so(tmp_path: Path) -> None:
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


# -- offsets and cold reads ----------------------------------------------------------------------


async def test_a_pull_may_commit_an_offset(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 3)
        await peer.pull(queue_offset=2, sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=2)
        assert peer.controller.services.offsets.query("consumers", "TopicTest", 0) == 2


async def test_a_reset_by_the_server_is_told_to_the_next_pull_once(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 3)
        peer.controller.services.offsets.assign_reset("TopicTest", "consumers", 0, 1)
        answer = await peer.pull(queue_offset=3)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert offsets(answer) == (1, 0, 3)
        assert bodies(await peer.pull(queue_offset=1)) == [b"1", b"2"]


async def test_what_is_not_in_memory_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 5)
        store = peer.controller.services.store
        store.flush_derived(thorough=True)
        monkeypatch.setattr(store.log, "read_nowait", lambda *_: None)
        assert bodies(await peer.pull()) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_queue_that_is_not_in_memory_is_read_in_a_thread(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_some(peer, 5)
        store = peer.controller.services.store
        store.flush_derived(thorough=True)
        store.queues.find("TopicTest", 0)._files.read_nowait = lambda *_: None  # type: ignore[union-attr, method-assign]
        assert bodies(await peer.pull(queue_offset=2)) == [b"2", b"3", b"4"]


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


async def test_a_group_that_may_not_consume_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        peer.controller.services.groups.find("consumers")
        peer.controller.services.groups.disable_consume("consumers")
        assert (await peer.pull()).code == ResponseCode.NO_PERMISSION


async def test_a_broker_without_read_permission_gives_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, broker_permission=2) as peer:
        await peer.send()
        assert (await peer.pull()).code == ResponseCode.NO_PERMISSION


async def test_lite_pull_is_a_pull_that_may_be_switched_off(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send()
        assert bodies(await peer.call(RequestCode.LITE_PULL_MESSAGE, pull_header("TopicTest", 0))) == [
            b"hello"
        ]
    async with running(tmp_path, lite_pull_message_enable=False) as peer:
        answer = await peer.call(RequestCode.LITE_PULL_MESSAGE, pull_header("TopicTest", 0))
        assert answer.code == ResponseCode.NO_PERMISSION


async def test_a_hook_hears_of_pulls(tmp_path: Path) -> None:
    seen: list[PullContext] = []
    async with running(tmp_path, hooks=BrokerHooks(after_pull=[seen.append])) as peer:
        await send_some(peer, 2)
        await peer.pull()
        assert [(context.consumer_group, context.message_count) for context in seen] == [("consumers", 2)]
