"""The store source: messages straight from CommitLog files, ours or Apache's, without a broker.

A task reads the records that start within its part of one file. Where a part begins inside a file, the first
record is found by its magic and by the position that every record carries. Messages that a broker would no
longer serve, or not yet, are included. Not here: which files a store has (store_layout.py).
"""

from __future__ import annotations

import glob
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from kourou.client.core.subscription import subscription_data
from kourou.errors import ConfigError, DamageError
from kourou.protocol.layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODES,
    MIN_RECORD_BYTES,
    RECORD,
)
from kourou.protocol.names import is_inner_topic
from kourou.protocol.record_fields import RAW_MAGIC_CODES, record_mark, record_phy_offset
from kourou.protocol.record_spans import Bools, RecordSpans, leading_bounds
from kourou.spark.source.arrow_batches import BatchBuilder
from kourou.spark.source.arrow_pieces import pieces
from kourou.spark.source.options import SourceOptions
from kourou.spark.worker_process import make_worker_ready
from kourou.store.disk.files import Files, OpenFile
from kourou.store.kernel import choose_kernel
from kourou.store.log.body_crcs import crcs_match
from kourou.store.store_layout import SegmentFile, find_layout

_log = logging.getLogger(__name__)

_PART_BYTES: Final = 128 * 1024 * 1024
"""A task's share of the log, the same as Spark's for other files."""
_SEARCH_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_SEARCH_BYTES + RECORD.end("phy_offset"))
"""The unit of searching: large enough that a record's position is complete where its magic is."""
_MAX_RECORD_BYTES: Final = 128 * 1024 * 1024
_MAGIC_POS: Final = RECORD.at("magic")


class StorePartition(InputPartition):
    """The records of one file that start in the bytes `begin` (inclusive) to `end` (exclusive). There is no
    data after `data_end`."""

    def __init__(
        self, path: str, file_start: int, begin: int, end: int, data_end: int, *, is_last: bool
    ) -> None:
        self.path = path
        self.file_start = file_start
        self.begin = begin
        self.end = end
        self.data_end = data_end
        self.is_last = is_last


def plan_store(options: SourceOptions) -> Iterator[StorePartition]:
    """The parts of all log files of all stores in the option."""
    files = Files()
    found = [_written(files, find_layout(files, root).log_files) for root in _roots(options.store or "")]
    total_bytes = sum(file.length for log_files in found for file in log_files)
    part_bytes = max(1, min(_PART_BYTES, total_bytes // (options.min_partitions or 1)))
    for log_files in found:
        for file in log_files:
            yield from _parts(file, _data_end(files, file), part_bytes, is_last=file is log_files[-1])


def _roots(pattern: str) -> list[Path]:
    if not glob.has_magic(pattern):
        return [Path(pattern)]
    roots = [Path(name) for name in sorted(glob.glob(pattern)) if Path(name).is_dir()]
    if not roots:
        raise ConfigError(f"option store={pattern!r}: no matching directory")
    return roots


def _written(files: Files, log_files: list[SegmentFile]) -> list[SegmentFile]:
    """Without preallocated files at the end that have no record yet."""
    written = list(log_files)
    while written:
        with files.open(written[-1].path, writable=False) as file:
            if any(file.pread(min(MIN_RECORD_BYTES, file.length()), 0)):
                break
        written.pop()
    return written


def _data_end(files: Files, file: SegmentFile) -> int:
    """A preallocated file has only zeros after its data. Determined once, not by every task: it may take
    long."""
    with files.open(file.path, writable=False) as opened:
        return min(opened.length(), opened.data_end())


def _parts(file: SegmentFile, data_end: int, part_bytes: int, *, is_last: bool) -> Iterator[StorePartition]:
    for begin in range(0, data_end, part_bytes):
        end = min(begin + part_bytes, data_end)
        yield StorePartition(str(file.path), file.start, begin, end, data_end, is_last=is_last)


def read_store(options: SourceOptions, builder: BatchBuilder, part: StorePartition) -> Iterator[Any]:
    """Arrow batches of the matching records of one part. DamageError where the log is damaged, unless
    `failOnDataLoss` is off: then reading continues after the damage."""
    make_worker_ready()
    wanted = _RecordFilter(options)
    with Files().open(Path(part.path), writable=False) as file:
        for records in _PartReader(file, part, options).records():
            chosen = records.select(wanted.rows(records))
            if len(chosen):
                same = chosen.same_topic
                topic = None if same is None else same.decode("utf-8", "replace")
                yield from builder.batches(chosen, topic=topic, tags=wanted.tags)


class _RecordFilter:
    """Selects records by topic and time."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._matches = re.compile(options.topic_pattern or ".*", re.DOTALL).fullmatch
        self._known: dict[bytes, bool] = {}
        expression = options.expression if options.is_filtered else "*"
        self.tags = frozenset(subscription_data("any", expression).tags_set)

    def rows(self, records: RecordSpans) -> Bools:
        """A mask of the matching records."""
        chosen = self._of_topics(records)
        starting, ending = self._options.starting, self._options.ending
        if starting is not None and starting.kind == "timestamp":
            chosen &= records.store_timestamps >= starting.timestamp_ms
        if ending.kind == "timestamp":
            chosen &= records.store_timestamps < ending.timestamp_ms
        return chosen

    def _of_topics(self, records: RecordSpans) -> Bools:
        topic = records.same_topic
        if topic is not None:
            return np.full(len(records), self._is_wanted(topic))
        topics = pieces(records.raw, records.topic_begins, records.topic_ends, pa.binary())
        names = [each for each in pc.unique(topics).to_pylist() if self._is_wanted(each)]
        found = pc.is_in(topics, value_set=pa.array(names, pa.binary()))
        chosen: Bools = found.to_numpy(zero_copy_only=False).astype(np.bool_)
        return chosen

    def _is_wanted(self, raw_topic: bytes) -> bool:
        known = self._known.get(raw_topic)
        if known is None:
            known = self._known[raw_topic] = self._fits(raw_topic.decode("utf-8", "replace"))
        return known

    def _fits(self, topic: str) -> bool:
        if self._options.topics:
            return topic in self._options.topics
        may_be = self._options.include_system_topics or not is_inner_topic(topic)
        return may_be and self._matches(topic) is not None


class _PartReader:
    def __init__(self, file: OpenFile, part: StorePartition, options: SourceOptions) -> None:
        self._file = file
        self._part = part
        self._options = options
        self._kernel = choose_kernel().kernel
        self._length = min(file.length(), part.data_end)

    def records(self) -> Iterator[RecordSpans]:
        """All records of the part, in order."""
        part = self._part
        at: int | None = part.begin
        if part.begin:
            at = self._find(part.begin, part.end)
        size_bytes = self._options.batch_bytes
        while at is not None and at < part.end:
            raw = self._file.pread(max(0, min(size_bytes, self._length - at)), at)
            records = self._leading(raw, at)
            if len(records):
                yield self._checked(records, at)
                at, size_bytes = at + int(records.ends[-1]), self._options.batch_bytes
            elif self._is_cut_off(raw, at):
                size_bytes = min(record_mark(raw)[0], _MAX_RECORD_BYTES)
            else:
                at = self._behind(raw, at)

    def _leading(self, raw: bytes, at: int) -> RecordSpans:
        """The valid records at the start of `raw`, which was read at `at`, that start within the part."""
        bounds = leading_bounds(raw)
        records = RecordSpans(raw, bounds[:-1], bounds[1:])
        is_valid = records.lengths_fit & (
            records.field("phy_offset") == self._part.file_start + at + records.starts
        )
        is_valid &= records.starts + at < self._part.end
        return records.select(slice(0, len(is_valid) if is_valid.all() else int(is_valid.argmin())))

    def _is_cut_off(self, raw: bytes, at: int) -> bool:
        """Whether a record starts here that more bytes would complete."""
        if len(raw) < RECORD.end("phy_offset"):
            return False
        size, magic = record_mark(raw)
        if magic not in MESSAGE_MAGIC_CODES:
            return False
        return record_phy_offset(raw) == self._part.file_start + at and len(raw) < size <= min(
            self._length - at, _MAX_RECORD_BYTES
        )

    def _behind(self, raw: bytes, at: int) -> int | None:
        """Where to continue if there is no record; None at the end of the log or part."""
        if len(raw) < BLANK.size or record_mark(raw)[1] == BLANK_MAGIC_CODE:
            return None
        following = self._find(at + 1, self._length)
        if following is None and self._part.is_last:
            if any(raw[:MIN_RECORD_BYTES]):
                _log.warning("%s: ends at byte %d with an incomplete record", self._part.path, at)
            return None
        self._damage(at, "no valid record")
        return following

    def _find(self, begin: int, end: int) -> int | None:
        """The first record that starts between `begin` (inclusive) and `end` (exclusive)."""
        for base in range(begin, end, _SEARCH_BYTES):
            raw = self._file.pread(max(0, min(len(_ZEROS), self._length - base)), base)
            if raw == (_ZEROS if len(raw) == len(_ZEROS) else bytes(len(raw))):
                continue  # a preallocated file may have many of them
            last = min(_SEARCH_BYTES, end - base)
            starts = [start for start in self._candidates(raw, base) if start < last]
            if starts:
                return base + min(starts)
        return None

    def _candidates(self, raw: bytes, base: int) -> Iterator[int]:
        """Where `raw`, which was read at `base`, has a magic and a matching position; the first for each
        magic."""
        for magic in RAW_MAGIC_CODES:
            found = raw.find(magic, _MAGIC_POS)
            while found >= 0:
                start = found - _MAGIC_POS
                is_whole = start + RECORD.end("phy_offset") <= len(raw)
                if is_whole and record_phy_offset(raw, start) == self._part.file_start + base + start:
                    yield start
                    break
                found = raw.find(magic, found + 1)

    def _checked(self, records: RecordSpans, at: int) -> RecordSpans:
        """The records whose bodies match their CRC."""
        if not self._options.verify_crc:
            return records
        is_right = crcs_match(records, kernel=self._kernel)
        if is_right.all():
            return records
        self._damage(at + int(records.starts[is_right.argmin()]), "a body does not match its CRC")
        return records.select(is_right)

    def _damage(self, position: int, reason: str) -> None:
        error = DamageError(Path(self._part.path), position, reason)
        if self._options.fail_on_data_loss:
            raise error
        _log.warning("%s; skipped", error)
