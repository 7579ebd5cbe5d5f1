"""Keys of a broker's store that are accepted without effect: RocketMQ 5's names, types and defaults,
each with what Kourou does instead.

A key that starts to have an effect moves to store_settings.py.
"""

from __future__ import annotations

from typing import Final

from kourou.config.keys import BOOL, DOUBLE, INT, LONG, STRING, Key, keys

_UNDER_ROOT: Final = "it is under storePathRootDir, as in RocketMQ since 3.2"
_NO_TRAN_TABLE: Final = "half messages are stored in topics, as in RocketMQ since 4.3"
_NO_CONTROLLER: Final = "brokers keep the role they are configured with; there is no controller"
_NO_TIMER: Final = "a single task drives the timer wheel; there are no pools, snapshots or timelines"
_NO_LMQ: Final = "light message queues are not in this version"
_NO_COMPACTION: Final = "compaction topics are not in this version"
_NO_EXT: Final = "filters are evaluated on the message; the queues have no bitmaps"
_PULL_LIMITS: Final = "maxTransferCountOnMessageInMemory and related keys limit a pull"
_NO_REPLICATION: Final = (
    "there is no controller in this version: roles are configured, and a slave copies everything"
)
_NO_DLEDGER: Final = "there is no DLedger log; use a master with slaves"
_NO_ROCKSDB: Final = "queues, indexes and timers are RocketMQ's files; there is no RocksDB"
_NO_WRITABLE_MAPS: Final = "files are written with pwrite, not through memory maps"
_NO_COLD_CONTROL: Final = "cold data is read off the event loop; no client is throttled for it"
_ONE_PASS_DELIVERY: Final = "due messages are delivered in the round that finds them"
_OWN_RECOVERY: Final = "recovery starts at the last durable byte and records its progress"
_WHOLE_ROUNDS: Final = "every flushIntervalCommitLog ms a flush covers everything written before"
_ONE_WRITER: Final = "one thread appends; there is no lock to choose"
_NO_MAPS_TO_WAIT_FOR: Final = "expired files are deleted at once, deleteFileBatchMax per round"
_NO_DISPATCH_THREADS: Final = "the queues are written in the same commit cycle as the log"

_PATHS: Final = (
    *keys(STRING, _NO_CONTROLLER, storePathEpochFile=None, storePathBrokerIdentity=None),
    *keys(
        STRING,
        _UNDER_ROOT,
        storePathConsumeQueue=None,
        storePathIndex=None,
        storeCheckpoint=None,
        abortFile=None,
        delayOffsetStorePath=None,
    ),
    *keys(STRING, _NO_TRAN_TABLE, tranStateTableStorePath=None, tranRedoLogStorePath=None),
    *keys(INT, _NO_TRAN_TABLE, tranStateTableMapedFileSize=None, tranRedoLogMapedFileSize=None),
)

_FILE_SIZES: Final = (
    *keys(INT, _NO_EXT, mappedFileSizeConsumeQueueExt=50_331_648, bitMapLengthConsumeQueueExt=64),
    *keys(INT, _NO_COMPACTION, mapperFileSizeBatchConsumeQueue=13_800_000),
    *keys(BOOL, _NO_EXT, enableConsumeQueueExt=False),
    *keys(
        BOOL,
        "messageIndexEnable switches the index; it is rebuilt after a crash",
        messageIndexSafe=False,
        indexFileReadEnable=True,
        indexFileWriteEnable=True,
    ),
    *keys(INT, "topic names have at most 127 characters", maxTopicLength=127),
    *keys(
        BOOL,
        "records are in the form that RocketMQ 4 and 5 both read",
        autoMessageVersionOnTopicLen=True,
        enabledAppendPropCRC=False,
        forceVerifyPropCRC=False,
    ),
)

_FLUSH: Final = (
    *keys(INT, "syncFlushTimeout limits how long a send waits", putMessageTimeout=8_000),
    *keys(
        INT,
        _WHOLE_ROUNDS,
        flushCommitLogLeastPages=4,
        flushCommitLogThoroughInterval=10_000,
        flushConsumeQueueLeastPages=2,
    ),
    *keys(
        BOOL,
        _WHOLE_ROUNDS,
        flushCommitLogTimed=True,
        wakeFlushWhenPutMessage=False,
        enableRunningFlagsInFlush=False,
    ),
    *keys(BOOL, _OWN_RECOVERY, diskFallRecorded=True, checkCommitLogOffsetOnRecover=False),
    *keys(
        BOOL,
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
        INT,
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
        LONG,
        _NO_WRITABLE_MAPS,
        commitLogForceSwapMapInterval=43_200_000,
        commitLogSwapMapInterval=3_600_000,
        logicQueueForceSwapMapInterval=43_200_000,
        logicQueueSwapMapInterval=3_600_000,
        cleanSwapedMapInterval=300_000,
    ),
    *keys(
        BOOL,
        _ONE_WRITER,
        useReentrantLockWhenPutMessage=True,
        useABSLock=False,
        debugLockEnable=False,
    ),
    *keys(INT, _ONE_WRITER, topicQueueLockNum=32, spinLockCollisionRetreatOptimalDegree=1_000),
    *keys(
        LONG,
        "waiting sends are bounded by bytes; beyond that they are answered SYSTEM_BUSY",
        osPageCacheBusyTimeOutMills=1_000,
    ),
)

_RETENTION: Final = (
    *keys(
        INT,
        _NO_MAPS_TO_WAIT_FOR,
        deleteCommitLogFilesInterval=100,
        deleteConsumeQueueFilesInterval=100,
        destroyMapedFileIntervalForcibly=120_000,
        redeleteHangedFileInterval=120_000,
        maxBatchDeleteFilesNum=50,
        correctLogicMinOffsetSleepInterval=1,
        correctLogicMinOffsetForceInterval=300_000,
    ),
    *keys(INT, "ratios are those of the whole disk, other users included", replicasPerDiskPartition=1),
    *keys(DOUBLE, "see replicasPerDiskPartition", logicalDiskSpaceCleanForciblyThreshold=0.8),
    *keys(BOOL, "offsets below the log are corrected by the next pull", enableCleanExpiredOffset=False),
)

_READING: Final = (
    *keys(INT, _PULL_LIMITS, pullBatchMaxMessageCount=160, travelCqFileNumWhenGetMessage=1),
    Key("maxMsgsNumBatch", INT, 64, "a query by key finds at most 64 messages", low=1),
    *keys(
        INT,
        "positions are found by binary search; nothing is sampled",
        maxConsumeQueueScan=20_000,
        sampleCountThreshold=5_000,
        sampleSteps=32,
    ),
    *keys(INT, _NO_COLD_CONTROL, accessMessageInMemoryHotRatio=26),
    *keys(
        BOOL,
        _NO_COLD_CONTROL,
        coldDataFlowControlEnable=False,
        coldDataScanEnable=False,
        dataReadAheadEnable=True,
    ),
    *keys(BOOL, _NO_REPLICATION, readUnCommitted=False),
    *keys(BOOL, _NO_COMPACTION, searchBcqByCacheEnable=True),
)

_REPLICATION: Final = (
    *keys(INT, _NO_REPLICATION, totalReplicas=1),
    *keys(
        LONG,
        _NO_REPLICATION,
        maxHaTransferByteInSecond=104_857_600,
        maxChecksumRange=1_073_741_824,
        maxSlaveResendLength=268_435_456,
    ),
    *keys(
        BOOL,
        _NO_REPLICATION,
        duplicationEnable=False,
        haFlowControlEnable=False,
        syncMasterFlushOffsetWhenStartup=False,
        asyncLearner=False,
    ),
    *keys(BOOL, _NO_DLEDGER, enableDLegerCommitLog=False),
    Key("enableBatchPush", BOOL, False, _NO_DLEDGER, old_names=("isEnableBatchPush",)),
    *keys(
        STRING,
        _NO_DLEDGER,
        dLegerGroup=None,
        dLegerPeers=None,
        dLegerSelfId=None,
        preferredLeaderId=None,
        storePathDLedgerCommitLog=None,
    ),
)

_DELAY: Final = (
    *keys(
        BOOL,
        _ONE_PASS_DELIVERY,
        enableScheduleAsyncDeliver=False,
    ),
    *keys(
        INT,
        _ONE_PASS_DELIVERY,
        scheduleAsyncDeliverMaxPendingLimit=2_000,
        scheduleAsyncDeliverMaxResendNum2Blocked=3,
    ),
    *keys(STRING, _NO_TIMER, timerCheckMetricsWhen="05"),
    *keys(
        BOOL,
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
        INT,
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
    *keys(BOOL, _NO_LMQ, enableLmq=False, enableLmqQuota=False, enableMultiDispatch=False),
    *keys(INT, _NO_LMQ, maxLmqConsumeQueueNum=20_000),
    *keys(BOOL, _NO_COMPACTION, enableCompaction=True),
    *keys(
        INT,
        _NO_COMPACTION,
        compactionMappedFileSize=104_857_600,
        compactionCqMappedFileSize=10_485_760,
        compactionScheduleInternal=900_000,
        compactionThreadNum=6,
        maxOffsetMapSize=104_857_600,
    ),
    *keys(
        BOOL,
        _OWN_RECOVERY,
        recheckReputOffsetFromCq=False,
        enableLogConsumeQueueRepeatedlyBuildWhenRecover=False,
        enableAcceleratedRecovery=False,
    ),
    *keys(INT, _OWN_RECOVERY, maxRecoveryCommitlogFiles=30, commitLogRecoverMaxNum=10),
    *keys(
        INT,
        "waiting sends are bounded by bytes; beyond that they are answered SYSTEM_BUSY",
        maxAsyncPutMessageRequests=5_000,
    ),
    *keys(
        BOOL,
        _NO_DISPATCH_THREADS,
        enableAsyncReput=True,
        dispatchFromSenderThread=False,
        enableBuildConsumeQueueConcurrently=False,
    ),
    *keys(
        INT,
        _NO_DISPATCH_THREADS,
        dispatchCqThreads=10,
        dispatchCqCacheNum=4_096,
        batchDispatchRequestThreadPoolNums=16,
        putMsgIndexHightWater=600_000,
    ),
)

_ROCKSDB: Final = (
    Key("storeType", STRING, "default", _NO_ROCKSDB),
    *keys(
        BOOL,
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
        INT,
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
        LONG,
        _NO_ROCKSDB,
        cleanRocksDBDirtyCQIntervalMin=60,
        statRocksDBCQIntervalSec=10,
        memTableFlushIntervalMs=3_600_000,
        rocksdbWalFileRollingThreshold=1_073_741_824,
    ),
    *keys(DOUBLE, _NO_ROCKSDB, timerRocksDBTimeExpiredMaxTps=200_000.0, timerRocksDBRollMaxTps=8_000.0),
    *keys(
        STRING,
        _NO_ROCKSDB,
        combineCQLoadingCQTypes="default;defaultRocksDB",
        combineCQPreferCQType="default",
        combineAssignOffsetCQType="default",
        bottomMostCompressionTypeForConsumeQueueStore="zstd",
        rocksdbCompressionType="lz4",
    ),
)

STORE_KEYS_WITHOUT_EFFECT: Final = (
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
