"""The keys of a broker, except those of its store: names, types, defaults of RocketMQ 5.

Old spellings of RocketMQ 3 and 4 documents are understood. Where a default depends on the machine
it is None. Keys without a line of `instead` are honoured; they are the attributes of
`broker_settings.py`. Keys of Kourou's own stand in `_OURS`, each with its reason.
Not here: `store_keys.py`, and `remoting.py` for the listening address.
"""

from __future__ import annotations

from typing import Final

from kourou.config.checks import addresses, name
from kourou.config.keys import Key, ValueType, keys

_BOOL, _INT, _LONG = ValueType.BOOL, ValueType.INT, ValueType.LONG
_STRING, _ENUM = ValueType.STRING, ValueType.ENUM

_ONE_LOOP: Final = "requests are handled on one event loop; there is no thread pool to size"
_NO_POOL_QUEUE: Final = (
    "no queues stand before thread pools; what waits is bounded by connection and by bytes"
)
_NO_CONTROLLER: Final = "brokers keep the role they are configured with; there is no controller"
_NO_DNS_LIST: Final = (
    "a host name in namesrvAddr is looked up at each connection; an address service gives lists"
)
_NO_PLUGIN: Final = "the store is RocketMQ's file store; Java plug-ins cannot be loaded"
_NO_ROCKSDB: Final = "configuration and POP records are kept in files; there is no RocksDB"
_NO_BILLING: Final = "nothing is counted for billing"
_NO_BIT_MAPS: Final = "filters are evaluated on the message; there are no bit maps beside the queues"
_CLIENTS_BALANCE: Final = "clients share out the queues among them; a broker is not asked to"
_SLOW_READERS: Final = "what is read late comes from the disk in threads; no client is cut off for it"
_NO_PROXY: Final = "there is no proxy whose broadcasting clients keep offsets on the broker"
_ONE_REGISTRATION: Final = "a registration is one request; 100,000 topics fit into a frame"
_NO_POP: Final = "POP consumption is not in this version"
_NO_LITE: Final = "lite topics are not in this version"
_NO_METRICS: Final = "metrics are not exported in this version; the statistics of mqadmin are kept"
_NO_COLD_CONTROL: Final = "cold data is read off the event loop; no client is slowed down for it"
_NO_ACCESS_CONTROL: Final = "there is no access control in this version"
_NOT_PROTECTED: Final = (
    f"{_NO_ACCESS_CONTROL}: anyone who can reach the port has full access; remove the key, and restrict "
    "access by tls.server.need.client.auth=require or a firewall"
)
_NO_TAKEOVER: Final = "a broker answers for itself only; acting masters are not in this version"

_IDENTITY: Final = (
    # The host's name where it is not set, as in Apache.
    Key("brokerName", _STRING, None, important=True, check=name),
    Key("brokerClusterName", _STRING, "DefaultCluster", important=True, check=name),
    # The address that clients are told: the one that reaches the network, where it is not set.
    Key("brokerIP1", _STRING, None, important=True),
    # The address that slaves are told; brokerIP1 where it is not set.
    Key("brokerIP2", _STRING, None, important=True),
    Key("namesrvAddr", _STRING, None, old_names=("rocketmq.namesrv.addr",), important=True, check=addresses),
    # An HTTP service that knows the name servers: http://<domain>:8080/rocketmq/<sub group>. Apache's
    # default domain is a host that exists in one company only.
    Key("rmqAddressServerDomain", _STRING, None, old_names=("rocketmq.namesrv.domain",), shown=False),
    Key(
        "rmqAddressServerSubGroup",
        _STRING,
        "nsaddr",
        old_names=("rocketmq.namesrv.domain.subgroup",),
        shown=False,
    ),
    Key("fetchNamesrvAddrByAddressServer", _BOOL, False),
    # How often the address service is asked.
    Key("updateNameServerAddrPeriod", _INT, 120_000, low=1_000),
    *keys(_BOOL, _NO_DNS_LIST, fetchNameSrvAddrByDnsLookup=False),
    *keys(_LONG, "updateNameServerAddrPeriod says how often", fetchNamesrvAddrInterval=10_000),
    *keys(
        _STRING,
        regionId="DefaultRegion",
        msgTraceTopicName="RMQ_SYS_TRACE_TOPIC",
        configBlackList="configBlackList;brokerConfigPath",
    ),
    # Where changes by updateBrokerConfig are written: the file given at start.
    Key("brokerConfigPath", _STRING, None),
    Key("brokerId", _LONG, 0, low=0, important=True),
    Key("brokerPermission", _INT, 6, low=0, high=15),
)

_OURS: Final = (
    # Two members of a group that subscribe differently take each other's messages without
    # consuming them. Apache says nothing; we log it, and this key refuses the second.
    Key("rejectInconsistentSubscription", _BOOL, False, shown=False),
    # Two members with one client id both believe in the same share of the queues, and the rest is
    # not consumed. Logged; this key refuses the second.
    Key("rejectDuplicateClientId", _BOOL, False, shown=False),
    # Above diskSpaceCleanForciblyRatio only what every live group has read is deleted before its
    # age, and writes are refused when that is not enough. True deletes the oldest, as Apache does.
    Key("deleteUnreadUnderPressure", _BOOL, False, shown=False),
    # For how many hours after its last commit a group that is not connected still counts as live.
    Key("unreadGroupReservedTime", _INT, 72, low=0, shown=False),
    # The most that one pull may carry, whatever the client asks for: room for bulk readers, such as
    # Spark, without a frame that is too large.
    Key("maxTransferBytesPerPull", _INT, 4_194_304, low=1_024, high=15_728_640, shown=False),
    # Whether the compiled kernel is used where it was built; without it Python does the same.
    Key("compiledKernelEnable", _BOOL, True, shown=False),
)

_TOPICS: Final = (
    Key("defaultTopicQueueNums", _INT, 8, low=1, high=1_024),
    *keys(
        _BOOL,
        autoCreateTopicEnable=True,
        clusterTopicEnable=True,
        brokerTopicEnable=True,
        autoCreateSubscriptionGroup=True,
        traceTopicEnable=False,
        traceOn=True,
        validateSystemTopicWhenUpdateTopic=True,
        enableCreateSysGroup=True,
        enableMixedMessageType=False,
        clearRetryTopicWhenDeleteTopic=True,
    ),
)

_REGISTRATION: Final = (
    # Apache keeps the period between 10 and 60 seconds whatever the file says.
    Key("registerNameServerPeriod", _INT, 30_000, low=10_000, high=60_000, clamped=True),
    Key("registerBrokerTimeoutMills", _INT, 24_000, low=1),
    # True tells every name server everything each period; false asks first whether it knows.
    Key("forceRegister", _BOOL, True),
    Key("compressedRegister", _BOOL, False),
    *keys(_BOOL, "a change is told with the whole table", enableSingleTopicRegister=False),
    *keys(
        _INT,
        _NO_TAKEOVER,
        sendHeartbeatTimeoutMillis=1_000,
        brokerHeartbeatInterval=1_000,
        syncBrokerMemberGroupPeriod=1_000,
        cleanOfflineBrokerInterval=30_000,
    ),
    *keys(
        _LONG,
        _NO_TAKEOVER,
        brokerNotActiveTimeoutMillis=10_000,
        loadBalancePollNameServerInterval=30_000,
        forwardTimeout=3_000,
    ),
    *keys(
        _BOOL,
        _NO_TAKEOVER,
        compatibleWithOldNameSrv=True,
        enableSlaveActingMaster=False,
        enableRemoteEscape=False,
        skipPreOnline=False,
        lockInStrictMode=False,
    ),
    *keys(_INT, _ONE_REGISTRATION, splitMetadataSize=2_000, splitRegistrationSize=800),
    *keys(_BOOL, _ONE_REGISTRATION, enableSplitRegistration=False, enableSplitMetadata=True),
    *keys(_BOOL, _NO_CONTROLLER, enableControllerMode=False, fetchControllerAddrByDnsLookup=False),
    *keys(_STRING, _NO_CONTROLLER, controllerAddr=""),
    *keys(
        _LONG,
        _NO_CONTROLLER,
        syncBrokerMetadataPeriod=5_000,
        checkSyncStateSetPeriod=5_000,
        syncControllerMetadataPeriod=10_000,
        controllerHeartBeatTimeoutMills=10_000,
    ),
    *keys(_INT, _NO_CONTROLLER, brokerElectionPriority=2_147_483_647),
)

_CONSUMING: Final = (
    *keys(
        _BOOL,
        longPollingEnable=True,
        notifyConsumerIdsChangedEnable=True,
        realTimeNotifyConsumerChange=True,
        slaveReadEnable=False,
        rejectPullConsumerEnable=False,
        litePullMessageEnable=True,
        useServerSideResetOffset=True,
        enableRegisterProducer=True,
        # Apache's default is false, and refuses SQL92 subscriptions; here they need no setting.
        enablePropertyFilter=True,
        filterSupportRetry=False,
        storeReplyMessageEnable=True,
    ),
    *keys(_INT, flushConsumerOffsetInterval=5_000),
    *keys(_INT, _NO_POP, defaultPopShareQueueNum=-1),
    Key("defaultMessageRequestMode", _ENUM, "PULL", _NO_POP, choices=("PULL", "POP")),
    *keys(_BOOL, _CLIENTS_BALANCE, serverLoadBalancerEnable=True),
    *keys(_BOOL, _SLOW_READERS, disableConsumeIfConsumerReadSlowly=False),
    *keys(_LONG, _SLOW_READERS, consumerFallbehindThreshold=17_179_869_184),
    *keys(_LONG, "a subscription lives as long as a member has it", subscriptionExpiredTimeout=600_000),
    *keys(
        _LONG,
        shortPollingTimeMills=1_000,
        consumerOffsetUpdateVersionStep=500,
        delayOffsetUpdateVersionStep=200,
        channelExpiredTimeout=120_000,
    ),
    *keys(
        _BOOL,
        "an answer is written from the store's pages or a copy, whichever is there",
        transferMsgByHeap=True,
    ),
    *keys(
        _BOOL,
        "offsets are one file, replaced whole and never half",
        persistConsumerOffsetIncrementally=False,
    ),
    *keys(_INT, "offsets have no history", flushConsumerOffsetHistoryInterval=60_000),
    *keys(_BOOL, _NO_BIT_MAPS, enableCalcFilterBitMap=False),
    *keys(_INT, _NO_BIT_MAPS, expectConsumerNumUseFilter=32, maxErrorRateOfBloomFilter=20),
    *keys(_LONG, _NO_BIT_MAPS, filterDataCleanTimeSpan=86_400_000),
    *keys(_BOOL, _NO_PROXY, enableBroadcastOffsetStore=True),
    *keys(_LONG, _NO_PROXY, broadcastOffsetExpireSecond=120, broadcastOffsetExpireMaxSecond=300),
    *keys(
        _BOOL,
        "members of a group subscribe by heartbeat; rejectInconsistentSubscription holds them together",
        useStaticSubscription=False,
    ),
    Key("filterServerNums", _INT, 0, "class filters are gone since RocketMQ 4.3; filter by tag or SQL92"),
)

_SENDING: Final = (
    *keys(_BOOL, _NO_POOL_QUEUE, brokerFastFailureEnable=True),
    *keys(_BOOL, rejectTransactionMessage=False),
    # Apache's default is false. What a sender may take back, it should not have to ask an operator for.
    Key("recallMessageEnable", _BOOL, True),
    *keys(_BOOL, allowRecallWhenBrokerNotWriteable=True),
    *keys(_LONG, startAcceptSendRequestTimeStamp=0),
    *keys(
        _LONG,
        _NO_POOL_QUEUE,
        waitTimeMillsInSendQueue=200,
        waitTimeMillsInPullQueue=5_000,
        waitTimeMillsInLitePullQueue=5_000,
        waitTimeMillsInHeartbeatQueue=31_000,
        waitTimeMillsInTransactionQueue=3_000,
        waitTimeMillsInAckQueue=3_000,
        waitTimeMillsInAdminBrokerQueue=5_000,
    ),
    Key(
        "transactionTimeOut",
        _LONG,
        6_000,
        old_names=("transactionMsgTimeout", "transactionTimeout", "checkTransactionMessageAtleastInterval"),
        low=0,
    ),
    Key("transactionCheckMax", _INT, 15, low=0),
    Key(
        "transactionCheckInterval",
        _LONG,
        30_000,
        old_names=("checkTransactionMessageTimerInterval",),
        low=1,
    ),
    Key(
        "checkTransactionMessageEnable",
        _BOOL,
        True,
        "half messages are always checked; transactionCheckMax and transactionCheckInterval say how",
    ),
    *keys(
        _INT,
        "each half that ends has an op record of its own, at once; both Apache versions read it",
        transactionOpMsgMaxSize=4_096,
        transactionOpBatchInterval=3_000,
    ),
    *keys(_LONG, _NO_METRICS, transactionMetricFlushInterval=10_000),
    Key("maxDelayTime", _INT, 40, "delay levels are those of messageDelayLevel"),
)

_POP: Final = (
    # Queues of the topic that POP works with; the topic is made all the same, as in Apache.
    Key("reviveQueueNum", _INT, 8, low=0, high=65_536),
    *keys(
        _INT,
        _NO_POP,
        popPollingSize=1_024,
        popPollingMapSize=100_000,
        popPollingMapExpireTimeSeconds=600,
        popCkStayBufferTime=10_000,
        popCkStayBufferTimeOut=3_000,
        popCkMaxBufferSize=200_000,
        popCkOffsetMaxQueueSize=20_000,
        popFromRetryProbability=20,
        popFromRetryProbabilityForPriority=0,
        popReviveMaxReturnSizePerRead=16_384,
        popReviveMaxAttemptTimes=16,
        popReviveConcurrency=32,
        maxMessageFilterNumForNotification=64,
    ),
    *keys(
        _LONG,
        _NO_POP,
        reviveInterval=1_000,
        reviveMaxSlow=3,
        reviveScanTime=10_000,
        reviveAckWaitMs=180_000,
        maxPopPollingSize=100_000,
        popLongPollingForceNotifyInterval=800,
        popInflightMessageThreshold=10_000,
    ),
    *keys(
        _BOOL,
        _NO_POP,
        enablePopLog=False,
        enablePopBufferMerge=False,
        enablePopBatchAck=False,
        enablePopMessageThreshold=False,
        enableSkipLongAwaitingAck=False,
        enableRetryTopicV2=False,
        retrieveMessageFromPopRetryTopicV1=True,
        enableNotifyBeforePopCalculateLag=True,
        enableNotifyAfterPopOrderLockRelease=True,
        initPopOffsetByCheckMsgInMem=True,
        popResponseReturnActualRetryTopic=False,
        popReviveSkipIfGroupAbsent=True,
        priorityOrderAsc=True,
        useMessageFilterForNotification=True,
        useSeparateRetryQueue=False,
        skipWhenCKRePutReachMaxTimes=False,
        appendAckAsync=False,
        appendCkAsync=False,
    ),
    *keys(
        _BOOL,
        _NO_ROCKSDB,
        popConsumerFSServiceInit=True,
        popConsumerKVServiceLog=False,
        popConsumerKVServiceInit=False,
        popConsumerKVServiceEnable=False,
        useSingleRocksDBForAllConfigs=False,
    ),
    *keys(_STRING, _NO_ROCKSDB, configManagerVersion="v1"),
)

_STATISTICS: Final = (
    *keys(_BOOL, autoDeleteUnusedStats=True),
    *keys(_BOOL, "every statistic is always kept", enableDetailStat=True),
    *keys(_BOOL, "what waits for a group is counted by offsets", estimateAccumulation=True),
    *keys(
        _INT, "statistics go with their topic or group (autoDeleteUnusedStats)", maxStatsIdleTimeInMinutes=-1
    ),
    *keys(
        _BOOL,
        _NO_METRICS,
        metricsInDelta=False,
        enableRemotingMetrics=True,
        enableMessageStoreMetrics=True,
        enablePopMetrics=True,
        enableConnectionMetrics=True,
        enableTransactionMetrics=True,
        enableStatsMetrics=True,
        enableRequestMetrics=True,
        enableLagAndDlqMetrics=True,
    ),
    *keys(
        _INT,
        _NO_METRICS,
        metricsOtelCardinalityLimit=50_000,
        metricsPromExporterPort=5_557,
        metricsExportBatchMaxDataPoints=1_000,
    ),
    *keys(
        _LONG,
        _NO_METRICS,
        metricGrpcExporterTimeOutInMills=3_000,
        metricGrpcExporterIntervalInMills=60_000,
        metricLoggingExporterIntervalInMills=10_000,
    ),
    *keys(
        _STRING,
        _NO_METRICS,
        metricsGrpcExporterTarget="",
        metricsGrpcExporterHeader="",
        metricsPromExporterHost="",
        metricsLabel="",
    ),
    Key(
        "metricsExporterType",
        _ENUM,
        "DISABLE",
        _NO_METRICS,
        choices=("DISABLE", "OTLP_GRPC", "PROM", "LOG"),
    ),
    *keys(
        _BOOL,
        "one log for all, with one line a change",
        printChannelGroups=False,
        isolateLogEnable=False,
    ),
    *keys(_INT, "groups are not printed to the log", printChannelGroupsMinNum=5),
    *keys(_BOOL, _NO_BILLING, accountStatsEnable=True, accountStatsPrintZeroValues=True),
    *keys(_BOOL, _NO_LITE, enableLmqStats=False),
    *keys(
        _INT,
        _NO_BILLING,
        commercialBaseCount=1,
        commercialSizePerMsg=4_096,
        commercialTimerCount=1,
        commercialTransCount=1,
        commercialBigCount=1,
    ),
    *keys(_BOOL, _NO_BILLING, commercialEnable=True),
)

_LITE: Final = (
    *keys(
        _INT,
        _NO_LITE,
        maxLiteSubscriptionCount=100_000,
        maxClientEventCount=100,
        liteLagLatencyTopK=50,
    ),
    *keys(
        _LONG,
        _NO_LITE,
        liteEventCheckInterval=10_000,
        liteEventFullDispatchDelayTime=10_000,
        liteEventFullDispatchDelayTimeForWildcardGroup=10_000,
        liteSubscriptionCheckInterval=120_000,
        liteSubscriptionCheckTimeoutMills=180_000,
        liteTtlCheckInterval=120_000,
        minLiteTTl=900_000,
    ),
    *keys(
        _BOOL,
        _NO_LITE,
        enableLiteEventMode=True,
        enableLitePopLog=False,
        liteLagCountMetricsEnable=False,
        liteLagLatencyCollectEnable=False,
        liteLagLatencyMetricsEnable=False,
    ),
)

_WITHOUT_EFFECT: Final = (
    *keys(
        _INT,
        _ONE_LOOP,
        sendMessageThreadPoolNums=None,
        putMessageFutureThreadPoolNums=None,
        pullMessageThreadPoolNums=None,
        litePullMessageThreadPoolNums=None,
        processReplyMessageThreadPoolNums=None,
        queryMessageThreadPoolNums=None,
        heartbeatThreadPoolNums=None,
        endTransactionThreadPoolNums=None,
        ackMessageThreadPoolNums=16,
        adminBrokerThreadPoolNums=16,
        clientManageThreadPoolNums=32,
        consumerManageThreadPoolNums=32,
        loadBalanceProcessorThreadPoolNums=32,
        recoverThreadPoolNums=32,
    ),
    *keys(
        _INT,
        _NO_POOL_QUEUE,
        sendThreadPoolQueueCapacity=10_000,
        putThreadPoolQueueCapacity=10_000,
        pullThreadPoolQueueCapacity=100_000,
        litePullThreadPoolQueueCapacity=100_000,
        ackThreadPoolQueueCapacity=100_000,
        replyThreadPoolQueueCapacity=10_000,
        queryThreadPoolQueueCapacity=20_000,
        clientManagerThreadPoolQueueCapacity=1_000_000,
        consumerManagerThreadPoolQueueCapacity=1_000_000,
        heartbeatThreadPoolQueueCapacity=50_000,
        endTransactionPoolQueueCapacity=100_000,
        adminBrokerThreadPoolQueueCapacity=10_000,
        loadBalanceThreadPoolQueueCapacity=100_000,
    ),
    *keys(
        _BOOL,
        _ONE_LOOP,
        highSpeedMode=False,
        asyncSendEnable=True,
        recoverConcurrently=False,
        enableFastChannelEventProcess=False,
        enableNetWorkFlowControl=False,
    ),
    *keys(_STRING, _NO_PLUGIN, messageStorePlugIn=""),
    *keys(_BOOL, "one process is one broker", isBrokerContainer=False, isInBrokerContainer=False),
)

_COLD_DATA: Final = (
    *keys(_BOOL, _NO_COLD_CONTROL, coldCtrStrategyEnable=False, usePIDColdCtrStrategy=True),
    *keys(_LONG, _NO_COLD_CONTROL, cgColdReadThreshold=3_145_728, globalColdReadThreshold=104_857_600),
)

# A user who sets one of these believes that access is controlled.
_ACCESS: Final = (
    Key("aclEnable", _BOOL, False, _NO_ACCESS_CONTROL, refused=_NOT_PROTECTED),
    *(
        Key(key_name, _BOOL, False, _NO_ACCESS_CONTROL, refused=_NOT_PROTECTED, shown=False)
        for key_name in ("authenticationEnabled", "authorizationEnabled")
    ),
)

BROKER_KEYS: Final = (
    *_IDENTITY,
    *_OURS,
    *_TOPICS,
    *_REGISTRATION,
    *_CONSUMING,
    *_SENDING,
    *_POP,
    *_STATISTICS,
    *_LITE,
    *_COLD_DATA,
    *_ACCESS,
    *_WITHOUT_EFFECT,
)
