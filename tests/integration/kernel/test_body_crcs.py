"""Records with a damaged body are found alike with the kernel and without: by the check of a store, and by
`read_piece`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from kourou.protocol.layout import RECORD
from kourou.store.check.check import check_store
from kourou.store.disk.files import Files
from kourou.store.kernel import Kernel
from kourou.store.log.record_columns import read_piece
from kourou.testing.store_check import assert_store_ok
from tests.unit.store.message_stores import StoreKit

BODIES = [b"x" * size for size in (0, 1, 3, 63, 64, 65, 1_000, 2_000)] * 3
BODY_CRC = RECORD.at("body_crc")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A stopped store with messages of several sizes."""
    with StoreKit(tmp_path / "store", commit_log_file_bytes=65_536) as kit:
        store = kit.open()
        for number, body in enumerate(BODIES):
            store.put_message("orders", number % 4, body, "KEYS\x01k\x02")
        store.close()
        yield kit.root


def log_of(root: Path) -> Path:
    return next((root / "commitlog").iterdir())


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_a_whole_store_is_in_order(kernel: ModuleType, root: Path) -> None:
    report = check_store(Files(), root, kernel=cast(Kernel, kernel))
    assert report == assert_store_ok(root)
    assert report.counts.records == len(BODIES)


def test_a_check_finds_the_damage_alike(kernel: ModuleType, root: Path) -> None:
    places = read_piece(log_of(root).read_bytes(), 0).columns.phy_offsets.tolist()
    for place, position in ((3, BODY_CRC + 3), (9, RECORD.size), (22, RECORD.size + 60)):
        flip(log_of(root), places[place] + position)
        report = check_store(Files(), root, kernel=cast(Kernel, kernel))
        assert report == check_store(Files(), root) and not report.ok
        flip(log_of(root), places[place] + position)


def test_pieces_end_at_the_same_record(kernel: ModuleType, root: Path) -> None:
    raw = log_of(root).read_bytes()
    for at in read_piece(raw, 0).columns.phy_offsets.tolist():
        damaged = bytearray(raw)
        damaged[at + BODY_CRC] ^= 1
        plain, found = read_piece(bytes(damaged), 0), read_piece(bytes(damaged), 0, cast(Kernel, kernel))
        assert (found.end, found.stop, len(found.columns)) == (plain.end, plain.stop, len(plain.columns))
        # One without a body may say any CRC.
        assert (found.end == at) == (raw[at + RECORD.at("body_length") : at + RECORD.size] != bytes(4))
