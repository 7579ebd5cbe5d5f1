"""ProducerTable: what becomes of each message, ids that go, and the snapshot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.producer_sequence import (
    ProducerForgotten,
    ProducerOpening,
    ProducerSequence,
    identity_of,
)
from kourou.store.producers.producer_snapshot import (
    ProducerSnapshot,
    merge_producers,
    restore_producers,
    snapshot_phy_offset,
)
from kourou.store.producers.producer_table import ProducerTable, SequenceRuling
from kourou.store.producers.sequence_windows import WINDOW

TOPIC = "orders"


def opened(*ids: str, allows_gaps: bool = False, **limits: int) -> ProducerTable:
    table = ProducerTable(**limits)
    for number, producer_id in enumerate(ids):
        table.note_opened(ProducerOpening(producer_id, 0, allows_gaps), number)
    return table


def sent(producer_id: str, epoch: int, sequence: int) -> ProducerSequence:
    return ProducerSequence(identity_of(producer_id, epoch), producer_id, epoch, sequence)


def ruling(
    table: ProducerTable, producer_id: str, epoch: int, sequence: int, queue_id: int = 0
) -> SequenceRuling:
    return table.rule(sent(producer_id, epoch, sequence), TOPIC, queue_id)


def store(
    table: ProducerTable, producer_id: str, *sequences: int, queue_id: int = 0, now_ms: int = 0
) -> None:
    for sequence in sequences:
        assert ruling(table, producer_id, 0, sequence, queue_id=queue_id) is SequenceRuling.STORE
        table.note(sent(producer_id, 0, sequence), TOPIC, queue_id, 10 * sequence, now_ms)
        table.windows.keep()


def test_new_late_and_repeated_messages() -> None:
    table = opened("p")
    store(table, "p", 0, 2, 1)
    assert ruling(table, "p", 0, 2) is SequenceRuling.REPEAT
    assert ruling(table, "p", 0, 2, queue_id=1) is SequenceRuling.STORE  # another queue
    assert table.last_sequences("p", TOPIC) == {0: 2}
    assert table.search_from(sent("p", 0, 1), TOPIC, 0) == 0


def test_a_message_that_could_not_be_written_is_new_again() -> None:
    table = opened("p", allows_gaps=True)
    store(table, "p", 0)
    table.note(sent("p", 0, 5_000), TOPIC, 0, 10, 0)
    table.note(sent("p", 0, 7), TOPIC, 1, 20, 0)
    table.windows.take_back()
    assert ruling(table, "p", 0, 5_000) is SequenceRuling.STORE
    assert ruling(table, "p", 0, 0) is SequenceRuling.REPEAT
    assert table.last_sequences("p", TOPIC) == {0: 0}


def test_below_the_window_nothing_is_swallowed() -> None:
    table = opened("p")
    store(table, "p", 0, WINDOW, 2 * WINDOW)
    assert ruling(table, "p", 0, WINDOW) is SequenceRuling.TOO_OLD
    assert ruling(table, "p", 0, WINDOW + 1) is SequenceRuling.STORE


def test_jumps_are_for_producers_that_number_themselves() -> None:
    table = opened("p")
    assert ruling(table, "p", 0, WINDOW) is SequenceRuling.JUMP
    store(table, "p", 0)
    assert ruling(table, "p", 0, WINDOW) is SequenceRuling.STORE
    assert ruling(table, "p", 0, WINDOW + 1) is SequenceRuling.JUMP
    assert ruling(opened("p", allows_gaps=True), "p", 0, 10**12) is SequenceRuling.STORE


def test_unknown_ids_zombies_and_forged_epochs() -> None:
    table = opened("@loader")
    store(table, "@loader", 0)
    assert ruling(table, "@other", 0, 0) is SequenceRuling.UNKNOWN_PRODUCER
    assert ruling(table, "@loader", 1, 1) is SequenceRuling.UNKNOWN_EPOCH
    assert table.next_epoch("@loader", 0) == 1
    assert table.next_epoch("@loader", 1_800_000_000_000) > 10**10
    assert table.next_epoch("0123456789abcdef", 1_800_000_000_000) == 0
    table.note_opened(ProducerOpening("@loader", 1, True), 5)
    assert ruling(table, "@loader", 0, 1) is SequenceRuling.FENCED
    # A new program goes on where the old one was, and repeats nothing.
    assert ruling(table, "@loader", 1, 0) is SequenceRuling.REPEAT
    assert table.last_sequences("@loader", TOPIC) == {0: 0}
    table.note_opened(ProducerOpening("@loader", 0, False), 9)  # an old record, read again
    assert ruling(table, "@loader", 1, 1) is SequenceRuling.STORE


def test_the_last_openings_of_a_name_are_remembered_for_an_hour() -> None:
    table = opened("@loader")
    for number in range(20):
        table.note_opened(ProducerOpening("@loader", 1_000 + number, False, f"{number:016x}"), 0)
    table.note_opened(ProducerOpening("@loader", 1_004, False, f"{4:016x}"), 0)  # an old record, read again
    restored = ProducerTable()
    restore_producers(restored, ProducerSnapshot(table, 0).encode())
    for each in (table, restored):
        assert [each.epoch_of("@loader", f"{number:016x}") for number in (3, 4, 19)] == [None, 1_004, 1_019]
    assert table.epoch_of("@loader", None) is table.epoch_of("@other", f"{19:016x}") is None
    table.note_opened(ProducerOpening("@loader", 1_019 + 3_600_000, False, "f" * 16), 0)
    assert table.producers["@loader"].nonces == {"f" * 16: 1_019 + 3_600_000}


def test_a_name_that_is_forgotten_begins_anew() -> None:
    table = opened("@loader", "@other")
    store(table, "@loader", 0)
    older = ProducerSnapshot(table, 0).encode()
    table.forget(ProducerForgotten("@loader", 0))
    assert (set(table.producers), table.names) == ({"@other"}, 1)
    assert ruling(table, "@loader", 0, 1) is SequenceRuling.UNKNOWN_PRODUCER
    table.note_opened(ProducerOpening("@loader", 7, False), 0)
    # Neither a snapshot from before, nor the record read again, changes what the new program has.
    merge_producers(table, older)
    table.forget(ProducerForgotten("@loader", 0))
    assert ruling(table, "@loader", 7, 0) is SequenceRuling.STORE


def test_ids_expire_and_names_do_not() -> None:
    table = opened("a", "b", "@name", expiry_ms=100)
    store(table, "a", 0, now_ms=50)
    assert table.expire(110, {TOPIC}) == 1  # b: opened at 1, never used
    assert (set(table.producers), table.expired) == ({"a", "@name"}, 1)
    assert table.expire(200, {TOPIC}) == 1
    assert ruling(table, "a", 0, 1) is SequenceRuling.UNKNOWN_PRODUCER
    assert table.last_sequences("a", TOPIC) == {}


def test_what_a_name_stored_in_a_topic_that_is_gone_expires() -> None:
    table = opened("@name", expiry_ms=100)
    store(table, "@name", 0, now_ms=50)
    table.expire(140, ())
    assert table.last_sequences("@name", TOPIC) == {0: 0}
    table.expire(160, ())
    assert (table.last_sequences("@name", TOPIC), set(table.producers)) == ({}, {"@name"})


def test_the_least_recently_used_id_makes_room() -> None:
    table = opened("a", "b", "@name", max_producers=2)
    store(table, "a", 0, now_ms=50)
    table.note_opened(ProducerOpening("c", 0, False), 60)
    assert (set(table.producers), table.evicted) == ({"a", "@name", "c"}, 1)


def test_a_message_whose_opening_is_gone_from_the_log() -> None:
    table = ProducerTable()
    table.note_stored(sent("p", 3, 5_000), TOPIC, 0, 7, 0)
    assert ruling(table, "p", 3, 5_000) is SequenceRuling.REPEAT
    assert ruling(table, "p", 2, 5_001) is SequenceRuling.FENCED


def filled() -> ProducerTable:
    table = opened("p", "@loader", allows_gaps=True)
    store(table, "p", 0, 1, 3, 5_000, queue_id=2, now_ms=7)
    store(table, "@loader", *range(WINDOW))
    return table


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_snapshot_has_everything(is_merged: bool) -> None:
    table, again = filled(), ProducerTable()
    raw = ProducerSnapshot(table, 4_096).encode()
    if is_merged:
        merge_producers(again, raw)
    else:
        assert restore_producers(again, raw) == snapshot_phy_offset(raw) == 4_096
    assert again.producers == table.producers
    for producer_id, queue_id in (("p", 2), ("@loader", 0)):
        assert again.last_sequences(producer_id, TOPIC) == table.last_sequences(producer_id, TOPIC)
        for sequence in range(5_100):
            expected = ruling(table, producer_id, 0, sequence, queue_id)
            assert ruling(again, producer_id, 0, sequence, queue_id) is expected
            one = sent(producer_id, 0, sequence)
            assert again.search_from(one, TOPIC, queue_id) == table.search_from(one, TOPIC, queue_id)
    store(again, "p", 0, queue_id=9)
    assert ruling(again, "p", 0, 5_000, queue_id=2) is SequenceRuling.REPEAT


def test_a_snapshot_leaves_out_what_is_not_written() -> None:
    table, again = filled(), ProducerTable()
    table.note(sent("@loader", 0, WINDOW), TOPIC, 0, 0, 0)
    restore_producers(again, ProducerSnapshot(table, 0).encode())
    assert again.last_sequences("@loader", TOPIC) == {0: WINDOW - 1}


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: b"x" + raw[1:], lambda raw: b""])
def test_a_damaged_snapshot_is_refused_whole(damage: Callable[[bytes], bytes]) -> None:
    raw = ProducerSnapshot(opened("p"), 0).encode()
    table = ProducerTable()
    with pytest.raises(ProtocolError, match="kourouProducers"):
        restore_producers(table, damage(raw))
    assert len(table) == 0


def test_a_merge_with_more_producers_than_fit() -> None:
    table, small = filled(), opened("x", "y", max_producers=2)
    merge_producers(small, ProducerSnapshot(table, 0).encode())
    assert small.last_sequences("@loader", TOPIC) == {0: WINDOW - 1}
    assert len(small) == 3


def test_what_a_restored_window_notes_can_be_taken_back() -> None:
    """Numbers of runs begin anew with each process."""
    table, again = filled(), ProducerTable()
    for _ in range(50):
        table.windows.begin_run()
    table.note(sent("@loader", 0, WINDOW), TOPIC, 0, 0, 0)
    table.windows.keep()
    restore_producers(again, ProducerSnapshot(table, 0).encode())
    for run in range(200):
        again.note(sent("@loader", 0, WINDOW + 1), TOPIC, 0, 0, 0)
        again.windows.take_back()
        assert again.last_sequences("@loader", TOPIC) == {0: WINDOW}, run
