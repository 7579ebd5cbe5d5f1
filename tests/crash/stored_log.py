"""The CommitLog of a store at rest, read without any code of the store: what tests compare with."""

from __future__ import annotations

from pathlib import Path

from kourou.protocol.layout import BLANK_MAGIC_CODE
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_mark


def log_paths(root: Path) -> list[Path]:
    """The files of the log, oldest first; those without length were never used."""
    paths = sorted((root / "commitlog").glob("[0-9]" * 20))
    return [path for path in paths if path.stat().st_size]


def stored_records(root: Path) -> list[tuple[bytes, MessageExt]]:
    """Every record from the log's start to where zeros begin, its bytes and what they say."""
    records: list[tuple[bytes, MessageExt]] = []
    has_ended = False
    for path in log_paths(root):
        raw = path.read_bytes()
        assert not has_ended or not any(raw), f"{path}: the log has ended before it"
        position = 0
        while position + 8 <= len(raw):
            size, magic = record_mark(raw, position)
            if magic == BLANK_MAGIC_CODE:
                assert size == len(raw) - position, f"{path}: a blank at {position} does not reach the end"
                break
            if not any(raw[position:]):
                has_ended = True
                break
            message = decode_record(raw, position, verify_body_crc=True)
            assert message.phy_offset == int(path.name) + position
            records.append((raw[position : position + size], message))
            position += size
    return records


def log_start(root: Path) -> int | None:
    """The offset of the log's first byte; None when there is no file."""
    paths = log_paths(root)
    return int(paths[0].name) if paths else None
