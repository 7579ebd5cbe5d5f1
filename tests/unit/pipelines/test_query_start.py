"""A stream whose Python process was late is started again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.needed import need_module

need_module("pyspark")

from pyspark.errors import StreamingQueryException  # noqa: E402

from kourou.spark.pipelines.query_start import ATTEMPTS, start_query  # noqa: E402

LATE = (
    "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
)


class Query:
    """Begins after some looks, or fails."""

    def __init__(self, looks: int = 0, error: str | None = None, *, tells_at_once: bool = False) -> None:
        self._looks = looks
        self._error = StreamingQueryException(error) if error else None
        self._tells_at_once = tells_at_once

    @property
    def status(self) -> dict[str, Any]:
        is_beginning = self._looks > 0 or (self._error is not None and not self._tells_at_once)
        return {"message": "Initializing sources" if is_beginning else "Waiting for data to arrive"}

    def awaitTermination(self, _timeout: float) -> bool:
        self._looks -= 1
        if self._looks < 0 and self._error is not None:
            raise self._error
        return False

    def exception(self) -> StreamingQueryException | None:
        return self._error


@pytest.mark.parametrize("tells_at_once", [True, False])
def test_one_that_was_late_is_started_again(tells_at_once: bool) -> None:
    queries = [Query(2, LATE, tells_at_once=tells_at_once), Query(0, LATE), Query(3), Query()]
    started = iter(queries)
    assert start_query(lambda: next(started)) is queries[2]


def test_there_is_an_end_to_it() -> None:
    queries = [Query(0, LATE) for _ in range(ATTEMPTS)]
    started = iter(queries)
    assert start_query(lambda: next(started)) is queries[-1]


def test_other_failures_are_left_to_those_who_wait() -> None:
    queries = [Query(1, "the disk is full"), Query()]
    started = iter(queries)
    assert start_query(lambda: next(started)) is queries[0]
