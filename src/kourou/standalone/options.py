"""The options of standalone, and the resulting configurations of name server and brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from string import ascii_lowercase
from typing import Final

from kourou.config import BrokerConfig, NamesrvConfig, load_broker_config, load_namesrv_config
from kourou.config.home import folder_problem
from kourou.config.host import LOOPBACK, advertised_address, is_wildcard
from kourou.errors import ConfigError
from kourou.transport.addresses import join_address

NAMESRV_PORT: Final = 9_876
BROKER_PORT: Final = 10_911
# A broker takes its port and the next one, for slaves; the rest is room.
PORT_STEP: Final = 10
MAX_BROKERS: Final = len(ascii_lowercase)
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
PROBE_OPTIONS: Final = {"httpPort": "--http-port", "httpBindAddress": "--host"}
"""Key to option, of the listener for health checks."""


@dataclass(frozen=True, kw_only=True)
class StandaloneOptions:
    """One name server and `brokers` brokers. Port 0 picks free ones."""

    store: Path
    namesrv_port: int = NAMESRV_PORT
    broker_port: int = BROKER_PORT
    brokers: int = 1
    # Loopback: what is started to try something out must not be open to everybody.
    host: str = LOOPBACK
    # The advertised address; the listening address if not given.
    advertise: str | None = None
    # Where health checks of all together are answered by HTTP; None: nowhere.
    http_port: int | None = None

    def check(self) -> None:
        """ConfigError lists every problem with the options."""
        problems = [*self._number_problems(), *self._store_problems()]
        if problems:
            raise ConfigError(*problems)

    def _number_problems(self) -> list[str]:
        problems = []
        if not 1 <= self.brokers <= MAX_BROKERS:
            problems.append(f"--brokers {self.brokers}: must be from 1 to {MAX_BROKERS}")
        ports = {
            "--namesrv-port": self.namesrv_port,
            "--broker-port": self.broker_port,
            "--http-port": self.http_port or 0,
        }
        for option, port in ports.items():
            if not 0 <= port <= _MAX_PORT:
                problems.append(f"{option} {port}: must be from 0 to {_MAX_PORT}; 0 picks a free one")
        last = self.port_of(self.brokers - 1)
        if not problems and last > _MAX_PORT:
            problems.append(f"--broker-port {self.broker_port}: the last broker would need port {last}")
        problems += self._same_port_problems(ports)
        return problems

    def _same_port_problems(self, ports: dict[str, int]) -> Iterator[str]:
        for (option, port), (other, other_port) in combinations(ports.items(), 2):
            if port and port == other_port:
                yield f"{option} and {other} are both {port}; choose different ports"

    def _store_problems(self) -> list[str]:
        if self.brokers > 1 and self.is_store:
            return [f"{self.store}: is the store of one broker; leave --brokers, or use another --store"]
        return []

    @property
    def is_store(self) -> bool:
        """Whether the folder is a store itself, Apache's for example; else stores are made in it."""
        return any((self.store / name).exists() for name in _STORE_FOLDERS)

    @property
    def unserved_stores(self) -> list[Path]:
        """Stores of further brokers than requested, whose messages are not served."""
        names = (broker_name(index) for index in range(self.brokers, MAX_BROKERS))
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

    def port_of(self, index: int) -> int:
        """The requested port of a broker, by number."""
        return self.broker_port and self.broker_port + index * PORT_STEP

    def store_of(self, index: int) -> Path:
        """The store of the broker of that number."""
        return self.store if self.is_store else self.store / broker_name(index)

    def namesrv_address(self, port: int) -> str:
        """How our own brokers reach the name server."""
        return join_address(LOOPBACK if is_wildcard(self.host) else self.host, port)


def broker_name(index: int) -> str:
    """`broker-a`, `broker-b`, …"""
    return f"broker-{ascii_lowercase[index]}"


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
    path = _existing(folder / "namesrv.properties")
    return load_namesrv_config(path, overrides, option_names=NAMESRV_OPTIONS)


def broker_overrides(options: StandaloneOptions, index: int, namesrv_addr: str) -> dict[str, str]:
    """RocketMQ keys of the broker of that number."""
    return {
        "brokerName": broker_name(index),
        "brokerIP1": options.advertised,
        "bindAddress": options.host,
        "listenPort": str(options.port_of(index)),
        "namesrvAddr": namesrv_addr,
        "storePathRootDir": str(options.store_of(index)),
        "rocketmqHome": str(options.store),
        "brokerConfigPath": str(config_file(options, index)),
    }


def broker_config(
    options: StandaloneOptions, index: int, namesrv_addr: str
) -> tuple[BrokerConfig, list[str]]:
    """The configuration of the broker of that number; other keys may stand in its file."""
    overrides = broker_overrides(options, index, namesrv_addr)
    path = _existing(config_file(options, index))
    return load_broker_config(path, overrides, option_names=BROKER_OPTIONS, notes_unused=True)


def config_file(options: StandaloneOptions, index: int) -> Path:
    """The file with further keys of a broker, including those set by mqadmin. Beside the store: a non-empty
    folder would not be a new store."""
    return options.store / f"{broker_name(index)}.properties"


def _existing(path: Path) -> Path | None:
    return path if path.exists() else None
