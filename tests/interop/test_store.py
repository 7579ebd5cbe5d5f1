"""A store that we wrote is opened by Apache's broker, of both versions, and the reverse, and again.

The story (store_story.py) runs once per version; the tests look at what was seen on the way.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Final

import pytest

from kourou.protocol.message_id import encode_host
from kourou.store.check.check_report import Finding
from kourou.store.delay_levels import SCHEDULE_TOPIC
from tests.interop.kit import apache
from tests.interop.kit.kourou_namesrv import launch_namesrv_under_test
from tests.interop.kit.ports import free_broker_port
from tests.interop.kit.store_session import Fields, StoreSession
from tests.interop.kit.store_story import (
    APACHE_STATIONS,
    CLEAN_APACHE,
    CLEAN_OURS,
    KILLED_APACHE,
    KILLED_OURS,
    LAST_APACHE,
    LOG_FILE_BYTES,
    OUR_STATIONS,
    QUEUE_FILE_BYTES,
    Seen,
    Story,
)
from tests.interop.kit.store_writer import (
    BUSY_TOPIC,
    COMMIT_TARGET,
    DELAY_OFFSETS,
    DELAY_TARGET,
    GROUP,
    HALF_TOPIC,
    OFFSETS,
    OP_HALF_TOPIC,
    PLAIN_TOPIC,
    QUEUES,
    StoreWriter,
)

pytestmark = pytest.mark.interop

# The broker adds to these what is due, and what it asks of transactions.
_OF_THE_BROKER: Final = (DELAY_TARGET, COMMIT_TARGET, HALF_TOPIC, OP_HALF_TOPIC)


@pytest.fixture(scope="module", params=apache.VERSIONS)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The whole way of a store, for one version."""
    version: str = request.param
    work_dir = tmp_path_factory.mktemp(f"store-{version}")
    port = free_broker_port()
    writer = StoreWriter(encode_host("127.0.0.1", port), int(time.time() * 1000) - 600_000)
    reported = Story(version, work_dir / "store", port, writer)
    session = StoreSession(version, work_dir / "session")
    with launch_namesrv_under_test(version, work_dir) as namesrv, session:
        namesrv.wait_ready()
        reported.begin()
        reported.visit_apache(CLEAN_APACHE, work_dir, namesrv, session, kill=False)
        reported.go_on(CLEAN_OURS, die=True)
        reported.visit_apache(KILLED_APACHE, work_dir, namesrv, session, kill=True)
        reported.go_on(KILLED_OURS, die=False)
        reported.visit_apache(LAST_APACHE, work_dir, namesrv, session, kill=True, last=True)
    yield reported
    shutil.rmtree(work_dir)


# -- what was seen -------------------------------------------------------------------------------------------


def _same_messages(version: str, written: list[Fields], read: list[Fields]) -> list[str]:
    """What differs between messages as written and as read, in words; nothing if all is well."""
    problems = [f"{len(written)} messages were written and {len(read)} read"] * (len(written) != len(read))
    for expected, found in zip(written, read, strict=False):
        problems.extend(_differences(version, expected, found))
    return problems[:10]


def _differences(version: str, expected: Fields, found: Fields) -> Iterator[str]:
    where = f"{expected['topic']}/{expected['queueId']} at {expected.get('queueOffset')}"
    properties = {
        name: v for name, v in found["properties"].items() if name not in ("MIN_OFFSET", "MAX_OFFSET")
    }
    if "properties" in expected:
        found = {**found, "properties": properties}
    else:  # sent by Apache's client, which tells less of it
        found = {**found, "status": "SEND_OK", "number": properties["number"]}
        found.update(tags=properties["TAGS"], keys=properties["KEYS"])
    if version == "5.5.0":  # its client inflates a body and then takes the mark off
        expected = {**expected, "sysFlag": expected["sysFlag"] & ~1} if "sysFlag" in expected else expected
        found = {**found, "sysFlag": found["sysFlag"] & ~1}
    for name, value in expected.items():
        if found[name] != value:
            yield f"{where}: {name} is {found[name]!r}, written was {value!r}"


def _ids(messages: list[Fields]) -> list[str]:
    return sorted(message["offsetMsgId"] for message in messages)


def _with_key(seen: Seen, topic: str, key: str) -> list[Fields]:
    """The messages to be found under a key: rolled back ones are in no index."""
    indexed = [*seen.all_written, *(message for message in seen.unlisted if message["sysFlag"] & 0xC != 0xC)]
    return [
        message
        for message in indexed
        if message["topic"] == topic
        and key in (message.get("keys") or message.get("properties", {}).get("KEYS", "")).split(" ")
    ]


@pytest.mark.parametrize("station", (*APACHE_STATIONS, *OUR_STATIONS))
def test_every_message_of_both_is_read_as_it_was_written(story: Story, station: str) -> None:
    seen = story.seen[station]
    problems = []
    for (topic, queue_id), read in seen.queues.items():
        written = seen.written.get((topic, queue_id), [])
        messages = read["messages"]
        if topic in _OF_THE_BROKER:
            messages = messages[: len(written)]
        else:
            assert (read["min"], read["max"]) == (0, len(written)), (topic, queue_id, read.get("stopped"))
        problems.extend(_same_messages(story.version, written, messages))
    assert problems == []
    assert len(seen.all_written) >= 1_447


@pytest.mark.parametrize("station", (*APACHE_STATIONS, *OUR_STATIONS))
def test_a_message_is_found_by_its_offset_id(story: Story, station: str) -> None:
    seen = story.seen[station]
    assert _same_messages(story.version, [*seen.sample, *seen.unlisted], seen.views) == []


def _indexed(story: Story, station: str, messages: list[Fields]) -> list[Fields]:
    """Those that can be expected in the index: all, until Apache has recovered the store."""
    given_up = range(0) if station in (CLEAN_APACHE, CLEAN_OURS) else story.given_up
    return [message for message in messages if message["phyOffset"] not in given_up]


@pytest.mark.parametrize("station", (*APACHE_STATIONS, *OUR_STATIONS))
def test_messages_are_found_by_key(story: Story, station: str) -> None:
    seen = story.seen[station]
    for (topic, key), found in seen.keys.items():
        expected = _with_key(seen, topic, key)
        assert set(_ids(found)) <= set(_ids(expected)), key
        assert set(_ids(_indexed(story, station, expected))) <= set(_ids(found)), key
    assert _ids(seen.keys[BUSY_TOPIC, "busy-0"])
    assert _ids(seen.keys[PLAIN_TOPIC, "order-7"])
    assert not _ids(seen.keys[PLAIN_TOPIC, "absent"])


@pytest.mark.parametrize("station", APACHE_STATIONS)
def test_messages_are_found_by_unique_id(story: Story, station: str) -> None:
    seen = story.seen[station]
    unique = [message for message in seen.sample if message["msgId"] != message["offsetMsgId"]]
    expected = _indexed(story, station, unique)
    found = [
        message for message in expected if _ids(seen.uniques[message["msgId"]]) == [message["offsetMsgId"]]
    ]
    assert found == expected
    assert len(found) > 15


@pytest.mark.parametrize("station", (CLEAN_APACHE, *OUR_STATIONS))
def test_offsets_are_found_by_time(story: Story, station: str) -> None:
    """4.9 takes the message nearest in time, 5.x and we the first one not before it."""
    seen = story.seen[station]
    timestamps = [message["storeTimestamp"] for message in story.seen[CLEAN_APACHE].written[PLAIN_TOPIC, 0]]
    assert len(seen.times) > 20
    for timestamp, queue_offset in seen.times.items():
        behind = next(at for at, stored in enumerate(timestamps) if stored >= timestamp)
        nearest = min(range(len(timestamps)), key=lambda at: abs(timestamps[at] - timestamp))
        is_4_9 = story.version == "4.9.7" and station == CLEAN_APACHE
        assert queue_offset == (nearest if is_4_9 else behind)


@pytest.mark.parametrize("station", APACHE_STATIONS)
def test_apache_goes_on_with_topics_groups_and_offsets(story: Story, station: str) -> None:
    seen = story.seen[station]
    topics, groups = seen.tables["topics"], seen.tables["groups"]
    assert {topic: topics[topic] for topic in QUEUES} == {
        topic: [count, count, 6, False] for topic, count in QUEUES.items()
    }
    assert groups[GROUP] == [True, 1, 7]
    assert {queue: seen.progress[queue] for queue in OFFSETS} == OFFSETS
    running = seen.tables["running"]
    for level, queue_offset in DELAY_OFFSETS.items():
        pending = len(seen.written[SCHEDULE_TOPIC, level - 1])
        assert running[f"scheduleMessageOffset_{level}"] == f"{queue_offset},{pending}"


def test_apache_commits_our_open_transactions_and_no_ended_one(story: Story) -> None:
    halves = story.seen[LAST_APACHE].written[HALF_TOPIC, 0]
    committed = {message["bodySha256"] for message in story.committed}
    assert committed == {message["bodySha256"] for message in halves[1::2]}


def test_nothing_in_the_store_breaks_an_invariant(story: Story) -> None:
    for station, report in story.checks.items():
        found = [finding for finding in report.violations if not _is_of_apache(story, finding)]
        assert [finding.text(story.root) for finding in found] == [], station


def _is_of_apache(story: Story, finding: Finding) -> bool:
    """4.9.7 reads its delay levels only after its recovery, which gives a delayed message the code of its
    tags where the time of its delivery belongs."""
    is_of_queue = finding.path.is_relative_to(story.root / "consumequeue" / SCHEDULE_TOPIC)
    return story.version == "4.9.7" and is_of_queue and "has tags code" in finding.what


def test_the_store_had_several_files_of_each_kind(story: Story) -> None:
    assert len(story.first_index_files) > 1
    assert max(message["phyOffset"] for message in story.seen[CLEAN_APACHE].all_written) > 3 * LOG_FILE_BYTES
    assert len(story.seen[CLEAN_APACHE].written[BUSY_TOPIC, 0]) * 20 > 2 * QUEUE_FILE_BYTES
