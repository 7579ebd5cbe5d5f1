"""Printers for rows of a query: tables, CSV and JSON lines."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from kourou.cli.printing import shown

Row = tuple[str | None, ...]

_NULL: Final = "NULL"
# Without a terminal nothing is truncated or wrapped.
_FILE_WIDTH: Final = 100_000


class JsonPrinter:
    """One JSON object per line."""

    wants_json = True

    def print_rows(self, names: Sequence[str], are_numbers: Sequence[bool], rows: Iterable[Row]) -> int:
        """Write rows that are already JSON."""
        count = 0
        for row in rows:
            print(row[0])
            count += 1
        sys.stdout.flush()
        return count


class CsvPrinter:
    """CSV with a header line; null is empty."""

    wants_json = False

    def __init__(self) -> None:
        self._has_names = False

    def print_rows(self, names: Sequence[str], are_numbers: Sequence[bool], rows: Iterable[Row]) -> int:
        """Write rows as they arrive."""
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if not self._has_names:
            writer.writerow(names)
            self._has_names = True
        count = 0
        for row in rows:
            writer.writerow(["" if cell is None else cell for cell in row])
            count += 1
        sys.stdout.flush()
        return count


class TablePrinter:
    """A table with right-aligned numbers. `skip_empty` omits empty tables, for streams."""

    wants_json = False

    def __init__(self, *, skip_empty: bool = False) -> None:
        self._skip_empty = skip_empty

    def print_rows(self, names: Sequence[str], are_numbers: Sequence[bool], rows: Iterable[Row]) -> int:
        """Write a table with all rows."""
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name, is_number in zip(names, are_numbers, strict=True):
            table.add_column(shown(name), justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_NULL if cell is None else shown(cell) for cell in row))
        if table.row_count or not self._skip_empty:
            console = Console(highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)
            with console.capture() as lines:
                console.print(table)
            print("\n".join(line.rstrip() for line in lines.get().splitlines()), flush=True)
        return table.row_count
