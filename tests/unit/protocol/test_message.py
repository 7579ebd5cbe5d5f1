"""Message and MessageExt as applications use them."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from kourou.errors import MessageRefusedError, ProtocolError
from kourou.protocol.layout import MESSAGE_MAGIC_CODE
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.message_id import encode_host


def stored(body: bytes = b"hello", properties: bytes = b"", **fields: Any) -> MessageExt:
    values: dict[str, Any] = {
        "store_size": 0,
        "magic": MESSAGE_MAGIC_CODE,
        "body_crc": 0,
        "queue_id": 2,
        "flag": 0,
        "queue_offset": 7,
        "phy_offset": 895298,
        "sys_flag": 0,
        "born_timestamp": 1,
        "raw_born_host": encode_host("10.0.0.9", 47834),
        "store_timestamp": 2,
        "raw_store_host": encode_host("127.0.0.1", 10911),
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "stored_body": body,
        "topic": "TopicTest",
        "raw_properties": properties,
    }
    return MessageExt(**values | fields)


def test_a_message_as_the_readme_shows_it() -> None:
    message = Message("TopicTest", b"hello", tags="TagA", keys=["order-1"])
    assert (message.topic, message.body, message.tags, message.keys) == (
        "TopicTest",
        b"hello",
        "TagA",
        ("order-1",),
    )
    assert message.encode_properties() == "TAGS\x01TagA\x02KEYS\x01order-1\x02"
    assert repr(message) == "Message('TopicTest', 5 bytes, tags='TagA', keys=('order-1',))"


def test_a_plain_message_has_no_properties() -> None:
    message = Message("TopicTest", b"")
    assert message.properties == {}
    assert (message.tags, message.keys, message.delay_time_level, message.flag) == (None, (), 0, 0)
    assert message.wait_store_msg_ok


def test_arguments_become_reserved_properties() -> None:
    message = Message("T", b"x", keys="a b", delay_time_level=3, wait_store_msg_ok=False, flag=9)
    assert message.properties == {"KEYS": "a b", "DELAY": "3", "WAIT": "false"}
    assert (message.keys, message.delay_time_level, message.wait_store_msg_ok) == (("a", "b"), 3, False)
    assert Message("T", b"x", delay_time_ms=1500).get_property("TIMER_DELAY_MS") == "1500"
    assert Message("T", b"x", deliver_time_ms=10**12).get_property("TIMER_DELIVER_MS") == "1000000000000"


def test_a_priority_is_a_number_from_zero() -> None:
    assert Message("T", b"x", priority=0).properties == {"_SYS_MSG_PRIORITY_": "0"}
    assert (Message("T", b"x", priority=7).priority, Message("T", b"x").priority) == (7, None)
    for wrong in (-1, 1 << 31):
        with pytest.raises(MessageRefusedError, match="from 0"):
            Message("T", b"x", priority=wrong)
    for no_number in (True, "3"):
        with pytest.raises(TypeError, match="priority must be an int"):
            Message("T", b"x", priority=no_number)  # type: ignore[arg-type]
    assert stored(properties=b"_SYS_MSG_PRIORITY_\x013\x02").priority == 3
    assert [stored(properties=b"_SYS_MSG_PRIORITY_\x01" + raw).priority for raw in (b"-1", b"x")] == [
        None
    ] * 2
    with pytest.raises(MessageRefusedError):
        Message("T", b"x", properties={"_SYS_MSG_PRIORITY_": "1"})


def test_properties_of_the_application() -> None:
    message = Message("T", b"x", properties={"color": "red"})
    message.put_user_property("size", "XL")
    message.put_property("UNIQ_KEY", "id")
    message.clear_property("color")
    message.clear_property("never there")
    assert message.properties == {"size": "XL", "UNIQ_KEY": "id"}
    with pytest.raises(TypeError):
        message.properties["size"] = "S"  # type: ignore[index]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"topic": "a b"}, "contains ' '"),
        ({"topic": ""}, "the topic is blank"),
        ({"properties": {"TAGS": "x"}}, "reserved by RocketMQ"),
        ({"properties": {"a": " "}}, "blank"),
        ({"properties": {"a": "\x01"}}, "x01"),
        ({"keys": ["a b"]}, "key 'a b' is empty or contains a blank"),
        ({"keys": [""]}, "key '' is empty"),
        ({"flag": 1 << 31}, "flag 2147483648 does not fit its 32 bits"),
        ({"delay_time_level": -1}, "cannot be delayed by -1"),
        ({"delay_time_level": 3, "delay_time_ms": 5}, "give one of delay_time_level"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_once(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Message(**{"topic": "T", "body": b"x"} | arguments)


def test_a_separator_in_tags_is_refused_before_the_wire() -> None:
    with pytest.raises(ValueError, match="separate properties"):
        Message("T", b"x", tags="a\x02b").encode_properties()


def test_bodies_are_bytes() -> None:
    buffer = bytearray(b"abc")
    message = Message("T", buffer)
    buffer[0] = 0
    assert message.body == b"abc"
    assert Message("T", memoryview(b"abc")).body == b"abc"
    with pytest.raises(TypeError, match=r"is bytes, not str; encode text first, for example body.encode\(\)"):
        Message("T", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is bytes, not int"):
        Message("T", 5)  # type: ignore[arg-type]


def test_messages_are_equal_by_content() -> None:
    assert Message("T", b"x", tags="a") == Message("T", b"x", tags="a")
    assert Message("T", b"x", tags="a") != Message("T", b"x", tags="b")
    assert Message("T", b"x") != "T"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Message("T", b"x"))


def test_a_stored_message_parses_its_properties_when_asked() -> None:
    message = stored(properties="UNIQ_KEY\x01ab\x02KEYS\x01k1  k2\x02TAGS\x01红".encode())
    assert message._properties is None
    assert (message.tags, message.keys, message.msg_id) == ("红", ("k1", "k2"), "ab")
    message.properties["MIN_OFFSET"] = "0"
    assert message.get_property("MIN_OFFSET") == "0"


def test_ids_and_hosts_of_a_stored_message() -> None:
    message = stored()
    assert message.offset_msg_id == "7F00000100002A9F00000000000DA942"
    assert message.msg_id == message.offset_msg_id
    assert (message.born_host, message.store_host) == ("10.0.0.9:47834", "127.0.0.1:10911")


def test_a_compressed_body_is_inflated_once() -> None:
    message = stored(body=zlib.compress(b"x" * 5000), sys_flag=0x301)
    assert message.body == b"x" * 5000
    assert message.body is message.body
    with pytest.raises(ProtocolError, match="limit of 100 bytes"):
        message.inflate(max_body_bytes=100)
    with pytest.raises(ProtocolError, match="not a zlib stream"):
        stored(body=b"damaged", sys_flag=1).body  # noqa: B018


def test_transaction_fields() -> None:
    committed = stored(properties=b"TRAN_MSG\x01true\x02UNIQ_KEY\x01ab\x02", sys_flag=8)
    assert (committed.transaction_type, committed.transaction_id) == (8, "ab")
    assert (stored().transaction_type, stored().transaction_id) == (0, None)


def test_a_stored_message_is_shown_briefly() -> None:
    message = stored(body=b"x" * 10_000, properties=b"UNIQ_KEY\x01ab\x02TAGS\x01TagA")
    assert repr(message) == (
        "MessageExt('TopicTest', 10000 bytes, queue_id=2, queue_offset=7, msg_id='ab', tags='TagA')"
    )
