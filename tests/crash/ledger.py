"""Ledger: what was given to a store, what it promised to keep, and whether it did.

The ledger has every message in the order of the log. After a crash `settle` compares it with the
files and with the store that recovered from them: the log has to be a prefix of what was put, with
every message that `must_survive`, byte for byte; the queues have to be dense and point right; the
index has to find every message by its keys. What the crash took is forgotten, and the test goes on.
A message that was refused need not be gone: it may have been written before its sync failed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_record
from kourou.protocol.record_fields import record_positions
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from kourou.store.read.get_message_result import GetMessageStatus
from tests.crash.stored_log import log_start, stored_records

_NOT_LISTED = (4, 12)  # prepared and rolled back transactions have no place in a queue
_FOR_EVER_MS = 1 << 60


@dataclass(slots=True, eq=False, repr=False)
class Sent:
    """One message that was put; no two are alike. `raw` is its record as the store answered; None: no
    answer came."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    sys_flag: int = 0
    uniq_key: str | None = None
    phy_offset: int = -1
    queue_offset: int = -1
    raw: bytes | None = None
    must_survive: bool = False
    is_refused: bool = False

    @property
    def end_phy_offset(self) -> int:
        return self.phy_offset + len(self.raw or b"")

    def __repr__(self) -> str:
        return f"<{self.topic}/{self.queue_id} {self.uniq_key} {self.queue_offset} at {self.phy_offset}>"

    def is_same(self, raw: bytes, stored: MessageExt) -> bool:
        """Whether a record is this message's."""
        if self.raw is not None:
            return raw == self.raw
        return (
            (self.topic, self.queue_id) == (stored.topic, stored.queue_id)
            and (self.body, self.properties) == (stored.stored_body, stored.raw_properties)
            and self.sys_flag == stored.sys_flag
        )


class Ledger:
    """What one store was given since it was made."""

    def __init__(self) -> None:
        self.messages: list[Sent] = []
        # From which byte of the log on a topic's messages have to be in its queues.
        self.deleted_at: dict[str, int] = {}
        # The next offset of each queue as of its last message that must survive.
        self._next: dict[tuple[str, int], int] = {}

    # -- while the store works -------------------------------------------------------------------

    def put(self, sent: Sent) -> None:
        """About to be put."""
        self.messages.append(sent)

    def answered(
        self, store: MessageStore, sent: Sent, status: PutStatus, phy: int, queue_offset: int
    ) -> None:
        """The store has answered a put; only PUT_OK is a promise."""
        if status is not PutStatus.PUT_OK:
            sent.is_refused = True
            return
        sent.phy_offset, sent.queue_offset = phy, queue_offset
        sent.raw = record_at(store, phy)

    def flushed(self, phy_offset: int) -> None:
        """The store has said that all below is on disk."""
        for sent in reversed(self.messages):
            if sent.must_survive:
                break
            if sent.raw is not None and sent.end_phy_offset <= phy_offset:
                self.promised(sent)

    def promised(self, sent: Sent) -> None:
        """From now on nothing may take this message away, nor its place in the queue."""
        sent.must_survive = True
        if sent.sys_flag & 12 not in _NOT_LISTED and sent.phy_offset >= self.deleted_at.get(sent.topic, 0):
            key = sent.topic, sent.queue_id
            self._next[key] = max(self._next.get(key, 0), sent.queue_offset + 1)

    def deleted(self, topic: str, phy_offset: int) -> None:
        """The topic is about to be deleted, when the log ends at `phy_offset`."""
        self.deleted_at[topic] = phy_offset
        self._next = {key: count for key, count in self._next.items() if key[0] != topic}

    # -- after a crash ---------------------------------------------------------------------------

    def settle(self, store: MessageStore, root: Path) -> None:
        """Compare with a store that has recovered; forget what was rightly lost."""
        records = stored_records(root)
        self._settle_log(records, log_start(root))
        self._check_ends(store, records)
        self._check_queues(store, records)
        self._check_index(store, records)

    def _settle_log(self, records: list[tuple[bytes, MessageExt]], start: int | None) -> None:
        if start is not None:
            self.messages = [sent for sent in self.messages if not 0 <= sent.phy_offset < start]
        left = iter(self.messages)
        self.messages = [_matching(left, raw, stored) for raw, stored in records]
        for sent in self.messages:  # what recovery has found counts as durable from then on
            self.promised(sent)
        promised = [sent for sent in left if sent.must_survive]
        assert not promised, f"{len(promised)} acknowledged messages are lost, the first is {promised[0]!r}"

    def _check_ends(self, store: MessageStore, records: list[tuple[bytes, MessageExt]]) -> None:
        end = store.log.max_phy_offset
        last = records[-1][1] if records else None
        assert last is None or end >= last.phy_offset + last.store_size
        assert store.log.flushed_phy_offset == store.dispatcher.dispatched_phy_offset == end

    def _check_queues(self, store: MessageStore, records: list[tuple[bytes, MessageExt]]) -> None:
        expected = self._expected_queues(records)
        for queue in store.queues.items():
            self._check_queue(
                store, queue.topic, queue.queue_id, expected.pop((queue.topic, queue.queue_id), {})
            )
        for (topic, queue_id), count in self._next.items():
            found = store.queue(topic, queue_id).next_queue_offset
            assert found >= count, f"{topic}/{queue_id} goes on at {found}, it had {count} messages"
        for (topic, queue_id), raws in expected.items():
            if raws:
                live = [raw for raw in raws.values() if self._is_live(topic, raw)]
                assert not live, f"{topic}/{queue_id}: no queue for {len(live)} messages"

    def _expected_queues(
        self, records: list[tuple[bytes, MessageExt]]
    ) -> dict[tuple[str, int], dict[int, bytes]]:
        """The records of each queue by queue_offset; one with 0 starts it over."""
        queues: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
        for raw, stored in records:
            if stored.sys_flag & 12 in _NOT_LISTED:
                continue
            queue = queues[stored.topic, stored.queue_id]
            if stored.queue_offset == 0:
                queue.clear()
            assert not queue or stored.queue_offset == max(queue) + 1, f"a gap in the log before {stored!r}"
            queue[stored.queue_offset] = raw
        return queues

    def _check_queue(
        self, store: MessageStore, topic: str, queue_id: int, expected: dict[int, bytes]
    ) -> None:
        queue = store.queue(topic, queue_id)
        where = f"{topic}/{queue_id} [{queue.min_queue_offset}, {queue.max_queue_offset})"
        assert queue.next_queue_offset == queue.max_queue_offset, where
        found = read_queue(store, topic, queue_id)
        for queue_offset, raw in found.items():
            assert expected.get(queue_offset) == raw, (
                f"{where}: {queue_offset} is not the record it should be"
            )
        missing = {at: raw for at, raw in expected.items() if at not in found and self._is_live(topic, raw)}
        assert not missing, f"{where}: messages {sorted(missing)} are in the log and not in the queue"

    def _is_live(self, topic: str, raw: bytes) -> bool:
        return decode_record(raw).phy_offset >= self.deleted_at.get(topic, 0)

    def _check_index(self, store: MessageStore, records: list[tuple[bytes, MessageExt]]) -> None:
        for sent in self.messages:
            if sent.uniq_key is None or sent.sys_flag & 12 == 12:
                continue
            found = store.query_message(sent.topic, sent.uniq_key, 64, 0, _FOR_EVER_MS)
            offsets = [message.phy_offset for message in found if message.msg_id == sent.uniq_key]
            assert offsets == [sent.phy_offset], (
                f"key {sent.uniq_key}: found {offsets}, not {sent.phy_offset}"
            )


def record_at(store: MessageStore, phy_offset: int) -> bytes:
    """A record as it lies in the file, whatever the store's own way to the disk is like."""
    log_file = store.log.file_at(phy_offset)
    assert log_file is not None
    with log_file.path.open("rb") as file:
        file.seek(phy_offset - log_file.start_phy_offset)
        head = file.read(4)
        return head + file.read(int.from_bytes(head, "big") - 4)


def _matching(left: Iterator[Sent], raw: bytes, stored: MessageExt) -> Sent:
    """The next message, which has to be the one that was found; refused ones need not be there."""
    for sent in left:
        if sent.is_same(raw, stored):
            sent.raw, sent.phy_offset, sent.queue_offset = raw, stored.phy_offset, stored.queue_offset
            sent.is_refused = False
            return sent
        assert sent.is_refused, f"at {stored.phy_offset}: {stored!r} instead of {sent!r}"
    raise AssertionError(f"at {stored.phy_offset}: {stored!r} was never put")


def read_queue(
    store: MessageStore, topic: str, queue_id: int, from_queue_offset: int = 0
) -> dict[int, bytes]:
    """The records of a queue as a consumer gets them, by queue_offset."""
    queue = store.queue(topic, queue_id)
    found: dict[int, bytes] = {}
    at = max(from_queue_offset, queue.min_queue_offset)
    while at < queue.max_queue_offset:
        result = store.get_message(topic, queue_id, at, 32)
        assert result.status is GetMessageStatus.FOUND, f"{topic}/{queue_id} at {at}: {result.status.name}"
        raw = b"".join(result.buffers)
        positions = record_positions(raw)
        for first, end in zip(positions, positions[1:], strict=False):
            assert decode_record(raw, first).queue_offset == at
            found[at] = raw[first:end]
            at += 1
        assert result.next_begin_offset == at
    return found
