"""Keys of a broker that are accepted without effect, except those of its store: RocketMQ 5's names,
types and defaults, each with what Kourou does instead.

Where a default depends on the machine it is None. A key that starts to have an effect moves to
broker_settings.py.
Not here: the store (store_without_effect.py), connections (remoting.py).
"""

from __future__ import annotations

from typing import Final

from kourou.config.access_settings import ACCESS_KEYS_WITHOUT_EFFECT
from kourou.config.keys import BOOL, INT, LONG, STRING, Key, keys

_ONE_LOOP: Final = "requests are handled on one event loop; there is no thread pool to size"
_NO_POOL_QUEUE: Final = (
    "there are no thread pool queues; waiting requests are bounded per connection and by bytes"
)
_NO_CONTROLLER: Final = "brokers keep the role they are configured with; there is no controller"
_NO_DNS_LIST: Final = (
    "host names in namesrvAddr are resolved at each connection; an address service supplies lists"
)
_NO_PLUGIN: Final = "the store is RocketMQ's file store; Java plug-ins cannot be loaded"
_NO_ROCKSDB: Final = "configuration and POP records are kept in files; there is no RocksDB"
_NO_BILLING: Final = "there are no billing statistics"
_NO_BIT_MAPS: Final = "filters are evaluated on the message; the queues have no bitmaps"
_SLOW_READERS: Final = "old messages are read from disk in threads; no client is disconnected for it"
_NO_PROXY: Final = "there is no proxy, for whose broadcasting clients the broker would store offsets"
_ONE_REGISTRATION: Final = "a registration is one request; 100,000 topics fit into a frame"
_POP_IN_MEMORY: Final = "what is in flight is always kept in memory and in the log"
_POP_REVIVE: Final = "messages are revived when their invisible time ends, whatever the backlog"
_NO_LITE: Final = "lite topics are not in this version"
_NO_COLD_CONTROL: Final = "cold data is read off the event loop; no client is throttled for it"
_NO_TAKEOVER: Final = "acting masters are not in this version"

_NAME_SERVERS: Final = (
    *keys(BOOL, _NO_DNS_LIST, fetchNameSrvAddrByDnsLookup=False),
    *keys(LONG, "updateNameServerAddrPeriod sets the interval", fetchNamesrvAddrInterval=10_000),
)

_REGISTRATION: Final = (
    *keys(BOOL, "a change is registered with the whole table", enableSingleTopicRegister=False),
    *keys(
        INT,
        _NO_TAKEOVER,
        sendHeartbeatTimeoutMillis=1_000,
        brokerHeartbeatInterval=1_000,
        syncBrokerMemberGroupPeriod=1_000,
        cleanOfflineBrokerInterval=30_000,
    ),
    *keys(
        LONG,
        _NO_TAKEOVER,
        brokerNotActiveTimeoutMillis=10_000,
        forwardTimeout=3_000,
    ),
    *keys(
        BOOL,
        _NO_TAKEOVER,
        compatibleWithOldNameSrv=True,
        enableSlaveActingMaster=False,
        enableRemoteEscape=False,
        skipPreOnline=False,
        lockInStrictMode=False,
    ),
    *keys(INT, _ONE_REGISTRATION, splitMetadataSize=2_000, splitRegistrationSize=800),
    *keys(BOOL, _ONE_REGISTRATION, enableSplitRegistration=False, enableSplitMetadata=True),
    *keys(BOOL, _NO_CONTROLLER, enableControllerMode=False, fetchControllerAddrByDnsLookup=False),
    *keys(STRING, _NO_CONTROLLER, controllerAddr=""),
    *keys(
        LONG,
        _NO_CONTROLLER,
        syncBrokerMetadataPeriod=5_000,
        checkSyncStateSetPeriod=5_000,
        syncControllerMetadataPeriod=10_000,
        controllerHeartBeatTimeoutMills=10_000,
    ),
)

_CONSUMING: Final = (
    *keys(BOOL, _SLOW_READERS, disableConsumeIfConsumerReadSlowly=False),
    *keys(LONG, _SLOW_READERS, consumerFallbehindThreshold=17_179_869_184),
    *keys(LONG, "a subscription lasts as long as a member has it", subscriptionExpiredTimeout=600_000),
    *keys(
        BOOL,
        "responses are written from mapped pages or from a copy, whichever is at hand",
        transferMsgByHeap=True,
    ),
    *keys(
        BOOL,
        "offsets are one file, replaced atomically",
        persistConsumerOffsetIncrementally=False,
    ),
    *keys(INT, "offsets have no history", flushConsumerOffsetHistoryInterval=60_000),
    *keys(BOOL, _NO_BIT_MAPS, enableCalcFilterBitMap=False),
    *keys(INT, _NO_BIT_MAPS, expectConsumerNumUseFilter=32, maxErrorRateOfBloomFilter=20),
    *keys(LONG, _NO_BIT_MAPS, filterDataCleanTimeSpan=86_400_000),
    *keys(BOOL, _NO_PROXY, enableBroadcastOffsetStore=True),
    *keys(LONG, _NO_PROXY, broadcastOffsetExpireSecond=120, broadcastOffsetExpireMaxSecond=300),
    *keys(
        BOOL,
        "members subscribe by heartbeat; see rejectInconsistentSubscription",
        useStaticSubscription=False,
    ),
    Key("filterServerNums", INT, 0, "class filters are gone since RocketMQ 4.3; filter by tag or SQL92"),
)

_SENDING: Final = (
    *keys(BOOL, _NO_POOL_QUEUE, brokerFastFailureEnable=True),
    *keys(
        LONG,
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
        "checkTransactionMessageEnable",
        BOOL,
        True,
        "half messages are always checked; see transactionCheckMax and transactionCheckInterval",
    ),
    *keys(
        INT,
        "each half message gets its own op record at once; both Apache versions read it",
        transactionOpMsgMaxSize=4_096,
        transactionOpBatchInterval=3_000,
    ),
    *keys(LONG, "open transactions are counted from the queues", transactionMetricFlushInterval=10_000),
    Key("maxDelayTime", INT, 40, "messageDelayLevel sets the delay levels"),
)

_POP: Final = (
    *keys(
        INT,
        "pops that wait are removed when they are answered",
        popPollingMapSize=100_000,
        popPollingMapExpireTimeSeconds=600,
    ),
    *keys(
        INT,
        _POP_IN_MEMORY,
        popCkStayBufferTime=10_000,
        popCkStayBufferTimeOut=3_000,
        popCkMaxBufferSize=200_000,
        popCkOffsetMaxQueueSize=20_000,
    ),
    *keys(BOOL, _POP_IN_MEMORY, enablePopBufferMerge=False, appendAckAsync=False, appendCkAsync=False),
    *keys(
        INT,
        _POP_REVIVE,
        popReviveMaxReturnSizePerRead=16_384,
        popReviveMaxAttemptTimes=16,
        popReviveConcurrency=32,
    ),
    *keys(
        LONG,
        _POP_REVIVE,
        reviveInterval=1_000,
        reviveMaxSlow=3,
        reviveScanTime=10_000,
        reviveAckWaitMs=180_000,
    ),
    *keys(BOOL, _POP_REVIVE, enableSkipLongAwaitingAck=False, skipWhenCKRePutReachMaxTimes=False),
    *keys(
        LONG,
        "a pop that waits passes over messages that it does not select as they arrive",
        popLongPollingForceNotifyInterval=800,
    ),
    *keys(BOOL, "a request for a notification has no filter", useMessageFilterForNotification=True),
    *keys(INT, "a request for a notification has no filter", maxMessageFilterNumForNotification=64),
    *keys(BOOL, "the log has one line for each change of state", enablePopLog=False),
    *keys(BOOL, "batches of acks are always accepted", enablePopBatchAck=False),
    *keys(BOOL, "the backlog of POP groups is computed from offsets", enableNotifyBeforePopCalculateLag=True),
    *keys(
        BOOL,
        _NO_ROCKSDB,
        popConsumerFSServiceInit=True,
        popConsumerKVServiceLog=False,
        popConsumerKVServiceInit=False,
        popConsumerKVServiceEnable=False,
        useSingleRocksDBForAllConfigs=False,
    ),
    *keys(STRING, _NO_ROCKSDB, configManagerVersion="v1"),
)

_STATISTICS: Final = (
    *keys(BOOL, "all statistics are always kept", enableDetailStat=True),
    *keys(BOOL, "backlogs are computed from offsets", estimateAccumulation=True),
    *keys(
        INT,
        "statistics are deleted with their topic or group (autoDeleteUnusedStats)",
        maxStatsIdleTimeInMinutes=-1,
    ),
    *keys(BOOL, "metrics are pushed as totals since the start", metricsInDelta=False),
    *keys(BOOL, "there are no metrics of POP alone", enablePopMetrics=True),
    *keys(INT, "metrics are pushed in one piece", metricsExportBatchMaxDataPoints=1_000),
    *keys(LONG, "metrics are not logged", metricLoggingExporterIntervalInMills=10_000),
    *keys(
        BOOL,
        "there is one log, with one line per change",
        printChannelGroups=False,
        isolateLogEnable=False,
    ),
    *keys(INT, "groups are not printed to the log", printChannelGroupsMinNum=5),
    *keys(BOOL, _NO_BILLING, accountStatsEnable=True, accountStatsPrintZeroValues=True),
    *keys(BOOL, _NO_LITE, enableLmqStats=False),
    *keys(
        INT,
        _NO_BILLING,
        commercialBaseCount=1,
        commercialSizePerMsg=4_096,
        commercialTimerCount=1,
        commercialTransCount=1,
        commercialBigCount=1,
    ),
    *keys(BOOL, _NO_BILLING, commercialEnable=True),
)

_LITE: Final = (
    *keys(
        INT,
        _NO_LITE,
        maxLiteSubscriptionCount=100_000,
        maxClientEventCount=100,
        liteLagLatencyTopK=50,
    ),
    *keys(
        LONG,
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
        BOOL,
        _NO_LITE,
        enableLiteEventMode=True,
        enableLitePopLog=False,
        liteLagCountMetricsEnable=False,
        liteLagLatencyCollectEnable=False,
        liteLagLatencyMetricsEnable=False,
    ),
)

_THREAD_POOLS: Final = (
    *keys(
        INT,
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
        INT,
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
        BOOL,
        _ONE_LOOP,
        highSpeedMode=False,
        asyncSendEnable=True,
        recoverConcurrently=False,
        enableFastChannelEventProcess=False,
        enableNetWorkFlowControl=False,
    ),
    *keys(STRING, _NO_PLUGIN, messageStorePlugIn=""),
    *keys(BOOL, "each broker is a process of its own", isBrokerContainer=False, isInBrokerContainer=False),
)

_COLD_DATA: Final = (
    *keys(BOOL, _NO_COLD_CONTROL, coldCtrStrategyEnable=False, usePIDColdCtrStrategy=True),
    *keys(LONG, _NO_COLD_CONTROL, cgColdReadThreshold=3_145_728, globalColdReadThreshold=104_857_600),
)

BROKER_KEYS_WITHOUT_EFFECT: Final = (
    *_NAME_SERVERS,
    *_REGISTRATION,
    *_CONSUMING,
    *_SENDING,
    *_POP,
    *_STATISTICS,
    *_LITE,
    *_COLD_DATA,
    *ACCESS_KEYS_WITHOUT_EFFECT,
    *_THREAD_POOLS,
)
