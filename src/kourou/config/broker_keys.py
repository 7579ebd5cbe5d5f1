"""The keys of a broker, except those of its store: names, types, defaults of RocketMQ 5.

Old spellings of RocketMQ 3 and 4 documents are understood. Where a default depends on the machine
it is None. Keys without a line of `instead` are the broker's to honour.
Not here: `store_keys.py`, and `remoting.py` for the listening address.
"""

from __future__ import annotations

from typing import Final

from kourou.config.keys import Key, ValueType, keys

_BOOL, _INT, _LONG = ValueType.BOOL, ValueType.INT, ValueType.LONG
_STRING, _ENUM = ValueType.STRING, ValueType.ENUM

_ONE_LOOP: Final = "requests are handled on one event loop; there is no thread pool to size"
_NO_POOL_QUEUE: Final = "there are no thread pools, and no queues before them; each connection is bounded"
_NO_CONTROLLER: Final = "brokers keep the role they are configured with; there is no controller"
_NO_ADDRESS_SERVER: Final = "name servers are those of namesrvAddr; no address server is asked"
_NO_PLUGIN: Final = "the store is RocketMQ's file store; Java plug-ins cannot be loaded"
_NO_ROCKSDB: Final = "configuration and POP records are kept in files; there is no RocksDB"
_NO_BILLING: Final = "nothing is counted for billing"

_IDENTITY: Final = (
    *keys(
        _STRING,
        brokerName=None,
        brokerClusterName="DefaultCluster",
        brokerIP1=None,
        brokerIP2=None,
        namesrvAddr=None,
        regionId="DefaultRegion",
        msgTraceTopicName="RMQ_SYS_TRACE_TOPIC",
        brokerConfigPath=None,
        configBlackList="configBlackList;brokerConfigPath",
    ),
    Key("brokerId", _LONG, 0, low=0),
    Key("brokerPermission", _INT, 6, low=0, high=15),
    *keys(
        _STRING,
        _NO_ADDRESS_SERVER,
        rmqAddressServerDomain=None,
        rmqAddressServerSubGroup=None,
    ),
    *keys(
        _BOOL,
        _NO_ADDRESS_SERVER,
        fetchNamesrvAddrByAddressServer=False,
        fetchNameSrvAddrByDnsLookup=False,
    ),
    *keys(_LONG, _NO_ADDRESS_SERVER, fetchNamesrvAddrInterval=10_000),
    *keys(_INT, _NO_ADDRESS_SERVER, updateNameServerAddrPeriod=120_000),
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
        useStaticSubscription=False,
    ),
)

_REGISTRATION: Final = (
    # Apache keeps the period between 10 and 60 seconds whatever the file says.
    Key("registerNameServerPeriod", _INT, 30_000, low=10_000, high=60_000, clamped=True),
    *keys(
        _INT,
        registerBrokerTimeoutMills=24_000,
        sendHeartbeatTimeoutMillis=1_000,
        brokerHeartbeatInterval=1_000,
        syncBrokerMemberGroupPeriod=1_000,
        cleanOfflineBrokerInterval=30_000,
        splitMetadataSize=2_000,
        splitRegistrationSize=800,
    ),
    *keys(
        _LONG,
        brokerNotActiveTimeoutMillis=10_000,
        loadBalancePollNameServerInterval=30_000,
        forwardTimeout=3_000,
    ),
    *keys(
        _BOOL,
        forceRegister=True,
        compressedRegister=False,
        compatibleWithOldNameSrv=True,
        enableSingleTopicRegister=False,
        enableSplitRegistration=False,
        enableSplitMetadata=True,
        enableSlaveActingMaster=False,
        enableRemoteEscape=False,
        skipPreOnline=False,
        lockInStrictMode=False,
    ),
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
        disableConsumeIfConsumerReadSlowly=False,
        rejectPullConsumerEnable=False,
        litePullMessageEnable=True,
        serverLoadBalancerEnable=True,
        useServerSideResetOffset=True,
        enableBroadcastOffsetStore=True,
        enableRegisterProducer=True,
        enablePropertyFilter=False,
        enableCalcFilterBitMap=False,
        filterSupportRetry=False,
        transferMsgByHeap=True,
        storeReplyMessageEnable=True,
        persistConsumerOffsetIncrementally=False,
    ),
    *keys(
        _INT,
        flushConsumerOffsetInterval=5_000,
        flushConsumerOffsetHistoryInterval=60_000,
        expectConsumerNumUseFilter=32,
        maxErrorRateOfBloomFilter=20,
        defaultPopShareQueueNum=-1,
    ),
    *keys(
        _LONG,
        shortPollingTimeMills=1_000,
        consumerFallbehindThreshold=17_179_869_184,
        filterDataCleanTimeSpan=86_400_000,
        broadcastOffsetExpireSecond=120,
        broadcastOffsetExpireMaxSecond=300,
        consumerOffsetUpdateVersionStep=500,
        delayOffsetUpdateVersionStep=200,
        channelExpiredTimeout=120_000,
        subscriptionExpiredTimeout=600_000,
    ),
    Key("defaultMessageRequestMode", _ENUM, "PULL", choices=("PULL", "POP")),
    Key("filterServerNums", _INT, 0, "class filters are gone since RocketMQ 4.3; filter by tag or SQL92"),
)

_SENDING: Final = (
    *keys(_BOOL, brokerFastFailureEnable=True, rejectTransactionMessage=False, recallMessageEnable=False),
    *keys(_BOOL, allowRecallWhenBrokerNotWriteable=True, aclEnable=False),
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
    *keys(_INT, transactionOpMsgMaxSize=4_096, transactionOpBatchInterval=3_000),
    *keys(_LONG, transactionMetricFlushInterval=10_000),
    Key("maxDelayTime", _INT, 40, "delay levels are those of messageDelayLevel"),
)

_POP: Final = (
    *keys(
        _INT,
        reviveQueueNum=8,
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
    *keys(
        _BOOL,
        enableDetailStat=True,
        autoDeleteUnusedStats=True,
        accountStatsEnable=True,
        accountStatsPrintZeroValues=True,
        enableLmqStats=False,
        estimateAccumulation=True,
        metricsInDelta=False,
        enableRemotingMetrics=True,
        enableMessageStoreMetrics=True,
        enablePopMetrics=True,
        enableConnectionMetrics=True,
        enableTransactionMetrics=True,
        enableStatsMetrics=True,
        enableRequestMetrics=True,
        enableLagAndDlqMetrics=True,
        printChannelGroups=False,
        isolateLogEnable=False,
    ),
    *keys(
        _INT,
        maxStatsIdleTimeInMinutes=-1,
        metricsOtelCardinalityLimit=50_000,
        metricsPromExporterPort=5_557,
        metricsExportBatchMaxDataPoints=1_000,
        printChannelGroupsMinNum=5,
    ),
    *keys(
        _LONG,
        metricGrpcExporterTimeOutInMills=3_000,
        metricGrpcExporterIntervalInMills=60_000,
        metricLoggingExporterIntervalInMills=10_000,
    ),
    *keys(
        _STRING,
        metricsGrpcExporterTarget="",
        metricsGrpcExporterHeader="",
        metricsPromExporterHost="",
        metricsLabel="",
    ),
    Key("metricsExporterType", _ENUM, "DISABLE", choices=("DISABLE", "OTLP_GRPC", "PROM", "LOG")),
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
        maxLiteSubscriptionCount=100_000,
        maxClientEventCount=100,
        liteLagLatencyTopK=50,
    ),
    *keys(
        _LONG,
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
    *keys(_BOOL, coldCtrStrategyEnable=False, usePIDColdCtrStrategy=True),
    *keys(_LONG, cgColdReadThreshold=3_145_728, globalColdReadThreshold=104_857_600),
)

BROKER_KEYS: Final = (
    *_IDENTITY,
    *_TOPICS,
    *_REGISTRATION,
    *_CONSUMING,
    *_SENDING,
    *_POP,
    *_STATISTICS,
    *_LITE,
    *_COLD_DATA,
    *_WITHOUT_EFFECT,
)
