"""Recovery with the kernel and without: the same end of the log, verdicts and derived files."""

from __future__ import annotations

import errno
import shutil
import tempfile
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.protocol.layout import RECORD
from kourou.protocol.record_fields import RAW_MAGIC_CODES
from kourou.store.disk.files import Files
from kourou.store.kernel import ReadRecords
from kourou.store.message_store import MessageStore
from kourou.store.queue.cq_unit import UNIT
from kourou.store.recovery.read_ahead import ReadAhead, ReadPiece
from tests.unit.store.message_stores import StoreKit, put
from tests.unit.store.producers.test_producer_log import IDS, open_producer
from tests.unit.store.recovery.test_log_walk import FILE_BYTES, derived, fill, lose_derived

damages = st.lists(
    st.tuples(st.integers(0, 3 * FILE_BYTES), st.sampled_from(["flip", "sector", "tail"])), max_size=3
)


class CountedKernel:
    """A kernel that counts the records it has read."""

    def __init__(self, kernel: ModuleType) -> None:
        self._kernel = kernel
        self.records = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def read_records(self, *arguments: object) -> ReadRecords | None:
        read: ReadRecords | None = self._kernel.read_records(*arguments)
        self.records += sum(len(units) // UNIT.size for *_, units in read[3]) if read else 0
        return read


def kit_at(root: Path) -> StoreKit:
    kit = StoreKit(root, Files(), commit_log_file_bytes=FILE_BYTES, index_slots=64, index_entries=256)
    kit.is_checked = False
    return kit


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was killed: all kinds of records in several files, the first half durable."""
    root = tmp_path_factory.mktemp("killed") / "store"
    with kit_at(root) as kit:
        store = kit.open()
        fill(store)
        store.flush()
        store.flush_derived(thorough=True)
        open_producer(store, IDS[0])
        for number in range(200):
            sequence = f"__KOUROU_SEQ\x01{IDS[0]}:0:{number}\x02" if number % 50 == 0 else ""
            put(
                store,
                b"more" * (number % 90),
                f"m{number % 3}",
                properties=f"{sequence}KEYS\x01k{number}\x02",
            )
        store.flush_derived(thorough=False)
    return root


def found_by(store: MessageStore) -> dict[str, object]:
    """What a recovery has found, and what it has derived."""
    report = store.report
    known = [(damage.phy_offset, damage.end_phy_offset, damage.reason) for damage in report.damages]
    return {
        **derived(store),
        "end": store.log.max_phy_offset,
        "records": report.records,
        "damages": known,
        "truncated": (report.truncated_at, report.truncated_reason),
        "quarantine": report.quarantine and report.quarantine.name,
        "timestamp": store.dispatcher.dispatched_timestamp,
        "dispatched": store.dispatcher.dispatched_phy_offset,
        "indexed": store.index and store.index.end_phy_offset,
        "producers": store.producers.snapshot(),
    }


def recovered(root: Path, kernel: object, *, is_derived_lost: bool) -> dict[str, object]:
    with kit_at(root) as kit:
        kit.kernel = kernel  # type: ignore[assignment]
        if is_derived_lost:
            lose_derived(kit)
            (root / "abort").touch()
        found = found_by(kit.open())
        found["producers"] = (snapshot := found["producers"]) and snapshot.encode()  # type: ignore[attr-defined]
        return found


def damage(root: Path, places: list[tuple[int, str]]) -> None:
    """Flip a byte, zero a sector, or zero all from there on."""
    for phy_offset, kind in places:
        path = root / "commitlog" / f"{phy_offset - phy_offset % FILE_BYTES:020d}"
        if not path.exists():
            continue
        raw, at = bytearray(path.read_bytes()), phy_offset % FILE_BYTES
        if kind == "flip":
            raw[at] ^= 0x41
        else:
            end = len(raw) if kind == "tail" else at // 512 * 512 + 512
            raw[at // 512 * 512 : end] = bytes(end - at // 512 * 512)
        path.write_bytes(raw)


def both(killed: Path, kernel: object, places: list[tuple[int, str]], *, is_derived_lost: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        roots = Path(folder, "kernel"), Path(folder, "python")
        for root in roots:
            shutil.copytree(killed, root)
            damage(root, places)
        found, expected = (
            recovered(root, used, is_derived_lost=is_derived_lost)
            for root, used in zip(roots, (kernel, None), strict=True)
        )
        assert found == expected


@pytest.mark.parametrize("is_derived_lost", [False, True])
def test_recovery_derives_the_same(killed: Path, kernel: ModuleType, is_derived_lost: bool) -> None:
    counted = CountedKernel(kernel)
    both(killed, counted, [], is_derived_lost=is_derived_lost)
    assert counted.records > 150


@given(places=damages, is_derived_lost=st.booleans())
@settings(max_examples=30, deadline=None)
def test_any_damage_has_the_same_verdict(
    killed: Path, kernel: ModuleType, places: list[tuple[int, str]], is_derived_lost: bool
) -> None:
    both(killed, kernel, places, is_derived_lost=is_derived_lost)


@pytest.mark.parametrize("piece_bytes", [300, 5_000])
def test_pieces_that_end_inside_records(
    killed: Path, kernel: ModuleType, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr("kourou.store.recovery.log_walk._PIECE_BYTES", piece_bytes)
    both(killed, kernel, [], is_derived_lost=True)


def read_ahead_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("recovery-read-ahead")]


def test_what_is_read_ahead_ends_with_the_walk(killed: Path, kernel: Any, tmp_path: Path) -> None:
    with kit_at(shutil.copytree(killed, tmp_path / "store")) as kit:
        store = kit.open()
        ahead = ReadAhead(store.log, kernel, 300)
        first = ahead.piece(0)
        assert first.records and read_ahead_threads()
        assert ahead.piece(first.end_phy_offset) == ahead.read(first.end_phy_offset)
        ahead.close()
        assert not read_ahead_threads()


@pytest.mark.parametrize("piece_bytes", [300, 1_000, FILE_BYTES])
def test_what_is_read_ahead_is_read_once(
    killed: Path, kernel: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """Pieces that threads have read begin where the one before ended, whatever lies between."""
    read = ReadAhead.read
    again: list[int] = []

    def noting(self: ReadAhead, phy_offset: int) -> ReadPiece:
        again.append(phy_offset)
        return read(self, phy_offset)

    monkeypatch.setattr(ReadAhead, "read", noting)
    with kit_at(shutil.copytree(killed, tmp_path / "store")) as kit:
        store = kit.open()
        ahead = ReadAhead(store.log, kernel, piece_bytes)
        found, at = 0, store.log.log_files[0].end_phy_offset
        while at < store.log.log_files[1].end_phy_offset and (piece := ahead.piece(at)).records:
            found += sum(len(units) for records in piece.records for *_, units in records[3]) // UNIT.size
            at = piece.end_phy_offset
        ahead.close()
        assert found > 10
        assert set(again) <= {at}, "only at the blank, where a stretch may begin"


def test_a_body_that_looks_like_a_record_misleads_nobody(kernel: Any, tmp_path: Path) -> None:
    """Its bytes say that a record of that place is there, at the start of a stretch."""
    expected: list[object] = []
    for used in (kernel, None):
        with kit_at(tmp_path / f"store-{len(expected)}") as kit:
            kit.kernel = used
            store = kit.open()
            for number in range(40):
                body_at = store.log.max_phy_offset + RECORD.size
                fakes = [RAW_MAGIC_CODES[0] * 100] + [_fake(body_at + 400 + 50 * n) for n in range(20)]
                put(store, b"".join(fakes).ljust(2_000, b"x"), "m", properties=f"KEYS\x01k{number}\x02")
            store.abandon()
            lose_derived(kit)
            (kit.root / "abort").touch()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("kourou.store.recovery.log_walk._PIECE_BYTES", 1_000)
                expected.append(found_by(kit.open()))
    assert expected[0] == expected[1]


def _fake(phy_offset: int) -> bytes:
    """50 bytes that say they were a record at `phy_offset`."""
    head = bytearray(50)
    head[RECORD.at("magic") : RECORD.end("magic")] = RAW_MAGIC_CODES[0]
    head[RECORD.at("phy_offset") : RECORD.end("phy_offset")] = phy_offset.to_bytes(8, "big")
    return bytes(head)


def test_a_file_that_cannot_be_read_ahead_stops_the_start(
    killed: Path, kernel: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> bytes:
        raise OSError(errno.EIO, "no such sector")

    with kit_at(shutil.copytree(killed, tmp_path / "store")) as kit:
        store = kit.open()
        monkeypatch.setattr(store.log, "read", read)
        ahead = ReadAhead(store.log, kernel, 2_000)
        with pytest.raises(OSError, match="no such sector"):
            ahead.piece(0)
        ahead.close()
        assert not read_ahead_threads()
