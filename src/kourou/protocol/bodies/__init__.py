"""Shapes of request and response bodies, named as in RocketMQ, and the way to read and write them.

    decode_body(raw, TopicRouteData)    bytes from anywhere; raises only ProtocolError
    encode_body(body)                   as fastjson writes it

One file per area; a new shape is added to its file and to the list here.
"""

from kourou.protocol.bodies.acl import (
    AccessTables,
    AclInfo,
    PlainAccessConfig,
    PlainAclConfig,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from kourou.protocol.bodies.assignment import (
    MessageQueueAssignment,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from kourou.protocol.bodies.batch_ack import (
    BatchAck,
    BatchAckMessageRequestBody,
    encode_bit_set,
)
from kourou.protocol.bodies.codec import (
    decode_body,
    encode_body,
)
from kourou.protocol.bodies.connections import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from kourou.protocol.bodies.consumer_calls import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerStatusBody,
    MessageQueueForC,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from kourou.protocol.bodies.controller import (
    BrokerReplicasInfo,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from kourou.protocol.bodies.group_lags import (
    GroupLagRow,
    GroupLags,
)
from kourou.protocol.bodies.groups import (
    GetConsumerListByGroupResponseBody,
    GroupList,
)
from kourou.protocol.bodies.ha import (
    EpochEntry,
    EpochEntryCache,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from kourou.protocol.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from kourou.protocol.bodies.kv import (
    KVConfigSerializeWrapper,
    KVTable,
)
from kourou.protocol.bodies.locks import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from kourou.protocol.bodies.message_queue import (
    MessageQueue,
)
from kourou.protocol.bodies.offsets import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    GroupFloors,
    OffsetMovedEvent,
    OffsetSerializeWrapper,
    QueryCorrectionOffsetBody,
)
from kourou.protocol.bodies.register import (
    MAX_INFLATED_BYTES,
    RegisterBrokerBody,
    decode_register_broker,
)
from kourou.protocol.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    GetBrokerMemberGroupResponseBody,
    QueueData,
    TopicRouteData,
)
from kourou.protocol.bodies.shape import (
    Body,
)
from kourou.protocol.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from kourou.protocol.bodies.subscription import (
    DEFAULT_RETRY_DELAYS_MS,
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupForbidden,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    QuerySubscriptionResponseBody,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from kourou.protocol.bodies.timers import (
    TimerMetric,
    TimerMetricsSerializeWrapper,
)
from kourou.protocol.bodies.topics import (
    DataVersion,
    LogicQueueMappingItem,
    TopicConfig,
    TopicConfigAndQueueMapping,
    TopicConfigList,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicList,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
)

__all__ = [
    "AccessTables",
    "AclInfo",
    "BatchAck",
    "BatchAckMessageRequestBody",
    "Body",
    "BrokerData",
    "BrokerMemberGroup",
    "BrokerReplicasInfo",
    "BrokerStatsData",
    "BrokerStatsItem",
    "CMResult",
    "CheckClientRequestBody",
    "ClusterInfo",
    "Connection",
    "ConsumeFromWhere",
    "ConsumeMessageDirectlyResult",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumeStatus",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerOffsetSerializeWrapper",
    "ConsumerRunningInfo",
    "CustomizedRetryPolicy",
    "DEFAULT_RETRY_DELAYS_MS",
    "DataVersion",
    "DelayOffsetSerializeWrapper",
    "EpochEntry",
    "EpochEntryCache",
    "ExponentialRetryPolicy",
    "GetBrokerMemberGroupResponseBody",
    "GetConsumerListByGroupResponseBody",
    "GetConsumerStatusBody",
    "GroupFloors",
    "GroupForbidden",
    "GroupLagRow",
    "GroupLags",
    "GroupList",
    "GroupRetryPolicy",
    "GroupRetryPolicyType",
    "HAClientRuntimeInfo",
    "HAConnectionRuntimeInfo",
    "HARuntimeInfo",
    "HeartbeatData",
    "KVConfigSerializeWrapper",
    "KVTable",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "LogicQueueMappingItem",
    "MAX_INFLATED_BYTES",
    "MessageModel",
    "MessageQueue",
    "MessageQueueAssignment",
    "MessageQueueForC",
    "MessageRequestMode",
    "MessageRequestModeSerializeWrapper",
    "OffsetMovedEvent",
    "OffsetSerializeWrapper",
    "OffsetWrapper",
    "PlainAccessConfig",
    "PlainAclConfig",
    "PolicyEntryInfo",
    "PolicyInfo",
    "PopProcessQueueInfo",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "QueryAssignmentRequestBody",
    "QueryAssignmentResponseBody",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueryCorrectionOffsetBody",
    "QuerySubscriptionResponseBody",
    "QueueData",
    "QueueTimeSpan",
    "RegisterBrokerBody",
    "ReplicaIdentity",
    "ReplicasInfo",
    "ResetOffsetBody",
    "ResetOffsetBodyForC",
    "SetMessageRequestModeRequestBody",
    "SimpleSubscriptionData",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupList",
    "SubscriptionGroupWrapper",
    "SyncStateSet",
    "TimerMetric",
    "TimerMetricsSerializeWrapper",
    "TopicConfig",
    "TopicConfigAndQueueMapping",
    "TopicConfigList",
    "TopicConfigSerializeWrapper",
    "TopicFilterType",
    "TopicList",
    "TopicOffset",
    "TopicQueueMappingDetail",
    "TopicQueueMappingInfo",
    "TopicRouteData",
    "TopicStatsTable",
    "UnlockBatchRequestBody",
    "UserInfo",
    "decode_body",
    "decode_register_broker",
    "encode_bit_set",
    "encode_body",
]
