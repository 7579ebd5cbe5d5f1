"""ProducerTable: what becomes of each message, ids that go, and the snapshot."""

from __future__ import annotations

import pytest

from kourou.errors import ProtocolError
from kourou.store.producers.producer_snapshot import encode_producers, restore_producers
from kourou.store.producers.producer_table import ProducerTable, Ruling
from kourou.store.producers.sequence_windows import MAX_SEQUENCE, WINDOW

TOPIC = "orders"


def opened(*ids: str, allows_gaps: bool = False, **limits: int) -> ProducerTable:
    table = ProducerTable(**limits)
    for number, producer_id in enumerate(ids):
        table.note_opened(producer_id, 0, number, allows_gaps=allows_gaps)
    return table


def store(
    table: ProducerTable, producer_id: str, *sequences: int, queue_id: int = 0, now_ms: int = 0
) -> None:
    for sequence in sequences:
        assert table.rule(producer_id, 0, TOPIC, queue_id, sequence) is Ruling.STORE
        table.note(producer_id, 0, TOPIC, queue_id, sequence, 10 * sequence, now_ms)


def test_new_late_and_repeated_messages() -> None:
    table = opened("p")
    store(table, "p", 0, 2, 1)
    assert table.rule("p", 0, TOPIC, 0, 2) is Ruling.REPEAT
    assert table.rule("p", 0, TOPIC, 1, 2) is Ruling.STORE  # another queue
    assert table.last_sequence("p", TOPIC, 0) == 2
    assert table.last_sequence("p", TOPIC, 1) == -1
    assert table.search_from("p", TOPIC, 0, 1) == 0


def test_a_message_that_could_not_be_stored_is_new_again() -> None:
    table = opened("p")
    store(table, "p", 0, 1)
    table.take_back("p", TOPIC, 0, 1)
    assert table.rule("p", 0, TOPIC, 0, 1) is Ruling.STORE
    assert table.rule("p", 0, TOPIC, 0, 0) is Ruling.REPEAT


def test_below_the_window_nothing_is_swallowed() -> None:
    table = opened("p")
    store(table, "p", 0, WINDOW, 2 * WINDOW)
    assert table.rule("p", 0, TOPIC, 0, WINDOW) is Ruling.TOO_OLD
    assert table.rule("p", 0, TOPIC, 0, WINDOW + 1) is Ruling.STORE


def test_jumps_are_for_producers_that_number_themselves() -> None:
    table = opened("p")
    assert table.rule("p", 0, TOPIC, 0, WINDOW) is Ruling.JUMP
    store(table, "p", 0)
    assert table.rule("p", 0, TOPIC, 0, WINDOW) is Ruling.STORE
    assert table.rule("p", 0, TOPIC, 0, WINDOW + 1) is Ruling.JUMP
    assert opened("p", allows_gaps=True).rule("p", 0, TOPIC, 0, 10**12) is Ruling.STORE


@pytest.mark.parametrize("sequence", [-1, MAX_SEQUENCE + 1])
def test_sequences_out_of_range(sequence: int) -> None:
    assert opened("p", allows_gaps=True).rule("p", 0, TOPIC, 0, sequence) is Ruling.JUMP


def test_unknown_ids_zombies_and_forged_epochs() -> None:
    table = opened("@loader")
    table.note("@loader", 0, TOPIC, 0, 0, 0, 0)
    assert table.rule("@other", 0, TOPIC, 0, 0) is Ruling.UNKNOWN_PRODUCER
    assert table.rule("@loader", 1, TOPIC, 0, 1) is Ruling.UNKNOWN_EPOCH
    assert table.next_epoch("@loader") == 1
    table.note_opened("@loader", 1, 5, allows_gaps=True)
    assert table.rule("@loader", 0, TOPIC, 0, 1) is Ruling.FENCED
    assert (
        table.rule("@loader", 1, TOPIC, 0, 0) is Ruling.REPEAT
    )  # a new program goes on, and repeats nothing
    table.note_opened("@loader", 0, 9, allows_gaps=False)  # an old record, read again
    assert table.rule("@loader", 1, TOPIC, 0, 1) is Ruling.STORE


def test_ids_expire_and_names_do_not() -> None:
    table = opened("a", "b", "@name", expiry_ms=100)
    store(table, "a", 0, now_ms=50)
    assert table.expire(110) == 1  # b: opened at 1, never used
    assert (set(table.producers), table.expired) == ({"a", "@name"}, 1)
    assert table.expire(200) == 1
    assert table.rule("a", 0, TOPIC, 0, 1) is Ruling.UNKNOWN_PRODUCER
    assert table.last_sequence("a", TOPIC, 0) == -1


def test_the_least_recently_used_id_makes_room() -> None:
    table = opened("a", "b", "@name", max_producers=3)
    store(table, "a", 0, now_ms=50)
    table.note_opened("c", 0, 60, allows_gaps=False)
    assert (set(table.producers), table.evicted) == ({"a", "@name", "c"}, 1)


def test_a_deleted_topic_is_forgotten() -> None:
    table = opened("p")
    store(table, "p", 0, 1)
    table.drop_topic(TOPIC)
    assert table.rule("p", 0, TOPIC, 0, 0) is Ruling.STORE


def test_a_message_whose_opening_is_gone_from_the_log() -> None:
    table = ProducerTable()
    table.note("p", 3, TOPIC, 0, 5_000, 7, 0)
    assert table.rule("p", 3, TOPIC, 0, 5_000) is Ruling.REPEAT
    assert table.rule("p", 2, TOPIC, 0, 5_001) is Ruling.FENCED


def test_a_snapshot_has_everything() -> None:
    table = opened("p", "@loader", allows_gaps=True)
    store(table, "p", 0, 1, 3, 5_000, queue_id=2, now_ms=7)
    store(table, "@loader", *range(WINDOW))
    again = ProducerTable()
    assert restore_producers(again, encode_producers(table, 4_096)) == 4_096
    assert dict(again.producers) == dict(table.producers)
    assert sorted(again.states()) == sorted(table.states())


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: b"x" + raw[1:], lambda raw: b""])
def test_a_damaged_snapshot_is_refused_whole(damage: object) -> None:
    raw = encode_producers(opened("p"), 0)
    table = ProducerTable()
    with pytest.raises(ProtocolError, match="kourouProducers"):
        restore_producers(table, damage(raw))  # type: ignore[operator]
    assert len(table) == 0
