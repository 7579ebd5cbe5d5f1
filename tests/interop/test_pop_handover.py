"""POP in a store that changes hands between Apache's broker of 5.5.0 and ours: what one has handed out
stays invisible at the other until its time is over, acks count there, retry topics go on, and a queue that is
popped in order stays blocked.

Both directions run side by side, since most of it is waiting. A message is named after what becomes of it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from kourou.protocol.pop.retry_topics import pop_retry_topic
from kourou.transport.client import RemotingClient
from tests.interop.kit.store_handover import with_apache, with_kourou
from tests.interop.kit.wire_pops import Held, WirePops

pytestmark = pytest.mark.interop

TOPIC: Final = "Popped"
ORDERED: Final = "Ordered"
GROUP: Final = "consumers"
RETRIED: Final = "Retried"
RETRY: Final = pop_retry_topic(RETRIED, GROUP, is_v2=False)
# A JVM has to stop or start meanwhile. Nightly suites share the machine with fault loops.
LATE_S: Final = 60 if os.environ.get("KOUROU_NIGHTLY") == "1" else 25
LONG_S: Final = 300
_AGAIN_S: Final = LATE_S + 60
_MORE_S: Final = 3
RETURNED: Final = ("retried", "waiting in the retry topic")
AT_ONCE: Final = ("acked", "acked in a batch", "acked later", "changed, acked later", "changed", "not acked")
SHORT: Final = ("short, acked", "short")


class Scenario:
    """One direction: what is in flight when the store changes hands. `due_s`: how long before the change the
    last pop is; its check point is in the revive topic then, and its message not in the retry topic yet."""

    def __init__(self, due_s: float) -> None:
        self._due_s = due_s
        self._kept: dict[str, Held] = {}
        self._ordered: list[Held] = []

    async def hand_out(self, client: RemotingClient, address: str) -> None:
        """At the first broker."""
        await self._hand_out_in_order(WirePops(client, address, ORDERED, GROUP))
        retries = WirePops(client, address, RETRIED, GROUP)
        await retries.send(*RETURNED)
        for held in await retries.pop_all(len(RETURNED), LONG_S):
            await retries.change(held, 0)
        await retries.until_stored(RETRY, len(RETURNED))
        (self._kept["retried"],) = await retries.pop_all(1, LATE_S)
        pops = WirePops(client, address, TOPIC, GROUP)
        await pops.send(*AT_ONCE)
        by_name = {held.body: held for held in await pops.pop_all(len(AT_ONCE), LATE_S)}
        assert by_name.keys() == set(AT_ONCE)
        await pops.ack(by_name["acked"])
        await pops.ack_batch([by_name["acked in a batch"]])
        self._kept["acked later"] = by_name["acked later"]
        self._kept["changed, acked later"] = await pops.change(by_name["changed, acked later"], LATE_S)
        await pops.change(by_name["changed"], LATE_S)
        await pops.send(*SHORT)
        short = {held.body: held for held in await pops.pop_all(len(SHORT), 3)}
        await pops.ack(short["short, acked"])
        await asyncio.sleep(self._due_s)

    async def go_on(self, client: RemotingClient, address: str) -> None:
        """At the second one."""
        await self._go_on_in_order(WirePops(client, address, ORDERED, GROUP))
        pops = WirePops(client, address, TOPIC, GROUP)
        too_late = set()
        for name in ("acked later", "changed, acked later"):
            await pops.ack(self._kept[name])
            if self._kept[name].handle.visible_again_ms <= time.time_ns() // 1_000_000:
                too_late.add(name)  # on a busy machine; it may come again, or not
        retried = self._kept["retried"].body
        (waiting,) = set(RETURNED) - {retried}
        wanted = Counter({(retried, 2): 1, (waiting, 1): 1})
        wanted.update((name, 1) for name in ("changed", "not acked", "short"))
        both = (pops, WirePops(client, address, RETRIED, GROUP))
        again = await self._pop_again(both, {name for name, _ in wanted})
        again += await self._pop_more(both)
        found = Counter((held.body, held.message.reconsume_times) for held in again)
        assert Counter({key: count for key, count in found.items() if key[0] not in too_late}) == wanted

    async def _pop_again(self, both: Sequence[WirePops], names: set[str]) -> list[Held]:
        found: list[Held] = []
        async with asyncio.timeout(_AGAIN_S):
            while names - {held.body for held in found}:
                found += await self._pop_and_ack(both)
                await asyncio.sleep(0.2)
        return found

    async def _pop_more(self, both: Sequence[WirePops]) -> list[Held]:
        found: list[Held] = []
        end = time.monotonic() + _MORE_S
        while time.monotonic() < end:
            found += await self._pop_and_ack(both)
            await asyncio.sleep(0.2)
        return found

    @staticmethod
    async def _pop_and_ack(both: Sequence[WirePops]) -> list[Held]:
        found = []
        for pops in both:
            for held in await pops.pop(32, LONG_S):
                await pops.ack(held)
                found.append(held)
        return found

    async def nothing_is_left(self, client: RemotingClient, address: str) -> None:
        """At the first one again: it knows what the second one has done."""
        both = [WirePops(client, address, topic, GROUP) for topic in (TOPIC, RETRIED)]
        assert [held.body for held in await self._pop_more(both)] == []

    # -- in order ----------------------------------------------------------------------------------

    async def _hand_out_in_order(self, pops: WirePops) -> None:
        """Six messages; two are popped, and one of them is acknowledged."""
        await pops.send(*(str(number) for number in range(6)))
        self._ordered = await pops.pop_all(2, LONG_S, queue_id=0, order=True, attempt_id="a")
        assert [held.body for held in self._ordered] == ["0", "1"]
        await pops.ack(self._ordered[0])

    async def _go_on_in_order(self, pops: WirePops) -> None:
        """The queue is blocked until the other one is acknowledged, too."""
        in_order = {"queue_id": 0, "order": True, "attempt_id": "b"}
        assert await pops.pop(2, LONG_S, **in_order) == []
        await pops.ack(self._ordered[1])
        assert [held.body for held in await pops.pop(2, LONG_S, **in_order)] == ["2", "3"]


def from_us_to_apache_and_back(folder: Path) -> None:
    scenario = Scenario(2.4)
    asyncio.run(with_kourou(folder / "store", scenario.hand_out))
    with_apache(folder, folder / "store", scenario.go_on)
    asyncio.run(with_kourou(folder / "store", scenario.nothing_is_left))


def from_apache_to_us(folder: Path) -> None:
    # It delivers again two seconds after the time, or later.
    scenario = Scenario(4.2)
    with_apache(folder, folder / "store", scenario.hand_out)
    asyncio.run(with_kourou(folder / "store", scenario.go_on))


async def test_what_is_in_flight_goes_on_at_the_other_broker(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as running:
        for direction in (from_us_to_apache_and_back, from_apache_to_us):
            folder = tmp_path / direction.__name__
            folder.mkdir()
            running.create_task(asyncio.to_thread(direction, folder), name=direction.__name__)
