"""Brokers side by side: ours and Apache's, the same loads in turn, rounds A-B-A-B.

    python -m benchmarks compare --quick                          under ten minutes, the rows that say most
    python -m benchmarks compare --full                           under an hour, all rows
    python -m benchmarks compare --peer none                      ours alone
    python -m benchmarks compare --peer python                    ours with the compiled kernel and without
    python -m benchmarks compare --peer checkout=../before        ours beside that of another checkout
    python -m benchmarks compare --rows "sync" --rows "pull"      only rows whose name holds one of these
    python -m benchmarks compare --list                           the rows there are

The brokers of a group of rows run at the same time, idle but for the one that is measured; each round of a
row goes over all of them, so that each ratio compares what ran within the same minute. What does not fit into
the time is left out, and the report says so. Result: benchmarks/results/DATE-MACHINE.md and .json, and plots
where matplotlib is installed. Needs a C compiler for loadgen.c, Java 17 and Maven for Apache's.
"""

from __future__ import annotations

import argparse
import compileall
import dataclasses
import datetime
import os
import resource
import shlex
import sys
import tempfile
from pathlib import Path

from benchmarks import _page_cache
from benchmarks._broker_loadgen import build
from benchmarks._broker_peers import CHECKOUT_WORD, JVM_OPTIONS, PYTHON_WORD, Launcher, peer_names
from benchmarks._broker_report import cpu_model, machine, machine_name
from benchmarks._compare_alone import BacklogRow, StartRow
from benchmarks._compare_cores import CoresRow
from benchmarks._compare_result import Result, write
from benchmarks._compare_rows import (
    ASYNC_SENDS,
    FULL,
    QUEUES,
    QUICK,
    SYNC_SENDS,
    RampRow,
    Row,
    Scale,
    SharedRow,
    batch_row,
    latency_rows,
    one_way_row,
    producers_row,
    queue_rows,
    read_rows,
    send_rows,
    size_rows,
    tmpfs_rows,
)
from benchmarks._compare_run import Budget, Comparison, Group, say, start_s
from benchmarks._official import official_rows
from benchmarks._plots import write_plots
from kourou import __path__ as kourou_folders
from kourou.store.kernel import choose_kernel

RESULTS = Path(__file__).parent / "results"
PEERS = ("apache-5.5.0", "apache-4.9.7")
# Of the memory that is free, before the first round: stores of gigabytes and JVMs will be in it.
TOUCHED_SHARE = 0.8


def groups(scale: Scale) -> list[Group]:
    """All rows, those that say most first: the end is what a short time leaves out."""
    sends: list[SharedRow] = [*send_rows("async", ASYNC_SENDS), batch_row()]
    reads: list[SharedRow] = [*read_rows(), *latency_rows(), RampRow(), one_way_row()]
    sync: list[SharedRow] = [*send_rows("sync", SYNC_SENDS), *size_rows("sync")]
    # In the quick form all of these fit on a disk together.
    first = (
        [Group("async", [*sends, *reads])]
        if scale.form == "quick"
        else [Group("async", sends), Group("async", reads)]
    )
    return [
        *first,
        Group("sync", sync),
        Group("async", tmpfs_rows(), on_tmpfs=True),
        Group("async", alone=[StartRow(), BacklogRow(1_024, "1 KiB", 1.0)]),
        Group("async", official_rows()),
        Group("async", [*size_rows("async"), producers_row()]),
        Group("async", queue_rows()),
        Group("async", alone=[CoresRow()]),
        Group("async", alone=[BacklogRow(4_096, "4 KiB", 0.2, is_quick=False)]),
    ]


def selected(group: Group, scale: Scale, texts: list[str]) -> Group:
    """What of a group belongs to the form and is asked for."""

    def is_wanted(row: Row) -> bool:
        in_form = scale.form == "full" or row.is_quick or bool(texts)
        return in_form and (not texts or any(text in row.name for text in texts))

    rows, alone = list(filter(is_wanted, group.rows)), list(filter(is_wanted, group.alone))
    return dataclasses.replace(group, rows=rows, alone=alone)


def planned_s(wanted: list[Group], scale: Scale, brokers: int) -> float:
    """How long the groups take, at a guess."""
    total = 0.0
    for group in wanted:
        total += start_s(group.scaled(scale), brokers) if group.rows else 0.0
        total += sum(row.rounds(scale) * brokers * row.cost_s(scale) for row in (*group.rows, *group.alone))
    return total


def allow_open_files() -> int:
    """Let this process and those it starts open all files that the machine allows; how many that is."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    return limit


def setting(scale: Scale) -> str:
    """What the figures were taken with."""
    quick = (
        " The quick form: measurements are short, and Apache's have run for seconds only."
        if scale.form == "quick"
        else ""
    )
    kernel = "with its compiled kernel" if choose_kernel().kernel else "without its compiled kernel"
    return (
        f"{machine()}. Kourou {kernel}. Bodies of 1 KiB unless another size is named, {QUEUES} queues, "
        "headers as the Java client's, index on, the same file sizes for all, at most "
        f"{allow_open_files():,} open files; load from loadgen.c on the same machine; c×w: "
        f"connections and requests in flight on each. Apache's with {' '.join(JVM_OPTIONS)}, and with the "
        "limits of a pull raised from 32 messages to 1,024, which loadgen negotiates with ours. "
        f"Medians of up to {scale.rounds} rounds of {scale.seconds:g} s, the brokers in turn within each "
        f"round.{quick} In the last columns more than 1 means that ours is better: more messages, less CPU, "
        "time or memory; in brackets the smallest and the largest of the rounds."
    )


def file_stem(scale: Scale, texts: list[str]) -> str:
    """The name of the results: a part of the rows or the quick form is no replacement for all of them."""
    name = f"{datetime.date.today()}-{machine_name(cpu_model(), os.cpu_count() or 1)}"
    return name + ("-part" if texts else "-quick" if scale.form == "quick" else "")


def available_peers(words: list[str]) -> list[str]:
    """The columns; without Apache's where Java is missing."""
    from tests.interop.kit import artifacts

    wanted = [word for word in words if word != "none"]
    kourous = [word for word in wanted if word == PYTHON_WORD or word.startswith(CHECKOUT_WORD)]
    apaches = [word for word in wanted if word not in kourous]
    unknown = [word for word in apaches if word.replace("apache", "server") not in artifacts.ARTIFACT_SETS]
    if unknown:
        known = ", ".join(name for name in artifacts.ARTIFACT_SETS if name.startswith("server-"))
        raise ValueError(f"{', '.join(unknown)}: there are {known.replace('server', 'apache')}")
    missing = artifacts.missing_tools() if apaches else None
    if missing:
        say(f"without Apache's: {missing}")
    return peer_names(kourous if missing else wanted)


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--quick", action="store_true", help="under ten minutes (the default)")
    form.add_argument("--full", action="store_true", help="under an hour")
    parser.add_argument(
        "--peer", action="append", help="apache-VERSION, python, checkout=FOLDER, or none; may be repeated"
    )
    parser.add_argument(
        "--rows", action="append", default=[], metavar="TEXT", help="rows with this in their name"
    )
    parser.add_argument("--rounds", type=int, help="each broker in turn; medians count")
    parser.add_argument("--seconds", type=float, help="of each measurement")
    parser.add_argument("--fill", type=int, help="messages that warm a broker up")
    parser.add_argument("--messages", type=int, help="messages before memory is looked at")
    parser.add_argument("--backlog", type=int, help="messages of the backlog")
    parser.add_argument("--minutes", type=float, help="the time that is never run over")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="where the result goes")
    parser.add_argument("--list", action="store_true", help="print the rows and how long they take, and end")
    return parser.parse_args(words)


def scale_of(options: argparse.Namespace) -> Scale:
    """The form with what the command line changes of it."""
    scale = FULL if options.full else QUICK
    given = {name: getattr(options, name) for name in ("rounds", "seconds", "fill", "messages", "backlog")}
    changes = {name: value for name, value in given.items() if value is not None}
    if options.minutes is not None:
        changes["budget_s"] = options.minutes * 60
    return dataclasses.replace(scale, **changes)


def print_rows(wanted: list[Group], scale: Scale, brokers: int) -> None:
    """What would be measured."""
    for group in wanted:
        for row in (*group.rows, *group.alone):
            cost_s = row.rounds(scale) * brokers * row.cost_s(scale)
            print(f"{cost_s:6.0f} s  {row.name}")
    print(f"{planned_s(wanted, scale, brokers):6.0f} s  in all, of {scale.budget_s:.0f} s")


def measure(names: list[str], wanted: list[Group], scale: Scale, command: str) -> Result:
    """Everything, from the first start to the last end."""
    # As pip does: a start is not to compile what it imports, whatever this environment says of that.
    for folder in kourou_folders:
        compileall.compile_dir(folder, quiet=1)
    say(f"{_page_cache.touch_memory(TOUCHED_SHARE) / 1e9:.1f} GB of memory touched")
    budget = Budget(scale.budget_s)
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    name = machine_name(cpu_model(), os.cpu_count() or 1)
    result = Result(names, scale.form, command, date, name, setting(scale))
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher(Path(folder), build(Path(folder)))
        comparison = Comparison(result, scale, budget, launcher)
        try:
            for group in wanted:
                comparison.run(group)
        except KeyboardInterrupt:
            result.left_out.append("the rest: interrupted")
    result.took_s = round(budget.spent_s, 1)
    return result


def main(words: list[str] | None = None) -> int:
    """Measure, print, write; the exit status."""
    words = sys.argv[1:] if words is None else words
    options = parse(words)
    scale = scale_of(options)
    try:
        names = available_peers(options.peer or list(PEERS))
    except ValueError as error:
        print(f"benchmarks compare: {error}", file=sys.stderr)
        return 2
    wanted = [selected(group, scale, options.rows) for group in groups(scale)]
    if options.list:
        print_rows(wanted, scale, len(names))
        return 0
    try:
        result = measure(names, wanted, scale, shlex.join(["python", "-m", "benchmarks", "compare", *words]))
    except RuntimeError as error:
        print(f"benchmarks compare: {error}", file=sys.stderr)
        return 1
    stem = file_stem(scale, options.rows)
    plots = write_plots(result, options.results, stem)
    report = write(result, options.results, stem, plots)
    print(report.read_text())
    say(f"{result.took_s:.0f} s; written to {report}")
    return 0 if result.figures else 1


if __name__ == "__main__":
    sys.exit(main())
