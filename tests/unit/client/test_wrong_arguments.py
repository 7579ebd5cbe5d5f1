"""What a program gives wrongly is told at once, by the name that it gave."""

from __future__ import annotations

from typing import Any

import pytest

from kourou import AsyncLitePullConsumer, AsyncProducer, AsyncPushConsumer, Message
from kourou.client.namespaces import Namespace
from kourou.client.queue_choice import QueueChoice
from kourou.errors import KourouError, MessageRefusedError
from kourou.protocol.bodies import MessageQueue


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AsyncProducer("g", send_timout_ms=1), "of a producer; did you mean send_timeout_ms"),
        (lambda: AsyncPushConsumer("g", concurency=1), "of a push consumer; did you mean concurrency"),
        (lambda: AsyncLitePullConsumer("g", autocommit=True), "lite pull consumer; did you mean auto_commit"),
        (lambda: AsyncProducer("g", credentials=("a", "b")), "credentials are Credentials"),
        (lambda: AsyncProducer("g", compression="zstd"), "compression is a CompressionType"),
        (lambda: Message(None, b"x"), "a topic is text, not NoneType"),
        (lambda: Message("T", b"x", tags=["a"]), "tags is text, not list"),
        (lambda: Message("T", b"x", keys=[1]), "a key is text, not int"),
        (lambda: Message("T", b"x", properties={"a": 1}), "the value of property 'a' is text, not int"),
        (lambda: Message("T", b"x", properties={1: "a"}), "the name of a property is text, not int"),
    ],
)  # fmt: skip
def test_a_wrong_type_or_name_is_a_type_error(make: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Message("a b", b"x"), "topic 'a b'"),
        (lambda: Message("T", b"x", properties={"a": "\ud800"}), "cannot be written as UTF-8"),
        (lambda: Message("T", b"x", tags="\ud800"), "cannot be written as UTF-8"),
        (lambda: Message("T", b"x", keys=["a b"]), "contains a blank"),
    ],
)  # fmt: skip
def test_a_message_that_no_broker_takes_is_refused(make: Any, words: str) -> None:
    with pytest.raises(MessageRefusedError, match=words) as caught:
        make()
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, KourouError)


def test_levels_of_compression_are_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="of ZLIB it is from 0 to 9"):
        AsyncProducer("g", compress_level=10)


def test_a_queue_below_zero_is_none() -> None:
    with pytest.raises(ValueError, match="has the number -1"):
        QueueChoice(Namespace(""))(Message("T", b"x"), queue=MessageQueue("T", "broker-a", -1))


def test_a_producer_shows_its_group() -> None:
    assert repr(AsyncProducer("orders")) == "AsyncProducer('orders', not started)"
