"""Rows of `compare` that start, stop and kill a broker of their own: start, memory, recovery, backlog."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import _page_cache
from benchmarks._broker_loadgen import Interval, LoadgenError, Measured
from benchmarks._broker_peers import Launcher, RunningPeer
from benchmarks._compare_rows import QUEUES, TOPIC, Outcome, Reading, RowLeftOut, Scale

# Of Apache's, which is the slower one.
START_S = 6.0
STOP_S = 6.0
# Less than the slowest broker stores each second, in batches and one by one.
BATCHED_PER_S = 80_000
SENT_PER_S = 40_000
RECORD_EXTRA_BYTES = 350
ROOM_BYTES = 4 * 2**30
BACKLOG_TOPIC = "Backlog"
# A broker that starts reads the end of its log, Apache's the last three files: with 1 GiB each that would be
# most of a backlog, and in memory before it is read.
BACKLOG_FILES = {"mappedFileSizeCommitLog": str(64 * 1024 * 1024)}
EACH_S = 0.25
# A backlog that takes longer to read is read in part.
LONGEST_READ_S = 60.0


def fill(peer: RunningPeer, messages: int) -> None:
    """Messages to pull, and for the JVM time to compile what it runs."""
    where = ("-t", TOPIC, "-q", QUEUES)
    timeout_s = 60 + 20 * messages / SENT_PER_S
    peer.load.run("send", *where, "-C", "-c", 8, "-w", 32, "-N", messages, timeout_s=timeout_s)
    peer.load.run("pull", *where, "-c", 4, "-w", 8, "-d", 1, "-W", 0, timeout_s=60)


@dataclass(frozen=True)
class StartRow:
    """From the start of the process to the first accepted message, memory, and the same after a kill."""

    name: str = "start, recovery, memory"
    is_quick: bool = True

    def rounds(self, scale: Scale) -> int:
        """One less than the others: each is long."""
        return max(1, scale.rounds - 1)

    def cost_s(self, scale: Scale) -> float:
        """Two starts, and the messages between them."""
        return 2 * START_S + 1 + scale.messages / SENT_PER_S

    def run_alone(self, name: str, launcher: Launcher, scale: Scale) -> Outcome:
        """Start, look, fill, look, kill, start again."""
        with launcher.place(name) as place:
            began = time.monotonic()
            peer = place.start()
            start_s = time.monotonic() - began
            time.sleep(min(1.0, scale.seconds))
            idle_mb = peer.anonymous_mb
            fill(peer, scale.messages)
            full_mb, resident_mb = peer.anonymous_mb, peer.resident_mb
            peer.kill()
            began = time.monotonic()
            place.start()
            recovery_s = time.monotonic() - began
        after = f"after {scale.messages:,} messages"
        return Outcome(
            (
                Reading("start to first accepted send", "time", start_s),
                Reading(f"start after a kill, {scale.messages:,} messages stored", "time", recovery_s),
                Reading("anonymous memory, idle", "memory", idle_mb),
                Reading(f"anonymous memory {after}", "memory", full_mb),
                Reading(f"resident memory {after}", "memory", resident_mb),
            )
        )


@dataclass(frozen=True)
class BacklogRow:
    """Old messages are read from the disk while a producer goes on."""

    body: int
    size: str
    part: float
    """Of the messages that the form has; larger ones are fewer."""
    is_quick: bool = True

    @property
    def name(self) -> str:
        """Its line in the table."""
        return f"read a backlog of {self.size} messages, cold"

    def rounds(self, scale: Scale) -> int:
        """One: filling takes most of the time."""
        return 1

    def cost_s(self, scale: Scale) -> float:
        """Filling, a stop and a start with empty page cache, reading."""
        messages = self._messages(scale)
        body_s = messages * self.body / 1024 / BATCHED_PER_S
        return 2 * START_S + STOP_S + 2 * body_s + 50_000 / SENT_PER_S + 3 * scale.seconds

    def run_alone(self, name: str, launcher: Launcher, scale: Scale) -> Outcome:
        """Fill, restart cold, send alone, then send and read, and send alone again."""
        messages = self._messages(scale)
        self._check_room(launcher.folder, messages)
        with launcher.place(name) as place:
            peer = place.start(BACKLOG_FILES)
            where = ("-t", BACKLOG_TOPIC, "-q", QUEUES)
            filling = ("-C", "-c", 4, "-w", 4, "-K", 32, "-b", self.body, "-N", messages)
            peer.load.run("send", *where, *filling, timeout_s=60 + 10 * messages / BATCHED_PER_S)
            peer.stop()
            store = place.folder / "store"
            _page_cache.drop(store)
            peer = place.start(BACKLOG_FILES)
            fill(peer, 50_000)
            _page_cache.drop(store)
            cached = _page_cache.resident_share(store / "commitlog")
            return self._measure(peer, scale, place.folder / "sends.log", cached)

    def _messages(self, scale: Scale) -> int:
        return int(scale.backlog * self.part)

    def _check_room(self, folder: Path, messages: int) -> None:
        needed = messages * (self.body + RECORD_EXTRA_BYTES) + ROOM_BYTES
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise RowLeftOut(f"needs {needed / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are free")

    def _measure(self, peer: RunningPeer, scale: Scale, log_path: Path, cached: float) -> Outcome:
        sends = ("-t", TOPIC, "-q", QUEUES, "-c", 1, "-w", 32, "-b", self.body)
        quiet = peer.load.run("send", *sends, "-d", scale.warm_up_s, "-W", 0, timeout_s=60)
        os.sync()
        load = peer.load.start("send", *sends, "-d", 3600, "-W", 0, "-i", EACH_S, log_path=log_path)
        try:
            time.sleep(scale.seconds + EACH_S)
            first = len(load.intervals())
            read = self._read(peer)
            end = len(load.intervals())
            time.sleep(scale.seconds + EACH_S)
        finally:
            intervals = load.stop()
        return backlog_outcome(self.name, quiet, read, SendsBeside(intervals, first, end), cached)

    def _read(self, peer: RunningPeer) -> Measured:
        once = ("-1", "-c", 4, "-w", 2, "-d", LONGEST_READ_S, "-W", 0)
        where = ("-t", BACKLOG_TOPIC, "-q", QUEUES, "-g", "backlog")
        return peer.load.run("pull", *where, *once, timeout_s=60 + LONGEST_READ_S)


@dataclass(frozen=True)
class SendsBeside:
    """What one producer sent, in intervals: those from `first` to before `end` lie in the time of a reading.
    Machines change their speed, so what it sent before and after is measured with it."""

    intervals: list[Interval]
    first: int
    end: int

    @property
    def during(self) -> list[Interval]:
        """But for those in which the reading began or ended."""
        return self.intervals[self.first + 1 : self.end]

    @property
    def alone(self) -> list[Interval]:
        """But for the first, and those around the reading."""
        return [*self.intervals[1 : self.first], *self.intervals[self.end + 1 :]]

    @property
    def raw(self) -> dict[str, Any]:
        """All of it, for the results."""
        counts = [interval.messages for interval in self.intervals]
        return {"messages": counts, "each_s": EACH_S, "first": self.first, "end": self.end}


def _rate(intervals: list[Interval]) -> float:
    return sum(interval.messages for interval in intervals) / (len(intervals) * EACH_S)


def backlog_outcome(name: str, quiet: Measured, read: Measured, sends: SendsBeside, cached: float) -> Outcome:
    """The rate of reading, and what was left of the sends. `quiet` tells what else the machine did."""
    if not sends.during or not sends.alone:
        raise LoadgenError("the backlog was read before a send was counted: more messages are needed")
    during = _rate(sends.during)
    return Outcome(
        (
            Reading(name, "rate", read.messages_per_s),
            Reading(f"{name}: sends meanwhile, 1×32", "rate", during),
            Reading(
                f"{name}: sends meanwhile, of those before and after",
                "share",
                100 * during / _rate(sends.alone),
            ),
            Reading(
                f"{name}: slowest send meanwhile", "latency", max(each.worst_ack_ms for each in sends.during)
            ),
        ),
        (quiet.other_cores,),
        (*quiet.troubles, *read.troubles),
        {"quiet": quiet.raw, "sends": sends.raw, "read": read.raw, "page_cache_share": round(cached, 4)},
        f"{read.raw['messages']:,.0f} messages read; {cached:.1%} of the log was in the page cache at first",
    )
