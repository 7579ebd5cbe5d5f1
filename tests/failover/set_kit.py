"""BrokerSet: etcd, a name server and the members of one broker set, as processes that tests kill, stop and
cut off from each other.

    async with BrokerSet(folder, open_network(), lease_s=2) as brokers:
        master = await brokers.wait_master()
        master.kill()
        await brokers.wait_master(but=master)
        master.start()
        await brokers.wait_in_sync()

Who is master is looked up in etcd (`master`), or at the name server (`registered_master`), as clients see it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Final, Self, TypeVar

from kourou.errors import KourouError
from kourou.etcd import EtcdClient, Snapshot
from kourou.failover.set_state import SetKeys, SetState
from kourou.protocol.bodies import ClusterInfo, HARuntimeInfo, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.controller import ElectMasterRequestHeader
from kourou.transport.client import RemotingClient
from tests.child_process import dies_with_parent
from tests.crash.killed_broker import environment
from tests.failover.network import Network
from tests.integration.etcd.etcd_kit import Member as EtcdMember
from tests.integration.etcd.etcd_kit import etcd
from tests.interop.kit.ports import free_broker_port, free_port

CLUSTER: Final = "DefaultCluster"
BROKER_NAME: Final = "broker-a"
NAMESRV: Final = "namesrv"
MASTER_ID: Final = 0

_WAIT_S: Final = 60.0
_STOP_S: Final = 30.0
_LOOK_S: Final = 0.05
_CALL_MS: Final = 1_000
# Grows as a store needs it; a full disk is made by making it smaller.
_DISK_BYTES: Final = 8 << 30

_T = TypeVar("_T")


class Node:
    """One process, started as often as it ends. Starts and stops follow each other; each is harmless when
    there is nothing to do, since faults overlap."""

    def __init__(self, name: str, network: Network, folder: Path, words: list[str]) -> None:
        self.name = name
        self._network = network
        self.folder = folder
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self.is_paused = False
        folder.mkdir(parents=True)

    def __repr__(self) -> str:
        return self.name

    @property
    def host(self) -> str:
        """The address by which others reach it."""
        return self._network.host(self.name)

    @property
    def is_running(self) -> bool:
        """Whether there is a process; a paused one is."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """What all of its processes have written."""
        return (self.folder / "out").read_text()

    def start(self) -> None:
        """Start the process. From a thread that lives on: the process dies with it."""
        if self.is_running:
            return
        words = [*self._network.wrap(self.name), *dies_with_parent(), sys.executable, "-m", *self._words]
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(words, env=environment(self.folder), stdout=out, stderr=out)
        self.is_paused = False
        self._network.runs(self.name, self._process.pid)

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)

    def pause(self) -> None:
        """SIGSTOP; on return all threads stand still."""
        if self._process is None or not self.is_running:
            return
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.is_paused = True

    def go_on(self) -> None:
        """SIGCONT."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    async def stop(self) -> int:
        """End it in order; the exit code."""
        assert self._process is not None
        self.go_on()
        self._process.terminate()
        deadline = time.monotonic() + _STOP_S
        while (code := self._process.poll()) is None:
            assert time.monotonic() < deadline, f"{self.name} does not stop:\n{self.output[-2000:]}"
            await asyncio.sleep(_LOOK_S)
        return code


class BrokerNode(Node):
    """One member of the set."""

    def __init__(self, name: str, network: Network, folder: Path, keys: Mapping[str, object]) -> None:
        self.port = free_broker_port()
        self.store = folder / "store"
        self.log = folder / "log"
        all_keys = {
            "brokerName": BROKER_NAME,
            "brokerClusterName": CLUSTER,
            "brokerIP1": network.host(name),
            "bindAddress": network.bind_host(name),
            "listenPort": self.port,
            "fastListenPort": 0,
            "storePathRootDir": self.store,
            "rocketmqHome": folder,
            "mappedFileSizeCommitLog": 1 << 20,
            "maxHashSlotNum": 1000,
            "maxIndexNum": 4000,
            **keys,
        }
        words = ["kourou.cli.mqbroker", "--logFile", str(self.log)]
        super().__init__(name, network, folder, words + [f"--set={key}={all_keys[key]}" for key in all_keys])
        network.expose(name, self.port, self.port + 1)

    @property
    def address(self) -> str:
        """For requests."""
        return f"{self.host}:{self.port}"

    # -- its disk --------------------------------------------------------------------------------

    def mount_disk(self) -> None:
        """Give it a disk of its own, which `fill_disk` can fill. OSError where that is not possible."""
        _unmount_left_behind()
        self.store.mkdir()
        _mount("-t", "tmpfs", "-o", f"size={_DISK_BYTES}", f"kourou-{os.getpid()}", str(self.store))

    def fill_disk(self) -> None:
        """From now on there is no room for another page."""
        usage = shutil.disk_usage(self.store)
        _mount("-o", f"remount,size={max(usage.used, 4096)}", str(self.store))

    def free_disk(self) -> None:
        """There is room again."""
        _mount("-o", f"remount,size={_DISK_BYTES}", str(self.store))

    def remove_disk(self) -> None:
        """At the end."""
        if os.path.ismount(self.store):
            _unmount(self.store)


class BrokerSet:
    """`keys` are further settings of all members, `keys_of` those of single ones. With `has_disks` members
    have file systems of their own, which can be filled (root only)."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        *,
        members: int = 3,
        etcd_members: int = 1,
        lease_s: int = 2,
        has_disks: bool = False,
        keys: Mapping[str, object] | None = None,
        keys_of: Callable[[int], Mapping[str, object]] = lambda number: {},
    ) -> None:
        self._folder = folder
        self.network = network
        self.lease_s = lease_s
        self.has_disks = has_disks
        self._counts = members, etcd_members
        self._keys = keys or {}
        self._keys_of = keys_of
        self.members: list[BrokerNode] = []
        self.etcd_members: list[EtcdMember] = []
        self.etcd_nodes: list[str] = []
        self._client = RemotingClient()

    # -- life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self.network)
            stack.push_async_callback(self._client.stop)
            self._start_etcd(stack)
            self.etcd = await stack.enter_async_context(
                EtcdClient([each.address for each in self.etcd_members], timeout_ms=_CALL_MS)
            )
            await self._start_name_server(stack)
            self._start_members(stack)
            await self.wait_in_sync()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _start_etcd(self, stack: contextlib.AsyncExitStack) -> None:
        self.etcd_nodes = [f"etcd{number}" for number in range(self._counts[1])]
        for node in self.etcd_nodes:
            self.network.add(node)
        folder = self._folder / "etcd"
        folder.mkdir(parents=True)
        places = [(self.network.bind_host(node), self.network.wrap(node)) for node in self.etcd_nodes]
        self.etcd_members = stack.enter_context(etcd(folder, len(places), places=places))
        for node, member in zip(self.etcd_nodes, self.etcd_members, strict=True):
            self.network.expose(node, member.client_port)

    async def _start_name_server(self, stack: contextlib.AsyncExitStack) -> None:
        self.network.add(NAMESRV)
        port = free_port()
        self.network.expose(NAMESRV, port)
        words = ["kourou.cli.main", "namesrv", "--host", self.network.bind_host(NAMESRV), "--port", str(port)]
        self.namesrv = Node(NAMESRV, self.network, self._folder / NAMESRV, words)
        self.namesrv_address = f"{self.namesrv.host}:{port}"
        stack.callback(self.namesrv.kill)
        self.namesrv.start()
        await self.until("the name server answers", self._cluster_info)

    def _start_members(self, stack: contextlib.AsyncExitStack) -> None:
        endpoints = [
            f"{self.network.host(node)}:{member.client_port}"
            for node, member in zip(self.etcd_nodes, self.etcd_members, strict=True)
        ]
        for number in range(1, self._counts[0] + 1):
            name = f"member{number}"
            self.network.add(name)
            keys = {
                "namesrvAddr": self.namesrv_address,
                "brokerRole": "SYNC_MASTER",
                "failoverEtcdEndpoints": ";".join(endpoints),
                "failoverLeaseSeconds": self.lease_s,
                **self._keys,
                **self._keys_of(number),
            }
            member = BrokerNode(name, self.network, self._folder / name, keys)
            self.members.append(member)
            if self.has_disks:
                stack.callback(member.remove_disk)
                member.mount_disk()
            stack.callback(member.kill)
            member.start()

    # -- what there is ---------------------------------------------------------------------------

    @property
    def continues_without_etcd(self) -> bool:
        """Whether its master goes on while etcd is away."""
        return self._keys.get("failoverContinuesWithoutEtcd") == "true"

    @property
    def keys(self) -> SetKeys:
        """The set's keys in etcd."""
        return SetKeys.of("/kourou", CLUSTER, BROKER_NAME)

    async def state(self) -> SetState:
        """The set as etcd has it now."""
        found = await self.etcd.get_prefix(self.keys.prefix)
        state = SetState(self.keys)
        state.update(Snapshot(found.revision, found.keys))
        return state

    def member_at(self, address: str) -> BrokerNode:
        """The member with an address."""
        return next(each for each in self.members if each.address == address)

    async def master(self) -> BrokerNode | None:
        """The member whose key is in etcd."""
        master = (await self.state()).master
        return None if master is None else self.member_at(master.address)

    async def slaves(self) -> list[BrokerNode]:
        """The members that are running, without the master."""
        master = await self.master()
        return [each for each in self.members if each.is_running and each is not master]

    async def registered_master(self) -> BrokerNode | None:
        """The member that the name server knows as master."""
        table = (await self._cluster_info()).broker_addr_table
        address = table[BROKER_NAME].broker_addrs.get(MASTER_ID) if BROKER_NAME in table else None
        return None if address is None else self.member_at(address)

    async def ha_status(self, member: BrokerNode) -> HARuntimeInfo:
        """What a member says of replication."""
        command = RemotingCommand.request(RequestCode.GET_BROKER_HA_STATUS)
        answer = await self._client.call(member.address, command, _CALL_MS)
        return decode_body(answer.body, HARuntimeInfo)

    async def _cluster_info(self) -> ClusterInfo:
        command = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await self._client.call(self.namesrv_address, command, _CALL_MS)
        return decode_body(answer.body, ClusterInfo)

    async def etcd_leader(self) -> EtcdMember | None:
        """The leader of etcd; None while there is none."""
        statuses = await self.etcd.statuses()
        by_address = {each.address: each for each in self.etcd_members}
        return next((by_address[each.address] for each in statuses if each.is_leader), None)

    # -- waits -----------------------------------------------------------------------------------

    async def wait_master(self, *, but: BrokerNode | None = None, within_s: float = _WAIT_S) -> BrokerNode:
        """Wait for a master, other than `but`, that clients find too."""

        async def found() -> BrokerNode | None:
            master = await self.master()
            if master is but or master is None or master is not await self.registered_master():
                return None
            return master

        return await self.until(f"there is a master{f' but {but}' if but else ''}", found, within_s)

    async def wait_in_sync(
        self, members: Collection[BrokerNode] | None = None, within_s: float = _WAIT_S
    ) -> BrokerNode:
        """Wait until these members, or all, are in the in-sync set of a master; returns that."""
        wanted = list(self.members if members is None else members)

        async def in_sync() -> BrokerNode | None:
            state = await self.state()
            if state.master is None or state.in_sync is None:
                return None
            found = {
                state.members[number].address for number in state.in_sync.members if number in state.members
            }
            master = self.member_at(state.master.address)
            if not {each.address for each in wanted} <= found or master is not await self.registered_master():
                return None
            # For a moment etcd still has members that were killed.
            slaves = [each for each in wanted if each is not master]
            return master if all([await self._follows(each) for each in slaves]) else None

        return await self.until(f"in sync: {wanted}", in_sync, within_s)

    async def wait_follows(self, member: BrokerNode, within_s: float = _WAIT_S) -> None:
        """Wait until a member copies the log of the present master."""
        await self.until(f"{member} follows the master", lambda: self._follows(member), within_s)

    async def _follows(self, member: BrokerNode) -> bool:
        master = (await self.state()).master
        if master is None or master.address == member.address:
            return False
        client = (await self.ha_status(member)).ha_client_runtime_info
        return client.master_addr == master.ha_address and client.kourou_problem is None

    async def until(
        self, what: str, look: Callable[[], Awaitable[_T | None]], within_s: float = _WAIT_S
    ) -> _T:
        """Wait until `look` finds something; servers that do not answer are asked again."""
        deadline = time.monotonic() + within_s
        problem = ""
        while True:
            try:
                if found := await look():
                    return found
                problem = "nothing yet"
            except (KourouError, OSError) as error:
                problem = str(error)
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not within {within_s:g} s: {what} ({problem})\n{await self.describe()}"
                )
            await asyncio.sleep(_LOOK_S)

    async def describe(self) -> str:
        """The set and the last lines of each log, for a failed test."""
        lines = []
        with contextlib.suppress(KourouError):
            state = await self.state()
            lines += [f"master {state.master}", f"epoch {state.epoch}, in sync {state.in_sync}"]
            lines += [f"alive: {member}" for member in state.members.values()]
        with contextlib.suppress(KourouError):
            if (master := await self.master()) is not None:
                lines += [f"follows: {link}" for link in (await self.ha_status(master)).ha_connection_info]
        for member in self.members:
            how = "paused" if member.is_paused else "running" if member.is_running else "not running"
            lines += [
                f"--- {member} {member.address} ({how})",
                *_tail(member.log),
                *_tail(member.folder / "out"),
            ]
        return "\n".join(lines)

    # -- handover --------------------------------------------------------------------------------

    async def hand_over(self, target: BrokerNode) -> bool:
        """Ask the master to hand over to a member; whether it accepted."""
        state = await self.state()
        numbers = [number for number, each in state.members.items() if each.address == target.address]
        if state.master is None or not numbers:
            return False
        header = ElectMasterRequestHeader(
            cluster_name=CLUSTER, broker_name=BROKER_NAME, broker_id=numbers[0], designate_elect=True
        )
        command = RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, header)
        answer = await self._client.call(state.master.address, command, 10 * _CALL_MS)
        return answer.code == ResponseCode.SUCCESS


def _tail(path: Path, lines: int = 40) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-lines:] if path.exists() else []


def _unmount_left_behind() -> None:
    """Remove the disks of tests that were killed."""
    for line in Path("/proc/mounts").read_text().splitlines():
        source, folder, *_ = line.split()
        found = re.fullmatch(r"kourou-(\d+)", source)
        if found and not Path(f"/proc/{found[1]}").exists():
            _unmount(Path(folder))


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*words: str) -> None:
    ran = subprocess.run(["mount", *words], capture_output=True, text=True)
    if ran.returncode:
        raise OSError(f"mount {' '.join(words)}: {ran.stderr.strip()}")
