"""Official clients fail on messages: when these come again, how often, and what becomes of them at the end.

All lanes begin at the same time (fixture `retries`); each test then waits for its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from kourou.protocol.names import dlq_topic, retry_topic
from tests.interop.kit import wire
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.lanes import DELAY_LEVELS_S, Lane, every_java_lane, every_lane
from tests.interop.kit.messaging_session import CommandFailed, Fields, bodies
from tests.interop.kit.mqadmin_output import permissions

pytestmark = pytest.mark.interop

_STEPS: Final = 16
_FIRST_LEVEL: Final = 3
_LAST_LEVEL: Final = len(DELAY_LEVELS_S)
# A level is looked at every 100 ms, and the machine is busy.
_LATE_S: Final = 10
# The version of the last client that does not tell how often it wants a message.
_BEFORE_3_4_9: Final = 1


@dataclass(frozen=True, slots=True)
class Retry:
    """A group that fails on messages of a topic."""

    lane: Lane
    topic: str
    group: str
    sent: list[Fields]

    def calls(self, count: int, timeout_s: float = 30) -> list[Fields]:
        """What the group was called with, once that were `count` messages."""
        return self.lane.calls(self.group, count, timeout_s)

    def dead_letters(self, count: int) -> list[Fields]:
        """What an ordinary consumer finds in the dead letters of the group."""
        cluster = self.lane.cluster
        wire.wait_route(cluster.namesrv, dlq_topic(self.group), cluster.broker.address)
        reader = self.lane.start_consumer(dlq_topic(self.group))
        received = self.lane.client.received(reader, count)
        self.lane.client.stop(reader)
        return received


def begin(lane: Lane, purpose: str, count: int = 1, **options: object) -> Retry:
    """Start a group that fails as the options say, and send it messages."""
    topic, group = lane.new_topic(purpose, queues=1), lane.new_name(purpose)
    if not lane.is_java:
        # The Go client, if it does not find the topic of its retries when it starts, looks again after 10 s
        # and takes up to 20 more to read it.
        cluster = lane.cluster
        wire.create_topic(cluster.broker.address, [cluster.namesrv], retry_topic(group), queues=1)
    lane.start_consumer(topic, name=group, **options)
    return Retry(lane, topic, group, lane.send(topic, count))


@pytest.fixture(scope="module")
def retries(lanes: dict[str, Lane]) -> Iterator[dict[tuple[str, str], Retry]]:
    """Every scenario by its name and that of its lane, all on their way."""
    begun: dict[tuple[str, str], Retry] = {}
    for name, lane in lanes.items():
        begun["steps", name] = begin(lane, "steps", fails=-1)
        begun["some", name] = begin(lane, "some", 3, fails=1, failing="-1", delayLevel=2)
        begun["clamped", name] = begin(lane, "clamped", fails=1, delayLevel=99)
        begun["limited", name] = begin(lane, "limited", 2, fails=-1, maxTimes=2)
        begun["dropped", name] = begin(lane, "dropped", 2, fails=-1, delayLevel=-1)
    yield begun
    for retry in begun.values():
        retry.lane.client.stop(retry.group)


@pytest.fixture
def lane_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def assert_again(retry: Retry, sent: Fields, calls: list[Fields], levels: list[int]) -> None:
    """Assert that a message came, and once more after each of the levels, always the same message."""
    assert [call["reconsumeTimes"] for call in calls] == list(range(len(levels) + 1))
    for call in calls:
        assert (call["topic"], call["msgId"], call["body"]) == (retry.topic, sent["msgId"], sent["body"])
        assert (call["keys"], call["tags"], call["bornTimestamp"]) == (
            sent["keys"],
            sent["tags"],
            calls[0]["bornTimestamp"],
        )
    for before, call, level in zip(calls, calls[1:], levels, strict=False):
        properties = call["properties"]
        assert properties["DELAY"] == str(level)
        assert properties["RETRY_TOPIC"] == retry.topic
        assert properties["REAL_TOPIC"] == retry_topic(retry.group)
        assert properties["ORIGIN_MESSAGE_ID"] == sent["offsetMsgId"]
        delay_s = DELAY_LEVELS_S[level - 1]
        waited_ms = call["storeTimestamp"] - before["receivedMs"]
        assert delay_s * 1000 <= waited_ms < (delay_s + _LATE_S) * 1000


def assert_dead(retry: Retry, times: int) -> None:
    """Assert that the dead letters of the group are its messages, tried so often."""
    letters = retry.dead_letters(len(retry.sent))
    assert sorted(bodies(letters)) == sorted(bodies(retry.sent))
    by_body = {letter["body"]: letter for letter in letters}
    for sent in retry.sent:
        letter = by_body[sent["body"]]
        assert (letter["topic"], letter["msgId"]) == (dlq_topic(retry.group), sent["msgId"])
        assert letter["reconsumeTimes"] == times
        properties = letter["properties"]
        assert (properties["RETRY_TOPIC"], properties["DELAY"]) == (retry.topic, "0")
        assert properties["ORIGIN_MESSAGE_ID"] == sent["offsetMsgId"]


# -- retry ---------------------------------------------------------------------------------------------------


@every_lane
def test_only_what_failed_comes_again_after_the_level_that_the_consumer_chose(
    retries: dict[tuple[str, str], Retry], lane_name: str
) -> None:
    retry = retries["some", lane_name]
    calls = retry.calls(4)
    assert sorted(bodies(calls)) == sorted([*bodies(retry.sent), retry.sent[1]["body"]])
    failed = [call for call in calls if call["body"] == retry.sent[1]["body"]]
    assert_again(retry, retry.sent[1], failed, [2])


@every_lane
def test_a_level_beyond_the_last_is_the_last(retries: dict[tuple[str, str], Retry], lane_name: str) -> None:
    retry = retries["clamped", lane_name]
    assert_again(retry, retry.sent[0], retry.calls(2), [_LAST_LEVEL])


@every_lane
def test_a_message_comes_again_as_often_as_the_consumer_says(
    retries: dict[tuple[str, str], Retry], lane_name: str
) -> None:
    retry = retries["limited", lane_name]
    calls = retry.calls(6)
    for sent in retry.sent:
        of_one = [call for call in calls if call["body"] == sent["body"]]
        assert_again(retry, sent, of_one, [_FIRST_LEVEL, _FIRST_LEVEL + 1])
    assert_dead(retry, times=3)


@every_lane
def test_below_zero_a_message_becomes_a_dead_letter_at_once(
    retries: dict[tuple[str, str], Retry], lane_name: str
) -> None:
    retry = retries["dropped", lane_name]
    assert_dead(retry, times=1)
    assert sorted(bodies(retry.calls(2))) == sorted(bodies(retry.sent))


@every_lane
def test_a_message_takes_sixteen_steps_and_is_a_dead_letter_then(
    retries: dict[tuple[str, str], Retry], lane_name: str
) -> None:
    retry = retries["steps", lane_name]
    calls = retry.calls(_STEPS + 1, timeout_s=60)
    assert_again(retry, retry.sent[0], calls, [_FIRST_LEVEL + step for step in range(_STEPS)])
    assert_dead(retry, times=_STEPS + 1)


@every_java_lane
def test_the_group_says_how_often_where_the_client_does_not(lanes: dict[str, Lane], lane_name: str) -> None:
    """Clients before 3.4.9 do not tell it. With no attempt left the message is a dead letter at once."""
    lane = lanes[lane_name]
    topic = lane.new_topic("by-group", queues=1)
    retry = Retry(lane, topic, lane.new_name("group"), lane.send(topic, 1))
    arguments = ("-b", lane.cluster.broker.address, "-g", retry.group)
    lane.run_admin("updateSubGroup", *arguments, "-r", "0")
    send_back(lane, retry)
    assert_dead(retry, times=1)


def send_back(lane: Lane, retry: Retry) -> None:
    """Send the message back as an old client does."""
    header = ConsumerSendMsgBackRequestHeader(
        phy_offset=int(retry.sent[0]["offsetMsgId"][-16:], 16),
        group=retry.group,
        delay_level=0,
        origin_topic=retry.topic,
    )
    request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    answer = wire.call(lane.cluster.broker.address, replace(request, version=_BEFORE_3_4_9))
    assert answer.code == 0, answer.remark


# -- dead letters --------------------------------------------------------------------------------------------


@every_java_lane
def test_dead_letters_are_found_by_key_and_id(retries: dict[tuple[str, str], Retry], lane_name: str) -> None:
    retry = retries["dropped", lane_name]
    lane, letters = retry.lane, dlq_topic(retry.group)
    key = {"producer": lane.sender, "topic": letters, "key": retry.sent[0]["keys"]}

    def found() -> list[Fields]:
        now_ms = int(time.time() * 1000)
        messages: list[Fields] = lane.client.ask("query", **key, begin=0, end=now_ms)
        return messages

    wait_until(lambda: len(found()) == 1, timeout_s=20, what=f"the index of {letters}")
    assert found()[0]["msgId"] == retry.sent[0]["msgId"]
    shown = lane.run_admin("queryMsgByUniqueKey", "-t", letters, "-i", retry.sent[0]["msgId"]).stdout
    assert retry.topic in shown
    assert f"Keys: [{retry.sent[0]['keys']}]" in " ".join(shown.split())


@every_java_lane
def test_dead_letters_are_read_as_their_permission_allows(
    retries: dict[tuple[str, str], Retry], lane_name: str
) -> None:
    """They may be read; an operator can take that away and give it back."""
    retry = retries["limited", lane_name]
    lane, letters = retry.lane, dlq_topic(retry.group)
    retry.calls(6)
    wait_permission(lane, letters, 6)
    puller = lane.new_name("puller")
    lane.client.ask("start-pull", name=puller, group=puller, namesrv=lane.cluster.namesrv)
    queue = {"consumer": puller, "topic": letters, "broker": lane.cluster.broker_name, "queue": 0}
    assert len(lane.client.ask("pull", **queue, offset=0)["messages"]) == 2
    change_permission(lane, letters, 2)
    with pytest.raises(CommandFailed, match="CODE: 16 "):
        lane.client.ask("pull", **queue, offset=0)
    change_permission(lane, letters, 6)
    assert sorted(bodies(retry.dead_letters(2))) == sorted(bodies(retry.sent))
    lane.client.stop(puller)


def change_permission(lane: Lane, topic: str, permission: int) -> None:
    """Change it with mqadmin, and wait until the name server knows."""
    changed = lane.run_admin(
        "updateTopicPerm", "-b", lane.cluster.broker.address, "-t", topic, "-p", str(permission)
    )
    assert "success" in changed.stdout, changed
    wait_permission(lane, topic, permission)


def wait_permission(lane: Lane, topic: str, permission: int) -> None:
    def shown() -> bool:
        route = lane.run_admin("topicRoute", "-t", topic).stdout
        return bool(route.strip()) and set(permissions(route).values()) == {permission}

    wait_until(shown, timeout_s=20, what=f"permission {permission} of {topic}")
