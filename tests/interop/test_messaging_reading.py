"""Official clients read: by tag, all for themselves, from where they want, once more; and are asked."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.interop.kit.cluster import wait_until
from tests.interop.kit.lanes import JAVA_LANES, Lane, every_java_lane, every_lane
from tests.interop.kit.messaging_session import Fields, bodies

pytestmark = pytest.mark.interop

_COUNT: Final = 12
_EXPRESSIONS: Final = {
    "*": {"TagA", "TagB", "Aa", "BB"},
    "TagA || TagB": {"TagA", "TagB"},
    "TagB": {"TagB"},
    # Both have the same hash, by which brokers tell tags apart.
    "Aa": {"Aa"},
    " BB||TagA ": {"BB", "TagA"},
}


# -- tags ----------------------------------------------------------------------------------------------------


@every_lane
def test_groups_get_the_tags_that_they_ask_for(lanes: dict[str, Lane], lane_name: str) -> None:
    lane = lanes[lane_name]
    topic = lane.new_topic("tagged")
    groups = {
        lane.start_consumer(topic, expression=expression): tags for expression, tags in _EXPRESSIONS.items()
    }
    sent = lane.send(topic, _COUNT, tags="TagA,TagB,Aa,BB")
    for group, tags in groups.items():
        wanted = [message for message in sent if message["tags"] in tags]
        assert sorted(bodies(lane.client.received(group, len(wanted)))) == sorted(bodies(wanted))
    lane.client.stop(*groups)


@every_java_lane
def test_a_filter_class_gets_nothing(lanes: dict[str, Lane], lane_name: str) -> None:
    """There is no server to run it: the client refuses to pull, and others are not disturbed."""
    lane = lanes[lane_name]
    topic = lane.new_topic("class-filter", queues=1)
    filtered = lane.start_consumer(topic, filterClass="EveryMessage")
    other = lane.start_consumer(topic)
    sent = lane.send(topic, _COUNT)
    assert sorted(bodies(lane.client.received(other, _COUNT))) == sorted(bodies(sent))
    assert lane.client.received(filtered, 0) == []
    lane.client.stop(filtered, other)


# -- everyone, and from where --------------------------------------------------------------------------------


@every_java_lane
def test_every_broadcasting_member_gets_everything_once(lanes: dict[str, Lane], lane_name: str) -> None:
    """What one fails on does not come again."""
    lane = lanes[lane_name]
    topic, group = lane.new_topic("broadcast"), lane.new_name("broadcasting")
    members = [
        lane.start_consumer(topic, group=group, model="BROADCASTING", fails=fails, delayLevel=1)
        for fails in (0, -1)
    ]
    sent = lane.send(topic, _COUNT)
    more = lane.send(topic, 1, label="delayed", delayLevels="2")
    for member in members:
        # The last comes after any retry would have.
        received = lane.client.received(member, _COUNT + 1)
        assert sorted(bodies(received)) == sorted(bodies([*sent, *more]))
    lane.client.stop(*members)


@every_java_lane
def test_a_new_group_begins_with_the_first_message_of_a_young_queue(
    lanes: dict[str, Lane], lane_name: str
) -> None:
    """Wherever it asks to begin: nothing is lost that was sent while the first consumer starts."""
    lane = lanes[lane_name]
    topic = lane.new_topic("young", queues=1)
    sent = lane.send(topic, _COUNT)
    now = time.strftime("%Y%m%d%H%M%S")
    groups = [
        lane.start_consumer(topic, **{"from": where, "time": now})
        for where in ("FIRST_OFFSET", "LAST_OFFSET", "TIMESTAMP")
    ]
    for group in groups:
        assert sorted(bodies(lane.client.received(group, _COUNT))) == sorted(bodies(sent))
    lane.client.stop(*groups)


@dataclass(frozen=True, slots=True)
class Replay:
    """A group that has got everything and was reset to the message of `first`."""

    lane: Lane
    topic: str
    group: str
    received: list[Fields]
    first: int

    @property
    def moment_ms(self) -> int:
        """When the broker stored that message."""
        moment_ms: int = self.received[self.first]["storeTimestamp"]
        return moment_ms


@pytest.fixture(scope="module")
def replays(lanes: dict[str, Lane]) -> Iterator[dict[str, Replay]]:
    """A replay in every lane; the client takes ten seconds for it."""
    begun: dict[str, Replay] = {}
    for name in JAVA_LANES:
        lane = lanes[name]
        topic = lane.new_topic("replayed", queues=1)
        group = lane.start_consumer(topic)
        for number in range(6):
            lane.send(topic, 1, label=f"n-{number}")
            wait_some_ms()
        received = sorted(lane.client.received(group, 6), key=lambda message: int(message["queueOffset"]))
        replay = Replay(lane, topic, group, received, first=3)
        reset = ("-g", group, "-t", topic, "-s", str(replay.moment_ms))
        shown = lane.run_admin("resetOffsetByTime", *reset)
        assert re.search(r"broker-a +0 +3", shown.stdout), shown
        begun[name] = replay
    yield begun
    for replay in begun.values():
        replay.lane.client.stop(replay.group)


def wait_some_ms() -> None:
    """Wait until the next message is stored more than a millisecond later than the last."""
    then_ms = int(time.time() * 1000) + 3
    wait_until(lambda: time.time() * 1000 > then_ms, timeout_s=1, what="some milliseconds")


@every_java_lane
def test_a_group_replays_from_a_millisecond_on(replays: dict[str, Replay], lane_name: str) -> None:
    replay = replays[lane_name]
    again = replay.received[replay.first :]
    calls = replay.lane.calls(replay.group, 6 + len(again), timeout_s=60)
    assert sorted(bodies(calls)) == sorted(bodies([*replay.received, *again]))


@every_java_lane
def test_offsets_are_found_by_the_millisecond(replays: dict[str, Replay], lane_name: str) -> None:
    replay = replays[lane_name]
    lane, moment_ms = replay.lane, replay.moment_ms

    def offset_at(time_ms: int) -> int:
        offsets = lane.client.ask("offsets", producer=lane.sender, topic=replay.topic, time=time_ms)
        at: int = offsets["0"]["at"]
        return at

    assert offset_at(moment_ms) == replay.first
    # The first message that is not older; 4.9.7 takes the nearest.
    if lane.broker != "4.9.7":
        assert [offset_at(moment_ms + ahead_ms) for ahead_ms in (-1, 1)] == [replay.first, replay.first + 1]


# -- what the broker asks a client ---------------------------------------------------------------------------


@every_lane
def test_a_consumer_is_asked_to_consume_a_message_now(lanes: dict[str, Lane], lane_name: str) -> None:
    """mqadmin asks the broker, the broker that consumer, and back comes what its listener said."""
    lane = lanes[lane_name]
    topic = lane.new_topic("asked", queues=1)
    group = lane.start_consumer(topic, fails=-1, failing="-1", delayLevel=-1)
    fine, bad = lane.send(topic, 2)
    lane.client.received(group, 2)
    ask = ("queryMsgByUniqueKey", "-g", group, "-d", wait_client_id(lane, group), "-t", topic, "-i")
    assert "order=false, autoCommit=true, consumeResult=CR_SUCCESS" in consumed(lane, *ask, fine["msgId"])
    assert "order=false, autoCommit=true, consumeResult=CR_LATER" in consumed(lane, *ask, bad["msgId"])
    assert sorted(bodies(lane.calls(group, 4))) == bodies([fine, fine, bad, bad])
    lane.client.stop(group)


@every_java_lane
def test_an_orderly_consumer_is_asked_to_consume_a_message_now(
    lanes: dict[str, Lane], lane_name: str
) -> None:
    lane = lanes[lane_name]
    topic = lane.new_topic("asked-orderly", queues=1)
    group = lane.start_consumer(topic, listener="orderly")
    (sent,) = lane.send(topic, 1)
    lane.client.received(group, 1)
    ask = ("queryMsgByUniqueKey", "-g", group, "-d", wait_client_id(lane, group), "-t", topic, "-i")
    assert "order=true, autoCommit=true, consumeResult=CR_SUCCESS" in consumed(lane, *ask, sent["msgId"])
    assert bodies(lane.calls(group, 2)) == bodies([sent, sent])
    lane.client.stop(group)


def consumed(lane: Lane, *command: str) -> str:
    """What mqadmin prints of a message that a consumer is to consume now."""
    return lane.run_admin(*command).stdout


@every_lane
def test_a_consumer_reports_its_state(lanes: dict[str, Lane], lane_name: str) -> None:
    lane = lanes[lane_name]
    topic = lane.new_topic("told", queues=1)
    group = lane.start_consumer(topic, expression="TagA || TagB")
    sent = lane.send(topic, 2)
    lane.client.received(group, len(sent))
    shown = lane.run_admin("consumerStatus", "-g", group, "-i", wait_client_id(lane, group)).stdout
    assert "#Consumer Properties#" in shown
    subscription = rf"Topic: {topic} +ClassFilter: false +SubExpression: TagA \|\| TagB"
    assert re.search(subscription, shown), shown
    lane.client.stop(group)


def wait_client_id(lane: Lane, group: str) -> str:
    """The id of the only member of a group, once the broker knows it."""
    ids: list[str] = []

    def is_known() -> bool:
        shown = lane.run_admin("consumerConnection", "-g", group).stdout
        ids[:] = [line.split()[0] for line in shown.splitlines() if "@" in line and group in line]
        return len(ids) == 1

    wait_until(is_known, timeout_s=20, what=f"the member of {group}")
    return ids[0]
