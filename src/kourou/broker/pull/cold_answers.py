"""ColdAnswers: old messages are read and sent by a thread of the compiled kernel, which needs no Python.

The loop reads a pull and decides, as the fast path always does. The rest is done without the interpreter
lock: reading records, verifying those whose units are from before the start, and writing the answer to the
socket. So consumers far behind take little of the loop's time. Where there is but one core, reads give way by
turns instead (cold_pulls.py).

A decision holds for the moment. An answer that is sent within `_DECIDED_MS` is taken for one of that moment;
for any other the loop looks again, and sends it if the group may still pull. What cannot be read that way
is handled as all requests are, which reports what is wrong with it. Offsets and statistics are recorded when
answers have left, except for what a pull commits, which is recorded when it is handed over, and then only.
Not here: which pulls are answered (fast_pull_path.py), and when (hand_over_turns.py); the thread
(store/native/cold_reader.h).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from kourou.protocol.codes import PullSysFlag
from kourou.protocol.command import command_of
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.request_head import decode_request_head
from kourou.store.kernel import ColdOutcome, Kernel

if TYPE_CHECKING:
    from kourou.broker.pull.pull_notes import KnownPull, PullNotes
    from kourou.broker.pull.pull_targets import PullTargets
    from kourou.store.kernel import ColdPlace, ColdReport
    from kourou.store.log.commit_log import CommitLog
    from kourou.transport.connection import Connection

_log = logging.getLogger(__name__)

_DECIDED_MS: Final = 100
_NICENESS: Final = 5
"""Of the thread: where there are fewer cores than work, the loop goes first."""
_LOOK_S: Final = 0.002
_NS_PER_S: Final = 1e9


class ColdAnswers:
    """The thread of one broker. `handle_singly`: called with a connection and the frame of a pull that the
    thread has not answered."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        log: CommitLog,
        targets: PullTargets,
        notes: PullNotes,
        now_ms: Callable[[], int],
        handle_singly: Callable[[Connection, bytes], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._new_socket = kernel.SharedSocket
        self._store_log = log
        self._targets = targets
        self._notes = notes
        self._now_ms = now_ms
        self._handle_singly = handle_singly
        # The thread begins with the first pull.
        self.reader = kernel.ColdReader(_DECIDED_MS, _NICENESS)
        self._loop.add_reader(self.reader.fileno(), self.collect)

    def place(self, connection: Connection, low: int, end: int) -> ColdPlace | None:
        """Where the thread finds the log from `low` to `end`, and where it sends it; None: it cannot."""
        log_file = self._store_log.file_at(low)
        if log_file is None or end > log_file.end_phy_offset or log_file.is_broken:
            return None
        return (
            connection.share_writes(self._new_socket),
            log_file.file.descriptor,
            log_file.start_phy_offset,
            log_file.end_phy_offset,
            self._store_log.window_phy_offset,
            connection,
        )

    def collect(self) -> None:
        """Finish what the thread has done so far."""
        sent, decided_ns, others = self.reader.collect(self._notes.noted, self._now_ms())
        for report in others:
            connection: Connection = report[1]
            try:
                self._finish(connection, report)
            except Exception:
                _log.exception("an answer with old messages failed")
                connection.abort("an answer with old messages failed")
        if sent:
            self._notes.answered(sent, self._loop.time() - decided_ns / _NS_PER_S)

    def _finish(self, connection: Connection, report: ColdReport) -> None:
        outcome, _, frame, rest, target, queue_id, row = report
        if outcome == ColdOutcome.PARTIAL:
            connection.write_rest(rest)
        elif connection.closed:
            return
        elif outcome == ColdOutcome.UNREAD or not self._targets.still_holds(target, queue_id):
            self._handle_singly(connection, _without_commit(frame))
            return
        else:
            connection.send(rest)
        self._notes.add(cast("KnownPull", target), row)
        self._notes.answered(1, self._loop.time() - connection.last_heard)

    async def wait_idle(self) -> None:
        """Return when all that was handed over is answered."""
        while self.reader.under_way():  # noqa: ASYNC110 (the thread knows no events)
            await asyncio.sleep(_LOOK_S)

    async def stop(self) -> None:
        """End the thread."""
        if self.reader.fileno() < 0:
            return
        self._loop.remove_reader(self.reader.fileno())
        await asyncio.to_thread(self.reader.stop)
        self.collect()


def _without_commit(frame: bytes) -> bytes:
    """The frame of a pull whose offset was recorded when it was handed over: it commits none."""
    ((serialize_type, header, body),) = FrameDecoder().feed(frame)
    command = command_of(serialize_type, decode_request_head(serialize_type, header), body)
    assert command.ext_fields is not None, "a pull has fields"
    sys_flag = int(command.ext_fields["sysFlag"]) & ~PullSysFlag.COMMIT_OFFSET.value
    command.ext_fields["sysFlag"] = str(sys_flag)
    return command.encode()
