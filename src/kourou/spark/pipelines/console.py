"""The sink `console`: the first rows of each batch on standard output, as a table or as JSON."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TextIO

from kourou.spark.pipelines.check.spec import ConsoleSink
from kourou.spark.pipelines.sql.row_texts import as_json as rows_as_json
from kourou.spark.pipelines.sql.row_texts import as_texts, number_columns, text_rows, unique_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TRUNCATED_CHARS: Final = 20
_NULL: Final = "NULL"
# Tables of several sinks do not mix.
_lock = threading.Lock()


def show_rows(
    frame: DataFrame,
    sink: ConsoleSink,
    batch_id: int | None,
    *,
    as_json: bool,
    stream: TextIO | None = None,
) -> int:
    """Print the first rows; how many. Batches without rows are not shown."""
    wanted = rows_as_json(frame) if as_json else as_texts(frame)
    rows = list(text_rows(wanted, sink.num_rows + 1))
    shown = rows[: sink.num_rows]
    name = sink.rows.name
    lines = (
        [json.dumps({"type": "row", "sink": name, "row": json.loads(row[0] or "{}")}) for row in shown]
        if as_json
        else _table(frame, sink, batch_id, shown, has_more=len(rows) > len(shown))
    )
    if shown or batch_id is None:
        with _lock:
            print(*lines, sep="\n", file=stream or sys.stdout, flush=True)
    return len(shown)


def _table(
    frame: DataFrame,
    sink: ConsoleSink,
    batch_id: int | None,
    rows: Sequence[tuple[str | None, ...]],
    *,
    has_more: bool,
) -> list[str]:
    title = sink.rows.name if batch_id is None else f"{sink.rows.name}, batch {batch_id}"
    limit = _TRUNCATED_CHARS if sink.truncate else None
    lines = draw_table(unique_names(frame.columns), number_columns(frame), rows, limit)
    return [title, *lines, *([f"only the first {len(rows)} rows are shown"] if has_more else [])]


def draw_table(
    names: Sequence[str],
    are_numbers: Sequence[bool],
    rows: Sequence[tuple[str | None, ...]],
    limit: int | None,
) -> list[str]:
    """Lines of a table as Spark draws it. What is no printable sign is shown as its escape."""
    cells = [[_cell(text, limit) for text in row] for row in (tuple(names), *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(names))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    drawn = [_line(row, widths, are_numbers) for row in cells]
    return [rule, drawn[0], rule, *drawn[1:], rule]


def _line(row: Sequence[str], widths: Sequence[int], are_numbers: Sequence[bool]) -> str:
    padded = [
        text.rjust(width) if is_number else text.ljust(width)
        for text, width, is_number in zip(row, widths, are_numbers, strict=True)
    ]
    return "| " + " | ".join(padded) + " |"


def _cell(text: str | None, limit: int | None) -> str:
    shown = _NULL if text is None else text
    if not shown.isprintable():
        shown = "".join(
            sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in shown
        )
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"
