"""Records matched in the window, in blocks, from disk; never too many at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.broker.pull.filtered_read import WORK_PER_TURN, RecordMatcher
from kourou.protocol.filter import compile_filter
from kourou.store.message_store import MessageStore
from tests.unit.store.message_stores import StoreKit, faulty, put

Place = tuple[int, int]


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path, commit_log_file_bytes=64 * 1024, consume_queue_file_bytes=20_000 * 20) as kit:
        yield kit


def fill(store: MessageStore, count: int, body: bytes = b"body") -> list[Place]:
    """Messages with n = 0, 1, 2 … as property; where they are."""
    places = []
    for number in range(count):
        before = store.log.max_phy_offset
        result = put(store, body, properties=f"n\x01{number}\x02")
        places.append((result.phy_offset, store.log.max_phy_offset - max(before, result.phy_offset)))
    return places


def matcher_of(store: MessageStore, expression: str) -> RecordMatcher:
    return RecordMatcher(store.log, compile_filter(expression))


@pytest.mark.parametrize("window", [2**20, 0])
def test_records_are_matched_by_their_properties(kit: StoreKit, window: int) -> None:
    store = kit.open(read_window_bytes=window)
    places = fill(store, 100)
    matcher = matcher_of(store, "n BETWEEN 30 AND 32")
    assert [number for number, place in enumerate(places) if matcher(*place)] == [30, 31, 32]


def test_a_block_from_the_page_cache_has_no_bytes_that_are_still_to_be_written(kit: StoreKit) -> None:
    store = kit.open(read_window_bytes=0)
    matcher = matcher_of(store, "n >= 0")
    for place in fill(store, 3):
        assert matcher(*place)
    for place in fill(store, 3):
        assert matcher(*place)


def test_records_over_several_files_are_matched(kit: StoreKit) -> None:
    store = kit.open(read_window_bytes=0)
    places = fill(store, 100, body=bytes(3_000))
    assert len(store.log.log_files) > 3
    matcher = matcher_of(store, "n >= 0")
    for place in places:
        matcher.renew()
        assert matcher(*place)


def test_after_some_work_it_matches_none_until_it_is_renewed(kit: StoreKit) -> None:
    store = kit.open()
    places = fill(store, 400)
    matcher = matcher_of(store, "n < 0")
    verdicts = [matcher(*place) for place in places]
    judged = verdicts.index(None)
    assert judged == pytest.approx(WORK_PER_TURN / 7, abs=1)
    assert verdicts == [False] * judged + [None] * (400 - judged)
    matcher.renew()
    assert matcher(*places[judged]) is False


def test_a_large_program_matches_one_record_at_a_time(kit: StoreKit) -> None:
    store = kit.open()
    places = fill(store, 3)
    matcher = matcher_of(store, " OR ".join(f"n = {number}" for number in range(2_000, 5_000)))
    assert [matcher(*place) for place in places] == [False, None, None]


def test_a_record_on_disk_is_matched_after_loading(kit: StoreKit) -> None:
    store = kit.open(read_window_bytes=0)
    places = fill(store, 10)
    faulty(kit).chill()
    matcher = matcher_of(store, "n = 4")
    assert matcher.cold_file is None
    assert matcher(*places[3]) is None
    log_file = matcher.cold_file
    assert log_file is store.log.log_files[0]
    matcher.load(log_file)
    assert matcher.cold_file is None
    assert [matcher(*place) for place in places[3:6]] == [False, True, False], "and what follows it"


def test_a_place_without_a_record_matches_nothing(kit: StoreKit) -> None:
    store = kit.open(read_window_bytes=0)
    places = fill(store, 2)
    matcher = matcher_of(store, "n >= 0 OR TRUE")
    assert matcher(places[0][0] + 1, places[0][1]) is False
    assert matcher(places[0][0], places[0][1] + 1) is False
    # Beyond the end of its file: never in memory, and cut off on disk.
    end = store.log.log_files[0].end_phy_offset
    assert matcher(end - 10, 100) is None
    assert matcher.cold_file is not None
    matcher.load(matcher.cold_file)
    assert matcher(end - 10, 100) is False


def test_a_reader_stops_where_the_matcher_does(kit: StoreKit) -> None:
    store = kit.open()
    fill(store, 400)
    queue = store.queues.find("orders", 0)
    matcher = matcher_of(store, "n = 5 OR n = 6 OR n = 399")
    first = store.reader.get_message(queue, 0, 32, matcher=matcher)
    assert first.message_count == 2 and 100 < first.next_begin_offset < 399
    found = 0
    at = first.next_begin_offset
    while at < 400:
        matcher.renew()
        part = store.reader.get_message(queue, at, 32, matcher=matcher)
        assert part.next_begin_offset > at
        at, found = part.next_begin_offset, found + part.message_count
    assert found == 1


def test_what_a_pull_has_found_in_earlier_steps_counts(kit: StoreKit) -> None:
    store = kit.open()
    size = fill(store, 400)[0][1]
    queue = store.queues.find("orders", 0)
    matcher = matcher_of(store, "n = 5 OR n > 390")
    first = store.reader.get_message(queue, 0, 3, matcher=matcher)
    assert first.message_count == 1 and not first.is_full

    def rest(max_messages: int, max_bytes: int | None = None) -> tuple[int, bool]:
        found, result = first, None
        while result is None or (not result.is_full and result.next_begin_offset < 400):
            matcher.renew()
            begin = first.next_begin_offset if result is None else result.next_begin_offset
            result = store.reader.get_message(
                queue, begin, max_messages, max_bytes=max_bytes, matcher=matcher, found=found
            )
        return result.message_count, result.is_full

    assert rest(3) == (2, True)
    assert rest(32, 4 * (size + 4)) == (3, True)
    assert rest(1) == (0, True)
    assert rest(32) == (9, False)
