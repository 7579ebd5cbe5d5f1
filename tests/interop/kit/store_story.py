"""Story: a store that goes back and forth between our MessageStore and an Apache broker.

We write a store and close it; Apache starts on it, its Java client reads everything and adds messages, and
it stops. We open it again, write more, and die; Apache recovers it, adds messages, and is killed. We recover
it, write more, and close it; Apache opens it a third time. What each of them sees at each station is kept
beside all that was written so far.
Not here: what is written (store_writer.py), what has to be seen (test_store.py).
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kourou.protocol.message_id import encode_host
from kourou.protocol.record import decode_records
from kourou.store.check.check import CheckReport, check_store
from kourou.store.delay_levels import SCHEDULE_TOPIC
from kourou.store.disk.files import Files
from kourou.store.message_store import MessageStore
from kourou.store.queue.queue_time_search import search_queue_offset
from kourou.store.read.get_message_result import GetMessageStatus
from kourou.store.settings import MessageStoreConfig
from tests.interop.kit import apache, wire
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.process import ServerProcess
from tests.interop.kit.store_session import Fields, StoreSession
from tests.interop.kit.store_writer import (
    BUSY_TOPIC,
    COMMIT_TARGET,
    DELAY_TARGET,
    GROUP,
    HALF_TOPIC,
    LATE_TOPIC,
    PLAIN_TOPIC,
    PRODUCER_GROUP,
    QUEUES,
    StoreWriter,
    fields_of,
    write_config,
)

_BROKER: Final = "broker-a"
# Small, so that all kinds of files roll over.
LOG_FILE_BYTES: Final = 262_144
QUEUE_FILE_BYTES: Final = 6_000
_INDEX_SLOTS: Final = 500
_INDEX_ENTRIES: Final = 2_000
# By which keys messages are looked for.
KEYS: Final = (
    *((PLAIN_TOPIC, key) for key in ("order-7", "batch-3", "old-prepared", "old-commit", "java-3", "absent")),
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
    # Records whose keys Apache gives up when it recovers the store that we left dying: it drops index files
    # that need not be whole, and indexes again what it dispatches again, at least what we had not flushed.
    given_up: range = range(0)

    @property
    def address(self) -> str:
        """Where the broker listens."""
        return f"127.0.0.1:{self.port}"

    # -- our part ----------------------------------------------------------------------------------------

    def open(self) -> MessageStore:
        """Our store, with the same sizes as Apache's."""
        config = MessageStoreConfig(
            root=self.root,
            commit_log_file_bytes=LOG_FILE_BYTES,
            consume_queue_file_bytes=QUEUE_FILE_BYTES,
            index_slots=_INDEX_SLOTS,
            index_entries=_INDEX_ENTRIES,
            store_host=encode_host("127.0.0.1", self.port),
        )
        return MessageStore.open(config, Files(), lambda: self.writer.now_ms)

    def check(self, station: str) -> None:
        """See whether all files agree."""
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
            self.given_up = range(_kept_index_end(self.root) + 1, flushed_phy_offset)
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
            prepared.truncate(LOG_FILE_BYTES)

    def _read_ours(self, store: MessageStore) -> Seen:
        seen = self._new_seen()
        for topic, queue_id in _queues():
            seen.queues[topic, queue_id] = _read_queue(store, topic, queue_id)
        for message in (*seen.sample, *seen.unlisted):
            found = store.look_message(message["phyOffset"]) if "phyOffset" in message else None
            if found is not None:
                seen.views.append(fields_of(found))
        for topic, key in KEYS:
            seen.keys[topic, key] = [
                fields_of(found)
                for found in store.query_message(topic, key, 64, 0, self.writer.now_ms + 3_600_000)
                if key in found.keys
            ]
        for timestamp in _times(seen):
            queue = store.queue(PLAIN_TOPIC, 0)
            seen.times[timestamp] = search_queue_offset(queue, timestamp, store.lookup.store_timestamp)
        return seen

    def _new_seen(self) -> Seen:
        return Seen(copy.deepcopy(self.writer.messages), list(self.writer.unlisted))

    # -- Apache's part -----------------------------------------------------------------------------------

    def visit_apache(
        self,
        station: str,
        work_dir: Path,
        namesrv: ServerProcess,
        session: StoreSession,
        *,
        kill: bool,
        last: bool = False,
    ) -> None:
        """Start the broker, look at everything, and add messages; or, at the last, end the transactions."""
        broker = self._start_apache(work_dir, namesrv, ask_transactions=last)
        try:
            session.connect(namesrv.address, self.address, _BROKER, PLAIN_TOPIC)
            if last:
                session.commit_transactions(PRODUCER_GROUP, COMMIT_TARGET)
            self._wait_delivered(session)
            self._read_apache(station, session)
            if last:
                self._wait_committed(session)
            else:
                self._send(session, 2_000)
            if not kill:
                assert broker.stop(timeout_s=40) != -9, "the broker did not stop by itself"
        finally:
            broker.kill()

    def _start_apache(
        self, work_dir: Path, namesrv: ServerProcess, *, ask_transactions: bool
    ) -> ServerProcess:
        properties = {
            "listenPort": str(self.port),
            "storePathRootDir": str(self.root),
            "storePathCommitLog": str(self.root / "commitlog"),
            "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
            "mappedFileSizeConsumeQueue": str(QUEUE_FILE_BYTES),
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

    def _read_apache(self, station: str, session: StoreSession) -> None:
        seen = self.seen[station] = self._new_seen()
        for topic, queue_id in _queues():
            seen.queues[topic, queue_id] = session.read_queue(topic, queue_id)
        for message in (*seen.sample, *seen.unlisted):
            seen.views.append(session.view(message["topic"], message["offsetMsgId"]))
        until_ms = int(time.time() * 1000) + 3_600_000
        for topic, key in KEYS:
            seen.keys[topic, key] = session.query(topic, key, 64, 0, until_ms)
        for message in seen.sample:
            seen.uniques[message["msgId"]] = session.query_unique(message["topic"], message["msgId"])
        for timestamp in _times(seen):
            seen.times[timestamp] = session.search_offset(PLAIN_TOPIC, 0, timestamp)
        seen.progress = session.progress(GROUP)
        wait_until(
            lambda: wire.has_figures(self.address), timeout_s=30, what="the first sample of Apache's figures"
        )
        seen.tables = session.tables()

    def _send(self, session: StoreSession, size_bytes: int) -> None:
        """Apache appends: more than a CommitLog file, in batches and one by one; last to a new topic."""
        self._sent(session.send(BUSY_TOPIC, 150, size_bytes))
        self._sent(session.send_batch(PLAIN_TOPIC, 10, 300))
        self._sent(session.send(PLAIN_TOPIC, 40, size_bytes))
        for message in session.send_delayed(DELAY_TARGET, 2, 18):
            message["topic"], message["queueId"] = SCHEDULE_TOPIC, 17
            message["queueOffset"] = len(self.writer.messages[SCHEDULE_TOPIC, 17])
            self._sent([message])
        self._sent(session.send(LATE_TOPIC, 8, 100))

    def _sent(self, messages: list[Fields]) -> None:
        for message in messages:
            message["phyOffset"] = int(message["offsetMsgId"][16:], 16)
            self.writer.messages.setdefault((message["topic"], message["queueId"]), []).append(message)

    def _wait_delivered(self, session: StoreSession) -> None:
        """The broker delivers what is due: the messages of delay level 1."""
        due = _bodies(self.writer.messages[SCHEDULE_TOPIC, 0])
        wait_until(
            lambda: due <= _bodies(session.read_queue(DELAY_TARGET, 0)["messages"]),
            timeout_s=30,
            what="delivery of the delayed messages that are due",
        )

    def _wait_committed(self, session: StoreSession) -> None:
        """The broker checks the open transactions, and delivers those that are committed."""

        def are_there() -> bool:
            self.committed = session.read_queue(COMMIT_TARGET, 0)["messages"]
            return _bodies(self.writer.messages[HALF_TOPIC, 0][1::2]) <= _bodies(self.committed)

        wait_until(are_there, timeout_s=45, what="delivery of the committed transactions")


def _bodies(messages: list[Fields]) -> set[str]:
    return {message["bodySha256"] for message in messages}


def _kept_index_end(root: Path) -> int:
    """The last record in the index files that Apache keeps after a kill: those that end before the time which
    the checkpoint has of the index."""
    limit_ms = _long((root / "checkpoint").read_bytes(), 16)
    headers = [path.read_bytes()[:40] for path in (root / "index").iterdir()]
    return max((_long(header, 24) for header in headers if _long(header, 8) <= limit_ms), default=-1)


def _long(raw: bytes, position: int) -> int:
    return int.from_bytes(raw[position : position + 8], "big")


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
    first = [message["storeTimestamp"] for message in seen.written[PLAIN_TOPIC, 0][:15]]
    return [first[0] - 5_000, *first, *(timestamp + 400 for timestamp in first[:-1])]
