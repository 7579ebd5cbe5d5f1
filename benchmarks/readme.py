"""The README's table of speed, from the newest results of `compare`: `python -m benchmarks readme`.

    python -m benchmarks readme                 put it between the two markers
    python -m benchmarks readme --check         1 when the README says something else
    python -m benchmarks readme --file FILE     from these results instead

The newest full run counts; where there is none, the newest quick one. Runs of some rows never do.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from benchmarks._compare_result import Result, headline_table, noise

HERE = Path(__file__).parent
BEGIN = "<!-- bench:begin -->"
END = "<!-- bench:end -->"


class ReadmeError(RuntimeError):
    """There is nothing to put into the README, or no place for it."""


def newest(folder: Path) -> Path:
    """The results that count."""
    found = [path for path in folder.glob("[0-9]*.json") if not path.stem.endswith("-part")]
    if not found:
        raise ReadmeError(f"{folder} holds no results: python -m benchmarks compare makes them")
    return max(found, key=_rank)


def _rank(path: Path) -> tuple[bool, str]:
    result = Result.from_json(path.read_text())
    return result.form == "full", result.date


def block(result: Result, report: str, plots: list[str]) -> str:
    """What stands between the markers; `report` and `plots` are addresses as the README writes them."""
    others = " and ".join(result.names[1:])
    kernel = re.search("Kourou (?:with|without) its compiled kernel", result.setting)
    ours = kernel[0] if kernel else "Kourou"
    beside = f"{ours}, beside {others}, in one run" if others else f"{ours}, in one run"
    lines = [
        f"{beside} on {result.machine}, {result.date[:10]} ([all rows, and how they were measured]"
        f"({report})). {noise(result)} In the last columns more than 1 means that Kourou is better; in "
        "brackets the smallest and the largest of the rounds.",
        "",
        headline_table(result),
    ]
    for plot in plots:
        lines += ["", f"![rates and latencies]({plot})"]
    return "\n".join(lines)


def replaced(readme: str, text: str) -> str:
    """The README with a text between its markers. ReadmeError when they are not there, once each."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1 or readme.index(BEGIN) > readme.index(END):
        raise ReadmeError(f"the README needs {BEGIN} and, after it, {END}")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}"


def updated(readme_path: Path, results_path: Path) -> str:
    """The README as it should be."""
    result = Result.from_json(results_path.read_text())
    plot = results_path.with_suffix(".png")
    plots = [_address(plot, readme_path)] if plot.exists() else []
    text = block(result, _address(results_path.with_suffix(".md"), readme_path), plots)
    return replaced(readme_path.read_text(), text)


def _address(path: Path, readme_path: Path) -> str:
    return Path(os.path.relpath(path, readme_path.parent)).as_posix()


def main(words: list[str] | None = None) -> int:
    """Write it, or look whether it is right; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks readme",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--file", type=Path, help="results as .json (the newest)")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="where results are")
    parser.add_argument("--readme", type=Path, default=HERE.parent / "README.md")
    options = parser.parse_args(words)
    try:
        text = updated(options.readme, options.file or newest(options.results))
    except (ReadmeError, OSError) as error:
        print(f"benchmarks readme: {error}", file=sys.stderr)
        return 2
    if text == options.readme.read_text():
        return 0
    if options.check:
        print("benchmarks readme: the table is not that of the newest results", file=sys.stderr)
        return 1
    options.readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
