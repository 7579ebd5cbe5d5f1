"""Official clients in order: each queue is consumed as it was sent, whatever happens to members and broker.

All lanes go through every event at the same time (fixture `orders`): a second member comes while the first
consumes, the broker is started again, the first member goes. Each lane has a topic of one queue, for the
order of all messages, and one of four.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import pytest

from kourou.protocol.names import dlq_topic
from tests.interop.kit import wire
from tests.interop.kit.broker_cluster import BrokerCluster
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.lanes import Lane, every_lane
from tests.interop.kit.messaging_session import Fields, bodies

pytestmark = pytest.mark.interop

_ROUND: Final = 24
# The listener fails once on each message whose name ends so, one at least in a round of a queue.
_FAILING: Final = "3"
# A lock that is left behind holds for 60 s, and members ask for it every 20.
_WAIT_S: Final = 100
_SUSPEND_MS: Final = 50


@dataclass(slots=True)
class Order:
    """An orderly group of a topic: its members, what was sent to it, and the event that failed, if any."""

    lane: Lane
    topic: str
    queues: int
    group: str
    members: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    sent: list[Fields] = field(default_factory=list)
    trouble: str = ""

    def add_member(self) -> None:
        """Start one more member, which takes its time for each message."""
        self.members.append(
            self.lane.start_consumer(
                self.topic,
                group=self.group,
                listener="orderly",
                fails=1,
                failing=_FAILING,
                suspendMs=_SUSPEND_MS,
                slowMs=10,
            )
        )

    def remove_member(self) -> None:
        """Stop the first member."""
        self.gone.append(self.members.pop(0))
        self.lane.client.stop(self.gone[-1])

    def send(self) -> None:
        """Send to every queue in turn."""
        for queue in range(self.queues):
            label = f"{len(self.sent)}"
            self.sent += self.lane.send(self.topic, _ROUND // self.queues, queue=queue, label=label)

    def is_shared(self) -> bool:
        """Whether the newest member gets messages; there is always one to get."""
        if self.has_all():
            self.send()
        return bool(self.lane.client.received(self.members[-1], 0))

    def calls(self) -> list[Fields]:
        """All calls of all listeners, in the order in which they took place."""
        members = (*self.gone, *self.members)
        calls = [call for member in members for call in self.lane.client.received(member, 0)]
        return sorted(calls, key=lambda call: int(call["turn"]))

    def expect(self, condition: Callable[[], bool], what: str) -> bool:
        """Wait for an event; one that does not come is trouble of this order, not of the other lanes."""
        try:
            wait_until(condition, timeout_s=_WAIT_S, what=f"{what} of {self.topic}")
        except AssertionError as late:
            self.trouble = str(late)
        return not self.trouble

    def wait_all(self) -> list[Fields]:
        """All calls, once every message has come."""
        assert self.expect(self.has_all, "all messages"), self.trouble
        return self.calls()

    def has_all(self) -> bool:
        """Whether every message has come."""
        return set(bodies(self.sent)) <= set(bodies(self.calls()))


def begin(lane: Lane, queues: int) -> Order:
    """A topic with an orderly group of one member."""
    topic = lane.new_topic(f"order-{queues}", queues)
    order = Order(lane, topic, queues, lane.new_name("orderly"))
    order.add_member()
    return order


@pytest.fixture(scope="module")
def orders(lanes: dict[str, Lane]) -> Iterator[dict[tuple[int, str], Order]]:
    """Every order by its number of queues and the name of its lane, after all events."""
    all_orders = {(queues, name): begin(lane, queues) for queues in (1, 4) for name, lane in lanes.items()}
    for order in all_orders.values():
        order.send()
    for order in rebalanced(all_orders):
        order.add_member()
    for order in rebalanced(all_orders):
        if order.queues > 1:
            order.expect(order.is_shared, "shares")
    for order in all_orders.values():
        order.send()
    restart({lane.broker: lane.cluster for lane in lanes.values()}.values())
    for order in all_orders.values():
        order.send()
    for order in rebalanced(all_orders):
        # A member that goes while it still connects again leaves its locks behind, for 60 s.
        if order.expect(order.has_all, "all messages before a member goes"):
            order.remove_member()
            order.send()
    yield all_orders
    for order in all_orders.values():
        order.lane.client.stop(*order.members)


def rebalanced(all_orders: dict[tuple[int, str], Order]) -> list[Order]:
    """Those whose members come and go: the Go client rebalances every 20 s and leaves locks behind for 60."""
    return [order for order in all_orders.values() if order.lane.is_java]


def restart(clusters: Collection[BrokerCluster]) -> None:
    """Stop all brokers in order and start them again, side by side."""
    for cluster in clusters:
        cluster.broker.request_stop()
    for cluster in clusters:
        cluster.broker.stop(timeout_s=30)
        cluster.broker = cluster.launch()
    for cluster in clusters:
        cluster.broker.wait_ready()
        cluster.wait_registered()


def by_queue(messages: Sequence[Fields]) -> dict[tuple[str, int], list[Fields]]:
    """Messages by broker and queue, in their order."""
    queues: dict[tuple[str, int], list[Fields]] = defaultdict(list)
    for message in messages:
        queues[message["broker"], message["queueId"]].append(message)
    return queues


def first_times(calls: list[Fields]) -> list[str]:
    """The messages in the order in which each came for the first time.

    A member that loses a queue, or whose broker is gone, may not have committed yet what it has consumed:
    the next owner begins with that again.
    """
    return list(dict.fromkeys(bodies(calls)))


@every_lane
@pytest.mark.parametrize("queues", [1, 4])
def test_each_queue_keeps_its_order_over_rebalance_restart_and_failures(
    orders: dict[tuple[int, str], Order], lane_name: str, queues: int
) -> None:
    order = orders[queues, lane_name]
    called = by_queue(order.wait_all())
    sent = by_queue(order.sent)
    assert called.keys() == sent.keys()
    for queue, messages in sent.items():
        assert first_times(called[queue]) == bodies(messages)


@every_lane
def test_what_fails_is_tried_again_before_the_next(
    orders: dict[tuple[int, str], Order], lane_name: str
) -> None:
    """In place: what follows in the queue waits for it."""
    order = orders[4, lane_name]
    failed = 0
    for calls in by_queue(order.wait_all()).values():
        for call, after in pairwise(calls):
            if call["body"].endswith(_FAILING) and call["reconsumeTimes"] == 0:
                failed += 1
                # Another member, which has the queue now, may begin earlier; none goes on with the next.
                assert after["queueOffset"] <= call["queueOffset"] or is_done(calls, call)
                if after["body"] == call["body"] and after["reconsumeTimes"] == 1:
                    # From the first call: another member may have got the queue and failed meanwhile.
                    assert after["receivedMs"] - first_call(calls, call)["receivedMs"] >= _SUSPEND_MS
    assert failed > 0


def is_done(calls: list[Fields], call: Fields) -> bool:
    """Whether this is not the first call with the message: members fail once on each."""
    return first_call(calls, call) is not call


def first_call(calls: list[Fields], call: Fields) -> Fields:
    """The first call with the message of a call."""
    return next(one for one in calls if one["body"] == call["body"])


@every_lane
def test_an_orderly_group_gives_up_where_configured(lanes: dict[str, Lane], lane_name: str) -> None:
    """After so many attempts in place the message is a dead letter, and the queue goes on."""
    lane = lanes[lane_name]
    topic = lane.new_topic("given-up", queues=1)
    group = lane.start_consumer(topic, listener="orderly", fails=-1, failing="-1", maxTimes=2, suspendMs=20)
    sent = lane.send(topic, 3)
    # The Go client counts from the first attempt on, and tells its listener that count too.
    attempts = 3 if lane.is_java else 4
    calls = lane.calls(group, attempts + 2)
    assert bodies(calls) == bodies([sent[0], *[sent[1]] * attempts, sent[2]])
    assert [call["reconsumeTimes"] for call in calls[1:-1]] == list(range(attempts))
    wire.wait_route(lane.cluster.namesrv, dlq_topic(group), lane.cluster.broker.address)
    reader = lane.start_consumer(dlq_topic(group))
    assert bodies(lane.client.received(reader, 1)) == [sent[1]["body"]]
    lane.client.stop(group, reader)
