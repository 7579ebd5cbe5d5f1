"""What a client for gRPC does at a proxy, and what came of it: the same scenario at Apache's and at ours has
the same outcome.

An outcome holds names, counts, orders and status codes, nothing that differs from run to run; ids and times
are compared within the scenario. Scenarios run side by side, in threads. Waits are bounded: a message that
does not come is missing in the outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kourou import Message
from kourou.errors import NoRouteError
from tests.interop.kit.grpc.client import CallFailed, Fields, GrpcClient
from tests.interop.kit.grpc.sides import GrpcSide

Outcome: TypeAlias = dict[str, Any]
Scenario: TypeAlias = Callable[["Scene"], Outcome]

_WAIT_S: Final = 25
"""For messages, also on a machine that is busy."""
_INVISIBLE_MS: Final = 30_000
_STARTS: Final = 3
# Python's client does not wait for its settings: a receive may be there first.
_NO_SETTINGS: Final = (40015, 50001)


@dataclass(slots=True)
class Scene:
    """A client at a side; what is started here ends with the scenario."""

    client: GrpcClient
    side: GrpcSide
    _started: list[str] = field(default_factory=list)

    def start(self, kind: str, **options: object) -> str:
        """Start a producer or consumer; its name. Clients give up after three seconds, which may be too short
        for a server that has just started, on a busy machine: they are started again."""
        for attempt in range(_STARTS):
            name = self.side.new_name(kind)
            try:
                self.client.ask(f"start-{kind}", name=name, endpoints=self.side.endpoints, **options)
                break
            except CallFailed:
                if attempt == _STARTS - 1:
                    raise
        # A push consumer would wait for its long polls to end: it ends with its process.
        if kind != "push":
            self._started.append(name)
        return name

    def ends(self, name: str) -> None:
        """What was started by other commands ends with the scenario."""
        self._started.append(name)

    def producer(self, topic: str, **options: object) -> str:
        """Start a producer of a topic."""
        return self.start("producer", topics=topic, **options)

    def send(self, producer: str, topic: str, *bodies: str, **options: object) -> list[Fields]:
        """Send one message after the other, all of them with success."""
        sent = self.try_send(producer, topic, *bodies, **options)
        assert set(codes(sent)) == {20000}, sent
        return sent

    def try_send(self, producer: str, topic: str, *bodies: str, **options: object) -> list[Fields]:
        """Send one message after the other; what each send ended with."""
        sent: list[Fields] = self.client.ask(
            "send", producer=producer, topic=topic, bodies=list(bodies), **options
        )
        return sent

    def receive(
        self, consumer: str, count: int, *, is_acked: bool = True, wait_s: float = _WAIT_S, **options: object
    ) -> list[Fields]:
        """Receive until there are `count` messages, or the time is over."""
        came: list[Fields] = []
        deadline = time.monotonic() + wait_s
        while len(came) < count and time.monotonic() < deadline:
            for message in self._receive(consumer, {"count": 16, "invisibleMs": _INVISIBLE_MS, **options}):
                came.append(message)
                if is_acked:
                    self.client.ask("ack", consumer=consumer, number=message["number"])
        return came

    def receive_until(self, consumer: str, body: str) -> bool:
        """Receive until a message is there, among others; whether it has come in time."""
        deadline = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            if body in bodies(self.receive(consumer, 1, wait_s=1)):
                return True
        return False

    def _receive(self, consumer: str, options: dict[str, object]) -> list[Fields]:
        try:
            came: list[Fields] = self.client.ask("receive", consumer=consumer, **options)
            return came
        except CallFailed as failed:
            if failed.code not in _NO_SETTINGS:
                raise
            time.sleep(0.2)
            return []

    def received(
        self, consumer: str, count: int, *, wait_s: float = _WAIT_S, calls: bool = False
    ) -> list[Fields]:
        """What a push consumer has received, once there are `count` messages, or the time is over."""
        came: list[Fields] = self.client.ask(
            "received", consumer=consumer, count=count, timeoutMs=int(wait_s * 1000), calls=calls
        )
        return came

    def code(self, command: str, **options: object) -> int:
        """The status code that a command ends with: 20000 where it succeeds, 0 where the client refuses."""
        try:
            self.client.ask(command, **options)
        except CallFailed as failed:
            return failed.code
        return 20000

    def close(self) -> None:
        """Stop what was started."""
        for name in reversed(self._started):
            with suppress(CallFailed):
                self.client.ask("stop", name=name)


def run(scenario: Scenario, client: GrpcClient, side: GrpcSide) -> Outcome:
    """Run a scenario; its outcome."""
    scene = Scene(client, side)
    try:
        return scenario(scene)
    finally:
        scene.close()


def bodies(messages: Iterable[Fields]) -> list[str]:
    """The names of messages, in order."""
    return [message["body"] for message in messages]


def attempts(messages: Iterable[Fields]) -> dict[str, list[int]]:
    """The delivery attempts of each message, in order."""
    seen: dict[str, list[int]] = {}
    for message in messages:
        seen.setdefault(message["body"], []).append(message["attempt"])
    return dict(sorted(seen.items()))


def codes(sent: Iterable[Fields]) -> list[int]:
    """What sends ended with: 20000 where one succeeded, 0 where the client refused."""
    return [one["code"] if "error" in one else 20000 for one in sent]


_TOLD: Final = ("body", "size", "crc", "keys", "attempt")
_TOLD_IF_ANY: Final = ("tag", "group", "properties")


def told(messages: Iterable[Fields], sent: Iterable[Fields]) -> list[Outcome]:
    """What clients are told of messages, by name; ids are those of the sends."""
    ids = {one["messageId"] for one in sent}
    outcomes = [
        {
            **{key: message[key] for key in _TOLD},
            # Without one it is null or empty, as the language has it.
            **{key: message[key] for key in _TOLD_IF_ANY if message[key]},
            "isKnownId": message["messageId"] in ids,
        }
        for message in messages
    ]
    return sorted(outcomes, key=lambda outcome: str(outcome["body"]))


# -- scenarios -----------------------------------------------------------------------------------------------


def normal(scene: Scene) -> Outcome:
    """Messages with all that a message can have, received and acknowledged."""
    topic, group = scene.side.new_topic("normal"), scene.side.new_group()
    producer = scene.producer(topic)
    sent = scene.send(producer, topic, "plain")
    sent += scene.send(producer, topic, "größer", "full", tag="TagA", keys="k1,k2", properties="city=Köln")
    sent += scene.send(producer, topic, "large", size=1_000_000)
    consumer = scene.start("simple", topic=topic, group=group)
    came = scene.receive(consumer, len(sent))
    return {
        "messages": told(came, sent),
        "topics": sorted({message["topic"] == topic for message in came}),
        "bornHosts": all(message["bornHost"] for message in came),
        "left": bodies(scene.receive(consumer, 1, wait_s=1)),
    }


def invisible(scene: Scene) -> Outcome:
    """Acknowledged, made visible earlier, and left alone until the time is over."""
    topic, group = scene.side.new_topic("invisible", queues=1), scene.side.new_group()
    scene.send(scene.producer(topic), topic, "acked", "changed", "late")
    consumer = scene.start("simple", topic=topic, group=group)
    first = {one["body"]: one for one in scene.receive(consumer, 3, is_acked=False)}

    def code(command: str, body: str, **options: object) -> int:
        return scene.code(command, consumer=consumer, number=first[body]["number"], **options)

    result: Outcome = {"ack": code("ack", "acked"), "ack again": code("ack", "acked")}
    result["change"] = code("change", "changed", invisibleMs=1000)
    result["change late"] = code("change", "late", invisibleMs=1000)
    again = scene.receive(consumer, 2)
    result["again"] = attempts(again)
    # Its handle is of the first delivery, and over.
    result["ack late"] = code("ack", "late")
    result["change after"] = code("change", "changed", invisibleMs=10_000)
    result["too short"] = scene.code("receive", consumer=consumer, invisibleMs=5_000)
    result["left"] = bodies(scene.receive(consumer, 1, wait_s=1))
    return result


def fifo(scene: Scene) -> Outcome:
    """Message groups in order; the queue of a group is the same at all proxies."""
    topic, group = scene.side.new_topic("fifo", "FIFO"), scene.side.new_group(is_orderly=True)
    groups = ("alpha", "beta", "gamma", "größe")
    producer = scene.producer(topic)
    for number in range(4):
        for name in groups:
            scene.send(producer, topic, f"{name}-{number}", group=name)
    consumer = scene.start("push", topic=topic, group=group)
    came = scene.received(consumer, 4 * len(groups))
    stored = scene.side.stored(topic)
    return {
        "order": {name: [one["body"] for one in came if one["group"] == name] for name in groups},
        "attempts": attempts(came),
        "queues": {
            name: sorted({one.queue_id for one in stored if one.properties["__SHARDINGKEY"] == name})
            for name in groups
        },
    }


def fifo_failure(scene: Scene) -> Outcome:
    """A message that always fails holds its message group back until it is a dead letter."""
    topic = scene.side.new_topic("fifo-failure", "FIFO", queues=1)
    group = scene.side.new_group(is_orderly=True, retries=1)
    scene.send(scene.producer(topic), topic, "one", "two-bad", "three", group="alpha")
    consumer = scene.start("push", topic=topic, group=group, failing="-bad", fails=-1)
    came = scene.received(consumer, 3)
    return {"calls": bodies(came), "dead": _dead_letters(scene, group, topic)}


def retry(scene: Scene) -> Outcome:
    """A message whose listener fails comes again, the next attempt."""
    topic, group = scene.side.new_topic("retry"), scene.side.new_group()
    consumer = scene.start("push", topic=topic, group=group, failing="-bad", fails=1)
    sent = scene.send(
        scene.producer(topic), topic, "good", "first-bad", tag="TagA", keys="k1", properties="price=12"
    )
    came = scene.received(consumer, 3, calls=True)
    return {"attempts": attempts(came), "messages": told(came, sent)}


def dead_letter(scene: Scene) -> Outcome:
    """A message that fails too often ends as a dead letter."""
    topic, group = scene.side.new_topic("dead"), scene.side.new_group(retries=1)
    consumer = scene.start("push", topic=topic, group=group, failing="-bad", fails=-1)
    scene.send(scene.producer(topic), topic, "good", "always-bad", tag="TagA", properties="price=12")
    scene.received(consumer, 3, calls=True)
    dead = _dead_letters(scene, group, topic)
    return {"attempts": attempts(scene.received(consumer, 3, calls=True)), "dead": dead}


def _dead_letters(scene: Scene, group: str, topic: str) -> list[Outcome]:
    """The dead letters of a group, once there is one."""
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        with suppress(NoRouteError):  # there is no such topic before its first message
            if found := scene.side.stored(f"%DLQ%{group}"):
                return [
                    {
                        "body": one.body.decode(),
                        "reconsumeTimes": one.reconsume_times,
                        "properties": _steady(one.properties, {topic: "TOPIC", group: "GROUP"}),
                    }
                    for one in found
                ]
        time.sleep(0.2)
    return []


def delay(scene: Scene) -> Outcome:
    """Messages for later, one of which is taken back."""
    topic, group = scene.side.new_topic("delay", "DELAY"), scene.side.new_group()
    producer = scene.producer(topic)
    sent = scene.send(producer, topic, "later", delayMs=3_000, tag="TagA")
    sent += scene.send(producer, topic, "past", delayMs=-3_000)
    recalled = scene.send(producer, topic, "recalled", delayMs=6_000)[0]
    recall = {"producer": producer, "topic": topic}
    handle = recalled["recallHandle"]
    result: Outcome = {
        "recalled": scene.client.ask("recall", handle=handle, **recall) == recalled["messageId"],
        "recalled again": scene.code("recall", handle=handle, **recall),
        "no handle": scene.code("recall", handle="bm90IGEgaGFuZGxl", **recall),
    }
    consumer = scene.start("simple", topic=topic, group=group)
    came = scene.receive(consumer, 2)
    result["messages"] = told(came, sent)
    result["early"] = [
        one["body"]
        for one in came
        if one["body"] == "later" and one["receivedMs"] < one["bornTimestamp"] + 1_900
    ]
    result["has delivery time"] = {one["body"]: bool(one["deliveryTimestamp"]) for one in came}
    result["left"] = bodies(scene.receive(consumer, 1, wait_s=4))
    return result


def transaction(scene: Scene) -> Outcome:
    """Transactions with an end, and those whose owner is asked."""
    topic, group = scene.side.new_topic("transaction", "TRANSACTION"), scene.side.new_group()
    producer = scene.producer(topic, checker=True)
    scene.client.ask(
        "send-transactions",
        producer=producer,
        topic=topic,
        bodies=["commit-1", "rollback-1"],
        tag="TagA",
        properties="price=12",
    )
    scene.client.ask(
        "send-transactions",
        producer=producer,
        topic=topic,
        bodies=["commit-2", "rollback-2"],
        end=False,
        tag="TagB",
        properties="price=13",
    )
    consumer = scene.start("simple", topic=topic, group=group)
    asked = scene.client.ask("checks", producer=producer, count=2, timeoutMs=_WAIT_S * 1000)
    came = scene.receive(consumer, 2)
    # On a slow machine the owner may be asked before it has said how a transaction ends.
    orphans = {"commit-2", "rollback-2"}
    return {
        "received": sorted(
            {(one["body"], one["tag"], one["properties"].get("price"), one["attempt"]) for one in came}
        ),
        "asked": sorted(orphans.intersection(bodies(asked))),
    }


def filters(scene: Scene) -> Outcome:
    """Subscriptions by tag and by SQL, of both kinds of consumers."""
    topic = scene.side.new_topic("filters")
    producer = scene.producer(topic)
    scene.send(producer, topic, "a1", "a2", tag="A", properties="n=1;region=eu")
    scene.send(producer, topic, "b1", tag="B", properties="n=2;region=us")
    scene.send(producer, topic, "c1", tag="C", properties="n=3;region=eu")
    scene.send(producer, topic, "none")
    chosen: dict[str, Any] = {
        "tags": {"expression": "A || C"},
        "sql": {"sql": "n >= 2 AND region = 'eu'"},
        "sql tags": {"sql": "TAGS IN ('B', 'C') OR region IS NULL"},
    }
    counts = {"tags": 3, "sql": 1, "sql tags": 3}
    result: Outcome = {}
    for name, expression in chosen.items():
        consumer = scene.start("simple", topic=topic, group=scene.side.new_group(), **expression)
        came = scene.receive(consumer, counts[name], wait_s=10)
        result[name] = sorted(bodies(came))
    consumer = scene.start("push", topic=topic, group=scene.side.new_group(), sql=chosen["sql"]["sql"])
    result["push"] = bodies(scene.received(consumer, 1))
    return result


def refusals(scene: Scene) -> Outcome:
    """What is refused, and by which code: by the proxy, or by the client itself (0)."""
    topics = {
        kind: scene.side.new_topic("refusals", kind) for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
    }
    # Node's client may never be ready with several topics: it misses settings that come before the last
    # route.
    producers = {topic: scene.producer(topic) for topic in topics.values()}

    def send(topic: str, body: str = "m", **options: object) -> int:
        producer = producers.get(topic, producers[topics["NORMAL"]])
        return codes(scene.try_send(producer, topic, body, **options))[0]

    result: Outcome = {
        "unknown topic": send("no-such-topic"),
        "system topic": send("RMQ_SYS_TRACE_TOPIC"),
        "normal to fifo": send(topics["FIFO"]),
        "fifo to normal": send(topics["NORMAL"], group="alpha"),
        "delay to normal": send(topics["NORMAL"], delayMs=5_000),
        "normal to delay": send(topics["DELAY"]),
        "normal to transaction": send(topics["TRANSACTION"]),
        "too far": send(topics["DELAY"], delayMs=30 * 86_400_000),
        "empty body": send(topics["NORMAL"], ""),
        "too large": send(topics["NORMAL"], size=4 * 1024 * 1024 + 1),
        "tag": send(topics["NORMAL"], tag="a|b"),
        "large properties": send(topics["NORMAL"], properties=f"large={'x' * 20_000}"),
        "reserved property": send(topics["NORMAL"], properties="UNIQ_KEY=x"),
        "long message group": send(topics["FIFO"], group="x" * 100),
    }
    subscription = {"endpoints": scene.side.endpoints, "group": scene.side.new_group()}
    unknown = scene.side.new_name("simple")
    result["subscription to nothing"] = scene.code(
        "start-simple", name=unknown, topic="no-such-topic", **subscription
    )
    return result


def to_remoting(scene: Scene) -> Outcome:
    """Messages sent by gRPC, as remoting clients see them."""
    result: Outcome = {}
    for kind, options in (
        ("NORMAL", {"tag": "TagA", "keys": "k1,k2", "properties": "price=12;city=Köln"}),
        ("FIFO", {"group": "alpha", "keys": "k1"}),
        ("DELAY", {"delayMs": 3_000}),
    ):
        topic = scene.side.new_topic("to-remoting", kind, queues=1)
        sent = scene.send(scene.producer(topic), topic, "one", "two", **options)
        deadline = time.monotonic() + _WAIT_S
        while len(stored := scene.side.stored(topic)) < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
        result[kind] = [
            {
                "body": one.body.decode(),
                "id": one.properties.get("UNIQ_KEY") in {each["messageId"] for each in sent},
                "sysFlag": one.sys_flag,
                "properties": _steady(one.properties, {topic: "TOPIC"}),
            }
            for one in stored
        ]
    return result


# Of the run, not of the message: ids, times and hosts.
_VARYING: Final = (
    *("UNIQ_KEY", "CLUSTER", "__BORNHOST", "BORN_TIMESTAMP", "PGROUP", "TRACE_CONTEXT", "1ST_POP_TIME"),
    *("TIMER_DELIVER_MS", "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "ORIGIN_MESSAGE_ID"),
)


def _steady(properties: dict[str, str], names: dict[str, str]) -> dict[str, str]:
    """Properties, with a sign in place of values and names that no two runs have in common."""
    steady = {}
    # Apache's proxy stores that a new message was not delivered yet.
    properties = {key: value for key, value in properties.items() if (key, value) != ("RECONSUME_TIME", "0")}
    for key, value in sorted(properties.items()):
        for name, sign in names.items():
            value = value.replace(name, sign)
        # Python's client has its keys in a set.
        value = " ".join(sorted(value.split(" "))) if key == "KEYS" else value
        steady[key] = "…" if key in _VARYING else value
    return steady


def from_remoting(scene: Scene) -> Outcome:
    """Messages sent by remoting, as clients for gRPC see them."""
    topic, group = scene.side.new_topic("from-remoting"), scene.side.new_group()
    consumer = scene.start("push", topic=topic, group=group)
    scene.side.send(
        Message(topic, b"plain"),
        Message(topic, b"full", tags="TagA", keys=["k1", "k2"], properties={"price": "12", "city": "Köln"}),
        Message(topic, b"sharded", properties={"__SHARDINGKEY": "alpha"}),
    )
    return {"messages": told(scene.received(consumer, 3), ())}


def compressed(scene: Scene) -> Outcome:
    """A body that a remoting client has compressed."""
    topic, group = scene.side.new_topic("compressed", queues=1), scene.side.new_group()
    consumer = scene.start("push", topic=topic, group=group)
    scene.side.send(Message(topic, b"large|" + b"x" * 100_000))
    return {"messages": told(scene.received(consumer, 1, wait_s=10), ())}


def priority(scene: Scene) -> Outcome:
    """Messages with priorities."""
    topic, group = scene.side.new_topic("priority", "PRIORITY"), scene.side.new_group()
    producer = scene.producer(topic)
    for number in (1, 2, 3):
        scene.send(producer, topic, f"p{number}", priority=number)
    consumer = scene.start("simple", topic=topic, group=group)
    came = scene.receive(consumer, 3)
    return {"priorities": {one["body"]: one.get("priority") for one in came}}


SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.__name__: scenario
    for scenario in (
        *(normal, invisible, fifo, fifo_failure, retry, dead_letter, delay, transaction, filters, refusals),
        *(to_remoting, from_remoting, compressed, priority),
    )
}
"""All scenarios by name."""
