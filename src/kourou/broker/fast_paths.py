"""FastPaths: what the compiled kernel handles of the requests of one read: sends and pulls.

Not here: how (send/fast_send_path.py, pull/fast_pull_path.py), and what needs a decision (the processors).
"""

from __future__ import annotations

from kourou.broker.pull.fast_pull_path import FastPullPath
from kourou.broker.send.fast_send_path import FastSendPath
from kourou.store.kernel import Kernel
from kourou.transport.connection import Connection


class FastPaths:
    """A BulkHandler of both. Pulls are answered at once, sends when the cycle ends."""

    def __init__(self, kernel: Kernel, sends: FastSendPath, pulls: FastPullPath) -> None:
        self._pull_is_next = kernel.pull_is_next
        self.sends = sends
        self.pulls = pulls

    def collect(self, connection: Connection, data: bytes, position: int) -> int:
        """Take the sends and pulls that `data` has from `position` on; where they end."""
        while True:
            if not self._pull_is_next(data, position):
                position = self.sends.collect(connection, data, position)
                if position == len(data) or not self._pull_is_next(data, position):
                    return position
            end = self.pulls.collect(connection, data, position)
            if end == position or end == len(data) or connection.closed or connection.is_write_paused:
                return end
            position = end

    def room(self, size_bytes: int, /) -> bytearray:
        """Memory for large reads; what is in it is undefined."""
        return self.sends.room(size_bytes)

    def collect_large(self, connection: Connection, data: memoryview) -> int:
        """Take the sends at the start of what a large read has brought; where they end."""
        return self.sends.collect(connection, data, 0)

    def finish(self, connection: Connection) -> None:
        """Put what the connection has sent, since something else is to follow."""
        self.sends.finish(connection)
