"""start_query: starts a stream even if the machine is busy.

Spark starts a Python process for each source of a stream and allows it ten seconds, which cannot be changed
(4.3); a slow start fails the stream before anything is read. So the start is retried, and several streams are
started one after the other.
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
# Spark's error for a slow process, and the status of a query before its sources have answered.
_LATE_WORKER: Final = "Python worker failed to connect back"
_BEGINNING: Final = ("Initializing", "Getting offsets")
_POLL_S: Final = 0.1
_BEGIN_S: Final = 60.0


def start_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query started by `start`, once its sources answer, or after it failed for other reasons."""
    query = start()
    for _ in range(ATTEMPTS - 1):
        if not _was_late(query):
            break
        _log.warning("restarting a stream whose Python process was too slow")
        query = start()
    return query


def _was_late(query: StreamingQuery) -> bool:
    """Wait until the query has begun or ended; returns whether its Python process was late."""
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
