"""How `compare` goes over its rows: brokers in turn, round by round, within a time. Not here: which rows."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from benchmarks._broker_loadgen import LoadgenError
from benchmarks._broker_peers import Launcher, PeerError, RunningPeer, why_no_tmpfs
from benchmarks._client_peers import ClientError
from benchmarks._compare_alone import SENT_PER_S, START_S, fill
from benchmarks._compare_result import Result
from benchmarks._compare_rows import KINDS, AloneRow, Outcome, Row, RowLeftOut, Scale, SharedRow
from benchmarks._official import OfficialError

# What one broker failing in one row may raise: the others go on.
FAILURES = (LoadgenError, PeerError, OfficialError, ClientError, OSError)
TMPFS_FILL = 120_000
# A JVM goes on compiling for a while what it has run, on a core that the first row needs. The quick form has
# no time to wait for that.
SETTLE_S = {"quick": 0.0, "full": 3.0}


@dataclass(frozen=True)
class Group:
    """Rows at brokers that are started for them; a new group frees the disk of the last one."""

    flush: str
    rows: Sequence[SharedRow] = ()
    alone: Sequence[AloneRow] = ()
    on_tmpfs: bool = False

    def scaled(self, scale: Scale) -> Scale:
        """The form for this group: on tmpfs what brokers are filled with takes memory."""
        return replace(scale, fill=min(scale.fill, TMPFS_FILL)) if self.on_tmpfs else scale


def start_s(scale: Scale, brokers: int) -> float:
    """How long it takes until all brokers of a group are warm, at a guess."""
    return START_S * (1 + brokers / 3) + brokers * (1.5 + scale.fill / SENT_PER_S) + SETTLE_S[scale.form]


class Budget:
    """The time that a run may take."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self.seconds = seconds

    @property
    def spent_s(self) -> float:
        """Time since the run began."""
        return self._clock() - self._began

    def allows(self, cost_s: float) -> bool:
        """Whether something that takes so long would still be in time."""
        return self.spent_s + cost_s <= self.seconds


class Comparison:
    """One run over all groups."""

    def __init__(self, result: Result, scale: Scale, budget: Budget, launcher: Launcher) -> None:
        self._result = result
        self._scale = scale
        self._budget = budget
        self._launcher = launcher

    def run(self, group: Group) -> None:
        """Measure every row of a group for which there is time."""
        why_not = why_no_tmpfs(len(self._result.names)) if group.on_tmpfs and group.rows else None
        if why_not is not None:
            self._result.left_out += [f"{row.name}: {why_not}" for row in group.rows]
            return
        starting_s = start_s(group.scaled(self._scale), len(self._result.names))
        if group.rows and self._has_time("", starting_s, group.rows):
            try:
                self._run_shared(group)
            except FAILURES as error:
                # Rows keep their own failures: this one is from starting or warming up.
                self._trouble(f"brokers for {len(group.rows)} rows, {group.rows[0].name} the first", error)
        for alone in group.alone:
            self.measure(alone, partial(alone.run_alone, launcher=self._launcher, scale=self._scale))

    def _run_shared(self, group: Group) -> None:
        with self._launcher.running(self._result.names, group.flush, on_tmpfs=group.on_tmpfs) as peers:
            for peer in peers:
                say(f"{peer.name}: warming up, {group.flush} flush")
                fill(peer, group.scaled(self._scale).fill)
            time.sleep(SETTLE_S[self._scale.form])
            by_name = {peer.name: peer for peer in peers}
            for row in group.rows:
                self.measure(row, partial(self._shared, row, by_name))

    def measure(self, row: Row, run: Callable[[str], Outcome]) -> None:
        """One row: the brokers in turn, round by round, as long as there is time."""
        rounds = row.rounds(self._scale)
        for round_number in range(rounds):
            note = "" if round_number == 0 else f": rounds from {round_number + 1} on"
            if not self._has_time(note, len(self._result.names) * row.cost_s(self._scale), [row]):
                return
            for name in self._result.names:
                say(f"{name}: {row.name}, round {round_number + 1} of {rounds}")
                if not self._measure_one(row, name, round_number, run):
                    return

    def _measure_one(self, row: Row, name: str, round_number: int, run: Callable[[str], Outcome]) -> bool:
        """False if the row cannot run here at all."""
        try:
            outcome = run(name)
        except RowLeftOut as error:
            self._result.left_out.append(f"{row.name}: {error}")
            return False
        except FAILURES as error:
            self._trouble(f"{name}, {row.name}", error)
            return True
        self._keep(row, name, round_number, outcome)
        return True

    def _trouble(self, where: str, error: Exception) -> None:
        beginning = " ".join(str(error).split()[:60])
        self._result.troubles.append(f"{where}: {type(error).__name__}: {beginning}")

    def _keep(self, row: Row, name: str, round_number: int, outcome: Outcome) -> None:
        result = self._result
        for reading in outcome.readings:
            unit, more = KINDS[reading.kind]
            figure = result.figure(reading.name, unit, reading.kind, more_is_better=more)
            figure.put(name, round_number, reading.value)
        if outcome.other_cores:
            result.other_cores.setdefault(row.name, []).extend(outcome.other_cores)
        result.troubles += [f"{name}, {row.name}: {trouble}" for trouble in outcome.troubles]
        result.notes += [f"{name}, {row.name}: {outcome.note}"] if outcome.note else []
        where = {"row": row.name, "name": name, "round": round_number}
        result.details.append({**where, "detail": outcome.detail})

    def _shared(self, row: SharedRow, peers: dict[str, RunningPeer], name: str) -> Outcome:
        # What the one before has written is not to cost this one.
        os.sync()
        return row.run(peers[name], self._scale)

    def _has_time(self, note: str, cost_s: float, rows: Sequence[Row]) -> bool:
        if self._budget.allows(cost_s):
            return True
        left_s = self._budget.seconds - self._budget.spent_s
        self._result.left_out += [
            f"{row.name}{note}: would take {cost_s:.0f} s, {left_s:.0f} s were left" for row in rows
        ]
        return False


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)
