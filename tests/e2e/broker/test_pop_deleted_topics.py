"""A topic that is deleted and created again: what groups have popped of the old one does not count for the
new one, whose offsets begin at 0."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.topics import DeleteTopicRequestHeader
from kourou.testing.clock import FakeClock
from tests.e2e.broker.broker_kit import Peer, messages
from tests.e2e.broker.delay_kit import clocked, settle
from tests.e2e.broker.pop_delivery_kit import pop_header
from tests.e2e.broker.pop_kit import GROUP, INVISIBLE_MS, RETRY, TOPIC, bodies, in_flight, prepare, until

pytestmark = pytest.mark.e2e

is_orderly = pytest.mark.parametrize("order", [False, True], ids=["any-order", "orderly"])


async def pop(peer: Peer, *, order: bool) -> list[str]:
    header = pop_header(TOPIC, invisible_time=INVISIBLE_MS, order=order)
    answer = await peer.call(RequestCode.POP_MESSAGE, header)
    return [message.body.decode() for message in messages(answer)]


async def make_again(peer: Peer, count: int) -> None:
    """Delete the topic, and send to a new one of the same name."""
    answer = await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
    assert answer.code == 0, answer.remark
    await prepare(peer, count)


@is_orderly
async def test_after_a_kill_nothing_of_the_new_topic_is_skipped(tmp_path: Path, order: bool) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 6)
        peer.controller.services.offsets.persist()
        assert len(await pop(peer, order=order)) == 6
        await make_again(peer, 3)
        shutil.copytree(tmp_path / "store", tmp_path / "killed" / "store")
        assert await pop(peer, order=order) == ["0", "1", "2"], "without a kill"
    async with clocked(tmp_path / "killed", clock) as peer:
        assert await pop(peer, order=order) == ["0", "1", "2"]


async def test_messages_of_the_old_topic_are_not_revived_as_those_of_the_new_one(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 3)
        assert len(await pop(peer, order=False)) == 3
        await make_again(peer, 3)
        await until(lambda: in_flight(peer).count(TOPIC, GROUP) == 0)
        clock.advance(INVISIBLE_MS + 200)
        await settle(1)
        assert RETRY not in peer.controller.services.topics.table
        assert bodies(peer) == []
        assert await pop(peer, order=False) == ["0", "1", "2"]
