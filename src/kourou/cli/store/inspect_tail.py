"""`kourou store inspect FILE`: prints what was cut off a CommitLog and kept, as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from kourou.cli.printing import shown, wide_console
from kourou.cli.store.inspect import body_of, message_json, message_table, new_table, print_json
from kourou.errors import StoreFormatError
from kourou.protocol.message import MessageExt
from kourou.store.check.record_view import time_text
from kourou.store.disk.files import Files
from kourou.store.replica.orphaned_tail import OrphanedTail, SavedTail
from kourou.wording import counted

_DAMAGED: Final = 2
_SHOWN_BODY: Final = 40


@dataclass(frozen=True, kw_only=True)
class InspectTailCommand:
    """The arguments of the command."""

    path: Path
    topic: str | None = None
    queue_id: int | None = None
    limit: int = 20
    message: str | None = None
    as_json: bool = False

    def run(self) -> int:
        """Inspect and print; returns the exit code."""
        with OrphanedTail.open(Files(), self.path) as tail:
            if self.message is not None:
                self._show_message(tail, self.message)
                return 0
            return self._show_tail(tail)

    def _show_message(self, tail: OrphanedTail, text: str) -> None:
        for message in tail.messages():
            if text.upper() in (str(message.phy_offset), message.msg_id.upper(), message.offset_msg_id):
                if self.as_json:
                    print_json(message_json(message))
                else:
                    wide_console().print(message_table(message))
                return
        raise StoreFormatError(self.path, f"there is no message at or with id {text}")

    def _show_tail(self, tail: OrphanedTail) -> int:
        total, chosen, shown_messages = 0, 0, []
        for message in tail.messages():
            total += 1
            if self._is_chosen(message):
                chosen += 1
                if chosen <= self.limit:
                    shown_messages.append(message)
        problem = tail.problem()
        if self.as_json:
            print_json(_tail_json(tail.saved, total, chosen, shown_messages, problem))
        else:
            self._print(tail.saved, total, chosen, shown_messages, problem)
        return 0 if problem is None else _DAMAGED

    def _is_chosen(self, message: MessageExt) -> bool:
        return self.topic in (None, message.topic) and self.queue_id in (None, message.queue_id)

    def _print(
        self, saved: SavedTail, total: int, chosen: int, messages: list[MessageExt], problem: str | None
    ) -> None:
        console = wide_console()
        console.print(
            f"[bold]{shown(str(saved.path))}[/]: cut off the CommitLog of {shown(saved.set_name)} at "
            f"{time_text(saved.saved_ms)}, from {saved.start_phy_offset} to {saved.end_phy_offset} "
            f"({saved.size_bytes:,} bytes), epoch {saved.epoch}: {counted(total, 'message')}"
        )
        if problem is not None:
            console.print(f"[bold red]damaged:[/] {shown(problem)}; what is listed may lack messages")
        if messages:
            console.print(_messages_table(messages))
        if chosen > len(messages):
            console.print(f"{chosen - len(messages)} more; --limit sets how many are listed")


def _tail_json(
    saved: SavedTail, total: int, chosen: int, messages: list[MessageExt], problem: str | None
) -> dict[str, Any]:
    return {
        "file": str(saved.path),
        "brokerSet": saved.set_name,
        "epoch": saved.epoch,
        "startOffset": saved.start_phy_offset,
        "endOffset": saved.end_phy_offset,
        "savedTimestamp": saved.saved_ms,
        "problem": problem,
        "messageCount": total,
        "selectedCount": chosen,
        "messages": [message_json(message) for message in messages],
    }


def _messages_table(messages: list[MessageExt]) -> Table:
    table = new_table(
        "Messages",
        ("Stored", "Topic", "Message id", "Tags", "Keys", "Body"),
        ("Queue", "Queue offset", "Log offset", "Size"),
    )
    for message in messages:
        body, text = body_of(message)
        preview = body.hex() if text is None else text
        table.add_row(
            time_text(message.store_timestamp),
            shown(message.topic),
            message.msg_id,
            shown(message.tags or ""),
            shown(" ".join(message.keys)),
            shown(preview if len(preview) <= _SHOWN_BODY else preview[:_SHOWN_BODY] + "…"),
            str(message.queue_id),
            str(message.queue_offset),
            str(message.phy_offset),
            str(message.store_size),
        )
    return table
