"""When a half is due, by its age and the rules."""

from __future__ import annotations

import pytest

from kourou.broker.transactions.half_messages import NextStep, TransactionTimes, immunity_ms
from kourou.protocol.message import MessageExt
from kourou.protocol.record import RecordEncoder, decode_record
from tests.unit.store.message_stores import BORN_HOST, STORE_HOST

NOW = 1_700_000_100_000
DAY_MS = 24 * 3_600_000
RULES = TransactionTimes(end_queue_offset=5, timeout_ms=6_000, check_max=15, reserved_ms=72 * 3_600_000)
IMMUNE = "CHECK_IMMUNITY_TIME_IN_SECONDS\x01"


def half(properties: str = "", queue_offset: int = 4) -> MessageExt:
    encoder = RecordEncoder("RMQ_SYS_TRANS_HALF_TOPIC", 0, STORE_HOST)
    parts = encoder.parts(b"", properties.encode(), queue_offset, 0, NOW, NOW, BORN_HOST)
    return decode_record(b"".join(parts))


@pytest.mark.parametrize(
    ("age_ms", "properties", "expected"),
    [
        (5_999, "", NextStep.STOP),
        (6_000, "", NextStep.CHECK),
        (None, "", NextStep.CHECK),
        (None, f"{IMMUNE}10\x02", NextStep.CHECK),
        (9_999, f"{IMMUNE}10\x02", NextStep.PUT_AGAIN),
        (10_000, f"{IMMUNE}10\x02", NextStep.CHECK),
        (1_500, f"{IMMUNE}1\x02", NextStep.CHECK),
        (5_999, f"{IMMUNE}soon\x02", NextStep.PUT_AGAIN),
        (6_000, f"{IMMUNE}-1\x02", NextStep.CHECK),
        (60_000, "TRANSACTION_CHECK_TIMES\x0114\x02", NextStep.CHECK),
        (60_000, "TRANSACTION_CHECK_TIMES\x0115\x02", NextStep.GIVE_UP),
        (60_000, "TRANSACTION_CHECK_TIMES\x01many\x02", NextStep.CHECK),
        (3 * DAY_MS, "", NextStep.CHECK),
        (3 * DAY_MS + 1, "", NextStep.GIVE_UP),
        (3 * DAY_MS + 1, f"{IMMUNE}999999999\x02", NextStep.GIVE_UP),
    ],
)
def test_what_is_done_with_an_open_half(age_ms: int | None, properties: str, expected: NextStep) -> None:
    assert RULES.next_step(half(properties), age_ms) is expected


def test_what_was_stored_since_the_round_began_waits_for_the_next() -> None:
    """The last question too: a producer has the time of a round to answer it."""
    for properties in ("", "TRANSACTION_CHECK_TIMES\x0115\x02", f"{IMMUNE}600\x02"):
        assert RULES.next_step(half(properties, queue_offset=5), 60_000) is NextStep.STOP


def test_a_producers_time_is_in_seconds() -> None:
    assert (immunity_ms("0", 6_000), immunity_ms("60", 6_000), immunity_ms("", 6_000)) == (0, 60_000, 6_000)
