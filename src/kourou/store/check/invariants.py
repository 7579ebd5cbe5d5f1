"""Invariant: what holds in every sound store, each stated once.

`check_store` names the one that a violation breaks; tests and operators read the same list.
"""

from __future__ import annotations

import enum


class Invariant(enum.Enum):
    """The value is the statement."""

    READABLE = "every file of the store can be read"

    LOG_FILE_NAME = "a CommitLog file is named by the offset of its first byte, in 20 digits"
    LOG_FILE_LENGTH = "all CommitLog files have one length"
    LOG_CONTIGUOUS = "CommitLog files follow each other without a gap"
    LOG_RECORD = (
        "a record has a known magic, lengths that add up, a body that matches its CRC, and says where it lies"
    )
    LOG_BLANK = "a CommitLog file that is not the last ends with a blank record up to its end"
    LOG_ZEROS = "only zeros follow the end of the CommitLog"
    LOG_END = "the CommitLog reaches as far as the checkpoint says that it is on disk"

    QUEUE_FILE_NAME = "a ConsumeQueue file is named by the position of its first byte, in 20 digits"
    QUEUE_FILE_LENGTH = "all ConsumeQueue files have one length, a multiple of 20"
    QUEUE_CONTIGUOUS = "the files of a ConsumeQueue follow each other without a gap"
    QUEUE_UNIT = (
        "a unit points at a record of its topic, queue and queue_offset, and has its size and tags code"
    )
    QUEUE_ORDER = "units are in the order of the CommitLog"
    QUEUE_COMPLETE = "every record for consumers has a unit"
    QUEUE_OFFSET_ONCE = "no two records of a queue have one queue_offset"

    INDEX_FILE_LENGTH = "an IndexFile has 40 + 4 x slots + 20 x entries bytes, as many as the others"
    INDEX_HEADER = "an IndexFile's header says what its entries say"
    INDEX_CHAIN = "a slot leads to the newest entry of its hash, and each entry to the one before it"
    INDEX_ORDER = "index entries are in the order of the CommitLog"
    INDEX_ENTRY = "an index entry points at a record that has a key of its hash, and keeps its time"
    INDEX_COMPLETE = "every key of every record is in the index"

    CHECKPOINT = "the checkpoint is whole and not ahead of the CommitLog"
    SNAPSHOT = "the snapshot of the ConsumeQueues is whole"
    CONFIG = "the files in config are JSON"
