"""The pace of a replay, by a clock of its own; and what a replay remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue
from tests.needed import need_module

pa = need_module("pyarrow")
need_module("pyspark")

from kourou.spark.pipelines.archive.archive_folder import ArchiveFolder  # noqa: E402
from kourou.spark.pipelines.replay.replay_rows import paced  # noqa: E402
from kourou.spark.pipelines.replay.replay_state import ReplayState  # noqa: E402


class Clock:
    """Time that passes only in sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def batch(count: int) -> object:
    return pa.RecordBatch.from_pydict({"n": list(range(count))})


@pytest.mark.parametrize("rate", [1, 7, 50, 1_000, 12_345.5])
def test_never_faster_than_the_rate(rate: float) -> None:
    clock = Clock()
    given = 0
    for piece in paced(iter([batch(300), batch(0), batch(77)]), rate, clock, clock.sleep):
        passed = clock.now - 100.0
        assert given <= passed * rate + 1e-6
        assert piece.num_rows <= max(1, rate / 10)
        given += piece.num_rows
    assert given == 377
    assert clock.now - 100.0 == pytest.approx(377 / rate)


def test_time_that_sending_takes_counts() -> None:
    clock = Clock()
    for _ in paced(iter([batch(100)]), 100, clock, clock.sleep):
        clock.now += 0.1  # as long as a piece may take
    assert clock.now - 100.0 == pytest.approx(1.0)


def test_without_a_rate_batches_pass() -> None:
    batches = [batch(5), batch(6)]
    assert list(paced(iter(batches), None)) == batches


def test_a_replay_remembers_how_far_it_is(tmp_path: Path) -> None:
    archive = ArchiveFolder(str(tmp_path), "parquet")
    what = {"to": "copy", "topics": []}
    state = ReplayState.of(archive, what)
    assert not state.is_resumed
    state.rows, state.until_ms = 17, 5
    state.next_offsets = {MessageQueue("orders", "broker-a", 3): 44}
    state.save()
    again = ReplayState.of(archive, what)
    assert again.is_resumed
    assert (again.rows, again.until_ms, again.next_offsets) == (17, 5, state.next_offsets)
    assert not ReplayState.of(archive, what | {"to": "other"}).is_resumed
    again.remove()
    assert not ReplayState.of(archive, what).is_resumed


def test_a_damaged_state_is_reported(tmp_path: Path) -> None:
    archive = ArchiveFolder(str(tmp_path), "parquet")
    state = ReplayState.of(archive, {})
    state.save()
    for content in ("{", "[]", '{"version": 2}', '{"version": 1, "until_ms": 1}'):
        state.path.write_text(content)
        with pytest.raises(ConfigError, match="start over with --restart"):
            ReplayState.of(archive, {})
        # What the error advises is possible.
        assert not ReplayState.of(archive, {}, anew=True).is_resumed
