"""StatsTable: statistics of topics as a table: short names, short numbers, one line per row.

On a terminal the least important columns are left out until a row fits, and names are truncated; a file gets
everything. CSV and JSON have all digits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from kourou.cli.pipeline.row_printers import Row, TablePrinter
from kourou.cli.printing import shown

_NAMES: Final = {
    "messages_per_second": "msgs/s",
    "bytes_per_second": "bytes/s",
    "latency_p50_ms": "p50_ms",
    "latency_p99_ms": "p99_ms",
    "latency_max_ms": "max_ms",
}
_TOPIC: Final = "topic"
_TOP_KEYS: Final = "top_keys"
_APPROXIMATE: Final = "top_keys_approximate"
"""A sign before the keys in place of a column."""
_LEAST_FIRST: Final = (_TOP_KEYS, "p50_ms", "max_ms", "bytes/s", "msgs/s", "p99_ms", "bytes")
"""Columns to leave out first; minute, topic and messages stay."""
_LEAST_WIDTHS: Final = {_TOPIC: 16, _TOP_KEYS: 12}
"""The minimum widths of truncated texts."""
_GAP: Final = 3
"""The gap between columns of TablePrinter."""
_EXACT: Final = 1_000_000
"""Integers below this keep all their digits."""
_UNITS: Final = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def terminal_width() -> int | None:
    """The width of the terminal; None if standard output is not a terminal."""
    return Console().width if sys.stdout.isatty() else None


class StatsTable:
    """A RowPrinter for the columns of `kourou pipeline stats`."""

    wants_json = False

    def __init__(self, table: TablePrinter, width: Callable[[], int | None] = terminal_width) -> None:
        """`width` is evaluated for each table, as terminals are resized."""
        self._table = table
        self._width = width

    def print_rows(self, names: Sequence[str], are_numbers: Sequence[bool], rows: Iterable[Row]) -> int:
        """Write a table with all rows."""
        names, are_numbers, rows = _with_sign(names, are_numbers, rows)
        short = [_NAMES.get(name, name) for name in names]
        cells = [
            tuple(
                compact(cell) if is_number and cell is not None else cell
                for cell, is_number in zip(row, are_numbers, strict=True)
            )
            for row in rows
        ]
        width = self._width()
        widths = [max(map(_width, column)) for column in zip(short, *cells, strict=True)]
        room = dict(zip(short, widths, strict=True)) if width is None else fitted(short, widths, width)
        kept = [at for at, name in enumerate(short) if name in room]
        return self._table.print_rows(
            [short[at] for at in kept],
            [are_numbers[at] for at in kept],
            [tuple(_cut(row[at], room[short[at]]) for at in kept) for row in cells],
        )


def _with_sign(
    names: Sequence[str], are_numbers: Sequence[bool], rows: Iterable[Row]
) -> tuple[Sequence[str], Sequence[bool], Iterable[Row]]:
    """The table with `≈` before approximate keys, and without the column for it."""
    if _APPROXIMATE not in names:
        return names, are_numbers, rows
    flag, keys = names.index(_APPROXIMATE), names.index(_TOP_KEYS)
    kept = [at for at in range(len(names)) if at != flag]

    def cell(row: Row, at: int) -> str | None:
        return f"≈ {row[at]}" if at == keys and row[flag] == "true" else row[at]

    return (
        [names[at] for at in kept],
        [are_numbers[at] for at in kept],
        [tuple(cell(row, at) for at in kept) for row in rows],
    )


def compact(number: str) -> str:
    """A number in few characters: `17`, `0.25`, `1.23M`."""
    value = float(number)
    if value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    for size, unit in _UNITS:
        if abs(value) >= 0.9995 * size:  # what would be rounded to 1000 of the next smaller unit
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def fitted(names: Sequence[str], widths: Sequence[int], total: int) -> dict[str, int]:
    """The columns that fit into a line, and their widths."""
    room = dict(zip(names, widths, strict=True))
    least = {name: min(width, _LEAST_WIDTHS.get(name, width)) for name, width in room.items()}
    for name in _LEAST_FIRST:
        if _line(least) <= total:
            break
        least.pop(name, None)
    spare = total - _line(least)
    for name in (_TOPIC, _TOP_KEYS):
        if name in least:
            more = max(0, min(spare, room[name] - least[name]))
            least[name] += more
            spare -= more
    return least


def _line(widths: dict[str, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _width(cell: str | None) -> int:
    return cell_len(Text.from_markup(shown(cell)).plain) if cell is not None else len("NULL")


def _cut(cell: str | None, width: int) -> str | None:
    if cell is None or _width(cell) <= width:
        return cell
    # Every character has a width of 0 or more, so this is the most that may fit.
    kept = cell[: width - 1]
    while _width(f"{kept}…") > width:
        kept = kept[:-1]
    return f"{kept}…"
