"""Store directories written by Apache RocketMQ, and what they hold.

`4.9.7` and `5.5.0` after a clean stop, `4.9.7-crash` after `kill -9`. The manifest lists every
record, every queue and what Apache answers when it opens the store again.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

VERSIONS = ("4.9.7", "5.5.0", "4.9.7-crash")

# How the brokers were configured: a store opens only with the sizes it was written with.
COMMIT_LOG_FILE_BYTES = 262_144
CONSUME_QUEUE_FILE_BYTES = 6_000
INDEX_SLOTS = 1_000
INDEX_ENTRIES = 4_000


@cache
def manifest(version: str) -> dict[str, Any]:
    """What the store of this version holds. Shared: not to be changed."""
    with gzip.open(Path(__file__).with_name(f"manifest-{version}.json.gz"), "rt", encoding="utf-8") as text:
        content: dict[str, Any] = json.load(text)
        return content


def extract_store(version: str, folder: Path) -> Path:
    """Unpack the store into `folder`, modification times and holes kept; returns its root."""
    with tarfile.open(Path(__file__).with_name(f"store-{version}.tar.gz")) as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"
