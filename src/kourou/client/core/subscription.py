"""Subscriptions: what a consumer wants of a topic, and whose handler gets it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from kourou.argument_types import check_str
from kourou.client.push.handlers import Handler
from kourou.errors import ClientError, ResponseError
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import MessageConst
from kourou.protocol.record_properties import PropertyFinder
from kourou.protocol.tags import SUB_ALL, parse_tag_expression, tags_code

ExpressionType = Literal["TAG", "SQL92"]

_log = logging.getLogger(__name__)

# A comma or an operator before a blank: it says more about what was meant.
_UNLIKELY_IN_TAG: Final = re.compile(r"[,<>=]|\s(?!.*[,<>=])")
_tags_of: Final = PropertyFinder([MessageConst.PROPERTY_TAGS])


def now_ms() -> int:
    """The time of day."""
    return time.time_ns() // 1_000_000


def subscription_data(
    topic: str, expression: str = SUB_ALL, expression_type: ExpressionType = "TAG"
) -> SubscriptionData:
    """A subscription as brokers are told it; ValueError for one that selects nothing by accident.

    >>> subscription_data("TopicTest", "TagA || TagB").tags_set
    ['TagA', 'TagB']
    """
    check_str("expression", expression)
    if expression_type == "SQL92":
        if not expression.strip():
            raise ValueError(f'topic {topic!r}: an SQL92 expression is needed, such as "a > 5"')
        return SubscriptionData(
            topic=topic, sub_string=expression, sub_version=now_ms(), expression_type=expression_type
        )
    if expression_type != "TAG":
        raise ValueError(f"expression_type is 'TAG' or 'SQL92', not {expression_type!r}")
    tags = parse_tag_expression(expression)
    return SubscriptionData(
        topic=topic,
        sub_string=expression if tags else SUB_ALL,
        tags_set=list(tags),
        code_set=[tags_code(tag) for tag in tags],
        sub_version=now_ms(),
    )


def warn_of_unlikely_tags(topic: str, data: SubscriptionData) -> None:
    """Log each tag that was probably meant as a list or as a condition; it is valid, but matches nothing."""
    for tag in data.tags_set:
        if found := _UNLIKELY_IN_TAG.search(tag):
            _log.warning(
                "topic %s: tag %r contains %r, and matches only messages with exactly this tag; "
                "tags are separated by ||; for a condition give expression_type='SQL92'",
                topic,
                tag,
                found[0],
            )


@dataclass(slots=True)
class Subscription:
    """One topic's subscription and handler; None for the retry topic, whose messages belong to others."""

    data: SubscriptionData
    handler: Handler | None
    keeps: Callable[[list[MessageExt]], list[MessageExt]]
    """Leaves the messages that are wanted: the broker knows tags only by a hash."""

    @classmethod
    def of(cls, data: SubscriptionData, handler: Handler | None) -> Subscription:
        """The subscription for what brokers are told."""
        tags = frozenset(data.tags_set)
        return cls(data, handler, (lambda messages: _with_tags(messages, tags)) if tags else _all_of)


def _all_of(messages: list[MessageExt]) -> list[MessageExt]:
    return messages


def _with_tags(messages: list[MessageExt], tags: frozenset[str]) -> list[MessageExt]:
    # Found in the bytes: to decode all properties would cost more than the rest of a delivery.
    values = _tags_of.values
    return [
        message
        for message in messages
        if values(message.raw_properties, 0, len(message.raw_properties))[0] in tags
    ]


def subscription_refused(data: SubscriptionData, address: str, error: ResponseError) -> ClientError:
    """What to tell who subscribed with an expression that a broker does not take."""
    if error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        next_step = "correct the expression"
    else:
        next_step = "enablePropertyFilter=true at the broker allows SQL92"
    return ClientError(
        f"topic {data.topic!r}: broker {address} does not take {data.expression_type} "
        f"{data.sub_string!r}: {error.remark} (code {error.code}); {next_step}"
    )
