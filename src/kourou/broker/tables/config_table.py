"""ConfigTable: what the broker's tables in `config/*.json` share: a DataVersion, being written whole, and how
a change is described in the log: by the names of fields in RocketMQ's JSON.

A change is in memory at once and marks the table dirty; ConfigWriter carries it to disk soon after.
Not here: the tables.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from kourou.protocol.bodies import DataVersion, decode_body
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import dump_table
from kourou.store.steps import Steps, no_steps, run_steps

Value = TypeVar("Value")

SPLIT_METADATA_SIZE: Final = 2_000
"""Entries of a page at most: what Apache's `splitMetadataSize` is by default. Whoever does not ask for
pages gets everything."""


class ConfigTable(ABC):
    """One table and its file. `is_dirty`: the file does not hold what the table holds."""

    def __init__(self, file: JsonConfigFile, now_ms: Callable[[], int]) -> None:
        self._file = file
        self._now_ms = now_ms
        self.data_version = DataVersion(timestamp=now_ms())
        self.is_dirty = False

    @property
    def path(self) -> Path:
        """The file that the table is stored in."""
        return self._file.path

    @abstractmethod
    def load(self) -> None:
        """Take over what the file holds. StoreFormatError: there is a file, and it cannot be read."""

    @abstractmethod
    def snapshot(self) -> msgspec.Struct:
        """The table as it is now, as the file has it; what changes later is not in there."""

    def dump(self) -> bytes:
        """The bytes of the file as the table is now."""
        return dump_table(self.snapshot())

    def persist(self) -> None:
        """Write the file; on disk on return. OSError: the file is as before, and the table still dirty."""
        run_steps(self.persist_steps())

    def persist_steps(self) -> Steps[None]:
        """The same in steps: what changes meanwhile makes the table dirty again."""
        # Made into text in the thread too: a table may have 100,000 entries.
        frozen = self._frozen()
        self.is_dirty = False
        try:
            yield from self._steps_before()
            yield lambda: self._file.store(dump_table(frozen()))
        except BaseException:
            self.is_dirty = True
            raise

    def _frozen(self) -> Callable[[], msgspec.Struct]:
        """What makes the snapshot, in any thread: the table as it is now."""
        snapshot = self.snapshot()
        return lambda: snapshot

    def _steps_before(self) -> Steps[None]:
        """What must be on disk before the snapshot is."""
        return no_steps(None)

    def _next_version(self) -> None:
        # A new object: a pending registration keeps the old one unchanged.
        self.data_version = DataVersion(timestamp=self._now_ms(), counter=self.data_version.counter + 1)
        self.is_dirty = True


def page_of(
    table: Mapping[str, Value],
    data_version: DataVersion,
    *,
    asked_version: str | None,
    begin: int,
    count: int,
) -> dict[str, Value]:
    """Up to `count` entries in the order of their names, from number `begin` on.

    From the first one, if the table has changed since the client's previous pages: `asked_version` is the
    version of those pages, as JSON.
    """
    if not asked_version or decode_body(asked_version.encode(), DataVersion) != data_version:
        begin = 0
    begin = max(begin, 0)
    return {name: table[name] for name in sorted(table)[begin : begin + max(count, 0)]}


def describe_fields(body: msgspec.Struct) -> str:
    """Every field with its value.

    >>> from kourou.protocol.bodies import MessageQueue
    >>> describe_fields(MessageQueue("T", "broker-a", 1))
    'topic="T", brokerName="broker-a", queueId=1'
    """
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in _fields(body).items())


def describe_change(old: msgspec.Struct, new: msgspec.Struct) -> str:
    """The fields that differ, each with its new value and its old one."""
    before = _fields(old)
    changed = (
        f"{name}={json.dumps(value)} (was {json.dumps(before.get(name))})"
        for name, value in _fields(new).items()
        if before.get(name) != value
    )
    return ", ".join(changed) or "nothing"


def queue_words(queues: Mapping[int, int]) -> str:
    """Offsets by queue.

    >>> queue_words({0: 7, 1: 0})
    'queue 0 at 7, queue 1 at 0'
    """
    return ", ".join(f"queue {queue_id} at {queue_offset}" for queue_id, queue_offset in queues.items())


def _fields(body: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(body)
    return fields
