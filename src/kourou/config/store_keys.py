"""The keys of a broker's message store: names, types, defaults of RocketMQ 5.

Old spellings of RocketMQ 3 and 4 documents are understood. Keys without a line of `instead` are
the store's to honour. What the values mean on disk is in `store/`.
"""

from __future__ import annotations

from typing import Final

from kourou.config.keys import Key, ValueType, keys

_BOOL, _INT, _LONG = ValueType.BOOL, ValueType.INT, ValueType.LONG
_STRING, _ENUM, _DOUBLE = ValueType.STRING, ValueType.ENUM, ValueType.DOUBLE

_UNDER_ROOT: Final = "it lies under storePathRootDir, where RocketMQ has looked for it since 3.2"
_NO_TRAN_TABLE: Final = "half messages are kept in topics, as RocketMQ does since 4.3"
_NO_DLEDGER: Final = "there is no DLedger log; replication is from master to slave (brokerRole)"
_NO_ROCKSDB: Final = "queues, indexes and timers are RocketMQ's files; there is no RocksDB"
_NO_WRITABLE_MAPS: Final = "files are written with pwrite, not through memory maps"
_ONE_WRITER: Final = "one thread appends; there is no lock to choose"
_NO_DISPATCH_THREADS: Final = "the queues are written in the same pass as the log"

_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_PATHS: Final = (
    *keys(
        _STRING,
        storePathRootDir=None,
        storePathCommitLog=None,
        readOnlyCommitLogStorePaths=None,
        storePathEpochFile=None,
        storePathBrokerIdentity=None,
    ),
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
    Key("mappedFileSizeCommitLog", _INT, 1_073_741_824, old_names=("mapedFileSizeCommitLog",), low=1),
    Key("mappedFileSizeConsumeQueue", _INT, 6_000_000, old_names=("mapedFileSizeConsumeQueue",), low=1),
    *keys(
        _INT,
        mappedFileSizeConsumeQueueExt=50_331_648,
        mapperFileSizeBatchConsumeQueue=13_800_000,
        mappedFileSizeTimerLog=104_857_600,
        bitMapLengthConsumeQueueExt=64,
        maxHashSlotNum=5_000_000,
        maxIndexNum=20_000_000,
    ),
    *keys(_BOOL, enableConsumeQueueExt=False, messageIndexEnable=True, messageIndexSafe=False),
    *keys(_BOOL, indexFileReadEnable=True, indexFileWriteEnable=True),
    Key("maxMessageSize", _INT, 4_194_304, low=1),
    *keys(_INT, maxFilterMessageSize=16_000, maxTopicLength=127),
    *keys(_BOOL, autoMessageVersionOnTopicLen=True, enabledAppendPropCRC=False, forceVerifyPropCRC=False),
)

_FLUSH: Final = (
    Key("flushDiskType", _ENUM, "ASYNC_FLUSH", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), important=True),
    *keys(
        _INT,
        flushIntervalCommitLog=500,
        flushCommitLogLeastPages=4,
        flushCommitLogThoroughInterval=10_000,
        flushIntervalConsumeQueue=1_000,
        flushConsumeQueueLeastPages=2,
        flushConsumeQueueThoroughInterval=60_000,
        syncFlushTimeout=5_000,
        putMessageTimeout=8_000,
    ),
    *keys(_BOOL, flushCommitLogTimed=True, wakeFlushWhenPutMessage=False, enableRunningFlagsInFlush=False),
    *keys(_BOOL, checkCRCOnRecover=True, diskFallRecorded=True, checkCommitLogOffsetOnRecover=False),
    *keys(_LONG, flushDelayOffsetInterval=10_000),
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
    *keys(_LONG, osPageCacheBusyTimeOutMills=1_000),
)

_RETENTION: Final = (
    *keys(_STRING, deleteWhen="04"),
    Key("fileReservedTime", _INT, 72, low=0),
    # Apache moves the ratio into 10..95 in silence.
    Key("diskMaxUsedSpaceRatio", _INT, 75, low=10, high=95, clamped=True),
    *keys(
        _INT,
        diskSpaceWarningLevelRatio=90,
        diskSpaceCleanForciblyRatio=85,
        cleanResourceInterval=10_000,
        deleteCommitLogFilesInterval=100,
        deleteConsumeQueueFilesInterval=100,
        destroyMapedFileIntervalForcibly=120_000,
        redeleteHangedFileInterval=120_000,
        deleteFileBatchMax=10,
        maxBatchDeleteFilesNum=50,
        replicasPerDiskPartition=1,
        correctLogicMinOffsetSleepInterval=1,
        correctLogicMinOffsetForceInterval=300_000,
    ),
    *keys(_BOOL, cleanFileForciblyEnable=True, enableCleanExpiredOffset=False),
    *keys(_DOUBLE, logicalDiskSpaceCleanForciblyThreshold=0.8),
)

_READING: Final = (
    *keys(
        _INT,
        maxTransferBytesOnMessageInMemory=262_144,
        maxTransferCountOnMessageInMemory=32,
        maxTransferBytesOnMessageInDisk=65_536,
        maxTransferCountOnMessageInDisk=8,
        accessMessageInMemoryMaxRatio=40,
        accessMessageInMemoryHotRatio=26,
        maxMsgsNumBatch=64,
        defaultQueryMaxNum=32,
        pullBatchMaxMessageCount=160,
        travelCqFileNumWhenGetMessage=1,
        maxConsumeQueueScan=20_000,
        sampleCountThreshold=5_000,
        sampleSteps=32,
    ),
    *keys(
        _BOOL,
        readUnCommitted=False,
        coldDataFlowControlEnable=False,
        coldDataScanEnable=False,
        dataReadAheadEnable=True,
        searchBcqByCacheEnable=True,
    ),
)

_REPLICATION: Final = (
    Key(
        "brokerRole",
        _ENUM,
        "ASYNC_MASTER",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        important=True,
    ),
    Key("haListenPort", _INT, None, low=0, high=65_535),
    Key("haMaxGapNotInSync", _INT, 268_435_456, old_names=("haSlaveFallbehindMax",)),
    *keys(_STRING, haMasterAddress=None),
    *keys(
        _INT,
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
        maxHaTransferByteInSecond=104_857_600,
        haMaxTimeSlaveNotCatchup=15_000,
        maxChecksumRange=1_073_741_824,
        maxSlaveResendLength=268_435_456,
    ),
    *keys(
        _BOOL,
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
    *keys(_STRING, messageDelayLevel=_DELAY_LEVELS, timerCheckMetricsWhen="05"),
    *keys(
        _BOOL,
        enableScheduleMessageStats=True,
        enableScheduleAsyncDeliver=False,
        timerWheelEnable=True,
        timerStopEnqueue=False,
        timerStopDequeue=False,
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
        scheduleAsyncDeliverMaxPendingLimit=2_000,
        scheduleAsyncDeliverMaxResendNum2Blocked=3,
        timerPrecisionMs=1_000,
        timerRollWindowSlot=172_800,
        timerMaxDelaySec=259_200,
        timerFlushIntervalMs=1_000,
        timerWheelSnapshotIntervalMs=10_000,
        timerGetMessageThreadNum=3,
        timerPutMessageThreadNum=3,
        timerCongestNumEachSlot=2_147_483_647,
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
    *keys(
        _BOOL,
        enableLmq=False,
        enableLmqQuota=False,
        enableMultiDispatch=False,
        enableCompaction=True,
        recheckReputOffsetFromCq=False,
        enableLogConsumeQueueRepeatedlyBuildWhenRecover=False,
        enableAcceleratedRecovery=False,
    ),
    *keys(
        _INT,
        maxLmqConsumeQueueNum=20_000,
        maxAsyncPutMessageRequests=5_000,
        maxRecoveryCommitlogFiles=30,
        commitLogRecoverMaxNum=10,
        compactionMappedFileSize=104_857_600,
        compactionCqMappedFileSize=10_485_760,
        compactionScheduleInternal=900_000,
        compactionThreadNum=6,
        maxOffsetMapSize=104_857_600,
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
