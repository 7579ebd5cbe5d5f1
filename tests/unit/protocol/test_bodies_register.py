"""RegisterBrokerBody, plain and packed: both versions of each, and what must not get through."""

import struct
import zlib

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicQueueMappingInfo,
    decode_register_broker,
    register,
)

V4 = 407
V5 = 479


def body() -> RegisterBrokerBody:
    topics = {
        "T": TopicConfig("T", 8, 4, 6, attributes={"message.type": "NORMAL", "note": "two words"}),
        "%RETRY%CG": TopicConfig("%RETRY%CG", 1, 1, 2, TopicFilterType.MULTI_TAG),
    }
    mappings = {"T": TopicQueueMappingInfo("T", 8, "broker-a", 1, curr_id_map={0: 3, 1: 4})}
    wrapper = TopicConfigSerializeWrapper(
        topics, DataVersion(1_700_000_000_000, 5, 2), topic_queue_mapping_info_map=mappings
    )
    return RegisterBrokerBody(wrapper, ["10.0.0.1:30000"])


def as_v4_tells_it() -> RegisterBrokerBody:
    known = body()
    wrapper = known.topic_config_serialize_wrapper
    wrapper.data_version.state_version = 0
    wrapper.topic_config_table["T"].attributes = {}
    wrapper.topic_queue_mapping_info_map = {}
    return known


def packed(*sections: bytes | int) -> bytes:
    parts = [struct.pack(">i", s) if isinstance(s, int) else struct.pack(">i", len(s)) + s for s in sections]
    return zlib.compress(b"".join(parts))


VERSION_JSON = b'{"counter":5,"timestamp":7}'


@pytest.mark.parametrize("compressed", [False, True])
def test_round_trip_of_a_5x_broker(compressed: bool) -> None:
    raw = body().encode(compressed=compressed, version=V5)

    assert decode_register_broker(raw, compressed=compressed, version=V5) == body()


@pytest.mark.parametrize("compressed", [False, True])
def test_a_4x_broker_sends_no_attributes_mappings_and_state_version(compressed: bool) -> None:
    raw = body().encode(compressed=compressed, version=V4)

    assert decode_register_broker(raw, compressed=compressed, version=V4) == as_v4_tells_it()


def test_the_plain_forms_are_apaches() -> None:
    wrapper = TopicConfigSerializeWrapper({"T": TopicConfig("T")}, DataVersion(7, 5))

    assert RegisterBrokerBody(wrapper).encode(version=V4) == (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":5,"timestamp":7},'
        b'"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"T","topicSysFlag":0,"writeQueueNums":16}}}}'
    )
    assert RegisterBrokerBody(wrapper).encode(version=V5) == (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{'
        b'"dataVersion":{"counter":5,"stateVersion":0,"timestamp":7},'
        b'"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},'
        b'"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":16,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}},'
        b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
    )


def test_the_packed_form_is_apaches_byte_for_byte_before_compression() -> None:
    wrapper = TopicConfigSerializeWrapper({"T": TopicConfig("T", 8, 4, 6)}, DataVersion(7, 5))

    four = RegisterBrokerBody(wrapper).encode(compressed=True, version=V4)
    five = RegisterBrokerBody(wrapper).encode(compressed=True, version=V5)

    assert zlib.decompress(four) == zlib.decompress(packed(VERSION_JSON, 1, b"T 8 4 6 SINGLE_TAG", b"[]"))
    version_5 = b'{"counter":5,"stateVersion":0,"timestamp":7}'
    assert zlib.decompress(five) == zlib.decompress(packed(version_5, 1, b"T 8 4 6 SINGLE_TAG {}", b"[]", 0))


def test_five_and_six_words_are_read_from_either_version() -> None:
    lines = (b"A 8 4 6 SINGLE_TAG", b'B 8 4 6 SINGLE_TAG {"a":"b"}')

    for version, end in ((V4, ()), (V5, (0,))):
        raw = packed(VERSION_JSON, 2, *lines, b"[]", *end)
        table = decode_register_broker(
            raw, compressed=True, version=version
        ).topic_config_serialize_wrapper.topic_config_table
        assert table == {
            "A": TopicConfig("A", 8, 4, 6),
            "B": TopicConfig("B", 8, 4, 6, attributes={"a": "b"}),
        }


def test_the_mapping_section_may_be_missing_although_the_version_promises_it() -> None:
    raw = packed(VERSION_JSON, 0, b"[]")

    found = decode_register_broker(raw, compressed=True, version=V5)

    assert found.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {}


def test_a_null_filter_server_list_is_empty() -> None:
    assert (
        decode_register_broker(packed(VERSION_JSON, 0, b"null", 0), compressed=True).filter_server_list == []
    )


def test_an_empty_body_says_nothing() -> None:
    assert decode_register_broker(b"") == decode_register_broker(b"", compressed=True) == RegisterBrokerBody()


def test_integer_keys_of_a_static_topic_may_be_bare() -> None:
    raw = (
        b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":'
        b'{"T":{"bname":"b","currIdMap":{0:3},"dirty":false,"epoch":1,"scope":"__global__","topic":"T",'
        b'"totalQueues":1}}}}'
    )

    found = decode_register_broker(raw).topic_config_serialize_wrapper

    assert found.topic_queue_mapping_info_map == {
        "T": TopicQueueMappingInfo("T", 1, "b", 1, curr_id_map={0: 3})
    }


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"not zlib", "expected a zlib stream"),
        (packed(VERSION_JSON, 0, b"[]", 0)[:-3], "expected one whole zlib stream"),
        (packed(VERSION_JSON, 0, b"[]", 0) + b"x", "expected one whole zlib stream"),
        (packed(), "at byte 0: expected the length of the data version, but the content ends"),
        (packed(VERSION_JSON), "at byte 31: expected the number of topics, but the content ends"),
        (packed(VERSION_JSON, -1), "at byte 31: the number of topics is -1"),
        (packed(VERSION_JSON, 2**31 - 1, b""), "at byte 31: the number of topics is 2147483647, more than"),
        (
            packed(VERSION_JSON, 1, b"T 8 4 6", b"[]", 0),
            "expected a topic as five or six words, got b'T 8 4 6'",
        ),
        (
            packed(VERSION_JSON, 1, b"T 8 x 6 SINGLE_TAG", b"[]", 0),
            "writeQueueNums: expected an integer, got 'x'",
        ),
        (packed(VERSION_JSON, 1, b"T 8 8 6 SINGLE_TAG {", b"[]", 0), "at character 1: expected a key"),
        (packed(b"{", 0, b"[]", 0), "DataVersion: at character 1: expected a key"),
        (packed(VERSION_JSON, 0, b"{}", 0), "expected a list, got an object"),
        (packed(VERSION_JSON, 0, b"[]", 1, b"[]"), "TopicQueueMappingInfo: body: expected an object"),
    ],
)
def test_a_broken_packed_body_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_register_broker(raw, compressed=True)

    assert str(caught.value).startswith("compressed RegisterBrokerBody: ")
    assert message in str(caught.value)


def test_a_bomb_is_refused_before_it_unfolds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "MAX_INFLATED_BYTES", 1000)
    assert decode_register_broker(packed(VERSION_JSON, 0, b"[" + b" " * 900 + b"]", 0), compressed=True)

    with pytest.raises(ProtocolError, match="unfolds to more than 1000 bytes"):
        decode_register_broker(packed(VERSION_JSON, 0, b"[" + b" " * 1000 + b"]", 0), compressed=True)
