"""An in-process cluster: a name server and brokers on free ports, with stores in a folder.

async with cluster(tmp_path) as running:
    await running.client.call(running.broker.address, command)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from kourou.config import BrokerConfig, NamesrvConfig
from kourou.config.broker import MASTER_ID, SLAVE
from kourou.config.host import LOOPBACK
from kourou.embed import Broker, BrokerHooks, NameServer
from kourou.transport.client import RemotingClient

# Small files: tests write little, and create many stores.
SMALL_STORE: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024 * 1024,
    "mapped_file_size_consume_queue": 20 * 1000,
    "max_hash_slot_num": 5_000,
    "max_index_num": 20_000,
}


@dataclass(frozen=True)
class Cluster:
    """The running servers, and a client for them."""

    namesrv: NameServer
    brokers: list[Broker]
    client: RemotingClient

    @property
    def namesrv_addr(self) -> str:
        """The name server's address for clients."""
        return self.namesrv.address

    @property
    def broker(self) -> Broker:
        return self.brokers[0]


@asynccontextmanager
async def cluster(
    folder: Path,
    brokers: int = 1,
    hooks: BrokerHooks | None = None,
    of_namesrv: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Cluster]:
    """Run a cluster for as long as the context lasts. `settings` are attributes of BrokerConfig, `of_namesrv`
    those of NamesrvConfig.

    Stores are `folder/broker-a`, …: a second cluster in the folder continues with them.
    """
    async with AsyncExitStack() as stack:
        of_namesrv = {"bind_address": LOOPBACK, "listen_port": 0, **(of_namesrv or {})}
        namesrv = NameServer(NamesrvConfig(**of_namesrv))
        await stack.enter_async_context(namesrv)
        running = []
        for index in range(brokers):
            config = broker_config(folder, index, namesrv.address, **settings)
            running.append(await stack.enter_async_context(Broker(config, hooks=hooks)))
        client = RemotingClient()
        stack.push_async_callback(client.stop)
        yield Cluster(namesrv, running, client)


def broker_config(
    folder: Path, index: int, namesrv_addr: str, *, broker_id: int = MASTER_ID, **settings: Any
) -> BrokerConfig:
    """The configuration of one broker of a cluster for tests; with an id above 0, of a slave."""
    name = f"broker-{ascii_lowercase[index]}"
    defaults: dict[str, Any] = {
        "broker_name": name,
        "bind_address": LOOPBACK,
        "listen_port": 0,
        "ha_listen_port": 0,
        "namesrv_addr": namesrv_addr,
        "store_path_root_dir": str(folder / (f"{name}-s{broker_id}" if broker_id else name)),
        **SMALL_STORE,
    }
    if broker_id:
        settings = {**settings, "broker_role": SLAVE, "broker_id": broker_id}
    return BrokerConfig(**{**defaults, **settings})
