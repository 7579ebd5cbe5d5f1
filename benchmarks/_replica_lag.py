"""How far a slave is behind its master, and how fast a new one catches up.

Read from the files of both logs: that costs the brokers nothing, and works with Apache's, too.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks._broker_loadgen import Interval, RunningLoad
from benchmarks._broker_peers import STORE, PeerError, RunningPeer
from kourou.protocol.layout import BLANK_MAGIC_CODE
from kourou.store.disk.files import Files
from kourou.store.log.log_file import log_file_name

FILE_BYTES = int(STORE["mappedFileSizeCommitLog"])
_MARK = struct.Struct(">iI")
_LOOK_S = 20e-6
_PAUSE_S = 0.005
_LAG_TIMEOUT_S = 10.0
_START_TIMEOUT_S = 60.0
_CATCH_UP_TIMEOUT_S = 60.0
# Senders may be faster than a slave that catches up: the disk must not fill meanwhile.
_MAX_GROWTH_BYTES = 4 * 1024**3
_CAUGHT_UP_BYTES = 4 * 1024 * 1024
_POLL_S = 0.02
_EACH_S = 0.5
_BEFORE_S = 5.0


class LogReader:
    """The records of a log that another process writes, by their sizes. Close it, or use it as a context
    manager."""

    def __init__(self, folder: Path, file_bytes: int = FILE_BYTES) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._maps: dict[int, mmap.mmap] = {}

    def next_after(self, phy_offset: int) -> int | None:
        """Where the record that begins there ends; None: there is none yet."""
        number, position = divmod(phy_offset, self._file_bytes)
        mapped = self._maps.get(number) or self._map(number)
        if mapped is None:
            return None
        size, magic = _MARK.unpack_from(mapped, position)
        if not size:
            return None
        return (number + 1) * self._file_bytes if magic == BLANK_MAGIC_CODE else phy_offset + int(size)

    def _map(self, number: int) -> mmap.mmap | None:
        try:
            with open(self._folder / log_file_name(number * self._file_bytes), "rb") as file:
                mapped = self._maps[number] = mmap.mmap(file.fileno(), self._file_bytes, prot=mmap.PROT_READ)
        except (OSError, ValueError):  # not there, or not of its full length yet
            return None
        return mapped

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        for mapped in self._maps.values():
            mapped.close()


def measure_lags(master: LogReader, slave: LogReader, seconds: float) -> list[float]:
    """Sampled, in seconds: the time from a record's arrival in the master's log to that in the slave's."""
    lags: list[float] = []
    end, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        while (behind := master.next_after(end)) is not None:
            end = behind
        try:
            _wait(master, end)
            arrived = time.perf_counter()
            _wait(slave, end)
        except TimeoutError:
            continue
        lags.append(time.perf_counter() - arrived)
        time.sleep(_PAUSE_S)
    return lags


def _wait(log: LogReader, phy_offset: int) -> None:
    deadline = time.monotonic() + _LAG_TIMEOUT_S
    while log.next_after(phy_offset) is None:
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(_LOOK_S)


def log_end(folder: Path) -> int:
    """Where a log ends, to the next block of the file system; 0: there is none."""
    files = Files()
    for path in sorted(folder.glob("[0-9]" * 20), reverse=True):
        with files.open(path, writable=False) as file:
            end = file.data_end()
        if end:
            return int(path.name) + end
    return 0


class CatchUp(NamedTuple):
    """How long a new slave took for its master's log, and what senders noticed of it: messages a second and
    the longest answer, before and meanwhile."""

    copied_bytes: int
    seconds: float
    is_caught_up: bool = True
    before: tuple[float, float] | None = None
    meanwhile: tuple[float, float] | None = None

    @property
    def mb_per_s(self) -> float:
        """10^6 bytes a second."""
        return self.copied_bytes / self.seconds / 1e6


def catch_up(
    master: RunningPeer, start_slave: Callable[[], RunningPeer], rate: float | None, folder: Path
) -> CatchUp:
    """Start a slave behind a master that has a log already, and time it from its first byte on. With a `rate`
    senders go on meanwhile, at so many messages a second; 0: as fast as they can. One that is still behind
    after a minute is given up."""
    assert master.store is not None
    logs = [master.store / "commitlog"]
    with ExitStack() as stack:
        load = None
        if rate is not None:
            load = _start_load(master, rate, folder / "beside.log")
            stack.callback(load.stop)
            time.sleep(_BEFORE_S)
        before = load.intervals() if load else []
        slave = start_slave()
        assert slave.store is not None
        logs.append(slave.store / "commitlog")
        launched = time.monotonic()
        while not log_end(logs[1]):
            if time.monotonic() > launched + _START_TIMEOUT_S:
                raise PeerError(f"{slave.name}: the slave does not follow")
            time.sleep(_POLL_S)
        # Not what it took to start.
        began, first_interval = time.monotonic(), len(load.intervals()) if load else 0
        may_end = log_end(logs[0]) + _MAX_GROWTH_BYTES
        while True:
            end, master_end = log_end(logs[1]), log_end(logs[0])
            seconds = time.monotonic() - began
            is_caught_up = end >= master_end - (_CAUGHT_UP_BYTES if load else 0)
            if is_caught_up or seconds > _CATCH_UP_TIMEOUT_S or master_end > may_end:
                break
            time.sleep(_POLL_S)
        meanwhile = load.intervals()[first_interval + 1 :] if load else []
    return CatchUp(end, seconds, is_caught_up, _figures(before[2:]), _figures(meanwhile))


def _start_load(master: RunningPeer, rate: float, log_path: Path) -> RunningLoad:
    pace = ("-r", rate) if rate else ()
    options = ("-t", "Beside", "-C", "-c", 8, "-w", 32, "-d", 2 * _CATCH_UP_TIMEOUT_S, "-i", _EACH_S, *pace)
    return master.load.start("send", *options, log_path=log_path)


def _figures(intervals: list[Interval]) -> tuple[float, float] | None:
    if not intervals:
        return None
    messages = sum(each.messages for each in intervals)
    return messages / len(intervals) / _EACH_S, max(each.worst_ack_ms for each in intervals)
