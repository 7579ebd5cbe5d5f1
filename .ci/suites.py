"""What `.ci/run` and `make nightly` run.

    python3 .ci/suites.py ci [NAME...]        everything that must hold before a change lands
    python3 .ci/suites.py nightly [NAME...]   full counts and reference runs; writes their report

With names, only these tasks run, and what they need. The output of each task is in build/ci or build/nightly.
KOUROU_CI_CORES says how many cores to share out (default: the machine's, at least 2).
An interrupted nightly run continues where it was, as long as the commit is the same; with --since COMMIT,
suites that passed at that commit or a later one are not repeated. The report names the commit of each suite.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import nightly_report  # noqa: E402
from runner import (  # noqa: E402
    PASSED,
    ROOT,
    Result,
    Task,
    available_cores,
    can_be_repeated,
    run_tasks,
    show_end,
    summary,
    with_repetition,
)

PYTHON = ".venv/bin/python"
_CI_BUDGET_S = 35 * 60  # on a quiet machine of 2 cores
_LIMIT_S = 85 * 60
_MAX_REPEATED = 3  # failed tests of a run; more is no accident
_PIP = (PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "5")
_SPARK = {"KOUROU_REQUIRE_SPARK": "1"}
_INTEGRATIONS = {"KOUROU_REQUIRE_INTEGRATIONS": "1"}
_NO_KERNEL = {"KOUROU_KERNEL": "0"}
_ELSEWHERE = "not interop and not integration and not browser and not spark"
# A test that hangs shows where, long before its suite is ended.
_PYTEST = (
    PYTHON,
    "-m",
    "pytest",
    "-p",
    "no:cacheprovider",
    "-o",
    "faulthandler_timeout=240",
    "--junitxml={junit}",
)
# The tests of the kernel compile it with these flags. Python has to be started with the sanitizer's library,
# and without an allocator of its own, which would hide what lies behind the end of an object.
_SANITIZERS = {
    "KOUROU_TEST_KERNEL_FLAGS": "-g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined "
    "-fno-sanitize-recover=all",
    "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter keeps much until its end
    "PYTHONMALLOC": "malloc",
}
_WITH_ASAN = ("bash", "-c", 'LD_PRELOAD=$(cc -print-file-name=libasan.so) exec "$@"', "with-asan")
# These start JVMs of their own. All other files share one session, in one process.
_JVM_FILES = (
    *("cluster", "connect", "driver_kill", "exactly_once_kill", "lake_killed", "pipeline_jdbc"),
    *("pipeline_process", "source_million"),
)

_WAITS = 0.6  # cores of a suite that waits for timers and other processes for much of its time
_AFTER_TESTS = ("tests", "interop set-up")
_AFTER_EXTRAS = ("extras set-up", "interop set-up")


def suite(name: str, arguments: Sequence[str], **options: object) -> Task:
    """A suite that is run by pytest."""
    return Task(name, (*_PYTEST, *arguments), is_suite=True, **options)  # type: ignore[arg-type]


def interop(name: str, *patterns: str, **options: object) -> Task:
    """A suite with Apache RocketMQ."""
    files = [path for pattern in patterns for path in found(f"tests/interop/{pattern}")]
    return suite(f"interop: {name}", ("-m", "interop", *files), **{"after": _AFTER_TESTS, **options})


def found(pattern: str) -> list[str]:
    """The files of a pattern; there has to be one, so that no suite is empty unnoticed."""
    paths = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))
    assert paths, f".ci/suites.py: there is no {pattern}"
    return paths


def naming(*words: str, but: str = "tests/interop/") -> list[str]:
    """The files of tests with one of these words: to collect all tests takes a quarter of a minute."""
    return [
        path
        for path in found("tests/**/test_*.py")
        if not path.startswith(but) and any(word in (ROOT / path).read_text("utf-8") for word in words)
    ]


def extras(*names: str) -> list[str]:
    """The packages of extras of this project: without the project itself, which running suites use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages: list[str] = []
    for name in names:
        for requirement in project["optional-dependencies"][name]:
            own = re.fullmatch(r"kourou\[(.*)\]", requirement)
            packages += extras(*own[1].split(",")) if own else [requirement]
    return packages


def retried(*command: str) -> tuple[str, ...]:
    """A command that is tried three times: package indexes can be unreachable for a moment."""
    return (
        "bash",
        "-c",
        'for pause in 5 20 0; do "$@" && exit; sleep $pause; done; exit 1',
        "retried",
        *command,
    )


def set_up(extras_after: Sequence[str]) -> Iterator[Task]:
    """What suites need; Spark and other extras after what has to work without them."""
    yield Task("packages", ("bash", ".ci/interop-setup", "packages"), cores=0, expected_s=9_000)
    yield Task("set-up", retried("make", ".venv/.ready"), expected_s=9_000)
    # Where the compiler came with the packages, the kernel could not be compiled before.
    check = f"{PYTHON} -m kourou.cli.main version --json | grep -q '\"inUse\":true'"
    kernel = ("bash", "-c", f"{check} || make kernel")
    yield Task("kernel set-up", kernel, expected_s=9_000, after=("packages", "set-up"))
    # Waits for the network, where there is anything to do at all.
    artifacts = ("bash", ".ci/interop-setup", "artifacts")
    yield Task("interop set-up", artifacts, cores=0, expected_s=9_000, after=("kernel set-up",))
    packages = extras("integration-test", "console-test", "spark-test")
    install = retried(*_PIP, "-c", "constraints.txt", *packages)
    yield Task("extras set-up", install, expected_s=8_000, after=extras_after)


def ci_tasks() -> list[Task]:
    """Everything that must hold before a change lands."""
    return [
        *set_up(extras_after=("tests",)),
        Task("format, lint, types", ("make", "check"), expected_s=8_000, after=("set-up",)),
        Task(
            "tests",
            ("make", "test", "ARGS=--junitxml={junit}"),
            cores=2,
            expected_s=7_000,
            after=("kernel set-up",),
            is_suite=True,
        ),
        # The demo has a part with Spark, if it is there.
        suite(
            "slow tests",
            ("-m", f"slow and {_ELSEWHERE}", *naming("mark.slow")),
            after=_AFTER_EXTRAS,
            cores=_WAITS,
            expected_s=400,
        ),
        interop("messaging", "test_messaging_*.py", "test_*_handover.py", cores=_WAITS, expected_s=300),
        interop("broker", "test_broker_*.py", cores=_WAITS, expected_s=250),
        interop("client", "test_client_*.py", expected_s=170),
        interop(
            "replication",
            *("test_replication_*.py", "test_failover_*.py"),
            env=_INTEGRATIONS,
            cores=_WAITS,
            expected_s=150,
        ),
        interop("mqadmin", "test_mqadmin.py", expected_s=80),
        interop("name server", "test_namesrv*.py", expected_s=80),
        interop("store, SQL", "test_store.py", "test_sql_oracle.py", expected_s=80),
        interop("access", "test_access_*.py", expected_s=110),
        interop("gRPC", "test_grpc_*.py", expected_s=180),
        interop("metrics", "test_metrics.py", expected_s=60),
        interop("console", "test_console.py", env=_INTEGRATIONS, after=_AFTER_EXTRAS, expected_s=60),
        suite(
            "integrations",
            ("-m", "integration", *found("tests/e2e/client"), *found("tests/integration/etcd")),
            env=_INTEGRATIONS,
            after=_AFTER_EXTRAS,
            expected_s=100,
        ),
        # Broker sets whose members, links and etcd fail: the load of the test itself is a core.
        suite(
            "fail-over",
            ("-m", "integration", *found("tests/failover"), *found("tests/integration/failover")),
            env=_INTEGRATIONS,
            after=_AFTER_EXTRAS,
            cores=2,
            expected_s=180,
        ),
        suite(
            "console",
            ("-m", "browser", *found("tests/e2e/console"), *found("tests/e2e/shop/test_shop_pages.py")),
            env=_INTEGRATIONS,
            after=_AFTER_EXTRAS,
            expected_s=145,
        ),
        # The shop's processes use all cores while they are killed and started again.
        suite(
            "shop",
            ("-m", "integration", *found("tests/e2e/shop")),
            env=_INTEGRATIONS,
            after=_AFTER_EXTRAS,
            cores=2,
            expected_s=250,
        ),
        *spark_suites(),
        suite(
            "without the kernel: broker",
            (*found("tests/e2e/broker"), *found("tests/e2e/test_broker_bad_input.py")),
            # The default tests work in memory.
            env={**_NO_KERNEL, "KOUROU_TEST_ON_DISK": "1"},
            cores=_WAITS,
            after=_AFTER_TESTS,
            expected_s=90,
        ),
        interop(
            "without the kernel",
            *("test_broker_sending.py", "test_broker_consuming.py"),
            env=_NO_KERNEL,
            cores=_WAITS,
            expected_s=90,
        ),
    ]


def spark_suites() -> Iterator[Task]:
    """Spark over our topics, and pipelines."""
    options = {"env": _SPARK, "after": _AFTER_EXTRAS}
    unit = (
        "tests/unit/spark",
        "tests/unit/pipelines",
        "tests/integration/spark",
        "tests/unit/cli/pipeline/test_sql.py",
        "tests/unit/test_doc_examples.py",
    )
    yield suite(
        "spark: unit tests", [path for each in unit for path in found(each)], **options, expected_s=60
    )
    own_jvms = [path for name in _JVM_FILES for path in found(f"tests/spark/**/test_{name}.py")]
    shared = [path for path in found("tests/spark/**/test_*.py") if path not in own_jvms]
    own_jvms += found("tests/e2e/test_demo.py")
    yield suite("spark: one session", ("-m", "spark", *shared), **options, expected_s=350)
    yield suite("spark: processes", ("-m", "spark", *own_jvms), **options, expected_s=200)


def nightly_tasks() -> list[Task]:
    """Full counts of fault loops and oracles, all lanes with references, and what only runs here."""
    after = ("extras set-up", "interop set-up")

    def loops(name: str, *paths: str, **options: object) -> Task:
        arguments = ("-m", _ELSEWHERE, *paths)
        options = {"after": after, "cores": _WAITS, "limit_s": 2_700, "expected_s": 900, **options}
        return suite(name, arguments, **options)

    def all_interop(name: str, *patterns: str, **options: object) -> Task:
        return interop(name, *patterns, **{"after": after, **options})

    crash = found("tests/crash/test_*.py")
    tasks = [
        *set_up(extras_after=("kernel set-up",)),
        *(loops(f"crash: {Path(path).stem.removeprefix('test_').replace('_', ' ')}", path) for path in crash),
        suite(
            "property tests",
            ("-m", f"hypothesis and {_ELSEWHERE}", *naming("hypothesis")),
            after=after,
            limit_s=2_700,
            expected_s=900,
        ),
        suite(
            "slow tests",
            (
                "-m",
                f"(slow or nightly) and {_ELSEWHERE}",
                *naming("mark.slow", "mark.nightly", but="tests/crash/"),
            ),
            after=after,
            expected_s=600,
        ),
        loops("starts and stops", *found("tests/**/test_starts_and_stops.py"), expected_s=300),
        all_interop("client, all lanes", "test_client_*.py", expected_s=700),
        all_interop("messaging, all lanes", "test_messaging_*.py", "test_*_handover.py", expected_s=700),
        all_interop("broker", "test_broker_*.py", expected_s=700),
        all_interop("replication", "test_replication_*.py", "test_failover_*.py", expected_s=350),
        all_interop("mqadmin", "test_mqadmin.py", "test_namesrv*.py", expected_s=300),
        all_interop("access", "test_access_*.py", expected_s=150),
        all_interop("gRPC", "test_grpc_*.py", expected_s=300),
        all_interop("store, SQL", "test_store.py", "test_sql_oracle.py", expected_s=600),
        # Without references, which have no kernel.
        all_interop(
            "without the kernel", "test_*.py", env={**_NO_KERNEL, "KOUROU_NIGHTLY": "0"}, expected_s=800
        ),
        loops("without the kernel: crash", "tests/crash", env={**_NO_KERNEL, "KOUROU_NIGHTLY_LOOP_S": "60"}),
        suite(
            "fail-over",
            ("-m", "integration", *found("tests/failover")),
            env=_INTEGRATIONS,
            after=after,
            cores=2,
            expected_s=250,
        ),
        Task("wheel", ("make", "wheel"), after=after, expected_s=200),
        Task("mutants", (PYTHON, ".ci/mutants.py"), after=after, expected_s=400),
        Task(
            "kernel, with sanitizers",
            # The report of a sanitizer goes to the file descriptor; pytest must not capture that.
            (*_WITH_ASAN, *_PYTEST, "--capture=sys", *found("tests/integration/kernel")),
            env=_SANITIZERS,
            after=after,
            limit_s=2_700,
            expected_s=600,
            is_suite=True,
        ),
        suite(
            "spark: nightly",
            ("-m", "spark and (nightly or crash)", "tests/spark"),
            env=_SPARK,
            after=after,
            expected_s=600,
        ),
        suite(
            "spark: kills",
            ("-m", "spark and not nightly", *found("tests/spark/**/test_*kill*.py")),
            env=_SPARK,
            after=after,
            expected_s=600,
        ),
    ]
    return [dataclasses.replace(task, env={"KOUROU_NIGHTLY": "1", **task.env}) for task in tasks]


def main() -> int:
    """Run the tasks that were asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description="Runs the suites of CI or of a nightly run.")
    parser.add_argument("which", choices=("ci", "nightly"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these tasks, and what they need")
    parser.add_argument("--list", action="store_true", help="print the names of the tasks")
    parser.add_argument(
        "--since", metavar="COMMIT", help="nightly: do not repeat suites that passed at this commit or later"
    )
    options = parser.parse_args()
    tasks = ci_tasks() if options.which == "ci" else nightly_tasks()
    if options.list:
        print("\n".join(task.name for task in tasks))
        return 0
    unknown = set(options.names) - {task.name for task in tasks}
    if unknown:
        parser.error(f"there is no task {', '.join(sorted(unknown))}; --list prints all")
    os.environ["KOUROU_REQUIRE_INTEROP"] = "1"
    chosen = needed(tasks, options.names)
    if options.which == "ci":
        return run_ci(chosen)
    return run_nightly(chosen, is_whole=not options.names, since=options.since)


def needed(tasks: Sequence[Task], names: Sequence[str]) -> list[Task]:
    """The tasks of these names and all set-up that they need; all tasks if there are no names."""
    if not names:
        return list(tasks)
    by_name = {task.name: task for task in tasks}
    wanted: dict[str, Task] = {}
    pending = list(names)
    while pending:
        task = by_name[pending.pop()]
        after = [name for name in task.after if name in names or not by_name[name].is_suite]
        wanted[task.name] = dataclasses.replace(task, after=after)
        pending += [name for name in after if name not in wanted]
    return [wanted[task.name] for task in tasks if task.name in wanted]


def cores() -> float:
    """The cores to share out."""
    return float(os.environ.get("KOUROU_CI_CORES") or max(2, available_cores()))


def run_ci(tasks: Sequence[Task]) -> int:
    """Run the suites of CI. Up to three tests that failed are run again at the end, with nothing beside them:
    those that pass are reported as flaky and do not fail the run."""
    folder = ROOT / "build" / "ci"
    began = time.monotonic()

    def run(some: Sequence[Task]) -> list[Result]:
        left_s = _LIMIT_S - (time.monotonic() - began)
        return run_tasks(
            some, folder, cores=cores(), limit_s=left_s, finished=lambda result: show_end(result, folder)
        )

    results = run(tasks)
    again = {
        result.name: repetition(task, result)
        for task, result in zip(tasks, results, strict=True)
        if can_be_repeated(result)
    }
    if sum(result.counts.failed for result in results if result.counts) <= _MAX_REPEATED:
        repeated = dict(zip(again, run(list(again.values())), strict=True))
        results = [
            with_repetition(result, repeated[result.name]) if result.name in repeated else result
            for result in results
        ]
    wall_s = time.monotonic() - began
    print(summary(results, wall_s))
    if wall_s > _CI_BUDGET_S:
        # A warning, not a failure: machines differ in speed by half.
        print(
            f"WARNING: this took {wall_s:.0f} s; the budget of a quiet machine of 2 cores is {_CI_BUDGET_S} s"
        )
    return verdict("CI", results)


def repetition(task: Task, result: Result) -> Task:
    """The tests of a suite that failed, with no other suite beside them."""
    command = task.command if task.command[0] == PYTHON else _PYTEST
    options = [word for word in command if not word.startswith("tests/")]
    return dataclasses.replace(
        task, name=f"again: {task.name}", command=(*options, *result.failed), cores=cores(), after=()
    )


def run_nightly(tasks: Sequence[Task], *, is_whole: bool, since: str | None) -> int:
    """Run the nightly suites, except those that have passed at this commit, or since `since`. A whole run
    writes the report."""
    folder = ROOT / "build" / "nightly"
    journal = nightly_report.Journal(folder / "results.jsonl", since)
    began = time.monotonic()

    def finished(result: Result) -> None:
        show_end(result, folder)
        journal.add(result)

    done = {name: result for name, result in journal.passed().items() if result.counts is not None}
    results = run_tasks(tasks, folder, cores=cores(), limit_s=_LIMIT_S, finished=finished, done=done)
    wall_s = time.monotonic() - began
    print(summary(results, wall_s))
    if is_whole:
        print(f"the report: {nightly_report.write(results, wall_s, journal.commits)}")
    return verdict("Nightly", results)


def verdict(what: str, results: Sequence[Result]) -> int:
    """Print the last line; the exit status."""
    is_ok = all(result.outcome in PASSED for result in results)
    print(f"{what}: {'passed' if is_ok else 'failed'}")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
