"""QueueLookup: which queues a source reads, and the offsets that its options specify in each.

Runs on the driver. Not here: which task reads what (planning.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kourou.client.core.namespaces import Namespace
from kourou.errors import ConfigError, KourouError, NoRouteError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.names import is_inner_topic
from kourou.spark.source.data_loss import DataLossError
from kourou.spark.source.offset_spec import OffsetSpec
from kourou.spark.source.offsets import EARLIEST, LATEST, QueueOffsets
from kourou.spark.source.options import SourceOptions
from kourou.spark.source.source_client import Answers, SourceClient
from kourou.wording import nearest


class QueueLookup:
    """Finds the queues and offsets of one source."""

    def __init__(self, client: SourceClient, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        namespace = Namespace.of(options.connection.namespace, options.connection.namesrv)
        # As in queues: a user may write a topic with its namespace.
        self._named_topics = {namespace.unwrap(namespace.wrap(topic)) for topic in options.topics}
        self._named_queues = frozenset(options.queues)

    # -- queues ----------------------------------------------------------------------------------

    def queues(self) -> list[MessageQueue]:
        """All queues to read now. NoRouteError for a named topic that does not exist."""
        topics = self._topics()
        found = self._client.routes(topics)
        if self._options.topic_pattern is None:
            for topic in topics:
                if topic not in found:
                    raise self._unknown(topic)
        queues = sorted(queue for queues in found.values() for queue in queues)
        return self._assigned(queues) if self._options.queues else queues

    def _unknown(self, topic: str) -> NoRouteError:
        # Suggest system topics only for names of that kind.
        is_inner = is_inner_topic(topic)
        near = nearest(
            topic, (name for name in self._client.topic_names() if is_inner_topic(name) == is_inner)
        )
        hint = f" (did you mean {near}?)" if near else ""
        reason = f"the name server does not know it{hint}; create it with `kourou topic create`"
        return NoRouteError(topic, reason)

    def selects(self, queue: MessageQueue) -> bool:
        """Whether the options select a queue, whether or not it exists; no query is made."""
        options = self._options
        if options.queues:
            of_any_broker = MessageQueue(queue.topic, "", queue.queue_id)
            return not self._named_queues.isdisjoint((queue, of_any_broker))
        if options.topic_pattern is None:
            return queue.topic in self._named_topics
        return bool(re.fullmatch(options.topic_pattern, queue.topic)) and self._may_match(queue.topic)

    def _topics(self) -> list[str]:
        options = self._options
        if options.queues:
            return sorted({queue.topic for queue in options.queues})
        if options.topic_pattern is None:
            return list(options.topics)
        matches = re.compile(options.topic_pattern).fullmatch
        return sorted(
            topic for topic in self._client.topic_names() if matches(topic) and self._may_match(topic)
        )

    def _may_match(self, topic: str) -> bool:
        """Whether a pattern may match it: half, delayed and retried messages must be requested."""
        return self._options.include_system_topics or not is_inner_topic(topic)

    def _assigned(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        found = set()
        for wanted in self._options.queues:
            matching = {
                queue
                for queue in queues
                if (queue.topic, queue.queue_id) == (wanted.topic, wanted.queue_id)
                and wanted.broker_name in ("", queue.broker_name)
            }
            if not matching:
                there_are = _list_queues(wanted.topic, queues)
                raise ConfigError(f"option assign: there is no {_describe_queue(wanted)}; {there_are}")
            found |= matching
        return sorted(found)

    # -- positions -------------------------------------------------------------------------------

    def resolve(
        self, queues: Iterable[MessageQueue], spec: OffsetSpec, *, is_end: bool = False
    ) -> QueueOffsets:
        """The offset of a position in each queue. KourouError where a broker does not answer."""
        wanted = list(queues)
        if spec.kind == "earliest":
            return offsets_or_raise(self._client.min_offsets(wanted))
        if spec.kind == "latest":
            return offsets_or_raise(self._client.max_offsets(wanted))
        if spec.kind == "timestamp":
            return offsets_or_raise(self._client.offsets_at(wanted, spec.timestamp_ms))
        word = "endingOffsets" if is_end else "startingOffsets"
        if spec.kind == "timestamps":
            _check_named(spec.timestamps_ms, wanted, f"{word}ByTimestamp")
            return self._by_time(wanted, spec.timestamps_ms, is_end=is_end)
        _check_named(spec.offsets, wanted, word)
        return self._by_queue(wanted, spec.offsets, word, is_end=is_end)

    def _by_time(self, queues: list[MessageQueue], times_ms: QueueOffsets, *, is_end: bool) -> QueueOffsets:
        others = [queue for queue in queues if queue not in times_ms]
        # Queues that are not named are read completely.
        found = offsets_or_raise(
            self._client.max_offsets(others) if is_end else self._client.min_offsets(others)
        )
        for time_ms in set(times_ms.values()):
            named = [queue for queue in queues if times_ms.get(queue) == time_ms]
            found |= offsets_or_raise(self._client.offsets_at(named, time_ms))
        return found

    def _by_queue(
        self, queues: list[MessageQueue], offsets: QueueOffsets, word: str, *, is_end: bool
    ) -> QueueOffsets:
        low = offsets_or_raise(self._client.min_offsets(queues))
        high = offsets_or_raise(self._client.max_offsets(queues))
        words = {EARLIEST: low, LATEST: high}
        found = {}
        for queue in queues:
            # Queues that are not named are read completely.
            offset = offsets.get(queue, LATEST if is_end else EARLIEST)
            found[queue] = (
                words[offset][queue] if offset in words else self._within(queue, offset, high, word)
            )
        return found

    def _within(self, queue: MessageQueue, offset: int, high: QueueOffsets, word: str) -> int:
        if offset <= high[queue] or queue in self._client.slave_ends:
            return offset
        if self._options.fail_on_data_loss:
            raise DataLossError(
                queue,
                high[queue],
                offset,
                f"The option {word} is {offset}, but the queue ends at {high[queue]}",
            )
        return high[queue]


def _check_named(named: Iterable[MessageQueue], queues: list[MessageQueue], option: str) -> None:
    for queue in named:
        if queue not in queues:
            there_are = _list_queues(queue.topic, queues)
            raise ConfigError(f"option {option}: there is no {_describe_queue(queue)} to read; {there_are}")


def offsets_or_raise(answers: Answers) -> QueueOffsets:
    """The offsets, if every broker answered."""
    offsets: QueueOffsets = {}
    for queue, answer in answers.items():
        if isinstance(answer, KourouError):
            raise KourouError(f"{_describe_queue(queue)}: cannot get its offsets: {answer}") from answer
        offsets[queue] = answer
    return offsets


def _describe_queue(queue: MessageQueue) -> str:
    broker = f" of broker {queue.broker_name!r}" if queue.broker_name else ""
    return f"queue {queue.queue_id}{broker}, topic {queue.topic!r}"


def _list_queues(topic: str, queues: Iterable[MessageQueue]) -> str:
    names = [f"{queue.broker_name}/{queue.queue_id}" for queue in queues if queue.topic == topic]
    return f"the topic has {', '.join(names[:20])}" if names else "the topic is not read"
