"""QueueLocks while a master is away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kourou.client.core.api import ClientApi
from kourou.client.core.instance import ClientInstance
from kourou.client.core.routes import Routes
from kourou.client.core.subscription import Subscription, subscription_data
from kourou.client.push.assigned_queue import AssignedQueue, FlowLimits
from kourou.client.push.handlers import handler_of
from kourou.client.push.rebalance import QueueLocks
from kourou.protocol.bodies import MessageQueue

QUEUE = MessageQueue("T", "a", 0)


class LockingMaster:
    """Grants every lock, at one address."""

    async def lock(self, address: str, group: str, client_id: str, queues: Any) -> list[MessageQueue]:
        assert address == "m:1"
        return list(queues)


async def test_locks_are_requested_from_the_master_only_and_outlive_its_absence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = cast(ClientApi, LockingMaster())
    routes = Routes(api)
    routes.brokers["a"] = {0: "m:1", 1: "s:1"}
    searched: list[str] = []
    masters = SimpleNamespace(begin=searched.append)
    instance = SimpleNamespace(routes=routes, api=api, client_id="c", masters=masters)
    locks = QueueLocks(cast(ClientInstance, instance), "CG")
    subscription = Subscription.of(subscription_data("T"), handler_of(print))
    held, wanted = (AssignedQueue(QUEUE, subscription, FlowLimits(1, 1, None)) for _ in range(2))
    assert await locks.lock(held)
    del routes.brokers["a"][0]
    await locks.renew([held])
    assert held.is_locked, "until it expires"
    assert not await locks.lock(wanted)
    assert searched == ["a", "a"]
    assert [record.levelname for record in caplog.records] == ["WARNING"], "once"
    routes.brokers["a"][0] = "m:1"
    assert await locks.lock(wanted)
