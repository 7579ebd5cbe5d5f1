"""Reigns in a history: the masters that etcd names, against which acknowledgements are checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from kourou.etcd import EtcdClient, watch
from kourou.failover.set_state import SetKeys, SetState
from tests.failover.history import History


@asynccontextmanager
async def noted_reigns(etcd: EtcdClient, keys: SetKeys, history: History) -> AsyncIterator[None]:
    """Inside of the block each new master is written to the history."""
    task = asyncio.create_task(_note(etcd, keys, history), name="note-reigns")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _note(etcd: EtcdClient, keys: SetKeys, history: History) -> None:
    state, last = SetState(keys), 0
    broker_name = keys.prefix.rstrip("/").rpartition("/")[2]
    async for seen in watch(etcd, keys.prefix):
        state.update(seen)
        master = state.master
        if master is not None and master.epoch != last:
            last = master.epoch
            history.reign(epoch=last, address=master.address, broker_name=broker_name)
