"""ReplayState: the progress of a replay, in a file of the archive, to resume it.

Recorded after each slice, when brokers have stored it: anything sent later is sent again. The file is removed
when the replay is done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue
from kourou.spark.pipelines.archive.archive_folder import ArchiveFolder, locked_file, write_atomically

_VERSION: Final = 1


@dataclass(slots=True)
class ReplayState:
    """The state of one replay; `next_offsets` is where each archived queue continues."""

    path: Path
    what: Mapping[str, Any]
    """Its identity."""
    until_ms: int = 0
    rows: int = 0
    """Sent so far."""
    next_offsets: dict[MessageQueue, int] = field(default_factory=dict)
    is_resumed: bool = False

    @classmethod
    def of(cls, archive: ArchiveFolder, what: Mapping[str, Any], *, anew: bool = False) -> ReplayState:
        """The state of a replay by its identity; a new one if there is none, or if it starts `anew`.
        ConfigError if it cannot be read."""
        state = cls(_path(archive, what).with_suffix(".json"), what)
        if state.path.is_file() and not anew:
            state._load()
        return state

    @staticmethod
    @contextmanager
    def locked(archive: ArchiveFolder, what: Mapping[str, Any]) -> Iterator[None]:
        """A lock, as two processes would send everything twice. ConfigError if it is taken."""
        words = (
            f"{archive.path}: process PID is running the same replay; wait for it, or stop it: "
            "an interrupted replay can be resumed"
        )
        with locked_file(_path(archive, what).with_suffix(".lock"), words):
            yield

    def _load(self) -> None:
        try:
            content = json.loads(self.path.read_text())
            if content["version"] != _VERSION:
                raise ValueError("written by a later version of Kourou")
            self.until_ms, self.rows = int(content["until_ms"]), int(content["rows"])
            self.next_offsets = {
                MessageQueue(topic, broker, queue_id): offset
                for topic, broker, queue_id, offset in content["next"]
            }
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self.path}: cannot read it: {error}; start over with --restart") from error
        self.is_resumed = True

    def save(self) -> None:
        """On return it is on disk."""
        following = [
            [queue.topic, queue.broker_name, queue.queue_id, offset]
            for queue, offset in sorted(self.next_offsets.items())
        ]
        content = {
            "version": _VERSION,
            "what": dict(self.what),
            "until_ms": self.until_ms,
            "rows": self.rows,
            "next": following,
        }
        write_atomically(self.path, json.dumps(content, indent=2))

    def remove(self) -> None:
        """Remove the state: the replay is done, or starts over."""
        self.path.unlink(missing_ok=True)
        self.rows, self.until_ms, self.next_offsets, self.is_resumed = 0, 0, {}, False


def _path(archive: ArchiveFolder, what: Mapping[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    return archive.hidden / "replays" / name
