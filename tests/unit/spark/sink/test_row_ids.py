"""Ids made by the column are ids as any client makes them, and never the same twice."""

from __future__ import annotations

import time

import pytest

from kourou.protocol.message_id import parse_unique_id
from tests.needed import need_module

need_module("pyarrow")

from kourou.spark.sink.row_ids import RowIds  # noqa: E402  (needs pyarrow)


def texts(ids: RowIds, count: int) -> list[str]:
    return [raw.tobytes().decode() for raw in ids.next_ids(count)]


@pytest.mark.parametrize(("ip", "length"), [("127.0.0.1", 32), ("::1", 56)])
def test_they_are_ids_of_now(ip: str, length: int) -> None:
    before_ms = int(time.time() * 1000)
    found = texts(RowIds(ip), 3)
    parsed = [parse_unique_id(text) for text in found]
    assert {len(text) for text in found} == {length}
    assert [each.counter for each in parsed] == [0, 1, 2]
    now_ms = int(time.time() * 1000)
    assert before_ms <= parsed[0].nearest_time_ms(now_ms + 1) <= now_ms
    assert found == [text.upper() for text in found]


def test_two_columns_of_one_millisecond_differ_and_so_do_two_tasks() -> None:
    ids, others = (RowIds("127.0.0.1", lambda: 1_800_000_000_000) for _ in range(2))
    found = texts(ids, 100) + texts(ids, 100) + texts(others, 100)
    assert len(set(found)) == 300


def test_a_clock_that_goes_back_makes_no_id_twice() -> None:
    clock = iter([1_800_000_000_005, 1_800_000_000_005, 1_800_000_000_001, 1_800_000_000_006])
    ids = RowIds("127.0.0.1", lambda: next(clock))
    assert len({text for _ in range(3) for text in texts(ids, 10)}) == 30


def test_more_rows_than_a_counter_has_numbers() -> None:
    ids = RowIds("127.0.0.1", lambda: 1_800_000_000_000)
    found = texts(ids, 150_000)
    assert len(set(found)) == 150_000
    assert [parse_unique_id(found[row]).counter for row in (65_535, 65_536)] == [65_535, 0]
    assert parse_unique_id(found[255]).counter == 255
    assert not set(texts(ids, 10)) & set(found)
