"""loadgen.c as a function: compiled once per run, one JSON object per measurement."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "loadgen.c"
SHA1 = SOURCE.parents[1] / "src" / "kourou" / "store" / "native" / "sha1.h"
# Past its measured time: connecting, creating topics, warming up, draining.
SPARE_S = 120
LONGEST_S = 3_600


class LoadgenError(RuntimeError):
    """The load generator cannot be built, or ended without a result."""


def build(folder: Path) -> Path:
    """Compile loadgen.c into a folder; returns the program."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise LoadgenError("loadgen.c needs a C compiler (cc) on PATH; on Debian: apt-get install gcc")
    program = folder / "loadgen"
    done = subprocess.run(
        [compiler, "-O2", f"-I{SHA1.parent}", "-o", str(program), str(SOURCE)],
        capture_output=True,
        text=True,
        timeout=SPARE_S,
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
        if self.raw.get("lost"):
            found.append(f"{self.raw['lost']} lost")
        if self.raw.get("issued", 0) != self.raw.get("stored", 0):
            found.append(f"{self.raw['issued']} sent one way, {self.raw['stored']} stored")
        return found

    @property
    def other_cores(self) -> float:
        """What everything else on the machine used meanwhile."""
        return float(self.raw["other_cores"]) + float(self.raw["steal_cores"])


@dataclass(frozen=True)
class Interval:
    """What came in during one interval of `--each`, and the slowest of it."""

    number: int
    messages: int
    worst_ack_ms: float
    worst_delivery_ms: float


class Loadgen:
    """The built program, for one broker."""

    def __init__(self, program: Path, port: int, *pids: int) -> None:
        self._command = [str(program)]
        self._target = ["-p", str(port), *(word for pid in pids for word in ("-P", str(pid)))]

    def run(self, mode: str, *arguments: object, timeout_s: float = LONGEST_S) -> Measured:
        """One measurement; raises LoadgenError when no message got through."""
        words = self._words(mode, arguments)
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise LoadgenError(f"{_said(words)}: no end within {timeout_s:g} s") from error
        if done.returncode != 0:
            raise LoadgenError(f"{_said(words)}: exit status {done.returncode}\n{done.stderr}")
        return _measured(json.loads(done.stdout.splitlines()[-1]))

    def start(self, mode: str, *arguments: object, log_path: Path) -> RunningLoad:
        """A load that goes on beside others until it is stopped; with `--each` among the arguments."""
        with open(log_path, "wb") as log:
            words = self._words(mode, arguments)
            return RunningLoad(subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT), log_path)

    def try_send_one(self, *arguments: object) -> bool:
        """Whether the broker takes a message now; `arguments` in place of a topic that is made for it."""
        words = self._words("send", (*(arguments or ("-t", "FirstSend", "-C")), "-N", "1"))
        return subprocess.run(words, capture_output=True, timeout=SPARE_S).returncode == 0

    def _words(self, mode: str, arguments: tuple[object, ...]) -> list[str]:
        return [*self._command, mode, *self._target, *map(str, arguments)]


class RunningLoad:
    """A load under way."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path

    @property
    def is_alive(self) -> bool:
        """Whether it still sends."""
        return self._process.poll() is None

    def intervals(self) -> list[Interval]:
        """Those that are over."""
        found = []
        for line in self._log_path.read_text(errors="replace").splitlines(keepends=True):
            if line.startswith('{"interval"') and line.endswith("\n"):
                found.append(_interval(json.loads(line)))
        return found

    def output(self) -> str:
        """All that it has printed, to explain a failure."""
        return self._log_path.read_text(errors="replace")

    def wait(self, timeout_s: float) -> Measured:
        """What it found when its time was over. LoadgenError when it fails."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            self.stop()
            raise LoadgenError(f"a load did not end within {timeout_s:g} s") from error
        if status != 0:
            raise LoadgenError(f"a load ended with exit status {status}:\n{self.output()[-2000:]}")
        return _measured(json.loads(self.output().splitlines()[-1]))

    def stop(self) -> list[Interval]:
        """End it; what it did until then."""
        if self.is_alive:
            self._process.terminate()
        self._process.wait(SPARE_S)
        return self.intervals()


def _said(words: list[str]) -> str:
    """A command without the folder of its program, which is a temporary one."""
    return " ".join([Path(words[0]).name, *words[1:]])


def _interval(raw: dict[str, Any]) -> Interval:
    return Interval(raw["interval"], raw["messages"], raw["ack_max_us"] / 1e3, raw["delivery_max_us"] / 1e3)


def _measured(raw: dict[str, Any]) -> Measured:
    latency = raw["latency_us"]
    return Measured(
        messages_per_s=float(raw["msgs_per_s"]),
        cpu_us=float(raw["server_cpu_us_per_msg"]),
        p50_us=float(latency["p50"]),
        p99_us=float(latency["p99"]),
        raw=raw,
    )
