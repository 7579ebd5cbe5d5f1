"""Apache's commands for features that Kourou does not have yet."""

from __future__ import annotations

from typing import Final

from kourou.cli.admin.command import MissingCommand

_CONTROLLER: Final = "a controller of its own (broker sets choose their master through etcd)"
_STATIC: Final = "static topics (logical queues that move between brokers)"
_ROCKSDB: Final = "RocksDB as store of configuration and indexes"
_CONTAINER: Final = "the broker container (several brokers in one process)"
_COMPACTION: Final = "compaction of topics (cleanup.policy=COMPACTION)"
_LITE: Final = "lite topics"
_POP: Final = "POP records in RocksDB (popConsumerKVServiceEnable)"

MISSING_COMMANDS: Final = (
    MissingCommand("addBroker", "Start a broker inside a broker container.", _CONTAINER),
    MissingCommand("removeBroker", "Stop a broker inside a broker container.", _CONTAINER),
    MissingCommand("updateStaticTopic", "Create a topic with a fixed number of logical queues.", _STATIC),
    MissingCommand("remappingStaticTopic", "Move the logical queues of a static topic.", _STATIC),
    MissingCommand("getControllerConfig", "Show the configuration of the controllers.", _CONTROLLER),
    MissingCommand("updateControllerConfig", "Change the configuration of the controllers.", _CONTROLLER),
    MissingCommand("cleanBrokerMetadata", "Remove a broker's metadata from the controller.", _CONTROLLER),
    MissingCommand("dumpCompactionLog", "Print the messages in a file of a compacted topic.", _COMPACTION),
    MissingCommand("exportMetadataInRocksDB", "Print the topics and groups in a RocksDB folder.", _ROCKSDB),
    MissingCommand("rocksDBConfigToJson", "Convert a RocksDB configuration to JSON.", _ROCKSDB),
    MissingCommand("checkRocksdbCqWriteProgress", "Compare ConsumeQueues in RocksDB and in files.", _ROCKSDB),
    MissingCommand("exportPopRecord", "Move POP records from RocksDB to the log.", _POP),
    MissingCommand("getBrokerLiteInfo", "Show a broker's lite topics.", _LITE),
    MissingCommand("getParentTopicInfo", "List the lite topics of a topic.", _LITE),
    MissingCommand("getLiteTopicInfo", "Show the offsets and subscribers of a lite topic.", _LITE),
    MissingCommand("getLiteClientInfo", "List the lite topics of a client.", _LITE),
    MissingCommand("getLiteGroupInfo", "Show a group's progress on lite topics.", _LITE),
    MissingCommand("triggerLiteDispatch", "Trigger the dispatch of lite messages at a broker.", _LITE),
)
