"""Whether the files of the index follow each other: one lost among them leaves no other trace.

The first record with keys behind the last one of a file has to be the first of the next file, and the first
one of the log that of the first file, or in it. The log tells which that is, a few records from there.
Not here: which records a file of its own lacks (index_file.py), the full comparison (index_gaps.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kourou.store.index.index_service import IndexService
from kourou.store.log.dispatch_request import DispatchRequest
from kourou.store.log.log_scanner import LogScanner

# Most records have a key. Where so many have none it is not worth reading on at every start.
_MAX_RECORDS: Final = 1000


def keep_linked(index: IndexService, scanner: LogScanner, min_phy_offset: int) -> None:
    """Keep the files up to the first gap; what the others had has to be indexed again."""
    index.keep_first(following_files(index.spans, scanner, min_phy_offset))


def following_files(spans: Sequence[tuple[int, int]], scanner: LogScanner, min_phy_offset: int) -> int:
    """How many files, from the first on, follow each other without a gap.

    `spans` has the phy_offsets of each file's first and last record. Of what lies before
    `min_phy_offset` the log knows nothing any more.
    """
    if spans and _has_keys_between(scanner, min_phy_offset, spans[0][0], is_first_new=True):
        return 0
    for number in range(1, len(spans)):
        end, begin = spans[number - 1][1], spans[number][0]
        if end >= min_phy_offset and _has_keys_between(scanner, end, begin):
            return number
    return len(spans)


def _has_keys_between(
    scanner: LogScanner, phy_offset: int, end_phy_offset: int, *, is_first_new: bool = False
) -> bool:
    """Whether records with keys lie behind the record at `phy_offset`, before the other one; the first counts
    too if it `is_first_new`."""
    for count, found in enumerate(scanner.records(phy_offset, end_phy_offset)):
        if not isinstance(found, DispatchRequest) or count > _MAX_RECORDS:
            return False
        if (count or is_first_new) and found.keys and found.in_index:
            return True
    return False
