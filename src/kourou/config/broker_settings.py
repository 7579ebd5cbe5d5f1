"""The attributes of a broker's configuration, except those of its store: one a key that is honoured.

Names, types, defaults and reasons are those of `broker_keys.py`; here they get the types that the
type checker knows. A test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kourou.config.broker_keys import BROKER_KEYS
from kourou.config.keys import setting
from kourou.config.remoting import CLIENT_KEYS

_KEYS: Final = {key.name: key for key in (*BROKER_KEYS, *CLIENT_KEYS)}


def _of(name: str) -> Any:
    return setting(_KEYS[name])


# The methods are made once, for BrokerConfig: there are many fields, and a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class BrokerSettings:
    """What a broker may be told."""

    # who the broker is, and its name servers; what is not set of the first, BrokerConfig finds out
    broker_name: str = _of("brokerName")
    broker_cluster_name: str = _of("brokerClusterName")
    broker_ip1: str = _of("brokerIP1")
    broker_ip2: str = _of("brokerIP2")
    namesrv_addr: str | None = _of("namesrvAddr")
    rmq_address_server_domain: str | None = _of("rmqAddressServerDomain")
    rmq_address_server_sub_group: str = _of("rmqAddressServerSubGroup")
    fetch_namesrv_addr_by_address_server: bool = _of("fetchNamesrvAddrByAddressServer")
    update_name_server_addr_period: int = _of("updateNameServerAddrPeriod")
    region_id: str = _of("regionId")
    msg_trace_topic_name: str = _of("msgTraceTopicName")
    config_black_list: str = _of("configBlackList")
    broker_config_path: str | None = _of("brokerConfigPath")
    broker_id: int = _of("brokerId")
    broker_permission: int = _of("brokerPermission")

    # keys of Kourou's own
    reject_inconsistent_subscription: bool = _of("rejectInconsistentSubscription")
    reject_duplicate_client_id: bool = _of("rejectDuplicateClientId")
    delete_unread_under_pressure: bool = _of("deleteUnreadUnderPressure")
    unread_group_reserved_time: int = _of("unreadGroupReservedTime")
    max_transfer_bytes_per_pull: int = _of("maxTransferBytesPerPull")
    compiled_kernel_enable: bool = _of("compiledKernelEnable")

    # topics and groups
    default_topic_queue_nums: int = _of("defaultTopicQueueNums")
    auto_create_topic_enable: bool = _of("autoCreateTopicEnable")
    cluster_topic_enable: bool = _of("clusterTopicEnable")
    broker_topic_enable: bool = _of("brokerTopicEnable")
    auto_create_subscription_group: bool = _of("autoCreateSubscriptionGroup")
    trace_topic_enable: bool = _of("traceTopicEnable")
    trace_on: bool = _of("traceOn")
    validate_system_topic_when_update_topic: bool = _of("validateSystemTopicWhenUpdateTopic")
    enable_create_sys_group: bool = _of("enableCreateSysGroup")
    enable_mixed_message_type: bool = _of("enableMixedMessageType")
    clear_retry_topic_when_delete_topic: bool = _of("clearRetryTopicWhenDeleteTopic")

    # registration
    register_name_server_period: int = _of("registerNameServerPeriod")
    register_broker_timeout_mills: int = _of("registerBrokerTimeoutMills")
    force_register: bool = _of("forceRegister")
    compressed_register: bool = _of("compressedRegister")

    # consuming
    long_polling_enable: bool = _of("longPollingEnable")
    notify_consumer_ids_changed_enable: bool = _of("notifyConsumerIdsChangedEnable")
    real_time_notify_consumer_change: bool = _of("realTimeNotifyConsumerChange")
    slave_read_enable: bool = _of("slaveReadEnable")
    reject_pull_consumer_enable: bool = _of("rejectPullConsumerEnable")
    lite_pull_message_enable: bool = _of("litePullMessageEnable")
    use_server_side_reset_offset: bool = _of("useServerSideResetOffset")
    enable_register_producer: bool = _of("enableRegisterProducer")
    enable_property_filter: bool = _of("enablePropertyFilter")
    filter_support_retry: bool = _of("filterSupportRetry")
    store_reply_message_enable: bool = _of("storeReplyMessageEnable")
    flush_consumer_offset_interval: int = _of("flushConsumerOffsetInterval")
    short_polling_time_mills: int = _of("shortPollingTimeMills")
    consumer_offset_update_version_step: int = _of("consumerOffsetUpdateVersionStep")
    delay_offset_update_version_step: int = _of("delayOffsetUpdateVersionStep")
    channel_expired_timeout: int = _of("channelExpiredTimeout")

    # sending and transactions
    reject_transaction_message: bool = _of("rejectTransactionMessage")
    recall_message_enable: bool = _of("recallMessageEnable")
    allow_recall_when_broker_not_writeable: bool = _of("allowRecallWhenBrokerNotWriteable")
    start_accept_send_request_time_stamp: int = _of("startAcceptSendRequestTimeStamp")
    transaction_time_out: int = _of("transactionTimeOut")
    transaction_check_max: int = _of("transactionCheckMax")
    transaction_check_interval: int = _of("transactionCheckInterval")

    # POP
    revive_queue_num: int = _of("reviveQueueNum")

    # statistics
    auto_delete_unused_stats: bool = _of("autoDeleteUnusedStats")

    # connections that we open
    connect_timeout_millis: int = _of("connectTimeoutMillis")
