"""`mqadmin top`: a live view of brokers, topics and groups, the busiest first."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Final

from kourou.admin.top import BrokerRow, TopView, watch
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import format_time
from kourou.cli.admin.options import ParsedArgs, flag, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.protocol.bodies.route import MASTER_ID
from kourou.wording import counted

_NOT_FOLLOWING: Final = "no link"
_INTERVAL_S: Final = 2.0
_ROWS: Final = 20
_BROKERS: Final = "{:<20} {:<3} {:<22} {:<14} {:>10} {:>10} {:>12} {:>9} {:>7}"
_BROKERS_HEAD: Final = ("BROKER", "ID", "ADDRESS", "VERSION", "IN/s", "OUT/s", "LAG", "BEHIND", "DISK")
# Only if a broker belongs to a set that chooses its master.
_MEMBERS: Final = " {:>7} {:>6} {:>8}"
_MEMBERS_HEAD: Final = ("MEMBER", "EPOCH", "IN SYNC")
_TOPICS: Final = "{:<40} {:>10} {:>10} {:>7} {:>14}"
_TOPICS_HEAD: Final = ("TOPIC", "IN/s", "OUT/s", "GROUPS", "MESSAGES")
_GROUPS: Final = "{:<40} {:>7} {:>10} {:>12} {:>10} {:>9}"
_GROUPS_HEAD: Final = ("GROUP", "TOPICS", "OUT/s", "LAG", "LAG/s", "BEHIND")

_Rows = list[tuple[str, ...]]


async def _top(call: Call) -> AsyncIterator[TopView]:
    args = call.args
    count = 1 if args.flag("once") else args.number("count") if "count" in args else None
    if count is not None and count < 1:
        raise UsageError(f"-k {count}: must be a number above 0")
    views = watch(call.admin, args.get("clusterName"), interval_s=_interval_s(args), count=count)
    try:
        async with aclosing(views):
            with _ending_with_q(call.screen):
                async for found in views:
                    yield found
    except asyncio.CancelledError:
        # Ctrl-C or q ends a live view and is not a failure. There is no other cancellation: this is the whole
        # program.
        return


def _ending_with_q(screen: Screen) -> AbstractContextManager[None]:
    if not (screen.is_terminal and sys.stdin.isatty()):
        return nullcontext()
    from kourou.cli.admin.kourou.top_live import cancelled_by_key

    return cancelled_by_key(b"q")


def _interval_s(args: ParsedArgs) -> float:
    text = args.get("interval")
    try:
        interval_s = _INTERVAL_S if text is None else float(text)
    except ValueError:
        raise UsageError(f"-i {text}: must be a number of seconds") from None
    if not 0.1 <= interval_s <= 3600:
        raise UsageError(f"-i {text}: must be from 0.1 to 3600 seconds")
    return interval_s


def _show(found: TopView, screen: Screen) -> None:
    if screen.is_terminal:
        # Imported here, because importing rich would slow down every command.
        from kourou.cli.admin.kourou.top_live import show_live

        show_live(f"{format_time(found.timestamp_ms)}  {_sum(found)}", _tables(found), screen, _most(screen))
    else:
        _show_text(found, screen)
    for problem in found.problems:
        screen.trouble(problem)
    screen.flush()


def _most(screen: Screen) -> int:
    rows = screen.args.number("rows", _ROWS)
    if rows < 1:
        raise UsageError(f"--rows {rows}: must be a number above 0")
    return rows


# -- rows --------------------------------------------------------------------------------------------


def _broker_rows(found: TopView) -> _Rows:
    has_sets = _has_sets(found)
    return [
        (
            row.broker_name,
            str(row.broker_id),
            row.address,
            row.version or "-",
            f"{row.in_tps:.1f}",
            f"{row.out_tps:.1f}",
            "-" if row.lag_bytes is None else f"{row.lag_bytes}B",
            _behind(row),
            "no answer" if row.problem else f"{row.disk_ratio:.0%}",
            *(_member_cells(row) if has_sets else ()),
        )
        for row in found.brokers
    ]


def _has_sets(found: TopView) -> bool:
    return any(row.failover is not None for row in found.brokers)


def _member_cells(row: BrokerRow) -> tuple[str, str, str]:
    """Its number, the epoch, and for the master how many of the living members are in sync."""
    part = row.failover
    if part is None:
        return "-", "-", "-"
    in_sync = "yes" if part.is_in_sync else "no"
    if row.broker_id == MASTER_ID:
        in_sync = f"{part.in_sync} of {max(part.alive, part.in_sync)}"
    return str(part.member_id), str(part.epoch), in_sync


def _behind(row: BrokerRow) -> str:
    """How far a slave is behind its master in time; a master is not."""
    if row.replication_problem:
        return _NOT_FOLLOWING
    return "-" if row.lag_ms is None else f"{row.lag_ms}ms"


def _topic_rows(found: TopView) -> _Rows:
    return [
        (row.topic, f"{row.in_tps:.1f}", f"{row.out_tps:.1f}", str(row.groups), str(row.messages))
        for row in found.topics
    ]


def _group_rows(found: TopView) -> _Rows:
    return [
        (
            row.group,
            str(row.topics),
            f"{row.consume_tps:.1f}",
            str(row.lag),
            f"{row.lag_change:+.1f}",
            f"{row.behind_s:.0f}s",
        )
        for row in found.groups
    ]


def _tables(found: TopView) -> list[tuple[tuple[str, ...], _Rows]]:
    members_head = _MEMBERS_HEAD if _has_sets(found) else ()
    return [
        ((*_BROKERS_HEAD, *members_head), _broker_rows(found)),
        (_TOPICS_HEAD, _topic_rows(found)),
        (_GROUPS_HEAD, _group_rows(found)),
    ]


# -- in a file ---------------------------------------------------------------------------------------


def _show_text(found: TopView, screen: Screen) -> None:
    most = _most(screen)
    screen.line(f"{format_time(found.timestamp_ms)}  {_sum(found)}")
    layouts = (_BROKERS + _MEMBERS if _has_sets(found) else _BROKERS, _TOPICS, _GROUPS)
    for layout, (head, rows) in zip(layouts, _tables(found), strict=True):
        screen.line()
        screen.table(layout, head, rows[:most])
        if len(rows) > most:
            screen.line(f"… {len(rows) - most} more; --rows shows them")
    screen.line()


def _sum(found: TopView) -> str:
    return (
        f"{counted(len(found.brokers), 'broker')}, {counted(len(found.topics), 'topic')}, "
        f"{counted(len(found.groups), 'group')}, "
        f"in {sum(row.in_tps for row in found.topics):.1f}/s, "
        f"out {sum(row.consume_tps for row in found.groups):.1f}/s, "
        f"lag {sum(row.lag for row in found.groups)}"
    )


TOP: Final = AdminCommand(
    name="top",
    about="Show brokers, topics and groups with rates and lag, the busiest first, until q or Ctrl-C",
    example="top -n 127.0.0.1:9876 -i 5",
    options=(
        value("c", "clusterName", "only the brokers of this cluster"),
        value("i", "interval", f"seconds between views (default: {_INTERVAL_S:g})"),
        value("k", "count", "stop after so many views"),
        flag("", "once", "show one view"),
        value("", "rows", f"maximum rows per table (default: {_ROWS})"),
    ),
    stream=_top,
    show=_show,
    is_only_kourou=True,
)
