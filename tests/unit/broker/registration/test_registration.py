"""Registration: when it happens, and when it is retried."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kourou.broker.registration import registration
from kourou.broker.registration.out_api import BrokerOuterApi
from kourou.broker.registration.registration import ChangeSignal, Registration
from kourou.broker.settings import LiveConfig
from kourou.broker.tables.topics import TopicConfigManager
from kourou.config.broker import BrokerConfig
from kourou.testing.clock import FakeClock
from kourou.transport.tasks import TaskOwner


class NamesrvsDouble:
    """Two name servers of which the second is started later: after so many attempts to reach it."""

    def __init__(self, missed: int) -> None:
        self.missed = missed
        self.reported: list[frozenset[str] | None] = []
        self.registered = asyncio.Event()
        self.failing = frozenset({"late:9876"})
        self.namesrvs = SimpleNamespace(current=["there:9876", "late:9876"], refresh=self._refresh)

    async def _refresh(self) -> None:
        """The list stays."""

    async def register_all(self, topics: object, *, only: frozenset[str] | None = None) -> list[Any]:
        self.reported.append(only)
        if len(self.reported) > self.missed:
            self.failing = frozenset()
            self.registered.set()
        return []


async def waits_of(
    monkeypatch: pytest.MonkeyPatch,
    out_api: NamesrvsDouble,
    period_ms: int,
    *,
    attempt_ms: int = 0,
    wait_change: Callable[[asyncio.Event], Awaitable[None]] | None = None,
) -> list[float]:
    """How long it waits before each attempt, until the second name server is registered."""
    waits: list[float] = []
    clock = FakeClock(wall_ms=0)
    timeout = asyncio.timeout

    def at_once(delay_s: float | None) -> asyncio.Timeout:
        waits.append(delay_s or 0)
        clock.advance(round(1000 * (delay_s or 0)) + attempt_ms)
        return timeout(None if not out_api.failing else 0)

    monkeypatch.setattr(registration.asyncio, "timeout", at_once)
    tasks, changed = TaskOwner("broker"), ChangeSignal()
    config = SimpleNamespace(register_name_server_period=period_ms, update_name_server_addr_period=120_000)
    made = Registration(
        config=LiveConfig(cast(BrokerConfig, config)),
        clock=clock,
        topics=cast(TopicConfigManager, SimpleNamespace(table={}, wrapper=lambda registered: None)),
        out_api=cast(BrokerOuterApi, out_api),
        changed=changed,
    )
    if wait_change is not None:
        monkeypatch.setattr(changed, "wait", lambda: wait_change(changed))
    try:
        await made.begin(tasks)
        await out_api.registered.wait()
    finally:
        await tasks.stop()
    return waits


async def test_a_name_server_that_starts_after_the_broker_is_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out_api = NamesrvsDouble(missed=10)
    waits = await waits_of(monkeypatch, out_api, 30_000)
    # The second round is due after 10 s, the third 30 s later.
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.7, 12.8, 17.2, 30])
    # Name servers that have the registration get it again in the usual rounds only.
    late = frozenset({"late:9876"})
    assert out_api.reported == [None, *[late] * 6, None, late, None, None]


async def test_a_name_server_that_hangs_does_not_make_the_others_forget_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out_api = NamesrvsDouble(missed=12)
    waits = await waits_of(monkeypatch, out_api, 60_000, attempt_ms=3_000)
    rounds_s, now_s = [], 0.0
    for wait_s, only in zip(waits, out_api.reported[1:], strict=True):
        now_s += wait_s + 3
        if only is None:
            rounds_s.append(now_s)
    assert len(rounds_s) > 2
    # Name servers forget a broker after 120 s.
    assert max(later - earlier for earlier, later in itertools.pairwise([0.0, *rounds_s])) <= 63


async def test_a_change_at_the_moment_of_a_retry_reaches_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait_change(changed: asyncio.Event) -> None:
        # As when both happen in one turn of the loop: the change is set, and the wait ends by its timeout.
        changed.set()
        await asyncio.get_running_loop().create_future()

    out_api = NamesrvsDouble(missed=2)
    await waits_of(monkeypatch, out_api, 30_000, wait_change=wait_change)
    assert out_api.reported == [None, None, None]
