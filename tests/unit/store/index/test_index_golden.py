"""The index against files of Apache RocketMQ: they are read, and written again byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.store.disk.files import Files
from kourou.store.index.index_service import IndexService
from tests.golden.index_files import ENTRIES, SLOTS, GoldenIndex, golden_index

STORES = ("4.9.7", "4.9.7-crash", "5.5.0")
FOR_EVER_MS = 4_102_444_800_000


def service(folder: Path) -> IndexService:
    return IndexService(Files(), folder, SLOTS, ENTRIES, lambda: 1_794_711_764_287)


@pytest.fixture(params=STORES)
def golden(request: pytest.FixtureRequest) -> GoldenIndex:
    return golden_index(request.param)


@pytest.fixture
def apache(golden: GoldenIndex, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[IndexService]:
    """The files of Apache, opened."""
    for name, content in golden.files.items():
        (tmp_path / name).write_bytes(content)
    index = service(tmp_path)
    index.load("crash" not in request.node.name, golden.index_msg_timestamp)
    yield index
    index.close()


def offset_of(message_id: str) -> int:
    """An id made by a broker ends with the record's phy_offset."""
    return int(message_id[-16:], 16)


def with_key(golden: GoldenIndex, found: list[int], topic: str, key: str) -> list[int]:
    """What a client keeps of an answer: records that really have the key."""
    having = {record.phy_offset for record in golden.records if record.topic == topic and key in record.keys}
    return [phy_offset for phy_offset in found if phy_offset in having]


def test_records_are_found_if_they_are_in_the_files(apache: IndexService, golden: GoldenIndex) -> None:
    """Everything that Apache has in its files is found, and nothing that it lost in an earlier crash."""
    indexed = {
        int.from_bytes(content[at + 4 : at + 12], "big")
        for content in golden.files.values()
        for at in range(40 + 4 * SLOTS + 20, 40 + 4 * SLOTS + 20 * int.from_bytes(content[36:40], "big"), 20)
    }
    for record in golden.records[::3]:
        for key in record.keys[:1]:
            found = apache.query(record.topic, key, 64, 0, FOR_EVER_MS)
            assert (record.phy_offset in found) == (record.phy_offset in indexed)


def test_answers_by_key_are_those_of_apache(apache: IndexService, golden: GoldenIndex) -> None:
    index_again(apache, golden)
    answered = 0
    for query in golden.by_key:
        topic, key, max_num = query["topic"], query["key"], query["maxNum"]
        found = with_key(golden, apache.query(topic, key, max_num, query["begin"], query["end"]), topic, key)
        expected = {offset_of(message_id) for message_id in query["offsetMsgIds"]}
        assert set(found) == expected
        assert found == sorted(found, reverse=True)
        answered += len(found)
    assert answered > 50


def test_answers_by_unique_id_are_those_of_apache(apache: IndexService, golden: GoldenIndex) -> None:
    index_again(apache, golden)
    answered = 0
    for query in golden.by_unique_key:
        if "offsetMsgId" not in query:
            continue  # lost by Apache
        found = apache.query(query["topic"], query["msgId"], 32, 0, FOR_EVER_MS)
        assert offset_of(query["offsetMsgId"]) in with_key(golden, found, query["topic"], query["msgId"])
        answered += 1
    assert answered > 50


def index_again(index: IndexService, golden: GoldenIndex) -> None:
    """What recovery does after a crash: the last file of the log again, and what was not dispatched."""
    for record in golden.records[-400:]:
        index.collect(record.topic, record.keys, record.phy_offset, record.store_timestamp)


def build(folder: Path, golden: GoldenIndex, *, tags: bool) -> list[bytes]:
    index = service(folder)
    index.load(True, 0)
    for record in golden.records:
        words = (*record.keys, f"T#{record.tags}") if tags and record.tags else record.keys
        index.collect(record.topic, words, record.phy_offset, record.store_timestamp)
    index.flush()
    index.close()
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def test_the_files_of_4_9_7_are_written_byte_for_byte(tmp_path: Path) -> None:
    golden = golden_index("4.9.7")
    assert build(tmp_path, golden, tags=False) == list(golden.files.values())


def test_the_files_of_5_5_0_are_written_byte_for_byte_but_for_its_tags(tmp_path: Path) -> None:
    """5.5.0 alone indexes tags too. With entries for them the bytes are its own; Kourou writes none."""
    golden = golden_index("5.5.0")
    assert build(tmp_path / "tags", golden, tags=True) == list(golden.files.values())
    assert len(build(tmp_path / "none", golden, tags=False)) == 2


def test_a_store_of_apache_goes_on_as_if_it_had(tmp_path: Path) -> None:
    """The first half from Apache's files, cut to 4500 entries, the rest added: the same bytes again."""
    golden = golden_index("4.9.7")
    build(tmp_path, golden, tags=False)
    index = service(tmp_path)
    index.load(True, golden.index_msg_timestamp)
    cut_at = golden.records[1700].phy_offset
    index.truncate(cut_at)
    assert index.end_phy_offset < cut_at
    for record in golden.records:
        index.collect(record.topic, record.keys, record.phy_offset, record.store_timestamp)
    index.flush()
    assert [path.read_bytes() for path in index.paths] == list(golden.files.values())
    index.close()
