"""Queue selectors: Java's hash, random choice, machine rooms."""

from __future__ import annotations

import pytest

from kourou.client.producer.queue_choice import (
    java_hash_of,
    select_by_hash,
    select_by_machine_room,
    select_by_random,
)
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.message import Message

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]
MESSAGE = Message("T", b"x")


# Values of Java's own Boolean, Integer, Long and String.
@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, 0),
        ("", 0),
        ("TagA", 2598919),
        ("polygenelubricants", -(1 << 31)),
        (True, 1231),
        (False, 1237),
        (0, 0),
        (-5, -5),
        ((1 << 31) - 1, (1 << 31) - 1),
        (1 << 31, -(1 << 31)),
        (1 << 32, 1),
        (0x1_0000_0001, 0),
        (-(1 << 63), -(1 << 31)),
        (-(1 << 31) - 1, -(1 << 31)),
        (1234567890123, 1912276436),
    ],
)
def test_hashes_are_javas(value: object, code: int) -> None:
    assert java_hash_of(value) == code


@pytest.mark.parametrize("value", [1 << 63, 1.5, b"x", object()])
def test_a_value_without_javas_hash_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="give text, or a number of 64 bits"):
        java_hash_of(value)


@pytest.mark.parametrize(
    ("arg", "queue_id"),
    [("TagA", 3), (7, 3), (-7, 3), (-4, 0), ("polygenelubricants", 0), (None, 0), (True, 3)],
)
def test_the_hash_decides_the_queue(arg: object, queue_id: int) -> None:
    assert select_by_hash(QUEUES, MESSAGE, arg).queue_id == queue_id


def test_random_reaches_every_queue_and_no_other() -> None:
    assert {select_by_random(QUEUES, MESSAGE, None) for _ in range(500)} == set(QUEUES)


def test_machine_rooms_by_the_brokers_names() -> None:
    queues = [MessageQueue("T", name, 0) for name in ("east@a", "west@b", "north@c", "plain")]
    assert {select_by_machine_room(queues, MESSAGE, "east") for _ in range(20)} == {queues[0]}
    chosen = {select_by_machine_room(queues, MESSAGE, ["east", "west"]) for _ in range(200)}
    assert chosen == set(queues[:2])
    with pytest.raises(
        ValueError, match="topic 'T' has no queue in machine room 'mars'; its brokers are east@a"
    ):
        select_by_machine_room(queues, MESSAGE, "mars")
    with pytest.raises(TypeError, match="a machine room is text"):
        select_by_machine_room(queues, MESSAGE, 3)
