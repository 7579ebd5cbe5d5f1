"""The broadcasting offsets file: Apache's own, ours, and what a crash may leave."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.push.consumer_offsets import LocalOffsets, default_folder
from kourou.errors import StorageError
from kourou.protocol.bodies.message_queue import MessageQueue

APACHE = {
    "4.9.7": (6, 7, 7, 9),
    "5.5.0": (7, 6, 8, 8),
}


def apache_file(version: str) -> bytes:
    return Path(__file__).with_name(f"broadcast-offsets-{version}.json").read_bytes()


def local_offsets(folder: Path) -> LocalOffsets:
    return LocalOffsets(folder, "10.0.0.1@DEFAULT", "billing")


def queues(*offsets: int) -> dict[MessageQueue, int]:
    return {MessageQueue("PlainTopic", "broker-a", number): each for number, each in enumerate(offsets)}


def put(path: Path, raw: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)


def test_the_place_is_javas(tmp_path: Path) -> None:
    assert local_offsets(tmp_path).path == tmp_path / "10.0.0.1@DEFAULT" / "billing" / "offsets.json"
    assert default_folder() == Path.home() / ".rocketmq_offsets"


@pytest.mark.parametrize("version", APACHE)
def test_apaches_files_are_read(tmp_path: Path, version: str) -> None:
    offsets = local_offsets(tmp_path)
    put(offsets.path, apache_file(version))
    assert offsets.load() == queues(*APACHE[version])


def test_what_is_written_is_what_apache_writes(tmp_path: Path) -> None:
    offsets = local_offsets(tmp_path)
    offsets.store(queues(*APACHE["5.5.0"]))
    assert offsets.path.read_bytes() == apache_file("5.5.0")


def test_the_one_before_is_kept_and_nothing_else_is_left(tmp_path: Path) -> None:
    offsets = local_offsets(tmp_path)
    assert offsets.load() == {}
    offsets.store(queues(1))
    offsets.store(queues(2))
    assert offsets.load() == queues(2)
    assert sorted(path.name for path in offsets.path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]
    offsets.path.unlink()
    assert local_offsets(tmp_path).load() == queues(1)


@pytest.mark.parametrize("damage", [b"", b"\0\0\0", b'{"offsetTable":{{"brok', b"[]", b"\xff\xfe"])
def test_the_backup_stands_in_for_a_damaged_file_and_survives_it(tmp_path: Path, damage: bytes) -> None:
    offsets = local_offsets(tmp_path)
    offsets.store(queues(1))
    offsets.store(queues(2))
    offsets.path.write_bytes(damage)
    again = local_offsets(tmp_path)
    assert again.load() == queues(1)
    again.store(queues(3))
    assert again.load() == queues(3)
    again.path.unlink()
    assert again.load() == queues(1)


def test_damage_without_a_backup_is_not_forgotten(tmp_path: Path) -> None:
    offsets = local_offsets(tmp_path)
    put(offsets.path, b"nonsense")
    with pytest.raises(StorageError, match="offsets.json: damaged: .*; repair it, or remove it") as caught:
        offsets.load()
    assert caught.value.path == offsets.path


def test_a_failed_write_leaves_the_old_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = local_offsets(tmp_path)
    offsets.store(queues(1))

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full_disk)
        with pytest.raises(OSError, match="No space"):
            offsets.store(queues(2))
    assert offsets.load() == queues(1)
    assert [path.name for path in offsets.path.parent.iterdir()] == ["offsets.json"]


QUEUE = st.builds(MessageQueue, st.text(), st.text(), st.integers(0, 1 << 30))


@given(st.dictionaries(QUEUE, st.integers(0, 1 << 62), max_size=8))
def test_any_offsets_come_back(
    tmp_path_factory: pytest.TempPathFactory, table: dict[MessageQueue, int]
) -> None:
    offsets = LocalOffsets(tmp_path_factory.mktemp("offsets"), "c", "g")
    offsets.store(table)
    assert offsets.load() == table
