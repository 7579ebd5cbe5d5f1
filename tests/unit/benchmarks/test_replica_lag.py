"""Lags and ends of logs are read from the files of brokers that run."""

from __future__ import annotations

from pathlib import Path

from benchmarks._replica_lag import CatchUp, LogReader, log_end, measure_lags

from kourou.store.disk.files import Files
from tests.unit.store.message_stores import LOG_FILE_BYTES, StoreKit, body_for, put


def test_records_are_followed_over_files(tmp_path: Path) -> None:
    with StoreKit(tmp_path / "store", Files()) as kit:
        store = kit.open()
        folder = kit.config().log_folders[0]
        with LogReader(folder, LOG_FILE_BYTES) as reader:
            assert reader.next_after(0) is None
            ends = []
            for _ in range(9):
                put(store, body_for(1_000))
                ends.append(store.log.max_phy_offset)
            found, at = [], 0
            while (behind := reader.next_after(at)) is not None:
                found.append(at := behind)
            assert set(ends) <= set(found) and found[-1] == ends[-1]
            assert measure_lags(reader, reader, 0) == []


def test_a_log_ends_where_its_last_bytes_are(tmp_path: Path) -> None:
    assert log_end(tmp_path) == 0
    for number, written in enumerate((8192, 4096, 0)):
        path = tmp_path / f"{number * 8192:020}"
        path.write_bytes(b"x" * written)
        with open(path, "r+b") as file:
            file.truncate(8192)
    assert log_end(tmp_path) == 8192 + 4096


def test_the_rate_of_a_catch_up() -> None:
    assert CatchUp(copied_bytes=400_000_000, seconds=2.0).mb_per_s == 200
