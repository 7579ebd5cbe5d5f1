"""How far behind a message is."""

from __future__ import annotations

import time

from kourou.client.core.lag import Lag, lag
from kourou.protocol.message import MessageExt
from kourou.protocol.record import RecordEncoder, decode_record


def message(queue_offset: int, store_timestamp: int) -> MessageExt:
    encoder = RecordEncoder("TopicTest", 0, bytes(8))
    parts = encoder.parts(
        b"body",
        b"",
        queue_offset=queue_offset,
        phy_offset=0,
        store_timestamp=store_timestamp,
        born_timestamp=0,
        born_host=bytes(8),
        sys_flag=0,
        flag=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )
    return decode_record(b"".join(parts))


def test_lag_counts_the_messages_behind_and_the_time_since_it_was_stored() -> None:
    pulled = message(queue_offset=10, store_timestamp=5_000)
    pulled.queue_max_offset = 111
    assert lag(pulled, now_ms=7_500) == Lag(messages=100, ms=2_500)


def test_the_last_message_is_not_behind() -> None:
    pulled = message(queue_offset=10, store_timestamp=5_000)
    pulled.queue_max_offset = 11
    assert lag(pulled, now_ms=5_000) == Lag(messages=0, ms=0)


def test_what_was_not_pulled_and_clocks_that_differ_are_no_negative_lag() -> None:
    assert lag(message(queue_offset=10, store_timestamp=5_000), now_ms=4_000) == Lag(messages=0, ms=0)


def test_the_time_is_now_unless_given() -> None:
    stored = time.time_ns() // 1_000_000 - 60_000
    assert 60_000 <= lag(message(queue_offset=0, store_timestamp=stored)).ms < 120_000
