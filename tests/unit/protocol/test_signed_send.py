"""What is signed of a send, read in one go, is what the general way finds, or nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.request_head import decode_fields
from kourou.protocol.signature import HashedKey, signature_of
from kourou.protocol.signed_send import read_signed_send

_NAMES = st.sampled_from([*"abcdefghijklmn", "kourouSequenced", "AccessKey", "Signature", "b"])
_TEXTS = st.text(st.sampled_from('a1:\x01\x02"\\é漢'), max_size=8)


def header_of(fields: object) -> bytes:
    return json.dumps({"code": 310, "extFields": fields, "opaque": 1}, ensure_ascii=False).encode()


@given(st.dictionaries(_NAMES, _TEXTS), st.binary(max_size=5))
def test_the_fields_of_a_send_in_any_order(fields: dict[str, str], body: bytes) -> None:
    header = header_of(fields)
    send = read_signed_send(header)
    assert send is not None
    known = decode_fields(0, header)
    access_key, topic, text, signature = send
    assert (access_key, topic) == (known.get("AccessKey", ""), known.get("b", ""))
    assert signature == known.get("Signature", "")
    signed = HashedKey("secret").signature_of_text(text, body).decode()
    assert signed == signature_of(known, body, "secret")


@given(
    st.dictionaries(
        _NAMES | st.sampled_from(["x", "SecurityToken", "ns"]), _TEXTS | st.integers() | st.none()
    )
)
def test_fields_that_are_not_known_or_no_text_are_left_to_the_general_way(fields: dict[str, object]) -> None:
    is_usual = all(type(value) is str for value in fields.values())
    is_usual = is_usual and not fields.keys() & {"x", "SecurityToken", "ns"}
    assert (read_signed_send(header_of(fields)) is not None) is is_usual


@pytest.mark.parametrize(
    "header", [b"", b"{", b"[]", b"{}", b'{"extFields":1}', b'{"extFields":{"b":"\xff"}}']
)
def test_what_is_no_header_is_left_to_the_general_way(header: bytes) -> None:
    assert read_signed_send(header) is None


def test_a_field_that_comes_twice_counts_as_the_general_way_has_it() -> None:
    header = b'{"code":310,"extFields":{"b":"first","b":"second","AccessKey":"ak"}}'
    send = read_signed_send(header)
    assert send is not None and send.topic == decode_fields(0, header)["b"] == "second"
