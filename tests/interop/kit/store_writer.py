"""StoreWriter: fills a store as a broker would, and remembers each message as a client must read it.

Ordinary messages, batches, retries, delayed and transaction messages with the properties that a broker gives
them, in passes; the store's clock moves with each pass. Not here: reading, and Apache (test_store.py).
"""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kourou.protocol.batch import BatchEntry
from kourou.protocol.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import encode_host, host_text, offset_msg_id
from kourou.protocol.properties import encode_properties
from kourou.protocol.tags import tags_code
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    SubscriptionGroupTable,
    TopicConfigTable,
    dump_table,
)
from kourou.store.delay_levels import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC, deliver_timestamp
from kourou.store.disk.files import Files
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from tests.interop.kit.store_session import Fields

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PRODUCER_GROUP: Final = "interop-transactions"
GROUP: Final = "interop-group"
RETRY_TOPIC: Final = f"%RETRY%{GROUP}"
BUSY_TOPIC: Final = "BusyTopic"  # more units than a ConsumeQueue file holds
PLAIN_TOPIC: Final = "PlainTopic"
DELAY_TARGET: Final = "DelayTarget"
COMMIT_TARGET: Final = "CommitTarget"
LATE_TOPIC: Final = "LateTopic"  # nothing in it until Apache sends
QUEUES: Final[dict[str, int]] = {
    BUSY_TOPIC: 2,
    PLAIN_TOPIC: 4,
    "%odd|name%": 4,
    "L" * 127: 1,
    DELAY_TARGET: 1,
    COMMIT_TARGET: 1,
    LATE_TOPIC: 4,
    RETRY_TOPIC: 1,
    SCHEDULE_TOPIC: 18,
    HALF_TOPIC: 1,
    OP_HALF_TOPIC: 1,
}
"""Every topic and how many queues it has."""

OFFSETS: Final = {(PLAIN_TOPIC, 0): 17, (PLAIN_TOPIC, 3): 4, (BUSY_TOPIC, 1): 222, (RETRY_TOPIC, 0): 1}
"""What the group has consumed."""

DELAY_OFFSETS: Final = {17: 1, 18: 2}
"""Where delivery of the highest delay levels goes on; level 1 has not begun."""

_BORN_V4: Final = encode_host("127.0.0.1", 54321)
_BORN_V6: Final = encode_host("fe80::1", 54321)
_COMPRESSED: Final = 0x1
_PREPARED, _COMMIT, _ROLLBACK = 0x4, 0x8, 0xC


class StoreWriter:
    """Writes to one store after the other, of the same folder. `messages` is all that a queue has to hold, by
    topic and queue id; `unlisted` what is in the log alone."""

    def __init__(self, store_host: bytes, now_ms: int) -> None:
        self._store_host = store_host
        self._random = random.Random(20261115)
        self._numbers = iter(range(1, 1_000_000))
        self.now_ms = now_ms
        self.messages: dict[tuple[str, int], list[Fields]] = {}
        self.unlisted: list[Fields] = []

    def write_all(self, store: MessageStore, *, busy_messages: int, plain_step_ms: int) -> None:
        """Some of everything; at the end all of it is in the page cache and published."""
        self._store = store
        self._store.begin_cycle()
        self._write_busy(busy_messages)
        self._write_plain(plain_step_ms)
        self._write_batches()
        self._write_odd()
        self._write_delayed()
        self._write_transactions()
        self._write_old_transactions()
        self._write_retry()

    # -- kinds of messages -----------------------------------------------------------------------------------

    def _write_busy(self, count: int) -> None:
        for number in range(count):
            body = self._random.randbytes(self._random.randrange(40, 400))
            self._put(BUSY_TOPIC, number % 2, body, {"TAGS": "busy", "KEYS": f"busy-{number}"})
            if self._random.random() < 0.1:
                self._end_pass()
        self._end_pass()

    def _write_plain(self, step_ms: int) -> None:
        for number in range(60):
            tags, keys = f"Tag{number % 3}", f"order-{number} shared-key"
            properties = {"TAGS": tags, "KEYS": keys, "WAIT": "true", "number": str(number)}
            self._put(PLAIN_TOPIC, number % 4, f"plain {number}".encode() * number, properties, flag=number)
            self._end_pass(step_ms)

    def _write_batches(self) -> None:
        for _ in range(3):
            self._put_batch(PLAIN_TOPIC, 2, [self._random.randbytes(700) for _ in range(20)])
            self._end_pass()

    def _write_odd(self) -> None:
        for topic in ("%odd|name%", "L" * 127):
            self._put(topic, 0, b"", {"KEYS": "nothing-in-it"})
            self._put(topic, 0, b"no properties", {}, unique=False)
            self._put(topic, 0, self._random.randbytes(100_000), {"TAGS": "large"})
            self._put(topic, 0, b"from afar", {"KEYS": "东京 ключ", "TAGS": "标签"}, born_host=_BORN_V6)
            text = b"compressed " * 500
            self._put(topic, 0, zlib.compress(text), {"größe": "ärger"}, sys_flag=_COMPRESSED, inflated=text)
            self._put(topic, 0, b"x", {"TAGS": "long", "long": "p" * 30_000})
        self._end_pass()

    def _write_delayed(self) -> None:
        """Two that are due, more that are not: level 1 is a second, level 17 an hour, level 18 two."""
        for level, count in ((1, 2), (17, 3), (18, 4)):
            for number in range(count):
                properties = {
                    "TAGS": "delayed",
                    "KEYS": f"delayed-{level}",
                    "DELAY": str(level),
                    "REAL_TOPIC": DELAY_TARGET,
                    "REAL_QID": "0",
                }
                due = deliver_timestamp(DEFAULT_DELAY_LEVELS, level, self.now_ms)
                body = f"delayed by level {level}, {number}".encode()
                self._put(SCHEDULE_TOPIC, level - 1, body, properties, tags=due)
            self._end_pass()

    def _write_transactions(self) -> None:
        """Two half messages; the op record says that the first one has ended."""
        first_offset = len(self.messages.get((HALF_TOPIC, 0), ()))
        for word in ("ended", "open"):
            properties = {
                "TRAN_MSG": "true",
                "PGROUP": PRODUCER_GROUP,
                "REAL_TOPIC": COMMIT_TARGET,
                "REAL_QID": "0",
                "TAGS": "tx",
            }
            self._put(HALF_TOPIC, 0, f"half {first_offset}, {word}".encode(), properties)
        self._put(OP_HALF_TOPIC, 0, str(first_offset).encode(), {"TAGS": "d"}, unique=False)
        self._end_pass()

    def _write_old_transactions(self) -> None:
        """Records of the way before half topics: a prepared one and a rollback lie in the log alone."""
        prepared = self._put(PLAIN_TOPIC, 1, b"old, prepared", {"KEYS": "old-prepared"}, sys_flag=_PREPARED)
        self._end_pass()
        options = {"prepared_phy_offset": prepared["phyOffset"]}
        self._put(PLAIN_TOPIC, 1, b"old, committed", {"KEYS": "old-commit"}, sys_flag=_COMMIT, **options)
        self._put(PLAIN_TOPIC, 1, b"", {"KEYS": "old-rollback"}, sys_flag=_ROLLBACK, **options)
        self._end_pass()

    def _write_retry(self) -> None:
        for times in (1, 2):
            properties = {
                "RETRY_TOPIC": PLAIN_TOPIC,
                "ORIGIN_MESSAGE_ID": "7F0000010000000000000000000000AA",
            }
            self._put(RETRY_TOPIC, 0, f"again, {times}".encode(), properties, reconsume_times=times)
        self._end_pass()

    # -- one message -----------------------------------------------------------------------------------------

    def _put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: Mapping[str, str],
        *,
        tags: int | None = None,
        unique: bool = True,
        inflated: bytes | None = None,
        born_host: bytes = _BORN_V4,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
        prepared_phy_offset: int = 0,
    ) -> Fields:
        """Leave a message pending; its fields, complete when the pass has ended."""
        full = {**properties, "UNIQ_KEY": self._unique_id()} if unique else dict(properties)
        message = self._fields(topic, queue_id, body if inflated is None else inflated, full, born_host)
        message.update(sysFlag=sys_flag | (0x10 if len(born_host) > 8 else 0), flag=flag)
        message.update(reconsumeTimes=reconsume_times, preparedTransactionOffset=prepared_phy_offset)
        message["bodyCrc"] = zlib.crc32(body) & 0x7FFFFFFF
        keys = [word for word in (full.get("UNIQ_KEY"), *full.get("KEYS", "").split(" ")) if word]
        self._store.appender.put(
            self._store.queue(topic, queue_id),
            body,
            encode_properties(full).encode(),
            tags_code=tags_code(full.get("TAGS")) if tags is None else tags,
            keys=keys,
            born_timestamp=message["bornTimestamp"],
            born_host=born_host,
            sys_flag=sys_flag,
            flag=flag,
            reconsume_times=reconsume_times,
            prepared_phy_offset=prepared_phy_offset,
            done=self._stored(message),
        )
        return message

    def _put_batch(self, topic: str, queue_id: int, bodies: Sequence[bytes]) -> None:
        messages = []
        entries = []
        for number, body in enumerate(bodies):
            properties = {"KEYS": f"batch-{number}", "TAGS": "batch", "UNIQ_KEY": self._unique_id()}
            messages.append(self._fields(topic, queue_id, body, properties, _BORN_V4))
            entries.append(BatchEntry(number, body, encode_properties(properties).encode()))
            messages[-1].update(flag=number, sysFlag=0, reconsumeTimes=0, preparedTransactionOffset=0)
            messages[-1]["bodyCrc"] = zlib.crc32(body) & 0x7FFFFFFF

        def stored(status: PutStatus, phy_offsets: Sequence[int], first_queue_offset: int) -> None:
            for number, (message, phy_offset) in enumerate(zip(messages, phy_offsets, strict=True)):
                self._stored(message)(status, phy_offset, first_queue_offset + number)

        born_timestamp = messages[0]["bornTimestamp"]
        queue = self._store.queue(topic, queue_id)
        self._store.appender.put_many(
            queue, entries, born_timestamp=born_timestamp, born_host=_BORN_V4, done=stored
        )

    def _fields(
        self, topic: str, queue_id: int, body: bytes, properties: Mapping[str, str], born_host: bytes
    ) -> Fields:
        return {
            "topic": topic,
            "queueId": queue_id,
            "bodySha256": hashlib.sha256(body).hexdigest(),
            "bornTimestamp": self.now_ms - 5,
            "bornHost": _java_host(born_host),
            "storeTimestamp": self.now_ms,
            "storeHost": _java_host(self._store_host),
            "properties": dict(properties),
        }

    def _stored(self, message: Fields) -> Callable[[PutStatus, int, int], None]:
        def stored(status: PutStatus, phy_offset: int, queue_offset: int) -> None:
            assert status is PutStatus.PUT_OK, status
            message["phyOffset"] = phy_offset
            message["queueOffset"] = queue_offset
            message["offsetMsgId"] = offset_msg_id(self._store_host, phy_offset)
            message["msgId"] = message["properties"].get("UNIQ_KEY", message["offsetMsgId"])
            if message["sysFlag"] & 0xC in (_PREPARED, _ROLLBACK):
                self.unlisted.append(message)
            else:
                self.messages.setdefault((message["topic"], message["queueId"]), []).append(message)

        return stored

    def _end_pass(self, step_ms: int = 3) -> None:
        self._store.write_and_publish()
        self.now_ms += step_ms
        self._store.begin_cycle()

    def _unique_id(self) -> str:
        return f"7F00000100014B4F55524F55{next(self._numbers):08X}"


def _java_host(host: bytes) -> str:
    """As StoreSession.java prints an address: `127.0.0.1 10911`, IPv6 without shortening."""
    port = int.from_bytes(host[-4:], "big")
    if len(host) == 8:
        return f"{host_text(host).rpartition(':')[0]} {port}"
    groups = (host[at : at + 2].hex().lstrip("0") or "0" for at in range(0, 16, 2))
    return f"{':'.join(groups)} {port}"


def fields_of(message: MessageExt) -> Fields:
    """What our own store read, in the same form."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "phyOffset": message.phy_offset,
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
        "bodyCrc": message.body_crc,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": _java_host(message.raw_born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": _java_host(message.raw_store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "properties": dict(message.properties),
    }


def write_config(files: Files, root: Path, now_ms: int) -> None:
    """Topics, groups, consumer offsets and delay offsets in `config/`; on disk on return."""
    version = DataVersion(timestamp=now_ms, counter=3)
    topics = {
        topic: TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
        for topic, count in QUEUES.items()
    }
    groups = {GROUP: SubscriptionGroupConfig(group_name=GROUP, retry_max_times=7)}
    offsets: dict[str, dict[int, int]] = {}
    for (topic, queue_id), consumer_offset in OFFSETS.items():
        offsets.setdefault(f"{topic}@{GROUP}", {})[queue_id] = consumer_offset
    tables = {
        "topics.json": TopicConfigTable(topic_config_table=topics, data_version=version),
        "subscriptionGroup.json": SubscriptionGroupTable(
            subscription_group_table=groups, data_version=version
        ),
        "consumerOffset.json": ConsumerOffsetTable(offset_table=offsets, data_version=version),
        "delayOffset.json": DelayOffsetTable(offset_table=DELAY_OFFSETS, data_version=version),
    }
    for name, table in tables.items():
        JsonConfigFile(files, root / "config" / name).store(dump_table(table))
