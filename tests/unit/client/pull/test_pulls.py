"""Pulls from slaves: when the same slave is pulled again, and what its end means to a bulk read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kourou.client.core.api import ClientApi
from kourou.client.core.routes import Routes
from kourou.client.pull.pull_consumer import AsyncPullConsumer
from kourou.client.pull.pulls import PullResult, PullStatus, is_behind
from kourou.client.pull.queue_reader import QueueReader
from kourou.errors import ConnectError, SlaveBehindError
from kourou.protocol.bodies import MessageQueue

QUEUE = MessageQueue("T", "a", 0)
NO_NEW, NO_MATCHED = PullStatus.NO_NEW_MSG, PullStatus.NO_MATCHED_MSG


def pair_routes(*, is_master_away: bool = False) -> Routes:
    routes = Routes(cast(ClientApi, None))
    routes.brokers["a"] = {0: "m:1", 1: "s:1"}
    if is_master_away:
        routes.fail_over("a", "m:1", ConnectError("m:1", "connection refused"))
    return routes


def found_nothing(status: PullStatus, next_offset: int, *, broker_id: int, suggested: int = 0) -> PullResult:
    return PullResult(status, next_offset, 0, 5, suggested, b"", "a", broker_id=broker_id)


@pytest.mark.parametrize(
    ("status", "next_offset", "is_master_away", "expected"),
    [
        (NO_MATCHED, 7, True, True),
        (NO_MATCHED, 7, False, False),  # the master is pulled next, at once
        (NO_MATCHED, 9, True, False),  # others were passed over, so it advances
        (NO_NEW, 7, True, False),  # the broker has waited
    ],
)
def test_a_slave_that_lacks_an_offset_is_pulled_again_after_a_pause(
    status: PullStatus, next_offset: int, is_master_away: bool, expected: bool
) -> None:
    result = found_nothing(status, next_offset, broker_id=1)
    assert is_behind(pair_routes(is_master_away=is_master_away), result, 7) is expected


class ScriptedPulls:
    """Stands for AsyncPullConsumer: returns the given results, one after the other."""

    def __init__(self, routes: Routes, *results: PullResult) -> None:
        self.instance = SimpleNamespace(routes=routes)
        self._results = list(results)

    async def pull(self, queue: MessageQueue, expression: str, **options: Any) -> PullResult:
        return self._results.pop(0)


async def read_positions(consumer: ScriptedPulls) -> int | None:
    """Read from 5 to 8; returns the position at the end."""
    reader = QueueReader(
        QUEUE, begin_offset=5, end_offset=8, retry_times=0, consumer=cast(AsyncPullConsumer, consumer)
    )
    async with reader:
        assert [chunk async for chunk in reader] == []
    return reader.position


@pytest.mark.parametrize("status", [NO_NEW, NO_MATCHED])
async def test_a_bulk_read_does_not_end_where_a_slave_ends(status: PullStatus) -> None:
    from_slave = found_nothing(status, 5, broker_id=1)
    with pytest.raises(SlaveBehindError):
        await read_positions(ScriptedPulls(pair_routes(is_master_away=True), from_slave))
    # The slave suggests the master, which ends the read, or continues it.
    at_end = found_nothing(NO_NEW, 5, broker_id=0)
    assert await read_positions(ScriptedPulls(pair_routes(), from_slave, at_end)) == 5
    passed = found_nothing(NO_MATCHED, 8, broker_id=0)
    assert await read_positions(ScriptedPulls(pair_routes(), from_slave, passed)) == 8
