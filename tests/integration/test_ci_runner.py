"""The runner of CI's suites (.ci/runner.py): no failure is reported as passed, and what hangs is ended."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

_PATH: Final = Path(__file__).parents[2] / ".ci" / "runner.py"


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ci_runner", _PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ci_runner"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


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


def test_a_task_that_hangs_is_ended_with_what_it_started(runner: ModuleType, tmp_path: Path) -> None:
    command = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/child; trap - TERM; wait"
    hanging = runner.Task("hanging", ("sh", "-c", command), limit_s=1)
    assert run(runner, tmp_path, hanging)["hanging"].reason == "ended after its limit of 1 s"
    assert not is_running(int((tmp_path / "child").read_text()))


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
