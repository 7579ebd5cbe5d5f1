"""EpochFile: Apache's format, kept over restarts, never lost to a damaged file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.ha import Epoch
from kourou.store.disk.files import Files
from kourou.store.replica.epochs import EPOCH_FILE, EpochFile, decode_epochs, encode_epochs


def loaded(root: Path) -> EpochFile:
    file = EpochFile(Files(), root)
    file.load()
    return file


def test_reigns_follow_each_other_and_survive_a_restart(tmp_path: Path) -> None:
    file = loaded(tmp_path)
    assert file.epochs == ()
    assert file.begin(0) == Epoch(1, 0)
    assert file.begin(500) == Epoch(2, 500)
    assert loaded(tmp_path).epochs == (Epoch(1, 0), Epoch(2, 500))


def test_a_reign_without_records_is_replaced(tmp_path: Path) -> None:
    file = loaded(tmp_path)
    file.begin(0)
    file.begin(500)
    assert file.begin(500) == Epoch(3, 500)
    assert file.epochs == (Epoch(1, 0), Epoch(3, 500))


def test_a_slave_follows_as_far_as_its_log_goes(tmp_path: Path) -> None:
    epochs = (Epoch(1, 0), Epoch(4, 900))
    file = loaded(tmp_path)
    file.follow(epochs, 899)
    assert file.epochs == epochs[:1]
    file.follow(epochs, 900)
    assert loaded(tmp_path).epochs == epochs


def test_the_file_before_serves_where_the_file_is_damaged(tmp_path: Path) -> None:
    file = loaded(tmp_path)
    file.begin(0)
    file.begin(500)
    (tmp_path / EPOCH_FILE).write_bytes(b"2\n1\n1-0\n2-500\n")
    assert loaded(tmp_path).epochs == (Epoch(1, 0),)


def test_the_content_is_apaches() -> None:
    """Recorded from Apache: the CRC is that of the lines with their line ends."""
    assert encode_epochs([Epoch(1, 0), Epoch(2, 100)]).splitlines()[2:] == [b"1-0", b"2-100"]
    assert decode_epochs(encode_epochs([])) == ()


@pytest.mark.parametrize(
    "raw", [b"", b"x", b"1\n0\n", b"1\n0\n1-0\n", encode_epochs([Epoch(2, 0), Epoch(1, 5)]), b"a\nb\nc-d\n"]
)
def test_what_is_not_an_epoch_file_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_epochs(raw)
