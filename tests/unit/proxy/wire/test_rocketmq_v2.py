"""The messages of rocketmq.v2: what is generated is current, and other stubs may be there."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pool, timestamp_pb2

from kourou.proxy.wire import generate
from kourou.proxy.wire import rocketmq_v2 as wire
from kourou.proxy.wire.descriptor import DESCRIPTOR


def test_types_are_those_of_the_descriptor() -> None:
    assert generate.TYPES.read_text() == generate.types_source(base64.b64decode(DESCRIPTOR))


def test_nothing_is_in_the_default_pool() -> None:
    """The official Python client registers these names there."""
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("apache.rocketmq.v2.Message")


def test_a_message_comes_back_from_its_bytes() -> None:
    request = wire.SendMessageRequest(
        messages=[
            wire.Message(
                topic=wire.Resource(name="orders"),
                user_properties={"shop": "7"},
                system_properties=wire.SystemProperties(
                    tag="paid",
                    keys=["1", "2"],
                    message_type=wire.MessageType.PRIORITY,
                    priority=3,
                    born_timestamp=wire.Timestamp(seconds=1_700_000_000, nanos=5_000_000),
                ),
                body=b"body",
            )
        ]
    )
    (read,) = wire.SendMessageRequest.FromString(request.SerializeToString()).messages
    assert (read.topic.name, dict(read.user_properties), read.body) == ("orders", {"shop": "7"}, b"body")
    system = read.system_properties
    assert (system.tag, list(system.keys), system.message_type) == ("paid", ["1", "2"], 6)
    assert system.HasField("priority") and not system.HasField("lite_topic")
    assert (system.born_timestamp.seconds, system.born_timestamp.nanos) == (1_700_000_000, 5_000_000)


def test_timestamps_are_of_the_private_pool() -> None:
    with pytest.raises(TypeError):
        wire.SystemProperties(born_timestamp=timestamp_pb2.Timestamp(seconds=1))


def test_unknown_fields_and_numbers_are_kept() -> None:
    """Settings are echoed; a newer client may have sent more than we know."""
    newer = bytes.fromhex("0863") + bytes.fromhex("a2060141")  # client_type 99, field 100 "A"
    settings = wire.Settings.FromString(newer)
    assert settings.client_type == 99
    assert settings.SerializeToString() == newer


def test_malformed_bytes_raise_decode_error() -> None:
    with pytest.raises(wire.DecodeError):
        wire.SendMessageRequest.FromString(b"\x0a\xff")


def test_methods() -> None:
    method = wire.METHODS["/apache.rocketmq.v2.MessagingService/ReceiveMessage"]
    assert method == ("ReceiveMessage", wire.ReceiveMessageRequest, wire.ReceiveMessageResponse, False, True)
    assert {m.name for m in wire.METHODS.values() if m.is_client_streaming} == {"Telemetry"}
    assert len(wire.METHODS) == 17
