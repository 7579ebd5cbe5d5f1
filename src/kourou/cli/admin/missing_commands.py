"""Commands of Apache's that belong to parts which Kourou does not have yet."""

from __future__ import annotations

from typing import Final

from kourou.cli.admin.command import MissingCommand

_CONTROLLER: Final = "the controller (automatic choice of a master)"
_ACL_1: Final = "access control lists of RocketMQ 4 (plain_acl.yml)"
_ACL_2: Final = "users and access control lists of RocketMQ 5 (ACL 2.0)"
_STATIC: Final = "static topics (logical queues that move between brokers)"
_ROCKSDB: Final = "RocksDB as store of configuration and indexes"
_CONTAINER: Final = "the broker container (several brokers in one process)"
_COMPACTION: Final = "compaction of topics (cleanup.policy=COMPACTION)"
_LITE: Final = "lite topics"
_POP: Final = "POP consumption (its records in the broker)"

MISSING_COMMANDS: Final = (
    MissingCommand("addBroker", "Start a broker inside a broker container.", _CONTAINER),
    MissingCommand("removeBroker", "Stop a broker inside a broker container.", _CONTAINER),
    MissingCommand("updateStaticTopic", "Make a topic with a fixed number of logical queues.", _STATIC),
    MissingCommand("remappingStaticTopic", "Move the logical queues of a static topic.", _STATIC),
    MissingCommand("getSyncStateSet", "Which replicas of a broker are in step.", _CONTROLLER),
    MissingCommand("getBrokerEpoch", "Since which offset each master of a broker wrote.", _CONTROLLER),
    MissingCommand("getControllerMetaData", "Who leads the controllers.", _CONTROLLER),
    MissingCommand("getControllerConfig", "The configuration of controllers.", _CONTROLLER),
    MissingCommand("updateControllerConfig", "Change the configuration of controllers.", _CONTROLLER),
    MissingCommand("electMaster", "Make a certain replica the master.", _CONTROLLER),
    MissingCommand("cleanBrokerMetadata", "Have the controller forget a broker.", _CONTROLLER),
    MissingCommand("dumpCompactionLog", "Print the messages of a file of a compacted topic.", _COMPACTION),
    MissingCommand("createUser", "Make a user.", _ACL_2),
    MissingCommand("updateUser", "Change password, type or status of a user.", _ACL_2),
    MissingCommand("deleteUser", "Delete a user.", _ACL_2),
    MissingCommand("getUser", "Show a user.", _ACL_2),
    MissingCommand("listUser", "Show all users.", _ACL_2),
    MissingCommand("copyUser", "Copy users from one broker to another.", _ACL_2),
    MissingCommand("createAcl", "Say what a user may do.", _ACL_2),
    MissingCommand("updateAcl", "Change what a user may do.", _ACL_2),
    MissingCommand("deleteAcl", "Take from a user what it may do.", _ACL_2),
    MissingCommand("getAcl", "Show what a user may do.", _ACL_2),
    MissingCommand("listAcl", "Show what all users may do.", _ACL_2),
    MissingCommand("copyAcl", "Copy what users may do from one broker to another.", _ACL_2),
    MissingCommand("updateAclConfig", "Write an account into the access control of brokers.", _ACL_1),
    MissingCommand(
        "deleteAclConfig",
        "Delete an account from the access control of brokers.",
        _ACL_1,
        aliases=("deleteAccessConfig",),
    ),
    MissingCommand("clusterAclConfigVersion", "Which access control files brokers have.", _ACL_1),
    MissingCommand("updateGlobalWhiteAddr", "Addresses from which everything is allowed.", _ACL_1),
    MissingCommand("getAclConfig", "All accounts of the access control of brokers.", _ACL_1),
    MissingCommand("exportMetadataInRocksDB", "Print topics and groups of a RocksDB folder.", _ROCKSDB),
    MissingCommand("rocksDBConfigToJson", "Turn a RocksDB configuration into JSON.", _ROCKSDB),
    MissingCommand("checkRocksdbCqWriteProgress", "Compare indexes in RocksDB and in files.", _ROCKSDB),
    MissingCommand("exportPopRecord", "Move records of POP consumption to their topic.", _POP),
    MissingCommand("getBrokerLiteInfo", "How many lite topics a broker has.", _LITE),
    MissingCommand("getParentTopicInfo", "The lite topics of a topic.", _LITE),
    MissingCommand("getLiteTopicInfo", "Offsets and subscribers of a lite topic.", _LITE),
    MissingCommand("getLiteClientInfo", "The lite topics of a client.", _LITE),
    MissingCommand("getLiteGroupInfo", "How far a group is on lite topics.", _LITE),
    MissingCommand("triggerLiteDispatch", "Have a broker look for lite messages again.", _LITE),
)
