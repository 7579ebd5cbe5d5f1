"""The table of requests: what each needs, for broker and name server.

A request code is in exactly one place: among those with needs of their own, those on the cluster, those that
list, those that any account may send, or those for administrators. A code that is in none, an
unknown one, is for administrators.

Strict by default: what RocketMQ leaves open is closed, as the line after 5.5 does. Each `Opening` restores
RocketMQ's way for a few codes, where a client would break.
Not here: the permissions of accounts (plain/, auth/), the check of messages found by offset (gate.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kourou.access import request_needs as of
from kourou.access.model import EVERY, Need, Needs, Resource, ResourceType
from kourou.access.needs import ADMINISTRATOR, CREATE, DELETE, GET, LIST, NOTHING, UPDATE, manage
from kourou.access.openings import Opening, opened_codes
from kourou.access.request_needs import Fields, NeedsOf
from kourou.protocol.codes import RequestCode as Code

NEEDS: Final[Mapping[int, NeedsOf]] = {
    Code.SEND_MESSAGE: of.send,
    Code.SEND_MESSAGE_V2: of.send_v2,
    Code.SEND_BATCH_MESSAGE: of.send_v2,
    Code.SEND_REPLY_MESSAGE: of.reply,
    Code.SEND_REPLY_MESSAGE_V2: of.reply_v2,
    Code.RECALL_MESSAGE: of.send,
    Code.END_TRANSACTION: of.end_transaction,
    Code.PULL_MESSAGE: of.pull,
    Code.LITE_PULL_MESSAGE: of.pull,
    Code.POP_MESSAGE: of.group_first(of.pull),
    Code.ACK_MESSAGE: of.group_first(of.read_queue),
    Code.PEEK_MESSAGE: of.pull,
    Code.CHANGE_MESSAGE_INVISIBLETIME: of.group_first(of.read_queue),
    Code.NOTIFICATION: of.group_first(of.read_queue),
    Code.BATCH_ACK_MESSAGE: of.batch_ack,
    Code.CONSUMER_SEND_MSG_BACK: of.send_back,
    Code.HEART_BEAT: of.heartbeat,
    Code.UNREGISTER_CLIENT: of.unregister,
    Code.CHECK_CLIENT_CONFIG: of.check_client,
    Code.GET_CONSUMER_LIST_BY_GROUP: of.members,
    Code.LOCK_BATCH_MQ: of.lock,
    Code.UNLOCK_BATCH_MQ: of.lock,
    Code.QUERY_ASSIGNMENT: of.query_assignment,
    Code.QUERY_CONSUMER_OFFSET: of.query_offset,
    Code.UPDATE_CONSUMER_OFFSET: of.update_offset,
    Code.QUERY_MESSAGE: of.query_message,
    Code.VIEW_MESSAGE_BY_ID: of.view_message,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: of.get_of_queue,
    Code.GET_MAX_OFFSET: of.get_of_queue,
    Code.GET_MIN_OFFSET: of.get_of_queue,
    Code.GET_EARLIEST_MSG_STORETIME: of.get_of_queue,
    Code.CONSUME_MESSAGE_DIRECTLY: of.consume_directly,
    Code.GET_TOPIC_STATS_INFO: of.of_topic(GET),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: of.of_topic(GET),
    Code.GET_TOPIC_CONFIG: of.of_topic(GET),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: of.of_topic(GET),
    Code.GET_CONSUME_STATS: of.get_of_both("consumerGroup"),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: of.get_of_both("group"),
    Code.QUERY_CONSUME_TIME_SPAN: of.get_of_both("group"),
    Code.QUERY_CORRECTION_OFFSET: of.group_first(of.get_of_both("compareGroup")),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: of.group_first(of.get_of_both("group")),
    Code.POLLING_INFO: of.group_first(of.get_of_both("consumerGroup")),
    Code.QUERY_CONSUME_QUEUE: of.query_consume_queue,
    Code.GET_CONSUMER_CONNECTION_LIST: of.of_group(GET, "consumerGroup"),
    Code.GET_CONSUMER_RUNNING_INFO: of.of_group(GET, "consumerGroup"),
    Code.QUERY_TOPICS_BY_CONSUMER: of.of_group(GET),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: of.of_group(GET),
    Code.UPDATE_AND_CREATE_TOPIC: of.of_topic(CREATE),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: of.create_topics,
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: of.create_static_topic,
    Code.DELETE_TOPIC_IN_BROKER: of.of_topic(DELETE),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: of.create_group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: of.create_groups,
    Code.DELETE_SUBSCRIPTIONGROUP: of.of_group(DELETE, "groupName"),
    Code.RESUME_CHECK_HALF_MESSAGE: of.of_topic(UPDATE),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: of.group_first(of.of_both(UPDATE)),
    Code.CLONE_GROUP_OFFSET: of.group_first(of.of_both(UPDATE, "destGroup")),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: of.group_first(of.of_both(UPDATE)),
    Code.SET_MESSAGE_REQUEST_MODE: of.set_request_mode,
    Code.OPEN_KOUROU_PRODUCER: of.open_producer,
    Code.GET_KOUROU_SEQUENCES: of.send,
    Code.STAGE_KOUROU_ATOMIC: of.stage,
    Code.DECIDE_KOUROU_ATOMIC: of.atomic,
    Code.QUERY_KOUROU_ATOMIC: of.atomic,
    Code.GET_KOUROU_ATOMIC_COORDINATOR: of.named_producer,
    Code.GET_KOUROU_SINK: of.sink,
}
"""Needs of topics and groups that the request names."""

ANYONE: Final = frozenset(
    {
        Code.GET_KOUROU_FEATURES,
        # Routes are addresses: what is done there is checked by the brokers.
        Code.GET_ROUTEINFO_BY_TOPIC,
        Code.GET_BROKER_CLUSTER_INFO,
    }
)
"""Any account may, without permissions."""

CLUSTER_GET: Final = frozenset(
    {
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.GET_TIMER_CHECK_POINT,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.VIEW_BROKER_STATS_DATA,
        Code.GET_BROKER_CONSUME_STATS,
        Code.GET_ALL_PRODUCER_INFO,
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        Code.GET_BROKER_MEMBER_GROUP,
        Code.GET_BROKER_HA_STATUS,
        Code.GET_BROKER_EPOCH_CACHE,
        Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER,
        Code.AUTH_GET_ACL,
        Code.AUTH_LIST_ACL,
        Code.GET_KOUROU_GROUP_LAGS,
        Code.LIST_KOUROU_ATOMIC,
    }
)
CLUSTER_UPDATE: Final = frozenset(
    {
        Code.UPDATE_BROKER_CONFIG,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.SET_COMMITLOG_READ_MODE,
        Code.POP_ROLLBACK,
        Code.ADD_BROKER,
        Code.REMOVE_BROKER,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE,
        Code.EXCHANGE_BROKER_HA_INFO,
        Code.RESET_MASTER_FLUSH_OFFSET,
        Code.NOTIFY_BROKER_ROLE_CHANGED,
        Code.AUTH_CREATE_USER,
        Code.AUTH_UPDATE_USER,
        Code.AUTH_DELETE_USER,
        Code.AUTH_CREATE_ACL,
        Code.AUTH_UPDATE_ACL,
        Code.AUTH_DELETE_ACL,
    }
)

_EVERY_TOPIC: Final = Need(Resource(ResourceType.TOPIC, EVERY), LIST)
_EVERY_GROUP: Final = Need(Resource(ResourceType.GROUP, EVERY), LIST)

LISTS: Final[Mapping[int, Needs]] = {
    Code.GET_ALL_TOPIC_CONFIG: manage((_EVERY_TOPIC,)),
    Code.GET_TIMER_METRICS: manage((_EVERY_TOPIC,)),
    Code.GET_KOUROU_OVERFLOW: manage((_EVERY_TOPIC, _EVERY_GROUP)),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: manage((_EVERY_TOPIC,)),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: manage((_EVERY_TOPIC,)),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: manage((_EVERY_TOPIC,)),
    Code.GET_TOPICS_BY_CLUSTER: manage((_EVERY_TOPIC,)),
    Code.GET_UNIT_TOPIC_LIST: manage((_EVERY_TOPIC,)),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: manage((_EVERY_TOPIC,)),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: manage((_EVERY_TOPIC,)),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: manage((_EVERY_GROUP,)),
    Code.GET_COLD_DATA_FLOW_CTR_INFO: manage((_EVERY_GROUP,)),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: manage((_EVERY_TOPIC, _EVERY_GROUP)),
}

ADMINISTRATORS: Final = frozenset(
    {
        # The accounts of RocketMQ 4.
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_INFO,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_CONFIG,
        # To name servers: brokers, which sign with the account of the cluster, and operators.
        Code.PUT_KV_CONFIG,
        Code.GET_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.GET_KVLIST_BY_NAMESPACE,
        Code.REGISTER_BROKER,
        Code.UNREGISTER_BROKER,
        Code.BROKER_HEARTBEAT,
        Code.QUERY_DATA_VERSION,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.REGISTER_TOPIC_IN_NAMESRV,
        Code.UPDATE_NAMESRV_CONFIG,
        Code.GET_NAMESRV_CONFIG,
        # Between brokers, and what operators do with them.
        Code.GET_KOUROU_PRODUCER_SNAPSHOT,
        Code.FORGET_KOUROU_PRODUCER,
        Code.PROMISE_KOUROU_MASTER,
        Code.GET_KOUROU_ACCESS,
        Code.END_KOUROU_ATOMIC,
        Code.FORGET_KOUROU_ATOMIC,
        Code.SWITCH_TIMER_ENGINE,
        Code.TRIGGER_DELETE_FILES,
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        # Controllers, for which RocketMQ has no actions.
        Code.CONTROLLER_ALTER_SYNC_STATE_SET,
        Code.CONTROLLER_ELECT_MASTER,
        Code.CONTROLLER_REGISTER_BROKER,
        Code.CONTROLLER_GET_REPLICA_INFO,
        Code.CONTROLLER_GET_METADATA_INFO,
        Code.CONTROLLER_GET_SYNC_STATE_DATA,
        Code.UPDATE_CONTROLLER_CONFIG,
        Code.GET_CONTROLLER_CONFIG,
        Code.CLEAN_BROKER_DATA,
        Code.CONTROLLER_GET_NEXT_BROKER_ID,
        Code.CONTROLLER_APPLY_BROKER_ID,
        Code.BROKER_CLOSE_CHANNEL_REQUEST,
        Code.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        Code.GET_BROKER_LIVE_INFO_REQUEST,
        Code.GET_SYNC_STATE_DATA_REQUEST,
        Code.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
        # What servers send to clients, and what no server of ours answers.
        Code.QUERY_BROKER_OFFSET,
        Code.GET_TOPIC_CONFIG_LIST,
        Code.GET_TOPIC_NAME_LIST,
        Code.CHECK_TRANSACTION_STATE,
        Code.NOTIFY_CONSUMER_IDS_CHANGED,
        Code.GET_CLIENT_CONFIG,
        Code.SUSPEND_CONSUMER,
        Code.RESUME_CONSUMER,
        Code.RESET_CONSUMER_OFFSET_IN_CONSUMER,
        Code.RESET_CONSUMER_OFFSET_IN_BROKER,
        Code.ADJUST_CONSUMER_THREAD_POOL,
        Code.WHO_CONSUME_THE_MESSAGE,
        Code.RESET_CONSUMER_CLIENT_OFFSET,
        Code.GET_CONSUMER_STATUS_FROM_CLIENT,
        Code.REGISTER_FILTER_SERVER,
        Code.REGISTER_MESSAGE_FILTER_CLASS,
        Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
        Code.POP_LITE_MESSAGE,
        Code.LITE_SUBSCRIPTION_CTL,
        Code.ACK_LITE_MESSAGE,
        Code.NOTIFY_UNSUBSCRIBE_LITE,
        Code.GET_BROKER_LITE_INFO,
        Code.GET_PARENT_TOPIC_INFO,
        Code.GET_LITE_TOPIC_INFO,
        Code.GET_LITE_CLIENT_INFO,
        Code.GET_LITE_GROUP_INFO,
        Code.TRIGGER_LITE_DISPATCH,
    }
)
"""For administrators only."""

AUDITED: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CLONE_GROUP_OFFSET,
        Code.RESUME_CHECK_HALF_MESSAGE,
        Code.CONSUME_MESSAGE_DIRECTLY,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.POP_ROLLBACK,
        Code.UPDATE_BROKER_CONFIG,
        Code.SET_COMMITLOG_READ_MODE,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.CONTROLLER_ELECT_MASTER,
        Code.FORGET_KOUROU_PRODUCER,
        Code.FORGET_KOUROU_ATOMIC,
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.AUTH_CREATE_USER,
        Code.AUTH_UPDATE_USER,
        Code.AUTH_DELETE_USER,
        Code.AUTH_CREATE_ACL,
        Code.AUTH_UPDATE_ACL,
        Code.AUTH_DELETE_ACL,
        # What shows secrets.
        Code.GET_BROKER_CLUSTER_ACL_CONFIG,
        Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER,
        # Name servers.
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.REGISTER_TOPIC_IN_NAMESRV,
        Code.UPDATE_NAMESRV_CONFIG,
    }
)
"""Administrative requests, each a line of the audit log."""

BODY_CODES: Final = frozenset(
    {
        Code.STAGE_KOUROU_ATOMIC,
        Code.HEART_BEAT,
        Code.CHECK_CLIENT_CONFIG,
        Code.LOCK_BATCH_MQ,
        Code.UNLOCK_BATCH_MQ,
        Code.QUERY_ASSIGNMENT,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.BATCH_ACK_MESSAGE,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    }
)
"""Their needs are in the body, which is read only after the signature was right: it may cost more to read
than a signature to check."""


class RequestTable:
    """The table for one server."""

    def __init__(self, *, cluster: str = EVERY, openings: Iterable[Opening] = ()) -> None:
        opened = frozenset(openings)
        self.checks_records = Opening.RECORDS not in opened
        """Whether messages that are found by offset are checked by their topic."""
        get = manage((Need(Resource(ResourceType.CLUSTER, cluster), GET),))
        update = manage((Need(Resource(ResourceType.CLUSTER, cluster), UPDATE),))
        constant: dict[int, Needs] = dict(LISTS)
        for codes, needs in (
            (ANYONE, NOTHING),
            (ADMINISTRATORS, ADMINISTRATOR),
            (CLUSTER_GET, get),
            (CLUSTER_UPDATE, update),
        ):
            constant.update((int(code), needs) for code in codes)
        self._table: dict[int, NeedsOf] = dict(NEEDS)
        self._table |= {code: _always(needs) for code, needs in constant.items()}
        if not self.checks_records:
            self._table |= {
                Code.VIEW_MESSAGE_BY_ID: of.view_any_message,
                Code.QUERY_MESSAGE: of.query_any_message,
                Code.PULL_MESSAGE: of.read_queue,
                Code.LITE_PULL_MESSAGE: of.read_queue,
            }
        for code, open_auth, open_plain in opened_codes(opened):
            self._table[code] = _relaxed(self._table[code], open_auth=open_auth, open_plain=open_plain)

    def needs_of(self, code: int, fields: Fields, body: bytes) -> Needs:
        """What a request needs. ProtocolError or AccessRefusedError: it does not say, and is refused."""
        needs = self._table.get(code)
        return ADMINISTRATOR if needs is None else needs(fields, body)


def _always(needs: Needs) -> NeedsOf:
    return lambda fields, body: needs


def _relaxed(needs_of: NeedsOf, *, open_auth: bool, open_plain: bool) -> NeedsOf:
    def relaxed(fields: Fields, body: bytes) -> Needs:
        if open_auth and open_plain:
            return NOTHING
        needs = needs_of(fields, body)
        return replace(
            needs,
            auth=() if open_auth else needs.auth,
            plain=() if open_plain else needs.plain,
            is_admin_only=needs.is_admin_only and not open_auth,
            is_plain_admin_only=needs.is_plain_admin_only and not open_plain,
        )

    return relaxed
