"""A store that changes hands: a broker of ours, or Apache's, works on it for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from kourou.broker.controller import BrokerController
from kourou.config.broker import BrokerConfig
from kourou.transport.client import RemotingClient
from tests.interop.kit.apache import start_broker
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.interop.kit.ports import free_broker_port

Work = Callable[[RemotingClient, str], Awaitable[None]]
"""What is done with a broker, by a client and its address."""

_SIZES: Final = {
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 5000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}
_STOP_S: Final = 40


async def with_kourou(root: Path, work: Work, **keys: Any) -> None:
    """Run a broker of ours on the store."""
    config = BrokerConfig(
        broker_name="broker-a",
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=free_broker_port(),
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=_SIZES["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=_SIZES["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=_SIZES["maxHashSlotNum"],
        max_index_num=_SIZES["maxIndexNum"],
        **keys,
    )
    client = RemotingClient()
    async with BrokerController(config) as broker:
        await work(client, broker.address)
        await client.stop()


def with_apache(work_dir: Path, root: Path, work: Work, **keys: str) -> None:
    """Run Apache's broker on the store, and stop it in order."""
    properties = {name: str(size) for name, size in _SIZES.items()} | {
        "storePathRootDir": str(root),
        "storePathCommitLog": str(root / "commitlog"),
        **keys,
    }
    with (
        launch_kourou_namesrv(work_dir).wait_ready() as namesrv,
        start_broker("5.5.0", work_dir, [namesrv.address], properties=properties) as broker,
    ):
        asyncio.run(_with_client(work, broker.address))
        broker.stop(timeout_s=_STOP_S)


async def _with_client(work: Work, address: str) -> None:
    client = RemotingClient()
    try:
        await work(client, address)
    finally:
        await client.stop()
