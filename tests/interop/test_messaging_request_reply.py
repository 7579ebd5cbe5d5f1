"""Official Java clients ask and answer through the broker: who asks gets the reply, or an error in time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

from tests.interop.kit.lanes import JAVA_LANES, Lane, lane_params
from tests.interop.kit.messaging_session import CommandFailed, Fields

pytestmark = pytest.mark.interop

_TIMEOUT_MS: Final = 1_000


@pytest.fixture(params=lane_params(JAVA_LANES))
def lane(request: pytest.FixtureRequest, lanes: dict[str, Lane]) -> Lane:
    return lanes[request.param]


@pytest.fixture
def requester(lane: Lane) -> Iterator[str]:
    """A producer that sends requests, without a retry."""
    name = start_requester(lane)
    yield name
    lane.client.ask("stop", name=name)


def start_requester(lane: Lane) -> str:
    """Start a producer that the broker knows: a client under load may ask before its first heartbeat is
    through, and the reply then finds no client."""
    name, topic = lane.start_producer(), lane.new_topic("known")
    responder = start_responder(lane, topic)
    for _ in range(3):
        with suppress(CommandFailed):
            request(lane, name, topic, "known", mode="sync", timeoutMs=5_000)
            break
    lane.client.ask("stop", name=responder)
    return name


def start_responder(lane: Lane, topic: str, **options: object) -> str:
    """Start a consumer that answers; its name."""
    name = lane.new_name("responder")
    lane.client.ask(
        "start-responder", name=name, group=name, namesrv=lane.cluster.namesrv, topic=topic, **options
    )
    return name


def request(lane: Lane, producer: str, topic: str, label: str, **options: object) -> Any:
    """Ask, and wait for the reply."""
    return lane.client.ask("request", producer=producer, topic=topic, label=label, **options)


def replies(lane: Lane, responder: str, count: int) -> list[Fields]:
    """What a responder was asked, and what became of its answers."""
    answered: list[Fields] = lane.client.ask("replies", responder=responder, count=count)
    return answered


def test_a_reply_reaches_the_requester(lane: Lane, requester: str) -> None:
    topic = lane.new_topic("asked")
    responder, other = start_responder(lane, topic), start_requester(lane)
    for number, mode in enumerate(("sync", "async", "queue")):
        for producer in (requester, other):
            label = f"{mode}-{producer}"
            answer = request(lane, producer, topic, label, mode=mode, queue=2)
            reply = answer["reply"]
            assert reply["body"] == f"reply-to-{label}-0"
            assert reply["properties"]["answers"] == answer["msgId"]
            assert reply["topic"] == "DefaultCluster_REPLY_TOPIC"
        answered = replies(lane, responder, 2 * number + 2)[-2:]
        assert [reported["result"] for reported in answered] == ["SEND_OK", "SEND_OK"]
        assert all(reported["queueId"] == 2 for reported in answered if mode == "queue")
    lane.client.stop(responder, other)


def test_a_large_reply_comes_whole(lane: Lane, requester: str) -> None:
    """Compressed by the responder, with a flag for the requester."""
    topic = lane.new_topic("asked-large")
    responder = start_responder(lane, topic, size=100_000)
    reply = request(lane, requester, topic, "large")["reply"]
    assert (reply["body"], reply["size"]) == ("reply-to-large-0", 100_000)
    lane.client.stop(responder)


def test_a_request_without_a_responder_fails(lane: Lane, requester: str) -> None:
    topic = lane.new_topic("unanswered")
    for mode in ("sync", "async"):
        with pytest.raises(CommandFailed, match="RequestTimeoutException"):
            request(lane, requester, topic, mode, mode=mode, timeoutMs=_TIMEOUT_MS)


@pytest.mark.parametrize("is_gone", [False, True], ids=["still there", "gone"])
def test_a_late_responder_learns_whether_the_reply_was_accepted(
    lane: Lane, requester: str, is_gone: bool
) -> None:
    topic = lane.new_topic("late")
    responder = start_responder(lane, topic, slowMs=2 * _TIMEOUT_MS)
    with pytest.raises(CommandFailed, match="RequestTimeoutException"):
        request(lane, requester, topic, "late", timeoutMs=_TIMEOUT_MS)
    if is_gone:
        lane.client.stop(requester)
    (answered,) = replies(lane, responder, 1)
    assert ("not found" in answered["result"]) is is_gone, answered["result"]
    assert (answered["result"] == "SEND_OK") is not is_gone, answered["result"]
    lane.client.stop(responder)
