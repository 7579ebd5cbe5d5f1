"""NamesrvConfig: every key of a name server, its default and the reason for it.

Not here: reading it from a file and options (namesrv_loader.py), what the keys do (`namesrv/`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from kourou.config.component import ComponentConfig
from kourou.config.keys import Key, KeyTable, ValueType, setting, settings_of
from kourou.config.remoting import RemotingSettings, TlsSettings

_BOOL, _INT, _LONG, _STRING = ValueType.BOOL, ValueType.INT, ValueType.LONG, ValueType.STRING

_ONE_LOOP: Final = "requests are handled on one event loop, in the order they arrive"
_NO_CONTROLLER: Final = "a name server runs no controller"
_OWN_ROUTES: Final = "routes come from the brokers registered here, never from another name server"


@dataclass(frozen=True, kw_only=True)
class NamesrvConfig(RemotingSettings, ComponentConfig):
    """What a name server may be told. Paths are absolute once loaded from a file or options."""

    # Paths, as in Apache, and TLS, which nobody may weaken from outside.
    NEVER_BY_REQUEST = frozenset(
        {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", *settings_of(TlsSettings)}
    )

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

    @property
    def saved_in(self) -> str | None:
        """The file that changes are written to."""
        return self.config_store_path

    @classmethod
    def other_keys(cls) -> KeyTable:
        """Keys of every other component; loaded when a key is not a name server's."""
        return _other_keys()


def namesrv_keys() -> KeyTable:
    """The keys a name server honours, or has a word for."""
    return NamesrvConfig.known_keys()


@functools.cache
def _other_keys() -> KeyTable:
    from kourou.config.broker_keys import BROKER_KEYS
    from kourou.config.other_keys import OTHER_KEYS
    from kourou.config.remoting import CLIENT_KEYS
    from kourou.config.store_keys import STORE_KEYS

    return KeyTable([*BROKER_KEYS, *STORE_KEYS, *CLIENT_KEYS, *OTHER_KEYS])
