"""Checks before sending: what is refused, and that the message says why."""

from __future__ import annotations

import pytest

from kourou.client.core.message_checks import (
    check_body,
    check_group,
    check_message,
    check_topic,
    check_user_property,
    checked_properties,
)
from kourou.errors import KourouError, MessageRefusedError, NameRefusedError
from kourou.protocol.message import Message
from kourou.protocol.properties import MAX_SENT_PROPERTIES_BYTES


def refusal(check: object, *args: object, **options: object) -> str:
    assert callable(check)
    with pytest.raises(MessageRefusedError) as caught:
        check(*args, **options)
    assert isinstance(caught.value, KourouError)
    return str(caught.value)


def test_an_ordinary_message_passes() -> None:
    check_message(Message("Orders", b"x", tags="A", keys=["k"], properties={"a": "b"}))
    check_message(Message("Orders", b"x" * 10), max_message_bytes=10)


def test_topics_of_brokers_are_not_sent_to() -> None:
    said = refusal(check_message, Message("SCHEDULE_TOPIC_XXXX", b"x"))
    assert said == "topic 'SCHEDULE_TOPIC_XXXX' is written by brokers only; send to another topic"


def test_a_topic_that_was_changed_is_looked_at_again() -> None:
    message = Message("Orders", b"x")
    message.topic = "a b"
    assert "contains ' '" in refusal(check_message, message)
    message.topic = "t" * 128
    assert "at most 127" in refusal(check_message, message)
    message.topic = ""
    assert "the topic is blank" in refusal(check_message, message)


def test_bodies_have_bytes_and_a_limit() -> None:
    said = refusal(check_message, Message("Orders", b""))
    assert said == "topic 'Orders': the body is empty; a message has at least one byte"
    said = refusal(check_message, Message("Orders", b"x" * 11), max_message_bytes=10)
    assert "topic 'Orders': the body has 11 bytes; at most 10 are allowed; split it" in said
    check_body("Orders", bytes(4 << 20))
    assert "at most 4194304" in refusal(check_body, "Orders", bytes((4 << 20) + 1))


def test_only_messages_are_sent() -> None:
    with pytest.raises(TypeError, match=r"send takes a Message, not str: Message\(topic, body\)"):
        check_message("hello")  # type: ignore[arg-type]


def test_topics_and_groups() -> None:
    check_topic("Orders")
    check_topic("TBW102")
    with pytest.raises(NameRefusedError, match="contains '.'"):
        check_topic("a.b")
    check_group("billing")
    for group, words in (
        ("DEFAULT_PRODUCER", "choose a name of your own"),
        ("a/b", "group 'a/b' contains '/'"),
        ("g" * 121, "at most 120"),
    ):
        with pytest.raises(NameRefusedError, match=words):
            check_group(group)


def test_properties_of_the_application() -> None:
    check_user_property("colour", "red")
    assert "reserved by RocketMQ" in refusal(check_user_property, "KEYS", "x")
    assert "blank" in refusal(check_user_property, "colour", " ")
    assert "separate properties" in refusal(check_user_property, "colour", "a\x01b")


def test_separators_hidden_in_tags_or_keys_are_refused() -> None:
    said = refusal(checked_properties, Message("Orders", b"x", tags="a\x02b"))
    assert "topic 'Orders': property 'TAGS' with value 'a\\x02b' contains" in said
    assert "encode the value first" in said


def test_properties_leave_room_for_what_brokers_add() -> None:
    # One name character, two separators.
    fits = Message("Orders", b"x", properties={"a": "v" * (MAX_SENT_PROPERTIES_BYTES - 3)})
    assert len(checked_properties(fits)) == MAX_SENT_PROPERTIES_BYTES
    over = Message("Orders", b"x", properties={"a": "v" * (MAX_SENT_PROPERTIES_BYTES - 2)})
    assert refusal(checked_properties, over) == (
        "topic 'Orders': the properties have 31744 bytes in all; at most 31743 are allowed; "
        "put large values into the body"
    )
    wide = Message("Orders", b"x", properties={"a": "主" * 10_581})
    assert "the properties have 31746 bytes" in refusal(checked_properties, wide)
    assert checked_properties(Message("Orders", b"x", tags="A")) == "TAGS\x01A\x02"
