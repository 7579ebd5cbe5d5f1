"""The heads that come by the million are read in one go, with what the general way would give."""

from __future__ import annotations

import msgspec
import pytest

from kourou.errors import HeaderFieldError
from kourou.protocol.command import decode_ext, decode_head, ext_dict
from kourou.protocol.header_binary import encode_binary_head
from kourou.protocol.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.request_head import decode_fields, decode_request_head

PULL_FIELDS = (
    '"consumerGroup":"g","topic":"t","queueId":"3","queueOffset":"70","maxMsgNums":"32","sysFlag":"6",'
    '"commitOffset":"1","suspendTimeoutMillis":"15000","subscription":"*","subVersion":"9"'
)
SEND_FIELDS = '"a":"g","b":"t","c":"TBW102","d":"4","e":"0","f":"0","g":"5","h":"0","i":"k\\u0001v\\u0002"'
POP_FIELDS = (
    '"consumerGroup":"g","topic":"t","queueId":"-1","maxMsgNums":"32","invisibleTime":"60000",'
    '"pollTime":"15000","bornTime":"1","initMode":"0","order":"false"'
)
ACK_FIELDS = '"consumerGroup":"g","topic":"t","queueId":"3","extraInfo":"0 1 2 3 0 b 3 7","offset":"7"'
REST = '"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479'


def frame_header(code: int, fields: str) -> bytes:
    return f'{{"code":{code},"extFields":{{{fields}}},{REST}}}'.encode()


@pytest.mark.parametrize(
    ("code", "fields", "header_type"),
    [
        (11, PULL_FIELDS, PullMessageRequestHeader),
        (310, SEND_FIELDS, SendMessageRequestHeaderV2),
        (200050, POP_FIELDS, PopMessageRequestHeader),
        (200051, ACK_FIELDS, AckMessageRequestHeader),
    ],
)
def test_both_ways_give_the_same(code: int, fields: str, header_type: type[msgspec.Struct]) -> None:
    raw = frame_header(code, fields)
    quick, general = decode_request_head(0, raw), decode_head(0, raw)
    assert type(quick.ext_fields) is header_type
    assert decode_ext(quick, header_type) == decode_ext(general, header_type)
    fixed = ("code", "language", "version", "opaque", "flag", "remark")
    assert [getattr(quick, name) for name in fixed] == [getattr(general, name) for name in fixed]


def test_a_pull_with_a_number_where_text_is_expected_is_read_the_general_way() -> None:
    head = decode_request_head(0, frame_header(11, PULL_FIELDS.replace('"topic":"t"', '"topic":5')))
    assert isinstance(head.ext_fields, msgspec.Raw)
    assert decode_ext(head, PullMessageRequestHeader).topic == "5"


def test_a_pull_that_lacks_a_field_says_which() -> None:
    head = decode_request_head(0, frame_header(11, PULL_FIELDS.replace('"topic":"t",', "")))
    with pytest.raises(HeaderFieldError, match="topic is missing"):
        decode_ext(head, PullMessageRequestHeader)


@pytest.mark.parametrize("code", [110, 361, 12, 200053, 200001, 2000512])
def test_other_requests_keep_their_fields_as_sent(code: int) -> None:
    assert isinstance(decode_request_head(0, frame_header(code, PULL_FIELDS)).ext_fields, msgspec.Raw)


@pytest.mark.parametrize(
    "fields",
    [
        SEND_FIELDS,
        SEND_FIELDS + ',"more":"x","é":"漢\\u6f22"',
        SEND_FIELDS.replace('"d":"4"', '"d":4,"l":null,"m":true'),
        SEND_FIELDS + ',"a":"again"',
        "",
    ],
)
def test_fields_as_text_are_those_of_the_general_way(fields: str) -> None:
    raw = frame_header(310, fields)
    assert decode_fields(0, raw) == ext_dict(decode_head(0, raw))


def test_fields_as_text_of_a_header_without_any() -> None:
    assert decode_fields(0, f'{{"code":310,"extFields":null,{REST}}}'.encode()) == {}
    assert decode_fields(0, f'{{"code":310,{REST}}}'.encode()) == {}


def test_fields_as_text_of_a_binary_header() -> None:
    raw = encode_binary_head(310, 0, 501, 7, 0, None, {"a": "g", "more": "é"})
    assert decode_fields(1, raw) == {"a": "g", "more": "é"}
