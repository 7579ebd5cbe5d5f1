"""Pops that wait: which one is woken, and by what."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.broker.pop import pop_polling
from kourou.broker.pop.order_info import OrderKey
from kourou.broker.pop.pop_polling import HeldPop, PollingLimits, PollingResult, PopPolling
from kourou.protocol.pop.retry_topics import pop_retry_topics

NOW = 1_000_000


class Pops:
    """Waiting pops; `ran` are those that were run again, with whether it was for the last time."""

    def __init__(self, *, per_queue: int = 10, total: int = 100, wakes_last: bool = False) -> None:
        self.ran: list[tuple[str, bool]] = []
        self.given_up: list[str] = []
        self.now_ms = NOW
        self.polling = PopPolling(
            limits=lambda: PollingLimits(per_queue, total),
            now_ms=lambda: self.now_ms,
            wakes_last=wakes_last,
        )

    def hold(
        self,
        name: str,
        *,
        topic: str = "T",
        group: str = "G",
        queue_id: int = -1,
        owner: object = None,
        poll_ms: int = 60_000,
        born_ms: int = NOW,
        again_ms: int | None = None,
    ) -> PollingResult:
        held = HeldPop(
            OrderKey(topic, group, queue_id),
            owner,
            run=lambda is_last: self.ran.append((name, is_last)),
            give_up=lambda: self.given_up.append(name),
        )
        return self.polling.hold(held, born_ms=born_ms, poll_ms=poll_ms, again_ms=again_ms)

    async def arrive(self, topic: str, queue_id: int = 0) -> list[str]:
        """Who is woken by a message."""
        self.ran.clear()
        queue: Any = SimpleNamespace(topic=topic, queue_id=queue_id)
        self.polling.arrived([queue])
        assert not self.ran, "a message must not be put while the cycle is being written"
        await asyncio.sleep(0)
        return [name for name, _ in self.ran]


async def test_one_for_any_queue_and_one_for_its_queue_are_woken_the_earliest_first() -> None:
    pops = Pops()
    pops.hold("late", poll_ms=50_000)
    pops.hold("early", poll_ms=40_000)
    pops.hold("queue 1", queue_id=1)
    pops.hold("queue 2", queue_id=2)
    pops.hold("other topic", topic="U")
    assert await pops.arrive("T", 1) == ["early", "queue 1"]
    assert await pops.arrive("T", 3) == ["late"]
    assert await pops.arrive("T", 3) == []
    assert len(pops.polling) == 2


async def test_notices_wake_the_one_that_expires_last() -> None:
    pops = Pops(wakes_last=True)
    pops.hold("early", poll_ms=40_000)
    pops.hold("late", poll_ms=50_000)
    assert await pops.arrive("T") == ["late"]


async def test_each_group_has_its_own() -> None:
    pops = Pops()
    pops.hold("G")
    pops.hold("H", group="H")
    assert sorted(await pops.arrive("T")) == ["G", "H"]


async def test_retry_topics_of_both_names_wake_whoever_waits_for_the_topic() -> None:
    pops = Pops()
    for retry_topic in pop_retry_topics("T", "G"):
        pops.hold("any")
        pops.hold("queue 5", queue_id=5)
        assert await pops.arrive(retry_topic) == ["any"]
        assert await pops.arrive(retry_topic) == ["queue 5"]
        assert await pops.arrive(retry_topic) == []


async def test_a_retry_topic_that_two_pairs_share_wakes_both() -> None:
    pops = Pops()
    pops.hold("a_b, c", group="a_b", topic="c")
    pops.hold("a, b_c", group="a", topic="b_c")
    assert sorted(await pops.arrive("%RETRY%a_b_c")) == ["a, b_c", "a_b, c"]


async def test_messages_of_one_iteration_wake_one() -> None:
    pops = Pops()
    pops.hold("first")
    pops.hold("second")
    queue: Any = SimpleNamespace(topic="T", queue_id=0)
    pops.polling.arrived([queue])
    pops.polling.arrived([queue])
    await asyncio.sleep(0)
    assert pops.ran == [("first", False)]


async def test_what_does_not_want_to_wait_or_is_too_late_is_not_held() -> None:
    pops = Pops()
    assert pops.hold("no", poll_ms=0) is PollingResult.EXPIRED
    assert pops.hold("never", poll_ms=-(2**63)) is PollingResult.EXPIRED
    assert pops.hold("over", born_ms=NOW - 960, poll_ms=1_000) is PollingResult.EXPIRED
    assert pops.hold("just", born_ms=NOW - 940, poll_ms=1_000) is PollingResult.HELD


class Timers:
    """The timers of the loop that are set while it replaces `call_later`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set: list[tuple[float, Any]] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self._call_later)

    def _call_later(self, delay_s: float, callback: Any, *args: Any) -> Any:
        self.set.append((delay_s, lambda: callback(*args)))
        return SimpleNamespace(cancel=lambda: None)


async def test_a_pop_is_run_for_the_last_time_shortly_before_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, pops = Timers(monkeypatch), Pops()
    pops.hold("soon", born_ms=NOW - 1_000, poll_ms=15_000)
    pops.hold("a clock ahead of ours", poll_ms=15_000, born_ms=2**62)
    assert [delay_s for delay_s, _ in timers.set] == [13.95, 14.95]
    timers.set[0][1]()
    assert pops.ran == [("soon", True)] and len(pops.polling) == 1


async def test_a_pop_can_be_looked_at_again_before(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, pops = Timers(monkeypatch), Pops()
    pops.hold("again", again_ms=1_000)
    pops.hold("sooner over", poll_ms=1_000, again_ms=1_000)
    assert [delay_s for delay_s, _ in timers.set] == [1.0, 0.95]
    for _, ring in timers.set:
        ring()
    assert pops.ran == [("again", False), ("sooner over", True)]


async def test_one_more_than_may_wait_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    pops = Pops(per_queue=1, total=2)
    assert pops.hold("0") is PollingResult.HELD
    assert pops.hold("1") is PollingResult.FULL
    assert pops.hold("2", queue_id=2) is PollingResult.HELD
    assert pops.hold("3", queue_id=3) is PollingResult.FULL
    monkeypatch.setattr(pop_polling, "MAX_HELD_PER_CONNECTION", 1)
    await pops.arrive("T")
    assert pops.hold("4", queue_id=4) is PollingResult.FULL
    assert pops.hold("5", queue_id=4, owner="another") is PollingResult.HELD


async def test_a_connection_that_closes_takes_its_pops_along() -> None:
    pops = Pops()
    pops.hold("gone", owner="a")
    pops.hold("there", owner="b")
    pops.polling.connection_closed("a")
    pops.polling.connection_closed("a")
    assert len(pops.polling) == 1
    assert await pops.arrive("T") == ["there"]


async def test_a_pop_that_goes_between_arrival_and_wake_is_not_run() -> None:
    pops = Pops()
    pops.hold("gone", owner="a")
    queue: Any = SimpleNamespace(topic="T", queue_id=0)
    pops.polling.arrived([queue])
    pops.polling.connection_closed("a")
    await asyncio.sleep(0)
    assert pops.ran == []


async def test_a_stop_gives_all_up_and_holds_no_more() -> None:
    pops = Pops()
    pops.hold("a")
    pops.hold("b", topic="U")
    pops.polling.stop()
    assert sorted(pops.given_up) == ["a", "b"] and len(pops.polling) == 0
    assert pops.hold("c") is PollingResult.EXPIRED
    assert pops.ran == []
