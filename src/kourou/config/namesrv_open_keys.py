"""The keys of a name server that requests show and change. A key that is not listed here is in no response,
and no request changes it: every client may ask a name server without access control.

Not here: the keys themselves (namesrv.py and what it is made of).
"""

from __future__ import annotations

from typing import Final

CHANGEABLE: Final = frozenset(
    {
        *("listenPort", "bindAddress", "httpPort", "httpBindAddress", "metricsPort"),
        *("serverChannelMaxIdleTimeSeconds", "serverSocketBacklog", "com.rocketmq.remoting.frameMaxLength"),
        *("scanNotActiveBrokerInterval", "needWaitForService", "waitSecondsForService"),
        *("deleteTopicWithBrokerRegistration", "orderMessageEnable", "returnOrderTopicConfigToBroker"),
        *("supportActingMaster", "notifyMinBrokerIdChanged", "enableAllTopicList", "enableTopicList"),
        # Without effect, in RocketMQ's files and tools.
        *("serverWorkerThreads", "serverSelectorThreads", "serverCallbackExecutorThreads"),
        *("serverOnewaySemaphoreValue", "serverAsyncSemaphoreValue"),
        *("serverSocketSndBufSize", "serverSocketRcvBufSize"),
        *("writeBufferHighWaterMark", "writeBufferLowWaterMark"),
        *("serverNettyWorkerGroupEnable", "serverPooledByteBufAllocatorEnable", "useEpollNativeSelector"),
        *("enableShutdownGracefully", "shutdownWaitTimeSeconds"),
        *("productEnvName", "clusterTest", "unRegisterBrokerQueueCapacity", "enableControllerInNamesrv"),
        *("clientRequestThreadPoolNums", "defaultThreadPoolNums"),
        *("clientRequestThreadPoolQueueCapacity", "defaultThreadPoolQueueCapacity"),
    }
)
"""A request may change them, unless `configBlackList` has them."""

SHOWN: Final = CHANGEABLE | frozenset(
    {
        *("rocketmqHome", "configBlackList", "kvConfigPath", "configStorePath"),
        *("accessLockoutAttempts", "accessLockoutWindow", "accessLockoutTime", "accessLimitsPath"),
        *("accessAuditLogEnable", "accessAuditLogPath", "accessAuditLogFileSize", "accessAuditLogFiles"),
        *("accessAuditLogInterval", "aclEnable", "authenticationEnabled", "accessUsersFolder"),
        *("accessAllowedBrokers", "accessRoutesNeedSignature"),
        *("tls.config.file", "tls.test.mode.enable", "tls.enable"),
        *("tls.server.mode", "tls.server.mode.ha", "tls.enable.ha"),
        *("tls.server.need.client.auth", "tls.server.need.client.auth.fast"),
        *("tls.server.clientCertificateUser", "tls.server.authClient"),
        *("tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath"),
        *("tls.client.authServer", "tls.client.certPath", "tls.client.keyPath", "tls.client.trustCertPath"),
    }
)
"""A response may have them, where they were set or are always shown."""
