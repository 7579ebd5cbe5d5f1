"""How one message is shown: a block of lines, its body in a file, and what became of it in each group."""

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
"""Where Apache's tools put bodies, and scripts look for them."""
BODY_PATH: Final = Option(
    "", "body-path", f"folder for the body of the message, {DEFAULT_BODY_FOLDER} if not given", is_ours=True
)
_FILE_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,199}")
_LINE: Final = "{:<20} {}"


@dataclass(frozen=True, slots=True)
class MessageReport:
    """A message, where its body was written to, and what became of it."""

    msg_id: str
    message: MessageView | None
    body_path: str | None = None
    tracks: list[MessageTrack] = field(default_factory=list)
    problem: str = ""
    """Why there is no message, or it is not known what became of it."""


async def report(call: Call, msg_id: str, message: MessageExt, number: int = 0) -> MessageReport:
    """All about a message. `number` tells messages with the same id apart.

    With `--json` no file is written: the body is in the JSON. ConfigError if it cannot be written.
    """
    path = None
    if not call.args.flag("json"):
        folder = Path(call.args.text(BODY_PATH.name, DEFAULT_BODY_FOLDER))
        path = str(_write_body(folder, message, number))
    try:
        tracks, problem = await track(call.admin, message), ""
    except KourouError as error:
        tracks, problem = [], f"what became of it is not known: {error}"
    return MessageReport(msg_id, MessageView.of(message), path, tracks, problem)


def _write_body(folder: Path, message: MessageExt, number: int) -> Path:
    # A producer chooses the unique id, and could choose a path elsewhere.
    name = message.msg_id if _FILE_NAME.fullmatch(message.msg_id) else message.offset_msg_id
    path = folder / (f"{name}_{number}" if number else name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The folder is open to everybody: a link that waits there does not lead the body elsewhere.
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
    """A body as text; what does not fit the charset is replaced. UsageError for no charset."""
    try:
        codecs.lookup(charset)  # decoding of nothing would not look
        return body.decode(charset, "replace")
    except LookupError:
        raise UsageError(f"{charset}: unknown charset; UTF-8 and GBK are known, for example") from None


def show_block(found: MessageReport, screen: Screen, *, with_offset_id: bool = True) -> None:
    """Print the lines of a message."""
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
    """Print what became of a message; `ends_lines`: each group on a line of its own."""
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
