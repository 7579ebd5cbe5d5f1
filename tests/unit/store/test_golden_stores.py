"""Stores that Apache RocketMQ wrote, opened as they are: every message, every answer; then written on."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.record import RecordEncoder, decode_records
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.store.settings import MessageStoreConfig
from kourou.testing.store_check import assert_store_ok
from tests.golden.stores import (
    COMMIT_LOG_FILE_BYTES,
    CONSUME_QUEUE_FILE_BYTES,
    INDEX_ENTRIES,
    INDEX_SLOTS,
    VERSIONS,
    extract_store,
    manifest,
)

NOW_MS = 1_800_000_000_000
FOR_EVER_MS = 4_102_444_800_000
CLEAN_VERSIONS = [version for version in VERSIONS if not version.endswith("crash")]


def open_store(root: Path) -> MessageStore:
    config = MessageStoreConfig(
        root=root,
        commit_log_file_bytes=COMMIT_LOG_FILE_BYTES,
        consume_queue_file_bytes=CONSUME_QUEUE_FILE_BYTES,
        index_slots=INDEX_SLOTS,
        index_entries=INDEX_ENTRIES,
    )
    return MessageStore.open(config, Files(), lambda: NOW_MS)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, MessageStore]]:
    """Each store, opened once, for tests that only read."""
    opened = {
        version: open_store(extract_store(version, tmp_path_factory.mktemp(version))) for version in VERSIONS
    }
    yield opened
    for store in opened.values():
        store.close()


@cache
def records(version: str) -> list[dict[str, Any]]:
    """What the manifest says of every record."""
    found: list[dict[str, Any]] = manifest(version)["messages"]
    assert len(found) > 2000
    return found


def answers(version: str) -> dict[str, Any]:
    """What Apache answers when it opens the store, after its own recovery of the killed one."""
    content = manifest(version)
    found: dict[str, Any] = content.get("reads") or content["apacheAfterRecovery"]
    return found


def assert_equal(message: MessageExt | None, record: dict[str, Any]) -> None:
    """A message is the one that the manifest describes."""
    assert message is not None, record
    assert hashlib.sha256(message.body).hexdigest() == record["bodySha256"], record
    assert {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.phy_offset,
        "storeSize": message.store_size,
        "offsetMsgId": message.offset_msg_id,
        "msgId": message.msg_id,
        "bodyLength": len(message.body),
        "bodyCRC": message.body_crc,
        "properties": message.properties,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    } == {
        name: record[name]
        for name in (
            *("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "offsetMsgId", "msgId"),
            *("bodyLength", "bodyCRC", "properties", "flag", "sysFlag", "bornTimestamp", "storeTimestamp"),
            *("reconsumeTimes", "preparedTransactionOffset"),
        )
    }


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_message_is_found_by_its_physical_offset(stores: dict[str, MessageStore], version: str) -> None:
    for record in records(version):
        assert_equal(stores[version].look_message(record["commitLogOffset"]), record)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_message_is_found_in_its_queue(stores: dict[str, MessageStore], version: str) -> None:
    """Those of the killed store that were in no queue, too."""
    store = stores[version]
    expected: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records(version):
        expected.setdefault((record["topic"], record["queueId"]), []).append(record)
    for (topic, queue_id), of_queue in expected.items():
        at = 0
        while at < len(of_queue):
            result = store.get_message(topic, queue_id, at, 32)
            assert (result.status.name, result.min_offset, result.max_offset) == ("FOUND", 0, len(of_queue))
            found = [message for raw in result.buffers for message in decode_records(bytes(raw))]
            assert len(found) == result.message_count
            for message in found:
                assert_equal(message, of_queue[at])
                at += 1
            assert result.next_begin_offset == at


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ends_of_every_queue_are_apaches(stores: dict[str, MessageStore], version: str) -> None:
    store = stores[version]
    for answer in answers(version)["queues"]:
        queue = answer["topic"], answer["queueId"]
        ends = store.min_offset_in_queue(*queue), store.max_offset_in_queue(*queue)
        assert ends == (answer["min"], answer["max"]), answer
        assert store.lookup.earliest_message_time(*queue) == answer["earliestMsgStoreTime"], answer


@pytest.mark.parametrize("version", VERSIONS)
def test_tags_codes_are_apaches(stores: dict[str, MessageStore], version: str) -> None:
    for record in records(version):
        if "tagsCode" in record:
            unit = stores[version].queue(record["topic"], record["queueId"]).unit(record["queueOffset"])
            assert unit is not None
            assert unit.tags_code == record["tagsCode"], record


# -- finding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_queries_by_key_find_what_apache_finds(stores: dict[str, MessageStore], version: str) -> None:
    """And more in the killed store: keys that Apache lost by design are built again here."""
    for answer in answers(version)["queryByKey"]:
        found = stores[version].query_message(
            answer["topic"], answer["key"], answer["maxNum"], answer["begin"], answer["end"]
        )
        ids = [message.offset_msg_id for message in found if answer["key"] in message.keys]
        expected = answer.get("offsetMsgIds", [])
        if version in CLEAN_VERSIONS:
            assert set(ids) == set(expected), answer  # Apache lists one twice whose keys have one hash
        else:
            assert set(expected) <= set(ids) or len(found) == answer["maxNum"], answer


@pytest.mark.parametrize("version", VERSIONS)
def test_queries_by_unique_id_find_every_message(stores: dict[str, MessageStore], version: str) -> None:
    asked = answers(version)["queryByUniqueKey"]
    assert len(asked) > 80
    for answer in asked:
        found = stores[version].query_message(answer["topic"], answer["msgId"], 32, 0, FOR_EVER_MS)
        ids = [message.offset_msg_id for message in found if message.msg_id == answer["msgId"]]
        if "offsetMsgId" in answer:
            assert answer["offsetMsgId"] in ids, answer
        else:
            assert version not in CLEAN_VERSIONS


def test_the_killed_store_finds_every_key_again(stores: dict[str, MessageStore]) -> None:
    """Apache's index has a hole from an earlier crash. What lies behind it is indexed again."""
    version = "4.9.7-crash"
    lost = []
    with_id = [record for record in records(version) if "UNIQ_KEY" in record["properties"]]
    for record in with_id:
        found = stores[version].query_message(record["topic"], record["msgId"], 64, 0, FOR_EVER_MS)
        if record["offsetMsgId"] not in [message.offset_msg_id for message in found]:
            lost.append(record["commitLogOffset"])
    hole = [r["commitLogOffset"] for r in records(version) if 737407 <= r["commitLogOffset"] < 1048576]
    assert set(lost) <= set(hole)


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_are_found_by_their_offset_id(stores: dict[str, MessageStore], version: str) -> None:
    for answer in answers(version)["viewMessage"]:
        message = stores[version].look_message(parse_offset_msg_id(answer["offsetMsgId"]).phy_offset)
        assert message is not None
        assert (message.topic, message.queue_offset) == (answer["topic"], answer["queueOffset"])
        assert message.msg_id == answer["msgId"]


def test_offsets_by_time_are_those_of_apache_5(stores: dict[str, MessageStore]) -> None:
    asked = answers("5.5.0")["offsetByTimestamp"]
    assert len(asked) > 100
    for answer in asked:
        found = stores["5.5.0"].lookup.offset_in_queue_by_time(
            answer["topic"], answer["queueId"], answer["timestamp"]
        )
        assert found == answer["offset"], answer


@pytest.mark.parametrize("version", ["4.9.7", "4.9.7-crash"])
def test_offsets_by_time_are_exact_where_apache_4_9_is_near(
    stores: dict[str, MessageStore], version: str
) -> None:
    """4.9 answers with a message near that time; ours is the first that is not older, as in 5.x."""
    times: dict[tuple[str, int], list[int]] = {}
    for record in records(version):
        times.setdefault((record["topic"], record["queueId"]), []).append(record["storeTimestamp"])
    for answer in answers(version)["offsetByTimestamp"]:
        queue = answer["topic"], answer["queueId"]
        found = stores[version].lookup.offset_in_queue_by_time(*queue, answer["timestamp"])
        expected = [at for at, time in enumerate(times[queue]) if time >= answer["timestamp"]]
        assert found == (expected[0] if expected else len(times[queue])), answer


# -- opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_store_is_whole_after_it_was_opened_and_closed(tmp_path: Path, version: str) -> None:
    root = extract_store(version, tmp_path)
    store = open_store(root)
    assert store.report.clean_exit is (version in CLEAN_VERSIONS)
    assert (store.report.damages, store.report.truncated_at, store.report.quarantine) == ([], None, None)
    end = manifest(version)["commitLog"]["maxOffset"]
    assert (store.log.min_phy_offset, store.log.max_phy_offset) == (0, end)
    store.close()
    assert_store_ok(root)
    store = open_store(root)
    assert (store.report.start_phy_offset, store.report.records) == (end, 0)
    store.close()


@pytest.mark.parametrize("version", CLEAN_VERSIONS)
def test_opening_a_clean_store_changes_neither_log_nor_queues_nor_index(tmp_path: Path, version: str) -> None:
    root = extract_store(version, tmp_path)
    before = contents(root)
    open_store(root).close()
    after = contents(root)
    assert {name for name in after if name not in before} == {"consumequeue.snapshot"}
    changed = {name for name in before if after[name] != before[name]}
    assert changed <= {"checkpoint", "lock"}


def contents(root: Path) -> dict[str, bytes]:
    """Every file but the huge sparse ones, by name."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.stat().st_size < 10_000_000
    }


def test_the_killed_store_recovers_to_what_apache_recovers_to(tmp_path: Path) -> None:
    version = "4.9.7-crash"
    root = extract_store(version, tmp_path)
    store = open_store(root)
    assert store.report.records >= 60
    expected = manifest(version)["apacheAfterRecovery"]
    assert store.log.max_phy_offset == expected["commitLog"]["maxOffset"]
    assert [log_file.path.name for log_file in store.log.log_files] == expected["commitLog"]["files"]
    assert {(queue.topic, queue.queue_id): queue.max_queue_offset for queue in store.queues.items()} == {
        (queue["topic"], queue["queueId"]): queue["maxOffset"] for queue in expected["consumeQueues"]
    }
    store.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_apache_store_goes_on_here(tmp_path: Path, version: str) -> None:
    root = extract_store(version, tmp_path)
    store = open_store(root)
    next_offset = store.max_offset_in_queue("BulkTopic", 1)
    for number in range(500):
        result = store.put_message("BulkTopic", 1, b"%d" % number, f"KEYS\x01new-{number}\x02")
        assert result.queue_offset == next_offset + number
    for restart in range(2):
        if restart:
            store.close()
        else:
            store.abandon()
        store = open_store(root)
        for record in records(version)[::50]:
            assert_equal(store.look_message(record["commitLogOffset"]), record)
        (found,) = store.query_message("BulkTopic", "new-333", 1, 0, FOR_EVER_MS)
        assert (found.body, found.queue_offset) == (b"333", next_offset + 333)
    store.close()
    assert_store_ok(root)


# -- damage in what Apache wrote -----------------------------------------------------------------


def tear(root: Path, record: dict[str, Any]) -> None:
    """Overwrite the head of a record."""
    start = record["commitLogOffset"] // COMMIT_LOG_FILE_BYTES * COMMIT_LOG_FILE_BYTES
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(record["commitLogOffset"] - start)
        file.write(bytes(30))


@pytest.mark.parametrize("version", VERSIONS)
def test_damage_below_what_apache_had_flushed_is_served_around(tmp_path: Path, version: str) -> None:
    """In the last file that it had filled with flushed and dispatched messages."""
    root = extract_store(version, tmp_path)
    place = next(
        at for at, r in enumerate(records(version)) if r["commitLogOffset"] > 1_050_000 and r["queueOffset"]
    )
    bad, after = records(version)[place : place + 2]
    tear(root, bad)
    store = open_store(root)
    (damage,) = store.report.damages
    assert (damage.phy_offset, damage.end_phy_offset) == (bad["commitLogOffset"], after["commitLogOffset"])
    assert store.log.max_phy_offset == manifest(version)["commitLog"]["maxOffset"]
    for record in records(version)[place - 5 :]:
        found = store.get_message(record["topic"], record["queueId"], record["queueOffset"], 1)
        assert found.status.name == ("MESSAGE_WAS_REMOVING" if record is bad else "FOUND")
    store.close()
    store = open_store(root)
    assert store.report.damages == [damage]
    store.close()


def test_a_torn_record_that_the_killed_apache_had_not_flushed_ends_the_log(tmp_path: Path) -> None:
    version = "4.9.7-crash"
    root = extract_store(version, tmp_path)
    *_, torn, _, _ = records(version)
    tear(root, torn)
    store = open_store(root)
    assert store.report.truncated_at == store.log.max_phy_offset == torn["commitLogOffset"]
    assert store.report.damages == []
    saved = store.report.quarantine
    assert saved is not None
    found = decode_records(saved.read_bytes()[torn["storeSize"] :])
    assert [message.phy_offset for message in found] == [r["commitLogOffset"] for r in records(version)[-2:]]
    assert store.look_message(records(version)[-4]["commitLogOffset"]) is not None
    assert store.look_message(torn["commitLogOffset"]) is None
    store.close()
    assert_store_ok(root)


@pytest.mark.parametrize("version", CLEAN_VERSIONS)
def test_old_bytes_that_apache_left_behind_the_end_are_not_revived(tmp_path: Path, version: str) -> None:
    """Apache zeroes nothing when it cuts a log: whole records may follow its end."""
    root = extract_store(version, tmp_path)
    end = manifest(version)["commitLog"]["maxOffset"]
    stale = stale_record(end + 100)
    start = end // COMMIT_LOG_FILE_BYTES * COMMIT_LOG_FILE_BYTES
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(end + 100 - start)
        file.write(stale)
    store = open_store(root)
    assert (store.log.max_phy_offset, store.report.damages) == (end, [])
    assert store.look_message(end + 100) is None
    assert store.report.quarantine is not None
    assert store.log.written_end(end) == end
    store.close()
    assert_store_ok(root)


def stale_record(phy_offset: int) -> bytes:
    parts = RecordEncoder("BulkTopic", 0, bytes(8)).parts(
        b"cut off long ago",
        b"",
        queue_offset=3,
        phy_offset=phy_offset,
        store_timestamp=1,
        born_timestamp=1,
        born_host=bytes(8),
    )
    return b"".join(parts)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("lost", ["consumequeue", "index", "checkpoint", "config"])
def test_what_got_lost_of_an_apache_store_is_rebuilt(tmp_path: Path, version: str, lost: str) -> None:
    root = extract_store(version, tmp_path)
    path = root / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    store = open_store(root)
    for answer in answers(version)["queues"]:
        ends = (answer["min"], answer["max"])
        queue = answer["topic"], answer["queueId"]
        assert (store.min_offset_in_queue(*queue), store.max_offset_in_queue(*queue)) == ends
    for record in records(version)[::100]:
        found = store.get_message(record["topic"], record["queueId"], record["queueOffset"], 1)
        assert_equal(decode_records(bytes(found.buffers[0]))[0], record)
        if lost == "index" and "UNIQ_KEY" in record["properties"]:
            by_id = store.query_message(record["topic"], record["msgId"], 64, 0, FOR_EVER_MS)
            assert record["offsetMsgId"] in [message.offset_msg_id for message in by_id]
    store.close()
    assert_store_ok(root)
