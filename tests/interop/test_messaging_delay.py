"""Official clients send messages for later: by level, for any time, and take one back before its time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.interop.kit.lanes import DELAY_LEVELS_S, Lane, every_lane, for_lanes, lanes_of
from tests.interop.kit.messaging_session import CommandFailed, Fields, bodies

pytestmark = pytest.mark.interop

# By turns; the last is beyond all levels.
_LEVELS: Final = (1, 2, 99)
_COUNT: Final = 5 * len(_LEVELS)
_LAST_LEVEL: Final = len(DELAY_LEVELS_S)
# A level is looked at every 100 ms, and the machine is busy.
_LATE_MS: Final = 10_000
_TIMER_LANES: Final = lanes_of("5.5.0")
_TIMERS: Final = {"delaySec": 2, "delayMs": 2_700}
_AHEAD_MS: Final = 3_300
_DAY_S: Final = 86_400
# The slot of a recalled message is a second; what comes from it comes within it.
_SETTLE_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Delayed:
    """Messages that wait, and the group that they are for."""

    lane: Lane
    topic: str
    group: str
    sent: dict[str, list[Fields]]

    def received(self) -> dict[str, list[Fields]]:
        """What has come of each kind, in the order of the queue, once that may be all."""
        count = sum(len(messages) for messages in self.sent.values())
        came = self.lane.client.received(self.group, count)
        came.sort(key=lambda message: message["queueOffset"])
        kinds = {name: kind for kind, messages in self.sent.items() for name in bodies(messages)}
        return {kind: [one for one in came if kinds.get(one["body"]) == kind] for kind in self.sent}


def delays_ms(messages: list[Fields]) -> list[int]:
    """The time from the send of each message to its delivery."""
    return [message["storeTimestamp"] - message["bornTimestamp"] for message in messages]


# -- levels --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def levels(lanes: dict[str, Lane]) -> Iterator[dict[str, Delayed]]:
    """Messages of all levels in every lane, on their way."""
    begun: dict[str, Delayed] = {}
    for name, lane in lanes.items():
        topic = lane.new_topic("levels", queues=1)
        group = lane.start_consumer(topic)
        in_turn = lane.send(topic, _COUNT, delayLevels=",".join(map(str, _LEVELS)))
        sent = {str(level): in_turn[place :: len(_LEVELS)] for place, level in enumerate(_LEVELS)}
        sent["none"] = lane.send(topic, 2, delayLevels="0,-1", label="at-once")
        begun[name] = Delayed(lane, topic, group, sent)
    yield begun
    for delayed in begun.values():
        delayed.lane.client.stop(delayed.group)


@every_lane
def test_messages_come_after_the_delay_of_their_level_and_in_order(
    levels: dict[str, Delayed], lane_name: str
) -> None:
    delayed = levels[lane_name]
    received = delayed.received()
    for kind, sent in delayed.sent.items():
        assert bodies(received[kind]) == bodies(sent)
    for level, kept in ((1, 1), (2, 2), (99, _LAST_LEVEL)):
        came = received[str(level)]
        delay_ms = DELAY_LEVELS_S[kept - 1] * 1000
        assert all(delay_ms <= waited_ms < delay_ms + _LATE_MS for waited_ms in delays_ms(came))
        for message, sent_one in zip(came, delayed.sent[str(level)], strict=True):
            assert (message["topic"], message["msgId"]) == (delayed.topic, sent_one["msgId"])
            properties = message["properties"]
            assert (properties["DELAY"], properties["REAL_TOPIC"]) == (str(kept), delayed.topic)
            assert properties["REAL_QID"] == "0"


@every_lane
def test_level_zero_and_below_is_no_delay(levels: dict[str, Delayed], lane_name: str) -> None:
    for message in levels[lane_name].received()["none"]:
        assert "REAL_TOPIC" not in message["properties"]
        assert message["storeTimestamp"] - message["bornTimestamp"] < DELAY_LEVELS_S[0] * 1000


# -- any time ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timers(lanes: dict[str, Lane]) -> Iterator[dict[str, Delayed]]:
    """Messages with a time in every lane, on their way; one of them is recalled."""
    begun: dict[str, Delayed] = {}
    for name in _TIMER_LANES:
        lane = lanes[name]
        topic = lane.new_topic("timers", queues=1)
        group = lane.start_consumer(topic)
        sent = {kind: lane.send(topic, 2, label=kind, **{kind: value}) for kind, value in _TIMERS.items()}
        moment_ms = int(time.time() * 1000) + _AHEAD_MS
        sent["deliverMs"] = lane.send(topic, 2, label="deliverMs", deliverMs=moment_ms)
        past_ms = moment_ms - 2 * _AHEAD_MS
        sent["past"] = lane.send(topic, 1, label="past", deliverMs=past_ms)
        begun[name] = Delayed(lane, topic, group, sent)
    yield begun
    for delayed in begun.values():
        delayed.lane.client.stop(delayed.group)


@for_lanes(_TIMER_LANES)
def test_messages_come_at_their_time_and_not_before(timers: dict[str, Delayed], lane_name: str) -> None:
    delayed = timers[lane_name]
    received = delayed.received()
    for kind, sent in delayed.sent.items():
        assert sorted(bodies(received[kind])) == sorted(bodies(sent))
        assert {one["msgId"] for one in received[kind]} == {one["msgId"] for one in sent}
    for kind, delay_ms in {"delaySec": 2_000, "delayMs": 2_700}.items():
        assert all(delay_ms <= waited_ms < delay_ms + _LATE_MS for waited_ms in delays_ms(received[kind]))
    for message in received["deliverMs"]:
        assert message["storeTimestamp"] >= int(message["properties"]["TIMER_DELIVER_MS"])
        assert message["properties"]["REAL_TOPIC"] == delayed.topic
    assert all(waited_ms < _LATE_MS for waited_ms in delays_ms(received["past"]))


@for_lanes(_TIMER_LANES)
def test_a_time_beyond_the_limit_is_refused(lanes: dict[str, Lane], lane_name: str) -> None:
    lane = lanes[lane_name]
    topic = lane.new_topic("far", queues=1)
    with pytest.raises(CommandFailed, match="CODE: 13 "):
        lane.send(topic, 1, delaySec=3 * _DAY_S + 60)
    lane.send(topic, 1, delaySec=3 * _DAY_S - 60)


@for_lanes(_TIMER_LANES)
def test_a_message_is_recalled_before_its_time(lanes: dict[str, Lane], lane_name: str) -> None:
    lane = lanes[lane_name]
    topic = lane.new_topic("recalled", queues=1)
    group = lane.start_consumer(topic)
    moment_ms = int(time.time() * 1000) + 4_000
    kept, taken, other = lane.send(topic, 3, deliverMs=moment_ms)
    recall = {"producer": lane.sender, "topic": topic}
    assert lane.client.ask("recall", **recall, handle=taken["recallHandle"]) == taken["msgId"]
    with pytest.raises(CommandFailed, match="recall handle is invalid"):
        lane.client.ask("recall", **recall, handle="no-such-handle")
    received = lane.client.received(group, 2)
    time.sleep(_SETTLE_S)
    received = lane.client.received(group, 2)
    assert sorted(bodies(received)) == sorted(bodies([kept, other]))
    # Nothing is left to recall.
    with pytest.raises(CommandFailed, match="CODE: 604 "):
        lane.client.ask("recall", **recall, handle=kept["recallHandle"])
    lane.client.stop(group)
