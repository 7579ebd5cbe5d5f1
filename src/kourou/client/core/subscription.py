"""Subscriptions: what a consumer selects of each topic, and the handler of the messages."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kourou.argument_types import check_str
from kourou.errors import ClientError, ResponseError
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import MessageConst, PropertyFinder
from kourou.protocol.tags import SUB_ALL, parse_tag_expression, tags_code

if TYPE_CHECKING:
    from kourou.client.push.handlers import Handler

_log = logging.getLogger(__name__)

ExpressionType = Literal["TAG", "SQL92", "PLUGIN"]


# A comma or an operator is found before a blank: it is the better hint at the mistake.
_UNLIKELY_IN_TAG: Final = re.compile(r"[,<>=]|\s(?!.*[,<>=])")
_tags_of: Final = PropertyFinder([MessageConst.PROPERTY_TAGS])


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def subscription_data(
    topic: str, expression: str = SUB_ALL, expression_type: ExpressionType = "TAG"
) -> SubscriptionData:
    """A subscription as it is sent to brokers; ValueError for one that selects nothing by accident.

    >>> subscription_data("TopicTest", "TagA || TagB").tags_set
    ['TagA', 'TagB']
    """
    check_str("expression", expression)
    if expression_type in ("SQL92", "PLUGIN"):
        if not expression.strip():
            example = "a > 5" if expression_type == "SQL92" else "json $.total > 5"
            raise ValueError(
                f'topic {topic!r}: an expression of type {expression_type} is needed, such as "{example}"'
            )
        return SubscriptionData(
            topic=topic, sub_string=expression, sub_version=now_ms(), expression_type=expression_type
        )
    if expression_type != "TAG":
        raise ValueError(f"expression_type is 'TAG', 'SQL92' or 'PLUGIN', not {expression_type!r}")
    tags = parse_tag_expression(expression)
    return SubscriptionData(
        topic=topic,
        sub_string=expression if tags else SUB_ALL,
        tags_set=list(tags),
        code_set=[tags_code(tag) for tag in tags],
        sub_version=now_ms(),
    )


def warn_of_unlikely_tags(topic: str, data: SubscriptionData) -> None:
    """Log each tag that was probably meant as a list or a condition: it is valid, but unlikely to match."""
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
    """A topic's subscription and handler; None for the retry topic, whose messages belong to other topics."""

    data: SubscriptionData
    handler: Handler | None
    keeps: Callable[[list[MessageExt]], list[MessageExt]]
    """Filters messages by tag once more: the broker compares only hashes of tags."""

    @classmethod
    def of(cls, data: SubscriptionData, handler: Handler | None) -> Subscription:
        """The subscription for `data`, which is sent to brokers."""
        tags = frozenset(data.tags_set)
        return cls(data, handler, (lambda messages: _with_tags(messages, tags)) if tags else _all_of)


def _all_of(messages: list[MessageExt]) -> list[MessageExt]:
    return messages


def _with_tags(messages: list[MessageExt], tags: frozenset[str]) -> list[MessageExt]:
    # Searched in the bytes: decoding all properties would cost more than the rest of a delivery.
    values = _tags_of.values
    return [
        message
        for message in messages
        if values(message.raw_properties, 0, len(message.raw_properties))[0] in tags
    ]


def subscription_refused(data: SubscriptionData, address: str, error: ResponseError) -> ClientError:
    """The error for an expression that a broker rejects."""
    if error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        next_step = "correct the expression"
    elif data.expression_type == "SQL92" and not data.sub_string.startswith("PLUGIN "):
        next_step = "enablePropertyFilter=true at the broker allows SQL92"
    else:
        next_step = "the log of the broker says what is wrong with the filter"
    return ClientError(
        f"topic {data.topic!r}: broker {address} rejects {data.expression_type} "
        f"{data.sub_string!r}: {error.remark} (code {error.code}); {next_step}"
    )


class Subscriptions:
    """The handler of each topic. Topics are as brokers know them, with the namespace."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Subscription] = {}
        self._handlers: dict[str, Handler] = {}
        self.is_new = True
        """Whether nothing has been subscribed to yet."""

    def add(self, shown_topic: str, subscription: Subscription) -> None:
        """Add a topic, or replace its subscription. `shown_topic` is the user's name."""
        self._by_topic[subscription.data.topic] = subscription
        if subscription.handler is not None:
            self.is_new = False
            replaced = self._handlers.get(shown_topic)
            if replaced is not None and replaced != subscription.handler:
                _log.warning(
                    "topic %s is subscribed to again: its messages now go to %s, no longer to %s; "
                    "a consumer has one handler for each topic",
                    shown_topic,
                    subscription.handler.name,
                    replaced.name,
                )
            self._handlers[shown_topic] = subscription.handler

    def remove(self, shown_topic: str, topic: str) -> None:
        self._by_topic.pop(topic, None)
        self._handlers.pop(shown_topic, None)

    def get(self, topic: str) -> Subscription | None:
        """The subscription to a topic."""
        return self._by_topic.get(topic)

    def handler(self, shown_topic: str) -> Handler | None:
        """The handler of a topic. A retry whose topic is no longer subscribed to goes to the only handler,
        as in Java; None if there are several."""
        found = self._handlers.get(shown_topic)
        if found is None and len(set(self._handlers.values())) == 1:
            found = next(iter(self._handlers.values()))
        return found

    def touch(self, topic: str) -> None:
        """Make the subscription newer than the broker's copy, so that the next heartbeat replaces that."""
        if (subscription := self._by_topic.get(topic)) is not None:
            subscription.data.sub_version = now_ms()

    @property
    def topics(self) -> list[str]:
        return list(self._by_topic)

    def data(self) -> list[SubscriptionData]:
        return [subscription.data for subscription in self._by_topic.values()]

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._by_topic.values()))

    def __len__(self) -> int:
        return len(self._handlers)
