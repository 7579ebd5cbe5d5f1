"""The options of standalone, and the resulting configurations of name server and brokers.

Masters are `broker-a`, `broker-b`, …, ports 10 apart. The slaves of `broker-a` are `broker-a-s1`,
`broker-a-s2`, …, two ports apart from it and from each other. With fail-over these are the members of one
broker set, of which each may be the master.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from string import ascii_lowercase
from typing import Final

from kourou.config import BrokerConfig, NamesrvConfig, load_broker_config, load_namesrv_config
from kourou.config.broker import MASTER_ID, SLAVE, SYNC_MASTER
from kourou.config.home import folder_problem
from kourou.config.host import LOOPBACK, advertised_address, is_wildcard
from kourou.errors import ConfigError
from kourou.standalone.accounts import StandaloneAccounts
from kourou.transport.addresses import join_address

NAMESRV_PORT: Final = 9_876
BROKER_PORT: Final = 10_911
# A broker takes its port and the next one, for replication; the rest is room for its slaves.
PORT_STEP: Final = 10
_PORTS_OF_ONE: Final = 2
MAX_BROKERS: Final = len(ascii_lowercase)
MAX_SLAVES: Final = PORT_STEP // _PORTS_OF_ONE - 1
_MAX_PORT: Final = 65_535
_STORE_FOLDERS: Final = ("commitlog", "config")

NAMESRV_OPTIONS: Final = {"bindAddress": "--host", "listenPort": "--namesrv-port"}
"""Key to option, of the name server."""
BROKER_OPTIONS: Final = {
    "bindAddress": "--host",
    "listenPort": "--broker-port",
    "brokerIP1": "--advertise",
    "storePathRootDir": "--store",
}
"""Key to option, of the brokers."""
_ACCESS_OPTIONS: Final = dict.fromkeys(
    (
        "authenticationEnabled",
        "authorizationEnabled",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
    ),
    "--auth",
)
PROBE_OPTIONS: Final = {"httpPort": "--http-port", "httpBindAddress": "--host"}
"""Key to option, of the listener for health checks."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One broker of a standalone: a master, or with an id above 0 a slave of the master of that index."""

    index: int
    broker_id: int = MASTER_ID

    @property
    def broker_name(self) -> str:
        """`broker-a`, `broker-b`, …; a slave has the name of its master."""
        return f"broker-{ascii_lowercase[self.index]}"

    @property
    def label(self) -> str:
        """Its own name, in messages and on disk: `broker-a`, `broker-a-s1`, …"""
        return f"{self.broker_name}-s{self.broker_id}" if self.is_slave else self.broker_name

    @property
    def is_slave(self) -> bool:
        return self.broker_id != MASTER_ID


@dataclass(frozen=True, kw_only=True)
class StandaloneOptions:
    """One name server and `brokers` masters with `slaves` slaves each. Port 0 picks free ones."""

    store: Path
    namesrv_port: int = NAMESRV_PORT
    broker_port: int = BROKER_PORT
    brokers: int = 1
    slaves: int = 0
    # Whether masters acknowledge a message when a slave has it.
    sync: bool = False
    # Whether the members of a broker set choose their master by themselves, by an etcd of this standalone.
    failover: bool = False
    # Loopback: what is started to try something out must not be open to everybody.
    host: str = LOOPBACK
    # The advertised address; the listening address if not given.
    advertise: str | None = None
    # Where health checks of all together are answered by HTTP; None: nowhere.
    http_port: int | None = None
    # Where clients of RocketMQ 5 are served by gRPC; None: nowhere.
    grpc_port: int | None = None
    # Whether metrics are measured also without that port, for the console.
    has_metrics: bool = False
    # Access control with these accounts; None: everybody may do everything.
    accounts: StandaloneAccounts | None = None

    def check(self) -> None:
        """ConfigError lists every problem with the options."""
        problems = [*self._number_problems(), *self._store_problems()]
        if problems:
            raise ConfigError(*problems)

    def _number_problems(self) -> list[str]:
        problems = []
        if not 1 <= self.brokers <= MAX_BROKERS:
            problems.append(f"--brokers {self.brokers}: must be from 1 to {MAX_BROKERS}")
        if not 0 <= self.slaves <= MAX_SLAVES:
            problems.append(f"--slaves {self.slaves}: must be from 0 to {MAX_SLAVES}, for each broker")
        if self.sync and not self.slaves:
            problems.append("--sync: a message is acknowledged when a slave has it; add --slaves 1")
        if self.failover and not self.slaves:
            problems.append("--failover: a slave takes over from the master; add --slaves 2")
        ports = {
            "--namesrv-port": self.namesrv_port,
            "--broker-port": self.broker_port,
            "--http-port": self.http_port or 0,
            "--grpc-port": self.grpc_port or 0,
        }
        for option, port in ports.items():
            if not 0 <= port <= _MAX_PORT:
                problems.append(f"{option} {port}: must be from 0 to {_MAX_PORT}; 0 picks a free one")
        if not problems and (last := max(map(self.port_of, self.replicas))) > _MAX_PORT:
            problems.append(f"--broker-port {self.broker_port}: the last broker would need port {last}")
        problems += self._same_port_problems(ports)
        return problems

    def _same_port_problems(self, ports: dict[str, int]) -> Iterator[str]:
        for (option, port), (other, other_port) in combinations(ports.items(), 2):
            if port and port == other_port:
                yield f"{option} and {other} are both {port}; choose different ports"

    def _store_problems(self) -> list[str]:
        if self.is_single or not self.is_store:
            return []
        option = "--brokers" if self.brokers > 1 else "--slaves"
        return [f"{self.store}: is the store of one broker; leave {option}, or use another --store"]

    @property
    def is_measured(self) -> bool:
        """Whether metrics are measured."""
        return self.has_metrics or self.http_port is not None

    @property
    def is_single(self) -> bool:
        """Whether there is only one broker, which then runs in the same process as the name server."""
        return self.brokers == 1 and not self.slaves

    @property
    def replicas(self) -> list[Replica]:
        """All brokers, each master followed by its slaves."""
        ids = range(MASTER_ID, MASTER_ID + 1 + self.slaves)
        return [Replica(index, broker_id) for index in range(self.brokers) for broker_id in ids]

    @property
    def is_store(self) -> bool:
        """Whether the folder is a store itself, Apache's for example; else stores are made in it."""
        return any((self.store / name).exists() for name in _STORE_FOLDERS)

    @property
    def unserved_stores(self) -> list[Path]:
        """Stores of further brokers than requested, whose messages are not served."""
        names = (Replica(index).label for index in range(self.brokers, MAX_BROKERS))
        return [self.store / name for name in names if (self.store / name / "commitlog").exists()]

    @property
    def advertised(self) -> str:
        """The advertised address."""
        return self.advertise or advertised_address(self.host)

    @property
    def log_folder(self) -> Path:
        return self.store / "logs"

    def make_folder(self) -> None:
        """Make the folder of the stores. ConfigError: it cannot be made, or nothing can be put into it."""
        if (problem := folder_problem(self.store)) is not None:
            raise ConfigError(f"--store {self.store}: {problem}")
        try:
            self.store.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--store {self.store}: cannot create the folder: {error.strerror or error}"
            ) from error
        if not os.access(self.store, os.W_OK | os.X_OK):
            raise ConfigError(
                f"--store {self.store}: cannot write to the folder; check owner and permissions"
            )

    def port_of(self, replica: Replica) -> int:
        """The requested port of a broker."""
        offset = replica.index * PORT_STEP + replica.broker_id * _PORTS_OF_ONE
        return self.broker_port and self.broker_port + offset

    def store_of(self, replica: Replica) -> Path:
        """The store of a broker."""
        return self.store if self.is_store else self.store / replica.label

    def namesrv_address(self, port: int) -> str:
        """How our own brokers reach the name server."""
        return join_address(LOOPBACK if is_wildcard(self.host) else self.host, port)


def namesrv_config(options: StandaloneOptions) -> tuple[NamesrvConfig, list[str]]:
    """The name server's configuration; keys set earlier by mqadmin are in its file."""
    folder = options.store / "namesrv"
    overrides = {
        "bindAddress": options.host,
        "listenPort": str(options.namesrv_port),
        "rocketmqHome": str(options.store),
        "kvConfigPath": str(folder / "kvConfig.json"),
        "configStorePath": str(folder / "namesrv.properties"),
    }
    if options.accounts is not None:
        # Users that are changed at a broker are changed here, too.
        users = options.store_of(Replica(0)) / "config"
        overrides |= {**options.accounts.namesrv_keys, "accessUsersFolder": str(users)}
    path = _existing(folder / "namesrv.properties")
    names = {**NAMESRV_OPTIONS, **_ACCESS_OPTIONS}
    return load_namesrv_config(path, overrides, option_names=names)


def broker_overrides(
    options: StandaloneOptions, replica: Replica, namesrv_addr: str, etcd_address: str | None = None
) -> dict[str, str]:
    """RocketMQ keys of a broker, without secrets; `etcd_address` with fail-over."""
    keys = {
        "brokerName": replica.broker_name,
        "brokerIP1": options.advertised,
        "bindAddress": options.host,
        "listenPort": str(options.port_of(replica)),
        "namesrvAddr": namesrv_addr,
        "storePathRootDir": str(options.store_of(replica)),
        "rocketmqHome": str(options.store),
        "brokerConfigPath": str(config_file(options, replica)),
    }
    if not options.broker_port:
        keys["haListenPort"] = "0"
    if not options.is_single:
        keys["fastListenPort"] = "0"  # two below a master there may be a slave
    if etcd_address is not None:
        keys |= {"brokerRole": SYNC_MASTER, "failoverEtcdEndpoints": etcd_address}
    elif replica.is_slave:
        keys |= {"brokerRole": SLAVE, "brokerId": str(replica.broker_id)}
    elif options.sync:
        keys["brokerRole"] = SYNC_MASTER
    return keys


def broker_config(
    options: StandaloneOptions, replica: Replica, namesrv_addr: str, etcd_address: str | None = None
) -> tuple[BrokerConfig, list[str]]:
    """The configuration of a broker; other keys may stand in its file."""
    overrides = broker_overrides(options, replica, namesrv_addr, etcd_address)
    if options.accounts is not None:
        overrides |= options.accounts.broker_keys
    path = _existing(config_file(options, replica))
    role = "--failover" if options.failover else "--slaves" if replica.is_slave else "--sync"
    names = {
        **BROKER_OPTIONS,
        **_ACCESS_OPTIONS,
        "brokerRole": role,
        "brokerId": "--slaves",
        "failoverEtcdEndpoints": "--failover",
    }
    return load_broker_config(path, overrides, option_names=names, notes_unused=True)


def config_file(options: StandaloneOptions, replica: Replica) -> Path:
    """The file with further keys of a broker, including those set by mqadmin. Beside the store: a non-empty
    folder would not be a new store."""
    return options.store / f"{replica.label}.properties"


def _existing(path: Path) -> Path | None:
    return path if path.exists() else None
