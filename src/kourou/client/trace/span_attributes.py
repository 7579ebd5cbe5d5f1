"""Names and attributes of spans, by OpenTelemetry's conventions for messaging and RocketMQ.

The conventions are in development, and those of RocketMQ move from `messaging.rocketmq.*` to `rocketmq.*`.
OTEL_SEMCONV_STABILITY_OPT_IN, a list separated by commas, chooses: by default the old names are written, with
`messaging` the new ones, with `messaging/dup` both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from kourou.errors import ConfigError
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.properties import KEY_SEPARATOR, MessageConst
from kourou.transport.addresses import parse_address

AttributeValue: TypeAlias = str | bool | int | list[str]
Attributes: TypeAlias = dict[str, AttributeValue]

OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
_OLD: Final = "messaging.rocketmq."
_NEW: Final = "rocketmq."
_DELAYS: Final = (
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
    MessageConst.PROPERTY_TIMER_DELAY_SEC,
    MessageConst.PROPERTY_TIMER_DELAY_MS,
    MessageConst.PROPERTY_TIMER_DELIVER_MS,
)


class Conventions:
    """The chosen names. `opt_in` is the value of the environment variable."""

    def __init__(self, opt_in: str | None) -> None:
        chosen = {word.strip() for word in (opt_in or "").split(",")}
        if "messaging/dup" in chosen:
            self._prefixes: tuple[str, ...] = (_OLD, _NEW)
        else:
            self._prefixes = (_NEW,) if "messaging" in chosen else (_OLD,)

    def rocketmq(self, values: Mapping[str, AttributeValue | None]) -> Attributes:
        """Attributes of RocketMQ, by their names without prefix; those without value are left out."""
        return {
            prefix + name: value
            for name, value in values.items()
            if value is not None
            for prefix in self._prefixes
        }

    def client_group(self, group: str) -> Attributes:
        """The group of a client; the new conventions have only that of consumers, under another name."""
        return {_OLD + "client_group": group} if _OLD in self._prefixes else {}

    def of_message(self, message: Message | MessageExt, *, is_half: bool = False) -> Attributes:
        """What a span tells about its only message."""
        properties = message.properties
        attributes: Attributes = {"messaging.message.body.size": _body_bytes(message)}
        if msg_id := _msg_id(message):
            attributes["messaging.message.id"] = msg_id
        if correlation_id := properties.get(MessageConst.PROPERTY_CORRELATION_ID):
            attributes["messaging.message.conversation_id"] = correlation_id
        keys = properties.get(MessageConst.PROPERTY_KEYS)
        return attributes | self.rocketmq(
            {
                "message.tag": properties.get(MessageConst.PROPERTY_TAGS),
                "message.keys": keys.split(KEY_SEPARATOR) if keys else None,
                "message.type": _type(properties, is_half=is_half),
                "message.group": properties.get(MessageConst.PROPERTY_SHARDING_KEY),
                "message.delay_time_level": _number(properties, MessageConst.PROPERTY_DELAY_TIME_LEVEL),
                "message.delivery_timestamp": _number(properties, MessageConst.PROPERTY_TIMER_DELIVER_MS),
            }
        )


def operation(kind: str, name: str, topic: str | None) -> Attributes:
    """What every span has: an operation of RocketMQ, and its destination."""
    attributes: Attributes = {
        "messaging.system": "rocketmq",
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
    }
    if topic is not None:
        attributes["messaging.destination.name"] = topic
    return attributes


def server(address: str | None) -> Attributes:
    """The broker at `host:port`."""
    if not address:
        return {}
    try:
        host, port = parse_address(address)
    except ConfigError:
        return {"server.address": address}
    return {"server.address": host, "server.port": port}


def _msg_id(message: Message | MessageExt) -> str | None:
    if isinstance(message, MessageExt):
        return message.msg_id
    return message.get_property(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)


def _body_bytes(message: Message | MessageExt) -> int:
    # A stored body may be compressed, and would have to be inflated to be measured.
    return len(message.stored_body if isinstance(message, MessageExt) else message.body)


def _type(properties: Mapping[str, str], *, is_half: bool) -> str:
    if is_half or MessageConst.PROPERTY_TRANSACTION_PREPARED in properties:
        return "transaction"
    if any(properties.get(name) for name in _DELAYS):
        return "delay"
    return "fifo" if MessageConst.PROPERTY_SHARDING_KEY in properties else "normal"


def _number(properties: Mapping[str, str], name: str) -> int | None:
    value = properties.get(name)
    return int(value) if value and value.isdecimal() else None
