"""loadgen.c as a function: compiled once per run, one JSON object per measurement."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "loadgen.c"
# Past its measured time: connecting, creating topics, warming up, draining.
SPARE_S = 120


class LoadgenError(RuntimeError):
    """The load generator cannot be built, or ended without a result."""


def build(folder: Path) -> Path:
    """Compile loadgen.c into a folder; returns the program."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise LoadgenError("loadgen.c needs a C compiler (cc) on PATH; on Debian: apt-get install gcc")
    program = folder / "loadgen"
    done = subprocess.run(
        [compiler, "-O2", "-o", str(program), str(SOURCE)], capture_output=True, text=True, timeout=SPARE_S
    )
    if done.returncode != 0:
        raise LoadgenError(f"{compiler} does not compile {SOURCE.name}:\n{done.stderr}")
    return program


@dataclass(frozen=True)
class Measured:
    """One run of the load generator; see loadgen.c for the keys of `raw`."""

    messages_per_s: float
    cpu_us: float
    p50_us: float
    p99_us: float
    raw: dict[str, Any]

    @property
    def troubles(self) -> list[str]:
        """What makes the figures doubtful: messages that were refused or lost."""
        codes = {code: count for code, count in self.raw["codes"].items() if code != "0"}
        found = [f"codes {codes}"] if codes else []
        return found + ([f"{self.raw['lost']} lost"] if self.raw.get("lost") else [])

    @property
    def other_cores(self) -> float:
        """What everything else on the machine used meanwhile."""
        return float(self.raw["other_cores"]) + float(self.raw["steal_cores"])


class Loadgen:
    """The built program, for one broker."""

    def __init__(self, program: Path, port: int, pid: int) -> None:
        self._command = [str(program)]
        self._target = ["-p", str(port), "-P", str(pid)]

    def run(self, mode: str, *arguments: object) -> Measured:
        """One measurement; raises LoadgenError when no message got through."""
        words = [*self._command, mode, *self._target, *map(str, arguments)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=3_600)
        if done.returncode != 0:
            raise LoadgenError(f"{' '.join(words)}: exit status {done.returncode}\n{done.stderr}")
        return _measured(json.loads(done.stdout))

    def try_send_one(self) -> bool:
        """Whether the broker takes a message now."""
        words = [*self._command, "send", *self._target, "-t", "FirstSend", "-C", "-N", "1"]
        return subprocess.run(words, capture_output=True, timeout=SPARE_S).returncode == 0


def _measured(raw: dict[str, Any]) -> Measured:
    latency = raw["latency_us"]
    return Measured(
        messages_per_s=float(raw["msgs_per_s"]),
        cpu_us=float(raw["server_cpu_us_per_msg"]),
        p50_us=float(latency["p50"]),
        p99_us=float(latency["p99"]),
        raw=raw,
    )
