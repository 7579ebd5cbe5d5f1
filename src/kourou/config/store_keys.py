"""The keys of a broker's message store: names, types, defaults of RocketMQ 5.

Old spellings of RocketMQ 3 and 4 documents are understood. Keys without a line of `instead` are
honoured; they are the attributes of `store_settings.py`. What the values mean on disk is in `store/`.
"""

from __future__ import annotations

from typing import Final

from kourou.config.checks import delay_levels, hours, paths
from kourou.config.keys import Key, ValueType, keys

_BOOL, _INT, _LONG = ValueType.BOOL, ValueType.INT, ValueType.LONG
_STRING, _ENUM, _DOUBLE = ValueType.STRING, ValueType.ENUM, ValueType.DOUBLE

_UNDER_ROOT: Final = "it lies under storePathRootDir, where RocketMQ has looked for it since 3.2"
_NO_TRAN_TABLE: Final = "half messages are kept in topics, as RocketMQ does since 4.3"
_NO_CONTROLLER: Final = "brokers keep the role they are configured with; there is no controller"
_NO_TIMER: Final = "one task works the timer wheel; there are no pools, snapshots or timelines to set"
_NO_LMQ: Final = "light message queues are not in this version"
_NO_COMPACTION: Final = "compaction topics are not in this version"
_NO_EXT: Final = "filters are evaluated on the message; there are no bit maps beside the queues"
_PULL_LIMITS: Final = "maxTransferCountOnMessageInMemory and its siblings limit a pull"
# An answer has to fit into a frame of 16 MiB, which is what clients accept.
_MAX_ANSWER_BYTES: Final = 15_728_640
_MAX_ANSWER_MESSAGES: Final = 16_384
NO_REPLICATION: Final = "replication is not in this version"
NO_SLAVES: Final = f"{NO_REPLICATION}; run a master (ASYNC_MASTER)"
_NO_DLEDGER: Final = f"there is no DLedger log, and {NO_REPLICATION}: this broker keeps the only copy"
_NO_ROCKSDB: Final = "queues, indexes and timers are RocketMQ's files; there is no RocksDB"
_NO_WRITABLE_MAPS: Final = "files are written with pwrite, not through memory maps"
_NO_COLD_CONTROL: Final = "cold data is read off the event loop; no client is slowed down for it"
_ONE_PASS_DELIVERY: Final = "due messages are delivered in the pass that finds them"
_OWN_RECOVERY: Final = "recovery begins at the last durable byte and remembers how far it came"
_WHOLE_ROUNDS: Final = "a round flushes all that was written before it, every flushIntervalCommitLog ms"
_ONE_WRITER: Final = "one thread appends; there is no lock to choose"
_NO_MAPS_TO_WAIT_FOR: Final = "a file that may go is deleted at once, deleteFileBatchMax in one round"
_NO_DISPATCH_THREADS: Final = "the queues are written in the same pass as the log"

_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_PATHS: Final = (
    # <home>/store where it is not set.
    Key("storePathRootDir", _STRING, None, important=True),
    # Several folders, on several disks, are separated by commas.
    Key("storePathCommitLog", _STRING, None, important=True, check=paths),
    Key("readOnlyCommitLogStorePaths", _STRING, None, check=paths),
    *keys(_STRING, _NO_CONTROLLER, storePathEpochFile=None, storePathBrokerIdentity=None),
    *keys(
        _STRING,
        _UNDER_ROOT,
        storePathConsumeQueue=None,
        storePathIndex=None,
        storeCheckpoint=None,
        abortFile=None,
        delayOffsetStorePath=None,
    ),
    *keys(_STRING, _NO_TRAN_TABLE, tranStateTableStorePath=None, tranRedoLogStorePath=None),
    *keys(_INT, _NO_TRAN_TABLE, tranStateTableMapedFileSize=None, tranRedoLogMapedFileSize=None),
)

_FILE_SIZES: Final = (
    # A record with the longest properties takes half of the smallest file.
    Key("mappedFileSizeCommitLog", _INT, 1_073_741_824, old_names=("mapedFileSizeCommitLog",), low=65_536),
    # In bytes, twenty a message, whatever documents that write 300000 meant by it.
    Key("mappedFileSizeConsumeQueue", _INT, 6_000_000, old_names=("mapedFileSizeConsumeQueue",), low=1),
    Key("maxHashSlotNum", _INT, 5_000_000, low=1),
    Key("maxIndexNum", _INT, 20_000_000, low=2),
    *keys(_INT, _NO_EXT, mappedFileSizeConsumeQueueExt=50_331_648, bitMapLengthConsumeQueueExt=64),
    *keys(_INT, _NO_COMPACTION, mapperFileSizeBatchConsumeQueue=13_800_000),
    Key("mappedFileSizeTimerLog", _INT, 104_857_600, low=1024),
    *keys(_BOOL, _NO_EXT, enableConsumeQueueExt=False),
    *keys(_BOOL, messageIndexEnable=True),
    *keys(
        _BOOL,
        "messageIndexEnable says whether there is an index; it is rebuilt after a crash",
        messageIndexSafe=False,
        indexFileReadEnable=True,
        indexFileWriteEnable=True,
    ),
    Key("maxMessageSize", _INT, 4_194_304, low=1, important=True),
    Key("maxFilterMessageSize", _INT, 16_000, low=20),
    *keys(_INT, "names of topics are 127 characters at most", maxTopicLength=127),
    *keys(
        _BOOL,
        "records are those that RocketMQ 4 and 5 both read",
        autoMessageVersionOnTopicLen=True,
        enabledAppendPropCRC=False,
        forceVerifyPropCRC=False,
    ),
)

_FLUSH: Final = (
    Key("flushDiskType", _ENUM, "ASYNC_FLUSH", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), important=True),
    Key("flushIntervalCommitLog", _INT, 500, low=1),
    Key("flushIntervalConsumeQueue", _INT, 1_000, low=1),
    Key("flushConsumeQueueThoroughInterval", _INT, 60_000, low=1),
    Key("syncFlushTimeout", _INT, 5_000, low=1),
    *keys(_INT, "syncFlushTimeout bounds the wait of a send", putMessageTimeout=8_000),
    Key("checkCRCOnRecover", _BOOL, True),
    Key("flushDelayOffsetInterval", _LONG, 10_000, low=1),
    *keys(
        _INT,
        _WHOLE_ROUNDS,
        flushCommitLogLeastPages=4,
        flushCommitLogThoroughInterval=10_000,
        flushConsumeQueueLeastPages=2,
    ),
    *keys(
        _BOOL,
        _WHOLE_ROUNDS,
        flushCommitLogTimed=True,
        wakeFlushWhenPutMessage=False,
        enableRunningFlagsInFlush=False,
    ),
    *keys(_BOOL, _OWN_RECOVERY, diskFallRecorded=True, checkCommitLogOffsetOnRecover=False),
    *keys(
        _BOOL,
        _NO_WRITABLE_MAPS,
        transientStorePoolEnable=False,
        fastFailIfNoBufferInStorePool=False,
        warmMapedFileEnable=False,
        writeWithoutMmap=False,
        mappedFileSwapEnable=True,
        wakeCommitWhenPutMessage=True,
        putConsumeQueueDataByFileChannel=True,
    ),
    *keys(
        _INT,
        _NO_WRITABLE_MAPS,
        transientStorePoolSize=5,
        flushLeastPagesWhenWarmMapedFile=4_096,
        commitIntervalCommitLog=200,
        commitCommitLogLeastPages=4,
        commitCommitLogThoroughInterval=200,
        commitLogSwapMapReserveFileNum=100,
        logicQueueSwapMapReserveFileNum=20,
        sharedByteBufferNum=16,
    ),
    *keys(
        _LONG,
        _NO_WRITABLE_MAPS,
        commitLogForceSwapMapInterval=43_200_000,
        commitLogSwapMapInterval=3_600_000,
        logicQueueForceSwapMapInterval=43_200_000,
        logicQueueSwapMapInterval=3_600_000,
        cleanSwapedMapInterval=300_000,
    ),
    *keys(
        _BOOL,
        _ONE_WRITER,
        useReentrantLockWhenPutMessage=True,
        useABSLock=False,
        debugLockEnable=False,
    ),
    *keys(_INT, _ONE_WRITER, topicQueueLockNum=32, spinLockCollisionRetreatOptimalDegree=1_000),
    *keys(
        _LONG,
        "sends that wait are bounded by bytes; more are answered SYSTEM_BUSY",
        osPageCacheBusyTimeOutMills=1_000,
    ),
)

_RETENTION: Final = (
    # Hours of the day, local time, separated by `;`.
    Key("deleteWhen", _STRING, "04", important=True, check=hours),
    Key("fileReservedTime", _INT, 72, low=0, important=True),
    # Apache moves the ratio into 10..95 in silence.
    Key("diskMaxUsedSpaceRatio", _INT, 75, low=10, high=95, clamped=True),
    Key("diskSpaceWarningLevelRatio", _INT, 90, low=1, high=100),
    Key("diskSpaceCleanForciblyRatio", _INT, 85, low=1, high=100),
    Key("cleanResourceInterval", _INT, 10_000, low=10),
    Key("deleteFileBatchMax", _INT, 10, low=1),
    *keys(_BOOL, cleanFileForciblyEnable=True),
    *keys(
        _INT,
        _NO_MAPS_TO_WAIT_FOR,
        deleteCommitLogFilesInterval=100,
        deleteConsumeQueueFilesInterval=100,
        destroyMapedFileIntervalForcibly=120_000,
        redeleteHangedFileInterval=120_000,
        maxBatchDeleteFilesNum=50,
        correctLogicMinOffsetSleepInterval=1,
        correctLogicMinOffsetForceInterval=300_000,
    ),
    *keys(_INT, "the disk's own ratio counts, whoever else uses it", replicasPerDiskPartition=1),
    *keys(_DOUBLE, "see replicasPerDiskPartition", logicalDiskSpaceCleanForciblyThreshold=0.8),
    *keys(_BOOL, "offsets below the log are corrected when a client pulls", enableCleanExpiredOffset=False),
)

_READING: Final = (
    Key("maxTransferBytesOnMessageInMemory", _INT, 262_144, low=1, high=_MAX_ANSWER_BYTES, clamped=True),
    Key("maxTransferCountOnMessageInMemory", _INT, 32, low=1, high=_MAX_ANSWER_MESSAGES, clamped=True),
    Key("maxTransferBytesOnMessageInDisk", _INT, 65_536, low=1, high=_MAX_ANSWER_BYTES, clamped=True),
    Key("maxTransferCountOnMessageInDisk", _INT, 8, low=1, high=_MAX_ANSWER_MESSAGES, clamped=True),
    Key("accessMessageInMemoryMaxRatio", _INT, 40, low=0, high=100, clamped=True),
    *keys(_INT, _PULL_LIMITS, pullBatchMaxMessageCount=160, travelCqFileNumWhenGetMessage=1),
    Key("maxMsgsNumBatch", _INT, 64, "a query by key finds 64 messages at most", low=1),
    Key("defaultQueryMaxNum", _INT, 32, low=1),
    *keys(
        _INT,
        "positions are found by halving; nothing is sampled",
        maxConsumeQueueScan=20_000,
        sampleCountThreshold=5_000,
        sampleSteps=32,
    ),
    *keys(_INT, _NO_COLD_CONTROL, accessMessageInMemoryHotRatio=26),
    *keys(
        _BOOL,
        _NO_COLD_CONTROL,
        coldDataFlowControlEnable=False,
        coldDataScanEnable=False,
        dataReadAheadEnable=True,
    ),
    *keys(_BOOL, NO_REPLICATION, readUnCommitted=False),
    *keys(_BOOL, _NO_COMPACTION, searchBcqByCacheEnable=True),
)

_REPLICATION: Final = (
    Key(
        "brokerRole",
        _ENUM,
        "ASYNC_MASTER",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        important=True,
        refused=NO_SLAVES,
        refused_choices=("SLAVE",),
    ),
    Key("haListenPort", _INT, None, low=0, high=65_535),
    Key("haMaxGapNotInSync", _INT, 268_435_456, NO_REPLICATION, old_names=("haSlaveFallbehindMax",)),
    *keys(_STRING, NO_REPLICATION, haMasterAddress=None),
    *keys(
        _INT,
        NO_REPLICATION,
        haSendHeartbeatInterval=5_000,
        haHousekeepingInterval=20_000,
        haTransferBatchSize=32_768,
        slaveTimeout=3_000,
        totalReplicas=1,
        inSyncReplicas=1,
        minInSyncReplicas=1,
    ),
    *keys(
        _LONG,
        NO_REPLICATION,
        maxHaTransferByteInSecond=104_857_600,
        haMaxTimeSlaveNotCatchup=15_000,
        maxChecksumRange=1_073_741_824,
        maxSlaveResendLength=268_435_456,
    ),
    *keys(
        _BOOL,
        NO_REPLICATION,
        offsetCheckInSlave=False,
        duplicationEnable=False,
        allAckInSyncStateSet=False,
        enableAutoInSyncReplicas=False,
        haFlowControlEnable=False,
        syncMasterFlushOffsetWhenStartup=False,
        syncFromLastFile=False,
        asyncLearner=False,
    ),
    *keys(_BOOL, _NO_DLEDGER, enableDLegerCommitLog=False),
    Key("enableBatchPush", _BOOL, False, _NO_DLEDGER, old_names=("isEnableBatchPush",)),
    *keys(
        _STRING,
        _NO_DLEDGER,
        dLegerGroup=None,
        dLegerPeers=None,
        dLegerSelfId=None,
        preferredLeaderId=None,
        storePathDLedgerCommitLog=None,
    ),
)

_DELAY: Final = (
    Key("messageDelayLevel", _STRING, _DELAY_LEVELS, check=delay_levels),
    *keys(_BOOL, enableScheduleMessageStats=True),
    *keys(
        _BOOL,
        _ONE_PASS_DELIVERY,
        enableScheduleAsyncDeliver=False,
    ),
    *keys(
        _INT,
        _ONE_PASS_DELIVERY,
        scheduleAsyncDeliverMaxPendingLimit=2_000,
        scheduleAsyncDeliverMaxResendNum2Blocked=3,
    ),
    Key("timerWheelEnable", _BOOL, True),
    *keys(_BOOL, timerStopEnqueue=False, timerStopDequeue=False),
    Key("timerPrecisionMs", _INT, 1_000, low=100, high=1_000),
    Key("timerRollWindowSlot", _INT, 172_800, low=2, high=604_740),
    Key("timerMaxDelaySec", _INT, 259_200, low=1),
    Key("timerFlushIntervalMs", _INT, 1_000, low=1),
    Key("timerCongestNumEachSlot", _INT, 2_147_483_647, low=1),
    *keys(_STRING, _NO_TIMER, timerCheckMetricsWhen="05"),
    *keys(
        _BOOL,
        _NO_TIMER,
        timerSkipUnknownError=False,
        timerEnableRetryUntilSuccess=False,
        timerEnableDisruptor=False,
        timerEnableCheckMetrics=True,
        timerInterceptDelayLevel=False,
        timerWarmEnable=False,
        timerWheelSnapshotFlush=False,
        timerRecallToTimelineEnable=True,
        timerRecallToTimeWheelEnable=True,
        appendTopicForTimerDeleteKey=False,
    ),
    *keys(
        _INT,
        _NO_TIMER,
        timerWheelSnapshotIntervalMs=10_000,
        timerGetMessageThreadNum=3,
        timerPutMessageThreadNum=3,
        timerMetricSmallThreshold=1_000_000,
        timerProgressLogIntervalMs=10_000,
        timerColdDataCheckIntervalMs=60_000,
        timerReputServiceCorePoolSize=6,
        timerReputServiceMaxPoolSize=6,
        timerReputServiceQueueCapacity=10_000,
        disappearTimeAfterStart=-1,
    ),
)

_QUEUES: Final = (
    *keys(_BOOL, _NO_LMQ, enableLmq=False, enableLmqQuota=False, enableMultiDispatch=False),
    *keys(_INT, _NO_LMQ, maxLmqConsumeQueueNum=20_000),
    *keys(_BOOL, _NO_COMPACTION, enableCompaction=True),
    *keys(
        _INT,
        _NO_COMPACTION,
        compactionMappedFileSize=104_857_600,
        compactionCqMappedFileSize=10_485_760,
        compactionScheduleInternal=900_000,
        compactionThreadNum=6,
        maxOffsetMapSize=104_857_600,
    ),
    *keys(
        _BOOL,
        _OWN_RECOVERY,
        recheckReputOffsetFromCq=False,
        enableLogConsumeQueueRepeatedlyBuildWhenRecover=False,
        enableAcceleratedRecovery=False,
    ),
    *keys(_INT, _OWN_RECOVERY, maxRecoveryCommitlogFiles=30, commitLogRecoverMaxNum=10),
    *keys(
        _INT,
        "sends that wait are bounded by bytes; more are answered SYSTEM_BUSY",
        maxAsyncPutMessageRequests=5_000,
    ),
    *keys(
        _BOOL,
        _NO_DISPATCH_THREADS,
        enableAsyncReput=True,
        dispatchFromSenderThread=False,
        enableBuildConsumeQueueConcurrently=False,
    ),
    *keys(
        _INT,
        _NO_DISPATCH_THREADS,
        dispatchCqThreads=10,
        dispatchCqCacheNum=4_096,
        batchDispatchRequestThreadPoolNums=16,
        putMsgIndexHightWater=600_000,
    ),
)

_ROCKSDB: Final = (
    Key("storeType", _STRING, "default", _NO_ROCKSDB),
    *keys(
        _BOOL,
        _NO_ROCKSDB,
        realTimePersistRocksDBConfig=True,
        enableRocksDBLog=False,
        rocksdbCQDoubleWriteEnable=False,
        combineCQEnableCheckSelf=False,
        combineCQUseRocksdbForLmq=False,
        indexRocksDBEnable=False,
        iteratorWhenUseRocksdbConsumeQueue=True,
        timerRocksDBEnable=False,
        timerRocksDBStopScan=False,
        transRocksDBEnable=False,
        transWriteOriginTransHalfEnable=True,
        useSeparateStorePathForRocksdbCQ=False,
    ),
    *keys(
        _INT,
        _NO_ROCKSDB,
        combineCQMaxExtraSearchCommitLogFiles=3,
        rocksdbFlushWalFrequency=1_024,
        maxRocksDBIndexQueryDays=7,
        timerRocksDBPrecisionMs=1_000,
        timerRocksDBRollIntervalHours=1,
        timerRocksDBRollRangeHours=2,
        transactionCheckRocksdbCoreThreads=2,
        transactionCheckRocksdbMaxThreads=5,
        transactionCheckRocksdbQueueCapacity=2_000,
    ),
    *keys(
        _LONG,
        _NO_ROCKSDB,
        cleanRocksDBDirtyCQIntervalMin=60,
        statRocksDBCQIntervalSec=10,
        memTableFlushIntervalMs=3_600_000,
        rocksdbWalFileRollingThreshold=1_073_741_824,
    ),
    *keys(_DOUBLE, _NO_ROCKSDB, timerRocksDBTimeExpiredMaxTps=200_000.0, timerRocksDBRollMaxTps=8_000.0),
    *keys(
        _STRING,
        _NO_ROCKSDB,
        combineCQLoadingCQTypes="default;defaultRocksDB",
        combineCQPreferCQType="default",
        combineAssignOffsetCQType="default",
        bottomMostCompressionTypeForConsumeQueueStore="zstd",
        rocksdbCompressionType="lz4",
    ),
)

STORE_KEYS: Final = (
    *_PATHS,
    *_FILE_SIZES,
    *_FLUSH,
    *_RETENTION,
    *_READING,
    *_REPLICATION,
    *_DELAY,
    *_QUEUES,
    *_ROCKSDB,
)
