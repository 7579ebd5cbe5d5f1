"""Pulls that wait: how many may, and what it costs to wake them."""

from __future__ import annotations

import asyncio
import time

import pytest

from kourou.broker.pull import long_polling
from kourou.broker.pull.long_polling import Pull, PullRequestHoldService
from kourou.broker.pull.pull_targets import PullTarget
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.request import Request
from kourou.transport.settings import ConnectionLimits

TOPIC = TopicConfig(topic_name="T")
GROUP = SubscriptionGroupConfig(group_name="CG")


class Peer:
    """A consumer whose pulls wait at queue 0 of topic T."""

    def __init__(self, port: int = 40_000) -> None:
        self._requests: list[Request] = []
        self.connection = Connection(
            Cycles(), self._requests.append, ConnectionLimits(), InboundBudget(2**30)
        )
        MemoryTransport(self.connection, port=port)
        self.connection.data_received(RemotingCommand(11).encode())

    def pull(self) -> Pull:
        header = PullMessageRequestHeader(
            consumer_group="CG",
            topic="T",
            queue_id=0,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=0,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
        )
        return Pull(self._requests[0], header, PullTarget(TOPIC, GROUP, None))


class Holds(PullRequestHoldService):
    """The service at a queue that is not there; `woken` are the pulls that were run again."""

    def __init__(self) -> None:
        self.woken: list[Pull] = []
        super().__init__(lambda *_: None, lambda: None, self.woken.append)

    def hold_many(self, peer: Peer, count: int) -> list[bool]:
        return [self.hold(peer.pull(), 60_000) for _ in range(count)]


async def test_pulls_are_woken_in_the_order_in_which_they_came() -> None:
    holds, peer = Holds(), Peer()
    pulls = [peer.pull() for _ in range(5)]
    for pull in pulls:
        assert holds.hold(pull, 60_000)
    holds.wake_all()
    assert holds.woken == pulls and len(holds) == 0


async def test_one_more_than_all_may_have_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "MAX_HELD", 3)
    holds = Holds()
    assert holds.hold_many(Peer(), 2) == [True, True]
    other = Peer(40_001)
    assert holds.hold_many(other, 2) == [True, False]
    holds.wake_all()
    assert holds.hold_many(other, 1) == [True]


async def test_one_connection_does_not_take_everybody_s_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "MAX_HELD_PER_CONNECTION", 2)
    holds, peer = Holds(), Peer()
    assert holds.hold_many(peer, 3) == [True, True, False]
    assert holds.hold_many(Peer(40_001), 1) == [True]
    holds.wake_all()
    assert holds.hold_many(peer, 3) == [True, True, False]


async def test_a_pull_whose_time_is_over_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "MAX_HELD_PER_CONNECTION", 1)
    holds, peer = Holds(), Peer()
    assert holds.hold(peer.pull(), 0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(holds.woken) == 1
    assert holds.hold_many(peer, 2) == [True, False]


async def test_pulls_of_a_peer_that_has_gone_are_forgotten() -> None:
    holds, peer = Holds(), Peer()
    holds.hold_many(peer, 3)
    peer.connection.abort("gone")
    holds.check()
    assert len(holds) == 0 and holds.woken == []


async def test_a_pull_is_not_searched_for_among_those_of_its_queue() -> None:
    """Waking all that may wait once took 6 s: each was looked for in a list."""
    holds, peer, gone = Holds(), Peer(), Peer(40_001)
    holds.hold_many(peer, 10_000)
    holds.hold_many(gone, 10_000)
    gone.connection.abort("gone")
    begin = time.process_time()
    holds.check()
    assert time.process_time() - begin < 3
    assert len(holds) == 10_000
