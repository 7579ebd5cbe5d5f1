"""Official clients with keys: all that they do works at our broker with the accounts of either version of
RocketMQ, and what is refused is refused with the words of Apache's broker of that version.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.kit.access_accounts import NOBODY, OPEN, UNKNOWN, UNSIGNED, WORKER, WRONG_KEY, Identity
from tests.interop.kit.access_servers import PLAIN
from tests.interop.kit.access_world import RULES, AccessCluster, AccessWorld, ours, theirs
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.java_session import CLIENT_SETS
from tests.interop.kit.kourou_broker import BROKER_NAME
from tests.interop.kit.messaging_session import (
    CLIENTS,
    GO,
    CommandFailed,
    Messaging,
    bodies,
    go_messaging,
)

pytestmark = pytest.mark.interop

_TRACE: Final = "RMQ_SYS_TRACE_TOPIC"
_WAIT_S: Final = 45
_numbers: Final = itertools.count(1)
# What the client adds, and where the server is.
_MOMENTS: Final = re.compile(r"\.java:\d+|127\.0\.0\.1:\d+|For more information.*|See https?://.*|<[^>]*>")


@dataclass(frozen=True)
class Signed:
    """A client at a broker, whose producers and consumers sign with the keys of an identity."""

    client: Messaging
    cluster: AccessCluster
    identity: Identity

    @property
    def keys(self) -> dict[str, str]:
        """Options of every command that starts something."""
        options = {"namesrv": self.cluster.names}
        if self.identity.access_key:
            options |= {"accessKey": self.identity.access_key, "secretKey": self.identity.secret_key}
        return options

    def new_name(self, purpose: str) -> str:
        """A name that nothing else has."""
        return f"{purpose}-{self.client.label}-{next(_numbers)}"

    def new_topic(self, purpose: str) -> str:
        """A topic that no other scenario has."""
        return self.cluster.create_topic(self.new_name(purpose))

    def start_producer(self, **options: Any) -> str:
        """Start a producer; its name."""
        name = self.new_name("producer")
        self.client.ask("start-producer", name=name, group=name, **self.keys, **options)
        return name

    def start_consumer(self, topic: str, **options: Any) -> str:
        """Start a push consumer; its name, which is that of its group."""
        name = self.new_name("group")
        self.client.ask("start-consumer", name=name, group=name, topic=topic, **self.keys, **options)
        return name

    def send(self, producer: str, mode: str, topic: str, count: int, **options: Any) -> list[str]:
        """Send messages with success; their bodies."""
        options |= {"label": f"{mode}-{topic}", "queue": 0, "broker": BROKER_NAME}
        return bodies(self.client.send(producer, mode, topic, count, **options))

    def received(self, consumer: str, count: int, **options: Any) -> list[str]:
        """The bodies that a consumer got, once these are so many."""
        options = {"timeoutMs": _WAIT_S * 1000, **options}
        return bodies(self.client.ask("received", consumer=consumer, count=count, **options))


@pytest.fixture(params=RULES)
def rules(request: pytest.FixtureRequest) -> str:
    """The version whose accounts there are."""
    version: str = request.param
    return version


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, messaging: Callable[[str], Messaging]) -> Messaging:
    """An official client."""
    return messaging(request.param)


@pytest.fixture
def signed(client: Messaging, access_world: AccessWorld, rules: str) -> Signed:
    """The client at our broker, with keys that may send and receive nearly everything."""
    return Signed(client, access_world[ours(rules)], OPEN.identity)


def test_client_with_keys_sends_and_receives(signed: Signed) -> None:
    topic, ordered = signed.new_topic("plain"), signed.new_topic("ordered")
    consumer = signed.start_consumer(topic)
    orderly = signed.start_consumer(ordered, listener="orderly")
    producer = signed.start_producer()
    sent = [
        *signed.send(producer, "sync", topic, 5),
        *signed.send(producer, "async", topic, 5),
        *signed.send(producer, "batch", topic, 5),
        *signed.send(producer, "sync", topic, 2, delayLevels=1, first=100),
    ]
    in_order = signed.send(producer, "sync", ordered, 10)
    assert sorted(signed.received(consumer, len(sent))) == sorted(sent)
    assert signed.received(orderly, 10) == in_order
    signed.client.stop(producer, consumer, orderly)


def test_client_with_keys_retries_until_the_dead_letters(signed: Signed) -> None:
    topic = signed.new_topic("retry")
    consumer = signed.start_consumer(topic, fails=-1, maxTimes=1, delayLevel=1)
    producer = signed.start_producer()
    signed.send(producer, "sync", topic, 1)
    assert len(signed.received(consumer, 2, calls=True)) == 2
    dead = f"%DLQ%{consumer}"
    wait_until(lambda: signed.cluster.messages_in(dead) == 1, timeout_s=_WAIT_S, what=dead)
    signed.client.stop(producer, consumer)


def test_client_with_keys_ends_transactions_when_asked(signed: Signed) -> None:
    topic = signed.new_topic("transactions")
    consumer = signed.start_consumer(topic)
    name = signed.new_name("transactions")
    signed.client.ask("start-transactions", name=name, group=name, **signed.keys)
    for local, checked in (("commit", "unknown"), ("rollback", "unknown"), ("unknown", "commit")):
        options = {"label": f"{local}-{checked}", "local": local, "checked": checked}
        signed.client.ask("send-transactions", producer=name, topic=topic, count=1, **options)
    # The Go client names its producers at its second heartbeat, half a minute later (below).
    count = 1 if signed.client.name == GO else 2
    assert (
        sorted(signed.received(consumer, count))[:count] == ["commit-unknown-0", "unknown-commit-0"][:count]
    )
    signed.client.stop(name, consumer)


def test_go_client_with_keys_is_asked_about_transactions(
    access_world: AccessWorld, messaging: Callable[[str], Messaging]
) -> None:
    """Of both versions at a time, as the broker knows the producers after half a minute only."""
    client = messaging(GO)
    waiting = []
    for rules in RULES:
        signed = Signed(client, access_world[ours(rules)], OPEN.identity)
        topic, name = signed.new_topic("checked"), signed.new_name("checked")
        consumer = signed.start_consumer(topic)
        client.ask("start-transactions", name=name, group=name, **signed.keys)
        for checked in ("commit", "rollback"):
            options = {"label": checked, "local": "unknown", "checked": checked}
            client.ask("send-transactions", producer=name, topic=topic, count=1, **options)
        waiting.append((signed, name, consumer))
    for signed, name, consumer in waiting:
        assert signed.received(consumer, 1, timeoutMs=90_000) == ["commit-0"]
        client.stop(name, consumer)


def _answer(signed: Signed, producer: str, topic: str) -> Any:
    """Ask until there is a reply: a client may ask before the broker has its first heartbeat."""
    options = {"producer": producer, "topic": topic, "label": "question", "timeoutMs": 5_000}
    end = time.monotonic() + 2 * _WAIT_S
    while True:
        try:
            return signed.client.ask("request", **options)
        except CommandFailed:
            if time.monotonic() > end:
                raise


def test_client_with_keys_asks_and_answers(signed: Signed) -> None:
    topic = signed.new_topic("asked")
    producer, responder = signed.start_producer(), signed.new_name("responder")
    signed.client.ask("start-responder", name=responder, group=responder, topic=topic, **signed.keys)
    assert _answer(signed, producer, topic)["reply"]["body"] == "reply-to-question-0"

    def results() -> set[str]:
        replies = signed.client.ask("replies", responder=responder, count=1)
        return {reply["result"] for reply in replies}

    wait_until(lambda: "SEND_OK" in results(), timeout_s=_WAIT_S, what="the result of the reply")
    signed.client.stop(producer, responder)


def test_lite_pull_consumer_with_keys(signed: Signed) -> None:
    topic, group = signed.new_topic("polled"), signed.new_name("lite")
    producer = signed.start_producer()
    sent = signed.send(producer, "sync", topic, 5)
    signed.client.ask("start-lite", name=group, group=group, topic=topic, **signed.keys)
    polled = signed.client.ask("poll", consumer=group, count=len(sent), timeoutMs=_WAIT_S * 1000)
    assert sorted(bodies(polled)) == sorted(sent)
    signed.client.stop(group, producer)


@pytest.mark.parametrize("client", CLIENT_SETS, indirect=True)
def test_traces_need_no_permission_of_their_own_in_rocketmq_4(signed: Signed) -> None:
    _assert_traced(signed)


def test_traces_of_the_go_client(
    rules: str, access_world: AccessWorld, go_messaging_client: Messaging, tmp_path: Path
) -> None:
    """Of a process of its own: one with this client sends traces to one cluster only."""
    with go_messaging(tmp_path) as client:
        _assert_traced(Signed(client, access_world[ours(rules)], OPEN.identity))


def _assert_traced(signed: Signed) -> None:
    topic = signed.new_topic("traced")
    before = signed.cluster.messages_in(_TRACE)
    producer = signed.start_producer(trace="true")
    signed.send(producer, "sync", topic, 2)
    wait_until(lambda: signed.cluster.messages_in(_TRACE) > before, timeout_s=_WAIT_S, what="a trace")
    signed.client.stop(producer)


_REFUSED: Final = (NOBODY.identity, UNSIGNED, UNKNOWN, WRONG_KEY)


def test_refused_sends_show_the_words_of_apache(
    client: Messaging, access_world: AccessWorld, rules: str
) -> None:
    both = [access_world[place] for place in (ours(rules), theirs(rules))]
    topic = Signed(client, both[0], UNSIGNED).new_name("refused")
    shown = [_shown_errors(client, cluster, cluster.create_topic(topic)) for cluster in both]
    assert shown[0] == shown[1]
    assert len(set(shown[0].values())) >= len(_REFUSED), shown
    code = "AclException: " if rules == PLAIN else "CODE: 16"
    assert all(code in text for text in shown[0].values()), shown


def _shown_errors(client: Messaging, cluster: AccessCluster, topic: str) -> dict[str, str]:
    """What a sender sees, for each identity; without moments and places."""
    errors = {}
    for identity in (*_REFUSED, WORKER.identity):
        signed = Signed(client, cluster, identity)
        producer = signed.start_producer(retries=0)
        with pytest.raises(CommandFailed) as failure:
            # With a queue that the sender chose, Java's client shows the answer itself.
            signed.send(producer, "queue", topic, 1)
        text = str(failure.value).partition(": ")[2]
        errors[identity.name] = _MOMENTS.sub("", text)
        client.stop(producer)
    return errors
