"""Whether operations on registers are linearizable, by porcupine (porcupine/main.go).

Registers are consumer offsets, queue locks and the master key. Each key is checked by itself. An operation
that failed had no effect and is left out; a read whose answer is not known, too.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.failover.history import Operation
from tests.interop.kit import go_programs
from tests.needed import need

KINDS: Final = frozenset({"lock", "unlock", "commit", "fetch", "acquire", "forget"})
_TIMEOUT_S: Final = 600


@dataclass(frozen=True, slots=True)
class Verdict:
    """About one key. `picture` is an HTML page that shows why a history is not linearizable."""

    key: str
    operations: int
    result: str
    """Ok, Illegal, or Unknown when it would take too long to find out."""
    picture: str = ""

    @property
    def is_linearizable(self) -> bool:
        return self.result == "Ok"


def porcupine() -> Path:
    """The program; the test is skipped where it cannot be built."""
    missing = go_programs.missing_tools(go_programs.PORCUPINE)
    if missing is None:
        try:
            return go_programs.program(go_programs.PORCUPINE)
        except go_programs.GoProgramUnavailable as error:
            missing = str(error)
    need(f"porcupine: {missing}", None)
    raise AssertionError("need has skipped or failed")


def verdicts(program: Path, operations: Iterable[Operation], pictures: Path | None = None) -> list[Verdict]:
    """About each key, sorted. Other kinds of operations are ignored."""
    clients: dict[str, int] = {}
    lines = "".join(_line(each, clients) for each in operations if _counts(each))
    words = [str(program), *([] if pictures is None else [str(pictures)])]
    done = subprocess.run(words, input=lines, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"porcupine failed: {done.stderr[-1000:]}")
    return [Verdict(**json.loads(line)) for line in done.stdout.splitlines()]


def _counts(operation: Operation) -> bool:
    if operation.kind not in KINDS or operation.outcome == "failed":
        return False
    return operation.kind != "fetch" or operation.outcome == "ok"


def _line(operation: Operation, clients: dict[str, int]) -> str:
    is_known = operation.outcome == "ok"
    shown = {
        "key": operation.key,
        "kind": operation.kind,
        "client": clients.setdefault(operation.process, len(clients)),
        "begin": operation.begin_ns,
        "end": operation.end_ns if is_known else None,
        "amount": operation.amount or 0,
    }
    return json.dumps(shown) + "\n"
