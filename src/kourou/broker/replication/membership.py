"""Membership: a broker's part in a fail-over set, from one start to the next.

Which role a member has is decided outside (kourou.failover); a broker is started anew when it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kourou.broker.replication.reign import Reign
from kourou.protocol.codes import RequestCode

CHANGES: Final = frozenset(
    {
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.END_TRANSACTION,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.RECALL_MESSAGE,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.OPEN_KOUROU_PRODUCER,
        RequestCode.FORGET_KOUROU_PRODUCER,
        RequestCode.STAGE_KOUROU_ATOMIC,
        RequestCode.DECIDE_KOUROU_ATOMIC,
        RequestCode.END_KOUROU_ATOMIC,
        RequestCode.FORGET_KOUROU_ATOMIC,
    }
)
"""What only a master may do, beside storing messages."""
READS: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    }
)
"""What would show clients messages that a fail-over may still cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """`reign` is that of a master; None: a slave. `known_epoch` is the newest epoch that this member knows
    of: a master of an older one is not followed."""

    reign: Reign | None
    known_epoch: Callable[[], int]
    parted: Callable[[int], None]
    """Called when the log of this slave and its master's are the same up to an offset only."""
    followed: Callable[[], None]
    """Called when this slave follows its master."""
    caught_up: Callable[[], None]
    """Called when it has what its master had when it began to follow."""
