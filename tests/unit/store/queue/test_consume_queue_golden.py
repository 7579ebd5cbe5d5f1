"""ConsumeQueues that Apache RocketMQ wrote: every unit, every offset, every answer by time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kourou.store.disk.files import Files
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.consume_queues import ConsumeQueues
from kourou.store.queue.cq_unit import UNIT_BYTES, CqUnit
from kourou.store.queue.queue_time_search import BoundaryType, search_queue_offset
from tests.golden.stores import CONSUME_QUEUE_FILE_BYTES, VERSIONS, extract_store, manifest
from tests.unit.store.consume_queue_kit import read_all, tree

CLEAN_VERSIONS = [version for version in VERSIONS if not version.endswith("crash")]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {version: extract_store(version, tmp_path_factory.mktemp(version)) for version in VERSIONS}


def load(root: Path) -> ConsumeQueues:
    queues = ConsumeQueues(Files(), root / "consumequeue", CONSUME_QUEUE_FILE_BYTES)
    queues.load()
    return queues


def dispatched(version: str) -> list[dict[str, Any]]:
    """The records that are in a queue; Apache lists no tags code for others."""
    return [record for record in manifest(version)["messages"] if record.get("inConsumeQueue") is not False]


def unit_of(record: dict[str, Any]) -> CqUnit:
    return CqUnit(record["commitLogOffset"], record["storeSize"], record["tagsCode"])


def store_times(version: str) -> dict[int, int]:
    return {record["commitLogOffset"]: record["storeTimestamp"] for record in manifest(version)["messages"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_queue_is_found_and_nothing_changed(stores: dict[str, Path], version: str) -> None:
    before = tree(stores[version] / "consumequeue")
    queues = load(stores[version])
    found = {
        (queue.topic, queue.queue_id): (queue.min_queue_offset, queue.max_queue_offset)
        for queue in queues.items()
    }
    assert found == {
        (queue["topic"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"])
        for queue in manifest(version)["consumeQueues"]
    }
    assert queues.is_complete
    assert tree(stores[version] / "consumequeue") == before


@pytest.mark.parametrize("version", VERSIONS)
def test_every_unit_is_equal(stores: dict[str, Path], version: str) -> None:
    expected: dict[tuple[str, int], dict[int, CqUnit]] = {}
    for record in dispatched(version):
        units = expected.setdefault((record["topic"], record["queueId"]), {})
        units[record["queueOffset"]] = unit_of(record)
    queues = load(stores[version])
    assert sum(map(len, expected.values())) > 2000
    for (topic, queue_id), units in expected.items():
        assert dict(enumerate(read_all(queues.get(topic, queue_id)))) == units
    assert queues.max_phy_offset() == max(
        unit.end_phy_offset for units in expected.values() for unit in units.values()
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_dispatching_the_log_again_gives_the_same_files(
    stores: dict[str, Path], version: str, tmp_path: Path
) -> None:
    queues = load(tmp_path)
    for record in dispatched(version):
        queue = queues.get(record["topic"], record["queueId"])
        assert queue.put(record["queueOffset"], *unit_of(record))
    queues.flush_round(least_bytes=0)
    ours, theirs = tree(tmp_path / "consumequeue"), tree(stores[version] / "consumequeue")
    assert ours == theirs


def test_what_the_killed_broker_had_not_dispatched_is_added(tmp_path: Path) -> None:
    version = "4.9.7-crash"
    root = extract_store(version, tmp_path)
    queues = load(root)
    first_lost = min(
        r["commitLogOffset"] for r in manifest(version)["messages"] if r.get("inConsumeQueue") is False
    )
    assert queues.max_phy_offset() == first_lost == 1143049
    for record in manifest(version)["messages"]:
        queue = queues.get(record["topic"], record["queueId"])
        tags_code = record.get("tagsCode", 0)
        added = queue.put(record["queueOffset"], record["commitLogOffset"], record["storeSize"], tags_code)
        assert added is (record["commitLogOffset"] >= first_lost)
    after = manifest(version)["apacheAfterRecovery"]["queues"]
    assert len(after) > 100
    for answer in after:
        queue = queues.get(answer["topic"], answer["queueId"])
        assert (queue.min_queue_offset, queue.max_queue_offset) == (answer["min"], answer["max"])


@pytest.mark.parametrize("version", CLEAN_VERSIONS)
def test_the_first_message_is_apaches(stores: dict[str, Path], version: str) -> None:
    queues, times = load(stores[version]), store_times(version)
    for answer in manifest(version)["reads"]["queues"]:
        queue = queues.get(answer["topic"], answer["queueId"])
        queue.correct_min(0)
        assert (queue.min_queue_offset, queue.max_queue_offset) == (answer["min"], answer["max"])
        first = queue.unit(queue.min_queue_offset)
        earliest = -1 if first is None else times[first.phy_offset]
        assert earliest == answer["earliestMsgStoreTime"]


def test_offsets_by_time_are_those_of_apache_5(stores: dict[str, Path]) -> None:
    queues, times = load(stores["5.5.0"]), store_times("5.5.0")
    answers = manifest("5.5.0")["reads"]["offsetByTimestamp"]
    assert len(answers) > 100
    for answer in answers:
        queue = queues.get(answer["topic"], answer["queueId"])
        assert search_queue_offset(queue, answer["timestamp"], times.__getitem__) == answer["offset"], answer


def test_offsets_by_time_are_exact_where_those_of_apache_4_9_are_near(stores: dict[str, Path]) -> None:
    root = stores["4.9.7"]
    queues, times = load(root), store_times("4.9.7")
    for answer in manifest("4.9.7")["reads"]["offsetByTimestamp"]:
        queue, timestamp_ms = queues.get(answer["topic"], answer["queueId"]), answer["timestamp"]
        stored = [times[phy_offset] for phy_offset, _, _ in read_all(queue)]
        assert answer_of_4_9(queue, root, stored, timestamp_ms) == answer["offset"], answer
        lower = search_queue_offset(queue, timestamp_ms, times.__getitem__)
        upper = search_queue_offset(queue, timestamp_ms, times.__getitem__, BoundaryType.UPPER)
        assert lower == next((n for n, at in enumerate(stored) if at >= timestamp_ms), len(stored)), answer
        assert upper == max((n for n, at in enumerate(stored) if at <= timestamp_ms), default=0), answer


def answer_of_4_9(queue: ConsumeQueue, root: Path, stored: list[int], timestamp_ms: int) -> int:
    """4.9's rule: the first file modified at the time or later, in it the message closest in time."""
    folder = root / "consumequeue" / queue.topic / str(queue.queue_id)
    paths = sorted(folder.iterdir())
    fitting = [path for path in paths if path.stat().st_mtime_ns // 1_000_000 >= timestamp_ms]
    low = int((fitting or paths[-1:])[0].name) // UNIT_BYTES
    high = min(low + queue.units_per_file, len(stored)) - 1
    near: dict[bool, tuple[int, int]] = {}  # the last one seen on each side of the time
    while low <= high:
        middle = (low + high) // 2
        is_later = stored[middle] > timestamp_ms
        near[is_later] = (abs(stored[middle] - timestamp_ms), middle)
        if stored[middle] == timestamp_ms:
            return middle
        low, high = (low, middle - 1) if is_later else (middle + 1, high)
    return min(near.values())[1]


def test_an_apache_store_goes_on_here(tmp_path: Path) -> None:
    root = extract_store("4.9.7", tmp_path)
    queues = load(root)
    queue = queues.get("BulkTopic", 0)
    before = read_all(queue)
    added = [(10_000_000 + number * 100, 100, number) for number in range(200)]
    for unit in added:
        queue.append(*unit)
    queues.flush_round(least_bytes=0)
    assert read_all(load(root).get("BulkTopic", 0)) == before + added
    names = sorted(path.name for path in (root / "consumequeue" / "BulkTopic" / "0").iterdir())
    assert names == ["00000000000000000000", "00000000000000006000", "00000000000000012000"]
