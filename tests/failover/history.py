"""History: what the clients of a chaos run did, one JSON object a line.

What may have an effect, such as a send, is written twice: when it begins, and again with its outcome when it
ends. Without a second line (the workload died) the outcome is `unknown`. All other operations are written
once. Each line is one write to a file opened for appending, so that a workload that is killed leaves at most
one torn line, at the end, and several processes may share a file. Times are nanoseconds of CLOCK_MONOTONIC,
one clock for all processes of a machine.

Kinds and the fields that each uses, besides `process`, `begin_ns`, `end_ns`, `outcome`:

    send         value, is_idempotent, unsure_attempts; batch and index of a batch; if a broker answered:
                 queue, queue_offset, phy_offset, epoch, address
    transaction  the same for the half message, without queue and offsets; decision: commit or rollback
    publish      value, batch, index: a message of an atomic publish, whose messages have the same `batch` and
                 outcome. Its place is where final readers find it
    check        value, decision: what the producer answered to a broker's check
    read         value, queue, queue_offset, assignment: by a final reader
    deliver      value, queue, queue_offset, group, assignment: by a consumer. `assignment` numbers the times
                 that this process got the queue, where messages have to come in order; otherwise None
    scan         queue, low_offset, high_offset: a final reader has read all of the queue
    drain        queue, group: the group had the time to consume all of the queue
    offset       queue, group, address, amount: the group's offset, as a broker says
    reign        key, epoch, address: the master of an epoch of the broker name `key`
    epoch        key, epoch, phy_offset: where an epoch starts in the log of the broker name `key`
    event        error: a note, such as a fault that was injected
    lock, unlock, commit, fetch, acquire, forget     key, amount: registers.py

A queue is `topic/brokerName/queueId`.

`outcome` of a send or a publish: `ok` is an acknowledgement that the broker gives when the message is as safe
as it promises, `failed` says that no attempt can have stored it, anything else is `unknown`.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec

Outcome = Literal["ok", "failed", "unknown"]
Decision = Literal["commit", "rollback"]
Kind = Literal[
    "send",
    "transaction",
    "publish",
    "check",
    "read",
    "deliver",
    "scan",
    "drain",
    "offset",
    "reign",
    "epoch",
    "event",
    "lock",
    "unlock",
    "commit",
    "fetch",
    "acquire",
    "forget",
]
_TWICE: Final = frozenset({"send", "transaction", "publish", "lock", "unlock", "commit", "acquire"})
"""Kinds that are written when they begin, too: they may have an effect."""


class HistoryError(ValueError):
    """A file that is not a history."""


class Operation(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One operation of one process. `number` is unique in its process."""

    process: str
    number: int
    kind: Kind
    begin_ns: int
    end_ns: int | None = None
    outcome: Outcome = "unknown"
    value: str | None = None
    queue: str | None = None
    queue_offset: int | None = None
    phy_offset: int | None = None
    epoch: int | None = None
    address: str | None = None
    is_idempotent: bool = False
    unsure_attempts: int = 0
    """How many attempts may have stored the message without an acknowledgement."""
    batch: int | None = None
    index: int = 0
    decision: Decision | None = None
    group: str | None = None
    assignment: int | None = None
    low_offset: int | None = None
    high_offset: int | None = None
    key: str | None = None
    """Of a register."""
    amount: int | None = None
    """What was written to a register or read from it, or an offset."""
    error: str | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Whether a broker has promised to keep the message."""
        return self.outcome == "ok"

    def lies_before(self, other: Operation) -> bool:
        """Whether it had ended when the other began."""
        return self.end_ns is not None and self.end_ns < other.begin_ns


_decoder: Final = msgspec.json.Decoder(Operation)
_encoder: Final = msgspec.json.Encoder()


class History:
    """Appends operations to a file. Use it as a context manager, or `close` it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._numbers = itertools.count()

    def begin(self, kind: Kind, process: str, **fields: Any) -> Operation:
        """An operation begins now."""
        operation = Operation(
            process=f"{process}@{os.getpid()}",
            number=next(self._numbers),
            kind=kind,
            begin_ns=time.monotonic_ns(),
            **fields,
        )
        if kind in _TWICE:
            self._write(operation)
        return operation

    def end(self, operation: Operation, outcome: Outcome = "ok") -> None:
        """It ends now."""
        operation.end_ns = time.monotonic_ns()
        operation.outcome = outcome
        self._write(operation)

    def note(self, kind: Kind, process: str, **fields: Any) -> None:
        """Something that takes no time."""
        self.end(self.begin(kind, process, **fields))

    def event(self, process: str, text: str) -> None:
        """A note for people: a fault, a phase of the run."""
        self.note("event", process, error=text)

    def reign(self, *, epoch: int, address: str, broker_name: str = "broker-a") -> None:
        """A broker was master of an epoch."""
        self.note("reign", "set", key=broker_name, epoch=epoch, address=address)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, operation: Operation) -> None:
        os.write(self._file, _encoder.encode(operation) + b"\n")


def read_history(*paths: Path) -> Iterator[Operation]:
    """The operations of files, each once; those that never ended come last. HistoryError names a line that is
    not an operation, unless it is the last one of its file and torn."""
    for path in paths:
        yield from _joined(_lines(path))


def _lines(path: Path) -> Iterator[Operation]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield _decoder.decode(line)
            except msgspec.MsgspecError as error:
                if line.endswith(b"\n"):
                    raise HistoryError(f"{path}:{number}: not an operation: {error}") from None


def _joined(lines: Iterable[Operation]) -> Iterator[Operation]:
    begun: dict[tuple[str, int], Operation] = {}
    for operation in lines:
        if operation.end_ns is None:
            begun[operation.process, operation.number] = operation
        else:
            begun.pop((operation.process, operation.number), None)
            yield operation
    yield from begun.values()
