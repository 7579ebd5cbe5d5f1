"""`kourou store inspect`: prints the content of a store, as tables or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kourou.cli.printing import shown, wide_console
from kourou.cli.store.folders import one_store
from kourou.errors import ProtocolError, StoreFormatError
from kourou.protocol.message import MessageExt
from kourou.store.check.check_report import relative
from kourou.store.check.message_search import MessageSearch
from kourou.store.check.record_view import RecordField, record_fields, time_text
from kourou.store.check.store_overview import (
    GroupOffset,
    IndexFileOverview,
    QueueOverview,
    StoreOverview,
    overview,
)
from kourou.store.disk.files import Files

_HEX_LINE_BYTES: Final = 16
# How many bytes to show if they are not a record.
_UNKNOWN_BYTES: Final = 256
_SHOWN_BODY_BYTES: Final = 1024


@dataclass(frozen=True, kw_only=True)
class InspectCommand:
    """The arguments of the command."""

    given_folder: Path
    log_folders: tuple[Path, ...] = ()
    index_slots: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    first_queue_offset: int | None = None
    limit: int = 20
    message: str | None = None
    record_phy_offset: int | None = None
    with_hex: bool = False
    as_json: bool = False

    def run(self) -> int:
        """Inspect and print; returns the exit code."""
        if self.message is not None:
            self._show_message(self.message)
        elif self.record_phy_offset is not None:
            self._show_record(self.record_phy_offset)
        elif self.topic is not None and self.queue_id is not None:
            self._show_queue(self.topic, self.queue_id)
        else:
            self._show_store()
        return 0

    @cached_property
    def folder(self) -> Path:
        """The store. ConfigError if there are several."""
        return one_store(Files(), self.given_folder, self.log_folders)

    def _search(self) -> MessageSearch:
        return MessageSearch.open(
            Files(), self.folder, log_folders=self.log_folders, index_slots=self.index_slots
        )

    def _show_message(self, text: str) -> None:
        with self._search() as search:
            found = search.find(text, self.topic)
        if self.as_json:
            print_json(message_json(found))
        else:
            wide_console().print(message_table(found))

    def _show_record(self, phy_offset: int) -> None:
        with self._search() as search:
            try:
                raw = search.reader.record_bytes(phy_offset)
            except ProtocolError:
                raw = search.reader.read(phy_offset, _UNKNOWN_BYTES)
        if not raw:
            raise StoreFormatError(self.folder, f"the log has no byte {phy_offset}")
        fields = record_fields(raw)
        if self.as_json:
            print_json([_field_json(field) for field in fields])
        else:
            wide_console().print(_record_table(phy_offset, fields, with_hex=self.with_hex))

    def _show_queue(self, topic: str, queue_id: int) -> None:
        with self._search() as search:
            messages = list(search.in_queue(topic, queue_id, self.first_queue_offset, self.limit))
        if self.as_json:
            print_json([message_json(message) for message in messages])
        else:
            wide_console().print(_queue_table(topic, queue_id, messages))

    def _show_store(self) -> None:
        found = overview(Files(), self.folder, log_folders=self.log_folders, index_slots=self.index_slots)
        self._select(found)
        if self.as_json:
            print_json(overview_json(found))
        else:
            print_overview(wide_console(), found)

    def _select(self, found: StoreOverview) -> None:
        """Keep only the requested topics."""
        if self.topic is not None:
            found.queues = [queue for queue in found.queues if queue.topic == self.topic]
            found.groups = [group for group in found.groups if group.topic == self.topic]
            if not found.queues:
                raise StoreFormatError(self.folder, f"no queue of topic {self.topic}")
        if self.queue_id is not None:
            found.queues = [queue for queue in found.queues if queue.queue_id == self.queue_id]
            found.groups = [group for group in found.groups if group.queue_id == self.queue_id]


def print_json(value: Any) -> None:
    """Print a value in the form of all commands about stores."""
    print(json.dumps(value, indent=2))


# -- the store -----------------------------------------------------------------------------------


def overview_json(found: StoreOverview) -> dict[str, Any]:
    """An overview as JSON values."""
    return {
        "root": str(found.root),
        "cleanExit": found.is_clean,
        "inUse": found.in_use,
        "commitLog": {
            "fileBytes": found.log_file_bytes,
            "minOffset": found.log_min_phy_offset,
            "maxOffset": found.log_end_phy_offset,
            "firstStoreTimestamp": found.first_timestamp,
            "lastStoreTimestamp": found.last_timestamp,
            "files": [
                {"file": str(relative(file.path, found.root)), "firstStoreTimestamp": file.first_timestamp}
                for file in found.log_files
            ],
        },
        "checkpoint": _checkpoint_values(found),
        "consumeQueueFileBytes": found.queue_file_bytes,
        "topics": {
            topic: {"queues": len(queues), "messages": sum(queue.count for queue in queues)}
            for topic, queues in found.topics.items()
        },
        "queues": [_queue_json(queue) for queue in found.queues],
        "index": [_index_json(file, found.root) for file in found.index_files],
        "groups": [_group_json(group) for group in found.groups],
    }


def _queue_json(queue: QueueOverview) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "minOffset": queue.min_queue_offset,
        "maxOffset": queue.max_queue_offset,
        "count": queue.count,
        "files": queue.files,
    }


def _group_json(group: GroupOffset) -> dict[str, Any]:
    return {
        "group": group.group,
        "topic": group.topic,
        "queueId": group.queue_id,
        "offset": group.consumer_offset,
        "lag": group.lag,
    }


def _index_json(file: IndexFileOverview, root: Path) -> dict[str, Any]:
    header = file.header
    return {
        "file": str(relative(file.path, root)),
        "beginTimestamp": header.begin_timestamp,
        "endTimestamp": header.end_timestamp,
        "beginPhyOffset": header.begin_phy_offset,
        "endPhyOffset": header.end_phy_offset,
        "hashSlotCount": header.hash_slot_count,
        "indexCount": header.index_count,
    }


def _checkpoint_values(found: StoreOverview) -> dict[str, int]:
    checkpoint = found.checkpoint
    return {
        "physicMsgTimestamp": checkpoint.physic_msg_timestamp,
        "logicsMsgTimestamp": checkpoint.logics_msg_timestamp,
        "indexMsgTimestamp": checkpoint.index_msg_timestamp,
        "durablePhyOffset": checkpoint.durable_phy_offset,
    }


def print_overview(console: Console, found: StoreOverview) -> None:
    """Print an overview as text."""
    state = "in use" if found.in_use else "stopped" if found.is_clean else "killed"
    first, last = (time_text(value or 0) for value in (found.first_timestamp, found.last_timestamp))
    console.print(
        f"[bold]{shown(str(found.root))}[/] ({state}): CommitLog from {found.log_min_phy_offset} to "
        f"{found.log_end_phy_offset}, stored from {first} to {last}"
    )
    for table in (
        _log_table(found),
        _index_table(found),
        _topics_table(found),
        _queues_table(found),
        _groups_table(found),
    ):
        if table.row_count:
            console.print(table)


def new_table(title: str, columns: Iterable[str], numbers: Iterable[str] = ()) -> Table:
    """An empty table; `numbers` are columns to the right."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def _log_table(found: StoreOverview) -> Table:
    table = new_table(f"CommitLog, files of {found.log_file_bytes} bytes", ("File", "First record stored"))
    for file in found.log_files:
        table.add_row(file.path.name, time_text(file.first_timestamp or 0))
    return table


def _index_table(found: StoreOverview) -> Table:
    table = new_table(
        "Index", ("File", "From", "To"), ("First offset", "Last offset", "Entries", "Of", "Slots used", "Of")
    )
    for file in found.index_files:
        header, layout = file.header, file.layout
        table.add_row(
            file.path.name,
            time_text(header.begin_timestamp),
            time_text(header.end_timestamp),
            str(header.begin_phy_offset),
            str(header.end_phy_offset),
            f"{header.index_count - 1:,}",
            f"{layout.entry_count:,}" if layout else "?",
            f"{header.hash_slot_count:,}",
            f"{layout.slot_count:,}" if layout else "?",
        )
    return table


def _topics_table(found: StoreOverview) -> Table:
    table = new_table("Topics", ("Topic",), ("Queues", "Messages"))
    for topic, queues in found.topics.items():
        table.add_row(shown(topic), str(len(queues)), f"{sum(queue.count for queue in queues):,}")
    return table


def _queues_table(found: StoreOverview) -> Table:
    title = f"ConsumeQueues, files of {found.queue_file_bytes} bytes"
    table = new_table(title, ("Topic",), ("Queue", "Min", "Max", "Messages", "Files"))
    for queue in found.queues:
        table.add_row(
            shown(queue.topic),
            str(queue.queue_id),
            str(queue.min_queue_offset),
            str(queue.max_queue_offset),
            f"{queue.count:,}",
            str(queue.files),
        )
    return table


def _groups_table(found: StoreOverview) -> Table:
    table = new_table("Groups", ("Group", "Topic"), ("Queue", "Offset", "Lag"))
    for group in found.groups:
        lag = "-" if group.lag is None else f"{group.lag:,}"
        table.add_row(
            shown(group.group), shown(group.topic), str(group.queue_id), str(group.consumer_offset), lag
        )
    return table


# -- messages ------------------------------------------------------------------------------------


def message_json(message: MessageExt) -> dict[str, Any]:
    """A message as JSON values; a body that is not text as hex."""
    body, text = body_of(message)
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.phy_offset,
        "storeSize": message.store_size,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "storeTimestamp": message.store_timestamp,
        "storeHost": message.store_host,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
        "bodyLength": len(body),
        **({"body": text} if text is not None else {"bodyHex": body.hex()}),
    }


def body_of(message: MessageExt) -> tuple[bytes, str | None]:
    """The body as sent, or as stored if it cannot be inflated; and as text, if possible."""
    try:
        body = message.body
    except ProtocolError:
        body = message.stored_body
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body, None
    return body, text if all(sign.isprintable() or sign in "\n\r\t" for sign in text) else None


def message_table(message: MessageExt) -> Table:
    """All of a message."""
    values = message_json(message)
    properties, text = values.pop("properties"), values.pop("body", None)
    body = text if text is not None else values.pop("bodyHex")
    table = new_table(f"Message at {message.phy_offset}", ("Field", "Value"))
    for name, value in values.items():
        is_time = name.endswith("Timestamp")
        table.add_row(name, shown(f"{value} {time_text(value)}" if is_time else str(value)))
    for name, value in properties.items():
        table.add_row(f"property {shown(name)}", shown(value))
    more = "" if len(body) <= _SHOWN_BODY_BYTES else f" … ({len(body)} in total; --json shows all)"
    table.add_row("body" if text is not None else "body, hex", shown(body[:_SHOWN_BODY_BYTES] + more))
    return table


def _queue_table(topic: str, queue_id: int, messages: list[MessageExt]) -> Table:
    table = new_table(
        f"{shown(topic)}/{queue_id}",
        ("Stored", "Message id", "Tags", "Keys"),
        ("Queue offset", "Log offset", "Size"),
    )
    for message in messages:
        table.add_row(
            time_text(message.store_timestamp),
            message.msg_id,
            shown(message.tags or ""),
            shown(" ".join(message.keys)),
            str(message.queue_offset),
            str(message.phy_offset),
            str(message.store_size),
        )
    return table


# -- one record ----------------------------------------------------------------------------------


def _field_json(field: RecordField) -> dict[str, Any]:
    return {"field": field.name, "position": field.position, "hex": field.raw.hex(), "value": field.text}


def _record_table(phy_offset: int, fields: list[RecordField], *, with_hex: bool) -> Table:
    table = new_table(f"At {phy_offset}", ("Field", *(("Hex", "ASCII") if with_hex else ()), "Value"))
    table.columns[0].no_wrap = True
    table.columns[-1].overflow = "fold"
    for field in fields:
        lines = list(_hex_lines(field.raw)) if with_hex else []
        cells = (
            ("\n".join(line for line, _ in lines), "\n".join(text for _, text in lines)) if with_hex else ()
        )
        table.add_row(f"{field.position:>6} {field.name}", *cells, shown(field.text))
    return table


def _hex_lines(raw: bytes) -> Iterable[tuple[str, str]]:
    for at in range(0, len(raw), _HEX_LINE_BYTES):
        line = raw[at : at + _HEX_LINE_BYTES]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        yield line.hex(" "), shown(text)
