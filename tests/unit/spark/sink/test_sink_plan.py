"""Which batches of a sink may follow the last one that was committed."""

from __future__ import annotations

import pytest

from kourou.client.producer.atomic_publish import AtomicHandle
from kourou.spark.sink.sink_errors import SinkBatchError
from kourou.spark.sink.sink_plan import SinkPlan, is_before

HANDLE = AtomicHandle("broker-a", "@sink.atomic:1:0", 0)


def plan(last_query: str | None, last_batch: int = 0, replace_query: str | None = None) -> SinkPlan:
    return SinkPlan("sink", "spark-sink-sink", HANDLE, last_query, last_batch, replace_query)


def test_the_next_batch_and_a_repeat_of_the_last_one() -> None:
    assert not plan(None, -1).is_committed("q", 0)
    assert not plan(None, -1).is_committed("q", 40)
    assert plan("q", 7).is_committed("q", 7)
    assert not plan("q", 7).is_committed("q", 8)
    assert not plan("q", 7).is_committed("q", 20)  # batches without rows are not committed
    assert not plan("q", 7).replaces("q")


def test_a_batch_before_the_last_one() -> None:
    with pytest.raises(SinkBatchError, match="the checkpoint is older than the data that was written"):
        plan("q", 7).is_committed("q", 6)


def test_another_query() -> None:
    for batch_id in (0, 7, 8):
        with pytest.raises(SinkBatchError, match="it belongs to query q, which has committed batch 7"):
            plan("q", 7).is_committed("r", batch_id)
        assert not plan("q", 7, "q").is_committed("r", batch_id)
    assert plan("q", 7, "q").replaces("r")
    # It has been replaced: the option has no effect any more.
    assert plan("r", 0, "q").is_committed("r", 0)
    assert not plan("r", 0, "q").replaces("r")


def test_batch_writes() -> None:
    assert plan("write 9").is_committed("write 9", 0)
    assert plan("write 9").replaces("write 10")
    assert not plan("write 9").is_committed("write 10", 0)
    with pytest.raises(SinkBatchError, match="writeId '9' is not behind '10'"):
        plan("write 10").is_committed("write 9", 0)
    assert plan("write 10", 0, "10").replaces("write 9")


def test_streams_and_batch_writes_do_not_mix() -> None:
    with pytest.raises(SinkBatchError, match="it belongs to batch write '9', and this is query 'q'"):
        plan("write 9").is_committed("q", 3)
    with pytest.raises(SinkBatchError, match="it belongs to query 'q', and this is batch write '9'"):
        plan("q", 3).is_committed("write 9", 0)


def test_order_of_write_ids() -> None:
    assert is_before("9", "10") and not is_before("10", "9") and not is_before("7", "07")
    assert is_before("2026-11-17", "2026-11-18") and is_before("9", "x")
