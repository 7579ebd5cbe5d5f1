"""IndexFiles written by Apache RocketMQ, what they were built from, and what it answered from them.

`index-V.json.gz`: `files` by name, base64; `messages`: how many of the records in `records-V.jsonl.gz`
there were in the log; `indexMsgTimestamp` of the checkpoint; `queryByKey` and `queryByUniqueKey` as
its client saw them after a restart on this store. Files have 1000 slots and 4000 entries.
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SLOTS = 1000
ENTRIES = 4000


@dataclass(frozen=True, slots=True)
class GoldenRecord:
    """One record of the log, as far as the index needs it."""

    topic: str
    keys: tuple[str, ...]
    tags: str
    phy_offset: int
    store_timestamp: int


@dataclass(frozen=True, slots=True)
class GoldenIndex:
    """One store's index."""

    files: dict[str, bytes]
    records: tuple[GoldenRecord, ...]
    index_msg_timestamp: int
    by_key: list[dict[str, Any]]
    by_unique_key: list[dict[str, Any]]


@cache
def golden_index(name: str) -> GoldenIndex:
    """The index of the store `4.9.7`, `4.9.7-crash` or `5.5.0`."""
    stored = json.loads(_unpacked(f"index-{name}.json.gz"))
    lines = _unpacked(f"records-{name.removesuffix('-crash')}.jsonl.gz").splitlines()
    return GoldenIndex(
        {name: base64.b64decode(content) for name, content in stored["files"].items()},
        tuple(_record(json.loads(line)) for line in lines[1 : stored["messages"] + 1]),
        stored["indexMsgTimestamp"],
        stored["queryByKey"],
        stored["queryByUniqueKey"],
    )


def _record(line: dict[str, Any]) -> GoldenRecord:
    properties = line["properties"]
    words = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    return GoldenRecord(
        line["topic"],
        tuple(word for word in words if word),
        properties.get("TAGS", ""),
        line["commitLogOffset"],
        line["storeTimestamp"],
    )


def _unpacked(name: str) -> bytes:
    return gzip.decompress(Path(__file__).with_name(name).read_bytes())
