"""The check of the small files: those in `config`, the snapshot of the queues, and what else is there."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from kourou.errors import ProtocolError
from kourou.protocol import fastjson
from kourou.store.check.check_context import CheckContext
from kourou.store.check.invariants import Invariant
from kourou.store.config_tables import TABLES, ConsumerOffsetTable, TopicConfigTable, load_table
from kourou.store.disk.files import Files
from kourou.store.producers.producer_snapshot import SNAPSHOT_NAME as PRODUCERS_NAME
from kourou.store.producers.producer_snapshot import snapshot_phy_offset
from kourou.store.queue.queue_snapshot import decode_snapshot
from kourou.store.recovery.corrupt_ranges import DAMAGES_NAME
from kourou.store.store_layout import StoreLayout

# Written by 5.x, JSON too.
_MORE_JSON: Final = ("timermetrics", "transactionMetrics")
_BACKUP: Final = ".bak"

Table = TypeVar("Table", bound=msgspec.Struct)


def check_config(context: CheckContext) -> None:
    """Every JSON file in `config` can be read, and its `.bak` too; and the snapshot of producers."""
    names = set(context.layout.config_names)
    for name in sorted(names):
        main = name.removesuffix(_BACKUP)
        if name == PRODUCERS_NAME:
            _check_file(context, name, main)
        elif main.endswith(".json") or main in _MORE_JSON:
            _check_file(context, name, main)
            if name != main and main not in names:
                context.findings.note(
                    context.layout.config(main), None, f"it is missing; the next start takes {name}"
                )


def check_snapshot(context: CheckContext) -> None:
    """Kourou's snapshot of all queues, if there is one, is whole."""
    path = context.layout.root / "consumequeue.snapshot"
    try:
        is_whole = decode_snapshot(context.files.read(path)) is not None
    except FileNotFoundError:
        return
    except OSError as error:
        return context.unreadable(path, error)
    if not is_whole:
        context.findings.violation(
            Invariant.SNAPSHOT, path, None, "its CRC does not match; the next start reads the queues instead"
        )


def _check_file(context: CheckContext, name: str, main: str) -> None:
    path = context.layout.config(name)
    try:
        raw = context.files.read(path)
        if main in TABLES:
            load_table(raw, TABLES[main])
        elif main == PRODUCERS_NAME:
            snapshot_phy_offset(raw)
        else:
            fastjson.parse(raw)
    except OSError as error:
        context.unreadable(path, error)
    except ProtocolError as error:
        context.findings.violation(Invariant.CONFIG, path, None, f"not a {_kind(main)}: {error}")


def _kind(main: str) -> str:
    if main == PRODUCERS_NAME:
        return "snapshot of idempotent producers"
    return f"table of {main.removesuffix('.json')}" if main in TABLES else "JSON"


def load_config(files: Files, layout: StoreLayout, name: str, shape: type[Table]) -> Table | None:
    """A table of `config`, or of its `.bak`; None when neither can be read."""
    for candidate in (name, name + _BACKUP):
        try:
            return load_table(files.read(layout.config(candidate)), shape)
        except (OSError, ProtocolError):
            continue
    return None


def known_topics(files: Files, layout: StoreLayout) -> frozenset[str] | None:
    """The topics in `topics.json`; None if unknown."""
    table = load_config(files, layout, "topics.json", TopicConfigTable)
    return None if table is None else frozenset(table.topic_config_table)


def committed_offsets(files: Files, layout: StoreLayout) -> dict[str, dict[int, int]]:
    """`topic@group` to queue id to the next queue_offset to consume."""
    table = load_config(files, layout, "consumerOffset.json", ConsumerOffsetTable)
    return {} if table is None else table.offset_table


def note_others(context: CheckContext) -> None:
    """Say what else is there."""
    layout, findings = context.layout, context.findings
    for path in layout.foreign:
        findings.note(path, None, "not part of a store; ignored")
    for path in layout.quarantined:
        is_report = path.name == DAMAGES_NAME
        what = (
            "damage that the broker has found in this store"
            if is_report
            else "what a recovery cut off the log"
        )
        findings.note(path, None, what)
    for path in layout.orphaned:
        findings.note(
            path,
            None,
            "what was cut off the log at a fail-over; `kourou store inspect` with it lists its messages",
        )
    for topic in sorted(layout.batch_topics):
        findings.note(layout.root / "batchconsumequeue" / topic, None, "queues of batches are not looked at")
