"""Consumer offsets and the records of pops: what a file counts, and that it is not on disk before them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.broker.tables.offsets import ConsumerOffsetManager, OffsetTable
from kourou.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from kourou.store.steps import Steps
from tests.unit.broker.tables_kit import Tables

WHEEL = "rmq_sys_wheel_timer"


class Marks:
    """Records of pops that end at `end`; they cannot be made durable while `is_failing`."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.is_failing = False

    def ends(self) -> OffsetTable:
        return {WHEEL: {0: self.end}}

    def durable_steps(self) -> Steps[None]:
        if self.is_failing:
            raise OSError("the log is not on disk")
        yield lambda: None


def loaded(root: Path, **keys: object) -> ConsumerOffsetManager:
    offsets = Tables(root, **keys).offsets
    offsets.load()
    return offsets


def popped(root: Path, end: int) -> tuple[ConsumerOffsetManager, Marks]:
    offsets, marks = loaded(root), Marks(end)
    offsets.pop_marks = marks
    offsets.commit("CG", "orders", 0, 5, "")
    return offsets, marks


def test_the_file_says_which_pops_it_counts(tmp_path: Path) -> None:
    offsets, _ = popped(tmp_path, 7)
    offsets.persist()
    again = loaded(tmp_path)
    assert again.knows_pops
    assert again.popped_from(WHEEL, 0) == 7
    assert again.popped_from("a queue that was made later", 3) == 0


def test_without_a_file_all_pops_are_to_be_looked_at(tmp_path: Path) -> None:
    assert loaded(tmp_path).popped_from(WHEEL, 0) == 0


def test_a_file_of_apache_says_nothing_of_pops(tmp_path: Path) -> None:
    popped(tmp_path, 7)[0].persist()
    file = next(tmp_path.rglob("consumerOffset.json"))
    file.write_text('{"offsetTable":{"orders@CG":{0:5}}}')
    offsets = loaded(tmp_path)
    assert not offsets.knows_pops
    assert offsets.popped_from(WHEEL, 0) is None


def test_the_file_is_not_written_before_the_records(tmp_path: Path) -> None:
    offsets, marks = popped(tmp_path, 7)
    marks.is_failing = True
    with pytest.raises(OSError, match="not on disk"):
        offsets.persist()
    assert offsets.is_dirty
    assert loaded(tmp_path).query("CG", "orders", 0) == -1
    marks.is_failing = False
    offsets.persist()
    assert loaded(tmp_path).query("CG", "orders", 0) == 5


def test_a_slave_counts_what_its_master_counted(tmp_path: Path) -> None:
    slave = loaded(tmp_path, broker_role="SLAVE", broker_id=1)
    slave.pop_marks = Marks(1_000)
    slave.follow(ConsumerOffsetSerializeWrapper({"orders@CG": {0: 5}}, popped_from={WHEEL: {0: 9}}))
    assert slave.is_dirty
    slave.persist()
    assert loaded(tmp_path).popped_from(WHEEL, 0) == 9


def test_a_group_only_moves_forward_behind_what_it_has_popped(tmp_path: Path) -> None:
    offsets = loaded(tmp_path)
    assert offsets.advance("CG", "orders", 0, 5)
    assert not offsets.advance("CG", "orders", 0, 5)
    assert not offsets.advance("CG", "orders", 0, 3)
    assert offsets.query("CG", "orders", 0) == 5
    assert offsets.groups_of("orders") == {"CG"}
