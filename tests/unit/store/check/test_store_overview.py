"""What a store holds at a glance, single messages in it, and single records."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import StoreFormatError
from kourou.protocol.record import encode_blank
from kourou.store.check.message_search import MessageSearch
from kourou.store.check.record_view import record_fields, time_text
from kourou.store.check.store_overview import overview
from tests.golden.stores import VERSIONS, extract_store, manifest
from tests.unit.store.broken_stores import ReadOnlyFiles
from tests.unit.store.hand_made_store import HandMadeStore


@pytest.mark.parametrize("version", VERSIONS)
def test_the_overview_says_what_the_manifest_says(version: str, tmp_path: Path) -> None:
    found = overview(ReadOnlyFiles(), extract_store(version, tmp_path))
    known = manifest(version)
    messages = known["messages"]
    assert (found.log_min_phy_offset, found.log_end_phy_offset) == (
        known["commitLog"]["minOffset"],
        known["commitLog"]["maxOffset"],
    )
    assert found.first_timestamp == messages[0]["storeTimestamp"]
    assert found.last_timestamp == messages[-1]["storeTimestamp"]
    assert {(q.topic, q.queue_id): (q.min_queue_offset, q.max_queue_offset) for q in found.queues} == {
        (q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in known["consumeQueues"]
    }
    assert {topic: sum(q.count for q in queues) for topic, queues in found.topics.items() if topic} == {
        topic: sum(q["entries"] for q in known["consumeQueues"] if q["topic"] == topic)
        for topic in {q["topic"] for q in known["consumeQueues"]}
    }
    assert [file.header.index_count for file in found.index_files] == [
        i["indexCount"] for i in known["index"]
    ]
    offsets: dict[str, dict[str, int]] = {}
    for group in found.groups:
        key = f"{group.topic}@{group.group}"
        offsets.setdefault(key, {})[str(group.queue_id)] = group.consumer_offset
    assert offsets == known["committedOffsets"]
    assert found.is_clean == (version != "4.9.7-crash") and not found.in_use


def test_the_minimum_is_the_first_message_that_the_log_still_has(tmp_path: Path) -> None:
    root = extract_store("4.9.7", tmp_path)
    (root / "commitlog/00000000000000000000").unlink()
    (root / "commitlog/00000000000000262144").unlink()
    (queue,) = [
        q for q in overview(ReadOnlyFiles(), root).queues if (q.topic, q.queue_id) == ("BulkTopic", 0)
    ]
    kept = [
        m["queueOffset"]
        for m in manifest("4.9.7")["messages"]
        if m["topic"] == "BulkTopic" and m["queueId"] == 0 and m["commitLogOffset"] >= 524_288
    ]
    assert (queue.min_queue_offset, queue.count) == (kept[0], len(kept))


def test_a_log_without_queues_is_walked_from_its_last_file(tmp_path: Path) -> None:
    store = HandMadeStore(tmp_path / "store")
    for number in range(80):
        store.append("orders", 0, number, with_unit=False)
    found = overview(ReadOnlyFiles(), store.write())
    assert found.log_end_phy_offset == len(store.log) and found.last_timestamp is not None


def test_an_empty_store_has_nothing(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    found = overview(ReadOnlyFiles(), tmp_path)
    assert (found.log_end_phy_offset, found.first_timestamp, found.queues, found.groups) == (0, None, [], [])


# -- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_are_found_by_place_and_by_both_ids(version: str, tmp_path: Path) -> None:
    root = extract_store(version, tmp_path)
    # The killed store lost a part of its index, and has records that are in no queue and no index yet.
    indexed_from = manifest(version)["index"][-1]["beginPhyOffset"] if version == "4.9.7-crash" else 0
    with MessageSearch.open(ReadOnlyFiles(), root) as search:
        for known in manifest(version)["messages"][::61]:
            phy_offset = known["commitLogOffset"]
            assert search.at(phy_offset).msg_id == known["msgId"]
            assert search.find(str(phy_offset)).phy_offset == phy_offset
            assert search.find(known["offsetMsgId"].lower()).phy_offset == phy_offset
            if known.get("inConsumeQueue", True) and phy_offset >= indexed_from:
                assert search.find(known["msgId"]).msg_id == known["msgId"]
                assert search.find(known["msgId"], known["topic"]).topic == known["topic"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1", "no message at 1: its magic is"),
        ("99999999", "no message at 99999999: "),
        ("hello", "there is no message with id hello"),
        ("F" * 32, "there is no message with id F"),
        ("7F00000100002A9F0000000000000001", "there is no message with id 7F"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(text: str, reason: str, tmp_path: Path) -> None:
    with MessageSearch.open(ReadOnlyFiles(), extract_store("4.9.7", tmp_path)) as search:
        with pytest.raises(StoreFormatError, match=reason):
            search.find(text)


def test_messages_of_a_queue_come_in_order(tmp_path: Path) -> None:
    with MessageSearch.open(ReadOnlyFiles(), extract_store("4.9.7", tmp_path)) as search:
        found = list(search.in_queue("BulkTopic", 2, 298, 5))
        assert [message.queue_offset for message in found] == [298, 299, 300, 301, 302]
        assert [message.queue_offset for message in search.in_queue("BulkTopic", 2, None, 2)] == [0, 1]
        assert list(search.in_queue("BulkTopic", 2, 440, 5)) == []
        with pytest.raises(StoreFormatError, match="there is no queue BulkTopic/9"):
            list(search.in_queue("BulkTopic", 9, 0, 1))


# -- records -------------------------------------------------------------------------------------


def test_every_byte_of_a_record_belongs_to_a_field(tmp_path: Path) -> None:
    version = "4.9.7"
    with MessageSearch.open(ReadOnlyFiles(), extract_store(version, tmp_path)) as search:
        for known in manifest(version)["messages"][::211]:
            raw = search.reader.record_bytes(known["commitLogOffset"])
            fields = record_fields(raw)
            assert b"".join(field.raw for field in fields) == raw
            values = {field.name: field.text for field in fields}
            assert values["topic"] == known["topic"] and values["body"] == "CRC matches"
            assert values["queue_offset"] == str(known["queueOffset"])
            assert values["store_host"] == known["storeHost"] and values["born_host"] == known["bornHost"]
            assert values["store_timestamp"].startswith(f"{known['storeTimestamp']} 2026-11-15 03:")


def test_broken_bytes_are_named_as_far_as_they_go(tmp_path: Path) -> None:
    store = HandMadeStore(tmp_path)
    store.append("orders", 0, 0)
    raw = bytes(store.log)
    for length in range(len(raw) + 1):
        fields = record_fields(raw[:length])
        assert b"".join(field.raw for field in fields) == raw[:length]
    fields = {field.name: field.text for field in record_fields(raw[:50])}
    assert fields["born_host"] == "cut off" and fields["queue_id"] == "0"
    damaged = {field.name: field.text for field in record_fields(raw[:90] + b"X" + raw[91:])}
    assert damaged["body"] == "CRC does not match"


def test_a_blank_and_noise_are_called_so() -> None:
    blank = {field.name: field.text for field in record_fields(encode_blank(100))}
    assert blank == {"total_size": "100", "magic": "0xcbd43194 blank: the end of the file"}
    noise = {field.name: field.text for field in record_fields(b"12345678rest")}
    assert noise["magic"] == "0x35363738 not that of a record" and noise["rest"] == "4 bytes"


def test_flags_are_spelled_out(tmp_path: Path) -> None:
    store = HandMadeStore(tmp_path)
    store.append("orders", 0, 0, sys_flag=0x1 | 0x8 | 0x300)
    fields = {field.name: field.text for field in record_fields(bytes(store.log))}
    assert fields["sys_flag"] == "0x309 COMPRESSED TRANSACTION_COMMIT_TYPE COMPRESSION_ZLIB"


def test_times_that_are_none_are_a_dash() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert time_text(0) == time_text(-5) == time_text(1 << 62) == "-"
