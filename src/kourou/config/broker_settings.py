"""The keys a broker honours, except those of its store: each is declared here and nowhere else.

A declaration has the section of the reference, RocketMQ's name, type, default and documentation, and
where they apply range, old names and flags (`keys.Key`). The attribute is the name in Python's
spelling. `docs/configuration.md` is generated from these lines.
Not here: the store (store_settings.py), connections and TLS (remoting.py), keys without effect
(broker_without_effect.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.config.checks import addresses, name
from kourou.config.keys import BOOL, ENUM, INT, LONG, STRING, setting

# Clients find a broker through the name servers; Apache's listens on this port.
LISTEN_PORT: Final = 10_911
# A response must fit into a frame of 16 MiB, the largest that clients accept.
_MAX_RESPONSE_BYTES: Final = 15_728_640
_MAX_RESPONSE_MESSAGES: Final = 16_384

_identity = partial(setting, "Identity of the broker")
_name_servers = partial(setting, "Name servers")
_own = partial(setting, "Kourou's own", shown=False)
_topics = partial(setting, "Topics and groups")
_sending = partial(setting, "Sending and transactions")
_consuming = partial(setting, "Consuming")
_pop = partial(setting, "POP consumption")


# The methods are generated once, for BrokerConfig: there are many fields, and a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class BrokerSettings:
    """What a broker can be configured with, apart from its store."""

    # `str` although the default is None: BrokerConfig fills in name and addresses.
    broker_name: str = _identity(
        "brokerName",
        STRING,
        None,
        "Its name in routes and queues, one for each master of a cluster. The host name if not set.",
        live=False,
        important=True,
        check=name,
    )
    broker_cluster_name: str = _identity(
        "brokerClusterName",
        STRING,
        "DefaultCluster",
        "The cluster it belongs to.",
        live=False,
        important=True,
        check=name,
    )
    broker_id: int = _identity(
        "brokerId",
        LONG,
        0,
        "0 is the master, a slave (`brokerRole=SLAVE`) has a number above it.",
        low=0,
        live=False,
        important=True,
    )
    listen_port: int = _identity(
        "listenPort",
        INT,
        LISTEN_PORT,
        "The port; 0 picks a free one.",
        low=0,
        high=65_535,
        live=False,
        important=True,
    )
    broker_ip1: str = _identity(
        "brokerIP1",
        STRING,
        None,
        "The advertised address, by which clients must be able to reach the broker. `bindAddress` or an "
        "address of the machine if not set.",
        live=False,
        important=True,
    )
    broker_ip2: str = _identity(
        "brokerIP2",
        STRING,
        None,
        "The advertised address for slaves; `brokerIP1` if not set.",
        live=False,
        important=True,
    )
    broker_permission: int = _identity(
        "brokerPermission",
        INT,
        6,
        "The upper limit of all topic permissions: 6 read and write, 4 read only, 2 write only. A change is "
        "registered at once.",
        low=0,
        high=15,
    )
    region_id: str = _identity(
        "regionId", STRING, "DefaultRegion", "The region recorded in each message, for traces.", live=False
    )
    broker_config_path: str | None = _identity(
        "brokerConfigPath",
        STRING,
        None,
        "The file that `updateBrokerConfig` writes: the one given at the start, whatever this key says; else "
        "`conf/broker.properties` in the home folder.",
        live=False,
        protected=True,
    )
    config_black_list: str = _identity(
        "configBlackList",
        STRING,
        "configBlackList;brokerConfigPath",
        "Keys that no request may change, separated by `;`. Paths and TLS keys are always included.",
        protected=True,
    )

    namesrv_addr: str | None = _name_servers(
        "namesrvAddr",
        STRING,
        None,
        "The name servers to register with, `host:port` separated by `;`.",
        old_names=("rocketmq.namesrv.addr",),
        important=True,
        check=addresses,
    )
    rmq_address_server_domain: str | None = _name_servers(
        "rmqAddressServerDomain",
        STRING,
        None,
        "Without `namesrvAddr`: the host of an HTTP address service, queried at "
        "`http://HOST:8080/rocketmq/SUBGROUP`. Apache's default exists in one company only.",
        old_names=("rocketmq.namesrv.domain",),
        shown=False,
    )
    rmq_address_server_sub_group: str = _name_servers(
        "rmqAddressServerSubGroup",
        STRING,
        "nsaddr",
        "The last part of that address.",
        old_names=("rocketmq.namesrv.domain.subgroup",),
        shown=False,
    )
    fetch_namesrv_addr_by_address_server: bool = _name_servers(
        "fetchNamesrvAddrByAddressServer",
        BOOL,
        False,
        "Requires `rmqAddressServerDomain`, which alone decides whether the service is queried.",
    )
    update_name_server_addr_period: int = _name_servers(
        "updateNameServerAddrPeriod", INT, 120_000, "How often the service is queried, in ms.", low=1_000
    )
    # Apache clamps the period, too, without a note.
    register_name_server_period: int = _name_servers(
        "registerNameServerPeriod",
        INT,
        30_000,
        "How often the broker registers, in ms; clamped to 10,000 … 60,000.",
        low=10_000,
        high=60_000,
        clamped=True,
    )
    register_broker_timeout_mills: int = _name_servers(
        "registerBrokerTimeoutMills", INT, 24_000, "Timeout of a registration, in ms.", low=1
    )
    force_register: bool = _name_servers(
        "forceRegister",
        BOOL,
        True,
        "Register everything each time; false first queries whether the name server is up to date.",
    )
    compressed_register: bool = _name_servers("compressedRegister", BOOL, False, "Compress registrations.")
    connect_timeout_millis: int = _name_servers(
        "connectTimeoutMillis",
        INT,
        3_000,
        "Timeout for connecting to a name server or client, in ms.",
        low=1,
        live=False,
    )

    # Two members with different subscriptions skip each other's messages. Apache is silent about it.
    reject_inconsistent_subscription: bool = _own(
        "rejectInconsistentSubscription",
        BOOL,
        False,
        "Reject a group member whose subscription differs from the others', instead of logging it: such "
        "members skip each other's messages unnoticed.",
    )
    # Both members would claim the same share of the queues, and the rest would not be consumed.
    reject_duplicate_client_id: bool = _own(
        "rejectDuplicateClientId",
        BOOL,
        False,
        "Reject a second member with the same client id, instead of logging it: both would consume the same "
        "share of the queues.",
    )
    delete_unread_under_pressure: bool = _own(
        "deleteUnreadUnderPressure",
        BOOL,
        False,
        "Above `diskSpaceCleanForciblyRatio` delete the oldest files whether read or not, as Apache does; "
        "false deletes only what every live group has read, and rejects writes if that is not enough.",
    )
    unread_group_reserved_time: int = _own(
        "unreadGroupReservedTime",
        INT,
        72,
        "For how many hours after its last commit a disconnected group counts as live there.",
        low=0,
    )
    # Room for bulk readers such as Spark, within a frame.
    max_transfer_bytes_per_pull: int = _own(
        "maxTransferBytesPerPull",
        INT,
        4_194_304,
        "Upper limit of a large pull in bytes, as negotiated by Kourou's clients and its Spark source.",
        low=1_024,
        high=_MAX_RESPONSE_BYTES,
        live=False,
    )
    compiled_kernel_enable: bool = _own(
        "compiledKernelEnable",
        BOOL,
        True,
        "Use the compiled kernel if it was built ([performance.md](performance.md#the-compiled-kernel)); "
        "without it, Python code does the same.",
        live=False,
    )
    filter_plugins: str = _own(
        "filterPlugins",
        STRING,
        "*",
        "Installed filters that consumers may name, separated by commas; * means all, nothing none "
        "([filters](filters.md)).",
    )
    filter_plugin_timeout_millis: int = _own(
        "filterPluginTimeoutMillis",
        INT,
        1_000,
        "How long a filter may take for a batch of up to 256 messages.",
        low=10,
    )
    filter_plugin_fence_millis: int = _own(
        "filterPluginFenceMillis",
        INT,
        30_000,
        "How long pulls by a filter that is slow or broken are rejected.",
        low=100,
    )
    filter_plugin_memory_mb: int = _own(
        "filterPluginMemoryMb",
        INT,
        1024,
        "Limit of the address space of a filter's process, in MiB; 0 means no limit.",
        low=0,
        live=False,
    )

    auto_create_topic_enable: bool = _topics(
        "autoCreateTopicEnable",
        BOOL,
        True,
        "Create a missing topic on the first send. Turn it off in production.",
    )
    default_topic_queue_nums: int = _topics(
        "defaultTopicQueueNums",
        INT,
        8,
        "Maximum number of queues of such a topic.",
        low=1,
        high=1_024,
        live=False,
    )
    auto_create_subscription_group: bool = _topics(
        "autoCreateSubscriptionGroup", BOOL, True, "Create a missing group when a consumer joins."
    )
    cluster_topic_enable: bool = _topics(
        "clusterTopicEnable",
        BOOL,
        True,
        "Allow the topic named after the cluster as a template for new topics.",
        live=False,
    )
    broker_topic_enable: bool = _topics(
        "brokerTopicEnable",
        BOOL,
        True,
        "Allow the topic named after the broker as a template for new topics.",
        live=False,
    )
    validate_system_topic_when_update_topic: bool = _topics(
        "validateSystemTopicWhenUpdateTopic", BOOL, True, "Reject changes to RocketMQ's own topics."
    )
    enable_create_sys_group: bool = _topics(
        "enableCreateSysGroup", BOOL, True, "Create groups named `CID_RMQ_SYS_…` automatically."
    )
    enable_mixed_message_type: bool = _topics(
        "enableMixedMessageType", BOOL, False, "Allow topics with `message.type=MIXED`."
    )
    clear_retry_topic_when_delete_topic: bool = _topics(
        "clearRetryTopicWhenDeleteTopic",
        BOOL,
        True,
        "Delete a topic together with the retry topics that POP created for it.",
    )
    trace_topic_enable: bool = _topics(
        "traceTopicEnable", BOOL, False, "Create the topic of message traces on this broker.", live=False
    )
    msg_trace_topic_name: str = _topics(
        "msgTraceTopicName", STRING, "RMQ_SYS_TRACE_TOPIC", "The name of that topic.", live=False
    )
    trace_on: bool = _topics("traceOn", BOOL, True, "Announce to clients that traces are wanted.", live=False)

    max_message_size: int = _sending(
        "maxMessageSize", INT, 4_194_304, "The largest message body, in bytes.", low=1, important=True
    )
    start_accept_send_request_time_stamp: int = _sending(
        "startAcceptSendRequestTimeStamp", LONG, 0, "Reject messages until this time, in ms since 1970."
    )
    reject_transaction_message: bool = _sending(
        "rejectTransactionMessage", BOOL, False, "Reject transactional messages."
    )
    transaction_time_out: int = _sending(
        "transactionTimeOut",
        LONG,
        6_000,
        "Age in ms at which a half message is first checked with its producer.",
        old_names=("transactionMsgTimeout", "transactionTimeout", "checkTransactionMessageAtleastInterval"),
        low=0,
    )
    transaction_check_interval: int = _sending(
        "transactionCheckInterval",
        LONG,
        30_000,
        "How often half messages are checked, in ms.",
        old_names=("checkTransactionMessageTimerInterval",),
        low=1,
    )
    transaction_check_max: int = _sending(
        "transactionCheckMax", INT, 15, "After so many unanswered checks a half message is given up.", low=0
    )
    # A sender should not need an operator to take back its own message.
    recall_message_enable: bool = _sending(
        "recallMessageEnable",
        BOOL,
        True,
        "Allow producers to recall timer messages. Apache's default is false.",
    )
    allow_recall_when_broker_not_writeable: bool = _sending(
        "allowRecallWhenBrokerNotWriteable",
        BOOL,
        True,
        "Allow it even while the broker is not writable.",
    )

    # Apache's default rejects SQL92 subscriptions; here they need no setting.
    enable_property_filter: bool = _consuming(
        "enablePropertyFilter", BOOL, True, "Allow SQL92 subscriptions. Apache's default is false."
    )
    filter_support_retry: bool = _consuming(
        "filterSupportRetry", BOOL, False, "Apply SQL92 filters to retried messages, too."
    )
    long_polling_enable: bool = _consuming(
        "longPollingEnable",
        BOOL,
        True,
        "Hold a pull that finds nothing for as long as the client allows (15 s).",
    )
    short_polling_time_mills: int = _consuming(
        "shortPollingTimeMills", LONG, 1_000, "Without long polling: hold it for so many ms."
    )
    notify_consumer_ids_changed_enable: bool = _consuming(
        "notifyConsumerIdsChangedEnable",
        BOOL,
        True,
        "Notify the members of a group when others join or leave.",
    )
    real_time_notify_consumer_change: bool = _consuming(
        "realTimeNotifyConsumerChange", BOOL, True, "Notify at once, instead of in batches."
    )
    reject_pull_consumer_enable: bool = _consuming(
        "rejectPullConsumerEnable", BOOL, False, "Reject pull consumers."
    )
    lite_pull_message_enable: bool = _consuming(
        "litePullMessageEnable", BOOL, True, "Allow the request of lite pull consumers."
    )
    slave_read_enable: bool = _consuming(
        "slaveReadEnable",
        BOOL,
        False,
        "Direct consumers whose messages are no longer in the master's memory to a slave.",
    )
    use_server_side_reset_offset: bool = _consuming(
        "useServerSideResetOffset",
        BOOL,
        True,
        "Keep a reset offset on the broker until the group has picked it up.",
    )
    enable_register_producer: bool = _consuming(
        "enableRegisterProducer",
        BOOL,
        True,
        "With `rejectTransactionMessage`: register producers nevertheless.",
    )
    store_reply_message_enable: bool = _consuming(
        "storeReplyMessageEnable", BOOL, True, "Store the replies to requests, too."
    )
    flush_consumer_offset_interval: int = _consuming(
        "flushConsumerOffsetInterval",
        INT,
        5_000,
        "How often consumer offsets are written to disk, in ms. After a crash a group receives again at most "
        "what it has committed since.",
    )
    consumer_offset_update_version_step: int = _consuming(
        "consumerOffsetUpdateVersionStep",
        LONG,
        500,
        "The version of the offsets is incremented after so many commits.",
    )
    channel_expired_timeout: int = _consuming(
        "channelExpiredTimeout", LONG, 120_000, "A client without a heartbeat for so many ms is removed."
    )
    max_transfer_count_on_message_in_memory: int = _consuming(
        "maxTransferCountOnMessageInMemory",
        INT,
        32,
        "Maximum number of messages in one pull of other clients.",
        low=1,
        high=_MAX_RESPONSE_MESSAGES,
        clamped=True,
    )
    max_transfer_bytes_on_message_in_memory: int = _consuming(
        "maxTransferBytesOnMessageInMemory",
        INT,
        262_144,
        "The same in bytes.",
        low=1,
        high=_MAX_RESPONSE_BYTES,
        clamped=True,
    )
    max_transfer_count_on_message_in_disk: int = _consuming(
        "maxTransferCountOnMessageInDisk",
        INT,
        8,
        "Maximum number of messages in such a pull if they are old.",
        low=1,
        high=_MAX_RESPONSE_MESSAGES,
        clamped=True,
    )
    max_transfer_bytes_on_message_in_disk: int = _consuming(
        "maxTransferBytesOnMessageInDisk",
        INT,
        65_536,
        "The same in bytes.",
        low=1,
        high=_MAX_RESPONSE_BYTES,
        clamped=True,
    )
    access_message_in_memory_max_ratio: int = _consuming(
        "accessMessageInMemoryMaxRatio",
        INT,
        40,
        "Messages are old if they lie further back in the log than this percentage of the memory of the "
        "machine, or of the container.",
        low=0,
        high=100,
        clamped=True,
    )
    default_query_max_num: int = _consuming(
        "defaultQueryMaxNum",
        INT,
        32,
        "Maximum number of messages found by a query by key, unless the client sets one.",
        low=1,
    )
    max_filter_message_size: int = _consuming(
        "maxFilterMessageSize",
        INT,
        16_000,
        "How many bytes of a queue one pull scans at least for a matching tag.",
        low=20,
        live=False,
    )
    # The topic is created nevertheless, as in Apache.
    revive_queue_num: int = _consuming(
        "reviveQueueNum",
        INT,
        8,
        "Queues of POP's internal topic.",
        low=0,
        high=65_536,
        live=False,
    )
    default_message_request_mode: str = _consuming(
        "defaultMessageRequestMode",
        ENUM,
        "PULL",
        "How consumers that let the broker assign their queues read a topic, unless `setConsumeMode` says "
        "otherwise.",
        choices=("PULL", "POP"),
    )
    default_pop_share_queue_num: int = _consuming(
        "defaultPopShareQueueNum",
        INT,
        -1,
        "With POP as that default: each consumer also reads the queues of so many others. 0 or less: all "
        "consumers read all queues.",
    )
    server_load_balancer_enable: bool = _consuming(
        "serverLoadBalancerEnable",
        BOOL,
        True,
        "Divide the queues among consumers that let the broker assign them. Otherwise each gets all queues.",
    )
    load_balance_poll_name_server_interval: int = _consuming(
        "loadBalancePollNameServerInterval",
        LONG,
        30_000,
        "For that assignment the queues of topics are fetched from the name servers every so many "
        "milliseconds.",
        low=100,
        clamped=True,
    )
    enable_notify_after_pop_order_lock_release: bool = _consuming(
        "enableNotifyAfterPopOrderLockRelease",
        BOOL,
        True,
        "Messages popped in order are delivered again as soon as their invisible time ends. Otherwise with "
        "the next pop.",
    )
    auto_delete_unused_stats: bool = _consuming(
        "autoDeleteUnusedStats", BOOL, True, "Delete the statistics of a topic or group together with it."
    )

    pop_polling_size: int = _pop(
        "popPollingSize",
        INT,
        1_024,
        "Maximum number of pops that wait, for one topic, group and queue.",
        low=0,
    )
    max_pop_polling_size: int = _pop(
        "maxPopPollingSize", LONG, 100_000, "Maximum number of pops that wait.", low=0
    )
    pop_from_retry_probability: int = _pop(
        "popFromRetryProbability",
        INT,
        20,
        "In this percentage of pops the retry topic is read first; in the others last.",
        low=0,
        high=100,
        clamped=True,
    )
    pop_from_retry_probability_for_priority: int = _pop(
        "popFromRetryProbabilityForPriority",
        INT,
        0,
        "In this percentage of pops by priority all retries are read first; in the others each beside the "
        "messages of its priority ([priority.md](priority.md)).",
        low=0,
        high=100,
        clamped=True,
    )
    priority_order_asc: bool = _pop(
        "priorityOrderAsc",
        BOOL,
        True,
        "Pops by priority read the queue with the highest id first; false: queue 0.",
    )
    use_separate_retry_queue: bool = _pop(
        "useSeparateRetryQueue",
        BOOL,
        False,
        "Messages that are delivered again keep their queue id, in a retry topic with as many queues. Topics "
        "of type PRIORITY always do so.",
    )
    enable_retry_topic_v2: bool = _pop(
        "enableRetryTopicV2",
        BOOL,
        False,
        "Name retry topics `%RETRY%group+topic`, not `%RETRY%group_topic`.",
    )
    pop_revive_skip_if_group_absent: bool = _pop(
        "popReviveSkipIfGroupAbsent",
        BOOL,
        True,
        "Messages in flight to a group that was deleted are not delivered again.",
    )
    retrieve_message_from_pop_retry_topic_v1: bool = _pop(
        "retrieveMessageFromPopRetryTopicV1",
        BOOL,
        True,
        "With `enableRetryTopicV2`, also read retry topics with the other name.",
    )
    pop_response_return_actual_retry_topic: bool = _pop(
        "popResponseReturnActualRetryTopic",
        BOOL,
        False,
        "Return messages of a retry topic as they are stored, with the name of the retry topic.",
    )
    init_pop_offset_by_check_msg_in_mem: bool = _pop(
        "initPopOffsetByCheckMsgInMem",
        BOOL,
        True,
        "A new group that would start at the end of a queue starts at its first message if that is in "
        "memory.",
    )
    enable_pop_message_threshold: bool = _pop(
        "enablePopMessageThreshold",
        BOOL,
        False,
        "Stop popping from a queue while a group has too many messages of it in flight.",
    )
    pop_inflight_message_threshold: int = _pop(
        "popInflightMessageThreshold", LONG, 10_000, "So many are too many.", low=0
    )
