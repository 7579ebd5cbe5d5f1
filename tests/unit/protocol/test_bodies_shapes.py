"""Every shape against the text that Apache writes: read, look, write, and get the same bytes."""

import re
from typing import Any

import pytest

from kourou.protocol import bodies as b

QUEUE = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
VERSION = '{"counter":1,"stateVersion":2,"timestamp":3}'
VERSION_4 = '{"counter":1,"timestamp":3}'
SUBSCRIPTION = (
    '{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA",'
    '"subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}'
)
TOPIC_4 = (
    '"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG","topicName":"T",'
    '"topicSysFlag":0,"writeQueueNums":16}'
)
GROUP = (
    '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
    '"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"CG",'
    '"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
    '"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
)
GROUP_4 = (
    '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
    '"groupName":"CG","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
    '"whichBrokerWhenConsumeSlowly":1}'
)
CONSUMER_DATA = (
    '{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG",'
    f'"messageModel":"CLUSTERING","subscriptionDataSet":[{SUBSCRIPTION}],"unitMode":false}}'
)
PROCESS_QUEUE = (
    '{"cachedMsgCount":1,"cachedMsgMaxOffset":2,"cachedMsgMinOffset":3,"cachedMsgSizeInMiB":4,"commitOffset":5,'
    '"droped":false,"lastConsumeTimestamp":6,"lastLockTimestamp":7,"lastPullTimestamp":8,"locked":false,'
    '"transactionMsgCount":9,"transactionMsgMaxOffset":10,"transactionMsgMinOffset":11,"tryUnlockTimes":12}'
)
CONSUME_STATUS = (
    '{"consumeFailedMsgs":1,"consumeFailedTPS":0.5,"consumeOKTPS":1.5,"consumeRT":2.0,"pullRT":3.0,'
    '"pullTPS":4.0}'
)
STATS_ITEM = '{"avgpt":0.0,"sum":0,"tps":0.0}'
MAPPING = '{"bname":"broker-a","currIdMap":{0:1},"dirty":false,"epoch":3,'
MAPPING_END = '"scope":"__global__","topic":"T","totalQueues":8}'
MAPPING_ITEM = (
    '{"bname":"broker-a","endOffset":-1,"gen":0,"logicOffset":0,"queueId":1,"startOffset":0,"timeOfEnd":-1,'
    '"timeOfStart":-1}'
)
MAPPING_DETAIL = f'{MAPPING}"hostedQueues":{{0:[{MAPPING_ITEM}]}},{MAPPING_END}'

FIVE: list[tuple[Any, str]] = [
    (
        b.TopicRouteData,
        '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a",'
        '"cluster":"C","enableActingMaster":false,"zoneName":"z"}],"filterServerTable":{},'
        '"orderTopicConf":"broker-a:4;broker-b:4","queueDatas":[{"brokerName":"broker-a","perm":6,'
        '"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}],'
        f'"topicQueueMappingByBroker":{{"broker-a":{MAPPING}{MAPPING_END}}}}}',
    ),
    (
        b.ClusterInfo,
        '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a",'
        '"cluster":"C","enableActingMaster":false}},"clusterAddrTable":{"C":["broker-a"]}}',
    ),
    (
        b.HeartbeatData,
        f'{{"clientID":"10.0.0.9@1#2","consumerDataSet":[{CONSUMER_DATA}],"heartbeatFingerprint":0,'
        '"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}',
    ),
    (
        b.RegisterBrokerBody,
        f'{{"filterServerList":[],"topicConfigSerializeWrapper":{{"dataVersion":{VERSION},'
        f'"mappingDataVersion":{VERSION},"topicConfigTable":{{"T":{{"attributes":{{}},{TOPIC_4}}},'
        f'"topicQueueMappingDetailMap":{{"T":{MAPPING_DETAIL}}},"topicQueueMappingInfoMap":{{}}}}}}',
    ),
    (b.TopicConfigAndQueueMapping, f'{{"attributes":{{}},"mappingDetail":{MAPPING_DETAIL},{TOPIC_4}'),
    (b.TopicConfigList, f'{{"topicConfigList":[{{"attributes":{{"a":"b"}},{TOPIC_4}]}}'),
    (
        b.SubscriptionGroupWrapper,
        f'{{"dataVersion":{VERSION},"forbiddenTable":{{"CG":{{"T":3}}}},"subscriptionGroupTable":{{"CG":{GROUP}}}}}',
    ),
    (b.SubscriptionGroupList, f'{{"groupConfigList":[{GROUP}]}}'),
    (
        b.GroupRetryPolicy,
        '{"customizedRetryPolicy":{"next":[1000,5000]},'
        '"exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2},"type":"EXPONENTIAL"}',
    ),
    (
        b.SubscriptionGroupConfig,
        GROUP.replace(
            '"whichBroker',
            '"subscriptionDataSet":[{"expression":"*","expressionType":"TAG","topic":"T","version":0}],"whichBroker',
        ),
    ),
    (b.GroupForbidden, '{"group":"CG","readable":true,"topic":"T"}'),
    (b.ConsumerOffsetSerializeWrapper, '{"offsetTable":{"T@CG":{0:5,1:7}}}'),
    (b.ConsumerOffsetSerializeWrapper, f'{{"dataVersion":{VERSION},"offsetTable":{{}}}}'),
    (
        b.ConsumerOffsetSerializeWrapper,
        '{"__kourouFloors":{"T@CG":{"deadLettered":2,"dropped":3,"floors":{0:5}}},'
        '"__kourouPoppedFrom":{"T@CG":{0:4}},"offsetTable":{"T@CG":{0:5}}}',
    ),
    (b.DelayOffsetSerializeWrapper, f'{{"dataVersion":{VERSION},"offsetTable":{{1:100,2:50}}}}'),
    (
        b.OffsetMovedEvent,
        '{"consumerGroup":"CG","messageQueue":{"brokerName":"b","queueId":0,"topic":"T"},'
        '"offsetNew":9,"offsetRequest":3}',
    ),
    (
        b.TimerMetricsSerializeWrapper,
        f'{{"dataVersion":{VERSION},"timingCount":{{"T":{{"count":3,"timeStamp":1794763710998}}}}}}',
    ),
    (b.KVTable, '{"table":{"k":"v"}}'),
    (b.KVConfigSerializeWrapper, '{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"},"empty":{}}}'),
    (b.TopicList, '{"brokerAddr":"10.0.0.1:10911","topicList":["T"]}'),
    (b.GroupList, '{"groupList":["CG"]}'),
    (
        b.GetBrokerMemberGroupResponseBody,
        '{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"C"}}',
    ),
    (
        b.TopicStatsTable,
        f'{{"offsetTable":{{{QUEUE}:{{"lastUpdateTimestamp":0,"maxOffset":3,"minOffset":0}}}},"topicPutTps":0.0}}',
    ),
    (
        b.ConsumeStatsList,
        f'{{"brokerAddr":"x:1","consumeStatsList":[{{"CG":[{{"consumeTps":1.5,"offsetTable":{{{QUEUE}:'
        '{"brokerOffset":10,"consumerOffset":5,"lastTimestamp":1,"pullOffset":6}}}]}],"totalDiff":5,'
        '"totalInflightDiff":-1}',
    ),
    (
        b.ConsumerConnection,
        '{"connectionSet":[{"clientAddr":"10.0.0.9:5000","clientId":"c1","language":"JAVA","version":409}],'
        '"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        f'"messageModel":"CLUSTERING","subscriptionTable":{{"T":{SUBSCRIPTION}}}}}',
    ),
    (
        b.ProducerConnection,
        '{"connectionSet":[{"clientAddr":"10.0.0.9:5000","clientId":"c1","language":"GO","version":317}]}',
    ),
    (
        b.ProducerTableInfo,
        '{"data":{"PG":[{"clientId":"c1","language":"JAVA","lastUpdateTimestamp":1,"remoteIP":"1.2.3.4:5",'
        '"version":409}]}}',
    ),
    (
        b.QueryConsumeTimeSpanBody,
        '{"consumeTimeSpanSet":[{"consumeTimeStamp":0,"consumeTimeStampStr":"1970-01-01#00:00:00:000",'
        f'"delayTime":0,"maxTimeStamp":0,"maxTimeStampStr":"x","messageQueue":{QUEUE},"minTimeStamp":0,'
        '"minTimeStampStr":"y"}]}',
    ),
    (
        b.QueryConsumeQueueResponseBody,
        '{"filterData":"f","maxQueueIndex":9,"minQueueIndex":0,"queueData":[{"bitMap":"b","eval":false,'
        '"extendDataJson":"{}","msg":"m","physicOffset":1,"physicSize":2,"tagsCode":3}],'
        f'"subscriptionData":{SUBSCRIPTION}}}',
    ),
    (b.BrokerStatsData, f'{{"statsDay":{STATS_ITEM},"statsHour":{STATS_ITEM},"statsMinute":{STATS_ITEM}}}'),
    (b.QueryCorrectionOffsetBody, '{"correctionOffsets":{0:5}}'),
    (b.QuerySubscriptionResponseBody, f'{{"group":"CG","subscriptionData":{SUBSCRIPTION},"topic":"T"}}'),
    (b.GetConsumerListByGroupResponseBody, '{"consumerIdList":["c1","c2"]}'),
    (
        b.LockBatchRequestBody,
        f'{{"clientId":"c1","consumerGroup":"CG","mqSet":[{QUEUE}],"onlyThisBroker":false}}',
    ),
    (
        b.UnlockBatchRequestBody,
        f'{{"clientId":"c1","consumerGroup":"CG","mqSet":[{QUEUE}],"onlyThisBroker":true}}',
    ),
    (b.LockBatchResponseBody, f'{{"lockOKMQSet":[{QUEUE}]}}'),
    (
        b.CheckClientRequestBody,
        f'{{"clientId":"c1","group":"CG","namespace":"n","subscriptionData":{SUBSCRIPTION}}}',
    ),
    (b.ResetOffsetBody, f'{{"offsetTable":{{{QUEUE}:12}}}}'),
    (
        b.GetConsumerStatusBody,
        f'{{"consumerTable":{{"c1":{{{QUEUE}:13}}}},"messageQueueTable":{{{QUEUE}:13}}}}',
    ),
    (
        b.ConsumerRunningInfo,
        f'{{"jstack":"j","mqPopTable":{{{QUEUE}:{{"droped":false,"lastPopTimestamp":1,"waitAckCount":2}}}},'
        f'"mqTable":{{{QUEUE}:{PROCESS_QUEUE}}},"properties":{{"PROP_CONSUMEORDERLY":"false"}},'
        f'"statusTable":{{"T":{CONSUME_STATUS}}},"subscriptionSet":[{SUBSCRIPTION}],"userConsumerInfo":{{}}}}',
    ),
    (
        b.ConsumeMessageDirectlyResult,
        '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"remark":"r","spentTimeMills":0}',
    ),
    (
        b.QueryAssignmentRequestBody,
        '{"clientId":"c1","consumerGroup":"CG","messageModel":"CLUSTERING","strategyName":"AVG","topic":"T"}',
    ),
    (
        b.QueryAssignmentResponseBody,
        f'{{"messageQueueAssignments":[{{"attachments":{{"a":"b"}},"messageQueue":{QUEUE},"mode":"PULL"}}]}}',
    ),
    (b.QueryAssignmentResponseBody, "{}"),
    (
        b.MessageRequestModeSerializeWrapper,
        '{"messageRequestModeMap":{"T":{"CG":{"consumerGroup":"CG","mode":"POP","popShareQueueNum":-1,"topic":"T"}}}}',
    ),
    (
        b.BatchAckMessageRequestBody,
        '{"acks":[{"b":"AQI=","c":"CG","it":60000,"pt":1,"q":0,"r":"0","rq":0,"so":5,"t":"T"}],'
        '"brokerName":"broker-a"}',
    ),
    (
        b.PlainAclConfig,
        '{"globalWhiteAddrs":["10.0.0.*"],"plainAccessConfigs":[{"accessKey":"account","admin":false,'
        '"defaultGroupPerm":"SUB","defaultTopicPerm":"DENY","groupPerms":["CG=SUB"],"secretKey":"12345678",'
        '"topicPerms":["T=PUB|SUB"],"whiteRemoteAddress":""}]}',
    ),
    (
        b.AccessTables,
        '{"acls":[{"policies":[],"subject":"User:alice"}],"dataVersion":{"counter":1,"stateVersion":0,'
        '"timestamp":2},"users":[{"username":"alice"}]}',
    ),
    (b.UserInfo, '{"password":"p","userStatus":"enable","userType":"Super","username":"alice"}'),
    (
        b.AclInfo,
        '{"policies":[{"entries":[{"actions":["Pub"],"decision":"Allow","resource":"Topic:T","sourceIps":[]}],'
        '"policyType":"Custom"}],"subject":"User:alice"}',
    ),
    (
        b.HARuntimeInfo,
        '{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterAddr":"x:1",'
        '"masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[{"addr":"y:1",'
        '"diff":1,"inSync":true,"slaveAckOffset":2,"transferFromWhere":3,"transferredByteInSecond":4}],'
        '"inSyncSlaveNums":1,"master":true,"masterCommitLogMaxOffset":9}',
    ),
    (
        b.HARuntimeInfo,
        '{"haClientRuntimeInfo":{"kourouProblem":"connecting","lastReadTimestamp":0,"lastWriteTimestamp":0,'
        '"masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[{"addr":"y:1",'
        '"diff":1,"inSync":true,"kourouBrokerId":1,"kourouLagMs":5,"slaveAckOffset":2,"transferFromWhere":3,'
        '"transferredByteInSecond":4}],"inSyncSlaveNums":1,"master":true,"masterCommitLogMaxOffset":9}',
    ),
    (
        b.EpochEntryCache,
        '{"brokerId":1,"brokerName":"broker-a","clusterName":"C","epochList":[{"endOffset":9,"epoch":1,'
        '"startOffset":0}],"maxOffset":9}',
    ),
    (
        b.BrokerReplicasInfo,
        '{"replicasInfoTable":{"broker-a":{"inSyncReplicas":[{"alive":true,"brokerAddress":"x:1","brokerId":1,'
        '"brokerName":"broker-a"}],"masterAddress":"x:1","masterBrokerId":1,"masterEpoch":3,'
        '"notInSyncReplicas":[],"syncStateSetEpoch":5}}}',
    ),
    (b.SyncStateSet, '{"syncStateSet":[1,2],"syncStateSetEpoch":5}'),
]

FOUR: list[tuple[Any, str]] = [
    (
        b.TopicRouteData,
        '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"C"}],'
        '"filterServerTable":{"10.0.0.1:10911":["f:1"]},"queueDatas":[]}',
    ),
    (
        b.HeartbeatData,
        f'{{"clientID":"c","consumerDataSet":[{CONSUMER_DATA}],"producerDataSet":[{{"groupName":"PG"}}]}}',
    ),
    (
        b.TopicConfigSerializeWrapper,
        f'{{"dataVersion":{VERSION_4},"topicConfigTable":{{"T":{{{TOPIC_4}}}}}',
    ),
    (
        b.SubscriptionGroupWrapper,
        f'{{"dataVersion":{VERSION_4},"subscriptionGroupTable":{{"CG":{GROUP_4}}}}}',
    ),
    (
        b.ConsumeStats,
        f'{{"consumeTps":1.5,"offsetTable":{{{QUEUE}:{{"brokerOffset":10,"consumerOffset":5,"lastTimestamp":1}}}}}}',
    ),
    (b.ConsumeStatsList, '{"consumeStatsList":[],"totalDiff":0}'),
    (
        b.TopicStatsTable,
        f'{{"offsetTable":{{{QUEUE}:{{"lastUpdateTimestamp":0,"maxOffset":3,"minOffset":0}}}}}}',
    ),
    (b.LockBatchRequestBody, f'{{"clientId":"c1","consumerGroup":"CG","mqSet":[{QUEUE}]}}'),
    (
        b.ConsumerRunningInfo,
        f'{{"mqTable":{{{QUEUE}:{PROCESS_QUEUE}}},"properties":{{}},"statusTable":{{"T":{CONSUME_STATUS}}},'
        '"subscriptionSet":[]}',
    ),
]


@pytest.mark.parametrize(("shape", "text"), FIVE, ids=lambda value: getattr(value, "__name__", ""))
def test_5x_bodies_come_back_byte_for_byte(shape: Any, text: str) -> None:
    assert b.encode_body(b.decode_body(text.encode(), shape), bare_int_keys=True).decode() == text


@pytest.mark.parametrize(("shape", "text"), FOUR, ids=lambda value: getattr(value, "__name__", ""))
def test_4x_bodies_come_back_byte_for_byte(shape: Any, text: str) -> None:
    assert b.encode_body(b.decode_body(text.encode(), shape), v4=True, bare_int_keys=True).decode() == text


def test_a_retry_policy_without_steps_has_those_of_the_delay_levels() -> None:
    steps = b.decode_body(b"{}", b.CustomizedRetryPolicy).next

    assert steps == list(b.DEFAULT_RETRY_DELAYS_MS)
    assert len(steps) == 18 and steps[0] == 1_000 and steps[-1] == 7_200_000


def test_no_field_is_missing_from_the_texts() -> None:
    """So no wire name goes untested."""
    reported = set(re.findall(r'"(\w+)":', " ".join(text for _, text in FIVE)))
    shapes = [value for name in b.__all__ if isinstance(value := getattr(b, name), type)]
    fields = {
        name
        for shape in shapes
        if issubclass(shape, b.Body) and not shape.__name__.endswith("ForC")
        for name in shape.__struct_encode_fields__
    }

    assert fields - reported == set()
