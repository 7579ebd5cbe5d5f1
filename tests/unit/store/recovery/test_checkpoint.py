"""StoreCheckpoint: Apache's bytes, ours, and neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.store.disk.files import Files
from kourou.store.recovery.checkpoint import PAGE_BYTES, SEALED_BYTES, StoreCheckpoint
from kourou.testing.faulty_files import FaultyFiles

# The first bytes of the checkpoints that Apache 4.9.7 and 5.5.0 left at a clean stop.
APACHE_4 = bytes.fromhex("000001a1dd2b6cf6000001a1dd2b6cf6000001a1dd285a39")
APACHE_5 = bytes.fromhex(
    "000001a1dd3a24ec000001a1dd37c10e000001a1dd2b66e0000000000000000000000000001046190000000000103dcb"
)
OFFSET_FIELDS = (
    "master_flushed_offset",
    "confirm_phy_offset",
    "logics_physical_offset",
    "durable_phy_offset",
    "indexed_phy_offset",
    "index_end_phy_offset",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def loaded(path: Path, content: bytes | None = None) -> StoreCheckpoint:
    if content is not None:
        path.write_bytes(content)
    checkpoint = StoreCheckpoint(Files(), path)
    checkpoint.load()
    return checkpoint


def written(path: Path) -> StoreCheckpoint:
    checkpoint = StoreCheckpoint(Files(), path)
    checkpoint.physic_msg_timestamp = 1_700_000_000_000
    checkpoint.logics_msg_timestamp = 1_700_000_000_500
    checkpoint.index_msg_timestamp = 1_600_000_000_000
    for number, name in enumerate(OFFSET_FIELDS):
        setattr(checkpoint, name, 1000 + number)
    checkpoint.save()
    checkpoint.close()
    return checkpoint


def test_what_4_9_wrote(path: Path) -> None:
    checkpoint = loaded(path, APACHE_4.ljust(PAGE_BYTES, b"\0"))
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == 1794711973110
    assert checkpoint.index_msg_timestamp == 1794711771705
    assert [getattr(checkpoint, name) for name in OFFSET_FIELDS] == [0] * 6
    assert (checkpoint.is_ours, checkpoint.problem) == (False, None)


def test_what_5_5_wrote(path: Path) -> None:
    checkpoint = loaded(path, APACHE_5.ljust(PAGE_BYTES, b"\0"))
    assert checkpoint.physic_msg_timestamp == 1794712937708
    assert checkpoint.logics_msg_timestamp == 1794712781070
    assert (checkpoint.confirm_phy_offset, checkpoint.logics_physical_offset) == (1066521, 1064395)
    assert checkpoint.min_timestamp == 1794712781070 - 3000
    assert checkpoint.index_msg_timestamp == 1794711971552


def test_what_we_wrote_comes_back_and_apache_finds_its_part(path: Path) -> None:
    saved = written(path)
    checkpoint = loaded(path)
    assert checkpoint.is_ours
    assert [getattr(checkpoint, name) for name in OFFSET_FIELDS] == [1000, 1001, 1002, 1003, 1004, 1005]
    assert checkpoint.encode() == saved.encode() == path.read_bytes()
    assert len(path.read_bytes()) == PAGE_BYTES
    assert path.read_bytes()[:24].hex(" ", 8) == "0000018bcfe56800 0000018bcfe569f4 00000174876e8000"
    assert int.from_bytes(path.read_bytes()[48:56], "big") == checkpoint.durable_phy_offset == 1003


def test_min_timestamp(path: Path) -> None:
    checkpoint = StoreCheckpoint(Files(), path)
    assert checkpoint.min_timestamp == 0
    checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp = 5000, 2000
    assert checkpoint.min_timestamp == 0
    checkpoint.logics_msg_timestamp = 7000
    assert checkpoint.min_timestamp == 2000


def test_a_missing_file_is_no_problem_and_is_not_made(path: Path) -> None:
    checkpoint = loaded(path)
    assert (checkpoint.is_ours, checkpoint.problem, checkpoint.min_timestamp) == (False, None, 0)
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "0 bytes are too short"),
        (b"\0" * 127, "127 bytes are too short"),
        (b"\0" * PAGE_BYTES, None),
        (b"\xff" * 48 + b"\0" * (PAGE_BYTES - 48), "below zero"),
        (b"\x07" * PAGE_BYTES, "damaged"),
    ],
)
def test_what_cannot_be_believed_counts_as_zeros(path: Path, content: bytes, problem: str | None) -> None:
    checkpoint = loaded(path, content)
    assert checkpoint.physic_msg_timestamp == checkpoint.durable_phy_offset == 0
    assert not checkpoint.is_ours
    assert checkpoint.problem == problem or (problem is not None and problem in str(checkpoint.problem))


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    written(path)
    sound = path.read_bytes()
    checkpoint = StoreCheckpoint(Files(), path)
    for bit in range(SEALED_BYTES * 8):
        checkpoint.decode(sound)
        assert checkpoint.is_ours
        flipped = bytearray(sound)
        flipped[bit // 8] ^= 1 << bit % 8
        checkpoint.decode(bytes(flipped))
        assert (checkpoint.is_ours, checkpoint.durable_phy_offset) == (False, 0), bit
        assert checkpoint.problem is not None


def test_after_apache_had_the_store_its_part_is_believed_and_ours_is_not(path: Path) -> None:
    written(path)
    content = bytearray(path.read_bytes())
    content[:24] = APACHE_4
    checkpoint = loaded(path, bytes(content))
    assert (checkpoint.is_ours, checkpoint.is_taken_over, checkpoint.problem) == (False, True, None)
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == 1794711973110
    assert [getattr(checkpoint, name) for name in OFFSET_FIELDS] == [1000, 1001, 1002, 0, 0, 0]
    checkpoint.save()
    checkpoint.close()
    again = loaded(path)
    assert (again.is_ours, again.is_taken_over) == (True, False)


def test_what_another_wrote_below_zero_is_not_believed(path: Path) -> None:
    written(path)
    checkpoint = loaded(path, b"\xff" * 48 + path.read_bytes()[48:])
    assert (checkpoint.is_ours, checkpoint.is_taken_over, checkpoint.min_timestamp) == (False, False, 0)
    assert checkpoint.problem == "it has a value below zero"


def test_a_power_loss_leaves_the_old_or_the_new_one(path: Path) -> None:
    found = set()
    for seed in range(60):
        path.unlink(missing_ok=True)
        files = FaultyFiles()
        checkpoint = StoreCheckpoint(files, path)
        checkpoint.durable_phy_offset = 100
        checkpoint.save()
        with files.open(path) as file:
            file.sync()
        files.sync_folder(path.parent)
        checkpoint.durable_phy_offset = 200
        checkpoint.save()
        checkpoint.durable_phy_offset = 300
        checkpoint.save()
        files.crash(seed)
        after = loaded(path)
        assert after.is_ours, f"seed {seed}"
        found.add(after.durable_phy_offset)
    assert found == {100, 200, 300}


def test_a_save_is_one_write_and_no_sync(path: Path) -> None:
    files = FaultyFiles()
    checkpoint = StoreCheckpoint(files, path)
    checkpoint.save()
    before = files.changes
    checkpoint.save()
    assert files.changes == before + 1
    assert files.sync_points == []
    checkpoint.close()
    checkpoint.close()
