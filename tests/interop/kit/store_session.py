"""StoreSession: Apache's Java client reads all that a broker has, and adds messages to it.

One JVM per version serves a whole test module, over restarts of the broker. Messages come as dictionaries of
their fields, under the names of StoreSession.java; store_writer.py makes the same of what we wrote.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.interop.kit.java_session import JavaSession

Fields: TypeAlias = dict[str, Any]
"""A message: field names to values."""

_ANSWER_TIMEOUT_S: Final = 90


class StoreCommandFailed(RuntimeError):
    """The Java client threw; the message is its exception."""


class StoreSession(JavaSession):
    """Apache's clients of a version; `connect` comes first, and again after each start of the broker."""

    def __init__(self, version: str, work_dir: Path) -> None:
        super().__init__(f"server-{version}", "StoreSession", work_dir)

    def connect(self, namesrv: str, broker: str, broker_name: str, topic: str) -> None:
        """Wait until the broker at this address is registered and serves `topic`."""
        self._ask("connect", namesrv, broker, broker_name, topic)

    def read_queue(self, topic: str, queue_id: int) -> Fields:
        """`min`, `max`, `earliest` (store time) and all `messages`; `stopped` where a pull found none."""
        answer: Fields = self._ask("queue", topic, queue_id)
        return answer

    def view(self, topic: str, offset_msg_id: str) -> Fields:
        """The message with this offset id."""
        message: Fields = self._ask("view", topic, offset_msg_id)
        return message

    def query(self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int) -> list[Fields]:
        """Messages by key; none where there are none."""
        messages: list[Fields] = self._ask("key", topic, key, max_messages, begin_ms, end_ms)
        return messages

    def query_unique(self, topic: str, unique_id: str) -> list[Fields]:
        """Messages by unique id."""
        messages: list[Fields] = self._ask("unique", topic, unique_id)
        return messages

    def search_offset(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The queue offset for a time."""
        return int(self._ask("time", topic, queue_id, timestamp))

    def progress(self, group: str) -> dict[tuple[str, int], int]:
        """The consumer offset of a group in each queue; -1 where it has none."""
        offsets: dict[str, int] = self._ask("progress", group)
        words = {name.rpartition(" "): consumer_offset for name, consumer_offset in offsets.items()}
        return {(topic, int(queue_id)): found for (topic, _, queue_id), found in words.items()}

    def tables(self) -> dict[str, dict[str, Any]]:
        """`topics` (read and write queues, perm, order), `groups` (enabled, retry queues, retry times) and
        `running`, the broker's figures."""
        tables: dict[str, dict[str, Any]] = self._ask("tables")
        return tables

    def send(self, topic: str, count: int, size_bytes: int) -> list[Fields]:
        """Send one by one to all queues in turn."""
        return self._sent("send", topic, count, size_bytes)

    def send_batch(self, topic: str, count: int, size_bytes: int) -> list[Fields]:
        """Send as one batch."""
        return self._sent("batch", topic, count, size_bytes)

    def send_delayed(self, topic: str, count: int, level: int) -> list[Fields]:
        """Send with a delay level; queue and queue offset in the result are of no use."""
        return self._sent("delay", topic, count, level)

    def commit_transactions(self, group: str, topic: str) -> None:
        """Be a producer of this group that, when the broker of `topic` asks, commits."""
        self._ask("commit", group, topic)

    def _sent(self, *words: object) -> list[Fields]:
        sent: list[Fields] = self._ask(*words)
        failed = [message for message in sent if message["status"] != "SEND_OK"]
        assert not failed, failed
        return sent

    def _ask(self, *words: object) -> Any:
        self._send_line("\t".join(map(str, words)))
        answer = json.loads(self._next_line(_ANSWER_TIMEOUT_S))
        if "error" in answer:
            raise StoreCommandFailed(f"{' '.join(map(str, words))}: {answer['error']}")
        return answer["answer"]
