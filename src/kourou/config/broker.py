"""BrokerConfig: every key of a broker.

Keys that are honoured are attributes, RocketMQ's name in Python's spelling; the others are kept so
that a config request shows what the file says.
Not here: the keys (broker_settings.py, store_settings.py, remoting.py), reading them
(broker_loader.py), the settings of a broker's parts (broker/settings.py).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from kourou.config.access_settings import AccessSettings, access_problem
from kourou.config.broker_settings import BrokerSettings
from kourou.config.broker_without_effect import BROKER_KEYS_WITHOUT_EFFECT
from kourou.config.component import ComponentConfig, attributes_of
from kourou.config.failover_settings import FailoverSettings
from kourou.config.host import advertised_address, host_name
from kourou.config.inner_credentials import InnerCredentialsSettings
from kourou.config.keys import Key, KeyTable, Value, settings_of
from kourou.config.metrics_settings import PROM, MetricsSettings
from kourou.config.remoting import CLIENT_KEYS_WITHOUT_EFFECT, RemotingSettings
from kourou.config.replication_settings import ReplicationSettings
from kourou.config.store_settings import StoreSettings
from kourou.config.store_without_effect import STORE_KEYS_WITHOUT_EFFECT
from kourou.errors import ConfigError

MASTER_ID: Final = 0
SYNC_MASTER: Final = "SYNC_MASTER"
SLAVE: Final = "SLAVE"


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    BrokerSettings,
    StoreSettings,
    ReplicationSettings,
    FailoverSettings,
    MetricsSettings,
    RemotingSettings,
    InnerCredentialsSettings,
    AccessSettings,
    ComponentConfig,
):
    """The configuration of a broker. Paths are absolute once loaded from a file or options.

    Name and addresses that are not given are filled in.
    """

    # Values of keys without effect, where they are not the default.
    without_effect: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_access()
        found = {
            "broker_name": self.broker_name or host_name(),
            "broker_ip1": self.broker_ip1 or advertised_address(self.bind_address),
        }
        found["broker_ip2"] = self.broker_ip2 or found["broker_ip1"]
        for attribute, value in found.items():
            object.__setattr__(self, attribute, value)
        if self.ha_listen_port is None and self.listen_port:
            object.__setattr__(self, "ha_listen_port", self.listen_port + 1)
        if self.min_in_sync_replicas is None:
            object.__setattr__(self, "min_in_sync_replicas", 2 if self.has_failover else 1)
        if self.fast_listen_port is None and self.listen_port:
            object.__setattr__(self, "fast_listen_port", max(self.listen_port - 2, 0))

    def _check_access(self) -> None:
        problem = access_problem(
            acl=self.acl_enable,
            authentication=self.authentication_enabled,
            authorization=self.authorization_enabled,
        )
        if problem is not None:
            raise ConfigError(problem)

    @property
    def saved_in(self) -> str | None:
        """The file that changes are written to."""
        return self.broker_config_path

    @property
    def min_copies(self) -> int:
        """`minInSyncReplicas`, or its default."""
        return self.min_in_sync_replicas or 1

    @property
    def is_slave(self) -> bool:
        """Whether the broker follows a master."""
        return self.broker_role == SLAVE

    @property
    def served_metrics_port(self) -> int | None:
        """The port for metrics beside the HTTP port; None: there is none."""
        if self.metrics_port is None and self.metrics_exporter_type == PROM:
            return self.metrics_prom_exporter_port
        return self.metrics_port

    @classmethod
    def known_keys(cls) -> KeyTable:
        """The keys of a broker, those without effect included."""
        return _known_keys()

    @classmethod
    def other_keys(cls) -> KeyTable:
        """Keys of every other component; loaded when a key is not a broker's."""
        return _other_keys()

    def values(self) -> Iterator[tuple[Key, Value]]:
        """Every key with its value, those without effect included."""
        yield from super().values()
        for key in without_effect_keys():
            yield key, self.without_effect.get(key.name, key.default)

    def _with(self, values: Mapping[str, Value], extra: Mapping[str, str]) -> Self:
        attributes, without_effect = split_values(values)
        kept = {**self.without_effect, **without_effect}
        return dataclasses.replace(
            self, **attributes_of(type(self), attributes), without_effect=kept, extra=extra
        )


@functools.cache
def _known_keys() -> KeyTable:
    honoured = (key for _, key in settings_of(BrokerConfig).values())
    return KeyTable([*honoured, *without_effect_keys()])


@functools.cache
def _other_keys() -> KeyTable:
    from kourou.config.namesrv import NamesrvConfig
    from kourou.config.other_keys import OTHER_KEYS

    return KeyTable([*NamesrvConfig.known_keys(), *OTHER_KEYS])


def without_effect_keys() -> tuple[Key, ...]:
    """Keys of a broker that have no attribute, each with what happens instead."""
    return (*BROKER_KEYS_WITHOUT_EFFECT, *STORE_KEYS_WITHOUT_EFFECT, *CLIENT_KEYS_WITHOUT_EFFECT)


def split_values(values: Mapping[str, Value]) -> tuple[dict[str, Value], dict[str, Value]]:
    """Values by key name: those of attributes, and those without effect."""
    honoured = settings_of(BrokerConfig)
    attributes = {name: value for name, value in values.items() if name in honoured}
    return attributes, {name: value for name, value in values.items() if name not in honoured}
