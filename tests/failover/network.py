"""Network: the nodes of a broker set, and the links between them, which tests cut.

Namespaces (root, with the programs `ip` and `nft`): each node is a network namespace with an address on a
bridge; nftables drops what goes from one node to another. Proxies (anybody): each node has an address
127.x.y.z, where proxies forward to the same ports at 127.0.0.1; the node that connects is known by the
process that owns the socket (link_proxies.py).

The tests themselves, and the clients in them, are the node CLIENTS. A cut link loses packets: connections
hang until it is healed or time out. Cuts may overlap: a link works when all of its cuts are healed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.failover.link_proxies import LinkProxies

CLIENTS: Final = "clients"
_KIND: Final = os.environ.get("KOUROU_TEST_NETWORK")
"""`namespaces` or `proxies`; by default the first that works."""


class Cut:
    """A link that is cut, until `heal`."""

    def __init__(self, network: Network, ways: frozenset[tuple[str, str]]) -> None:
        self._network = network
        self._ways = ways

    def heal(self) -> None:
        """Heal the link; a second time is no error."""
        self._network._heal(self._ways)
        self._ways = frozenset()


class Network(ABC):
    """A context: at its end nothing of it is left. `add` each node before it is used."""

    def __init__(self) -> None:
        self._cuts: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self, a: str, b: str, *, one_way: bool = False) -> Cut:
        """Cut the link of two nodes; `one_way`: only what `a` sends to `b` is lost."""
        ways = frozenset({(a, b)} if one_way else {(a, b), (b, a)})
        self._cuts.update(ways)
        self._apply(ways)
        return Cut(self, ways)

    def heal(self) -> None:
        """Heal all links."""
        ways = frozenset(self._cuts)
        self._cuts.clear()
        self._apply(ways)

    def is_cut(self, a: str, b: str) -> bool:
        """Whether what `a` sends to `b` is lost."""
        return self._cuts[a, b] > 0

    def _heal(self, ways: frozenset[tuple[str, str]]) -> None:
        for way in ways:
            self._cuts[way] = max(0, self._cuts[way] - 1)
        self._apply(ways)

    @abstractmethod
    def add(self, node: str) -> None:
        """Add a node."""

    @abstractmethod
    def host(self, node: str) -> str:
        """The address by which others reach a node."""

    @abstractmethod
    def bind_host(self, node: str) -> str:
        """The address at which the servers of a node listen."""

    @abstractmethod
    def wrap(self, node: str) -> list[str]:
        """What to put in front of a command, so that it runs at the node. The process id stays the same."""

    def expose(self, node: str, *ports: int) -> None:  # noqa: B027 (only some networks need it)
        """Others will connect to these ports of the node."""

    def runs(self, node: str, pid: int) -> None:  # noqa: B027 (only some networks need it)
        """A process of the node has been started."""

    @abstractmethod
    def _apply(self, ways: frozenset[tuple[str, str]]) -> None:
        """Bring these ways into the state of `_cuts`."""

    @abstractmethod
    def close(self) -> None:
        """Remove everything."""


def open_network(kind: str | None = _KIND) -> Network:
    """The first kind that works here, or the given one; the test is skipped if it does not."""
    if kind != "proxies":
        problem = namespaces_problem()
        if problem is None:
            return Namespaces()
        if kind is not None:
            pytest.skip(f"needs network namespaces: {problem}")
    if not Path("/proc/net/tcp").exists():
        pytest.skip("needs network namespaces (root, ip, nft), or /proc and the addresses 127.x.y.z of Linux")
    return Proxies()


def namespaces_problem() -> str | None:
    """Why network namespaces cannot be used; None: they can."""
    if os.geteuid() != 0:
        return "not root"
    for program in ("ip", "nft"):
        if shutil.which(program) is None:
            return f"there is no program {program}"
    name = f"kourou-{os.getpid()}.probe-x"
    try:
        _ip("netns", "add", name)
        _run("ip", "netns", "exec", name, "nft", "-f", "-", stdin=_TABLE)
    except OSError as error:
        return str(error)
    finally:
        with contextlib.suppress(OSError):
            _ip("netns", "del", name)
    return None


class Proxies(Network):
    """Nodes on 127.x.y.z."""

    def __init__(self) -> None:
        super().__init__()
        block = next(_blocks)
        self._prefix = f"127.{64 + block // 256}.{block % 256}."
        self._hosts: dict[str, str] = {}
        self._proxies = LinkProxies(default_source=CLIENTS, is_cut=self.is_cut)

    def add(self, node: str) -> None:
        self._hosts[node] = f"{self._prefix}{10 + len(self._hosts)}"

    def host(self, node: str) -> str:
        return self._hosts[node]

    def bind_host(self, node: str) -> str:
        return "127.0.0.1"

    def wrap(self, node: str) -> list[str]:
        return []

    def expose(self, node: str, *ports: int) -> None:
        for port in ports:
            self._proxies.add(node, self.host(node), port)

    def runs(self, node: str, pid: int) -> None:
        self._proxies.owns(node, pid)

    def _apply(self, ways: frozenset[tuple[str, str]]) -> None:
        pass  # the proxies look

    def close(self) -> None:
        self._proxies.close()


class Namespaces(Network):
    """Nodes in namespaces of their own; names have the id of this process, so that what one that was killed
    left behind is found and removed."""

    def __init__(self) -> None:
        super().__init__()
        remove_left_behind()
        block = _free_block()
        self._prefix = f"198.{18 + block // 256}.{block % 256}."  # for tests of networks (RFC 2544)
        self._tag = f"{os.getpid()}.{next(_numbers)}"
        self._bridge = f"kb{self._tag}"
        self._hosts = {CLIENTS: f"{self._prefix}1"}
        self._batch(
            f"link add {self._bridge} type bridge",
            f"addr add {self._prefix}1/24 dev {self._bridge}",
            f"link set {self._bridge} up",
        )

    def add(self, node: str) -> None:
        number = len(self._hosts)
        name, near, host = self._name(node), f"k{self._tag}.{number}", f"{self._prefix}{10 + number}"
        self._hosts[node] = host
        self._batch(
            f"netns add {name}",
            f"link add {near} type veth peer name eth0 netns {name}",
            f"link set {near} master {self._bridge} up",
        )
        self._batch("link set lo up", f"addr add {host}/24 dev eth0", "link set eth0 up", node=node)
        _run("ip", "netns", "exec", name, "nft", "-f", "-", stdin=_TABLE)

    def host(self, node: str) -> str:
        return self._hosts[node]

    bind_host = host

    def wrap(self, node: str) -> list[str]:
        return ["ip", "netns", "exec", self._name(node)]

    def _apply(self, ways: frozenset[tuple[str, str]]) -> None:
        # Never in the namespace of the machine: what a node sends to the tests is dropped as it leaves.
        for node in {a if b == CLIENTS else b for a, b in ways}:
            lost = [way for way, count in self._cuts.items() if count]
            rules = [f"add rule ip cuts in ip saddr {self._hosts[a]} drop" for a, b in lost if b == node]
            if (node, CLIENTS) in lost:
                rules.append(f"add rule ip cuts out ip daddr {self._hosts[CLIENTS]} drop")
            text = "\n".join(["flush table ip cuts", *rules, ""])
            _run(*self.wrap(node), "nft", "-f", "-", stdin=text)

    def close(self) -> None:
        for node in self._hosts.keys() - {CLIENTS}:
            with contextlib.suppress(OSError):
                _ip("netns", "del", self._name(node))
        with contextlib.suppress(OSError):
            _ip("link", "del", self._bridge)

    def _name(self, node: str) -> str:
        return f"kourou-{self._tag}-{node}"

    def _batch(self, *lines: str, node: str | None = None) -> None:
        where = () if node is None else ("-n", self._name(node))
        _run("ip", *where, "-batch", "-", stdin="\n".join([*lines, ""]))


_TABLE: Final = """
table ip cuts {
  chain in { type filter hook input priority 0; }
  chain out { type filter hook output priority 0; }
}
"""
_numbers = itertools.count()
# Networks of two processes are hardly ever in one block, and those of one process never.
_blocks = ((os.getpid() * 8 + number) % 512 for number in itertools.count())


def remove_left_behind() -> None:
    """Remove namespaces and bridges of processes that are gone."""
    for line in _ip("netns", "list").splitlines():
        found = re.match(r"kourou-(\d+)\.\S+", line)
        if found and not Path(f"/proc/{found[1]}").exists():
            with contextlib.suppress(OSError):  # another process may do the same
                _ip("netns", "del", found[0])
    for found in re.finditer(r"^\d+: (kb(\d+)\.\d+)", _ip("-o", "link", "show", "type", "bridge"), re.M):
        if not Path(f"/proc/{found[2]}").exists():
            with contextlib.suppress(OSError):
                _ip("link", "del", found[1])


def _free_block() -> int:
    taken = _ip("-o", "-4", "addr")
    return next(each for each in _blocks if f" 198.{18 + each // 256}.{each % 256}." not in taken)


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str, stdin: str = "") -> str:
    """OSError with what the command has written, if it fails."""
    ran = subprocess.run(words, input=stdin, text=True, capture_output=True, timeout=30)
    if ran.returncode:
        raise OSError(f"{' '.join(words)}: {ran.stderr.strip() or f'exit code {ran.returncode}'}")
    return ran.stdout
