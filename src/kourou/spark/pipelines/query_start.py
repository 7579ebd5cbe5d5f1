"""start_query: a stream that is begun, although the machine is busy.

Spark starts a Python process for each source of a stream and gives it ten seconds, which cannot be changed
(4.3); one that is late fails the stream before anything is read. So that is tried again, and whoever has
several streams to start does so one after the other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

ATTEMPTS: Final = 5
# What Spark says of a process that was late, and what a query is at before its sources have answered.
_LATE_WORKER: Final = "Python worker failed to connect back"
_BEGINNING: Final = ("Initializing", "Getting offsets")
_POLL_S: Final = 0.1
_BEGIN_S: Final = 60.0


def start_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query that `start` starts, once its sources answer; or as it has failed for other reasons."""
    query = start()
    for _ in range(ATTEMPTS - 1):
        if not _was_late(query):
            break
        _log.warning("a stream is started again: its Python process was too slow")
        query = start()
    return query


def _was_late(query: StreamingQuery) -> bool:
    """Wait until the query is begun, or is over: whether its Python process was late."""
    from pyspark.errors import StreamingQueryException

    deadline = time.monotonic() + _BEGIN_S
    try:
        while time.monotonic() < deadline and str(query.status.get("message", "")).startswith(_BEGINNING):
            if query.awaitTermination(_POLL_S):
                return False
    except StreamingQueryException as error:
        return _LATE_WORKER in str(error)
    failure = query.exception()
    return failure is not None and _LATE_WORKER in str(failure)
