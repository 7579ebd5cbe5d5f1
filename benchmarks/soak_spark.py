"""Soak of the exactly-once sink: queries from topic to topic in which all that can die does, for long.

    python -m benchmarks soak_spark                an hour
    python -m benchmarks soak_spark --minutes 5

Rounds of one query each: Python workers, tasks, the process that commits, the broker and the driver die at
each of their points, in random order. A round fails if a row is missing, is there twice, or was visible
before the commit of its batch. Result: printed, and soak-spark-DATE-MACHINE.md in benchmarks/results.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._broker_report import cpu_model, machine, machine_name

RESULTS = Path(__file__).parent / "results"
_WAIT_S = 900.0  # for one query; a machine may be busy


def soak(minutes: float) -> tuple[int, int, int]:
    """Rounds until the time is over: their number, points at which something died, rows. AssertionError: a
    row is not there once."""
    from tests.spark.kit import driver_process
    from tests.spark.kit import exactly_once_run as kit

    driver_process.WAIT_S = _WAIT_S
    deadline = time.monotonic() + minutes * 60
    rounds, points, rows = 0, 0, 0
    while time.monotonic() < deadline:
        plan = kit.Plan([*kit.TASKS, *kit.COMMITS, *kit.BROKER] * 2, [random.choice(kit.DRIVER)])
        with tempfile.TemporaryDirectory() as folder:
            kit.check_each_row_once(Path(folder), plan, kit.LOCAL)
        rounds, points, rows = rounds + 1, points + len(plan.points), rows + plan.rows
        print(f"round {rounds}: {points} points, {rows} rows, each there once", flush=True)
    return rounds, points, rows


def main(words: list[str] | None = None) -> int:
    """Run and report; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="where the result goes")
    options = parser.parse_args(words)
    rounds, points, rows = soak(options.minutes)
    text = "\n".join(
        [
            "# Soak of the exactly-once sink",
            "",
            f"`python -m benchmarks soak_spark --minutes {options.minutes:g}`",
            "",
            f"{machine()}. {rounds} queries from topic to topic, {points} points at which a task, a worker, "
            f"the commit, the broker or the driver died. All of {rows:,} rows were there once, and none was "
            "visible before the commit of its batch.",
            "",
        ]
    )
    print(text)
    options.results.mkdir(parents=True, exist_ok=True)
    name = machine_name(cpu_model(), os.cpu_count() or 1)
    (options.results / f"soak-spark-{datetime.date.today()}-{name}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
