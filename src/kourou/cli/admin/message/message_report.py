"""How one message is shown: lines of fields, its body in a file, and its status in each group."""

from __future__ import annotations

import codecs
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kourou.admin.messages.message_track import MessageTrack, track
from kourou.admin.messages.message_view import MessageView
from kourou.cli.admin import formatting
from kourou.cli.admin.command import Call
from kourou.cli.admin.options import Option
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.errors import ConfigError, KourouError
from kourou.protocol.message import MessageExt

DEFAULT_BODY_FOLDER: Final = "/tmp/rocketmq/msgbodys"
"""The default of Apache's tools, where scripts expect it."""
BODY_PATH: Final = Option(
    "", "body-path", f"folder for the body of the message (default: {DEFAULT_BODY_FOLDER})", is_ours=True
)
_FILE_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,199}")
_LINE: Final = "{:<20} {}"


@dataclass(frozen=True, slots=True)
class MessageReport:
    """A message, the file of its body, and its status in each group."""

    msg_id: str
    message: MessageView | None
    body_path: str | None = None
    tracks: list[MessageTrack] = field(default_factory=list)
    problem: str = ""
    """Why the message or its status is not known."""


async def report(call: Call, msg_id: str, message: MessageExt, number: int = 0) -> MessageReport:
    """All about a message. `number` distinguishes messages with the same id.

    With `--json` no file is written: the body is in the JSON. ConfigError if the file cannot be written.
    """
    path = None
    if not call.args.flag("json"):
        folder = Path(call.args.text(BODY_PATH.name, DEFAULT_BODY_FOLDER))
        path = str(_write_body(folder, message, number))
    try:
        tracks, problem = await track(call.admin, message), ""
    except KourouError as error:
        tracks, problem = [], f"the status in each group is not known: {error}"
    return MessageReport(msg_id, MessageView.of(message), path, tracks, problem)


def _write_body(folder: Path, message: MessageExt, number: int) -> Path:
    # Producers choose unique ids, which could contain a path.
    name = message.msg_id if _FILE_NAME.fullmatch(message.msg_id) else message.offset_msg_id
    path = folder / (f"{name}_{number}" if number else name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The folder may be world-writable: do not follow links that others put there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o644), "wb") as file:
            file.write(MessageView.of(message).body)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"{path}: the body cannot be written: {reason}; see --{BODY_PATH.name}, or use --json"
        ) from None
    return path


def body_text(body: bytes, charset: str) -> str:
    """The body as text; bytes outside the charset are replaced. UsageError for an unknown charset."""
    try:
        codecs.lookup(charset)  # decoding an empty body would not check the charset
        return body.decode(charset, "replace")
    except LookupError:
        raise UsageError(f"{charset}: unknown charset; UTF-8 and GBK are known, for example") from None


def show_block(found: MessageReport, screen: Screen, *, with_offset_id: bool = True) -> None:
    """Print the fields of a message."""
    message = found.message
    assert message is not None
    offset_id = [("OffsetID:", message.offset_msg_id)] if with_offset_id else []
    for name, value in (
        *offset_id,
        ("Topic:", message.topic),
        ("Tags:", f"[{formatting.or_null(message.tags)}]"),
        ("Keys:", f"[{formatting.or_null(message.keys)}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.phy_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", formatting.human_time(message.born_timestamp)),
        ("Store Timestamp:", formatting.human_time(message.store_timestamp)),
        ("Born Host:", message.born_host),
        ("Store Host:", message.store_host),
        ("System Flag:", message.sys_flag),
        ("Properties:", formatting.text_map(message.properties)),
        ("Message Body Path:", found.body_path or ""),
    ):
        screen.line(_LINE.format(name, value))
    if charset := screen.args.get("bodyFormat"):
        screen.line(_LINE.format("Message Body:", body_text(message.body, charset)))


def show_tracks(found: MessageReport, screen: Screen, *, ends_lines: bool) -> None:
    """Print the status of a message in each group; `ends_lines`: one group per line."""
    screen.write("\n\n")
    if found.problem:
        screen.trouble(found.problem)
        return
    if not found.tracks:
        screen.write("WARN: No Consumer")
    for one in found.tracks:
        screen.write(formatting.message_track(one.consumer_group, one.track_type, one.exception_desc))
        if ends_lines:
            screen.line()
