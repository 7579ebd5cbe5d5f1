"""`mqadmin redrive`: sends dead letters back to their consumer group."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from kourou.admin.messages.dead_letters import Selection
from kourou.admin.messages.redrive import (
    Redriven,
    RedriveOutcome,
    RedrivePlan,
    plan_redrive,
    preview,
    redrive,
)
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import cut, format_time, parse_time
from kourou.cli.admin.options import ParsedArgs, flag, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.errors import ConfigError, FilterSyntaxError, KourouError
from kourou.protocol.filter import FilterProgram, compile_filter
from kourou.wording import counted

_LAYOUT: Final = "{:<5} {:<32} {:<20} {:<24} {:<19} {:<6} {:<15} {}"
_HEAD: Final = ("#", "Message Id", "Keys", "Topic", "Born", "Times", "Result", "Body")
_PREVIEW_ROWS: Final = 20


async def _redrive(call: Call) -> AsyncIterator[Redriven]:
    plan = await plan_redrive(
        call.admin,
        call.args.text("group"),
        _selection(call.args),
        to_topic=call.args.flag("to-topic"),
        again=call.args.flag("again"),
        limit=_limit(call.args),
    )
    if call.args.flag("dry-run"):
        async for found in _with_progress(call, preview(call.admin, plan)):
            yield found
        return
    if _is_interactive(call) and not await _confirm(call, plan):
        return
    failed = 0
    async for found in _with_progress(call, redrive(call.admin, plan)):
        failed += found.outcome is RedriveOutcome.FAILED
        yield found
    if failed:
        raise KourouError(
            f"{failed} dead letter{'s' if failed > 1 else ''} of {plan.group} could not be sent back and "
            "stay in the dead-letter topic; run the command again when the causes above are fixed"
        )


def _selection(args: ParsedArgs) -> Selection:
    begin, end = args.get("beginTime"), args.get("endTime")
    return Selection(
        topic=args.get("topic"),
        key=args.get("key"),
        begin_ms=parse_time(begin) if begin is not None else None,
        end_ms=parse_time(end) if end is not None else None,
        expression=_expression(args.get("expression")),
    )


def _expression(text: str | None) -> FilterProgram | None:
    try:
        return compile_filter(text) if text is not None else None
    except FilterSyntaxError as error:
        raise UsageError(str(error)) from None


def _limit(args: ParsedArgs) -> int | None:
    if "limit" not in args:
        return None
    if (limit := args.number("limit")) < 1:
        raise UsageError(f"--limit {limit}: must be a number above 0")
    return limit


async def _with_progress(call: Call, rows: AsyncIterator[Redriven]) -> AsyncIterator[Redriven]:
    """The rows, with a heading and a total for interactive use."""
    is_text = not call.args.flag("json")
    counts: Counter[RedriveOutcome] = Counter()
    if is_text:
        call.screen.head(_LAYOUT.format(*_HEAD).rstrip())
    async for row in rows:
        counts[row.outcome] += 1
        call.screen.progress(_sum(counts))
        yield row
    call.screen.end_progress()
    if is_text:
        call.screen.line(_sum(counts))


def _sum(counts: Counter[RedriveOutcome]) -> str:
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in RedriveOutcome if counts[outcome]) or (
        "no dead letters match"
    )


def _show(row: Redriven, screen: Screen) -> None:
    # Messages of earlier runs may be many; the total includes them.
    if row.outcome is RedriveOutcome.ALREADY:
        return
    letter = row.letter
    screen.line(
        _LAYOUT.format(
            row.number,
            letter.msg_id,
            cut(letter.keys, 20),
            cut(letter.topic, 24),
            format_time(letter.born_timestamp),
            letter.reconsume_times,
            row.outcome,
            " ".join(letter.body_start.split()),
        )
    )
    if row.reason:
        screen.trouble(f"{letter.msg_id}: {row.outcome}: {row.reason}")


# -- asking ------------------------------------------------------------------------------------------


def _is_interactive(call: Call) -> bool:
    return sys.stdin.isatty() and call.screen.is_terminal and not call.args.flag("yes")


async def _confirm(call: Call, plan: RedrivePlan) -> bool:
    """Show what would be sent and ask for confirmation. ConfigError if declined; False if nothing matches."""
    count = 0
    async for row in preview(call.admin, plan):
        count += row.outcome is RedriveOutcome.WOULD_SEND
        if count == 1 and row.number == 1:
            call.screen.head(_LAYOUT.format(*_HEAD).rstrip())
        if row.number <= _PREVIEW_ROWS:
            _show(row, call.screen)
    if not count:
        call.screen.line("no dead letters match")
        return False
    if count > _PREVIEW_ROWS:
        call.screen.line(f"… and {count - _PREVIEW_ROWS} more")
    whom = "all groups of their topics" if plan.to_topic else plan.group
    call.screen.write(f"Send {counted(count, 'dead letter')} to {whom} again? [y/N] ")
    call.screen.flush()
    if (await _answer()).strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was sent; --yes skips the question, --dry-run only shows")
    return True


async def _answer() -> str:
    """Read a line from the terminal. Ctrl-C still works, which `input` on the loop would block."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        loop.remove_reader(sys.stdin)
        if not answer.done():
            answer.set_result(sys.stdin.readline())

    try:
        loop.add_reader(sys.stdin, read)
    except NotImplementedError:  # Windows
        return sys.stdin.readline()
    try:
        return await answer
    finally:
        loop.remove_reader(sys.stdin)


REDRIVE: Final = AdminCommand(
    name="redrive",
    about="Send a group's dead letters back to it, once each; the originals stay in the dead-letter topic",
    example="redrive -n 127.0.0.1:9876 -g billing --dry-run",
    options=(
        required("g", "group", "consumer group whose dead letters are sent back", "consumerGroup"),
        value("t", "topic", "only those from this topic"),
        value("k", "key", "only those with this key or message id"),
        value("b", "beginTime", "only those dead since this time, ms or yyyy-MM-dd#HH:mm:ss:SSS"),
        value("e", "endTime", "only those dead before this time"),
        value("", "expression", 'only those whose properties match an SQL92 expression, such as "a > 3"'),
        value("", "limit", "send at most so many"),
        flag("", "dry-run", "show what would be sent, without sending", "dryRun"),
        flag("", "to-topic", "send to their original topics, for all groups", "toTopic"),
        flag("", "again", "include those that were redriven before"),
    ),
    stream=_redrive,
    changes_as_it_prints=True,
    show=_show,
    aliases=("redriveDLQ", "resendDLQ"),
    is_only_kourou=True,
)
