"""Keys of Apache's controller, container and tiered storage, and of where it keeps users.

Known so that a file that has them is read without notes about unknown keys; none of these
components exists here. Their values are not checked.
"""

from __future__ import annotations

from typing import Final

from kourou.config.keys import Key, ValueType

_NAMES: Final = """
    controllerType controllerThreadPoolNums controllerRequestThreadPoolQueueCapacity
    controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId controllerStorePath
    mappedFileSize electMasterMaxRetryCount enableElectUncleanMaster isProcessReadEvent
    notifyBrokerRoleChanged scanInactiveMasterInterval
    jRaftElectionTimeoutMs jRaftScanWaitTimeoutMs jRaftSnapshotIntervalSecs jRaftGroupId
    jRaftServerId jRaftInitConf jRaftControllerRPCAddr
    brokerContainerIP brokerConfigPaths updateNamesrvAddrInterval
    authConfigPath
    tieredStorageLevel recordGetMessageResult tieredStoreCommitLogMaxSize
    tieredStoreConsumeQueueMaxSize tieredStoreIndexFileMaxHashSlotNum
    tieredStoreIndexFileMaxIndexNum tieredMetadataServiceProvider tieredBackendServiceProvider
    tieredStoreDeleteFileEnable tieredStoreFileReservedTime tieredStoreDeleteFileInterval
    commitLogRollingInterval commitLogRollingMinimumSize tieredStoreGroupCommit
    tieredStoreGroupCommitTimeout tieredStoreGroupCommitCount tieredStoreGroupCommitSize
    tieredStoreMaxGroupCommitCount readAheadCacheEnable readAheadMessageCountThreshold
    readAheadMessageSizeThreshold readAheadCacheExpireDuration readAheadCacheSizeThresholdRate
    tieredStoreMaxPendingLimit tieredStoreCrcCheckEnable tieredStoreFilePath
    objectStoreEndpoint objectStoreBucket objectStoreAccessKey
"""
_SECRETS: Final = "objectStoreSecretKey"

_NOT_HERE: Final = "this part of Apache RocketMQ is not in Kourou"

OTHER_KEYS: Final = (
    *(Key(name, ValueType.STRING, None, _NOT_HERE) for name in _NAMES.split()),
    *(Key(name, ValueType.STRING, None, _NOT_HERE, secret=True) for name in _SECRETS.split()),
)
