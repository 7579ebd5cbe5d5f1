"""The bytes of a send: the quick way writes what the general way reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.client.core.credentials import Credentials
from kourou.client.producer.send_request import ONEWAY, SendFrames, SendRequest
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.headers.send import SendMessageRequestHeaderV2

INT32 = st.integers(-(2**31), 2**31 - 1)
# What JSON cannot carry is refused before it gets here: a lone surrogate is no text.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def request(**fields: object) -> SendRequest:
    defaults: dict[str, object] = {
        "code": 310,
        "topic": "TopicTest",
        "body": b"body",
        "properties": "TAGS\x01TagA\x02",
        "uniq_key": "ID",
        "sys_flag": 0,
        "flag": 0,
        "born_timestamp": 1_700_000_000_000,
    }
    return SendRequest(**{**defaults, **fields})  # type: ignore[arg-type]


def decode(frames: SendFrames, sent: SendRequest, queue: MessageQueue, flag: int = 0) -> RemotingCommand:
    ((frame),) = FrameDecoder().feed(frames.head(sent, queue, 4711, flag) + sent.body)
    return decode_command(frame)


@given(TEXT, TEXT, TEXT, TEXT, INT32, INT32, st.integers(0, 2**31 - 1), st.booleans(), st.booleans())
def test_a_frame_is_read_as_it_was_meant(
    group: str,
    topic: str,
    broker: str,
    properties: str,
    flag: int,
    sys_flag: int,
    queue_id: int,
    batch: bool,
    is_signed: bool,
) -> None:
    frames = SendFrames(group, "TBW102", 8, Credentials("ak", "sk") if is_signed else None)
    sent = request(topic=topic, properties=properties, flag=flag, sys_flag=sys_flag, batch=batch)
    command = decode(frames, sent, MessageQueue(topic, broker, queue_id))
    assert (command.code, command.opaque, command.flag, command.body) == (310, 4711, 0, b"body")
    header = command.header(SendMessageRequestHeaderV2)
    assert header == SendMessageRequestHeaderV2(
        producer_group=group,
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=8,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=1_700_000_000_000,
        flag=flag,
        properties=properties,
        batch=batch,
        broker_name=broker,
    )


def test_the_quick_and_the_signed_way_write_the_same_fields() -> None:
    queue = MessageQueue("TopicTest", "broker-a", 3)
    plain = decode(SendFrames("g", "TBW102", 4), request(), queue)
    signed = decode(SendFrames("g", "TBW102", 4, Credentials("ak", "sk")), request(), queue)
    assert plain.ext_fields is not None and signed.ext_fields is not None
    assert set(signed.ext_fields) - set(plain.ext_fields) == {"AccessKey", "Signature"}
    assert {name: signed.ext_fields[name] for name in plain.ext_fields} == plain.ext_fields
    assert (plain.language, plain.version) == (signed.language, signed.version)


def test_a_one_way_request_says_so() -> None:
    queue = MessageQueue("TopicTest", "broker-a", 3)
    assert decode(SendFrames("g", "TBW102", 4), request(), queue, ONEWAY).is_oneway


def test_properties_may_change_before_another_attempt() -> None:
    sent = request(properties="A\x011\x02")
    sent.set_properties("A\x012\x02")
    command = decode(SendFrames("g", "TBW102", 4), sent, MessageQueue("TopicTest", "broker-a", 0))
    assert command.header(SendMessageRequestHeaderV2).properties == "A\x012\x02"
