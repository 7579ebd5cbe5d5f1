"""Wrong arguments are reported at once, by the name that the program used."""

from __future__ import annotations

import inspect
import time
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import PurePath
from typing import Any

import pytest

from kourou import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    Credentials,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    QueueReader,
    TransactionProducer,
)
from kourou.client.core.namespaces import Namespace
from kourou.client.producer.queue_choice import QueueChoice
from kourou.errors import ClientStateError, KourouError, MessageRefusedError, NameRefusedError
from kourou.protocol.bodies import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)
CHOICE = QueueChoice(Namespace(""))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AsyncProducer("g", send_timout_ms=1), "of a producer; did you mean send_timeout_ms"),
        (lambda: AsyncPushConsumer("g", concurency=1), "of a push consumer; did you mean concurrency"),
        (lambda: AsyncLitePullConsumer("g", autocommit=True), "lite pull consumer; did you mean auto_commit"),
        (lambda: Producer("g", retryTimesWhenSendFailed=3), "of a producer; did you mean retry_times\\?$"),
        (lambda: PushConsumer("g", consumeThreadMax=3), "of a push consumer; did you mean concurrency\\?$"),
        (
            lambda: PullConsumer("g", suspend=3),
            "^'suspend' is not an option of a pull consumer; did you mean suspend_ms",
        ),
        (lambda: Producer("g", zzz=3), "^'zzz' is not an option of a producer; docs/client-options.md lists"),
        (lambda: Producer("g").send(None, timeout=5), r"^Producer.send\(\) got an unexpected keyword"),
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
        (
            lambda: Message("T", b"x", tags="a || b"),
            r"^tags='a \|\| b': a message has one tag; \|\| and \* are for expressions that select tags$",
        ),
        (lambda: Message("T", b"x", tags="*"), r"^tags='\*': a message has one tag"),
    ],
)  # fmt: skip
def test_a_message_that_no_broker_takes_is_refused(make: Any, words: str) -> None:
    with pytest.raises(MessageRefusedError, match=words) as caught:
        make()
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, KourouError)


def test_levels_of_compression_are_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="for ZLIB it is from 0 to 9"):
        AsyncProducer("g", compress_level=10)


def test_a_queue_below_zero_is_none() -> None:
    with pytest.raises(ValueError, match="queue_id is -1"):
        QueueChoice(Namespace(""))(Message("T", b"x"), queue=MessageQueue("T", "broker-a", -1))


def test_a_producer_shows_its_group() -> None:
    assert repr(AsyncProducer("orders")) == "AsyncProducer('orders', not started)"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Producer("p", send_timeout_ms="3000"), "send_timeout_ms must be an int, not str ('3000')"),
        (lambda: Producer("p", send_timeout_ms=True), "send_timeout_ms must be an int, not bool (True)"),
        (lambda: Producer("p", send_timeout_ms=2.5), "send_timeout_ms must be an int, not float (2.5)"),
        (lambda: Producer("p", send_timeout_ms=None), "send_timeout_ms must be an int, not None"),
        (
            lambda: Producer("p", attempt_timeout_ms="1"),
            "attempt_timeout_ms must be an int or None, not str ('1')",
        ),
        (lambda: Producer("p", trace="no"), "trace must be a bool, not str ('no')"),
        (lambda: Producer("p", tls="yes"), "tls must be a bool or a ClientTlsConfig, not str ('yes')"),
        (lambda: Producer("p", namesrv=9876), "namesrv must be a str, a list of str or None, not int (9876)"),
        (
            lambda: Producer("p", namesrv=["a:1", 2]),
            "namesrv must be a str, a list of str or None, not list (['a:1', 2])",
        ),
        (lambda: Producer("p", config_file=1), "config_file must be a str, a Path or None, not int (1)"),
        (lambda: Producer("p", create_topic_key=1), "create_topic_key must be a str, not int (1)"),
        (lambda: Producer(None), "group must be a str, not None"),
        (lambda: PushConsumer("c", concurrency="5"), "concurrency must be an int, not str ('5')"),
        (lambda: PushConsumer("c", batch_size="10"), "batch_size must be an int, not str ('10')"),
        (lambda: PushConsumer("c", orderly="yes"), "orderly must be a bool, not str ('yes')"),
        (lambda: PushConsumer(7), "group must be a str, not int (7)"),
        (lambda: LitePullConsumer("c", auto_commit=1), "auto_commit must be a bool, not int (1)"),
        (lambda: LitePullConsumer("c", suspend_ms="1"), "suspend_ms must be an int, not str ('1')"),
        (lambda: PullConsumer("c", suspend_ms="1"), "suspend_ms must be an int, not str ('1')"),
        (lambda: PullConsumer(None), "group must be a str, not None"),
        (
            lambda: TransactionProducer("p", check=print, check_concurrency="1"),
            "check_concurrency must be an int, not str ('1')",
        ),
        (lambda: QueueReader("T"), "queue must be a MessageQueue, not str ('T')"),
        (lambda: QueueReader(QUEUE, begin_offset="0"), "begin_offset must be an int, not str ('0')"),
        (lambda: Credentials("ak", 5), "secret_key must be a str, not int"),
        (lambda: Message("T", b"x", delay_time_level="2"), "delay_time_level must be an int, not str ('2')"),
        (
            lambda: Message("T", b"x", delay_time_level=2.0),
            "delay_time_level must be an int, not float (2.0)",
        ),
        (lambda: Message("T", b"x", delay_time_ms=1.5), "delay_time_ms must be an int, not float (1.5)"),
        (
            lambda: Message("T", b"x", deliver_time_ms="9"),
            "deliver_time_ms must be an int or a datetime, not str ('9')",
        ),
        (lambda: Message("T", b"x", flag="1"), "flag must be an int, not str ('1')"),
        (lambda: Message("T", b"x", properties=["a"]), "properties must be a dict, not list (['a'])"),
        (lambda: Message("T", b"x", keys=None), "keys must be a str or a list of str, not None"),
        (
            lambda: Message("T", b"x", wait_store_msg_ok="no"),
            "wait_store_msg_ok must be a bool, not str ('no')",
        ),
        (
            lambda: PushConsumer("c").subscribe(["A", "B"], print),
            "topic must be a str, not list (['A', 'B'])",
        ),
        (lambda: LitePullConsumer("c").subscribe("A", 5), "expression must be a str, not int (5)"),
        (lambda: LitePullConsumer("c").assign([1]), "queue must be a MessageQueue, not int (1)"),
        (lambda: CHOICE(Message("T", b"x"), queue=1), "queue must be a MessageQueue, not int (1)"),
        (lambda: CHOICE(Message("T", b"x"), selector=1)([QUEUE]), "selector must be a function, not int (1)"),
        (lambda: CHOICE(Message("T", b"x"), sharding_key=1), "sharding_key must be a str, not int (1)"),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_by_its_name(make: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value) == text


NOT_STARTED = "this client is not started; use it in a `with` block, or call start()"
ASYNC_NOT_STARTED = "this client is not started; use it in an `async with` block, or call `await start()`"


async def test_a_client_that_is_not_started_says_how_its_kind_is_started() -> None:
    async def error_of(call: Any) -> str:
        with pytest.raises(ClientStateError) as caught:
            result = call()
            if inspect.isawaitable(result):
                await result
        return str(caught.value)

    message = Message("T", b"x")
    for call in (
        lambda: AsyncProducer("g").send(message),
        AsyncProducer("g").stats,
        AsyncPushConsumer("g").wait,
        AsyncLitePullConsumer("g").poll,
        lambda: AsyncPullConsumer("g").fetch_queues("T"),
    ):
        assert await error_of(call) == ASYNC_NOT_STARTED
    for call in (
        lambda: Producer("g").send(message),
        Producer("g").stats,
        LitePullConsumer("g").poll,
        lambda: LitePullConsumer("g").position(QUEUE),
        lambda: PullConsumer("g").fetch_queues("T"),
    ):
        assert await error_of(call) == NOT_STARTED


class _OwnProducer(AsyncProducer):
    pass


@pytest.mark.parametrize(
    ("client", "text"),
    [
        (AsyncProducer("g"), "use AsyncProducer in an `async with` block; `with` is for Producer"),
        (_OwnProducer("g"), "use AsyncProducer in an `async with` block; `with` is for Producer"),
        (
            AsyncLitePullConsumer("g"),
            "use AsyncLitePullConsumer in an `async with` block; `with` is for LitePullConsumer",
        ),
        (QueueReader(QUEUE), "use QueueReader in an `async with` block"),
    ],
)
def test_a_with_block_of_an_asyncio_client_says_what_to_use(client: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        with client:
            pass
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("client", "text"),
    [
        (Producer("g"), "use Producer in a `with` block; `async with` is for AsyncProducer"),
        (PushConsumer("g"), "use PushConsumer in a `with` block; `async with` is for AsyncPushConsumer"),
    ],
)
async def test_an_async_with_block_of_a_plain_client_says_what_to_use(client: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        async with client:
            pass
    assert str(caught.value) == text


class _Level(IntEnum):
    FEW = 2


def test_numbers_and_paths_of_other_types_are_taken() -> None:
    producer = AsyncProducer("p", retry_times=_Level.FEW, config_file=PurePath("client.properties"))
    assert producer.options.retry_times == 2
    assert Message("T", b"x", delay_time_level=_Level.FEW).delay_time_level == 2
    assert AsyncProducer("p", namesrv=("a:1", "b:1")).group == "p"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"queue": QUEUE, "queue_offset": "a"}, "queue_offset must be an int, not str ('a')"),
        (
            {"queue": QUEUE, "queue_offset": 0, "max_messages": 1.5},
            "max_messages must be an int, not float (1.5)",
        ),
        ({"queue": "Greetings", "queue_offset": 0}, "queue must be a MessageQueue, not str ('Greetings')"),
    ],
)
async def test_a_pull_with_a_wrong_argument_names_it(arguments: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        await AsyncPullConsumer("c").pull(**arguments)
    assert str(caught.value) == text


def test_a_time_of_delivery_in_seconds_is_refused_and_a_datetime_is_taken() -> None:
    when = datetime(2030, 1, 1, tzinfo=UTC)
    message = Message("T", b"x", deliver_time_ms=when)
    assert message.get_property("TIMER_DELIVER_MS") == "1893456000000"
    with pytest.raises(MessageRefusedError) as caught:
        Message("T", b"x", deliver_time_ms=1893456000)
    assert str(caught.value) == (
        "deliver_time_ms is a time, in milliseconds since 1970 or as a datetime, not 1893456000: "
        "1893456000 looks like seconds"
    )
    with pytest.raises(MessageRefusedError, match="not 60000: for a delay from now give delay_time_ms"):
        Message("T", b"x", deliver_time_ms=60_000)
    assert Message("T", b"x", deliver_time_ms=time.time_ns() // 1_000_000)


@pytest.mark.parametrize("make", [Producer, AsyncProducer, PushConsumer, LitePullConsumer, PullConsumer])
def test_a_bad_group_is_a_refused_name_and_not_a_refused_message(make: Any) -> None:
    with pytest.raises(NameRefusedError, match="the group is blank") as caught:
        make("")
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, KourouError)
