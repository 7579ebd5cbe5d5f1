"""The terminal view of `mqadmin top`: drawn in place, in colour, until a key ends it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.table import Table

from kourou.cli.admin.screen import Screen
from kourou.cli.printing import shown

_TEXT_COLUMNS: Final = frozenset({"BROKER", "ID", "ADDRESS", "VERSION", "TOPIC", "GROUP"})
_IN_TROUBLE: Final = frozenset({"no answer", "no link"})
# The title, and the headings of the three tables with their borders.
_LINES_AROUND: Final = 9


def show_live(
    title: str,
    tables: Iterable[tuple[Sequence[str], Sequence[Sequence[str]]]],
    screen: Screen,
    most: int,
) -> None:
    """Draw the tables, each with as many rows as fit on the screen, and at most `most`."""
    console = Console(highlight=False, file=sys.stdout)
    # Lines that scroll away cannot be redrawn.
    most = min(most, max(3, (console.height - _LINES_AROUND) // 3))
    screen.next_round()
    screen.flush()
    console.print(shown(title), style="bold", no_wrap=True)
    for head, rows in tables:
        console.print()
        console.print(_table(head, rows[:most]))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, header_style="bold cyan", pad_edge=False)
    for name in head:
        table.add_column(name, justify="left" if name in _TEXT_COLUMNS else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(shown, row), style="red" if _IN_TROUBLE.intersection(row) else None)
    return table


@contextmanager
def cancelled_by_key(key: bytes) -> Iterator[None]:
    """Inside, typing this key cancels the current task, like Ctrl-C. Typed letters are not shown."""
    import termios  # not on Windows
    import tty

    terminal = sys.stdin.fileno()
    if os.tcgetpgrp(terminal) != os.getpgrp():
        yield  # in the background, changing the terminal would stop the process
        return
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    assert task is not None

    def typed() -> None:
        keys = os.read(terminal, 1024)
        if not keys:  # the terminal was closed
            loop.remove_reader(terminal)
        elif key in keys.lower():
            task.cancel()

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    loop.add_reader(terminal, typed)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
