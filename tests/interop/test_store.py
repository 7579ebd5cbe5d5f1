"""A store goes back and forth between our MessageStore and Apache's broker, of both versions.

We write a store and close it; Apache starts on it, its Java client reads everything and adds messages, and
it stops. We open it again, write more, and die; Apache recovers it, adds messages, and is killed. We recover
it, write more, and close it; Apache opens it a third time. What each of them reads at each station is
compared with all that was written so far.
The story runs once per version; the tests look at what was seen on the way.
"""

from __future__ import annotations

import copy
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from kourou.protocol.message_id import encode_host
from kourou.protocol.record import decode_records
from kourou.store.check import CheckReport, check_store
from kourou.store.check_report import Finding
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.files import Files
from kourou.store.get_message import GetMessageStatus
from kourou.store.message_store import MessageStore
from kourou.store.settings import MessageStoreConfig

from . import apache
from .cluster import wait_until
from .kourou_namesrv import launch_namesrv_under_test
from .ports import free_broker_port
from .process import ServerProcess
from .store_session import Fields, StoreSession
from .store_writer import (
    BUSY_TOPIC,
    COMMIT_TARGET,
    DELAY_OFFSETS,
    DELAY_TARGET,
    GROUP,
    HALF_TOPIC,
    LATE_TOPIC,
    OFFSETS,
    OP_HALF_TOPIC,
    PRODUCER_GROUP,
    QUEUES,
    StoreWriter,
    fields_of,
    write_config,
)

pytestmark = pytest.mark.interop

_BROKER: Final = "broker-a"
# Small, so that all kinds of files roll over.
_LOG_FILE_BYTES: Final = 262_144
_QUEUE_FILE_BYTES: Final = 6_000
_INDEX_SLOTS: Final = 500
_INDEX_ENTRIES: Final = 2_000
_PLAIN: Final = "PlainTopic"
# The broker adds to these what is due, and what it asks of transactions.
_OF_THE_BROKER: Final = (DELAY_TARGET, COMMIT_TARGET, HALF_TOPIC, OP_HALF_TOPIC)
_KEYS: Final = (
    *((_PLAIN, key) for key in ("order-7", "batch-3", "old-prepared", "old-commit", "java-3", "absent")),
    *((BUSY_TOPIC, key) for key in ("busy-0", "busy-123", "busy-299")),
    *(("%odd|name%", key) for key in ("nothing-in-it", "东京", "ключ")),
    (SCHEDULE_TOPIC, "delayed-18"),
)
_FIRST_STEP_MS: Final = 1_000

CLEAN_APACHE: Final = "Apache after our close"
CLEAN_OURS: Final = "we after Apache's stop"
KILLED_APACHE: Final = "Apache after our death"
KILLED_OURS: Final = "we after Apache's death"
LAST_APACHE: Final = "Apache at the end"
APACHE_STATIONS: Final = (CLEAN_APACHE, KILLED_APACHE, LAST_APACHE)
OUR_STATIONS: Final = (CLEAN_OURS, KILLED_OURS)

Queues = dict[tuple[str, int], list[Fields]]


@dataclass(slots=True)
class Seen:
    """What one reader saw, beside what was there to see."""

    written: Queues
    unlisted: list[Fields]
    queues: dict[tuple[str, int], Fields] = field(default_factory=dict)
    views: list[Fields] = field(default_factory=list)
    keys: dict[tuple[str, str], list[Fields]] = field(default_factory=dict)
    uniques: dict[str, list[Fields]] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    progress: dict[tuple[str, int], int] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def all_written(self) -> list[Fields]:
        """Every message, whatever its queue."""
        return [message for messages in self.written.values() for message in messages]

    @property
    def sample(self) -> list[Fields]:
        """Some of each queue."""
        return [message for messages in self.written.values() for message in messages[::97]]


@dataclass(slots=True)
class Story:
    """A store on its way; `seen` and `checks` by station."""

    version: str
    root: Path
    port: int
    writer: StoreWriter
    seen: dict[str, Seen] = field(default_factory=dict)
    checks: dict[str, CheckReport] = field(default_factory=dict)
    committed: list[Fields] = field(default_factory=list)
    first_index_files: list[str] = field(default_factory=list)
    # Records whose keys Apache gives up when it recovers the store that we left by dying: it drops the index
    # file that was not full, and indexes again what it dispatches again, at least what we had not flushed.
    given_up: range = range(0)

    @property
    def address(self) -> str:
        """Where the broker listens."""
        return f"127.0.0.1:{self.port}"

    # -- our part ----------------------------------------------------------------------------------------

    def open(self) -> MessageStore:
        config = MessageStoreConfig(
            root=self.root,
            commit_log_file_bytes=_LOG_FILE_BYTES,
            consume_queue_file_bytes=_QUEUE_FILE_BYTES,
            index_slots=_INDEX_SLOTS,
            index_entries=_INDEX_ENTRIES,
            store_host=encode_host("127.0.0.1", self.port),
        )
        return MessageStore.open(config, Files(), lambda: self.writer.now_ms)

    def check(self, station: str) -> None:
        self.checks[station] = check_store(Files(), self.root)

    def begin(self) -> None:
        """The first store: ten minutes old, so that the short delays of it are over."""
        store = self.open()
        self.writer.write_all(store, busy_messages=1_300, plain_step_ms=_FIRST_STEP_MS)
        write_config(Files(), self.root, self.writer.now_ms)
        store.close()
        self.first_index_files = Files().list_names(self.root / "index")
        self.check("we at the beginning")

    def go_on(self, station: str, *, die: bool) -> None:
        """Look at what Apache left, then write more of everything."""
        self.check(f"before {station}")
        self.writer.now_ms = int(time.time() * 1000)
        store = self.open()
        self.seen[station] = self._read_ours(store)
        flushed_phy_offset = store.log.max_phy_offset
        self.writer.write_all(store, busy_messages=300, plain_step_ms=1)
        if die:
            self._die(store)
            self.given_up = range(_full_index_end(self.root / "index") + 1, flushed_phy_offset)
        else:
            store.close()
        self.check(f"after {station}")

    def _die(self, store: MessageStore) -> None:
        """Be killed, with some of it flushed as timers do, and the next CommitLog file prepared."""
        store.flush()
        store.flush_derived(thorough=False)
        self.writer.write_all(store, busy_messages=50, plain_step_ms=1)
        next_phy_offset = store.log.log_files[-1].end_phy_offset
        store.abandon()
        with open(self.root / "commitlog" / f"{next_phy_offset:020d}", "wb") as prepared:
            prepared.truncate(_LOG_FILE_BYTES)

    def _read_ours(self, store: MessageStore) -> Seen:
        seen = self._new_seen()
        for topic, queue_id in _queues():
            seen.queues[topic, queue_id] = _read_queue(store, topic, queue_id)
        for message in (*seen.sample, *seen.unlisted):
            found = store.look_message(message["phyOffset"]) if "phyOffset" in message else None
            if found is not None:
                seen.views.append(fields_of(found))
        for topic, key in _KEYS:
            seen.keys[topic, key] = [
                fields_of(found)
                for found in store.query_message(topic, key, 64, 0, self.writer.now_ms + 3_600_000)
                if key in found.keys
            ]
        return seen

    def _new_seen(self) -> Seen:
        return Seen(copy.deepcopy(self.writer.messages), list(self.writer.unlisted))

    # -- Apache's part -----------------------------------------------------------------------------------

    def start_apache(
        self, work_dir: Path, namesrv: ServerProcess, *, ask_transactions: bool
    ) -> ServerProcess:
        properties = {
            "listenPort": str(self.port),
            "storePathRootDir": str(self.root),
            "storePathCommitLog": str(self.root / "commitlog"),
            "mappedFileSizeCommitLog": str(_LOG_FILE_BYTES),
            "mappedFileSizeConsumeQueue": str(_QUEUE_FILE_BYTES),
            "maxHashSlotNum": str(_INDEX_SLOTS),
            "maxIndexNum": str(_INDEX_ENTRIES),
            "transactionCheckInterval": "1000",
            # Until the end of the story open transactions stay as they are.
            "transactionTimeOut": "1000" if ask_transactions else "86400000",
            "transactionCheckMax": "1000",
        }
        return apache.start_broker(
            self.version, work_dir, [namesrv.address], broker_name=_BROKER, properties=properties
        )

    def read_apache(self, station: str, session: StoreSession) -> None:
        seen = self.seen[station] = self._new_seen()
        for topic, queue_id in _queues():
            seen.queues[topic, queue_id] = session.read_queue(topic, queue_id)
        for message in (*seen.sample, *seen.unlisted):
            seen.views.append(session.view(message["topic"], message["offsetMsgId"]))
        until_ms = int(time.time() * 1000) + 3_600_000
        for topic, key in _KEYS:
            seen.keys[topic, key] = session.query(topic, key, 64, 0, until_ms)
        for message in seen.sample:
            seen.uniques[message["msgId"]] = session.query_unique(message["topic"], message["msgId"])
        for timestamp in _times(seen):
            seen.times[timestamp] = session.search_offset(_PLAIN, 0, timestamp)
        seen.progress = session.progress(GROUP)
        seen.tables = session.tables()

    def send(self, session: StoreSession, size_bytes: int) -> None:
        """Apache appends: more than a CommitLog file, in batches and one by one; last to a new topic."""
        self._sent(session.send(BUSY_TOPIC, 150, size_bytes))
        self._sent(session.send_batch(_PLAIN, 10, 300))
        self._sent(session.send(_PLAIN, 40, size_bytes))
        for message in session.send_delayed(DELAY_TARGET, 2, 18):
            message["topic"], message["queueId"] = SCHEDULE_TOPIC, 17
            message["queueOffset"] = len(self.writer.messages[SCHEDULE_TOPIC, 17])
            self._sent([message])
        self._sent(session.send(LATE_TOPIC, 8, 100))

    def _sent(self, messages: list[Fields]) -> None:
        for message in messages:
            message["phyOffset"] = int(message["offsetMsgId"][16:], 16)
            self.writer.messages.setdefault((message["topic"], message["queueId"]), []).append(message)

    def wait_delivered(self, session: StoreSession) -> None:
        """The broker delivers what is due: the messages of delay level 1."""
        due = _bodies(self.writer.messages[SCHEDULE_TOPIC, 0])
        wait_until(
            lambda: due <= _bodies(session.read_queue(DELAY_TARGET, 0)["messages"]),
            timeout_s=30,
            what="delivery of the delayed messages that are due",
        )

    def wait_committed(self, session: StoreSession) -> None:
        """The broker asks for the open transactions, and delivers them when told to."""

        def are_there() -> bool:
            self.committed = session.read_queue(COMMIT_TARGET, 0)["messages"]
            return _bodies(self.writer.messages[HALF_TOPIC, 0][1::2]) <= _bodies(self.committed)

        wait_until(are_there, timeout_s=45, what="delivery of the committed transactions")


def _bodies(messages: list[Fields]) -> set[str]:
    return {message["bodySha256"] for message in messages}


def _full_index_end(folder: Path) -> int:
    """The last record in a full index file."""
    end_phy_offset = 0
    for path in sorted(folder.iterdir()):
        header = path.read_bytes()[:40]
        if int.from_bytes(header[36:40], "big") >= _INDEX_ENTRIES:
            end_phy_offset = int.from_bytes(header[24:32], "big")
    return end_phy_offset


def _queues() -> list[tuple[str, int]]:
    return [(topic, queue_id) for topic, count in QUEUES.items() for queue_id in range(count)]


def _read_queue(store: MessageStore, topic: str, queue_id: int) -> Fields:
    messages: list[Fields] = []
    queue = store.queues.find(topic, queue_id)
    low = high = 0
    if queue is not None:
        low, high = queue.min_queue_offset, queue.max_queue_offset
    at = low
    while at < high:
        result = store.get_message(topic, queue_id, at, 32)
        if result.status is not GetMessageStatus.FOUND or result.next_begin_offset <= at:
            break
        found = decode_records(b"".join(result.buffers))
        messages.extend(fields_of(message) for message in found)
        at = result.next_begin_offset
    return {"min": low, "max": high, "messages": messages}


def _times(seen: Seen) -> list[int]:
    """Times at, before and behind messages of one queue, of those that we wrote first."""
    first = [message["storeTimestamp"] for message in seen.written[_PLAIN, 0][:15]]
    return [first[0] - 5_000, *first, *(timestamp + 400 for timestamp in first[:-1])]


@pytest.fixture(scope="module", params=apache.VERSIONS)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The whole way of a store, for one version."""
    version: str = request.param
    work_dir = tmp_path_factory.mktemp(f"store-{version}")
    port = free_broker_port()
    writer = StoreWriter(encode_host("127.0.0.1", port), int(time.time() * 1000) - 600_000)
    told = Story(version, work_dir / "store", port, writer)
    session = StoreSession(version, work_dir / "session")
    with launch_namesrv_under_test(version, work_dir) as namesrv, session:
        namesrv.wait_ready()
        told.begin()
        _apache_station(told, CLEAN_APACHE, work_dir, namesrv, session, kill=False)
        told.go_on(CLEAN_OURS, die=True)
        _apache_station(told, KILLED_APACHE, work_dir, namesrv, session, kill=True)
        told.go_on(KILLED_OURS, die=False)
        _apache_station(told, LAST_APACHE, work_dir, namesrv, session, kill=True, last=True)
    yield told
    shutil.rmtree(work_dir)


def _apache_station(
    told: Story,
    station: str,
    work_dir: Path,
    namesrv: ServerProcess,
    session: StoreSession,
    *,
    kill: bool,
    last: bool = False,
) -> None:
    broker = told.start_apache(work_dir, namesrv, ask_transactions=last)
    try:
        session.connect(namesrv.address, told.address, _BROKER, _PLAIN)
        if last:
            session.commit_transactions(PRODUCER_GROUP, COMMIT_TARGET)
        told.wait_delivered(session)
        told.read_apache(station, session)
        if last:
            told.wait_committed(session)
        else:
            told.send(session, 2_000)
    except BaseException:
        broker.kill()
        raise
    if kill:
        broker.kill()
    else:
        assert broker.stop(timeout_s=40) != -9, "the broker did not stop by itself"


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
    assert _ids(seen.keys[_PLAIN, "order-7"])
    assert not _ids(seen.keys[_PLAIN, "absent"])


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


def test_apache_finds_offsets_by_time(story: Story) -> None:
    """4.9 takes the message nearest in time, 5.x the first one not before it."""
    seen = story.seen[CLEAN_APACHE]
    timestamps = [message["storeTimestamp"] for message in seen.written[_PLAIN, 0]]
    for timestamp, queue_offset in seen.times.items():
        behind = next(at for at, stored in enumerate(timestamps) if stored >= timestamp)
        nearest = min(range(len(timestamps)), key=lambda at: abs(timestamps[at] - timestamp))
        assert queue_offset == (nearest if story.version == "4.9.7" else behind)


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
    assert max(message["phyOffset"] for message in story.seen[CLEAN_APACHE].all_written) > 3 * _LOG_FILE_BYTES
    assert len(story.seen[CLEAN_APACHE].written[BUSY_TOPIC, 0]) * 20 > 2 * _QUEUE_FILE_BYTES
