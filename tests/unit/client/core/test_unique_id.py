"""Unique ids: their parts, threads, and what a fork does to them."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from kourou.client.core.unique_id import UniqueIds, shared_unique_ids
from kourou.protocol.message_id import parse_unique_id


def test_an_id_contains_address_process_and_time() -> None:
    before_ms = int(time.time() * 1000)
    parsed = parse_unique_id(UniqueIds(ip="10.1.2.3").next_id())
    after_ms = int(time.time() * 1000)
    assert parsed.ip == bytes([10, 1, 2, 3])
    assert parsed.pid == os.getpid() & 0xFFFF
    assert before_ms <= parsed.nearest_time_ms(after_ms + 1) <= after_ms


def test_ids_count_up_within_a_millisecond() -> None:
    ids = UniqueIds(ip="127.0.0.1", now_ms=lambda: 1_794_711_773_372)
    counters = [parse_unique_id(ids.next_id()).counter for _ in range(3)]
    assert counters == [counters[0], counters[0] + 1, counters[0] + 2]


def test_threads_never_get_the_same_id() -> None:
    ids = UniqueIds(ip="127.0.0.1")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: [ids.next_id() for _ in range(2_000)], range(8)))
    assert len({each for part in made for each in part}) == 16_000


def test_two_generators_of_one_process_differ() -> None:
    first, second = UniqueIds(ip="127.0.0.1"), UniqueIds(ip="127.0.0.1")
    assert parse_unique_id(first.next_id())[2] != parse_unique_id(second.next_id())[2]
    assert shared_unique_ids() is shared_unique_ids()


def test_an_ipv6_address_makes_longer_ids() -> None:
    assert len(UniqueIds(ip="2001:db8::1").next_id()) == 56


def test_the_time_moves_on_and_the_counter_wraps() -> None:
    now_ms = 1_794_711_773_372
    ids = UniqueIds(ip="127.0.0.1", now_ms=lambda: now_ms)
    first = parse_unique_id(ids.next_id())
    made = {ids.next_id() for _ in range(65_535)}
    assert len(made) == 65_535
    assert parse_unique_id(ids.next_id()).counter == first.counter
    now_ms += 41
    later = parse_unique_id(ids.next_id())
    assert later.since_month_start_ms == first.since_month_start_ms + 41
