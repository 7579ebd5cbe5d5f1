"""How far each delay level has been delivered, as `config/delayOffset.json` keeps it.

For those who ask a broker about it. Not here: delivering.
"""

from __future__ import annotations

from pathlib import Path

from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import DelayOffsetTable, load_table
from kourou.store.files import Files


def load_delay_offsets(files: Files, root: Path) -> DelayOffsetTable:
    """The table of the store at `root`, an empty one where there is none. Waits for the disk."""
    file = JsonConfigFile(files, root / "config" / "delayOffset.json")
    return file.load_as(lambda raw: load_table(raw, DelayOffsetTable)) or DelayOffsetTable()
