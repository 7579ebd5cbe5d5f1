"""PullPlaces: where pulls of the fast path find their records, and whether they may read old messages now.

A pull finds them in a window, a part of the log that is in memory, or in a file that the thread for old
messages reads. Windows are kept for a moment, by region of the log, since to look for one takes longer than
to use it. The thread gets pulls whose units are in doubt, whose records are not in memory or lie far apart,
and all pulls of old messages while these give way to sends.
Not here: the pulls (fast_pull_path.py), when one has its turn (hand_over_turns.py, cold_read_share.py), the
thread (cold_answers.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kourou.store.log.log_regions import REGION_BYTES
from kourou.store.read.get_message import DENSE

if TYPE_CHECKING:
    from kourou.broker.pull.cold_answers import ColdAnswers
    from kourou.broker.pull.cold_pulls import ColdReadThrottle
    from kourou.broker.pull.hand_over_turns import HandOverTurns
    from kourou.store.kernel import ColdPlace, KeptWindow
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_regions import LogWindow
    from kourou.transport.connection import Connection

_KEPT_S: Final = 0.25
"""So long windows of the log are kept, longer than they are believed to be in memory (log_regions.py)."""


class PullPlaces:
    """The places of one broker. `cold_answers`: the thread; None where there is no other core for it.

    Of the run that is answered: `has_time` for old messages anyway, `lacks_time` for some, which wait for a
    turn, has `read_old` ones, and `hands_over` some to the thread."""

    def __init__(
        self,
        log: CommitLog,
        cold_reads: ColdReadThrottle,
        turns: HandOverTurns,
        cold_answers: ColdAnswers | None,
    ) -> None:
        self._store_log = log
        self._cold_reads = cold_reads
        self._turns = turns
        self._cold_answers = cold_answers
        self.windows: dict[int, KeptWindow] = {}
        self._windows_since_s = 0.0
        self.has_time = self.lacks_time = self.read_old = self.hands_over = False

    def begin_run(self, now_s: float) -> None:
        """Nothing was read yet."""
        self.lacks_time = self.read_old = self.hands_over = False
        if now_s - self._windows_since_s > _KEPT_S:
            self.windows.clear()
            self._windows_since_s = now_s

    def find(
        self, connection: Connection, low: int, end: int, wanted_bytes: int, in_doubt: bool
    ) -> ColdPlace | bool | None:
        """Where a pull finds the log from `low` to `end`, with units that are `in_doubt` or not. True: it is
        among the windows now; None or False: nowhere, as far as the fast path goes."""
        log = self._store_log
        if low >= log.window_phy_offset and not in_doubt:
            return self._keep(log.window_at(low), low, is_old=False)
        if not self._leaves_old():
            is_dense = end - low < DENSE * wanted_bytes
            if is_dense and not in_doubt and self.may_read_old():
                if self._keep(log.region_at(low, end), low, is_old=True):
                    return True
            self.hands_over = self._cold_answers is not None
        if not self.hands_over or self._cold_answers is None:
            return None
        return self._cold_answers.place(connection, low, end)

    def may_read_old(self) -> bool:
        """Whether old messages are read by the loop in this run."""
        if self._leaves_old():
            return False
        if not (self.has_time or self._cold_reads.is_unlimited):
            self.lacks_time = True
            return False
        if not self.read_old:
            self.read_old = True
            self._cold_reads.resume()
        return True

    def _leaves_old(self) -> bool:
        """Whether old messages are left to the thread now, or have to wait until it is their turn."""
        if self._cold_answers is None or not (self.has_time or self._cold_reads.is_sending()):
            return False
        self.hands_over = self.hands_over or self.has_time or self._turns.is_free
        self.lacks_time = not self.hands_over
        return True

    def _keep(self, window: LogWindow | None, low: int, *, is_old: bool) -> bool:
        """Keep a window, by the region of `low`; False: there is none."""
        log_file = self._store_log.file_at(low)
        if window is None or log_file is None:
            return False
        self.windows[low // REGION_BYTES] = log_file, window.start, window.low, window.end, is_old
        return True
