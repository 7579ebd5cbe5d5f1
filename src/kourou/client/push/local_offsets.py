"""LocalOffsets: the file in which a broadcasting consumer keeps how far it got, as Apache's Java client does.

`<folder>/<client id>/<group>/offsets.json`, and `offsets.json.bak` with what was there before:

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:123}}

spread over lines, with objects as keys, which is not JSON. Java reads what is written here and the
reverse. Not here: when offsets are written, and where those of clustering consumers go (the broker).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kourou.errors import ProtocolError, StorageError
from kourou.protocol.bodies.codec import decode_body
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.bodies.offsets import OffsetSerializeWrapper

_log = logging.getLogger(__name__)

_FILE_NAME: Final = "offsets.json"


def default_folder() -> Path:
    """Where Java keeps them too, unless `rocketmq.client.localOffsetStoreDir` says otherwise."""
    return Path.home() / ".rocketmq_offsets"


class LocalOffsets:
    """The offsets file of one consumer. Both methods wait for the disk."""

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        self.path = folder / client_id / group / _FILE_NAME
        self.backup_path = self.path.with_name(_FILE_NAME + ".bak")
        # A damaged file must not replace the last good one.
        self._is_sound = True

    def load(self) -> dict[MessageQueue, int]:
        """The offsets, from the `.bak` where the file cannot be read; empty where there is neither.

        StorageError where there is something and nothing of it can be read: to begin anew would be to
        forget how far the consumer got.
        """
        found, problem = _read(self.path)
        self._is_sound = problem is None
        if found is not None:
            return found
        backup, backup_problem = _read(self.backup_path)
        if backup is None and (problem or backup_problem):
            raise StorageError(
                f"{self.path}: {problem or backup_problem}; repair it, or remove it to begin without it",
                self.path,
            )
        if problem is not None:
            _log.warning("%s: %s; going on with %s", self.path, problem, self.backup_path)
        return backup or {}

    def store(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the offsets; on return they are on disk, and those before them are the `.bak`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Consumers of several processes may share a file; none may rename what another is writing.
        fresh = self.path.with_name(f"{_FILE_NAME}.{os.getpid()}.tmp")
        try:
            _write_synced(fresh, _text(offsets).encode())
            if self._is_sound:
                with contextlib.suppress(FileNotFoundError):
                    self.path.replace(self.backup_path)
            fresh.replace(self.path)
            _sync_folder(self.path.parent)
        finally:
            fresh.unlink(missing_ok=True)
        self._is_sound = True


def _read(path: Path) -> tuple[dict[MessageQueue, int] | None, str | None]:
    """The offsets, or None and what is wrong with the file, if it is there."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"
    try:
        return decode_body(raw, OffsetSerializeWrapper).offset_table, None
    except ProtocolError as error:
        return None, f"damaged: {error}"


def _text(offsets: Mapping[MessageQueue, int]) -> str:
    """Line for line as Java's client of 5.x writes it."""
    entries = ",\n".join(f"\t\t{_key(queue)}:{offsets[queue]}" for queue in sorted(offsets))
    table = f"{{\n{entries}\n\t}}" if entries else "{}"
    return f'{{\n\t"offsetTable":{table}\n}}'


def _key(queue: MessageQueue) -> str:
    fields = {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
    lines = ",\n".join(
        f'\t\t\t"{name}":{msgspec.json.encode(value).decode()}' for name, value in fields.items()
    )
    return f"{{\n{lines}\n\t\t}}"


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the new names in `folder` last, where folders can be opened (not on Windows)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
