"""The `config/*.json` files of stores that Apache RocketMQ wrote, one folder for each store.

`config-4.9.7-crash` is that of a broker that was killed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDERS = sorted(Path(__file__).parent.glob("config-*"))
CONFIG_FILES = [path for folder in FOLDERS for path in sorted(folder.glob("*.json"))]

_BARE_KEY = re.compile(r"([{,]\s*)(-?\d+):")


def strict_tree(raw: bytes) -> Any:
    """The content by way of the standard library's parser: no string in these files looks like a key."""
    return json.loads(_BARE_KEY.sub(r'\1"\2":', raw.decode()))


def name_of(path: Path) -> str:
    """Store and file, for the name of a test."""
    return f"{path.parent.name.removeprefix('config-')}-{path.name}"
