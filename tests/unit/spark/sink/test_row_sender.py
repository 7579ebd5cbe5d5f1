"""RowSender with a producer whose sends wait: how much it has under way at most. No broker, no thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.protocol.message import Message
from tests.spark.kit.sink_kit import record_batch, schema_of

from kourou.spark.sink.sending import RowSender, SinkCounts, merged  # isort: skip (the kit skips without pyarrow)
from kourou.spark.sink.sink_columns import SinkColumns  # isort: skip
from kourou.spark.sink.sink_options import SinkOptions  # isort: skip

ROWS = 4_000
BATCH_ROWS = 1_000


class WaitingProducer:
    """Its sends wait until they are let go."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self.most_under_way = 0

    async def send(self, message: Message, queue: object = None) -> None:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self.most_under_way = max(self.most_under_way, len(self._waiting))
        await answer

    def let_go(self) -> None:
        for answer in self._waiting:
            answer.set_result(None)
        self._waiting.clear()


class StepPortal:
    """Stands for the portal: the loop runs in the caller's thread, a step at a time."""

    def __init__(self, runner: asyncio.Runner, producer: WaitingProducer) -> None:
        self._runner = runner
        self._producer = producer

    def submit(self, work: Callable[[], asyncio.Future[None]]) -> SimpleNamespace:
        """The send is under way on return; who waits for its result has all sends answered."""

        async def begin() -> asyncio.Future[None]:
            task = work()
            await asyncio.sleep(0)
            return task

        async def end() -> None:
            self._producer.let_go()
            await task

        task = self._runner.run(begin())
        return SimpleNamespace(done=task.done, result=lambda: self._runner.run(end()))


def most_under_way(rows: Sequence[Mapping[str, Any]], **options: Any) -> tuple[int, SinkCounts]:
    """How many sends wait at once while these rows are sent, and what became of the rows."""
    schema = schema_of(list(rows[0]))
    given = SinkOptions(namesrv="127.0.0.1:1", topic="orders", **options)
    producer = WaitingProducer()

    def batches() -> Iterator[Any]:
        for first in range(0, len(rows), BATCH_ROWS):
            yield record_batch(schema, rows[first : first + BATCH_ROWS])

    with asyncio.Runner() as runner:
        worker: Any = SimpleNamespace(portal=StepPortal(runner, producer), producer=producer)
        counts = RowSender(given, SinkColumns.of(schema, "orders"), worker, 0).send(batches())
    return producer.most_under_way, counts


def test_refused_rows_without_a_value_are_not_all_under_way_at_once() -> None:
    most, counts = most_under_way([{"value": b""}] * ROWS, error_topic="errors")
    assert counts.refused_rows == ROWS
    assert 100 < most < 2_000


def test_small_delayed_rows_are_not_all_under_way_at_once() -> None:
    most, counts = most_under_way([{"value": b"x", "delay_ms": 1_000}] * ROWS)
    assert (counts.rows, counts.sent_bytes) == (ROWS, ROWS)
    assert 100 < most < 2_000


@pytest.mark.parametrize("value", [b"x" * 30_000, None])
def test_a_refused_row_counts_with_its_value(value: bytes | None) -> None:
    rows = [{"value": value}] * 100
    most, counts = most_under_way(
        rows, error_topic="errors", max_message_bytes=1_000, max_in_flight_bytes=100_000
    )
    assert counts.refused_rows == 100
    assert most == (12 if value is None else 2)


@pytest.mark.parametrize("enough_bytes", [1, 64, 100, 1_000_000])
def test_small_batches_of_arrow_are_merged_in_order(enough_bytes: int) -> None:
    schema = schema_of(["queue_id"])
    sizes = [3, 5, 0, 40, 1, 1, 30, 2]
    numbers = iter(range(sum(sizes)))
    batches = [record_batch(schema, [{"queue_id": next(numbers)} for _ in range(size)]) for size in sizes]
    found = list(merged(iter(batches), lambda: enough_bytes))
    assert [row for batch in found for row in batch.column(0).to_pylist()] == list(range(sum(sizes)))
    for batch, after in zip(found, found[1:], strict=False):
        assert max(batch.nbytes, after.nbytes) >= enough_bytes
    assert len(found) == 1 or enough_bytes < sum(batch.nbytes for batch in batches)


def test_no_batches_of_arrow_are_none_when_merged() -> None:
    assert list(merged(iter([]), lambda: 1)) == []
