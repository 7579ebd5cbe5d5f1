"""FailureLog: warnings about failures that may repeat for each message, rate-limited.

The first failure of a kind is logged at once, with its traceback. Repetitions are counted, and `report`,
called every REPORT_INTERVAL_MS and at the stop, summarises them in one line for each kind; at level DEBUG
each is logged. A kind that has not repeated since the last report counts as new.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from kourou.clock import Clock

_log = logging.getLogger(__name__)

REPORT_INTERVAL_MS: Final = 10_000  # frequent enough to watch, rare enough to leave running overnight


@dataclass(slots=True)
class _Repeated:
    what: str
    since_ms: int
    count: int = 0
    last: str = ""


class FailureLog:
    """The failures of one client. All calls are made on its loop."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._kinds: dict[Hashable, _Repeated] = {}

    def warn(self, kind: Hashable, what: str, which: str, error: BaseException | None = None) -> None:
        """Log a failure, or count it if one of its kind was logged. `what` is the same for all of a kind,
        `which` identifies the message."""
        repeated = self._kinds.get(kind)
        if repeated is None:
            self._kinds[kind] = _Repeated(what, self._clock.monotonic_ms())
            _log.warning("%s: %s", what, which, exc_info=error)
        else:
            repeated.count += 1
            repeated.last = which
            _log.debug("%s: %s", what, which, exc_info=error)

    async def report(self) -> None:
        """Log how often each kind has repeated since the last report."""
        now_ms = self._clock.monotonic_ms()
        for kind, repeated in list(self._kinds.items()):
            if not repeated.count:
                del self._kinds[kind]
                continue
            seconds = max(1, round((now_ms - repeated.since_ms) / 1000))
            times = "once more" if repeated.count == 1 else f"{repeated.count} more times"
            _log.warning("%s %s in %d s; the last: %s", repeated.what, times, seconds, repeated.last)
            repeated.count, repeated.since_ms = 0, now_ms


def kind_of(error: BaseException) -> Hashable:
    """Type and line: two faults of one type in a handler are logged separately."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace is not None else None
    return type(error), place
