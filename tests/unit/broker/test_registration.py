"""Registration: when name servers are told, and tried again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kourou.broker import registration
from kourou.broker.out_api import BrokerOuterApi
from kourou.broker.registration import Registration
from kourou.broker.services import BrokerServices


class NamesrvsDouble:
    """Two name servers of which the second is started later: after so many attempts to reach it."""

    def __init__(self, missed: int) -> None:
        self.missed = missed
        self.told: list[frozenset[str] | None] = []
        self.registered = asyncio.Event()
        self.failing = frozenset({"late:9876"})
        self.namesrvs = SimpleNamespace(current=["there:9876", "late:9876"], refresh=self._refresh)

    async def _refresh(self) -> None:
        """The list stays."""

    async def register_all(self, topics: object, *, only: frozenset[str] | None = None) -> list[Any]:
        self.told.append(only)
        if len(self.told) > self.missed:
            self.failing = frozenset()
            self.registered.set()
        return []


async def test_a_name_server_that_starts_after_the_broker_is_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    timeout = asyncio.timeout

    def at_once(delay: float | None) -> asyncio.Timeout:
        waits.append(delay or 0)
        return timeout(None if not out_api.failing else 0)

    monkeypatch.setattr(registration.asyncio, "timeout", at_once)
    out_api = NamesrvsDouble(missed=9)
    tasks: list[asyncio.Task[None]] = []
    services = SimpleNamespace(
        config=SimpleNamespace(register_name_server_period=30_000, update_name_server_addr_period=120_000),
        topics=SimpleNamespace(table={}, wrapper=lambda registered: None),
        start_task=lambda work, name: tasks.append(asyncio.create_task(work, name=name)),
    )
    try:
        await Registration().begin(cast(BrokerServices, services), cast(BrokerOuterApi, out_api))
        await out_api.registered.wait()
        await asyncio.sleep(0)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert waits[:9] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 25.6])
    # Those that know of us are told in the usual rounds only.
    late = frozenset({"late:9876"})
    assert out_api.told == [None, *[late] * 7, None, late]
