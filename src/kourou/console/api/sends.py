"""Sending a test message: body as text, JSON, hex or base64, with tag, keys, properties and delay."""

from __future__ import annotations

import base64
import binascii
import enum
import shlex
from typing import Annotated, Final

import msgspec

from kourou.admin.messages.message_sending import SentMessage, check_delay, send_test_message
from kourou.admin.topic_kinds import TopicKind, own_topics, topic_kind
from kourou.client.core.message_checks import check_body
from kourou.console.api.places import mqadmin
from kourou.console.api.topics import topic_settings
from kourou.console.api_errors import bad_input
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoQuery, Plan, TargetOutcome
from kourou.errors import ConfigError, MessageRefusedError
from kourou.protocol.message import Message
from kourou.protocol.names import send_topic_problem
from kourou.wording import counted

MAX_ARGUMENT_BYTES: Final = 100_000
"""Linux refuses arguments of 128 KiB and more, and a browser shows none of that size in reasonable time."""


class BodyEncoding(enum.StrEnum):
    """How the body is written in the request."""

    TEXT = "text"
    """UTF-8."""
    JSON = "json"
    """UTF-8, and checked to be JSON."""
    HEX = "hex"
    BASE64 = "base64"


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A message to send."""

    body: str
    encoding: BodyEncoding = BodyEncoding.TEXT
    tag: str = ""
    keys: list[str] = []
    properties: dict[str, str] = {}
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Needs brokers of version 5."""
    delay_level: Annotated[int, msgspec.Meta(ge=0)] = 0
    """1 to 18: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h."""
    sharding_key: str = ""
    """Messages with the same key go to the same queue."""
    trace: bool = False


async def _send(call: Call[NoQuery, NewMessage]) -> Plan:
    topic, body = call.path["topic"], call.body
    if problem := send_topic_problem(topic):
        raise bad_input("topic", problem)
    configs, _ = await topic_settings(call.view, topic)
    kind = topic_kind(topic, configs.values(), own_topics(await call.admin.masters()))
    message = _message(topic, body)
    _check_body(message)
    if body.delay_ms or body.delay_level:
        try:
            route = await call.admin.route(topic)
            await check_delay(call.admin, route, delay_ms=body.delay_ms, level=body.delay_level)
        except ConfigError as error:
            raise bad_input("delay_ms" if body.delay_ms else "delay_level", str(error)) from None
    is_transaction = kind is TopicKind.TRANSACTION
    size = counted(len(message.body), "byte")
    return Plan(
        effects=[
            f"Sends a message of {size} to topic {topic}{' in a transaction' if is_transaction else ''}"
        ],
        warnings=_warnings(kind, body),
        commands=_commands(call, topic),
        run=lambda: _run(call, message, is_transaction=is_transaction),
    )


def _message(topic: str, body: NewMessage) -> Message:
    """ApiError 400 if it cannot be sent."""
    try:
        return Message(
            topic,
            _bytes_of(body),
            tags=body.tag or None,
            keys=body.keys,
            properties=body.properties,
            delay_time_ms=body.delay_ms,
            delay_time_level=body.delay_level,
        )
    except (ValueError, MessageRefusedError) as error:
        raise bad_input("message", str(error)) from None


def _check_body(message: Message) -> None:
    """ApiError 400 if no broker accepts the body."""
    try:
        check_body(message.topic, message.body)
    except MessageRefusedError as error:
        raise bad_input("body", str(error)) from None


def _bytes_of(body: NewMessage) -> bytes:
    try:
        match body.encoding:
            case BodyEncoding.TEXT:
                return body.body.encode()
            case BodyEncoding.JSON:
                msgspec.json.decode(body.body)
                return body.body.encode()
            case BodyEncoding.HEX:
                return bytes.fromhex(body.body)
            case BodyEncoding.BASE64:
                return base64.b64decode("".join(body.body.split()), validate=True)
    except (ValueError, binascii.Error, RecursionError) as error:
        raise bad_input("body", f"not {body.encoding}: {error}") from None


def _warnings(kind: TopicKind, body: NewMessage) -> list[str]:
    if kind is TopicKind.FIFO and not body.sharding_key:
        return ["The topic is for ordered messages: without a sharding key the message goes to any queue"]
    if kind is TopicKind.DELAY and not (body.delay_ms or body.delay_level):
        return ["The topic is for delayed messages, and this one has no delay"]
    if kind in (TopicKind.RETRY, TopicKind.DLQ):
        return ["The topic belongs to a consumer group: brokers write to it"]
    return []


def _commands(call: Call[NoQuery, NewMessage], topic: str) -> list[str]:
    """mqadmin sendMessage knows no properties and delays; `kourou send` does. Neither takes binary or large
    bodies as an argument."""
    body = call.body
    is_binary = body.encoding in (BodyEncoding.HEX, BodyEncoding.BASE64)
    if is_binary or len(body.body.encode()) > MAX_ARGUMENT_BYTES:
        return []
    if not (body.properties or body.delay_ms or body.delay_level or body.sharding_key):
        words = ["-t", topic, "-p", body.body]
        words += ["-c", body.tag] if body.tag else []
        words += ["-k", " ".join(body.keys)] if body.keys else []
        words += ["-m", "true"] if body.trace else []
        return [mqadmin(call, "sendMessage", *words)]
    words = ["kourou", "send", topic, body.body, "-n", ";".join(call.admin.namesrvs)]
    words += ["-t", body.tag] if body.tag else []
    for key in body.keys:
        words += ["-k", key]
    for name, value in body.properties.items():
        words += ["-p", f"{name}={value}"]
    words += ["--delay", f"{body.delay_ms}ms"] if body.delay_ms else []
    words += ["--delay-level", str(body.delay_level)] if body.delay_level else []
    words += ["--sharding-key", body.sharding_key] if body.sharding_key else []
    return [shlex.join(words)]


async def _run(call: Call[NoQuery, NewMessage], message: Message, *, is_transaction: bool) -> Done:
    sent: SentMessage = await send_test_message(
        call.admin,
        message,
        sharding_key=call.body.sharding_key or None,
        trace=call.body.trace,
        is_transaction=is_transaction,
    )
    target = f"{sent.broker_name}, queue {sent.queue_id}"
    problem = "" if sent.status == "SEND_OK" else sent.status
    return Done(outcomes=[TargetOutcome(target, not problem, problem)], result=sent)


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Change(
        path="/topics/{topic}/messages",
        summary="Send a test message",
        body=NewMessage,
        planner=_send,
        # A body may have megabytes, or what should not be in a log.
        is_secret=True,
    ),
)
