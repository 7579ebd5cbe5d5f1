"""What each honoured key means, for the reference (reference.py); nothing that runs reads this.

Keys by section, in the order of the document. A key without effect needs no text here: it has its line of
`instead` where it is defined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SHARED: Final[Mapping[str, Mapping[str, str]]] = {
    "Connections": {
        "bindAddress": "The address to listen on; `0.0.0.0` is every one of the machine.",
        "httpPort": "Kourou's own: answer health checks by HTTP on this port, `/readyz` and `/livez` "
        "([deploying.md](deploying.md)); 0 picks a free one. There is none if not set.",
        "httpBindAddress": "Kourou's own: the address of that port; `bindAddress` if not set.",
        "serverChannelMaxIdleTimeSeconds": "A connection without a byte for so many seconds is closed.",
        "serverSocketBacklog": "How many connections the system accepts while the server is busy.",
        "com.rocketmq.remoting.frameMaxLength": "The largest frame in bytes, its length field included; a "
        "Java system property in RocketMQ, a key of the file here.",
    },
    "TLS": {
        "tls.config.file": "Another file of TLS keys; read where it is there, and its values win.",
        "tls.server.mode": "`permissive`: TLS and plain connections on one port; `enforcing`: TLS only; "
        "`disabled`: plain only.",
        "tls.test.mode.enable": "Serve a throw-away certificate that cannot be verified. Apache's default is "
        "true. Needs `pip install 'kourou[tls-test]'`.",
        "tls.server.need.client.auth": "Whether clients have to show a certificate: `require`, `optional` or "
        "`none`.",
        "tls.server.certPath": "The server's certificate, PEM.",
        "tls.server.keyPath": "Its private key, PEM.",
        "tls.server.keyPassword": "The password of that key. Never shown.",
        "tls.server.trustCertPath": "The CA certificates that clients' certificates must be signed by.",
        "tls.enable": "Whether outgoing connections are encrypted.",
        "tls.client.certPath": "The certificate presented on outgoing connections.",
        "tls.client.keyPath": "Its private key.",
        "tls.client.keyPassword": "The password of that key. Never shown.",
        "tls.client.authServer": "Whether the server's certificate is verified on outgoing connections; "
        "false trusts any.",
        "tls.client.trustCertPath": "The CA certificates that servers' certificates must be signed by.",
    },
}
"""Keys that name server and broker have alike."""

BROKER: Final[Mapping[str, Mapping[str, str]]] = {
    "Identity of the broker": {
        "brokerName": "Its name in routes and queues: one for each master of a cluster. "
        "The host's name if not set.",
        "brokerClusterName": "The cluster that it belongs to.",
        "brokerId": "0, a master. Another number has no effect yet, and a note says so.",
        "listenPort": "The port; 0 picks a free one.",
        "brokerIP1": "The advertised address, by which clients must be able to reach the broker. An address "
        "of this machine, or `bindAddress`, if not set.",
        "brokerIP2": "The advertised address for slaves; `brokerIP1` if not set.",
        "brokerPermission": "What may be done with its topics at most: 6 read and write, 4 read only, 2 "
        "write only. Name servers hear of a change at once.",
        "regionId": "A region's name that each message carries, for traces.",
        "rocketmqHome": "The folder of logs and data: `ROCKETMQ_HOME`, or `~/.local/share/kourou`, if not "
        "set.",
        "brokerConfigPath": "Where `updateBrokerConfig` writes to: the file given at the start, whatever is "
        "said here; else `conf/broker.properties` in the home folder.",
        "configBlackList": "Keys that no request may change, separated by `;`; paths and TLS keys never may.",
    },
    "Name servers": {
        "namesrvAddr": "The name servers to register with, `host:port` separated by `;`.",
        "rmqAddressServerDomain": "Without `namesrvAddr`: the host of an HTTP service that knows them, asked "
        "at `http://HOST:8080/rocketmq/SUBGROUP`. Apache has a default that exists in one company only.",
        "rmqAddressServerSubGroup": "The last part of that address.",
        "fetchNamesrvAddrByAddressServer": "Needs `rmqAddressServerDomain`, which alone decides whether the "
        "service is asked.",
        "updateNameServerAddrPeriod": "How often the service is asked, in ms.",
        "registerNameServerPeriod": "How often the broker registers, in ms; moved into 10,000 to 60,000.",
        "registerBrokerTimeoutMills": "How long a registration may take, in ms.",
        "forceRegister": "True tells each name server everything each time; false asks first whether it "
        "knows.",
        "compressedRegister": "Whether registrations are compressed.",
        "connectTimeoutMillis": "How long connecting to a name server or client may take, in ms.",
    },
    "Kourou's own": {
        "rejectInconsistentSubscription": "Refuse a group's member that subscribes otherwise than others, "
        "instead of logging it: such members take messages from each other unseen.",
        "rejectDuplicateClientId": "Refuse a second member with the same client id, instead of logging it: "
        "both would take the same share of the queues.",
        "deleteUnreadUnderPressure": "Above `diskSpaceCleanForciblyRatio` delete the oldest files whether "
        "read or not, as Apache does; false deletes what every live group has read.",
        "unreadGroupReservedTime": "For how many hours after its last commit a group that is not connected "
        "still counts as live there.",
        "maxTransferBytesPerPull": "The most bytes of a large pull, as Kourou's clients and its Spark source "
        "negotiate them.",
        "compiledKernelEnable": "Use the compiled kernel where it was built "
        "([performance.md](performance.md#the-compiled-kernel)); without it Python does the same.",
    },
    "Topics and groups": {
        "autoCreateTopicEnable": "Whether a send makes the topic that is missing. Turn it off in production.",
        "defaultTopicQueueNums": "How many queues such a topic has at most.",
        "autoCreateSubscriptionGroup": "Whether a consumer makes the group that is missing.",
        "clusterTopicEnable": "Whether new topics may take after the topic of the cluster's name.",
        "brokerTopicEnable": "Whether new topics may take after the topic of the broker's name.",
        "validateSystemTopicWhenUpdateTopic": "Refuse changes to RocketMQ's own topics.",
        "enableCreateSysGroup": "Whether groups named `CID_RMQ_SYS_…` are made by themselves.",
        "enableMixedMessageType": "Allow topics with `message.type=MIXED`.",
        "clearRetryTopicWhenDeleteTopic": "With a topic delete the retry topics that POP made for it.",
        "traceTopicEnable": "Have the topic of message traces on this broker.",
        "msgTraceTopicName": "Its name.",
        "traceOn": "Tell clients that traces are wanted here.",
    },
    "Sending and transactions": {
        "maxMessageSize": "The largest body in bytes.",
        "startAcceptSendRequestTimeStamp": "Refuse messages until this time, in ms since 1970.",
        "rejectTransactionMessage": "Refuse transactional messages.",
        "transactionTimeOut": "After how many ms a half message is asked about for the first time.",
        "transactionCheckInterval": "How often half messages are looked at, in ms.",
        "transactionCheckMax": "After so many questions without an answer it is given up.",
        "recallMessageEnable": "Whether senders may take timer messages back. Apache's default is false.",
        "allowRecallWhenBrokerNotWriteable": "That, too, while the broker may not be written to.",
    },
    "Delays": {
        "messageDelayLevel": "The delays of levels 1, 2, 3 …; retries use them from the third on.",
        "flushDelayOffsetInterval": "How often the progress of the levels is on disk, in ms; nothing is "
        "delivered twice for it.",
        "delayOffsetUpdateVersionStep": "After so many steps of progress its version counts one up.",
        "enableScheduleMessageStats": "Count deliveries of the levels in the statistics.",
        "timerWheelEnable": "Whether messages may say their time (`delay_time_ms`).",
        "timerMaxDelaySec": "How far away that time may be, in seconds.",
        "timerPrecisionMs": "How exact timers are: 100, 200, 500 or 1000 ms; the next lower of these.",
        "timerRollWindowSlot": "A message further away than so many steps is stored again on the way.",
        "timerCongestNumEachSlot": "How many messages may be due in one step.",
        "timerStopEnqueue": "Stop taking timer messages into the wheel.",
        "timerStopDequeue": "Stop delivering them.",
        "timerFlushIntervalMs": "How often the wheel is on disk, in ms; nothing is lost for it.",
        "mappedFileSizeTimerLog": "The size of a file of the timers' log, in bytes.",
    },
    "Consuming": {
        "enablePropertyFilter": "Allow SQL92 subscriptions. Apache's default is false.",
        "filterSupportRetry": "Filter what comes again by properties, too.",
        "longPollingEnable": "Hold a pull that finds nothing for as long as the client says (15 s).",
        "shortPollingTimeMills": "Without that: hold it for so many ms.",
        "notifyConsumerIdsChangedEnable": "Tell the members of a group when others come or go.",
        "realTimeNotifyConsumerChange": "At once, instead of gathered.",
        "rejectPullConsumerEnable": "Refuse consumers that pull for themselves.",
        "litePullMessageEnable": "Allow the request that lite pull consumers use.",
        "slaveReadEnable": "Without effect as long as there are no slaves; a note says so.",
        "useServerSideResetOffset": "Keep a reset offset on the broker until the group has taken it.",
        "enableRegisterProducer": "With `rejectTransactionMessage`: register producers all the same.",
        "storeReplyMessageEnable": "Store replies to requests, too.",
        "flushConsumerOffsetInterval": "How often the offsets of groups are on disk, in ms. After a kill a "
        "group gets again at most what it committed since.",
        "consumerOffsetUpdateVersionStep": "After so many commits the version of the offsets counts one up.",
        "channelExpiredTimeout": "A client without a heartbeat for so many ms is forgotten.",
        "maxTransferCountOnMessageInMemory": "The most messages that one pull of other clients gets.",
        "maxTransferBytesOnMessageInMemory": "The same in bytes.",
        "maxTransferCountOnMessageInDisk": "The most messages that such a pull gets of what is old.",
        "maxTransferBytesOnMessageInDisk": "The same in bytes.",
        "accessMessageInMemoryMaxRatio": "What is old: all but the newest bytes of the log, as many as this "
        "percentage of the memory of the machine, or of the container.",
        "defaultQueryMaxNum": "How many messages a query by key finds if the client says no number.",
        "maxFilterMessageSize": "How many bytes of a queue one pull may look through for what a tag matches, "
        "at least.",
        "reviveQueueNum": "The queues of the topic that POP works with; there is no POP yet.",
        "autoDeleteUnusedStats": "With a topic or group its statistics go, too.",
    },
    "Store: folders and files": {
        "storePathRootDir": "The folder of the store; `store` in the home folder if not set.",
        "storePathCommitLog": "The folder of the CommitLog, if it is another; several, on several disks, are "
        "separated by commas.",
        "readOnlyCommitLogStorePaths": "Of these the folders that are read and written no more.",
        "mappedFileSizeCommitLog": "The size of a file of the CommitLog, in bytes. A store keeps the sizes "
        "that it began with.",
        "mappedFileSizeConsumeQueue": "The size of a file of a ConsumeQueue, in bytes, 20 for each message.",
        "maxHashSlotNum": "Slots of an index file.",
        "maxIndexNum": "Entries of an index file.",
        "messageIndexEnable": "Whether messages are found by key and id.",
        "brokerRole": "`ASYNC_MASTER`. `SYNC_MASTER` works the same; `SLAVE` is refused: there is no "
        "replication yet.",
        "haListenPort": "Where slaves would connect; one above `listenPort` if not set.",
    },
    "Store: flushing": {
        "flushDiskType": "`SYNC_FLUSH` answers a send when it is on disk, `ASYNC_FLUSH` when it is in the "
        "page cache: see [behavior.md](behavior.md).",
        "syncFlushTimeout": "How long a send waits for that, in ms; then FLUSH_DISK_TIMEOUT.",
        "flushIntervalCommitLog": "How often the log is flushed under ASYNC_FLUSH, in ms.",
        "flushIntervalConsumeQueue": "How often the queues are, in ms. They can be rebuilt.",
        "flushConsumeQueueThoroughInterval": "How often all of them are, and the checkpoint, in ms.",
        "checkCRCOnRecover": "Check the bodies of what is read again after a crash.",
    },
    "Store: what is deleted, and when": {
        "fileReservedTime": "For how many hours a file is kept after it was last written.",
        "deleteWhen": "The hours of the day, local time and separated by `;`, at which older files go.",
        "diskMaxUsedSpaceRatio": "Above so many percent of the disk they go at any time; moved into 10 to "
        "95.",
        "diskSpaceCleanForciblyRatio": "Above this, files go before their age.",
        "cleanFileForciblyEnable": "Whether that is done at all.",
        "diskSpaceWarningLevelRatio": "Above this, writes are refused until there is room; reads go on.",
        "cleanResourceInterval": "How often all this is looked at, in ms.",
        "deleteFileBatchMax": "How many files go in one round.",
    },
}
"""Keys of a broker."""

NAMESRV: Final[Mapping[str, Mapping[str, str]]] = {
    "Name server": {
        "listenPort": "The port, where every client looks; 0 picks a free one.",
        "rocketmqHome": "The folder of logs and data: `ROCKETMQ_HOME`, or `~/.local/share/kourou`, if not "
        "set.",
        "kvConfigPath": "The file of the KV configuration; `namesrv/kvConfig.json` in the home folder if not "
        "set.",
        "configStorePath": "Where `updateNamesrvConfig` writes to: the file given at the start, whatever is "
        "said here; else `namesrv/namesrv.properties` in the home folder.",
        "configBlackList": "Keys that no request may change, separated by `;`; paths and TLS keys never may.",
        "scanNotActiveBrokerInterval": "How often brokers are looked for that have gone silent, in ms.",
        "needWaitForService": "Answer no route until all brokers had time to register: after a start clients "
        "do not see half of one.",
        "waitSecondsForService": "How much time that is, in seconds.",
        "deleteTopicWithBrokerRegistration": "Forget a topic that its broker no longer reports.",
        "orderMessageEnable": "Give clients the order configuration of topics; those of today ignore it.",
        "returnOrderTopicConfigToBroker": "Give brokers the order configuration when they register.",
        "supportActingMaster": "Let a slave stand in for a master that is gone (Apache's 5.x slaves).",
        "notifyMinBrokerIdChanged": "Tell brokers of a group when the one with the lowest id changes.",
        "enableAllTopicList": "Answer requests for the list of all topics.",
        "enableTopicList": "Answer requests for the topics of a cluster or of a kind.",
    },
}
"""Keys of a name server."""

CLIENT: Final[Mapping[str, str]] = {
    "rocketmq.namesrv.addr": "Name servers, `host:port` separated by `;`.",
    "rocketmq.namesrv.domain": "Without these: the host of an HTTP address service.",
    "rocketmq.namesrv.domain.subgroup": "The last part of its address; `nsaddr` if not set.",
}
"""Keys of a client's file (`config_file=`, `mqadmin --config`). Everything else are keywords: client.md."""

VARIABLES: Final[Mapping[str, str]] = {
    "NAMESRV_ADDR": "Name servers of brokers, clients and `mqadmin` where nothing else says them.",
    "ROCKETMQ_HOME": "`rocketmqHome` where it is not set. `mqadmin` reads `conf/tools.yml` in it.",
    "ROCKETMQ_NAMESRV_DOMAIN": "`rocketmq.namesrv.domain` of clients.",
    "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP": "`rocketmq.namesrv.domain.subgroup` of clients.",
    "KOUROU_CONTEXT": "The saved context that commands use ([commands.md](commands.md)).",
    "XDG_CONFIG_HOME": "Saved contexts are in `kourou/contexts.json` below it; `~/.config` if not set.",
    "XDG_DATA_HOME": "Logs and data are in `kourou` below it; `~/.local/share` if not set.",
    "XDG_STATE_HOME": "`mqshutdown` finds servers by files in `kourou/run` below it; `~/.local/state` if not "
    "set.",
    "KOUROU_MQADMIN_FORMAT": "`4.9`: `mqadmin` prints as RocketMQ 4.9 does.",
}
"""Variables of the environment."""

AT_START: Final = frozenset(
    """
    listenPort rocketmqHome kvConfigPath configStorePath brokerConfigPath
    brokerName brokerClusterName brokerId brokerIP1 brokerIP2 regionId traceOn traceTopicEnable
    msgTraceTopicName clusterTopicEnable brokerTopicEnable reviveQueueNum connectTimeoutMillis
    defaultTopicQueueNums maxTransferBytesPerPull compiledKernelEnable brokerRole haListenPort
    storePathRootDir storePathCommitLog readOnlyCommitLogStorePaths mappedFileSizeCommitLog
    mappedFileSizeConsumeQueue maxHashSlotNum maxIndexNum messageIndexEnable maxFilterMessageSize
    checkCRCOnRecover messageDelayLevel timerWheelEnable timerPrecisionMs timerRollWindowSlot
    mappedFileSizeTimerLog
    """.split()
) | frozenset(key for section in SHARED.values() for key in section)
"""Keys that are read at the start only."""
