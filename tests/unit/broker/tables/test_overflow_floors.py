"""Floors: they move when they are on disk, and go with the topics, groups and queues that they are of."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.broker.tables.overflow_floors import FloorMove, OverflowFloors
from kourou.errors import RequestError
from kourou.protocol.bodies import ConsumerOffsetSerializeWrapper, GroupFloors, TopicConfig
from kourou.protocol.codes import ResponseCode
from kourou.store.steps import run_steps
from tests.unit.broker.tables_kit import Tables

MOVE = FloorMove("T", "G", {0: 10, 1: 4}, dropped=14)


def moved(floors: OverflowFloors, *moves: FloorMove) -> None:
    for move in moves:
        assert run_steps(floors.moved_steps(move))


def test_a_floor_moves_up_only_and_counts_all(tmp_path: Path) -> None:
    tables = Tables(tmp_path).load()
    moved(tables.floors, MOVE, FloorMove("T", "G", {0: 7, 1: 6}, dropped=2), FloorMove("T", "H", {0: 1}))
    assert [tables.floors.floor("G", "T", queue_id) for queue_id in range(3)] == [10, 6, 0]
    again = Tables(tmp_path)
    again.floors.load()
    assert again.floors.table == tables.floors.table
    assert again.floors.table["T@G"].dropped == 16


def test_nothing_moves_before_the_file_is_written(tmp_path: Path) -> None:
    floors = Tables(tmp_path).floors
    steps = floors.moved_steps(MOVE)
    write = next(steps)
    assert floors.floor("G", "T", 0) == 0
    with pytest.raises(OSError, match="full"):
        steps.throw(OSError("full"))
    assert not floors.table and floors.is_dirty
    del write


def test_a_topic_that_is_deleted_meanwhile_gets_no_floor(tmp_path: Path) -> None:
    """The next topic of that name begins at 0: its first messages would be skipped."""
    floors = Tables(tmp_path).floors
    steps = floors.moved_steps(MOVE)
    next(steps)()
    floors.remove_topic("T")
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value is False
    assert not floors.table and floors.is_dirty, "the file has it, and is written again"


def test_floors_go_with_topics_groups_and_queues(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    for removed in (
        lambda: tables.offsets.remove_topic("T"),
        lambda: tables.offsets.remove_group("G"),
        lambda: tables.offsets.remove_queue("T", 0),
    ):
        moved(tables.floors, MOVE)
        removed()
        assert tables.offsets.query("G", "T", 0) == -1


def test_a_group_counts_as_having_consumed_up_to_its_floor(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.offsets.commit("G", "T", 0, 3, "here")
    moved(tables.floors, MOVE)
    assert tables.offsets.query("G", "T", 0) == 10
    assert tables.offsets.offset_table == {"T@G": {0: 3}}, "what was committed stays as it was"
    tables.offsets.commit("G", "T", 0, 12, "here")
    assert tables.offsets.query("G", "T", 0) == 12


def test_a_reset_takes_the_floor_back(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    moved(tables.floors, MOVE)
    tables.offsets.assign_reset("T", "G", 0, 2)
    tables.offsets.take_reset("T", "G", 0)
    assert tables.offsets.query("G", "T", 0) == 2
    assert tables.floors.floor("G", "T", 1) == 4


def test_a_log_that_lost_its_end_cuts_the_floors(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    moved(tables.floors, MOVE)
    tables.offsets.cut(lambda topic, queue_id: 5)
    assert tables.floors.table["T@G"].floors == {0: 5, 1: 4}


def test_a_slave_takes_over_the_floors_with_the_offsets(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    moved(tables.floors, FloorMove("old", "G", {0: 1}))
    tables.offsets.follow(ConsumerOffsetSerializeWrapper(floors={"T@G": GroupFloors({0: 8}, 8)}))
    assert tables.floors.table == {"T@G": GroupFloors({0: 8}, 8)}
    tables.offsets.follow(ConsumerOffsetSerializeWrapper())
    assert tables.floors.floor("G", "T", 0) == 8, "a master of Apache's says nothing about floors"


@pytest.mark.parametrize(
    "changes",
    [
        "+overflow.policy=reject",
        "+overflow.messages=5",
        "+overflow.policy=drop-lowest-priority,+overflow.messages=5",
        "+overflow.policy=reject,+overflow.bytes=many",
        "-message.type",
        "-overflow.messages",
        "-overflow.policy",
    ],
)
def test_attributes_that_contradict_each_other_change_nothing(tmp_path: Path, changes: str) -> None:
    topics = Tables(tmp_path).topics
    base = (
        ""
        if changes.startswith("+")
        else ("+message.type=PRIORITY,+overflow.policy=drop-lowest-priority,+overflow.messages=9")
    )
    topics.update(TopicConfig(topic_name="T"), base)
    before = topics.table["T"]
    with pytest.raises(RequestError) as refused:
        topics.update(TopicConfig(topic_name="T", perm=2), changes)
    assert refused.value.response_code == ResponseCode.INVALID_PARAMETER
    assert topics.table["T"] is before


def test_of_several_topics_none_changes_if_one_is_refused(tmp_path: Path) -> None:
    topics = Tables(tmp_path).topics
    good = TopicConfig(topic_name="A", attributes={"+overflow.policy": "reject", "+overflow.messages": "5"})
    bad = TopicConfig(topic_name="B", attributes={"+overflow.policy": "reject"})
    with pytest.raises(RequestError, match="needs a limit"):
        topics.update_all([good, bad])
    assert "A" not in topics.table
    dead = {"+overflow.policy": "dead-letter", "+overflow.messages": "5"}
    with pytest.raises(RequestError, match="has dead letters already"):
        topics.update(TopicConfig(topic_name="%DLQ%G", attributes=dead))
