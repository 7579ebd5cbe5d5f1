"""Official clients ask for messages by SQL92: what comes, what is refused, and a group that changes its mind.

All lanes begin at the same time (fixture `selections`); each test then waits for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from tests.interop.kit.cluster import wait_until
from tests.interop.kit.lanes import KOUROU, Lane, every_java_lane, every_lane
from tests.interop.kit.messaging_session import CommandFailed, Fields, bodies

pytestmark = pytest.mark.interop

Wish = Callable[[int, str | None, float], bool]
"""Whether a message of this number, colour and weight is wanted."""

_COUNT: Final = 24
_COLOURS: Final = ("red", "green", "it's", None)
_WEIGHTS: Final = (1.5, 2.5, -3.0)
# A held pull may have to end before the broker looks at what a group asks for now.
_DEPLOYED_S: Final = 45

WISHES: Final[Mapping[str, Wish]] = {
    "number > 7 AND number <= 20": lambda number, _, __: 7 < number <= 20,
    "number BETWEEN 5 AND 9": lambda number, _, __: 5 <= number <= 9,
    "weight NOT BETWEEN -3.5 AND 2.0": lambda _, __, weight: weight > 2,
    "colour IN ('red', 'it''s')": lambda _, colour, __: colour in ("red", "it's"),
    "colour NOT IN ('red')": lambda _, colour, __: colour not in ("red", None),
    "colour IS NULL": lambda _, colour, __: colour is None,
    "colour IS NOT NULL AND NOT (weight < -1.5)": lambda _, colour, weight: colour is not None and weight > 0,
    "(colour = 'green' OR weight = 1.5) AND number <> 9": lambda number, colour, weight: (
        (colour == "green" or weight == 1.5) and number != 9
    ),
    "TAGS = 'TagB' AND words IS NOT NULL": lambda number, _, __: number % 2 == 1,
}
"""Expressions, and what each is to bring."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A topic whose messages groups of a lane ask for, each by an expression."""

    lane: Lane
    groups: Mapping[str, str]
    sent: list[Fields]
    last: list[Fields]


def begin(lane: Lane) -> Selection:
    """Start a group for each expression, and send messages; the last one is for all."""
    # In one queue: who has the last message was asked for all others before.
    topic = lane.new_topic("selected", queues=1)
    groups = {wish: lane.start_consumer(topic, sql=f"{wish} OR last = 'yes'") for wish in WISHES}
    properties = {"colour": [colour or "" for colour in _COLOURS], "weight": map(str, _WEIGHTS)}
    text = ";".join(f"{name}:{','.join(values)}" for name, values in properties.items())
    sent = lane.send(topic, _COUNT, tags="TagA,TagB", properties=text)
    return Selection(lane, groups, sent, lane.send(topic, 1, label="last", properties="last:yes"))


@pytest.fixture(scope="module")
def selections(lanes: dict[str, Lane]) -> Iterator[dict[str, Selection]]:
    """Every lane's, all on their way."""
    begun = {name: begin(lane) for name, lane in lanes.items()}
    yield begun
    for selection in begun.values():
        selection.lane.client.stop(*selection.groups.values())


@every_lane
def test_a_group_gets_what_its_expression_asks_for(selections: dict[str, Selection], lane_name: str) -> None:
    selection = selections[lane_name]
    for wish, is_wanted in WISHES.items():
        wanted = [
            message
            for number, message in enumerate(selection.sent)
            if is_wanted(number, _COLOURS[number % len(_COLOURS)], _WEIGHTS[number % len(_WEIGHTS)])
        ]
        assert 0 < len(wanted) < _COUNT, wish
        received = selection.lane.client.received(selection.groups[wish], len(wanted) + 1)
        assert sorted(bodies(received)) == sorted(bodies(wanted + selection.last)), wish


@every_lane
def test_a_filter_that_is_installed_is_named_in_place_of_sql(lanes: dict[str, Lane], lane_name: str) -> None:
    lane = lanes[lane_name]
    if lane.broker != KOUROU:
        pytest.skip("Apache's brokers have no filters of their operators")
    topic = lane.new_topic("filtered", queues=1)
    consumer = lane.start_consumer(topic, sql="PLUGIN json $ < -20 OR $ = -3")
    sent = lane.send(topic, _COUNT, label="")
    # Bodies are -0, -1 and so on, numbers in JSON.
    wanted = [message for number, message in enumerate(sent) if number > 20 or number == 3]
    assert sorted(bodies(lane.client.received(consumer, len(wanted)))) == sorted(bodies(wanted))
    lane.client.stop(consumer)


@every_java_lane
@pytest.mark.parametrize(
    "expression", ["number >", "number BETWEEN 9 AND 5", "colour = 'red", "number AND", "colour > 'red'"]
)
def test_an_expression_that_is_none_is_reported_when_the_consumer_starts(
    lanes: dict[str, Lane], lane_name: str, expression: str
) -> None:
    """The Go client does not ask the broker when it starts."""
    lane = lanes[lane_name]
    with pytest.raises(CommandFailed, match="CODE: 23") as refused:
        lane.start_consumer(lane.new_topic("unparsed"), sql=expression)
    if lane.broker == KOUROU:
        assert "SQL92 expression: " in str(refused.value)
        assert " at position " in str(refused.value)


# -- a rolling deployment ------------------------------------------------------------------------------------


@every_java_lane
def test_members_of_a_group_ask_for_different_things_while_it_is_deployed(
    lanes: dict[str, Lane], lane_name: str
) -> None:
    """With ours each member gets what it asks for itself; with Apache's all get what the newest asks for."""
    lane = lanes[lane_name]
    topic, group = lane.new_topic("deployed", queues=2), lane.new_name("group")
    old = lane.start_consumer(topic, group=group, sql="version = 'old'")
    wait_owned(lane, topic, {old: 2})
    before = send_versions(lane, topic, "before")
    assert_received(lane, old, "before", [message for message in before if message["version"] == "old"])
    new = lane.start_consumer(topic, group=group, sql="version = 'new'")
    wait_owned(lane, topic, {old: 1, new: 1})
    if lane.broker == KOUROU:
        owned = {"old": lane.client.owned(old, topic), "new": lane.client.owned(new, topic)}
        during = send_versions(lane, topic, "during")
        for consumer, version in ((old, "old"), (new, "new")):
            wanted = [
                message
                for message in during
                if message["version"] == version and message["queueId"] in owned[version]
            ]
            assert_received(lane, consumer, "during", wanted)
    lane.client.stop(old)
    wait_owned(lane, topic, {new: 2})
    after = send_versions(lane, topic, "after")
    assert_received(lane, new, "after", [message for message in after if message["version"] == "new"])
    lane.client.stop(new)


def send_versions(lane: Lane, topic: str, label: str) -> list[Fields]:
    """Messages for both members, in both queues."""
    sent: list[Fields] = []
    for queue in (0, 1):
        messages = lane.send(topic, 6, queue=queue, label=f"{label}-{queue}", properties="version:old,new")
        sent += [
            {**message, "version": ("old", "new")[number % 2]} for number, message in enumerate(messages)
        ]
    return sent


def assert_received(lane: Lane, consumer: str, label: str, wanted: list[Fields]) -> None:
    """Assert that of the messages with this label a consumer receives these."""
    received: set[str] = set()

    def has_all() -> bool:
        received.update(bodies(lane.client.received(consumer, 0)))
        return set(bodies(wanted)) <= received

    wait_until(has_all, timeout_s=_DEPLOYED_S, what=f"{len(wanted)} messages at {consumer}")
    assert {name for name in received if name.startswith(label)} == set(bodies(wanted))


def wait_owned(lane: Lane, topic: str, shares: dict[str, int]) -> None:
    """Wait until each member has its share of the queues."""

    def is_shared() -> bool:
        owned = {member: lane.client.owned(member, topic) for member in shares}
        counts = {member: len(queues) for member, queues in owned.items()}
        return counts == shares and len(set.union(*owned.values())) == sum(shares.values())

    wait_until(is_shared, timeout_s=30, what=f"shares {shares} of {topic}")
