"""Positions: the progress of a reader in each queue, and its JSON in Spark's checkpoints.

A position is the offset of the next message to read. As JSON:

    {"version": 1, "offsets": {"orders": {"broker-a": {"0": 17, "1": 4}}}}

A batch's end may also have `began`: where the batch begins in queues that its start does not contain, because
they are new or it is the first batch. So a replanned batch is the same batch, whatever happened since. Keys
are sorted: Spark compares the text. Positions of later versions are rejected with a clear message; unknown
fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue

VERSION: Final = 1
EARLIEST: Final = -2
"""In options: from the first stored message (Kafka's number for it)."""
LATEST: Final = -1
"""In options: from the end."""
OFFSETS_FORM: Final = '{"topic": {"broker-a": {"0": 17, "1": "earliest"}}}'
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}

QueueOffsets = dict[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class Positions:
    """The next offset to read of each queue; `began`: see above. `is_initial`: no batch was read."""

    offsets: QueueOffsets
    began: QueueOffsets = field(default_factory=dict)
    is_initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """The content of Spark's checkpoint."""
        content: dict[str, Any] = {"version": VERSION, "offsets": nested(self.offsets)}
        if self.began:
            content["began"] = nested(self.began)
        if self.is_initial:
            content["initial"] = True
        return content

    @classmethod
    def from_json(cls, content: Any) -> Positions:
        """Parse the output of `to_json`, of this or an earlier version; ConfigError for anything else."""
        if not isinstance(content, dict) or not isinstance(content.get("version"), int):
            raise ConfigError(
                f"the checkpoint's offsets are not those of a rocketmq source: {content!r:.200}"
            )
        if content["version"] > VERSION:
            raise ConfigError(
                f"the checkpoint was written by a later version of kourou: its offsets have version "
                f"{content['version']}, this one reads up to {VERSION}; upgrade, or use another checkpoint"
            )
        try:
            offsets = flat(content["offsets"], _stored_offset)
            began = flat(content.get("began", {}), _stored_offset)
        except (KeyError, ValueError) as error:
            raise ConfigError(f"the checkpoint's offsets cannot be read: {error}") from error
        return cls(offsets, began, bool(content.get("initial", False)))

    def batch_begin(self, end: Positions) -> QueueOffsets:
        """Where the batch from here to `end` begins, for each queue of `end`."""
        return {
            queue: end.began.get(queue, self.offsets.get(queue, end_offset))
            for queue, end_offset in end.offsets.items()
        }


def nested(offsets: Mapping[MessageQueue, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """By topic, broker and queue id, sorted."""
    tree: dict[str, dict[str, dict[str, Any]]] = {}
    for queue in sorted(offsets, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id)):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return tree


def flat(tree: Any, number: Callable[[Any, str], int], form: str = OFFSETS_FORM) -> QueueOffsets:
    """The inverse of `nested`. `number` converts the value of a queue, given a description of the queue;
    ValueError describes the problem."""
    offsets: QueueOffsets = {}
    for topic, brokers in _object(tree, "the whole", form).items():
        for broker_name, queues in _object(brokers, f"topic {topic!r}", form).items():
            of_broker = _object(queues, f"broker {broker_name!r} of topic {topic!r}", form)
            for queue_id, value in of_broker.items():
                where = f"queue {queue_id!r} of broker {broker_name!r}, topic {topic!r}"
                if not queue_id.isascii() or not queue_id.isdigit():
                    raise ValueError(f"{where}: a queue id must be a number from 0")
                queue = MessageQueue(topic, broker_name, int(queue_id))
                offsets[queue] = number(value, where)
    return offsets


def parse_offsets(text: str) -> QueueOffsets:
    """Offsets from an option's JSON, which may contain `earliest` and `latest`. Raises ValueError."""
    return parse_by_queue(text, _requested_offset, OFFSETS_FORM)


def parse_by_queue(text: str, number: Callable[[Any, str], int], form: str) -> QueueOffsets:
    """A number for each queue from an option's JSON of this form. Raises ValueError."""
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    found = flat(tree, number, form)
    if not found:
        raise ValueError(f"no queue is named; the format is {form}")
    return found


def _object(value: Any, what: str, form: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what}: found {value!r:.80}; the format is {form}")
    return value


def _requested_offset(value: Any, where: str) -> int:
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    return _offset(value, where, EARLIEST, ", or earliest (-2) or latest (-1)")


def _stored_offset(value: Any, where: str) -> int:
    return _offset(value, where, 0)


def _offset(value: Any, where: str, low: int, more: str = "") -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value < 1 << 63:
        raise ValueError(f"{where}: {value!r:.80} is not an offset; use a number from 0{more}")
    return value
