"""TimerMetrics: how many timer messages wait for each topic, and `config/timermetrics`, which keeps it.

A message counts from when it is entered into the wheel until its slot is emptied; one that recalls
another counts against it. After a start the numbers come from the timer log, which knows topics by their
hash: the file is for Apache, which continues with the numbers in it, and for the version, which
a slave compares.
Not here: the wheel (timer_messages.py), the requests (timer_processor.py).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Final

from kourou.errors import StoreFormatError
from kourou.protocol.bodies.timers import TimerMetric, TimerMetricsSerializeWrapper
from kourou.protocol.bodies.topics import DataVersion
from kourou.protocol.tags import java_hash_code
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import dump_table, load_table
from kourou.store.disk.files import Files

_log = logging.getLogger(__name__)

FILE_NAME: Final = "timermetrics"


class TimerMetrics:
    """Owned by the loop. `is_dirty`: the file does not say what there is."""

    def __init__(self, files: Files, root: Path) -> None:
        self._file = JsonConfigFile(files, root / "config" / FILE_NAME)
        self._topics: dict[int, str] = {}
        # By the hash of the topic, as the units of the timer log have it: how many, and since when.
        self._counts: dict[int, list[int]] = {}
        # The same, since the start: how many were entered, and taken out.
        self._entered: defaultdict[int, int] = defaultdict(int)
        self._left: defaultdict[int, int] = defaultdict(int)
        self._changes = 0
        self._changed_ms = 0
        self.is_dirty = False

    def load(self, counts: Mapping[int, int], topics: Iterable[str], now_ms: int) -> None:
        """Begin with what waits, by the hash of its topic, which is one of `topics`. Waits for the disk."""
        stored = self._load_file()
        self._changes, self._changed_ms = stored.data_version.counter, stored.data_version.timestamp
        self._topics = {java_hash_code(topic): topic for topic in (*stored.timing_count, *topics)}
        for topic_hash, count in counts.items():
            self._counts[topic_hash] = [count, now_ms]
        for topic, metric in stored.timing_count.items():
            topic_hash = java_hash_code(topic)
            count = counts.get(topic_hash, 0)
            self._counts[topic_hash] = [count, metric.time_stamp if metric.count == count else now_ms]

    def _load_file(self) -> TimerMetricsSerializeWrapper:
        try:
            stored = self._file.load_as(lambda raw: load_table(raw, TimerMetricsSerializeWrapper))
        except StoreFormatError as error:  # nothing is lost with it
            _log.warning("%s; it is written anew", error)
            stored = None
        return stored or TimerMetricsSerializeWrapper()

    def entered(self, topic: str, count: int, now_ms: int) -> None:
        """So many more wait for a topic, or less."""
        topic_hash = java_hash_code(topic)
        self._topics.setdefault(topic_hash, topic)
        self._entered[topic_hash] += count
        self._add(topic_hash, count, now_ms)

    def left(self, topic_hash: int, count: int, now_ms: int) -> None:
        """So many were taken out, of a topic by its hash; less than none: recalled ones were."""
        self._left[topic_hash] += count
        self._add(topic_hash, -count, now_ms)

    def _add(self, topic_hash: int, count: int, now_ms: int) -> None:
        metric = self._counts.setdefault(topic_hash, [0, 0])
        metric[0] += count
        metric[1] = self._changed_ms = now_ms
        self._changes += 1
        self.is_dirty = True

    def totals(self, known: Container[str]) -> dict[str, tuple[int, int]]:
        """How many were entered and taken out since the start, of topics that are not deleted."""
        return {
            topic: (entered, self._left[topic_hash])
            for topic_hash, entered in self._entered.items()
            if (topic := self._topics.get(topic_hash)) is not None and topic in known
        }

    def snapshot(self, known: Container[str]) -> TimerMetricsSerializeWrapper:
        """What there is now, of topics that are not deleted."""
        counts = {
            topic: TimerMetric(*metric)
            for topic_hash, metric in self._counts.items()
            if (topic := self._topics.get(topic_hash)) is not None and topic in known
        }
        version = DataVersion(timestamp=self._changed_ms, counter=self._changes)
        return TimerMetricsSerializeWrapper(counts, version)

    def store(self, snapshot: TimerMetricsSerializeWrapper) -> None:
        """Write the file; on disk on return. In any thread."""
        self._file.store(dump_table(snapshot))
