"""The runner of CI's suites (.ci/runner.py): no failure is reported as passed, and what hangs is ended."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

_FOLDER: Final = Path(__file__).parents[2] / ".ci"
_MODULES: Final = ("runner", "nightly_report", "suites")


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    """What is in .ci, which is no package."""
    path = list(sys.path)
    sys.path.insert(0, str(_FOLDER))
    yield {name: importlib.import_module(name) for name in _MODULES}
    sys.path[:] = path
    for name in _MODULES:
        del sys.modules[name]


@pytest.fixture
def runner(modules: dict[str, ModuleType]) -> ModuleType:
    return modules["runner"]


def suite(runner: ModuleType, name: str, cases: str, status: int = 0, **options: Any) -> Any:
    """A suite that writes these test cases and ends with a status."""
    text = f"<testsuites><testsuite>{cases}</testsuite></testsuites>"
    return runner.Task(
        name, ("sh", "-c", f"echo '{text}' > {{junit}}; exit {status}"), is_suite=True, **options
    )


def run(runner: ModuleType, folder: Path, *tasks: Any, **options: Any) -> dict[str, Any]:
    options = {"cores": 2, "limit_s": 60, **options}
    return {result.name: result for result in runner.run_tasks(tasks, folder, **options)}


PASSED: Final = '<testcase classname="c" name="a" time="2"/>'
SKIPPED: Final = '<testcase classname="c" name="b" time="1"><skipped/></testcase>'
BROKEN: Final = '<testcase classname="c" name="d" time="3"><failure/></testcase>'


def test_the_table_has_counts_times_and_the_total_in_the_form_of_pytest(
    runner: ModuleType, tmp_path: Path
) -> None:
    results = run(
        runner,
        tmp_path,
        suite(runner, "good", PASSED + SKIPPED),
        suite(runner, "bad", PASSED + BROKEN, status=1),
    )
    assert (results["good"].outcome, results["bad"].outcome) == ("ok", "FAILED")
    assert results["bad"].counts == runner.Counts(passed=1, failed=1)
    lines = runner.summary(list(results.values()), 10).splitlines()
    assert lines[-1] == "2 passed, 1 failed"
    slowest = lines[lines.index("== the 20 slowest tests") + 1 :]
    assert slowest[0] == "   3.0 s  c::d"


@pytest.mark.parametrize("cases", ["", SKIPPED])
def test_a_suite_that_ran_no_test_has_failed(runner: ModuleType, tmp_path: Path, cases: str) -> None:
    results = run(runner, tmp_path, suite(runner, "empty", cases))
    assert (results["empty"].outcome, results["empty"].reason) == ("FAILED", "ran no test")
    assert runner.total_counts(results.values()).failed == 1


def test_what_needs_a_failed_step_does_not_run_and_counts_as_failed(
    runner: ModuleType, tmp_path: Path
) -> None:
    results = run(
        runner,
        tmp_path,
        runner.Task("set-up", ("false",)),
        suite(runner, "dependent", PASSED, after=("set-up",)),
        suite(runner, "other", PASSED),
    )
    assert (results["dependent"].outcome, results["dependent"].reason) == ("not run", "set-up failed")
    assert results["other"].outcome == "ok"
    assert runner.total_counts(results.values()) == runner.Counts(passed=1, failed=2)


def test_a_suite_that_failed_keeps_no_other_from_running(runner: ModuleType, tmp_path: Path) -> None:
    results = run(
        runner, tmp_path, suite(runner, "empty", ""), suite(runner, "next", PASSED, after=("empty",))
    )
    assert [result.outcome for result in results.values()] == ["FAILED", "ok"]


@pytest.mark.slow
def test_a_task_that_hangs_is_ended_with_what_it_started(runner: ModuleType, tmp_path: Path) -> None:
    command = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/child; trap - TERM; wait"
    hanging = runner.Task("hanging", ("sh", "-c", command), limit_s=3)
    assert run(runner, tmp_path, hanging)["hanging"].reason == "ended after its limit of 3 s"
    wait_end(int((tmp_path / "child").read_text()))


def test_a_run_that_is_terminated_ends_what_it_started(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, runner, sys\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "command = ('sh', '-c', f'sleep 600 & echo $! > {folder}/child; kill -TERM {os.getpid()}; wait')\n"
        "runner.run_tasks([runner.Task('long', command)], folder, cores=1, limit_s=60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(_FOLDER)}
    ran = subprocess.run([sys.executable, "-c", program, tmp_path], env=environment, timeout=60)
    assert ran.returncode == 128 + signal.SIGTERM
    wait_end(int((tmp_path / "child").read_text()))


def wait_end(pid: int) -> None:
    """A process that was killed takes a moment to end."""
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only its exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_tasks_run_side_by_side_as_far_as_the_cores_go(runner: ModuleType, tmp_path: Path) -> None:
    """The first two can only end together; the third needs both cores and finds them idle."""

    def meets(mine: str, other: str) -> Any:
        wait = f"touch {tmp_path}/{mine}; until [ -e {tmp_path}/{other} ]; do sleep 0.02; done"
        return runner.Task(mine, ("sh", "-c", wait), expected_s=100)

    alone = f"[ -e {tmp_path}/one ] && [ -e {tmp_path}/two ]"
    results = run(
        runner,
        tmp_path,
        runner.Task("both", ("sh", "-c", alone), cores=2),
        meets("one", "two"),
        meets("two", "one"),
    )
    assert [result.outcome for result in results.values()] == ["ok", "ok", "ok"]


def test_what_passed_before_is_not_run_again(runner: ModuleType, tmp_path: Path) -> None:
    done = {"done": runner.Result("done", runner.OK, counts=runner.Counts(passed=3))}
    results = run(runner, tmp_path, runner.Task("done", ("false",), is_suite=True), done=done)
    assert results == done


def test_an_interrupted_nightly_run_knows_what_passed_on_its_commit(
    modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, runner = modules["nightly_report"], modules["runner"]
    counts = runner.Counts(passed=3)
    passed = runner.Result("good", runner.OK, "", 2.0, 1.0, counts, ((1.5, "c::a"),), ("loop: 3 rounds",))

    def journal(commit: str, since: str | None = None) -> Any:
        monkeypatch.setattr(report, "commit", lambda: commit)
        monkeypatch.setattr(report, "_git", lambda *_: "def\nabc")
        return report.Journal(tmp_path / "results.jsonl", since)

    journal("abc").add(passed)
    journal("abc").add(runner.Result("bad", runner.FAILED, "exit status 1"))
    assert journal("abc").passed() == {"good": passed}
    assert journal("def").passed() == journal("abc+changes").passed() == {}
    later = journal("def", since="abc")
    assert (later.passed(), later.commits) == ({"good": passed}, {"good": "abc"})


def test_the_nightly_report_has_suites_counts_and_fault_loops(
    modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, runner = modules["nightly_report"], modules["runner"]
    monkeypatch.setattr(report, "REPORT", tmp_path / "nightly.md")
    monkeypatch.setattr(report, "commit", lambda: "abc")
    results = [
        runner.Result("good", runner.OK, "", 2.0, 1.0, runner.Counts(passed=3), (), ("loop: 3 rounds",)),
        runner.Result("late", runner.NOT_RUN, "the time for the whole run was over"),
    ]
    report.write(results, 120, {"good": "abb"})
    lines = (tmp_path / "nightly.md").read_text().splitlines()
    assert "commit abc" in lines[2] and "**failed**, 3 passed, 1 failed" in lines[2]
    assert "| good | abb | ok | 2 | 1 | 3 | 0 | 0 |" in lines
    assert "| late |  | not run: the time for the whole run was over | | | 0 | 0 | 0 |" in lines
    assert "- good: loop: 3 rounds" in lines


@pytest.mark.parametrize(
    ("failed", "passes_again", "end"),
    [
        (1, True, ["FLAKY: tests/c.py::d0", "2 passed, 0 failed", "CI: passed"]),
        (1, False, ["1 passed, 1 failed", "CI: failed"]),
        (4, True, ["1 passed, 4 failed", "CI: failed"]),
    ],
)
def test_a_failed_test_is_repeated_alone_and_reported_as_flaky_if_it_passes(
    modules: dict[str, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    failed: int,
    passes_again: bool,
    end: list[str],
) -> None:
    def program(cases: str, status: int, said: str = "") -> tuple[str, ...]:
        return ("sh", "-c", f"echo '<s>{cases}</s>' > {{junit}}; echo '{said}'; exit {status}", "tests/c.py")

    suites, runner = modules["suites"], modules["runner"]
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    monkeypatch.setattr(suites, "_PYTEST", program(PASSED if passes_again else BROKEN, 1 - passes_again))
    said = "\n".join(f"FAILED tests/c.py::d{number} - assert 1 == 2" for number in range(failed))
    broken = "".join(BROKEN.replace('"d"', f'"d{number}"') for number in range(failed))
    task = runner.Task("suite", program(PASSED + broken, 1, said), is_suite=True)
    assert suites.run_ci([task]) == 1 - (end[-1] == "CI: passed")
    assert capfd.readouterr().out.splitlines()[-len(end) :] == end


@pytest.mark.parametrize("which", ["ci_tasks", "nightly_tasks"])
def test_every_task_comes_after_tasks_that_there_are(modules: dict[str, ModuleType], which: str) -> None:
    tasks = getattr(modules["suites"], which)()
    names = [task.name for task in tasks]
    assert len(set(names)) == len(names)
    assert {name for task in tasks for name in task.after} <= set(names)
    assert all("{junit}" in " ".join(task.command) for task in tasks if task.is_suite)
