"""wait_followed: wait until masters on this machine have their slaves.

A slave counts once it has reported to its master; how far it is does not matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from kourou.errors import KourouError
from kourou.protocol.bodies import HARuntimeInfo, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.signature import SigningKeys
from kourou.transport.client import RemotingClient

_LOOK_S: Final = 0.02
_TIMEOUT_MS: Final = 1_000


async def wait_followed(
    masters: Iterable[str], slaves: int, timeout_s: float, keys: SigningKeys | None = None
) -> list[str]:
    """Wait until each of these masters, by address, has so many slaves; returns those that have fewer. `keys`
    sign the requests."""
    client = RemotingClient(keys=keys)
    waits = {address: asyncio.create_task(_wait_one(client, address, slaves)) for address in masters}
    try:
        await asyncio.wait(waits.values(), timeout=timeout_s)
        return [address for address, wait in waits.items() if not wait.done()]
    finally:
        for wait in waits.values():
            wait.cancel()
        await asyncio.gather(*waits.values(), return_exceptions=True)
        await client.stop()


async def _wait_one(client: RemotingClient, address: str, slaves: int) -> None:
    while await _connected(client, address) < slaves:  # noqa: ASYNC110 (there is no notification)
        await asyncio.sleep(_LOOK_S)


async def _connected(client: RemotingClient, address: str) -> int:
    command = RemotingCommand.request(RequestCode.GET_BROKER_HA_STATUS)
    try:
        answer = await client.call(address, command, _TIMEOUT_MS)
    except KourouError:
        return 0
    if answer.code != ResponseCode.SUCCESS:
        return 0
    return len(decode_body(answer.body, HARuntimeInfo).ha_connection_info)
