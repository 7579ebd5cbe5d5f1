"""NamesrvConfig: the keys of a name server; the form is that of broker_settings.py.

Not here: reading them from a file and options (namesrv_loader.py), what the keys do (`namesrv/`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.config.component import ComponentConfig
from kourou.config.keys import BOOL, INT, LONG, STRING, Key, KeyTable, key_field, setting
from kourou.config.namesrv_access_settings import NamesrvAccessSettings
from kourou.config.namesrv_open_keys import CHANGEABLE, SHOWN
from kourou.config.remoting import RemotingSettings
from kourou.errors import ConfigError

_ONE_LOOP: Final = "requests are handled on one event loop, in the order they arrive"
_NO_CONTROLLER: Final = "a name server runs no controller"
_OWN_ROUTES: Final = "routes come from the brokers registered here, never from another name server"

_namesrv = partial(setting, "Name server")


@dataclass(frozen=True, kw_only=True)
class NamesrvConfig(RemotingSettings, NamesrvAccessSettings, ComponentConfig):
    """The configuration of a name server. Paths are absolute once loaded from a file or options."""

    listen_port: int = _namesrv(
        "listenPort",
        INT,
        9876,
        "The port, on which clients expect it; 0 picks a free one.",
        low=0,
        high=65_535,
        live=False,
        important=True,
    )
    # Apache's is <user.home>/namesrv/kvConfig.json.
    kv_config_path: str | None = _namesrv(
        "kvConfigPath",
        STRING,
        None,
        "The file of the KV configuration; `namesrv/kvConfig.json` in the home folder if not set.",
        live=False,
        protected=True,
        important=True,
    )
    config_store_path: str | None = _namesrv(
        "configStorePath",
        STRING,
        None,
        "The file that `updateNamesrvConfig` writes: the one given at the start, whatever this key says; "
        "else `namesrv/namesrv.properties` in the home folder.",
        live=False,
        protected=True,
        important=True,
    )
    config_black_list: str = _namesrv(
        "configBlackList",
        STRING,
        "configBlackList;configStorePath;kvConfigPath",
        "Keys that no request may change, separated by `;`. Paths and TLS keys are always included.",
        protected=True,
    )
    # A tenth of the shortest usual heartbeat timeout.
    scan_not_active_broker_interval: int = _namesrv(
        "scanNotActiveBrokerInterval",
        LONG,
        5_000,
        "How often silent brokers are looked for, in ms.",
        low=10,
        high=3_600_000,
    )
    need_wait_for_service: bool = _namesrv(
        "needWaitForService",
        BOOL,
        False,
        "Return no route after a start until all brokers had time to register, so that clients do not see "
        "half of one.",
    )
    wait_seconds_for_service: int = _namesrv(
        "waitSecondsForService", INT, 45, "That time, in seconds.", low=0, high=86_400
    )
    # Off: brokers that register in parts would lose topics.
    delete_topic_with_broker_registration: bool = _namesrv(
        "deleteTopicWithBrokerRegistration",
        BOOL,
        False,
        "Remove a topic that its broker no longer registers.",
    )
    order_message_enable: bool = _namesrv(
        "orderMessageEnable",
        BOOL,
        False,
        "Send clients the order configuration of topics; current clients ignore it.",
    )
    return_order_topic_config_to_broker: bool = _namesrv(
        "returnOrderTopicConfigToBroker",
        BOOL,
        True,
        "Send brokers the order configuration when they register.",
    )
    # Off: brokers have to agree to it.
    support_acting_master: bool = _namesrv(
        "supportActingMaster",
        BOOL,
        False,
        "Let a slave act for a master that is gone (Apache's 5.x slaves).",
    )
    notify_min_broker_id_changed: bool = _namesrv(
        "notifyMinBrokerIdChanged",
        BOOL,
        False,
        "Notify the brokers of a group when the one with the lowest id changes.",
    )
    enable_all_topic_list: bool = _namesrv(
        "enableAllTopicList", BOOL, True, "Answer requests for the list of all topics."
    )
    enable_topic_list: bool = _namesrv(
        "enableTopicList", BOOL, True, "Answer requests for the topics of a cluster or of a kind."
    )

    product_env_name: str = key_field(Key("productEnvName", STRING, "center", _OWN_ROUTES))
    cluster_test: bool = key_field(Key("clusterTest", BOOL, False, _OWN_ROUTES))
    un_register_broker_queue_capacity: int = key_field(
        Key("unRegisterBrokerQueueCapacity", INT, 3_000, "a broken connection removes its brokers at once")
    )
    enable_controller_in_namesrv: bool = key_field(
        Key("enableControllerInNamesrv", BOOL, False, _NO_CONTROLLER)
    )
    client_request_thread_pool_nums: int = key_field(Key("clientRequestThreadPoolNums", INT, 8, _ONE_LOOP))
    default_thread_pool_nums: int = key_field(Key("defaultThreadPoolNums", INT, 16, _ONE_LOOP))
    client_request_thread_pool_queue_capacity: int = key_field(
        Key("clientRequestThreadPoolQueueCapacity", INT, 50_000, _ONE_LOOP)
    )
    default_thread_pool_queue_capacity: int = key_field(
        Key("defaultThreadPoolQueueCapacity", INT, 10_000, _ONE_LOOP)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.access_problem is not None:
            raise ConfigError(self.access_problem)

    def shows(self, name: str) -> bool:
        """Whether a response may have this key; none has the file's entries for other programs."""
        return name in SHOWN

    def accepts(self, name: str) -> bool:
        """Whether a request may change this key. What the name server does not know is ignored or refused
        later, unless it is in its file, which may be another program's too."""
        key = self.known_keys().find(name)
        return name not in self.extra if key is None else key.name in CHANGEABLE

    @property
    def saved_in(self) -> str | None:
        """The file that changes are written to."""
        return self.config_store_path

    @classmethod
    def other_keys(cls) -> KeyTable:
        """Keys of every other component; loaded when a key is not a name server's."""
        return _other_keys()


@functools.cache
def _other_keys() -> KeyTable:
    from kourou.config.broker import BrokerConfig
    from kourou.config.other_keys import OTHER_KEYS

    return KeyTable([*BrokerConfig.known_keys(), *OTHER_KEYS])
