"""`kourou store check`: runs the check, shows its progress, prints the findings."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kourou.cli.printing import shown, wide_console
from kourou.cli.store.progress import progress_bar
from kourou.store.check.check import CheckOptions, CheckReport, check_store
from kourou.store.check.check_context import Progress as OnProgress
from kourou.store.check.check_report import Finding
from kourou.store.delay_levels import DEFAULT_DELAY_LEVEL_TEXT, parse_delay_levels
from kourou.store.disk.files import Files
from kourou.store.kernel import choose_kernel
from kourou.store.store_layout import stores_in
from kourou.wording import counted

# Below this, opening files dominates, and a rate is meaningless.
_MIN_RATED_MB: Final = 1.0

OK, VIOLATIONS, CANNOT_READ = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class CheckCommand:
    """The arguments of the command."""

    folder: Path
    log_folders: tuple[Path, ...] = ()
    index_slots: int | None = None
    delay_levels: str | None = None
    as_json: bool = False

    def run(self) -> int:
        """Check and print; returns the exit code, the highest of several stores."""
        folders = [self.folder] if self.log_folders else stores_in(Files(), self.folder)
        reports: list[tuple[CheckReport, float]] = []
        for folder in folders:
            started = time.perf_counter()
            with progress_bar("check") as on_progress:
                options = self._options(on_progress)
                report = check_store(Files(), folder, options=options, kernel=choose_kernel().kernel)
            reports.append((report, time.perf_counter() - started))
            if not self.as_json:
                print_report(wide_console(), *reports[-1])
        if self.as_json:
            found = [_json(report, seconds) for report, seconds in reports]
            print(json.dumps(found if len(found) > 1 else found[0], indent=2))
        return max(exit_code(report) for report, _ in reports)

    def _options(self, on_progress: OnProgress | None) -> CheckOptions:
        return CheckOptions(
            commit_log_folders=self.log_folders,
            index_slots=self.index_slots,
            delay_levels=parse_delay_levels(self.delay_levels or DEFAULT_DELAY_LEVEL_TEXT),
            progress=on_progress,
        )


def _json(report: CheckReport, seconds: float) -> dict[str, Any]:
    rate = round(report.bytes / seconds) if seconds else 0
    scan = {"seconds": round(seconds, 3), "bytesPerSecond": rate}
    return {**report.as_json(), "scan": scan}


def exit_code(report: CheckReport) -> int:
    """0; 1 if something is wrong; 2 if something could not be read."""
    if report.unreadable:
        return CANNOT_READ
    return OK if report.ok else VIOLATIONS


def print_report(console: Console, report: CheckReport, seconds: float) -> None:
    """Print a report as text."""
    console.print(_summary(report))
    for title, style, findings in (
        ("Violations", "red", report.violations),
        ("At the next start", "yellow", report.recovery),
        ("Notes", "dim", report.notes),
    ):
        if findings:
            console.print(_table(title, style, findings, report.root))
    size_mb = report.bytes / 1e6
    rate = f", {size_mb / seconds:,.0f} MB/s" if seconds and size_mb >= _MIN_RATED_MB else ""
    size = f"{size_mb:,.1f} MB" if size_mb >= _MIN_RATED_MB else counted(report.bytes, "byte")
    verdict = "[green]OK[/]" if report.ok else f"[red]{counted(len(report.violations), 'violation')}[/]"
    console.print(f"{verdict}: {size} of records in {seconds:.2f} s{rate}")


def _summary(report: CheckReport) -> str:
    counts = report.counts
    state = "in use" if report.in_use else "stopped" if report.is_clean else "killed"
    return (
        f"[bold]{shown(str(report.root))}[/] ({state}): {counted(counts.records, 'record')} in "
        f"{counted(counts.log_files, 'CommitLog file')}, from {report.log_min_phy_offset} to "
        f"{report.log_end_phy_offset}; {counted(counts.units, 'unit')} in {counted(counts.queues, 'queue')}; "
        f"{counted(counts.index_entries, 'entry', 'entries')} in {counted(counts.index_files, 'index file')}"
    )


def _table(title: str, style: str, findings: list[Finding], root: Path) -> Table:
    table = Table(title=title, title_justify="left", title_style=style)
    table.add_column("File", overflow="fold")
    table.add_column("Byte", justify="right")
    table.add_column("What", overflow="fold")
    for found in findings:
        plain = found.as_json(root)
        position = "" if found.position is None else str(found.position)
        table.add_row(shown(plain["file"]), position, shown(found.what))
    return table
