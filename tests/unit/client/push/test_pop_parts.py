"""Decisions of a push consumer with `mode="pop"`: how much it takes, what it pops, how long failures wait."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kourou.client.push.consumer_options import ConsumerOptions
from kourou.client.push.pop_service import level_delay_ms, popped_sources, room_for
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.bodies.assignment import MessageQueueAssignment, MessageRequestMode

QUEUES = [MessageQueue("T", broker, queue_id) for broker in ("b", "a") for queue_id in range(4)]
EVERY_BROKER = [MessageQueue("T", "a", -1), MessageQueue("T", "b", -1)]


@pytest.mark.parametrize(
    ("options", "in_hand", "room"),
    [
        ({"concurrency": 20}, 0, 32),
        ({"concurrency": 20}, 19, 21),
        ({"concurrency": 20}, 20, 0),
        # A slow consumer leaves messages to the others.
        ({"concurrency": 1}, 0, 2),
        ({"concurrency": 1}, 1, 0),
        ({"concurrency": 1, "batch_size": 10}, 9, 11),
        ({"concurrency": 500}, 0, 32),
        ({"concurrency": 500}, 95, 1),
        ({"concurrency": 500}, 96, 0),
        ({"concurrency": 20, "pop_batch_size": 8}, 0, 8),
        ({"concurrency": 20, "pop_threshold_messages": 1}, 0, 1),
        ({"concurrency": 20, "pop_threshold_messages": 1}, 1, 0),
    ],
)
def test_it_takes_what_it_can_handle_soon(options: dict[str, Any], in_hand: int, room: int) -> None:
    assert room_for(ConsumerOptions(mode="pop", **options), in_hand) == room


def assigned(mode: MessageRequestMode, *queues: MessageQueue) -> list[MessageQueueAssignment]:
    return [MessageQueueAssignment(message_queue=queue, mode=mode) for queue in queues]


def test_every_broker_is_popped_unless_the_brokers_assign_queues_by_pop() -> None:
    assert popped_sources("T", QUEUES, None) == EVERY_BROKER
    assert popped_sources("T", QUEUES, []) == EVERY_BROKER
    # The share of a pulling group is no limit: more consumers than queues get work.
    assert popped_sources("T", QUEUES, assigned(MessageRequestMode.PULL, QUEUES[0])) == EVERY_BROKER
    assert popped_sources("T", QUEUES, assigned(MessageRequestMode.POP, *EVERY_BROKER)) == EVERY_BROKER
    share = [MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)]
    assert popped_sources("T", QUEUES, assigned(MessageRequestMode.POP, *share)) == share
    assert popped_sources("T", [], None) == []


def test_a_handler_may_choose_the_delay() -> None:
    assert [level_delay_ms(0, times) for times in (0, 1, 2)] == [10_000, 30_000, 60_000]
    assert [level_delay_ms(level, 9) // 1000 for level in range(1, 20)] == [
        *[1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200, 7200]
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"mode": "peek"}, "mode is 'pull' or 'pop'"),
        ({"mode": "pop", "orderly": True}, "mode='pop' cannot be combined with orderly=True"),
        ({"mode": "pop", "model": "broadcasting"}, "cannot be combined with model='broadcasting'"),
        ({"mode": "pop", "consume_from": datetime.now(UTC)}, "begins at 'first' or 'last'"),
        ({"invisible_ms": 999}, "invisible_ms is 999; it must be from 1000 to 43200000"),
        ({"pop_batch_size": 33}, "it must be at most 32"),
        ({"pop_batch_size": 0}, "it must be at least 1"),
        ({"pop_threshold_messages": 0}, "it must be at least 1"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ConsumerOptions(**options)


def test_defaults_are_javas() -> None:
    options = ConsumerOptions()
    assert (options.mode, options.pop_batch_size, options.pop_threshold_messages) == ("pull", 32, 96)
    assert options.invisible_ms == 60_000
