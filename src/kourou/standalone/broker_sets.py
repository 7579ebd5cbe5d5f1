"""The broker sets of a standalone with fail-over, as etcd has them: their masters, and who is in sync."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kourou.errors import EtcdRefusedError, EtcdUnavailableError
from kourou.etcd import EtcdClient, Snapshot
from kourou.failover.set_state import SetKeys, SetState

_LOOK_S: Final = 0.05


class BrokerSets:
    """Reads sets of one etcd."""

    def __init__(self, etcd_address: str, sets: Sequence[SetKeys]) -> None:
        self._address = etcd_address
        self._sets = sets

    async def wait_in_sync(self, members: int, timeout_s: float) -> None:
        """Wait until each set has a master and so many members in sync. TimeoutError: not in time."""
        async with asyncio.timeout(timeout_s), EtcdClient([self._address]) as client:
            for keys in self._sets:
                while True:
                    state = await _read(client, keys)
                    if state is not None and state.master and state.in_sync:
                        if len(state.in_sync.members) >= members:
                            break
                    await asyncio.sleep(_LOOK_S)

    async def masters(self) -> set[str]:
        """The addresses of the present masters, as far as etcd answers."""
        async with EtcdClient([self._address]) as client:
            states = await asyncio.gather(*(_read(client, keys) for keys in self._sets))
        return {state.master.address for state in states if state is not None and state.master}


async def _read(client: EtcdClient, keys: SetKeys) -> SetState | None:
    try:
        found = await client.get_prefix(keys.prefix)
    except (EtcdUnavailableError, EtcdRefusedError):
        return None
    state = SetState(keys)
    state.update(Snapshot(found.revision, found.keys))
    return state
