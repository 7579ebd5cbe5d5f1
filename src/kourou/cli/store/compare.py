"""`kourou store compare`: compares two stores and prints where they differ."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kourou.cli.printing import shown, wide_console
from kourou.cli.store.folders import one_store
from kourou.cli.store.progress import progress_bar
from kourou.store.check.compare import ComparedRecord, ComparedStore, Comparison, Divergence, compare_stores
from kourou.store.check.record_view import time_text
from kourou.store.disk.files import Files
from kourou.wording import counted

EQUAL, DIFFERENT = 0, 1
_SHOWN_QUEUES: Final = 20
_ROWS: Final = ("offset", "size", "topic", "queue", "queue offset", "stored", "message id")


@dataclass(frozen=True, kw_only=True)
class CompareCommand:
    """The arguments of the command."""

    folder_a: Path
    folder_b: Path
    log_folders_a: tuple[Path, ...] = ()
    log_folders_b: tuple[Path, ...] = ()
    as_json: bool = False

    def run(self) -> int:
        """Compare and print; returns the exit code."""
        files = Files()
        started = time.perf_counter()
        with progress_bar("compare") as on_progress:
            found = compare_stores(
                files,
                one_store(files, self.folder_a, self.log_folders_a),
                one_store(files, self.folder_b, self.log_folders_b),
                log_folders_a=self.log_folders_a,
                log_folders_b=self.log_folders_b,
                progress=on_progress,
            )
        if self.as_json:
            print(json.dumps(comparison_json(found), indent=2))
        else:
            print_comparison(wide_console(), found, time.perf_counter() - started)
        return EQUAL if found.is_equal else DIFFERENT


def comparison_json(found: Comparison) -> dict[str, Any]:
    """A comparison as plain values."""
    return {
        "equal": found.is_equal,
        "a": _store_json(found.a),
        "b": _store_json(found.b),
        "common": {"minOffset": found.min_phy_offset, "maxOffset": found.end_phy_offset},
        "epochsAgreeTo": found.epochs_end,
        "difference": None if found.divergence is None else _divergence_json(found.divergence),
        "queues": [
            {"topic": each.topic, "queueId": each.queue_id, "aEnd": each.a_end, "bEnd": each.b_end}
            for each in found.queues
        ],
    }


def _store_json(store: ComparedStore) -> dict[str, Any]:
    return {
        "root": str(store.root),
        "minOffset": store.min_phy_offset,
        "maxOffset": store.end_phy_offset,
        "lastTimestamp": store.last_timestamp,
        "cleanExit": store.is_clean,
        "inUse": store.in_use,
        "epochs": [{"epoch": each.epoch, "startOffset": each.start_phy_offset} for each in store.epochs],
    }


def _divergence_json(found: Divergence) -> dict[str, Any]:
    return {
        "offset": found.phy_offset,
        "firstByte": found.byte_phy_offset,
        "a": _record_json(found.a),
        "b": _record_json(found.b),
    }


def _record_json(record: ComparedRecord) -> dict[str, Any]:
    if record.problem:
        return {"problem": record.problem}
    return {
        "size": record.size,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "storeTimestamp": record.store_timestamp,
        "msgId": record.msg_id,
    }


def print_comparison(console: Console, found: Comparison, seconds: float) -> None:
    """Print a comparison as text."""
    for name, store in (("A", found.a), ("B", found.b)):
        console.print(_store_line(name, store))
    if found.epochs_end is not None and found.epochs_end < found.end_phy_offset:
        console.print(f"By their epochs the logs are equal up to {found.epochs_end} at most.")
    console.print(_verdict(found))
    if found.divergence is not None:
        console.print(_divergence_table(found.divergence))
    if found.queues:
        _print_queues(console, found)
    end = found.end_phy_offset if found.divergence is None else found.divergence.byte_phy_offset
    size_mb = max(0, end - found.min_phy_offset) / 1e6
    console.print(f"{size_mb:,.1f} MB compared in {seconds:.2f} s")


def _store_line(name: str, store: ComparedStore) -> str:
    state = "in use" if store.in_use else "stopped" if store.is_clean else "killed"
    last = "" if store.last_timestamp is None else f", last record {time_text(store.last_timestamp)}"
    epoch = store.epochs[-1] if store.epochs else None
    epochs = "" if epoch is None else f", epoch {epoch.epoch} from {epoch.start_phy_offset}"
    return (
        f"{name}: [bold]{shown(str(store.root))}[/] ({state}): CommitLog from {store.min_phy_offset} to "
        f"{store.end_phy_offset}{last}{epochs}"
    )


def _verdict(found: Comparison) -> str:
    first, end = found.min_phy_offset, found.end_phy_offset
    if found.divergence is not None:
        byte = found.divergence.byte_phy_offset
        return f"[red]The logs differ from {found.divergence.phy_offset} on[/] (first byte: {byte}):"
    if not found.has_common_range:
        return "[red]The logs have no offset in common[/]: nothing was compared."
    ahead = found.a.end_phy_offset - found.b.end_phy_offset
    longer = f"; {'A' if ahead > 0 else 'B'} is {counted(abs(ahead), 'byte')} longer" if ahead else ""
    empty = " and ".join(name for name, store in (("A", found.a), ("B", found.b)) if store.is_empty)
    if empty:
        return f"[green]No difference[/]: the log of {empty} is empty{longer}."
    return f"[green]The logs are equal from {first} to {end}[/]{longer}."


def _divergence_table(found: Divergence) -> Table:
    table = Table()
    for title in ("", "A", "B"):
        table.add_column(title, overflow="fold")
    columns = (_cells(found.phy_offset, record) for record in (found.a, found.b))
    for row in zip(_ROWS, *columns, strict=True):
        table.add_row(*map(shown, row))
    return table


def _cells(phy_offset: int, record: ComparedRecord) -> tuple[str, ...]:
    """The rows of one store; for bytes that are not a record the reason in place of the topic."""
    if record.problem:
        return (str(phy_offset), "-", f"no record: {record.problem}", "-", "-", "-", "-")
    return (
        str(phy_offset),
        str(record.size),
        record.topic,
        str(record.queue_id),
        str(record.queue_offset),
        time_text(record.store_timestamp),
        record.msg_id,
    )


def _print_queues(console: Console, found: Comparison) -> None:
    is_settled = found.a.is_settled and found.b.is_settled
    note = "" if is_settled else "; a running or killed broker may not have written all of its queues"
    title = f"{counted(len(found.queues), 'queue')} with different ends in the equal part{note}"
    table = Table(title=title, title_justify="left", title_style="red" if is_settled else "dim")
    for name in ("Topic", "Queue", "A ends at", "B ends at"):
        table.add_column(name, overflow="fold")
    for each in found.queues[:_SHOWN_QUEUES]:
        ends = ("none" if end is None else str(end) for end in (each.a_end, each.b_end))
        table.add_row(shown(each.topic), str(each.queue_id), *ends)
    console.print(table)
    if len(found.queues) > _SHOWN_QUEUES:
        console.print(f"and {len(found.queues) - _SHOWN_QUEUES} more; --json has all of them")
