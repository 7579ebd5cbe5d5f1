"""Members of a broker set in this process, with a real etcd and a name server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kourou.clock import Clock
from kourou.config import BrokerConfig
from kourou.failover.member import FailoverMember
from kourou.namesrv.server import NameServer

LEASE_S = 5


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    """Wait for a condition."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 (the members have no events)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {timeout_s:g} s") from None


@dataclass
class BrokerSet:
    """The members, by the number in which they were started."""

    folder: Path
    etcd: str
    namesrv: NameServer
    settings: dict[str, Any] = field(default_factory=dict)
    members: dict[int, FailoverMember] = field(default_factory=dict)
    configs: dict[int, BrokerConfig] = field(default_factory=dict)
    clocks: dict[int, Clock] = field(default_factory=dict)
    """Of members that have one of their own."""
    failures: list[asyncio.Future[None]] = field(default_factory=list)

    async def start(self, number: int, **settings: Any) -> FailoverMember:
        """Start a member, for the first time or again."""
        if number not in self.configs:
            self.configs[number] = BrokerConfig(
                **{
                    "broker_name": "broker-a",
                    "bind_address": "127.0.0.1",
                    "listen_port": 0,
                    "namesrv_addr": self.namesrv.address,
                    "store_path_root_dir": str(self.folder / f"store-{number}"),
                    "mapped_file_size_commit_log": 1024 * 1024,
                    "failover_etcd_endpoints": self.etcd,
                    "failover_lease_seconds": LEASE_S,
                    "broker_role": "SYNC_MASTER",
                    **self.settings,
                    **settings,
                }
            )
        member = FailoverMember(self.configs[number], clock=self.clocks.get(number))
        await member.start()
        self.configs[number] = member._config
        self.members[number] = member
        self.failures.append(asyncio.ensure_future(member.wait_failed()))
        return member

    async def stop(self, number: int) -> None:
        """Stop a member in order."""
        await self.members.pop(number).stop()

    @property
    def masters(self) -> list[int]:
        """The members that are master now."""
        return [number for number, member in self.members.items() if member.is_master]

    async def master(self) -> int:
        """Wait until there is one that serves."""
        await self.until(lambda: bool(self.serving()), "a master that serves")
        return self.serving()[0]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; what a member died of is raised."""

        def holds() -> bool:
            for failure in self.failures:
                if failure.done() and not failure.cancelled():
                    failure.result()
            return condition()

        await until(holds, what)

    def serving(self) -> list[int]:
        """The masters whose broker has started as such."""
        return [each for each in self.masters if self.members[each].is_serving]

    def in_sync(self) -> tuple[int, ...]:
        """The in-sync set as etcd has it, by what any member knows."""
        state = next(iter(self.members.values())).state
        return state.in_sync.members if state.in_sync else ()
