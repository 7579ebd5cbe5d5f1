"""BrokerConfig: every key of a broker.

Keys that are honoured are attributes, RocketMQ's name in Python's spelling; the rest is kept so that
a config request shows what the file says. Not here: the keys' defaults (broker_keys.py,
store_keys.py), reading them (broker_loader.py), what the parts of a broker are told (broker/settings.py).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from kourou.config.broker_keys import BROKER_KEYS
from kourou.config.broker_settings import BrokerSettings
from kourou.config.component import ComponentConfig, attributes_of
from kourou.config.host import advertised_address, host_name
from kourou.config.keys import Key, KeyTable, Value, ValueType, setting, settings_of
from kourou.config.remoting import CLIENT_KEYS, RemotingSettings, TlsSettings
from kourou.config.store_keys import STORE_KEYS
from kourou.config.store_settings import StoreSettings

# Clients find a broker through the name servers; this is where Apache's listens.
LISTEN_PORT: Final = 10_911
MASTER_ID: Final = 0
SYNC_MASTER: Final = "SYNC_MASTER"
SLAVE: Final = "SLAVE"


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(BrokerSettings, StoreSettings, RemotingSettings, ComponentConfig):
    """What a broker may be told. Paths are absolute once loaded from a file or options.

    Name and addresses that are not given are found out when it is made.
    """

    # Paths, and TLS, which nobody may weaken from outside.
    NEVER_BY_REQUEST = frozenset(
        {
            "configBlackList",
            "brokerConfigPath",
            "rocketmqHome",
            "storePathRootDir",
            "storePathCommitLog",
            "readOnlyCommitLogStorePaths",
            *settings_of(TlsSettings),
        }
    )

    listen_port: int = setting(
        Key("listenPort", ValueType.INT, LISTEN_PORT, low=0, high=65_535, important=True)
    )
    # Log and data folder. Apache has no default and refuses to start without.
    rocketmq_home: str | None = setting(Key("rocketmqHome", ValueType.STRING, important=True))
    # Values of keys that are known and without effect, where they are not the default.
    without_effect: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        found = {
            "broker_name": self.broker_name or host_name(),
            "broker_ip1": self.broker_ip1 or advertised_address(self.bind_address),
        }
        found["broker_ip2"] = self.broker_ip2 or found["broker_ip1"]
        for attribute, value in found.items():
            object.__setattr__(self, attribute, value)
        if self.ha_listen_port is None and self.listen_port:
            object.__setattr__(self, "ha_listen_port", self.listen_port + 1)

    @property
    def saved_in(self) -> str | None:
        """The file that changes are written to."""
        return self.broker_config_path

    @property
    def is_slave(self) -> bool:
        """Whether the broker follows a master."""
        return self.broker_role == SLAVE

    @classmethod
    def known_keys(cls) -> KeyTable:
        """The keys a broker honours, or has a word for."""
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
    from kourou.config.namesrv import namesrv_keys
    from kourou.config.other_keys import OTHER_KEYS

    return KeyTable([*namesrv_keys(), *OTHER_KEYS])


@functools.cache
def without_effect_keys() -> tuple[Key, ...]:
    """Keys of brokers that have no attribute: each says what happens instead."""
    honoured = settings_of(BrokerConfig)
    return tuple(key for key in (*BROKER_KEYS, *STORE_KEYS, *CLIENT_KEYS) if key.name not in honoured)


def split_values(values: Mapping[str, Value]) -> tuple[dict[str, Value], dict[str, Value]]:
    """Values by key name: those of attributes, and those without effect."""
    honoured = settings_of(BrokerConfig)
    attributes = {name: value for name, value in values.items() if name in honoured}
    return attributes, {name: value for name, value in values.items() if name not in honoured}
