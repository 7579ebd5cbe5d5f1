"""A store written byte by byte, for what no broker here would write."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kourou.protocol.message_id import encode_host
from kourou.protocol.properties import encode_properties
from kourou.protocol.record import RecordEncoder, encode_blank
from kourou.protocol.tags import tags_code
from kourou.store.queue.cq_unit import UNIT

HOST = encode_host("127.0.0.1", 10911)
FIRST_TIMESTAMP = 1_700_000_000_000


@dataclass
class HandMadeStore:
    """Records and units are placed by the test. `write` puts the files on disk."""

    root: Path
    log_file_bytes: int = 4096
    queue_file_bytes: int = 200
    log: bytearray = field(default_factory=bytearray)
    units: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    first_phy_offset: int = 0

    @property
    def end_phy_offset(self) -> int:
        return self.first_phy_offset + len(self.log)

    def append(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        body: bytes = b"hello",
        properties: dict[str, str] | None = None,
        sys_flag: int = 0,
        born_host: bytes = HOST,
        timestamp: int | None = None,
        with_unit: bool = True,
    ) -> int:
        """Put a record at the end of the log, and its unit in its queue; returns the phy_offset."""
        text = encode_properties(properties or {}).encode()
        encoder = RecordEncoder(topic, queue_id, HOST)
        size = encoder.size(body, text, born_host)
        left = self.log_file_bytes - len(self.log) % self.log_file_bytes
        if size + 8 > left:
            self.log += encode_blank(left).ljust(left, b"\0")
        phy_offset = self.end_phy_offset
        parts = encoder.parts(
            body,
            text,
            queue_offset=queue_offset,
            phy_offset=phy_offset,
            store_timestamp=FIRST_TIMESTAMP + phy_offset if timestamp is None else timestamp,
            born_timestamp=FIRST_TIMESTAMP,
            born_host=born_host,
            sys_flag=sys_flag,
        )
        self.log += b"".join(parts)
        if with_unit:
            self.unit(
                topic, queue_id, queue_offset, phy_offset, size, tags_code((properties or {}).get("TAGS"))
            )
        return phy_offset

    def unit(
        self, topic: str, queue_id: int, queue_offset: int, phy_offset: int, size: int, code: int = 0
    ) -> None:
        """Put a unit in a queue."""
        self.units.setdefault((topic, queue_id), {})[queue_offset] = UNIT.pack(phy_offset, size, code)

    def write(self) -> Path:
        """Put all files on disk; returns the root."""
        folder = self.root / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        for at in range(0, max(len(self.log), 1), self.log_file_bytes):
            raw = bytes(self.log[at : at + self.log_file_bytes]).ljust(self.log_file_bytes, b"\0")
            (folder / f"{self.first_phy_offset + at:020d}").write_bytes(raw)
        for (topic, queue_id), units in self.units.items():
            self._write_queue(self.root / "consumequeue" / topic / str(queue_id), units)
        return self.root

    def _write_queue(self, folder: Path, units: dict[int, bytes]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        files: dict[int, bytearray] = {}
        for queue_offset, unit in units.items():
            start, position = divmod(queue_offset * 20, self.queue_file_bytes)
            raw = files.setdefault(start * self.queue_file_bytes, bytearray(self.queue_file_bytes))
            raw[position : position + 20] = unit
        for start, raw in files.items():
            (folder / f"{start:020d}").write_bytes(raw)
