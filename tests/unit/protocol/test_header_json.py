"""The JSON header: written as Java writes it, read as leniently as fastjson reads it."""

from __future__ import annotations

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.codes import LanguageCode
from kourou.protocol.ext_fields import ext_dict
from kourou.protocol.header_json import decode_json_head, encode_json_head


def test_written_compact_in_alphabetical_order_without_nulls() -> None:
    assert encode_json_head(105, 0, 407, 7, 0, None, None) == (
        b'{"code":105,"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":407}'
    )
    written = encode_json_head(0, 3, 479, -1, 1, "früh", {"b": "1", "a": ""})
    assert (
        written
        == (
            '{"code":0,"extFields":{"b":"1","a":""},"flag":1,"language":"PYTHON","opaque":-1,'
            '"remark":"früh","serializeTypeCurrentRPC":"JSON","version":479}'
        ).encode()
    )


def test_an_unknown_language_is_written_as_other() -> None:
    assert b'"language":"OTHER"' in encode_json_head(0, 99, 0, 0, 0, None, None)


def test_fields_in_any_order_with_blanks() -> None:
    head = decode_json_head(
        b' { "version" : 317 , "flag":1, "opaque": 5,"language":"GO","remark":"", "extFields":{}, "code":0 } '
    )
    assert (head.code, head.version, head.opaque, head.flag, head.remark) == (0, 317, 5, 1, "")
    assert head.language_code == LanguageCode.GO
    assert head.is_response and not head.is_oneway
    assert ext_dict(head) == {}


def test_only_the_code_is_needed() -> None:
    head = decode_json_head(b'{"code":34}')
    assert (head.version, head.opaque, head.flag, head.remark, head.ext_fields) == (0, 0, 0, None, None)
    assert head.language_code == LanguageCode.JAVA
    assert ext_dict(head) == {}
    with pytest.raises(ProtocolError, match="code"):
        decode_json_head(b'{"opaque":1}')


def test_numbers_as_strings() -> None:
    head = decode_json_head(b'{"code":"105","version":"407","opaque":"-3","flag":"2"}')
    assert (head.code, head.version, head.opaque, head.flag) == (105, 407, -3, 2)
    assert head.is_oneway


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b'"PYTHON"', LanguageCode.PYTHON),
        (b'"COBOL"', LanguageCode.OTHER),
        (b'""', LanguageCode.OTHER),
        (b"12", LanguageCode.RUST),
        (b"200", 200),
        (b"-1", LanguageCode.OTHER),
        (b"256", LanguageCode.OTHER),
        (b"null", LanguageCode.JAVA),
    ],
)
def test_languages_by_name_or_number(sent: bytes, code: int) -> None:
    assert decode_json_head(b'{"code":1,"language":' + sent + b"}").language_code == code


def test_ext_fields_of_any_json_type_become_text_as_fastjson_has_it() -> None:
    head = decode_json_head(
        b'{"code":310,"extFields":{"d":4,"k":false,"m":true,"none":null,"half":0.5,"g":1794711932647,'
        b'"big":123456789012345678901234567890,"text":"\\u0001\xc3\xa9","object":{"a":[1,"x"]},"list":[]}}'
    )
    assert ext_dict(head) == {
        "d": "4",
        "k": "false",
        "m": "true",
        "half": "0.5",
        "g": "1794711932647",
        "big": "123456789012345678901234567890",
        "text": "\x01é",
        "object": '{"a":[1,"x"]}',
        "list": "[]",
    }


def test_null_ext_fields_are_none() -> None:
    assert ext_dict(decode_json_head(b'{"code":1,"extFields":null,"remark":null}')) == {}


@pytest.mark.parametrize("fields", [b"[]", b'"text"', b"1", b'{"a":"\xff"}'])
def test_ext_fields_that_are_none(fields: bytes) -> None:
    head = decode_json_head(b'{"code":1,"extFields":' + fields + b"}")
    with pytest.raises(ProtocolError, match="extFields of .* bytes cannot be read"):
        ext_dict(head)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}x",
        b"\xff\xfe",
        b'{"code":null}',
        b'{"code":1.5}',
        b'{"code":true}',
        b'{"code":"one"}',
        b'{"code":9223372036854775808}',
        b'{"code":1,"opaque":-9223372036854775809}',
        b'{"code":1,"flag":' + b"9" * 5000 + b"}",
        b'{"code":1,"language":99999999999999999999}',
        b'{"code":1,"remark":7}',
        b'{"code":1,"remark":"\xff"}',
        b'{"code":1,"unknown":' + b"[" * 100_000,
        b'{"code":1,"extFields":{"a":}}',
        b'{"code":1,"extFields":{"a":"\\ud800"}}',
    ],
)
def test_everything_else_is_a_protocol_error(header: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"JSON header of {len(header)} bytes cannot be read"):
        decode_json_head(header)
