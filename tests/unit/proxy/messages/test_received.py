"""Stored messages as gRPC clients get them, from producers of all kinds."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.compression import CompressionType, compress
from kourou.protocol.layout import MESSAGE_MAGIC_CODE
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import encode_host
from kourou.protocol.properties import decode_properties, encode_properties
from kourou.protocol.record import decode_record, encode_record
from kourou.proxy.messages.limits import MessageLimits
from kourou.proxy.messages.published import publish
from kourou.proxy.messages.received import fill_message
from kourou.proxy.wire.rocketmq_v2 import (
    DigestType,
    Duration,
    Encoding,
    Message,
    MessageType,
    SystemProperties,
    Timestamp,
)

BORN_MS = 1_700_000_000_123


def stored(
    properties: dict[str, str] | str | None = None, body: bytes = b"body", sys_flag: int = 0, **fields: Any
) -> MessageExt:
    """A message as a consumer decodes it from a record."""
    text = properties if isinstance(properties, str) else encode_properties(properties or {})
    known: dict[str, Any] = {
        "store_size": 0,
        "magic": MESSAGE_MAGIC_CODE,
        "body_crc": 0,
        "queue_id": 3,
        "flag": 0,
        "queue_offset": 41,
        "phy_offset": 4096,
        "sys_flag": sys_flag,
        "born_timestamp": BORN_MS,
        "raw_born_host": encode_host("10.0.0.7", 4000),
        "store_timestamp": BORN_MS + 2,
        "raw_store_host": encode_host("10.0.0.1", 10911),
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "stored_body": body,
        "topic": "orders",
        "raw_properties": text.encode(),
    }
    return decode_record(encode_record(MessageExt(**known | fields)))


def received(message: MessageExt, handle: str = "") -> Message:
    target = Message()
    fill_message(target, message, handle)
    # What is sent is bytes: what cannot be serialised fails here.
    return Message.FromString(target.SerializeToString())


def test_a_message_of_a_remoting_producer() -> None:
    message = received(
        stored(
            {
                "TAGS": "paid",
                "KEYS": "a b",
                "UNIQ_KEY": "7F00",
                "WAIT": "true",
                "CLUSTER": "c",
                "shop": "7",
                "__SHARDINGKEY": "g",
                "__KOUROU_SEQ": "x",
                "ORIGIN_GROUP": "g",
                "_SYS_MSG_PRIORITY_": "2",
            },
            reconsume_times=2,
        ),
        "handle",
    )
    system = message.system_properties
    assert (message.topic.name, message.topic.resource_namespace, message.body) == ("orders", "", b"body")
    # As Apache's proxy shows it: the sharding key is both.
    assert dict(message.user_properties) == {"shop": "7", "__SHARDINGKEY": "g"}
    assert (system.tag, list(system.keys), system.message_id) == ("paid", ["a", "b"], "7F00")
    assert (system.message_type, system.message_group, system.priority) == (MessageType.FIFO, "g", 2)
    assert (system.body_digest.type, system.body_encoding) == (DigestType.MD5, Encoding.IDENTITY)
    assert system.body_digest.checksum == hashlib.md5(b"body").hexdigest().upper()
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (3, 41, 3)
    assert (system.born_host, system.store_host) == ("10.0.0.7", "10.0.0.1:10911")
    assert (system.born_timestamp.seconds, system.born_timestamp.nanos) == (1_700_000_000, 123_000_000)
    assert system.store_timestamp.nanos == 125_000_000
    assert system.receipt_handle == "handle"
    assert not system.HasField("delivery_timestamp")


def test_the_attempts_of_a_message_stay_within_the_wire_type() -> None:
    message = received(stored(reconsume_times=2**31 - 1))
    assert message.system_properties.delivery_attempt == 2**31 - 1


def test_a_message_without_anything() -> None:
    system = received(stored()).system_properties
    assert system.message_id == stored().offset_msg_id
    assert system.message_type == MessageType.NORMAL
    for name in ("tag", "message_group", "trace_context", "dead_letter_queue", "priority", "receipt_handle"):
        assert not system.HasField(name)  # type: ignore[arg-type]
    assert not system.keys


@pytest.mark.parametrize(
    ("kind", "sys_flag"),
    [*((kind, kind.sys_flag) for kind in CompressionType), (CompressionType.ZLIB, 1)],
)
def test_compressed_bodies_are_inflated(kind: CompressionType, sys_flag: int) -> None:
    body = b"text " * 200
    message = received(stored({}, compress(body, kind), sys_flag))
    system = message.system_properties
    assert (message.body, system.body_encoding) == (body, Encoding.IDENTITY)
    assert system.body_digest.checksum == hashlib.md5(body).hexdigest().upper()


def test_a_body_that_does_not_inflate_is_sent_as_it_is() -> None:
    damaged = zlib.compress(b"text" * 99)[:-20]
    message = received(stored({}, damaged, 1))
    assert (message.body, message.system_properties.body_encoding) == (damaged, Encoding.GZIP)


def test_a_dead_letter() -> None:
    system = received(
        stored({"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "7F00"})
    ).system_properties
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == ("orders", "7F00")


@pytest.mark.parametrize(
    ("properties", "deliver_ms"),
    [
        ({"TIMER_DELIVER_MS": "1700000005000"}, 1_700_000_005_000),
        ({"TIMER_DELAY_SEC": "5"}, BORN_MS + 5_000),
        ({"TIMER_DELAY_MS": "5"}, BORN_MS + 5),
        ({"TIMER_DELIVER_MS": "9" * 20}, None),
        ({"TIMER_DELIVER_MS": "-5"}, None),
        ({"TIMER_DELAY_SEC": "9" * 15}, None),
        ({"DELAY": "3"}, None),
    ],
)
def test_delayed_messages(properties: dict[str, str], deliver_ms: int | None) -> None:
    system = received(stored(properties)).system_properties
    assert system.message_type == MessageType.DELAY
    if deliver_ms is None:
        assert not system.HasField("delivery_timestamp")
    else:
        time = system.delivery_timestamp
        assert time.seconds * 1000 + time.nanos // 1_000_000 == deliver_ms


def test_hosts_of_ipv6_have_no_brackets() -> None:
    message = stored(raw_born_host=encode_host("fe80::1", 4000), sys_flag=0x10)
    assert received(message).system_properties.born_host == "fe80::1"


@given(properties=st.binary(max_size=200), born_ms=st.integers(-(2**63), 2**63 - 1))
def test_any_stored_properties_can_be_sent(properties: bytes, born_ms: int) -> None:
    message = stored(born_timestamp=born_ms)
    message.raw_properties = properties
    received(message)


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
names = words.filter(lambda name: bool(name.strip()) and name.isidentifier() and not name.isupper())
tags = words.filter(lambda tag: bool(tag.strip()) and "|" not in tag)
keys = words.filter(lambda key: " " not in key and bool(key.strip()))
times = st.builds(
    Timestamp, seconds=st.integers(1, 4_000_000_000), nanos=st.integers(0, 999).map(lambda ms: ms * 1_000_000)
)


@given(
    user=st.dictionaries(names, words, max_size=4),
    tag=st.none() | tags,
    keys=st.lists(keys, max_size=3),
    group=st.none() | tags,
    trace=st.none() | words,
    priority=st.none() | st.integers(0, 2**31 - 1),
    deliver=st.none() | times,
    born=times,
    is_transaction=st.booleans(),
    body=st.binary(min_size=1, max_size=100),
)
def test_what_a_grpc_producer_sends_a_grpc_consumer_gets(
    user: dict[str, str],
    tag: str | None,
    keys: list[str],
    group: str | None,
    trace: str | None,
    priority: int | None,
    deliver: Timestamp | None,
    born: Timestamp,
    is_transaction: bool,
    body: bytes,
) -> None:
    sent = Message(
        user_properties=user,
        system_properties=SystemProperties(
            tag=tag,
            keys=keys,
            message_id="01AA",
            message_group=group,
            trace_context=trace,
            priority=priority,
            delivery_timestamp=deliver,
            born_timestamp=born,
            born_host="shop-1",
            message_type=MessageType.TRANSACTION if is_transaction else MessageType.NORMAL,
            orphaned_transaction_recovery_duration=Duration(seconds=30),
        ),
        body=body,
    )
    limits = MessageLimits(max_delay_ms=0)
    message = publish(sent, "orders", limits=limits, now_ms=BORN_MS, peer="p:1")
    got = received(stored(message.properties, message.body, message.sys_flag, born_timestamp=message.born_ms))
    system = got.system_properties
    hidden = {"__SHARDINGKEY", "TRACE_CONTEXT", "CHECK_IMMUNITY_TIME_IN_SECONDS"}
    assert {name: value for name, value in got.user_properties.items() if name not in hidden} == user
    assert (system.tag, list(system.keys), got.body) == (tag or "", keys, body)
    assert (system.message_group, system.trace_context) == (group or "", trace or "")
    assert (system.priority if system.HasField("priority") else None) == priority
    assert (system.delivery_timestamp if system.HasField("delivery_timestamp") else None) == deliver
    assert (system.born_timestamp, system.born_host, system.message_id) == (born, "shop-1", "01AA")
    assert system.message_type == message.kind
    # And for consumers of remoting the properties have their usual names.
    assert decode_properties(message.properties).get("TAGS") == tag
