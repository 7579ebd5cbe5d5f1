"""`kourou tail`: the messages of a topic, like `tail -f`; as lines of text, as JSON, or bodies only."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import stat
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from typing import Any

import click

from kourou.admin.messages.message_view import MessageView
from kourou.admin.messages.tailing import Last, Since, Tail
from kourou.cli.admin.screen import Screen, printable
from kourou.cli.daily.cluster_command import Session, cluster_command
from kourou.cli.daily.missing_names import existing_route
from kourou.cli.daily.names import complete_topics
from kourou.cli.daily.times import EARLIEST, LATEST, format_time, parse_time_ms
from kourou.cli.option_types import IntRange
from kourou.cli.problems import UsageError, drop_output
from kourou.cli.usage import OneLineCommand
from kourou.protocol.filter import compile_filter
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import KEY_SEPARATOR, RESERVED_PROPERTIES
from kourou.protocol.tags import SUB_ALL

Keeps = Callable[[MessageExt], bool]


@click.command(cls=OneLineCommand)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--from",
    "begin",
    metavar="WHERE",
    help="earliest, latest, -10m (before now), 2026-11-17T12:30 (local time unless a zone is given), or "
    "milliseconds since 1970.",
)
@click.option("--last", type=IntRange(0), metavar="N", help="Start with the last N messages; default 10.")
@click.option(
    "-f",
    "--follow/--no-follow",
    "follows",
    default=True,
    show_default=False,
    help="Wait for more messages (the default), or exit.",
)
@click.option("-c", "--count", type=IntRange(1), metavar="N", help="Exit after N messages.")
@click.option("-t", "--tag", "tags", metavar="EXPR", help="Only these tags: 'TagA || TagB'.")
@click.option("-k", "--key", "keys", multiple=True, help="Only messages with this key, or one of these.")
@click.option(
    "-p",
    "--property",
    "properties",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Only messages with this property; may be repeated: all must match.",
)
@click.option("--sql", metavar="EXPR", help="Only messages whose properties match this SQL92 filter.")
@click.option("-g", "--grep", metavar="TEXT", help="Only messages with this text in their body.")
@click.option("--raw", is_flag=True, help="Print bodies only, each with a line end.")
@cluster_command
async def tail(
    session: Session,
    *,
    topic: str,
    begin: str | None,
    last: int | None,
    follows: bool,
    count: int | None,
    tags: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    sql: str | None,
    grep: str | None,
    raw: bool,
) -> None:
    """Print the last messages of a topic, then new ones.

    Stored messages are printed in the order in which they were stored. No consumer group is created and no
    offset is changed. The broker filters by tag; all other filters run here, so any broker will do.
    """
    if raw and session.is_json:
        raise UsageError("give --raw or --json, not both")
    where = _begin(begin, last)
    keeps = _filter(keys, properties, sql, grep)
    await existing_route(session.admin, topic, may_create=True)
    if tags is not None and "," in tags:
        session.note(f"--tag {tags}: this is a single tag; separate several with ||, as in 'TagA || TagB'")
    printer = _Printer(session, count, raw=raw)
    reading = Tail(
        session.admin,
        topic,
        where,
        printer.emit,
        on_trouble=(lambda text: session.note(f"{text}; retrying")) if follows else session.trouble,
        on_note=session.note,
        expression=tags or SUB_ALL,
        keeps=keeps,
    )
    await _until_ended(reading.run(follows=follows), follows=follows)


def _begin(begin: str | None, last: int | None) -> Last | Since:
    if begin is not None and last is not None:
        raise UsageError("give --from or --last, not both")
    if begin is None:
        return Last(10 if last is None else last)
    if begin == LATEST:
        return Last(0)
    return Since(0 if begin == EARLIEST else parse_time_ms("--from", begin))


# -- which ------------------------------------------------------------------------------------------


def _filter(
    keys: tuple[str, ...], properties: tuple[str, ...], sql: str | None, grep: str | None
) -> Keeps | None:
    """The conjunction of all filters; None without filters. FilterSyntaxError for invalid SQL92."""
    checks: list[Keeps] = []
    if keys:
        checks.append(lambda message: not set(keys).isdisjoint(message.keys))
    for text in properties:
        name, _, value = text.partition("=")
        if not name:
            raise UsageError(f"--property {text!r}: must be NAME or NAME=VALUE")
        checks.append(_property_check(name, value))
    if sql is not None:
        program = compile_filter(sql)
        checks.append(
            lambda message: program.matches_bytes(message.raw_properties, 0, len(message.raw_properties))
        )
    if grep is not None:
        wanted = grep.encode()
        checks.append(lambda message: wanted in MessageView.of(message).body)
    return (lambda message: all(check(message) for check in checks)) if checks else None


def _property_check(name: str, value: str) -> Keeps:
    if not value:
        return lambda message: message.get_property(name) is not None
    return lambda message: message.get_property(name) == value


# -- printing ---------------------------------------------------------------------------------------


class _Printer:
    """Prints messages, up to a limit."""

    def __init__(self, session: Session, count: int | None, *, raw: bool) -> None:
        self._screen: Screen = session.screen
        self._is_json = session.is_json
        self._raw = raw
        self._left = count

    def emit(self, message: MessageExt) -> bool:
        """Print a message; returns whether to continue."""
        view = MessageView.of(message)
        if self._raw:
            sys.stdout.buffer.write(view.body + b"\n")
            sys.stdout.buffer.flush()
        elif self._is_json:
            self._screen.line(json.dumps(message_json(view), ensure_ascii=False))
        else:
            self._screen.line(message_line(view))
        self._screen.flush()
        if self._left is not None:
            self._left -= 1
        return self._left != 0


# -- ending -----------------------------------------------------------------------------------------


async def _until_ended(reading: Coroutine[Any, Any, None], *, follows: bool) -> None:
    """Read until the end, or until stopped by Ctrl-C while following, or by a closed pipe."""
    task = asyncio.create_task(reading, name="tail")
    loop = asyncio.get_running_loop()
    with ExitStack() as watching:
        _watch_output(loop, task, watching)
        if follows:
            _watch_interrupt(loop, task, watching)
        try:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        except BrokenPipeError:
            drop_output()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _watch_output(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None], watching: ExitStack) -> None:
    """Cancel the task when the output pipe is closed: without a message no write would fail."""
    pipe = _output_pipe()
    if pipe is not None:
        with suppress(NotImplementedError):  # Windows
            loop.add_reader(pipe, task.cancel)
            watching.callback(loop.remove_reader, pipe)


def _watch_interrupt(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None], watching: ExitStack) -> None:
    """Cancel the task on Ctrl-C. Not on Windows, nor outside of the main thread: there it ends the
    command."""
    with suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        watching.callback(loop.remove_signal_handler, signal.SIGINT)


def _output_pipe() -> int | None:
    """The descriptor of standard output, if it is a pipe: it becomes readable when its reader is gone."""
    try:
        descriptor = sys.stdout.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except OSError:
        return None


def message_json(message: MessageView) -> dict[str, Any]:
    """A message for JSON. A body that is not UTF-8 is in base64; see `body_encoding`."""
    text = _text(message.body)
    return {
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "tag": message.tags,
        "keys": (message.keys or "").split(KEY_SEPARATOR) if message.keys else [],
        "properties": _own_properties(message),
        "born_timestamp": message.born_timestamp,
        "born_host": message.born_host,
        "store_timestamp": message.store_timestamp,
        "reconsume_times": message.reconsume_times,
        "body": base64.b64encode(message.body).decode() if text is None else text,
        "body_encoding": "base64" if text is None else "utf-8",
    }


def message_line(message: MessageView) -> str:
    """A message in one line: when and where it was stored, tag, keys and properties, body."""
    text = _text(message.body)
    words = [
        format_time(message.store_timestamp),
        f"{message.broker_name}/{message.queue_id}@{message.queue_offset}",
        *([f"tag={message.tags}"] if message.tags else []),
        *([f"key={key}" for key in message.keys.split(KEY_SEPARATOR)] if message.keys else []),
        *(f"{name}={value}" for name, value in _own_properties(message).items()),
        f"base64:{base64.b64encode(message.body).decode()}" if text is None else text,
    ]
    return "  ".join(printable(word, kept="\t") for word in words)


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _own_properties(message: MessageView) -> dict[str, str]:
    """The user properties."""
    return {name: text for name, text in message.properties.items() if name not in RESERVED_PROPERTIES}
