"""Which sequences an idempotent producer may give out."""

from __future__ import annotations

import random

import pytest

from kourou.client.producer.sequence_numbers import MAX_AHEAD, Numbered, QueueNumbers, Room, Session
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.producer_sequence import MAX_IN_FLIGHT, ProducerOpening, ProducerSequence
from kourou.store.producers.producer_table import ProducerTable, SequenceRuling

QUEUE = MessageQueue("T", "broker-a", 3)


def sent(sequence: int) -> ProducerSequence:
    return ProducerSequence("p:0", "p", 0, sequence)


def test_sequences_count_from_0_or_from_behind_the_last() -> None:
    assert [QueueNumbers().take(1), QueueNumbers(41).take(1)] == [0, 42]
    numbers = QueueNumbers()
    assert [numbers.take(3), numbers.take(1), numbers.take(2)] == [0, 3, 4]


def test_the_lowest_undecided_one_bounds_those_in_flight() -> None:
    numbers = QueueNumbers()
    first = numbers.take(1)
    for _ in range(MAX_AHEAD - 1):
        assert numbers.room(1) is Room.FREE
        numbers.settle(numbers.take(1), is_stored=True)
    assert numbers.room(1) is Room.WAIT
    numbers.settle(first, is_stored=True)
    assert numbers.room(1) is Room.FREE


def test_a_batch_needs_room_for_all_its_messages() -> None:
    numbers = QueueNumbers()
    numbers.take(MAX_AHEAD - 10)
    assert (numbers.room(10), numbers.room(11)) == (Room.FREE, Room.WAIT)


def test_failed_sends_leave_gaps_until_the_session_is_renewed() -> None:
    numbers = QueueNumbers(99)
    for _ in range(MAX_IN_FLIGHT):
        assert numbers.room(1) is Room.FREE
        numbers.settle(numbers.take(1), is_stored=False)
    assert numbers.room(1) is Room.RENEW


def test_a_session_is_not_renewed_while_a_send_may_still_close_the_gap() -> None:
    numbers = QueueNumbers()
    for _ in range(MAX_IN_FLIGHT - 1):
        numbers.settle(numbers.take(1), is_stored=False)
    last = numbers.take(1)
    assert numbers.room(1) is Room.WAIT
    numbers.settle(last, is_stored=True)
    assert numbers.room(1) is Room.FREE


@pytest.mark.parametrize("seed", range(20))
def test_a_broker_takes_whatever_is_given_out_and_recognises_every_repeat(seed: int) -> None:
    """Against the broker's own table: no jump, and nothing undecided ever falls out of the window."""
    chance = random.Random(seed)
    table, numbers = ProducerTable(), QueueNumbers()
    table.note_opened(ProducerOpening("p", 0, allows_gaps=False), 0)
    undecided: dict[int, int] = {}
    lost = chance.choice([0.0, 0.3, 0.9])
    for phy_offset in range(5_000):
        count = chance.choice([1, 1, 1, 7, 200])
        if numbers.room(count) is Room.FREE:
            first = numbers.take(count)
            undecided[first] = count
            assert table.rule(sent(first), "T", 0) is SequenceRuling.STORE, first
        elif not undecided:
            assert numbers.room(count) is Room.RENEW and lost
            return
        if undecided and chance.random() < 0.7:
            first = chance.choice(list(undecided))
            count = undecided.pop(first)
            is_stored = chance.random() >= lost
            for sequence in range(first, first + count):
                # Each entry of a batch is checked by itself, in order.
                assert table.rule(sent(sequence), "T", 0) in (SequenceRuling.STORE, SequenceRuling.REPEAT)
                if is_stored:
                    table.note(sent(sequence), "T", 0, phy_offset, 0)
                    assert table.rule(sent(sequence), "T", 0) is SequenceRuling.REPEAT
            numbers.settle(first, is_stored=is_stored)


def test_a_named_session_asks_for_the_last_sequences_of_a_topic_first() -> None:
    session = Session("@loader", 2, {})
    assert session.identity == "@loader:2"
    assert session.numbers(QUEUE) is None
    assert session.lasts is not None
    session.lasts["T"] = {3: 7}
    numbers = session.numbers(QUEUE)
    assert numbers is not None and numbers.take(1) == 8
    other = session.numbers(MessageQueue("T", "broker-a", 0))
    assert other is not None and other.take(1) == 0
    assert session.numbers(QUEUE) is numbers


def test_an_unnamed_session_begins_every_queue_with_0() -> None:
    numbers = Session("ab" * 8, 0).numbers(QUEUE)
    assert numbers is not None and numbers.take(1) == 0


def test_a_send_is_in_flight_until_it_is_settled_once() -> None:
    session = Session("ab" * 8, 0)
    numbers = session.numbers(QUEUE)
    assert numbers is not None
    numbered = Numbered(session, numbers, numbers.take(1))
    assert session.in_flight == 1
    assert numbered.settle(is_stored=True) and not numbered.settle(is_stored=False)
    assert session.in_flight == 0
