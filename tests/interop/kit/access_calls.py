"""The calls that are made with every identity: requests of clients, tools and brokers, by code.

What an answer is, apart from a refusal, is the matter of other tests: topics and groups here have names that
need not exist. No call changes accounts of access_accounts.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kourou.protocol.codes import RequestCode as Code


@dataclass(frozen=True, slots=True)
class AccessCall:
    """One request; its name is unique."""

    name: str
    code: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


_QUEUE: Final = {"queueId": "0"}
_STAMP: Final = "1700000000000"
_BROKER: Final = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}


def calls() -> list[AccessCall]:
    """All calls; those that may end something come last."""
    return [*_sends(), *_reads(), *_groups(), *_lookups(), *_listings(), *_brokers(), *_pops(), *_changes()]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _sends() -> Iterator[AccessCall]:
    topics = ("Orders", "Sends", "Reads", "Denied", "Other", "%RETRY%Workers", "%RETRY%Strangers")
    for topic in (*topics, "%DLQ%Workers", "RMQ_SYS_TRACE_TOPIC", "TBW102"):
        yield AccessCall(f"send {topic}", Code.SEND_MESSAGE, _send_fields(topic, "Workers"), b"x")
        yield AccessCall(f"send v2 {topic}", Code.SEND_MESSAGE_V2, _short(topic, "Workers"), b"x")
    for topic in ("Orders", "Reads", "%RETRY%Strangers"):
        yield AccessCall(
            f"send batch {topic}", Code.SEND_BATCH_MESSAGE, {**_short(topic, "Workers"), "m": "true"}, b"x"
        )
    # The group of a retry topic, and the group that the header names.
    yield AccessCall(
        "send v2 retry of another group",
        Code.SEND_MESSAGE_V2,
        _short("%RETRY%Strangers", "Strangers"),
        b"x",
    )
    for topic in ("Orders", "Reads"):
        reply = {
            **_send_fields(topic, "Workers"),
            "bornHost": "127.0.0.1:1",
            "storeHost": "127.0.0.1:1",
            "storeTimestamp": _STAMP,
        }
        yield AccessCall(f"reply {topic}", Code.SEND_REPLY_MESSAGE, reply, b"x")
        yield AccessCall(f"reply v2 {topic}", Code.SEND_REPLY_MESSAGE_V2, _short(topic, "Workers"), b"x")
        recall = {"producerGroup": "Workers", "topic": topic, "recallHandle": "none"}
        yield AccessCall(f"recall {topic}", Code.RECALL_MESSAGE, recall)
        yield AccessCall(f"end transaction {topic}", Code.END_TRANSACTION, {**_END, "topic": topic})
    yield AccessCall("end transaction", Code.END_TRANSACTION, _END)
    for group in ("Workers", "Closed", "Strangers"):
        back = {"offset": "0", "group": group, "delayLevel": "1", "originTopic": "Orders"}
        yield AccessCall(f"send back {group}", Code.CONSUMER_SEND_MSG_BACK, back)


_END: Final = {
    "producerGroup": "Workers",
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "commitOrRollback": "12",
    "fromTransactionCheck": "false",
    "msgId": "none",
    "transactionId": "none",
}


def _send_fields(topic: str, group: str) -> dict[str, str]:
    return {
        "producerGroup": group,
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": _STAMP,
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
        "unitMode": "false",
    }


def _short(topic: str, group: str) -> dict[str, str]:
    values = list(_send_fields(topic, group).values())
    return dict(zip("abcdefghijk", values, strict=True))


def _reads() -> Iterator[AccessCall]:
    pairs = [
        ("Orders", "Workers"),
        ("Sends", "Workers"),
        ("Orders", "Strangers"),
        ("%RETRY%Workers", "Workers"),
    ]
    pairs += [("%RETRY%Strangers", "Workers"), ("Other", "Workers")]
    for topic, group in pairs:
        both = {"consumerGroup": group, "topic": topic, **_QUEUE}
        pull = {
            **both,
            "queueOffset": "0",
            "maxMsgNums": "1",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        yield AccessCall(f"pull {topic} {group}", Code.PULL_MESSAGE, pull)
        yield AccessCall(f"lite pull {topic} {group}", Code.LITE_PULL_MESSAGE, pull)
        yield AccessCall(f"query offset {topic} {group}", Code.QUERY_CONSUMER_OFFSET, both)
        update = {**both, "commitOffset": "0"}
        yield AccessCall(f"update offset {topic} {group}", Code.UPDATE_CONSUMER_OFFSET, update)
        lock = {"consumerGroup": group, "clientId": "c1", "mqSet": [_queue(topic)]}
        yield AccessCall(f"lock {topic} {group}", Code.LOCK_BATCH_MQ, {}, _json(lock))
        yield AccessCall(f"unlock {topic} {group}", Code.UNLOCK_BATCH_MQ, {}, _json(lock))


def _queue(topic: str) -> dict[str, Any]:
    return {"topic": topic, "brokerName": "broker-a", "queueId": 0}


def _groups() -> Iterator[AccessCall]:
    producers = {"clientID": "p1", "producerDataSet": [{"groupName": "Workers"}], "consumerDataSet": []}
    yield AccessCall("heartbeat of a producer", Code.HEART_BEAT, {}, _json(producers))
    for topic, group in (("Orders", "Workers"), ("Sends", "Workers"), ("Orders", "Strangers")):
        beat = {"clientID": "c1", "producerDataSet": [], "consumerDataSet": [_consumer(group, topic)]}
        yield AccessCall(f"heartbeat {topic} {group}", Code.HEART_BEAT, {}, _json(beat))
        own = {**beat, "consumerDataSet": [_consumer(group, topic, f"%RETRY%{group}")]}
        yield AccessCall(f"heartbeat {topic} {group} and retries", Code.HEART_BEAT, {}, _json(own))
        check = {"clientId": "c1", "group": group, "namespace": "", "subscriptionData": _subscription(topic)}
        yield AccessCall(f"check config {topic} {group}", Code.CHECK_CLIENT_CONFIG, {}, _json(check))
    for group in ("Workers", "Strangers"):
        leave = {"clientID": "c1", "consumerGroup": group}
        yield AccessCall(f"unregister consumer {group}", Code.UNREGISTER_CLIENT, leave)
        yield AccessCall(f"list {group}", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    leave = {"clientID": "p1", "producerGroup": "Strangers"}
    yield AccessCall("unregister producer", Code.UNREGISTER_CLIENT, leave)


def _consumer(group: str, *topics: str) -> dict[str, Any]:
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [_subscription(topic) for topic in topics],
        "unitMode": False,
    }


def _subscription(topic: str) -> dict[str, Any]:
    return {
        "topic": topic,
        "subString": "*",
        "expressionType": "TAG",
        "subVersion": 1,
        "classFilterMode": False,
        "tagsSet": [],
        "codeSet": [],
    }


def _lookups() -> Iterator[AccessCall]:
    """What reads about one topic or group."""
    for topic in ("Orders", "Sends", "Other"):
        one = {"topic": topic, **_QUEUE}
        key = {**one, "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
        yield AccessCall(f"query message {topic}", Code.QUERY_MESSAGE, key)
        yield AccessCall(f"search offset {topic}", Code.SEARCH_OFFSET_BY_TIMESTAMP, {**one, "timestamp": "0"})
        yield AccessCall(f"max offset {topic}", Code.GET_MAX_OFFSET, one)
        yield AccessCall(f"min offset {topic}", Code.GET_MIN_OFFSET, one)
        yield AccessCall(f"earliest {topic}", Code.GET_EARLIEST_MSG_STORETIME, one)
        yield AccessCall(f"view {topic}", Code.VIEW_MESSAGE_BY_ID, {"topic": topic, "offset": "0"})
        yield AccessCall(f"topic stats {topic}", Code.GET_TOPIC_STATS_INFO, {"topic": topic})
        yield AccessCall(f"groups of {topic}", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        yield AccessCall(f"topic config {topic}", Code.GET_TOPIC_CONFIG, {"topic": topic})
        index = {**one, "index": "0", "count": "1", "consumerGroup": "Workers"}
        yield AccessCall(f"consume queue {topic}", Code.QUERY_CONSUME_QUEUE, index)
        check = {"topic": topic, "msgId": "none"}
        yield AccessCall(f"resume check {topic}", Code.RESUME_CHECK_HALF_MESSAGE, check)
        both = {"topic": topic, "group": "Workers"}
        yield AccessCall(f"time span {topic}", Code.QUERY_CONSUME_TIME_SPAN, both)
        yield AccessCall(f"subscription {topic}", Code.QUERY_SUBSCRIPTION_BY_CONSUMER, both)
        status = {**both, "clientAddr": ""}
        yield AccessCall(f"consumer status {topic}", Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
        compare = {"topic": topic, "compareGroup": "Workers", "filterGroups": ""}
        yield AccessCall(f"correction offset {topic}", Code.QUERY_CORRECTION_OFFSET, compare)
    yield AccessCall("view", Code.VIEW_MESSAGE_BY_ID, {"offset": "0"})
    for group in ("Workers", "Strangers"):
        yield AccessCall(f"connections {group}", Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
        yield AccessCall(f"group config {group}", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
        yield AccessCall(f"consume stats {group}", Code.GET_CONSUME_STATS, {"consumerGroup": group})
        yield AccessCall(f"topics of {group}", Code.QUERY_TOPICS_BY_CONSUMER, {"group": group})
        running = {"consumerGroup": group, "clientId": "none", "jstackEnable": "false"}
        yield AccessCall(f"running info {group}", Code.GET_CONSUMER_RUNNING_INFO, running)
        directly = {"consumerGroup": group, "clientId": "none", "msgId": "none", "brokerName": "broker-a"}
        yield AccessCall(f"consume directly {group}", Code.CONSUME_MESSAGE_DIRECTLY, directly)
    yield AccessCall("producers", Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "Workers"})


def _listings() -> Iterator[AccessCall]:
    """What reads about all topics, groups and accounts."""
    yield AccessCall("all topics", Code.GET_ALL_TOPIC_CONFIG)
    yield AccessCall("all groups", Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    yield AccessCall("all offsets", Code.GET_ALL_CONSUMER_OFFSET)
    yield AccessCall("all delay offsets", Code.GET_ALL_DELAY_OFFSET)
    yield AccessCall("system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    yield AccessCall("all producers", Code.GET_ALL_PRODUCER_INFO)
    yield AccessCall("all request modes", Code.GET_ALL_MESSAGE_REQUEST_MODE)
    yield AccessCall("broker consume stats", Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    stats = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "Orders"}
    yield AccessCall("broker stats", Code.VIEW_BROKER_STATS_DATA, stats)
    yield AccessCall("route", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "Orders"})
    yield AccessCall("list users", Code.AUTH_LIST_USER, {"filter": "worker"})
    yield AccessCall("get user", Code.AUTH_GET_USER, {"username": "workeruser"})
    yield AccessCall("list acls", Code.AUTH_LIST_ACL, {"subjectFilter": "worker"})
    yield AccessCall("get acl", Code.AUTH_GET_ACL, {"subject": "User:workeruser"})
    yield AccessCall("plain acl versions", Code.GET_BROKER_CLUSTER_ACL_INFO)
    yield AccessCall("plain acl accounts", Code.GET_BROKER_CLUSTER_ACL_CONFIG)


def _brokers() -> Iterator[AccessCall]:
    """What concerns the broker itself."""
    yield AccessCall("broker config", Code.GET_BROKER_CONFIG)
    yield AccessCall("runtime info", Code.GET_BROKER_RUNTIME_INFO)
    yield AccessCall("timer check point", Code.GET_TIMER_CHECK_POINT)
    yield AccessCall("timer metrics", Code.GET_TIMER_METRICS)
    yield AccessCall("ha status", Code.GET_BROKER_HA_STATUS)
    yield AccessCall("epochs", Code.GET_BROKER_EPOCH_CACHE, _BROKER)
    yield AccessCall("member group", Code.GET_BROKER_MEMBER_GROUP, _BROKER)
    yield AccessCall("cold data", Code.GET_COLD_DATA_FLOW_CTR_INFO)
    yield AccessCall("unknown code", 7777)


def _pops() -> Iterator[AccessCall]:
    for topic, group in (("Orders", "Workers"), ("Sends", "Workers"), ("Orders", "Strangers")):
        both = {"consumerGroup": group, "topic": topic, **_QUEUE}
        pop = {**both, "maxMsgNums": "1", "invisibleTime": "60000", "pollTime": "0", "bornTime": _STAMP}
        yield AccessCall(f"pop {topic} {group}", Code.POP_MESSAGE, {**pop, "initMode": "0"})
        yield AccessCall(f"peek {topic} {group}", Code.PEEK_MESSAGE, {**both, "maxMsgNums": "1"})
        handle = {**both, "extraInfo": f"0 {_STAMP} 60000 0 0 broker-a 0 0", "offset": "0"}
        yield AccessCall(f"ack {topic} {group}", Code.ACK_MESSAGE, handle)
        later = {**handle, "invisibleTime": "1000"}
        yield AccessCall(f"change invisible time {topic} {group}", Code.CHANGE_MESSAGE_INVISIBLETIME, later)
        wait = {**both, "pollTime": "0", "bornTime": _STAMP}
        yield AccessCall(f"notification {topic} {group}", Code.NOTIFICATION, wait)
        yield AccessCall(f"polling info {topic} {group}", Code.POLLING_INFO, both)
        acks = {"brokerName": "broker-a", "acks": [{"c": group, "t": topic, "r": "0", "so": 0, "q": 0}]}
        yield AccessCall(f"batch ack {topic} {group}", Code.BATCH_ACK_MESSAGE, {}, _json(acks))
        ask = {"topic": topic, "consumerGroup": group, "clientId": "c1", "strategyName": "AVG"}
        ask["messageModel"] = "CLUSTERING"
        yield AccessCall(f"assignment {topic} {group}", Code.QUERY_ASSIGNMENT, {}, _json(ask))
        mode = {"topic": topic, "consumerGroup": group, "mode": "PULL", "popShareQueueNum": 0}
        yield AccessCall(f"request mode {topic} {group}", Code.SET_MESSAGE_REQUEST_MODE, {}, _json(mode))


def _changes() -> Iterator[AccessCall]:
    for topic in ("Scratch", "Orders"):
        create = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        yield AccessCall(f"create topic {topic}", Code.UPDATE_AND_CREATE_TOPIC, create)
    topics = {
        "topicConfigList": [{"topicName": "Scratch", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}]
    }
    yield AccessCall("create topics", Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, _json(topics))
    for group in ("ScratchGroup", "Workers"):
        body = _json({"groupName": group, "consumeEnable": True})
        yield AccessCall(f"create group {group}", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    groups = _json({"groupConfigList": [{"groupName": "ScratchGroup", "consumeEnable": True}]})
    yield AccessCall("create groups", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, groups)
    reset = {"topic": "Orders", "group": "Workers", "timestamp": "0", "isForce": "true"}
    yield AccessCall("reset offset", Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    clone = {"srcGroup": "Workers", "destGroup": "ScratchGroup", "topic": "Orders", "offline": "true"}
    yield AccessCall("clone offset", Code.CLONE_GROUP_OFFSET, clone)
    forbid = {"group": "ScratchGroup", "topic": "Orders", "readable": "true"}
    yield AccessCall("forbid", Code.UPDATE_AND_GET_GROUP_FORBIDDEN, forbid)
    yield AccessCall("clean expired queues", Code.CLEAN_EXPIRED_CONSUMEQUEUE)
    yield AccessCall("clean unused topics", Code.CLEAN_UNUSED_TOPIC)
    yield AccessCall("delete expired log", Code.DELETE_EXPIRED_COMMITLOG)
    yield AccessCall("update broker config", Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6\n")
    yield AccessCall("delete topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": "Scratch"})
    yield AccessCall("delete group", Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "ScratchGroup"})
    yield from _account_changes()


def _account_changes() -> Iterator[AccessCall]:
    user = {"username": "scratchuser"}
    body = _json({**user, "password": "scratchsecret", "userType": "Normal", "userStatus": "enable"})
    yield AccessCall("create user", Code.AUTH_CREATE_USER, user, body)
    yield AccessCall("update user", Code.AUTH_UPDATE_USER, user, _json({**user, "userStatus": "disable"}))
    subject = {"subject": "User:scratchuser"}
    entry = {"resource": "Topic:Scratch", "actions": ["Pub"], "decision": "Allow"}
    acl = _json({**subject, "policies": [{"policyType": "Custom", "entries": [entry]}]})
    yield AccessCall("create acl", Code.AUTH_CREATE_ACL, subject, acl)
    yield AccessCall("update acl", Code.AUTH_UPDATE_ACL, subject, acl)
    yield AccessCall("delete acl", Code.AUTH_DELETE_ACL, {**subject, "resource": "Topic:Scratch"})
    yield AccessCall("delete user", Code.AUTH_DELETE_USER, user)
    account = {"accessKey": "scratchuser", "secretKey": "scratchsecret", "admin": "false"}
    yield AccessCall("update plain account", Code.UPDATE_AND_CREATE_ACL_CONFIG, account)
    yield AccessCall("delete plain account", Code.DELETE_ACL_CONFIG, {"accessKey": "scratchuser"})
    white = {"globalWhiteAddrs": "10.10.10.10"}
    yield AccessCall("update white addresses", Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, white)


def by_name(all_calls: Sequence[AccessCall]) -> dict[str, AccessCall]:
    """Calls by name; no name twice."""
    found = {call.name: call for call in all_calls}
    assert len(found) == len(all_calls), "two calls have one name"
    return found
