"""Messages of gRPC producers: what is refused, with which code, and what brokers get of the others."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.compression import inflate_body
from kourou.protocol.properties import decode_properties
from kourou.proxy.messages.limits import MessageLimits
from kourou.proxy.messages.message_types import type_of_properties
from kourou.proxy.messages.published import Published, publish
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    Duration,
    Encoding,
    Message,
    MessageType,
    SystemProperties,
    Timestamp,
)

NOW_MS = 1_700_000_000_000
DAY_S = 86_400


def published(
    body: bytes = b"body",
    user: dict[str, str] | None = None,
    limits: MessageLimits | None = None,
    message_id: str = "01AA",
    **system: Any,
) -> Published:
    message = Message(
        user_properties=user,
        system_properties=SystemProperties(message_id=message_id, **system),
        body=body,
    )
    return publish(message, "orders", limits=limits or MessageLimits(), now_ms=NOW_MS, peer="10.0.0.1:5000")


def at(seconds: int) -> Timestamp:
    return Timestamp(seconds=NOW_MS // 1000 + seconds)


REFUSED: list[tuple[Code, dict[str, Any]]] = [
    (Code.MESSAGE_BODY_EMPTY, {"body": b""}),
    (Code.MESSAGE_BODY_TOO_LARGE, {"body": b"x" * (4 * 1024 * 1024 + 1)}),
    (Code.ILLEGAL_MESSAGE_ID, {"message_id": " "}),
    (Code.ILLEGAL_MESSAGE_ID, {"message_id": "a\x02b"}),
    (Code.MESSAGE_PROPERTIES_TOO_LARGE, {"user": {str(number): "v" for number in range(129)}}),
    (Code.MESSAGE_PROPERTIES_TOO_LARGE, {"user": {"name": "ü" * 8192}}),
    (Code.MESSAGE_PROPERTIES_TOO_LARGE, {"keys": ["k" * 8192] * 2, "tag": "t"}),
    (Code.MESSAGE_PROPERTIES_TOO_LARGE, {"keys": [""] * 20_000}),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"user": {"UNIQ_KEY": "1"}}),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"user": {"__LITE_TOPIC": "1"}}),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"user": {"a\x01b": "1"}}),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"user": {"a": "line\nline"}}),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"user": {"a": "\x85"}}),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"user": {"": "value"}}),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, {"trace_context": "a\x02TAGS\x01b"}),
    (Code.ILLEGAL_MESSAGE_TAG, {"tag": "  "}),
    (Code.ILLEGAL_MESSAGE_TAG, {"tag": "a|b"}),
    (Code.ILLEGAL_MESSAGE_TAG, {"tag": "a\tb"}),
    (Code.ILLEGAL_MESSAGE_KEY, {"keys": ["a", " "]}),
    (Code.ILLEGAL_MESSAGE_KEY, {"keys": ["a\x7f"]}),
    (Code.ILLEGAL_MESSAGE_GROUP, {"message_group": "g" * 64}),
    (Code.ILLEGAL_MESSAGE_GROUP, {"message_group": "\t"}),
    (Code.ILLEGAL_DELIVERY_TIME, {"delivery_timestamp": at(DAY_S + 1)}),
    (Code.ILLEGAL_DELIVERY_TIME, {"delivery_timestamp": Timestamp(seconds=-1)}),
    (
        Code.BAD_REQUEST,
        {
            "message_type": MessageType.TRANSACTION,
            "orphaned_transaction_recovery_duration": Duration(seconds=3601),
        },
    ),
    (Code.BAD_REQUEST, {"priority": -1}),
    (Code.UNSUPPORTED, {"lite_topic": "l"}),
    (Code.MESSAGE_CORRUPTED, {"body_encoding": Encoding.GZIP, "body": b"plain text"}),
    (Code.MESSAGE_CORRUPTED, {"body_encoding": Encoding.GZIP, "body": gzip.compress(b"x" * 999)[:-9]}),
    (Code.MESSAGE_CORRUPTED, {"body_encoding": Encoding.GZIP, "body": gzip.compress(b"x")[:10]}),
    (Code.MESSAGE_CORRUPTED, {"body_encoding": Encoding.GZIP, "body": gzip.compress(b"x") * 2}),
    (Code.MESSAGE_CORRUPTED, {"body_encoding": Encoding.GZIP, "body": b"\x1f\x8b\x08" + b"\x10" + b"x" * 9}),
]


@pytest.mark.parametrize(("code", "message"), REFUSED)
def test_refused(code: Code, message: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as refused:
        published(**message)
    assert refused.value.code == code


def test_limits_can_be_switched_off() -> None:
    limits = MessageLimits(
        max_body_bytes=0,
        refuses_empty_bodies=False,
        max_user_properties=0,
        max_user_property_bytes=0,
        max_message_group_bytes=0,
        max_delay_ms=0,
        max_recovery_s=0,
    )
    published(
        b"",
        {f"{number:050}": "v" * 50 for number in range(200)},
        limits,
        message_group="g" * 200,
        delivery_timestamp=at(99 * DAY_S),
        message_type=MessageType.TRANSACTION,
        orphaned_transaction_recovery_duration=Duration(seconds=99_999),
    )


def test_no_record_has_room_for_more_than_32_kib_of_properties() -> None:
    with pytest.raises(StatusError) as refused:
        published(trace_context="ü" * 16_000)
    assert refused.value.code == Code.MESSAGE_PROPERTIES_TOO_LARGE


def test_properties_of_all_kinds() -> None:
    message = published(
        user={"shop": "7", "__STARTDELIVERTIME": "1"},
        tag="paid",
        keys=["a", "b"],
        born_timestamp=Timestamp(seconds=1_600_000_000, nanos=7_000_000),
        born_host="shop-1",
        delivery_attempt=2,
        trace_context="00-ab-cd-01",
        priority=3,
    )
    assert decode_properties(message.properties) == {
        "UNIQ_KEY": "01AA",
        "shop": "7",
        "__STARTDELIVERTIME": "1",
        "TAGS": "paid",
        "KEYS": "a b",
        "BORN_TIMESTAMP": "1600000000007",
        "__BORNHOST": "shop-1",
        "PGROUP": "orders",
        "RECONSUME_TIME": "2",
        "TRACE_CONTEXT": "00-ab-cd-01",
        "_SYS_MSG_PRIORITY_": "3",
    }
    assert (message.kind, message.sys_flag, message.born_ms) == (MessageType.PRIORITY, 0, 1_600_000_000_007)
    assert message.message_id == "01AA"


def test_what_the_client_leaves_out() -> None:
    message = published()
    assert decode_properties(message.properties) == {
        "UNIQ_KEY": "01AA",
        "__BORNHOST": "10.0.0.1:5000",
        "PGROUP": "orders",
    }
    assert (message.kind, message.born_ms) == (MessageType.NORMAL, NOW_MS)


def test_fifo() -> None:
    message = published(message_group="order-7", priority=1)
    assert (message.kind, message.message_group) == (MessageType.FIFO, "order-7")
    assert decode_properties(message.properties)["__SHARDINGKEY"] == "order-7"


def test_a_sharding_key_among_the_user_properties_makes_a_message_fifo() -> None:
    assert published(user={"__SHARDINGKEY": "g"}, priority=1).kind == MessageType.FIFO


def test_delay() -> None:
    message = published(delivery_timestamp=at(DAY_S), message_group="g")
    assert message.kind == MessageType.DELAY
    assert decode_properties(message.properties)["TIMER_DELIVER_MS"] == str(NOW_MS + DAY_S * 1000)


def test_a_time_that_is_over_is_allowed() -> None:
    assert published(delivery_timestamp=at(-5)).kind == MessageType.DELAY


def test_transaction() -> None:
    message = published(
        message_type=MessageType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=30)
    )
    properties = decode_properties(message.properties)
    assert (message.kind, message.sys_flag) == (MessageType.TRANSACTION, 4)
    assert (properties["TRAN_MSG"], properties["CHECK_IMMUNITY_TIME_IN_SECONDS"]) == ("true", "30")


@given(body=st.binary(min_size=1, max_size=2_000), level=st.integers(0, 9))
def test_compressed_bodies_are_read_by_all_consumers(body: bytes, level: int) -> None:
    # The C++ client labels zlib as GZIP, others mean what they say.
    for stream in (zlib.compress(body, level), gzip.compress(body, level)):
        message = published(stream, body_encoding=Encoding.GZIP)
        assert message.sys_flag == 1
        assert inflate_body(message.body, message.sys_flag) == body


def test_a_gzip_header_with_all_its_fields() -> None:
    extra, name, comment, checksum = b"\x02\0ab", b"name\0", b"comment\0", b"\0\0"
    plain = gzip.compress(b"text", mtime=0)
    stream = (
        plain[:3] + bytes([2 | 4 | 8 | 16]) + plain[4:10] + extra + name + comment + checksum + plain[10:]
    )
    assert inflate_body(published(stream, body_encoding=Encoding.GZIP).body, 1) == b"text"


def test_a_body_that_inflates_to_gigabytes_is_refused_early() -> None:
    bomb = gzip.compress(bytes(65 * 1024 * 1024), 9)
    with pytest.raises(StatusError, match="inflates to more than"):
        published(bomb, body_encoding=Encoding.GZIP)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["\x01", "\x02", "a|b", " "]
)
int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
wild_times = st.builds(Timestamp, seconds=int64s, nanos=int32s)


@given(
    system=st.fixed_dictionaries(
        {"message_id": texts},
        optional={
            "tag": texts,
            "keys": st.lists(texts, max_size=3),
            "body_encoding": int32s,
            "message_type": st.integers(0, 9) | int32s,
            "born_timestamp": wild_times,
            "born_host": texts,
            "delivery_timestamp": wild_times,
            "delivery_attempt": int32s,
            "message_group": texts,
            "trace_context": texts,
            "orphaned_transaction_recovery_duration": st.builds(Duration, seconds=int64s, nanos=int32s),
            "priority": int32s,
        },
    ),
    user=st.dictionaries(texts | st.just("__SHARDINGKEY"), texts, max_size=3),
    body=st.binary(max_size=5),
)
def test_any_message_is_refused_with_a_status_or_can_be_stored(
    system: dict[str, Any], user: dict[str, str], body: bytes
) -> None:
    try:
        message = published(body, user, limits=MessageLimits(max_delay_ms=0), **system)
    except StatusError as error:
        assert error.code != Code.INTERNAL_SERVER_ERROR and error.words
        return
    properties = decode_properties(message.properties)
    assert properties["UNIQ_KEY"] == message.message_id == system["message_id"]
    if "message_group" not in system:
        assert {name: properties.get(name, "") for name in user} == user
    assert properties.get("TAGS", "") == system.get("tag", "")
    assert -(2**63) <= message.born_ms < 2**63
    if "" not in user.values():  # a property without a value is none to those who read it
        assert message.kind is type_of_properties(properties)
