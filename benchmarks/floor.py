"""The floor of a broker on this event loop: ours beside a server that does only what cannot be left out.

    python -m benchmarks floor                      all rows, about four minutes
    python -m benchmarks floor --rows "pull"        only rows whose name holds the text
    python -m benchmarks floor --write              write results/floor-DATE-MACHINE.md too

The other server (_floor_server.py) runs on uvloop too: it finds the frames of a read, writes all of it by one
`pwrite`, and answers with constants. So the ratio of a row shows what there is left to gain. Two things
that ours does could make that server faster still: one `pwrite` for several connections, and large reads into
memory that is reused.

That server writes the same file again and again. Once it is full, its pages are in memory, while a log that
grows needs new ones, which Linux takes longer to write. With `--gib 16` they are new for that server as well.

Rows, load and method are those of `compare`. The client's processor time is in the report because client and
server share the machine. Needs uvloop and a C compiler for loadgen.c.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import math
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import _floor_server
from benchmarks._broker_loadgen import LoadgenError, build
from benchmarks._broker_peers import OURS, Launcher, PeerError, RunningPeer
from benchmarks._broker_report import cpu_model, machine, machine_name, table
from benchmarks._compare_alone import fill
from benchmarks._compare_result import Result, noise
from benchmarks._compare_rows import (
    FULL,
    LoadRow,
    Outcome,
    Reading,
    Scale,
    batch_row,
    read_rows,
    send_rows,
    size_rows,
)
from benchmarks._compare_run import Budget, Comparison, say
from benchmarks._page_cache import touch_memory
from benchmarks.compare import TOUCHED_SHARE

RESULTS = Path(__file__).parent / "results"
FLOOR = "floor"
SHAPES = ((1, 1), (64, 1))
CLIENT = ": client CPU a message"
# Of each table its title, the kind of its figures, and what their names end with.
SECTIONS = (
    ("Rates", "rate", ""),
    ("Server CPU a message", "cpu", ": server CPU a message"),
    ("Client CPU a message", "cpu", CLIENT),
)


def rows() -> list[LoadRow]:
    """Those of `compare` that show a limit of its own each. The largest bodies are the last: pulls before
    them are to find messages of 1 KiB."""
    largest = size_rows("async")[-1]
    return [*send_rows("async", SHAPES), batch_row(), *read_rows(), largest]


@contextmanager
def floor_server(folder: Path, program: Path, size_bytes: int) -> Iterator[RunningPeer]:
    """The other server, with its file below the folder; killed at the end."""
    from tests.interop.kit.ports import free_port
    from tests.interop.kit.process import ServerProcess

    port = free_port()
    # -P: in the script's folder are modules with names such as `grpc`.
    command = [
        sys.executable,
        "-P",
        _floor_server.__file__,
        str(port),
        str(folder / "floor.dat"),
        str(size_bytes),
    ]
    server = ServerProcess("the floor server", command, port=port, log_path=folder / "floor.log")
    try:
        yield RunningPeer(FLOOR, server.wait_ready(), program, "")
    finally:
        server.kill()


def run_row(row: LoadRow, scale: Scale, peers: Mapping[str, RunningPeer], name: str) -> Outcome:
    """One round at one server, with the client's processor time beside what `compare` reads."""
    # What the one before has written is not to cost this one.
    os.sync()
    outcome = row.run(peers[name], scale)
    client = Reading(row.name + CLIENT, "cpu", float(outcome.detail["client_cpu_us_per_msg"]))
    return dataclasses.replace(outcome, readings=(*outcome.readings, client))


def measure(wanted: list[LoadRow], scale: Scale, size_bytes: int, command: str, folder: Path) -> Result:
    """All rows, both servers in turn."""
    say(f"{touch_memory(TOUCHED_SHARE) / 1e9:.1f} GB of memory touched")
    program = build(folder)
    launcher = Launcher(folder, program)
    result = Result([OURS, FLOOR], scale.form, command, str(datetime.date.today()), "", "")
    comparison = Comparison(result, scale, Budget(math.inf), launcher)
    with launcher.running([OURS], "async") as (ours,), floor_server(folder, program, size_bytes) as floor:
        fill(ours, scale.fill)
        peers = {OURS: ours, FLOOR: floor}
        for row in wanted:
            comparison.measure(row, partial(run_row, row, scale, peers))
    return result


def report(result: Result, scale: Scale) -> str:
    """The tables as Markdown."""
    lines = [
        "# The floor of the event loop",
        "",
        f"`{result.command}`: {machine()}. Medians of up to {scale.rounds} rounds of {scale.seconds:g} s, "
        "the servers in turn within each. The floor is a server on uvloop that finds the frames of a read, "
        "writes all of it by one `pwrite` and answers with constants; pulls get the same records each time. "
        "In the last column 1.00 is the floor, 0.50 half its rate or twice its processor time; in brackets "
        "the smallest and the largest of the rounds.",
        "",
        noise(result),
        "",
    ]
    for title, kind, suffix in SECTIONS:
        figures = [
            dataclasses.replace(figure, row=figure.row.removesuffix(suffix))
            for figure in result.figures
            if figure.kind == kind and figure.row.endswith(suffix)
        ]
        lines += [f"## {title}", "", table(figures, result.names), ""]
    lines += [f"- {trouble}" for trouble in result.troubles]
    return "\n".join(lines)


def main() -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks floor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="each server in turn; medians count (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (3)")
    parser.add_argument("--fill", type=int, default=FULL.fill, help="messages that are pulled")
    parser.add_argument("--rows", default="", metavar="TEXT", help="rows with this in their name")
    parser.add_argument("--gib", type=int, default=1, help="size of the file that the floor writes (1)")
    parser.add_argument("--write", action="store_true", help="write results/floor-DATE-MACHINE.md too")
    options = parser.parse_args()
    scale = dataclasses.replace(FULL, rounds=options.rounds, seconds=options.seconds, fill=options.fill)
    command = shlex.join(["python", "-m", "benchmarks", "floor", *sys.argv[1:]])
    wanted = [row for row in rows() if options.rows in row.name]
    if not wanted:
        parser.error(f"--rows: there are {'; '.join(row.name for row in rows())}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = measure(wanted, scale, options.gib << 30, command, Path(folder))
        except (LoadgenError, PeerError) as error:
            print(f"benchmarks floor: {error}", file=sys.stderr)
            return 1
    text = report(result, scale)
    print(text)
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        place = machine_name(cpu_model(), os.cpu_count() or 1)
        (RESULTS / f"floor-{datetime.date.today()}-{place}.md").write_text(text)
    return 0 if result.figures else 1


if __name__ == "__main__":
    sys.exit(main())
