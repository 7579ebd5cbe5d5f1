"""Runs tasks (set-up steps and suites of tests) side by side, as far as there are cores, and reports on them.

What each task prints goes to a file of its own, and is shown if the task fails. A suite that ran no test has
failed. Standard library only: this runs before anything is installed.
Not here: which tasks there are (suites.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

OK, FLAKY, FAILED, NOT_RUN = "ok", "flaky", "FAILED", "not run"
PASSED = (OK, FLAKY)

_POLL_S = 0.1
_SHOWN_LINES = 120  # of the failures of a suite
_SHOWN_TAIL = 25  # of a task that failed in another way
_SHOWN_WIDTH = 400
_SLOWEST = 20
_KILL_AFTER_S = 10
_FAILURES = re.compile(r"^=+ (FAILURES|ERRORS) =+$")
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (tests/.*?)(?: - |$)")


@dataclass(frozen=True)
class Task:
    """A command, and when it may run.

    `cores` is how many cores it keeps busy; 0 for what waits for the network. Of the tasks that may run,
    those with the highest `expected_s` start first. A suite runs tests and writes their results, in JUnit's
    format, to the file that {junit} stands for in its command.
    """

    name: str
    command: Sequence[str]
    cores: float = 1
    expected_s: int = 30
    after: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    limit_s: int = 1_800
    is_suite: bool = False


@dataclass(frozen=True)
class Counts:
    """How many tests of a suite had which outcome."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


@dataclass(frozen=True)
class Result:
    """How a task ended."""

    name: str
    outcome: str
    reason: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    counts: Counts | None = None
    slowest: tuple[tuple[float, str], ...] = ()
    loops: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()  # the tests that failed, as pytest names them


def junit_path(folder: Path, name: str) -> Path:
    """Where a suite writes its results."""
    return folder / f"{_file_name(name)}.xml"


def log_path(folder: Path, name: str) -> Path:
    """Where the output of a task is."""
    return folder / f"{_file_name(name)}.log"


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def run_tasks(
    tasks: Sequence[Task],
    folder: Path,
    *,
    cores: float,
    limit_s: float,
    finished: Callable[[Result], None] = lambda result: None,
    done: Mapping[str, Result] | None = None,
) -> list[Result]:
    """Run all tasks but those in `done`, at most so long; the results in the order of the tasks.

    Tasks run side by side as long as their cores fit into `cores`. What comes after a set-up task that failed
    is not run, and neither is what has not started in time; what runs at that time is ended. After a suite
    that failed the others run all the same. SIGINT and SIGTERM end all tasks that run, which have process
    groups of their own and do not get these signals; the exit status is 128 + signal then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Result] = dict(done or {})
    pending = sorted((task for task in tasks if task.name not in results), key=lambda task: -task.expected_s)
    running: list[_Running] = []
    ends_at = time.monotonic() + limit_s

    def finish(result: Result) -> None:
        results[result.name] = result
        finished(result)

    # Handlers only note the signal: an exception while a task starts would leave that task running.
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        while pending or running:
            if received:
                sys.exit(128 + received[0])
            for ended in [each for each in running if each.poll(ends_at)]:
                running.remove(ended)
                finish(ended.result(folder))
            for task in list(pending):
                failed = [name for name in task.after if name in results and not _allows_more(results[name])]
                if failed or time.monotonic() > ends_at:
                    pending.remove(task)
                    reason = f"{failed[0]} failed" if failed else "the time for the whole run was over"
                    finish(Result(task.name, NOT_RUN, reason))
                elif all(name in results for name in task.after) and _fits(task, running, cores):
                    pending.remove(task)
                    running.append(_Running(task, folder))
                    print(f"-- {task.name}", flush=True)
            time.sleep(_POLL_S)
    finally:
        for each in running:
            each.terminate()
        for each in running:
            each.kill()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return [results[task.name] for task in tasks]


def _allows_more(result: Result) -> bool:
    return result.outcome in PASSED or result.counts is not None


def _fits(task: Task, running: Iterable[_Running], cores: float) -> bool:
    used = sum(each.task.cores for each in running)
    return not used or not task.cores or used + task.cores <= cores


class _Running:
    """A task that was started."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task = task
        self._began = time.monotonic()
        self._reason = ""
        self._status = 0
        self._cpu_s = 0.0
        junit = junit_path(folder, task.name)
        junit.unlink(missing_ok=True)
        with open(log_path(folder, task.name), "wb") as log:
            self._process = subprocess.Popen(
                [word.replace("{junit}", str(junit)) for word in task.command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # As the Makefile: each program would compile the package again.
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **task.env},
                start_new_session=True,
            )

    def poll(self, ends_at: float) -> bool:
        """Whether it has ended; it is ended here when its time is over."""
        now = time.monotonic()
        if now - self._began > self.task.limit_s:
            self._reason = f"ended after its limit of {self.task.limit_s} s"
        elif now > ends_at:
            self._reason = "ended: the time for the whole run was over"
        if self._reason:
            self.kill()
            return True
        return self._wait(os.WNOHANG)

    def terminate(self) -> None:
        """Ask it to end, without waiting for that."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it with all that it started."""
        self.terminate()
        deadline = time.monotonic() + _KILL_AFTER_S
        while not self._wait(os.WNOHANG) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        # Its children may ignore the first signal, or be stopped.
        self._signal(signal.SIGKILL)
        self._wait(0)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _wait(self, options: int) -> bool:
        if self._process.returncode is None:
            pid, status, usage = os.wait4(self._process.pid, options)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self._cpu_s = usage.ru_utime + usage.ru_stime
        return self._process.returncode is not None

    def result(self, folder: Path) -> Result:
        """What became of it."""
        name, status = self.task.name, self._process.returncode
        reason = self._reason or (f"exit status {status}" if status else "")
        wall_s = time.monotonic() - self._began
        if not self.task.is_suite:
            return Result(name, FAILED if reason else OK, reason, wall_s, self._cpu_s)
        counts, slowest = read_junit(junit_path(folder, name))
        if not reason and not counts.passed:
            reason = "ran no test"
        log = log_path(folder, name).read_text(errors="replace")
        failed = tuple(
            dict.fromkeys(found[1] for found in map(_FAILED_TEST.match, log.splitlines()) if found)
        )
        outcome = FAILED if reason else OK
        return Result(name, outcome, reason, wall_s, self._cpu_s, counts, slowest, tuple(_loops(log)), failed)


def read_junit(path: Path) -> tuple[Counts, tuple[tuple[float, str], ...]]:
    """The counts and the slowest tests of a suite; none if it did not come to its end."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return Counts(), ()
    # A test whose teardown fails as well has two entries.
    outcomes: dict[tuple[str, str], str] = {}
    for case in cases:
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        key = (case.get("classname", ""), case.get("name", ""))
        if outcomes.get(key) != "failed":
            outcomes[key] = outcome
    found = list(outcomes.values())
    counts = Counts(found.count("passed"), found.count("failed"), found.count("skipped"))
    times = sorted(
        ((float(case.get("time", "0")), f"{case.get('classname')}::{case.get('name')}") for case in cases),
        reverse=True,
    )
    return counts, tuple(times[:_SLOWEST])


def _loops(log: str) -> list[str]:
    """What a suite says about its fault loops (tests/conftest.py)."""
    section = re.search(r"^=+ fault loops =+\n(.*?)(?=^=+ |\Z)", log, re.MULTILINE | re.DOTALL)
    return section[1].splitlines() if section else []


# -- tests that are repeated ---------------------------------------------------------------------------------


def can_be_repeated(result: Result) -> bool:
    """Whether a suite came to its end, and only tests that pytest named failed."""
    return result.counts is not None and 0 < result.counts.failed == len(result.failed)


def with_repetition(result: Result, repeated: Result) -> Result:
    """The result of a suite whose failed tests were run again: flaky if all of them passed now."""
    assert result.counts is not None
    if repeated.outcome != OK or repeated.counts != Counts(passed=len(result.failed)):
        return result
    counts = result.counts + Counts(passed=result.counts.failed, failed=-result.counts.failed)
    reason = f"{len(result.failed)} passed only when repeated"
    return dataclasses.replace(result, outcome=FLAKY, reason=reason, counts=counts)


# -- what is shown -------------------------------------------------------------------------------------------


def show_end(result: Result, folder: Path) -> None:
    """Print how a task ended: one line, and what failed."""
    print(f"== {one_line(result)}", flush=True)
    if result.outcome == FAILED:
        lines = what_failed(log_path(folder, result.name).read_text(errors="replace").splitlines())
        print("\n".join(line[:_SHOWN_WIDTH] for line in lines), flush=True)


def one_line(result: Result) -> str:
    """A row of the table of suites."""
    counts = result.counts
    tests = f"{counts.passed:5d} {counts.failed:6d} {counts.skipped:7d}" if counts else " " * 20
    times = f"{result.wall_s:6.0f} {result.cpu_s:6.0f}" if result.outcome != NOT_RUN else " " * 13
    return f"{result.name:<30s} {result.outcome:<7s} {times} {tests}  {result.reason}".rstrip()


def what_failed(lines: list[str]) -> list[str]:
    """pytest's description of failures, as far as it can be read; otherwise the end of the output."""
    begins = [number for number, line in enumerate(lines) if _FAILURES.match(line)]
    if not begins:
        return lines[-_SHOWN_TAIL:]
    described = [line for line in lines[begins[0] :] if not line.startswith("SKIPPED")]
    failed = [line for line in lines if _FAILED_TEST.match(line)]
    return [*described[:_SHOWN_LINES], "...", *failed, *lines[-1:]]


def summary(results: Sequence[Result], wall_s: float) -> str:
    """The table of all tasks, the slowest tests, and the total in the form of pytest's closing line."""
    total = total_counts(results)
    slowest = sorted((each for result in results for each in result.slowest), reverse=True)[:_SLOWEST]
    cpu_s = sum(result.cpu_s for result in results)
    return "\n".join(
        [
            "",
            f"{'== suites':<38s}  wall s  cpu s  pass   fail    skip",
            *(one_line(result) for result in results),
            f"{'in all':<38s} {wall_s:6.0f} {cpu_s:6.0f}",
            "",
            f"== the {_SLOWEST} slowest tests",
            *(f"{seconds:6.1f} s  {name}" for seconds, name in slowest),
            "",
            *(f"FLAKY: {test}" for result in results if result.outcome == FLAKY for test in result.failed),
            f"{total.passed} passed, {total.failed} failed",
        ]
    )


def total_counts(results: Iterable[Result]) -> Counts:
    """The tests of all suites; a task that failed without a failed test counts as one."""
    total = Counts()
    for result in results:
        counts = result.counts or Counts()
        total += counts if counts.failed or result.outcome in PASSED else counts + Counts(failed=1)
    return total


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
