"""2,000 consumers at one proxy, each with a Telemetry stream and a member of a group at the broker."""

from __future__ import annotations

import resource
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kourou.admin.connections import consumer_connection
from kourou.admin.session import Admin
from kourou.proxy.wire.rocketmq_v2 import TelemetryCommand
from tests.integration.proxy.proxy_kit import proxied
from tests.integration.proxy.wire_client import connected
from tests.unit.proxy.recorded import consumer_settings

_CLIENTS = 2_000
_CONNECTIONS = 20
_GROUPS = 200
_BYTES_PER_CLIENT = 64 * 1024
"""Of proxy, broker and client together, which are in this process."""


@pytest.mark.slow
async def test_two_thousand_telemetry_streams(tmp_path: Path) -> None:
    async with proxied(tmp_path) as kit, AsyncExitStack() as stack:
        await kit.create_topic("Orders")
        connections = [
            await stack.enter_async_context(connected(kit.proxy.port)) for _ in range(_CONNECTIONS)
        ]
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        settings = [consumer_settings("Orders", group=f"g{number}") for number in range(_GROUPS)]
        opened = [
            await connections[number % _CONNECTIONS].exchange_settings(
                settings[number % _GROUPS], x_mq_client_id=f"c{number}"
            )
            for number in range(_CLIENTS)
        ]
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        assert grown_kib < _CLIENTS * _BYTES_PER_CLIENT // 1024
        async with Admin(namesrv=kit.namesrv) as admin:
            members = (await consumer_connection(admin, "g7")).connection_set
        assert len({member.client_id for member in members}) == len(members) > 0
        # All of them still work.
        for number in 0, _CLIENTS - 1:
            stream, _ = opened[number]
            stream.write(TelemetryCommand(settings=settings[number % _GROUPS]))
            answer = await stream.next()
            assert answer is not None and answer.settings.subscription.group.name == f"g{number % _GROUPS}"
