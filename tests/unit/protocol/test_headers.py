"""Typed headers as a whole: names on the wire, completeness of the tables, quirks."""

from __future__ import annotations

import inspect
import re

import msgspec
import pytest

from kourou.protocol import headers
from kourou.protocol.codes import PermName, RequestCode
from kourou.protocol.ext_fields import convert_ext
from kourou.protocol.headers import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    AckMessageRequestHeader,
    BrokerHeartbeatRequestHeader,
    CommandHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
    ProducerSnapshotResponseHeader,
    PullMessageRequestHeader,
    RegisterBrokerRequestHeader,
    ResetOffsetRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UnregisterClientRequestHeader,
    ext_fields_of,
)

ALL_HEADERS = [
    value
    for value in vars(headers).values()
    if inspect.isclass(value) and issubclass(value, CommandHeader) and value is not CommandHeader
]


SAMPLES = {"str": ("text", "text"), "int": (7, "7"), "bool": (True, "true")}


def kind_of(annotation: object) -> str:
    """The plain type of a field that may be bounded or optional, as in `Int32 | None`."""
    (kind,) = (kind for kind in SAMPLES if re.search(rf"\b{kind}\b", str(annotation)))
    return kind


def wire_names(header_type: type[CommandHeader]) -> tuple[str, ...]:
    return header_type.__struct_encode_fields__


def test_public_names_are_all_named() -> None:
    assert sorted(headers.__all__) == list(headers.__all__)
    assert {header.__name__ for header in ALL_HEADERS} <= set(headers.__all__)


def test_every_header_is_in_a_table() -> None:
    assert set(ALL_HEADERS) == set(REQUEST_HEADERS.values()) | set(RESPONSE_HEADERS.values())


def test_the_tables_hold_known_codes_only() -> None:
    assert all(isinstance(code, RequestCode) for code in (*REQUEST_HEADERS, *RESPONSE_HEADERS))


def test_every_header_comes_back_from_its_texts() -> None:
    for header_type in ALL_HEADERS:
        kinds = [(field, kind_of(field.type)) for field in msgspec.structs.fields(header_type)]
        header = header_type(**{field.name: SAMPLES[kind][0] for field, kind in kinds})
        fields = ext_fields_of(header)
        assert fields == {field.encode_name: SAMPLES[kind][1] for field, kind in kinds}, header_type
        assert convert_ext(fields, header_type) == header


def test_no_attribute_is_a_bare_offset() -> None:
    assert [header for header in ALL_HEADERS if "offset" in header.__struct_fields__] == []


def test_both_forms_of_a_send_have_the_same_attributes_and_types() -> None:
    first, second = (
        [(field.name, field.type, field.default) for field in msgspec.structs.fields(header_type)]
        for header_type in (SendMessageRequestHeader, SendMessageRequestHeaderV2)
    )
    assert first == second
    assert wire_names(SendMessageRequestHeaderV2) == (*"abcdefghijklmn", "kourouSequenced")
    assert wire_names(SendMessageRequestHeader)[-2:] == ("bname", "kourouSequenced")


@pytest.mark.parametrize(
    ("header_type", "attribute", "name"),
    [
        (UnregisterClientRequestHeader, "client_id", "clientID"),
        (ResetOffsetRequestHeader, "is_force", "isForce"),
        (ResetOffsetRequestHeader, "queue_offset", "offset"),
        (AckMessageRequestHeader, "queue_offset", "offset"),
        (PullMessageRequestHeader, "proxy_froward_client_id", "proxyFrowardClientId"),
        (BrokerHeartbeatRequestHeader, "heartbeat_timeout_mills", "heartbeatTimeoutMills"),
        (RegisterBrokerRequestHeader, "heartbeat_timeout_millis", "heartbeatTimeoutMillis"),
        (RegisterBrokerRequestHeader, "body_crc32", "bodyCrc32"),
        (RegisterBrokerRequestHeader, "zone_name", "__ZONE_NAME"),
    ],
)
def test_odd_wire_names(header_type: type[CommandHeader], attribute: str, name: str) -> None:
    position = header_type.__struct_fields__.index(attribute)
    assert wire_names(header_type)[position] == name


def test_numbers_booleans_and_absent_values_on_the_wire() -> None:
    header = CreateTopicRequestHeader(
        topic="T",
        default_topic="TBW102",
        read_queue_nums=8,
        write_queue_nums=-1,
        perm=PermName.READ | PermName.WRITE,
        topic_filter_type="",
        force=True,
    )
    assert ext_fields_of(header) == {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": "8",
        "writeQueueNums": "-1",
        "perm": "6",
        "topicFilterType": "",
        "order": "false",
        "force": "true",
    }


def test_a_topic_created_by_cpp_has_no_order() -> None:
    fields = dict.fromkeys(("topic", "defaultTopic", "topicFilterType"), "x")
    fields |= dict.fromkeys(("readQueueNums", "writeQueueNums", "perm"), "6")
    assert convert_ext(fields, CreateTopicRequestHeader).order is False


def test_the_pager_of_5_and_the_plain_request_of_4() -> None:
    assert convert_ext({}, GetAllTopicConfigRequestHeader).topic_seq is None
    assert convert_ext({"topicSeq": "0"}, GetAllTopicConfigRequestHeader).topic_seq == 0


@pytest.mark.parametrize(
    ("fields", "drops"),
    [
        ({}, False),
        ({"removeOffset": "true"}, True),
        ({"cleanOffset": "true"}, True),
        ({"cleanOffset": "false"}, False),
    ],
)
def test_either_word_for_dropping_a_groups_offsets(fields: dict[str, str], drops: bool) -> None:
    header = convert_ext({"groupName": "G"} | fields, DeleteSubscriptionGroupRequestHeader)
    assert header.drops_offsets is drops


def test_a_master_of_an_earlier_version_sends_its_snapshot_in_one_piece() -> None:
    assert convert_ext({"kourouPhyOffset": "5"}, ProducerSnapshotResponseHeader).kourou_size == 0
