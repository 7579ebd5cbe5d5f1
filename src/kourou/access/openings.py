"""The holes of RocketMQ's access control that are closed here, and the requests that each is about."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

from kourou.protocol.codes import RequestCode as Code


class Opening(enum.Enum):
    """A hole of RocketMQ's that is closed here, by the configuration key that opens it again."""

    ACL_ADMIN = "accessOpenAclAdmin"
    """RocketMQ 4: any account may read and change all accounts."""
    BATCHES = "accessOpenBatches"
    """RocketMQ 4: batches go to any topic."""
    CONFIG = "accessOpenConfig"
    """RocketMQ 4 and 5: any account reads the broker's configuration, in 5 changes it."""
    MANAGEMENT = "accessOpenManagement"
    """RocketMQ 4 and 5: any account may send the requests that their versions do not check."""
    REPLIES = "accessOpenReplies"
    """RocketMQ 4 and 5: replies of request and reply need no permission."""
    RECORDS = "accessOpenRecords"
    """RocketMQ 4 and 5: messages are read, sent back and ended by offset, whichever topic they are of, and
    read from where those of all topics wait."""


_OPENED_IN_AUTH: Final[Mapping[Opening, frozenset[int]]] = {
    Opening.CONFIG: frozenset({Code.UPDATE_BROKER_CONFIG, Code.GET_BROKER_CONFIG}),
    Opening.REPLIES: frozenset({Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2}),
    Opening.MANAGEMENT: frozenset(
        {
            Code.CLEAN_EXPIRED_CONSUMEQUEUE,
            Code.CLEAN_UNUSED_TOPIC,
            Code.DELETE_EXPIRED_COMMITLOG,
            Code.SET_COMMITLOG_READ_MODE,
            Code.POP_ROLLBACK,
            Code.GET_BROKER_RUNTIME_INFO,
            Code.GET_ALL_CONSUMER_OFFSET,
            Code.GET_ALL_DELAY_OFFSET,
            Code.GET_TIMER_CHECK_POINT,
            Code.GET_BROKER_HA_STATUS,
            Code.GET_BROKER_EPOCH_CACHE,
            Code.GET_ALL_TOPIC_CONFIG,
            Code.GET_TIMER_METRICS,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            Code.GET_COLD_DATA_FLOW_CTR_INFO,
            Code.GET_ALL_MESSAGE_REQUEST_MODE,
            Code.UPDATE_AND_CREATE_TOPIC_LIST,
            Code.UPDATE_AND_CREATE_STATIC_TOPIC,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            Code.LITE_PULL_MESSAGE,
            Code.BATCH_ACK_MESSAGE,
            Code.CHECK_CLIENT_CONFIG,
            Code.QUERY_ASSIGNMENT,
            Code.SET_MESSAGE_REQUEST_MODE,
            Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        }
    ),
}
"""What released versions of RocketMQ 5 leave open to all accounts."""

_CHECKED_IN_PLAIN: Final = frozenset(
    {
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.CONSUMER_SEND_MSG_BACK,
        Code.PULL_MESSAGE,
        Code.QUERY_MESSAGE,
        Code.HEART_BEAT,
        Code.UNREGISTER_CLIENT,
        Code.GET_CONSUMER_LIST_BY_GROUP,
        Code.UPDATE_CONSUMER_OFFSET,
        # With the flag `admin` only.
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_BROKER_CONFIG,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.DELETE_TOPIC_IN_BROKER,
    }
)
"""What RocketMQ 4 checks; all other requests need a signature only."""

_OPENED_IN_PLAIN: Final[Mapping[Opening, frozenset[int]]] = {
    Opening.ACL_ADMIN: frozenset(
        range(Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.GET_BROKER_CLUSTER_ACL_CONFIG + 1)
    ),
    Opening.BATCHES: frozenset({Code.SEND_BATCH_MESSAGE}),
    Opening.CONFIG: frozenset({Code.GET_BROKER_CONFIG}),
    Opening.REPLIES: frozenset({Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2}),
}
_OPENED_BY_MANAGEMENT_IN_PLAIN: Final = (
    frozenset(int(code) for code in Code if code < Code.GET_KOUROU_FEATURES)
    - _CHECKED_IN_PLAIN
    - frozenset().union(*_OPENED_IN_PLAIN.values())
    - frozenset({Code.VIEW_MESSAGE_BY_ID, *range(Code.AUTH_CREATE_USER, Code.AUTH_LIST_ACL + 1)})
)


def opened_codes(openings: frozenset[Opening]) -> Iterable[tuple[int, bool, bool]]:
    """Codes, and whether they are opened for accounts of RocketMQ 5 and of RocketMQ 4."""
    auth = frozenset[int]().union(*(_OPENED_IN_AUTH.get(opening, ()) for opening in openings))
    plain = frozenset[int]().union(*(_OPENED_IN_PLAIN.get(opening, ()) for opening in openings))
    if Opening.MANAGEMENT in openings:
        plain |= _OPENED_BY_MANAGEMENT_IN_PLAIN
    return [(code, code in auth, code in plain) for code in auth | plain]
