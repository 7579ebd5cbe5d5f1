"""All measurements of the store in one run, into results/store-DATE.md. `python -m benchmarks._store_report`.

Each runs in a process of its own, in full size; --short takes the small sizes and only prints.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
# What is printed as tables, and what as lines.
TABLES = {
    "store_append": "Append",
    "store_read": "Read",
    "store_recovery": "Start after a kill",
    "store_check": "`store check`",
}
LINES = {"index": "Index", "consume_queues": "Many ConsumeQueues"}


def run(name: str, *arguments: str) -> str:
    """What a measurement prints."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip("\n")


def machine() -> str:
    """What it ran on."""
    return (
        f"{_cpu_model()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{_filesystem(Path(tempfile.gettempdir()).resolve())}"
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _filesystem(path: Path) -> str:
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    fitting = [(len(folder), kind) for folder, kind in mounts if path.is_relative_to(folder)]
    return max(fitting)[1]


def sections(sizes: list[str]) -> list[str]:
    """Every measurement with its command line."""
    parts = []
    for name, title in TABLES.items():
        command = " ".join(["python -m", f"benchmarks.{name}", *sizes])
        parts.append(f"## {title}\n\n`{command}`\n\n{run(name, *sizes)}")
    for name, title in LINES.items():
        parts.append(f"## {title}\n\n`python -m benchmarks.{name}`\n\n```\n{run(name)}\n```")
    return parts


def main() -> None:
    """Measure all, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes; nothing is written")
    chosen = parser.parse_args()
    date = datetime.date.today()
    head = (
        f"# The store\n\n{date}, {machine()}. Times are of the processor where a table does not say clock; "
        "ratios compare what ran in the same minute. `python -m benchmarks._store_report`"
    )
    text = "\n\n".join([head, *sections([] if chosen.short else ["--full"])]) + "\n"
    print(text)
    if not chosen.short:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"store-{date}.md").write_text(text)


if __name__ == "__main__":
    main()
