"""Commands as objects and frames, and the way from extFields to typed headers."""

from __future__ import annotations

import pytest

from kourou.errors import HeaderFieldError, ProtocolError
from kourou.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from kourou.protocol.command import (
    RemotingCommand,
    decode_command,
    decode_ext,
    decode_head,
    encode_response,
)
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.headers import (
    GetRouteInfoRequestHeader,
    RegisterBrokerResponseHeader,
    SendMessageRequestHeaderV2,
    UnregisterClientRequestHeader,
)
from kourou.protocol.versions import CURRENT_VERSION

BOTH = pytest.mark.parametrize("serialize_type", list(SerializeType))

SENT = {
    "a": '"PG"',
    "b": '"T"',
    "c": '"TBW102"',
    "d": '"4"',
    "e": '"2"',
    "f": '"0"',
    "g": '"1794711764929"',
    "h": '"0"',
}


def send_header(**changed: str) -> SendMessageRequestHeaderV2:
    fields = ",".join(f'"{name}":{value}' for name, value in (SENT | changed).items())
    head = decode_head(0, b'{"code":310,"extFields":{' + fields.encode() + b"}}")
    return decode_ext(head, SendMessageRequestHeaderV2)


def one_command(frame: bytes) -> RemotingCommand:
    (raw,) = FrameDecoder().feed(frame)
    return decode_command(raw)


@BOTH
def test_a_request_comes_back(serialize_type: int) -> None:
    request = RemotingCommand.request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        GetRouteInfoRequestHeader(topic="T", accept_standard_json_only=True),
        b"body",
    )
    request.opaque, request.serialize_type = 42, serialize_type
    again = one_command(request.encode())
    assert again == request
    assert again.header(GetRouteInfoRequestHeader).topic == "T"
    assert again.ext_fields == {"topic": "T", "acceptStandardJsonOnly": "true"}
    assert (again.language, again.version) == (LanguageCode.PYTHON, CURRENT_VERSION)
    assert not again.is_response and not again.is_oneway


def test_a_request_without_header_carries_empty_ext_fields() -> None:
    # Several handlers of Apache's broker fail when the object is not there.
    assert b'"extFields":{}' in RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO).encode()


@BOTH
def test_a_response_comes_back(serialize_type: int) -> None:
    frame = encode_response(
        serialize_type, 9, ResponseCode.TOPIC_NOT_EXIST, "no such topic", {"k": "v"}, b"x"
    )
    response = one_command(frame)
    assert (response.opaque, response.code, response.remark) == (9, 17, "no such topic")
    assert (response.ext_fields, response.body) == ({"k": "v"}, b"x")
    assert response.is_response
    assert response.version == CURRENT_VERSION
    assert response.serialize_type == serialize_type


@pytest.mark.parametrize("opaque", [0, 9, 2**31 - 1, -5])
def test_the_quick_response_to_a_json_request_is_written_as_any_other(opaque: int) -> None:
    expected = RemotingCommand(code=0, opaque=opaque, flag=1).encode()
    assert encode_response(SerializeType.JSON, opaque) == expected


def test_unknown_fields_and_languages_survive_as_far_as_they_can() -> None:
    header = b'{"code":1,"language":"COBOL","extFields":{"ours":"1","theirs":2}}'
    command = decode_command((0, header, b""))
    assert command.language == LanguageCode.OTHER
    assert one_command(command.encode()).ext_fields == {"ours": "1", "theirs": "2"}


def test_an_unknown_serialize_type() -> None:
    with pytest.raises(ProtocolError, match="unknown serialize type 9"):
        decode_head(9, b"{}")


def test_a_typed_header_straight_from_json() -> None:
    header = send_header(i='"KEYS\\u0001k"', k='"false"', m='"true"', unknown='{"x":1}')
    assert header == SendMessageRequestHeaderV2(
        producer_group="PG",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=2,
        sys_flag=0,
        born_timestamp=1794711764929,
        flag=0,
        properties="KEYS\x01k",
        batch=True,
    )


def test_numbers_and_booleans_as_cpp_sends_them() -> None:
    plain = send_header(k='"false"', l='"16"', m='"true"')
    assert send_header(d="4", e="2", f="0", g="1794711764929", h="0", k="false", l="16", m="true") == plain
    assert send_header(k='"0"', l="16", m='"1"') == plain


def test_a_number_where_text_is_expected_is_its_text() -> None:
    header = send_header(a="7", b="12.50", i="true")
    assert (header.producer_group, header.topic, header.properties) == ("7", "12.50", "true")


def test_null_is_a_field_that_was_not_sent() -> None:
    header = send_header(i="null", j="null", l="null", n="null", b="3")
    assert (header.properties, header.reconsume_times, header.max_reconsume_times) == (None, 0, None)
    with pytest.raises(HeaderFieldError, match="SendMessageRequestHeaderV2: required field b is missing"):
        send_header(b="null")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("e", '"two"', "field e is 'two': expected `int`, got `str`"),
        ("e", '""', "field e is '': expected `int`, got `str`"),
        ("e", "true", "field e is 'true': expected `int`, got `str`"),
        ("e", "2147483648", "field e is '2147483648': expected `int` <= 2147483647"),
        ("g", '"9223372036854775808"', "field g is '9223372036854775808'"),
        ("g", "1" + "0" * 5000, "field g is '10000"),
        ("m", '"maybe"', "field m is 'maybe': expected `bool`, got `str`"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: str, reason: str) -> None:
    with pytest.raises(HeaderFieldError) as raised:
        send_header(**{field: value})
    assert raised.value.header == "SendMessageRequestHeaderV2"
    assert raised.value.reason.startswith(reason)
    assert len(str(raised.value)) < 300


@BOTH
def test_a_missing_field_is_named_in_both_serializations(serialize_type: int) -> None:
    command = RemotingCommand(310, ext_fields={"a": "PG"}, serialize_type=serialize_type)
    (raw,) = FrameDecoder().feed(command.encode())
    with pytest.raises(HeaderFieldError, match="required field b is missing"):
        decode_ext(decode_head(raw[0], raw[1]), SendMessageRequestHeaderV2)
    with pytest.raises(HeaderFieldError, match="required field b is missing"):
        decode_command(raw).header(SendMessageRequestHeaderV2)


def test_a_header_without_required_fields_needs_no_ext_fields() -> None:
    for header in (b'{"code":0}', b'{"code":0,"extFields":null}', b'{"code":0,"extFields":{}}'):
        assert decode_ext(decode_head(0, header), RegisterBrokerResponseHeader).master_addr is None
        assert decode_command((0, header, b"")).header(RegisterBrokerResponseHeader).master_addr is None


def test_ext_fields_that_are_no_object() -> None:
    with pytest.raises(ProtocolError, match="extFields"):
        decode_ext(decode_head(0, b'{"code":0,"extFields":[1]}'), UnregisterClientRequestHeader)
    with pytest.raises(ProtocolError, match="extFields"):
        decode_command((0, b'{"code":0,"extFields":[1]}', b""))
