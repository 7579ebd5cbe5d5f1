"""The index once more, entry by entry and from the description of the format alone: what the real one
is compared with. Entry by entry is also how Apache fills its files."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from kourou.protocol.tags import java_hash_code

HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")


def naive_hash(topic: str, key: str) -> int:
    code = abs(java_hash_code(f"{topic}#{key}"))
    return 0 if code == 1 << 31 else code


@dataclass
class NaiveFile:
    slots: list[int]
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    used_slots: int = 0
    entries: list[tuple[int, int, int, int]] = field(default_factory=lambda: [(0, 0, 0, 0)])

    def put(self, key_hash: int, phy_offset: int, store_timestamp: int) -> None:
        if len(self.entries) == 1:
            self.begin_timestamp, self.begin_phy_offset = store_timestamp, phy_offset
        time_diff = 0
        if self.begin_timestamp > 0:
            time_diff = min(max((store_timestamp - self.begin_timestamp) // 1000, 0), 2**31 - 1)
        slot = key_hash % len(self.slots)
        self.used_slots += self.slots[slot] == 0
        self.entries.append((key_hash, phy_offset, time_diff, self.slots[slot]))
        self.slots[slot] = len(self.entries) - 1
        self.end_timestamp, self.end_phy_offset = store_timestamp, phy_offset

    def content(self, entry_count: int) -> bytes:
        header = HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.used_slots,
            len(self.entries),
        )
        slots = struct.pack(f">{len(self.slots)}i", *self.slots)
        entries = b"".join(ENTRY.pack(*entry) for entry in self.entries)
        return (header + slots + entries).ljust(40 + 4 * len(self.slots) + 20 * entry_count, b"\x00")

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        times = range(self.begin_timestamp, self.end_timestamp + 1)
        contains = begin_ms < self.begin_timestamp and end_ms > self.end_timestamp
        return contains or begin_ms in times or end_ms in times

    def select(self, key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
        found = []
        for entry_hash, phy_offset, time_diff, _ in reversed(self.entries[1:]):
            time_ms = self.begin_timestamp + time_diff * 1000
            same_slot = (entry_hash - key_hash) % len(self.slots) == 0
            if entry_hash == key_hash and begin_ms <= time_ms <= end_ms:
                found.append(phy_offset)
            if same_slot and time_ms < begin_ms:
                break
        return found


class NaiveIndex:
    def __init__(self, slot_count: int, entry_count: int) -> None:
        self.slot_count = slot_count
        self.entry_count = entry_count
        self.files: list[NaiveFile] = []

    def put_record(self, topic: str, keys: Sequence[str], phy_offset: int, store_timestamp: int) -> None:
        for key in keys:
            if not self.files or len(self.files[-1].entries) == self.entry_count:
                self.files.append(NaiveFile([0] * self.slot_count))
            self.files[-1].put(naive_hash(topic, key), phy_offset, store_timestamp)

    def contents(self) -> list[bytes]:
        return [file.content(self.entry_count) for file in self.files]

    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> list[int]:
        found: list[int] = []
        for file in reversed(self.files):
            if file.overlaps(begin_ms, end_ms):
                found += file.select(naive_hash(topic, key), begin_ms, end_ms)
            if file.begin_timestamp < begin_ms or len(found) >= min(max_num, 64):
                break
        return found[: min(max_num, 64)]
