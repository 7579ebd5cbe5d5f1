"""What a subscription lets through: tags, by the ConsumeQueue alone; SQL92, by the properties; or what an
installed filter lets through.

Tags are compared by their codes in the ConsumeQueue. Codes are hashes: the client compares what they let
through once more by text, and the codes are made here from the text, because not every client sends right
ones. The text is a peer's: beyond MAX_EXPRESSION_CHARS it is rejected, and of the longer ones few are cached.
Not here: how a record's properties are read (filtered_read.py), whose subscription counts for a pull
(pull_targets.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from kourou.broker.filters.plugin_host import PLUGIN, PluginFilter, PluginHost, plugin_expression
from kourou.broker.groups.consumers import ConsumerManager
from kourou.errors import FilterSyntaxError, ProtocolError, RequestError
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.filter import FilterProgram, compile_filter
from kourou.protocol.layout import Buffer
from kourou.protocol.properties import MessageConst, PropertyFinder
from kourou.protocol.tags import parse_tag_expression, tags_code

TagCodes = frozenset[int] | None
"""None: every message is wanted."""

TAG = "TAG"
SQL92 = "SQL92"


MAX_EXPRESSION_CHARS: Final = 16 * 1024
"""Five hundred tags of thirty letters. Hashing them takes some milliseconds, which block other requests."""

_SHORT_CHARS: Final = 256


def tag_codes(expression: str | None) -> TagCodes:
    """The codes of `TagA || TagB`; None when every message is wanted. ProtocolError: no tag in there."""
    tags = parse_tag_expression(expression)
    return frozenset(map(tags_code, tags)) if tags else None


# Pulls ask, where what they get is not remembered (pull_targets.py). The set of a text with many tags takes
# 40 times its room: at worst 10 MB, and 16 MB.
_short_tag_codes: Final = lru_cache(maxsize=1024)(tag_codes)
_long_tag_codes: Final = lru_cache(maxsize=32)(tag_codes)


def subscription_codes(expression: str | None, expression_type: str | None) -> TagCodes:
    """The same for what a client sent, whose mistakes are answered."""
    if expression_type not in (None, "", TAG):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )
    size = 0 if expression is None else len(expression)
    if size > MAX_EXPRESSION_CHARS:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed: "
            f"the tag expression has {size} characters; write {MAX_EXPRESSION_CHARS} at most",
        )
    try:
        return _short_tag_codes(expression) if size <= _SHORT_CHARS else _long_tag_codes(expression)
    except ProtocolError as error:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
        ) from error


class PropertyFilter(Protocol):
    """Judges property strings, which are somewhere in a buffer. `terms` says how much work one is."""

    @property
    def terms(self) -> int: ...

    def matches_bytes(self, buffer: Buffer, start: int, end: int) -> bool: ...


class MessageFilter(NamedTuple):
    """Both have to let a message pass; None lets all."""

    codes: TagCodes
    wants: PropertyFilter | PluginFilter | None


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type selects by tags; older clients send none."""
    return expression_type in (None, "", TAG)


def subscription_filter(
    expression: str | None, expression_type: str | None, *, property_filter: bool, plugins: PluginHost
) -> MessageFilter:
    """The filter of what a client subscribes to. `property_filter` is the key enablePropertyFilter.

    RequestError with Apache's codes: 1 when filters by property are off, 23 for what is no filter.
    """
    if is_tag_type(expression_type):
        return MessageFilter(subscription_codes(expression, TAG), None)
    wanted = plugin_expression(expression, expression_type)
    if wanted is not None:
        return MessageFilter(None, plugins.find(wanted))
    return MessageFilter(None, compile_subscription(expression, expression_type, property_filter))


def compile_subscription(
    expression: str | None, expression_type: str | None, property_filter: bool
) -> FilterProgram:
    """The program of a subscription that is not by tags; RequestError as above."""
    if not property_filter:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )
    if expression_type != SQL92:
        raise _parse_failed(f"there is no filter of type {expression_type!r}; use {TAG}, {SQL92} or {PLUGIN}")
    try:
        return compile_filter(expression or "")
    except FilterSyntaxError as error:
        raise _parse_failed(str(error)) from error


def check_subscription(
    subscription: SubscriptionData, *, property_filter: bool, plugins: PluginHost
) -> PluginFilter | None:
    """RequestError when the broker cannot filter as a client wants it to. Tags are looked at when they
    are used: a heartbeat of Apache's clients may bring anything there. Of a filter of the operator's only the
    name is looked at; it is returned, since only the filter itself knows its parameters."""
    if subscription.class_filter_mode:
        raise class_filter_refused(subscription.topic)
    expression, expression_type = subscription.sub_string, subscription.expression_type
    wanted = plugin_expression(expression, expression_type)
    if wanted is not None:
        return plugins.find(wanted)
    if not is_tag_type(expression_type):
        compile_subscription(expression, expression_type, property_filter)
    return None


def class_filter_refused(topic: str) -> RequestError:
    """The answer to a filter in Java code, which brokers ran until RocketMQ 4.3."""
    return _parse_failed(f"class filters are gone since RocketMQ 4.3 (topic {topic}); use {TAG} or {SQL92}")


def _parse_failed(reason: str) -> RequestError:
    # Apache's words come first: people search for them.
    return RequestError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {reason}"
    )


class RetryFilter:
    """For messages that are consumed again (`filterSupportRetry`): by what the group wants now of the
    topic that each was sent to. A topic with no SQL92 filter lets all pass."""

    terms = 8  # that of the topic is not known before the message is

    def __init__(self, consumers: ConsumerManager, group: str) -> None:
        self._consumers = consumers
        self._group = group
        self._find = PropertyFinder([MessageConst.PROPERTY_RETRY_TOPIC]).values

    def matches_bytes(self, buffer: Buffer, start: int, end: int) -> bool:
        """Whether the group still wants the message."""
        (topic,) = self._find(buffer, start, end)
        wanted = self._consumers.find_subscription(self._group, topic) if topic else None
        if wanted is None or wanted.expression_type != SQL92:
            return True
        try:
            return compile_filter(wanted.sub_string).matches_bytes(buffer, start, end)
        except FilterSyntaxError:
            return True
