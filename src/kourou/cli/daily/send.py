"""`kourou send`: one message from an argument, a file or standard input, or one for each line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import click

from kourou.admin.messages.message_sending import (
    MAX_CONCURRENT_SENDS,
    SentMessage,
    check_delay,
    send_messages,
)
from kourou.cli.daily.cluster_command import Session, cluster_command
from kourou.cli.daily.missing_names import existing_route
from kourou.cli.daily.names import complete_topics
from kourou.cli.daily.standard_input import all_of, lines_of, stdin_chunks
from kourou.cli.option_types import IntRange, parse_duration_ms
from kourou.cli.pairs import parse_pairs
from kourou.cli.problems import UsageError, drop_output
from kourou.cli.usage import OneLineCommand
from kourou.errors import ConfigError, KourouError, MessageRefusedError, SendFailedError
from kourou.protocol.message import Message
from kourou.wording import counted


@click.command(cls=OneLineCommand)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("body", required=False)
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the body from this file; - is standard input.",
)
@click.option("--lines", is_flag=True, help="Send a message for each non-empty line.")
@click.option("-k", "--key", "keys", multiple=True, help="Key to find the message by; may be repeated.")
@click.option("-t", "--tag", "tags", multiple=True, metavar="TAG", help="Tag that subscriptions select by.")
@click.option(
    "-p", "--property", "properties", multiple=True, metavar="NAME=VALUE", help="Property; may be repeated."
)
@click.option("--sharding-key", metavar="KEY", help="Messages with the same key go to the same queue.")
@click.option(
    "--priority",
    type=IntRange(0),
    metavar="N",
    help="Priority, for topics of type PRIORITY: 0 is the lowest.",
)
@click.option(
    "--delay", metavar="TIME", help="Deliver after a delay: 10s, 5m, 2h. Requires version 5 brokers."
)
@click.option(
    "--delay-level",
    type=IntRange(1),
    metavar="N",
    help="Deliver after the delay of a level: 1 to 18 are 1s to 2h.",
)
@cluster_command
async def send(
    session: Session,
    *,
    topic: str,
    body: str | None,
    file: Path | None,
    lines: bool,
    keys: tuple[str, ...],
    tags: tuple[str, ...],
    properties: tuple[str, ...],
    sharding_key: str | None,
    priority: int | None,
    delay: str | None,
    delay_level: int | None,
) -> None:
    """Send a message: BODY, a file, or standard input. Prints its id and its place, BROKER/QUEUE@OFFSET.

    The topic must exist. Bytes are sent unchanged; --lines removes line ends.
    """
    if body is not None and file is not None:
        raise UsageError("give the body as an argument or by --file, not both")
    if delay is not None and delay_level is not None:
        raise UsageError("give --delay or --delay-level, not both")
    if priority is not None and (sharding_key or delay is not None or delay_level is not None):
        raise UsageError("a message with --sharding-key, --delay or --delay-level has no --priority")
    if len(tags) > 1:
        raise UsageError(f"--tag {' --tag '.join(tags)}: a message has one tag")
    delay_ms = 0 if delay is None else parse_duration_ms("--delay", delay)
    pairs = parse_pairs("--property", properties, form="NAME=VALUE")

    def message(content: bytes) -> Message:
        try:
            return Message(
                topic,
                content,
                tags=tags[0] if tags else None,
                keys=keys,
                properties=pairs,
                priority=priority,
                delay_time_level=delay_level or 0,
                delay_time_ms=delay_ms,
            )
        except ValueError as error:
            raise MessageRefusedError(str(error)) from None

    message(b"checked before anything is read")
    route = await existing_route(session.admin, topic, may_create=True)
    if delay_ms or delay_level:
        given = f"--delay {delay}" if delay_ms else f"--delay-level {delay_level}"
        try:
            await check_delay(session.admin, route, delay_ms=delay_ms, level=delay_level or 0)
        except ConfigError as error:
            raise ConfigError(f"{given}: {error}") from None
    contents = _lines(body, file) if lines else _one(body, file)
    failures: list[str] = []
    number = 0
    messages = _messages(contents, message)
    async with aclosing(send_messages(session.admin, messages, sharding_key=sharding_key)) as outcomes:
        async for outcome in outcomes:
            number += 1
            if isinstance(outcome, KourouError):
                failures.append(f"message {number}: {_reason(outcome)}" if lines else _reason(outcome))
                continue
            try:
                _show(session, outcome, is_delayed=bool(delay_ms or delay_level))
            except BrokenPipeError:
                if not lines:
                    raise
                drop_output()
                raise KourouError(
                    f"standard output was closed after {counted(number, 'message')}; stopped sending, "
                    f"except for messages in flight (at most {MAX_CONCURRENT_SENDS})"
                ) from None
    if failures:
        more = f" ({len(failures)} of {number} messages failed)" if len(failures) > 1 else ""
        raise KourouError(failures[0] + more)


def _reason(error: KourouError) -> str:
    if isinstance(error, SendFailedError) and error.may_be_stored:
        return f"{error}; the broker may still have stored it"
    return str(error)


def _show(session: Session, sent: SentMessage, *, is_delayed: bool) -> None:
    if session.is_json:
        session.screen.json(sent, is_line=True)
    else:
        status = "" if sent.status == "SEND_OK" else f"  {sent.status}"
        # A delayed message waits in a system topic, and gets its position in this one when it is due.
        place = "delayed" if is_delayed else f"{sent.broker_name}/{sent.queue_id}@{sent.queue_offset}"
        session.screen.line(f"{sent.msg_id}  {place}{status}")
    session.screen.flush()


async def _messages(
    contents: AsyncIterator[bytes], message: Callable[[bytes], Message]
) -> AsyncIterator[Message]:
    async for content in contents:
        yield message(content)


async def _one(body: str | None, file: Path | None) -> AsyncIterator[bytes]:
    if body is not None:
        yield os.fsencode(body)  # the bytes as typed, in any encoding
    else:
        yield await all_of(_chunks(file))


async def _lines(body: str | None, file: Path | None) -> AsyncIterator[bytes]:
    lines = lines_of(_chunks(file) if body is None else _one(body, file))
    async for line in lines:
        if line:
            yield line


def _chunks(file: Path | None) -> AsyncIterator[bytes]:
    if file is not None and str(file) != "-":
        return _file_chunks(file)
    if sys.stdin.isatty():
        print("Type the body; Ctrl-D ends it.", file=sys.stderr)
    return stdin_chunks()


async def _file_chunks(file: Path) -> AsyncIterator[bytes]:
    try:
        yield await asyncio.to_thread(file.read_bytes)
    except OSError as error:
        raise ConfigError(f"--file {file}: {error.strerror or error}") from None
