"""Official transaction producers: how transactions end, who is asked for it and when, and never two ends.

All lanes begin at the same time (fixture `stories`); each test then waits for its own. What a producer says
when it is asked is the opposite of what it said by itself: if it were asked for a transaction that has ended,
both ends would be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import pytest

from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.names import RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC
from tests.interop.kit.broker_cluster import BrokerCluster
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.lanes import KOUROU, PROPERTIES, Lane, every_java_lane, every_lane
from tests.interop.kit.messaging_session import GO, CommandFailed, Fields, bodies
from tests.interop.kit.transactions import TransactionProducer, start_producer

pytestmark = pytest.mark.interop

_TIMEOUT_MS: Final = int(PROPERTIES["transactionTimeOut"])
_CHECK_MAX: Final = int(PROPERTIES["transactionCheckMax"])
_IMMUNITY_S: Final = 3
_SIZE: Final = 10_000
# Until the last question, and what follows it, on a busy machine.
_END_S: Final = 60

# What the sender says, and what a producer says that is asked.
_KINDS: Final = {
    "committed": ("commit", "rollback"),
    "rolled-back": ("rollback", "commit"),
    "asked-commit": ("unknown", "commit"),
    "asked-rollback": ("unknown", "rollback"),
    "never": ("unknown", "unknown"),
}
# Apache's broker, killed before it has noted an end, asks for it.
_KINDS_KILLED: Final = {
    "committed": ("commit", "commit"),
    "rolled-back": ("rollback", "rollback"),
    "asked-commit": ("unknown", "commit"),
    "asked-rollback": ("unknown", "rollback"),
}


@dataclass(frozen=True, slots=True)
class Story:
    """Transactions of a lane, of every kind: who sent them, what else answers, who consumes."""

    lane: Lane
    topic: str
    consumer: str
    producer: TransactionProducer
    heir: TransactionProducer
    sent: dict[str, list[Fields]]

    def wait_received(self, *kinds: str) -> list[Fields]:
        """What has come of these kinds, once all of it has."""
        names = {name for kind in kinds for name in bodies(self.sent[kind])}

        def has_all() -> bool:
            return names <= set(bodies(self.lane.client.received(self.consumer, 0)))

        wait_until(has_all, timeout_s=_END_S, what=f"{', '.join(kinds)} at {self.consumer}")
        received = self.lane.client.received(self.consumer, 0)
        return [message for message in received if message["body"] in names]

    def checks(self, kind: str, producer: TransactionProducer | None = None) -> list[Fields]:
        """What a producer was asked about transactions of a kind."""
        names = set(bodies(self.sent[kind]))
        return [asked for asked in (producer or self.producer).checks() if asked["body"] in names]

    def wait_checks(self, kind: str, times: int, producer: TransactionProducer | None = None) -> list[Fields]:
        """The same, once it was asked so often about each."""

        def has_all() -> bool:
            asked = Counter(bodies(self.checks(kind, producer)))
            return all(asked[name] >= times for name in bodies(self.sent[kind]))

        wait_until(has_all, timeout_s=_END_S, what=f"{times} questions for {kind} of {self.topic}")
        return self.checks(kind, producer)


def begin(lane: Lane) -> Story:
    """Start a consumer and the producers of two groups."""
    topic = lane.new_topic("transactions", queues=2)
    consumer = lane.start_consumer(topic)
    producer = start_producer(lane, lane.new_name("group"))
    return Story(lane, topic, consumer, producer, start_producer(lane, lane.new_name("left")), {})


def send_all(story: Story) -> None:
    """Send transactions of every kind."""
    story.producer.wait_known()
    for kind, (local, checked) in _KINDS.items():
        # Large enough to be compressed, which is to be known of a half message too.
        options = {"local": local, "checked": checked, "size": _SIZE}
        story.sent[kind] = story.producer.send(story.topic, kind, 2, **options)
    story.sent["immune"] = story.producer.send(
        story.topic, "immune", local="unknown", checked="commit", immunitySeconds=_IMMUNITY_S
    )
    story.heir.wait_known()
    gone = start_producer(story.lane, story.heir.group)
    story.sent["left"] = gone.send(story.topic, "left", local="unknown", checked="commit")
    gone.stop()


@pytest.fixture(scope="module")
def stories(lanes: dict[str, Lane]) -> Iterator[dict[str, Story]]:
    """Every story by the name of its lane, all on their way."""
    begun = {name: begin(lane) for name, lane in lanes.items()}
    for story in begun.values():
        send_all(story)
    yield begun
    for story in begun.values():
        story.producer.stop()
        story.heir.stop()
        story.lane.client.stop(story.consumer)


# -- ends ----------------------------------------------------------------------------------------------------


@every_lane
def test_a_committed_message_comes_as_it_was_sent(stories: dict[str, Story], lane_name: str) -> None:
    story = stories[lane_name]
    sent = {message["body"]: message for message in story.sent["committed"]}
    assert {message["state"] for message in sent.values()} == {"COMMIT_MESSAGE"}
    for message in story.wait_received("committed"):
        original = sent[message["body"]]
        assert message["topic"] == story.topic
        for name in ("msgId", "keys", "tags", "size", "crc", "queueId"):
            assert message[name] == original[name], name
        assert message["sysFlag"] & MessageSysFlag.TRANSACTION_MASK == MessageSysFlag.TRANSACTION_COMMIT_TYPE
        properties = message["properties"]
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", story.producer.group)
        assert properties["number"] == original["body"].rpartition("-")[2]
        # 4.9.7 does not tell the id of a transaction to the sender.
        assert original["transactionId"] == (None if story.lane.broker == "4.9.7" else message["msgId"])


@every_lane
def test_a_producer_with_an_unknown_outcome_is_checked(stories: dict[str, Story], lane_name: str) -> None:
    story = stories[lane_name]
    for kind in ("asked-commit", "asked-rollback"):
        sent = {message["body"]: message for message in story.sent[kind]}
        assert {message["state"] for message in sent.values()} == {"UNKNOW"}
        for asked in story.wait_checks(kind, 1):
            original = sent[asked["body"]]
            assert (asked["topic"], asked["keys"], asked["crc"]) == (
                story.topic,
                original["keys"],
                original["crc"],
            )
            assert asked["transactionId"] == original["msgId"]
            assert asked["askedMs"] - asked["bornTimestamp"] >= _TIMEOUT_MS
    story.wait_received("asked-commit")


@every_lane
def test_any_producer_of_the_group_answers_for_one_that_has_gone(
    stories: dict[str, Story], lane_name: str
) -> None:
    story = stories[lane_name]
    asked = story.wait_checks("left", 1, story.heir)
    assert set(bodies(asked)) == set(bodies(story.sent["left"]))
    story.wait_received("left")


@every_lane
def test_no_check_is_sent_before_the_immunity_time_is_over(stories: dict[str, Story], lane_name: str) -> None:
    story = stories[lane_name]
    for asked in story.wait_checks("immune", 1):
        assert asked["askedMs"] - asked["bornTimestamp"] >= _IMMUNITY_S * 1000
        # Apache's counts every look at a half message, ours every question.
        times = int(asked["properties"]["TRANSACTION_CHECK_TIMES"])
        assert times == 1 or story.lane.broker != KOUROU
    story.wait_received("immune")


@every_lane
def test_a_half_message_is_given_up_after_the_last_question(
    stories: dict[str, Story], lane_name: str
) -> None:
    story = stories[lane_name]
    names = set(bodies(story.sent["never"]))
    reader = story.lane.start_consumer(RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC)
    given_up: list[Fields] = []

    def has_all() -> bool:
        received = story.lane.client.received(reader, 0)
        given_up[:] = [
            message
            for message in received
            if message["body"] in names and message["properties"]["PGROUP"] == story.producer.group
        ]
        return set(bodies(given_up)) == names

    wait_until(has_all, timeout_s=_END_S, what=f"what was given up of {story.topic}")
    story.lane.client.stop(reader)
    assert sorted(bodies(given_up)) == sorted(names)
    for message in given_up:
        properties = message["properties"]
        assert properties["TRANSACTION_CHECK_TIMES"] == str(_CHECK_MAX)
        assert properties["REAL_TOPIC"] == story.topic
    assert Counter(bodies(story.checks("never"))) == dict.fromkeys(names, _CHECK_MAX)


@every_lane
def test_a_transaction_has_one_end(stories: dict[str, Story], lane_name: str) -> None:
    """Once all questions are asked: what was committed has come once, and nothing else has come."""
    story = stories[lane_name]
    kinds = ("committed", "asked-commit", "left", "immune")
    story.wait_checks("never", _CHECK_MAX)
    story.wait_received(*kinds)
    received = story.lane.client.received(story.consumer, 0)
    assert sorted(bodies(received)) == sorted(name for kind in kinds for name in bodies(story.sent[kind]))
    # Neither is asked for that has ended.
    assert story.checks("committed") == story.checks("rolled-back") == []


# -- what is none --------------------------------------------------------------------------------------------


@every_java_lane
@pytest.mark.parametrize("options", [{"delayLevels": 1}, {"batch": True}], ids=["delayed", "in a batch"])
def test_a_half_message_that_is_delayed_or_in_a_batch_is_refused(
    lanes: dict[str, Lane], lane_name: str, options: dict[str, object]
) -> None:
    """By ours, with words; Apache's takes it for something else. The client's own method sends neither."""
    lane = lanes[lane_name]
    producer, topic = start_producer(lane, lane.new_name("group")), lane.new_topic("marked")
    if lane.broker == KOUROU:
        with pytest.raises(CommandFailed, match="CODE: 13 .*transactional message"):
            producer.send_marked(topic, "marked", **options)
    else:
        assert producer.send_marked(topic, "marked", **options)["status"] == "SEND_OK"
    producer.stop()


@every_lane
def test_a_delay_that_is_set_on_a_transaction(lanes: dict[str, Lane], lane_name: str) -> None:
    """Java's 4.9 drops it and its 5.5 refuses; Go's sends it, which ours refuses and Apache's takes."""
    lane = lanes[lane_name]
    producer, topic = start_producer(lane, lane.new_name("group")), lane.new_topic("delayed")
    problem = {
        "5.5.0-5.5.0": "Transactional messages do not support delayed delivery",
        f"5.5.0-{KOUROU}": "Transactional messages do not support delayed delivery",
        f"{GO}-{KOUROU}": "transactional message cannot be delayed",
    }.get(lane_name)
    with pytest.raises(CommandFailed, match=problem) if problem else nullcontext():
        producer.send(topic, "delayed", local="commit", checked="commit", delayLevels=1)
    producer.stop()


# -- a restart -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def restarted(lanes: dict[str, Lane], stories: dict[str, Story]) -> Iterator[dict[str, Story]]:
    """Stories in whose middle the broker was killed and started again; then one more producer came."""
    # Before their brokers are killed, the others are over.
    for story in stories.values():
        story.wait_checks("never", _CHECK_MAX)
    begun: dict[str, Story] = {}
    for broker in {lane.broker: None for lane in lanes.values()}:
        mine = {name: lane for name, lane in lanes.items() if lane.broker == broker}
        begun |= restart_amid(next(iter(mine.values())).cluster, mine)
    yield begun
    for story in begun.values():
        story.producer.stop()
        story.heir.stop()
        story.lane.client.stop(story.consumer)


def restart_amid(cluster: BrokerCluster, lanes: dict[str, Lane]) -> dict[str, Story]:
    """Send transactions in all lanes of a broker, kill it, start it again with one more producer for each."""
    producers = {name: start_producer(lane, lane.new_name("group")) for name, lane in lanes.items()}
    topics = {name: lane.new_topic("restarted", queues=2) for name, lane in lanes.items()}
    sent: dict[str, dict[str, list[Fields]]] = {}
    for name, producer in producers.items():
        producer.wait_known()
        sent[name] = {
            kind: producer.send(topics[name], kind, local=local, checked=checked)
            for kind, (local, checked) in _KINDS_KILLED.items()
        }
    cluster.broker.kill()
    cluster.start_again()
    stories: dict[str, Story] = {}
    for name, lane in lanes.items():
        # New clients: Go's producer comes back to a broker that was killed after half a minute, and so does
        # the consumer of 4.9.
        heir = start_producer(lane, producers[name].group)
        consumer = lane.start_consumer(topics[name])
        stories[name] = Story(lane, topics[name], consumer, producers[name], heir, sent[name])
    return stories


@every_lane
def test_half_messages_that_outlive_a_kill_of_the_broker_are_asked_for(
    restarted: dict[str, Story], lane_name: str
) -> None:
    story = restarted[lane_name]
    received = story.wait_received("committed", "asked-commit")
    for kind in ("asked-commit", "asked-rollback"):
        names = set(bodies(story.sent[kind]))

        def has_all(kind: str = kind, names: set[str] = names) -> bool:
            asked = (*story.checks(kind), *story.checks(kind, story.heir))
            return names == set(bodies(asked))

        wait_until(has_all, timeout_s=_END_S, what=f"questions for {kind} of {story.topic}")
    everything = story.lane.client.received(story.consumer, 0)
    assert set(bodies(everything)) == set(bodies(received))
    if story.lane.broker == KOUROU:
        # Apache's, killed, may ask again for what has ended, and deliver it twice.
        assert len(everything) == len(received) == len(set(bodies(received)))
