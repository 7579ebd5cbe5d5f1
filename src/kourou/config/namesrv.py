"""NamesrvConfig: every key of a name server, its default and the reason for it.

Not here: reading it from a file and options (namesrv_loader.py), what the keys do (`namesrv/`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from kourou.config.keys import Key, KeyTable, Value, ValueType, format_value, setting, settings_of
from kourou.config.properties import format_properties
from kourou.config.properties_file import update_file
from kourou.config.remoting import RemotingServerSettings, TlsSettings
from kourou.config.settings import SettingsReader

_BOOL, _INT, _LONG, _STRING = ValueType.BOOL, ValueType.INT, ValueType.LONG, ValueType.STRING

_ONE_LOOP: Final = "requests are handled on one event loop, in the order they arrive"
_NO_CONTROLLER: Final = "a name server runs no controller"
_OWN_ROUTES: Final = "routes come from the brokers registered here, never from another name server"
# Whatever configBlackList says: paths, as in Apache, and TLS, which nobody may weaken from outside.
_NEVER_BY_REQUEST: Final = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", *settings_of(TlsSettings)}
)


@dataclass(frozen=True, kw_only=True)
class NamesrvConfig(RemotingServerSettings, TlsSettings):
    """What a name server may be told. Paths are absolute once loaded from a file or options."""

    listen_port: int = setting(
        Key("listenPort", _INT, 9876, low=0, high=65_535, important=True)  # where every client looks
    )
    # Log and data folder. Apache has no default and refuses to start without.
    rocketmq_home: str | None = setting(Key("rocketmqHome", _STRING, important=True))
    # None means <home>/namesrv/kvConfig.json. Apache's is <user.home>/namesrv/kvConfig.json.
    kv_config_path: str | None = setting(Key("kvConfigPath", _STRING, important=True))
    # Where changes by updateNamesrvConfig are written: the file given at start, else
    # <home>/namesrv/namesrv.properties.
    config_store_path: str | None = setting(Key("configStorePath", _STRING, important=True))
    product_env_name: str = setting(Key("productEnvName", _STRING, "center", _OWN_ROUTES))
    cluster_test: bool = setting(Key("clusterTest", _BOOL, False, _OWN_ROUTES))
    # Routes carry the order configuration of a topic. Off, as Apache: clients of today ignore it.
    order_message_enable: bool = setting(Key("orderMessageEnable", _BOOL, False))
    # Brokers learn the order configuration from the answer to their registration.
    return_order_topic_config_to_broker: bool = setting(Key("returnOrderTopicConfigToBroker", _BOOL, True))
    # How often silent brokers are looked for; a tenth of the shortest usual heartbeat timeout.
    scan_not_active_broker_interval: int = setting(
        Key("scanNotActiveBrokerInterval", _LONG, 5_000, low=10, high=3_600_000)
    )
    # Brokers whose connection broke and whose removal is not done yet.
    un_register_broker_queue_capacity: int = setting(
        Key("unRegisterBrokerQueueCapacity", _INT, 3_000, "a broken connection removes its brokers at once")
    )
    # A slave may stand in for a master that is gone. Off: brokers have to agree to it.
    support_acting_master: bool = setting(Key("supportActingMaster", _BOOL, False))
    notify_min_broker_id_changed: bool = setting(Key("notifyMinBrokerIdChanged", _BOOL, False))
    enable_all_topic_list: bool = setting(Key("enableAllTopicList", _BOOL, True))
    enable_topic_list: bool = setting(Key("enableTopicList", _BOOL, True))
    # A topic that its broker no longer reports goes away at the broker's next registration. Off:
    # brokers that report in parts would lose topics.
    delete_topic_with_broker_registration: bool = setting(
        Key("deleteTopicWithBrokerRegistration", _BOOL, False)
    )
    # Answers no route until every broker had time to register: protects clients from half a route.
    need_wait_for_service: bool = setting(Key("needWaitForService", _BOOL, False))
    wait_seconds_for_service: int = setting(Key("waitSecondsForService", _INT, 45, low=0, high=86_400))
    # Keys that a request may not change: files outside our folders could be overwritten by them.
    config_black_list: str = setting(
        Key("configBlackList", _STRING, "configBlackList;configStorePath;kvConfigPath")
    )
    enable_controller_in_namesrv: bool = setting(
        Key("enableControllerInNamesrv", _BOOL, False, _NO_CONTROLLER)
    )
    client_request_thread_pool_nums: int = setting(Key("clientRequestThreadPoolNums", _INT, 8, _ONE_LOOP))
    default_thread_pool_nums: int = setting(Key("defaultThreadPoolNums", _INT, 16, _ONE_LOOP))
    client_request_thread_pool_queue_capacity: int = setting(
        Key("clientRequestThreadPoolQueueCapacity", _INT, 50_000, _ONE_LOOP)
    )
    default_thread_pool_queue_capacity: int = setting(
        Key("defaultThreadPoolQueueCapacity", _INT, 10_000, _ONE_LOOP)
    )
    # The other entries of the file, a broker's for example: shown and kept, as Apache does.
    extra: Mapping[str, str] = field(default_factory=dict)

    def to_properties(self) -> str:
        """The configuration as GET_NAMESRV_CONFIG answers it: sorted `key=value` lines, no secrets."""
        return self._properties

    @functools.cached_property
    def _properties(self) -> str:
        # Made once: the values never change, and monitoring asks for them often.
        return format_properties(self.texts())

    def texts(self, *, important: bool = False) -> dict[str, str]:
        """Key to text of everything to be shown; with `important` only what an operator looks for first."""
        texts = {} if important else dict(self.extra)
        for name, (attribute, key) in settings_of(NamesrvConfig).items():
            value: Value = getattr(self, attribute)
            if self._is_shown(key, value) and (not important or key.important or value != key.default):
                texts[name] = format_value(value)
        return texts

    def updated(self, properties: Mapping[str, str]) -> Self:
        """A copy with new values. Unknown keys are ignored, as Apache does; a bad value is ConfigError.

        Entries that came from the file without being ours are changed too, so that the file and
        the answer agree.
        """
        reader = SettingsReader(namesrv_keys(), lambda: KeyTable([]))
        reader.read_values(properties, "request")
        reader.settings.check()
        kept = {name: text for name, text in reader.settings.extra.items() if name in self.extra}
        return dataclasses.replace(
            self, **attributes_of(type(self), reader.settings.values), extra={**self.extra, **kept}
        )

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that a request to change the configuration may not name: `configBlackList` and more."""
        asked = {name.strip() for name in self.config_black_list.split(";") if name.strip()}
        return frozenset(asked | _NEVER_BY_REQUEST)

    def persist(self, changes: Mapping[str, str]) -> None:
        """Write changed keys to `config_store_path`; on return they are on disk.

        Only keys that mean something are written; comments and other lines of the file stay.
        """
        known = dict(self._known(changes))
        if known and self.config_store_path is not None:
            update_file(Path(self.config_store_path), known)

    def _known(self, changes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        table = namesrv_keys()
        for name, text in changes.items():
            key = table.find(name)
            if key is not None or name in self.extra:
                yield (key.name if key else name), text

    @staticmethod
    def _is_shown(key: Key, value: Value) -> bool:
        return value is not None and not key.secret and (key.shown or value != key.default)


def namesrv_keys() -> KeyTable:
    """The keys a name server honours, or has a word for."""
    return KeyTable(key for _, key in settings_of(NamesrvConfig).values())


def attributes_of(config_type: type, values: Mapping[str, Value]) -> dict[str, Any]:
    """Attribute to value, from key name to value. The keys have checked that the types fit."""
    known = settings_of(config_type)
    return {known[name][0]: value for name, value in values.items()}
