"""Whether messages that waited came once, and not before their time: from the records of a log at rest.

A delivered record names the one it was made from, and the time counts from when that one was stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kourou.protocol.message import MessageExt
from kourou.store.check.check import CheckOptions, check_store
from kourou.store.disk.files import Files

_SLOT_MS = 1_000  # a timer is due when its slot is over

SCHEDULE_TOPIC, TIMER_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"


def deliveries(records: Sequence[MessageExt]) -> list[tuple[MessageExt, MessageExt]]:
    """What waited, and what was delivered of it."""
    waiting = {
        record.phy_offset: record for record in records if record.topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
    }
    found = []
    for record in records:
        origin = waiting.get(record.prepared_transaction_offset - 1)
        if origin is not None:
            found.append((origin, record))
    return found


def assert_none_early(records: Sequence[MessageExt], delays_ms: Sequence[int]) -> None:
    """Each was delivered at most once and when it was due: after the delay of its level, by its origin's
    store time, or at the time it says. `delays_ms` are those of the levels, from 1 on."""
    delivered = deliveries(records)
    times = Counter(origin.phy_offset for origin, _ in delivered)
    assert not [phy_offset for phy_offset, count in times.items() if count > 1], "delivered twice"
    for origin, record in delivered:
        if origin.topic == SCHEDULE_TOPIC:
            due_ms = origin.store_timestamp + delays_ms[origin.queue_id]
        else:
            due_ms = int(origin.properties["TIMER_OUT_MS"]) + _SLOT_MS
            assert int(origin.properties.get("TIMER_DELIVER_MS", 0)) <= due_ms
        assert record.store_timestamp >= due_ms, f"{due_ms - record.store_timestamp} ms early: {record}"


def assert_none_waits(records: Sequence[MessageExt]) -> None:
    """All that waited was delivered."""
    done = {origin.phy_offset for origin, _ in deliveries(records)}
    left = [
        record
        for record in records
        if record.topic in (SCHEDULE_TOPIC, TIMER_TOPIC) and record.phy_offset not in done
    ]
    assert not left, f"{len(left)} are lost, the first is {left[0]}"


def assert_store_with_levels_ok(root: Path, delays_ms: Sequence[int]) -> None:
    """Every invariant of a store holds whose levels are these."""
    report = check_store(Files(), root, options=CheckOptions(delay_levels=tuple(delays_ms)))
    assert report.ok, [found.text(root) for found in report.violations]
