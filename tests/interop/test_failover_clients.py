"""Java clients at a broker set of ours: the master is killed, and they go on without a restart.

The clients poll routes and send heartbeats every second; by default it is every 30 s (docs/failover.md).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.failover.network import open_network
from tests.failover.set_kit import BrokerSet
from tests.interop.kit.java_session import ClientSession

pytestmark = pytest.mark.interop

_STREAM_SECONDS: Final = 14
# Sends of the last two seconds.
_LAST: Final = 20


async def test_java_clients_send_again_and_miss_nothing_after_the_master_is_killed(
    tmp_path: Path, clients: dict[str, ClientSession]
) -> None:
    async with BrokerSet(tmp_path / "set", open_network(), lease_s=2) as brokers:
        for version, client in clients.items():
            topic = f"Failover-{version}".replace(".", "_")
            client.start_stream([brokers.namesrv_address], topic, f"group-{topic}", _STREAM_SECONDS)
        for client in clients.values():
            await asyncio.to_thread(client.wait_received, 5)
        (await brokers.wait_master()).kill()
        for version, client in clients.items():
            run = await asyncio.to_thread(client.finish)
            assert (run.failure, run.lost) == (None, set()), version
            # A send during the fail-over may fail: it is tried three times, at the known address.
            last = [f"/{number} " for number in range(10 * _STREAM_SECONDS - _LAST, 10 * _STREAM_SECONDS)]
            recovered = [each for each in last if any(each in body for body in run.sent)]
            assert recovered == last, f"{version}: {run.send_errors[-1:]}"
