"""A slave's copy equals its master's: our slave behind Apache's masters of both lines, Apache's slaves and
ours behind our master.

Every master is a SYNC_MASTER. Messages of all kinds are sent to each; then the slaves' logs are
compared byte for byte, and their answers with the master's. What senders are answered while slaves are
stopped and when they are gone comes last. 5.5.0's slave copies its master's tables once a minute: what needs
them is compared by night.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pytest

from kourou.protocol.codes import ResponseCode
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.names import (
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    retry_topic,
)
from kourou.protocol.record import decode_records
from tests.crash.rounds import NIGHTLY
from tests.interop.kit import replica_answers as answers
from tests.interop.kit import wire
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.lanes import KOUROU
from tests.interop.kit.replica_set import LOG_FILE_BYTES, Replica, ReplicaSet, launch_replica_sets
from tests.interop.kit.replica_story import KEY, QUEUES, Story, tell

pytestmark = pytest.mark.interop

T = TypeVar("T")

_SLAVES_OF: Final = {KOUROU: ("4.9.7", "5.5.0", KOUROU), "4.9.7": (KOUROU,), "5.5.0": (KOUROU,)}
_PAIRS: Final = [(master, slave) for master, slaves in _SLAVES_OF.items() for slave in slaves]
_TABLES_S: Final = 90 if NIGHTLY else 30

every_pair = pytest.mark.parametrize(("master", "slave"), _PAIRS)
# Those whose slave has copied its master's tables in the time of a CI run.
every_pair_with_tables = pytest.mark.parametrize(
    ("master", "slave"),
    [
        pytest.param(master, slave, marks=pytest.mark.nightly if slave == "5.5.0" else ())
        for master, slave in _PAIRS
    ],
)
every_master = pytest.mark.parametrize("master", _SLAVES_OF)
every_pair_that_starts_soon = pytest.mark.parametrize(
    ("master", "slave"),
    [
        pytest.param(master, slave, marks=() if slave == KOUROU else pytest.mark.nightly)
        for master, slave in _PAIRS
    ],
)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ReplicaSet]]:
    """A master of each kind with its slaves; senders get SEND_OK from each."""
    with ExitStack() as servers:
        work_dir = tmp_path_factory.mktemp("replicas")
        started = launch_replica_sets(_SLAVES_OF.items(), work_dir, servers, master_role="SYNC_MASTER")
        for each in started:
            each.wait_following()
        yield dict(zip(_SLAVES_OF, started, strict=True))


@pytest.fixture(scope="module")
def stories(sets: dict[str, ReplicaSet]) -> dict[str, Story]:
    """What was sent to each master; all slaves have it."""

    async def tell_all() -> dict[str, Story]:
        told = await asyncio.gather(*map(tell, sets.values()))
        return dict(zip(sets, told, strict=True))

    stories = asyncio.run(tell_all())
    for each in sets.values():
        each.wait_caught_up()
    return stories


@dataclass(frozen=True, slots=True)
class Copy:
    """A slave with its master, and what was sent there."""

    replicas: ReplicaSet
    slave: Replica
    story: Story

    @property
    def master(self) -> Replica:
        """The original."""
        return self.replicas.master


@pytest.fixture
def replicas(sets: dict[str, ReplicaSet], stories: dict[str, Story], master: str) -> ReplicaSet:
    """The master of a test with its slaves."""
    return sets[master]


@pytest.fixture
def copy(sets: dict[str, ReplicaSet], stories: dict[str, Story], master: str, slave: str) -> Copy:
    """The pair of a test."""
    return Copy(sets[master], sets[master].slaves[slave], stories[master])


@every_pair
def test_the_logs_are_equal_byte_for_byte(copy: Copy) -> None:
    begin, end = copy.slave.log_range()
    assert begin == 0 and end > 2 * LOG_FILE_BYTES
    assert copy.slave.read_log(begin, end) == copy.master.read_log(begin, end)


def queues_of(story: Story) -> list[tuple[str, int]]:
    """Every queue that the story has used: its own, that of retries, of delays and of transactions."""
    own = [(story.topic, queue_id) for queue_id in range(QUEUES)]
    levels = [(RMQ_SYS_SCHEDULE_TOPIC, queue_id) for queue_id in range(3)]
    transactions = [(RMQ_SYS_TRANS_HALF_TOPIC, 0), (RMQ_SYS_TRANS_OP_HALF_TOPIC, 0)]
    return [*own, *levels, *transactions, (retry_topic(story.group), 0)]


def queue_ranges(address: str, queues: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """The first and the next offset of each queue."""
    return {queue: answers.queue_range(address, *queue) for queue in queues}


def wait_equal(copy: Callable[[], T], original: Callable[[], T], timeout_s: float) -> None:
    """Wait until both give the same; AssertionError with the difference past the timeout."""
    deadline = time.monotonic() + timeout_s
    while copy() != original() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert copy() == original()


@every_pair
def test_the_queues_go_as_far_as_the_masters(copy: Copy) -> None:
    queues = queues_of(copy.story)
    copied, original = copy.slave.address, copy.master.address
    ranges = queue_ranges(original, queues)
    assert all(low == 0 for low, _ in ranges.values())
    # Retry, delay and transactions left something.
    assert {topic for (topic, _), (_, high) in ranges.items() if high} == {topic for topic, _ in queues}
    # Checks of transactions go on at the master.
    wait_equal(partial(queue_ranges, copied, queues), partial(queue_ranges, original, queues), 10)


@every_pair
def test_queries_are_answered_as_by_the_master(copy: Copy) -> None:
    story, copied, original = copy.story, copy.slave.address, copy.master.address
    of_all = answers.found_by_key(original, story.topic, KEY)
    assert len(of_all) > 32
    assert answers.found_by_key(copied, story.topic, KEY) == of_all
    for result in story.results[::10]:
        phy_offset = parse_offset_msg_id(result.offset_msg_id).phy_offset
        record = answers.viewed(original, story.topic, phy_offset)
        assert record and answers.viewed(copied, story.topic, phy_offset) == record
        assert answers.found_by_key(copied, story.topic, result.msg_id, is_unique=True) == [record]
    for queue_id in range(QUEUES):
        # 4.9 and 5 have different answers between two messages, and with several at the same time.
        records = decode_records(answers.pulled(original, story.topic, queue_id, story.group))
        counts = Counter(record.store_timestamp for record in records)
        for time_ms in [time_ms for time_ms, count in counts.items() if count == 1][::10]:
            at = answers.offset_at(original, story.topic, queue_id, time_ms)
            assert answers.offset_at(copied, story.topic, queue_id, time_ms) == at


# -- synchronous double write --------------------------------------------------------------------------------


def send_to(replicas: ReplicaSet) -> int:
    """Send a message to the master; the code of its answer."""
    return wire.try_send(replicas.master.address, f"first-{replicas.name}", b"more").code


@every_pair
def test_one_slave_is_enough_for_a_sync_master(copy: Copy) -> None:
    with ExitStack() as stopped:
        for other in copy.replicas.slaves.values():
            if other is not copy.slave:
                stopped.enter_context(other.paused())
        assert send_to(copy.replicas) == ResponseCode.SUCCESS


@pytest.fixture(scope="module")
def while_stopped(sets: dict[str, ReplicaSet], stories: dict[str, Story]) -> dict[str, int]:
    """What each master answers while all slaves are stopped."""
    with ExitStack() as stopped, ThreadPoolExecutor() as senders:
        for slave in [slave for each in sets.values() for slave in each.slaves.values()]:
            stopped.enter_context(slave.paused())
        return dict(zip(sets, senders.map(send_to, sets.values()), strict=True))


@every_master
def test_a_sync_master_reports_that_no_slave_answers(
    while_stopped: dict[str, int], replicas: ReplicaSet
) -> None:
    assert while_stopped[replicas.master.kind] == ResponseCode.FLUSH_SLAVE_TIMEOUT
    # What was reported so is copied nevertheless.
    replicas.wait_caught_up()


# -- tables --------------------------------------------------------------------------------------------------


def delay_offsets(slave: Replica) -> dict[int, int]:
    """What a slave has got of its master's delay offsets; that of 4.9 has it in a file only."""
    if slave.kind != "4.9.7":
        return answers.delay_offsets(slave.address)
    return answers.kept_delay_offsets(slave.store_dir / "config" / "delayOffset.json")


@every_pair_with_tables
def test_topics_groups_and_offsets_arrive(copy: Copy) -> None:
    story, copied, original = copy.story, copy.slave.address, copy.master.address
    for table in (answers.topics, answers.groups, answers.consumer_offsets):
        wait_equal(partial(table, copied), partial(table, original), _TABLES_S)
    delivered = partial(answers.delay_offsets, original)
    # The levels of the delayed messages and of the retry.
    assert {level for level, queue_offset in delivered().items() if queue_offset} == {1, 3}
    wait_equal(partial(delay_offsets, copy.slave), delivered, _TABLES_S)
    assert answers.topics(copied)[story.topic][:2] == (QUEUES, QUEUES)
    assert story.group in answers.groups(copied)
    progress = answers.consumer_offsets(copied)[f"{story.topic}@{story.group}"]
    assert progress == {
        queue_id: answers.queue_range(original, story.topic, queue_id)[1] for queue_id in range(QUEUES)
    }


def wait_topic(copy: Copy) -> None:
    """Wait until the slave knows the story's topic."""
    wait_until(
        lambda: copy.story.topic in answers.topics(copy.slave.address),
        timeout_s=_TABLES_S,
        what=f"{copy.story.topic} at {copy.slave.kind}",
    )


@every_pair_with_tables
def test_pulls_are_answered_as_by_the_master(copy: Copy) -> None:
    story, copied, original = copy.story, copy.slave.address, copy.master.address
    wait_topic(copy)
    # 4.9 does not list the topic of what is decided about transactions, and serves no pulls of it.
    listed = answers.topics(original)
    for topic, queue_id in [queue for queue in queues_of(story) if queue[0] in listed]:
        messages = answers.pulled(original, topic, queue_id, story.group)
        assert answers.pulled(copied, topic, queue_id, story.group) == messages


# -- backups -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("master", ["4.9.7", "5.5.0"])
def test_a_backup_of_a_running_apache_broker_has_everything(replicas: ReplicaSet, tmp_path: Path) -> None:
    """Made while messages come. A broker of ours serves what it has, all that was acknowledged before."""
    master, topic = replicas.master, f"backed-up-{replicas.name}"
    wire.create_topic(master.address, [replicas.namesrv], topic, queues=1)
    settings = {"brokerName": f"restored-{replicas.name}"}
    restored = Replica(KOUROU, replicas.namesrv, tmp_path / "broker", settings)

    def send(count: int) -> None:
        for _ in range(count):
            assert wire.try_send(master.address, topic, bytes(1_000)).code == ResponseCode.SUCCESS

    send(100)
    with ThreadPoolExecutor() as threads:
        sending = threads.submit(send, 100)
        store_command("backup", master.store_dir, tmp_path / "backup")
        sending.result()
    store_command("restore", tmp_path / "backup", restored.store_dir)
    try:
        restored.launch()
        restored.wait_registered()
        begin, end = restored.log_range()
        assert restored.read_log(begin, end) == master.read_log(begin, end)
        _, next_offset = answers.queue_range(restored.address, topic, 0)
        assert next_offset >= 100
        messages = answers.pulled(restored.address, topic, 0, "readers")
        assert len(list(decode_records(messages))) == next_offset
        assert answers.pulled(master.address, topic, 0, "readers").startswith(messages)
    finally:
        restored.kill()


def store_command(name: str, *paths: Path) -> None:
    """Run `kourou store`."""
    words = [sys.executable, "-m", "kourou.cli.main", "store", name, *map(str, paths)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr


# -- slaves that are gone ------------------------------------------------------------------------------------


@every_master
def test_a_sync_master_reports_that_no_slave_is_there(replicas: ReplicaSet) -> None:
    for slave in replicas.slaves.values():
        slave.kill()
    # 5.5.0 has one answer for slaves that are slow and slaves that are gone.
    is_5 = replicas.master.kind == "5.5.0"
    answer = ResponseCode.FLUSH_SLAVE_TIMEOUT if is_5 else ResponseCode.SLAVE_NOT_AVAILABLE
    wait_until(lambda: send_to(replicas) == answer, timeout_s=10, what=f"{answer.name} of {replicas.name}")
    # Our slaves start in a moment; Apache's come back by night.
    for kind, slave in replicas.slaves.items():
        if NIGHTLY or kind == KOUROU:
            slave.launch()
            slave.wait_registered()
            slave.wait_caught_up(replicas.master)
            assert slave.read_log(*slave.log_range()) == replicas.master.read_log(*slave.log_range())
    assert send_to(replicas) == ResponseCode.SUCCESS


@every_pair_that_starts_soon
def test_a_slave_without_a_store_begins_again(copy: Copy) -> None:
    copied, master, story = copy.slave, copy.master, copy.story
    copied.kill()
    shutil.rmtree(copied.store_dir)
    copied.launch()
    copied.wait_registered()
    copied.wait_caught_up(master)
    begin, end = copied.log_range()
    # Apache's masters give the last file only.
    assert begin == (0 if master.kind == KOUROU else end - end % LOG_FILE_BYTES)
    assert copied.read_log(begin, end) == master.read_log(begin, end)
    _, next_offset = answers.queue_range(master.address, story.topic, 0)
    wait_until(
        lambda: answers.queue_range(copied.address, story.topic, 0)[1] == next_offset,
        timeout_s=10,
        what=f"the queue at {copied.kind} behind {master.kind}",
    )
    wait_topic(copy)
    first, _ = answers.queue_range(copied.address, story.topic, 0)
    messages = answers.pulled(master.address, story.topic, 0, story.group, first)
    assert messages and answers.pulled(copied.address, story.topic, 0, story.group, first) == messages
