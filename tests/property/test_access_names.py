"""The names that the gate checks are those that processors read, however odd a header is written."""

from __future__ import annotations

import json
import struct
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.codes import RequestCode, SerializeType
from kourou.protocol.headers import (
    EndTransactionRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
    ext_fields_of,
)
from kourou.protocol.request_head import decode_request_head
from kourou.transport.connection import Connection
from kourou.transport.request import Request

SEND = SendMessageRequestHeaderV2(
    producer_group="p",
    topic="granted",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=0,
    sys_flag=0,
    born_timestamp=1,
    flag=0,
)
PULL = PullMessageRequestHeader(
    consumer_group="g",
    topic="granted",
    queue_id=0,
    queue_offset=0,
    max_msg_nums=32,
    sys_flag=0,
    commit_offset=0,
    suspend_timeout_millis=0,
    sub_version=0,
)
END = EndTransactionRequestHeader(
    producer_group="p",
    topic="granted",
    tran_state_table_offset=0,
    commit_log_offset=0,
    commit_or_rollback=8,
    msg_id="m",
)
# The code, the typed header, the field with the topic as the gate reads it.
KINDS = (
    (RequestCode.SEND_MESSAGE_V2, SEND, "b"),
    (RequestCode.SEND_BATCH_MESSAGE, SEND, "b"),
    (RequestCode.PULL_MESSAGE, PULL, "topic"),
    (RequestCode.END_TRANSACTION, END, "topic"),
)
values = st.sampled_from(
    ['"other"', '"granted"', "null", "7", "1.0", "true", '""', '"\\u006fther"', "[]", '{"a":1}', '" other"']
)
kinds = st.sampled_from(KINDS)
NULL_REMARK = 0


def topics(serialize_type: int, raw: bytes, header_type: type) -> tuple[str | None, str | None]:
    """What the gate sees, and what the processor does; ProtocolError: neither gets it."""
    head = decode_request_head(serialize_type, raw)
    request = Request(cast(Connection, None), serialize_type, head, b"", raw)
    field = "b" if header_type is SendMessageRequestHeaderV2 else "topic"
    fields = request.ext_fields
    return fields.get(field), request.header(header_type).topic


@given(kind=kinds, entries=st.lists(values, max_size=4), is_escaped=st.booleans(), is_first=st.booleans())
@example(kind=KINDS[0], entries=['"granted"', '"other"'], is_escaped=True, is_first=False)
@example(kind=KINDS[3], entries=['"other"', "null"], is_escaped=False, is_first=True)
def test_json_with_the_topic_again_and_again(
    kind: tuple[int, SendMessageRequestHeaderV2, str], entries: list[str], is_escaped: bool, is_first: bool
) -> None:
    code, header, field = kind
    name = "".join(f"\\u{ord(letter):04x}" for letter in field) if is_escaped else field
    again = ",".join(f'"{name}":{value}' for value in entries)
    usual = json.dumps(ext_fields_of(header))[1:-1]
    inner = ",".join(filter(None, [again, usual] if is_first else [usual, again]))
    raw = f'{{"code":{int(code)},"extFields":{{{inner}}},"flag":0,"language":"JAVA","opaque":1}}'.encode()
    try:
        seen, used = topics(SerializeType.JSON, raw, type(header))
    except ProtocolError:
        return
    assert seen == used


@given(kind=kinds, entries=st.lists(st.sampled_from([b"other", b"granted", b"", b"\0x"]), max_size=3))
@example(kind=KINDS[0], entries=[b"other"])
def test_binary_headers_with_the_topic_again_and_again(
    kind: tuple[int, SendMessageRequestHeaderV2, str], entries: list[bytes]
) -> None:
    code, header, field = kind
    pairs = [(name.encode(), value.encode()) for name, value in ext_fields_of(header).items()]
    pairs += [(field.encode(), value) for value in entries]
    fields = b"".join(
        struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value for name, value in pairs
    )
    raw = struct.pack(">hbhiiii", code, 0, 1, 1, 0, NULL_REMARK, len(fields)) + fields
    try:
        seen, used = topics(SerializeType.ROCKETMQ, raw, type(header))
    except ProtocolError:
        return
    assert seen == used


def test_usual_headers_are_read() -> None:
    """What the tests above compare is there."""
    for code, header, _ in KINDS:
        fields = ext_fields_of(header)
        raw = json.dumps({"code": int(code), "extFields": fields}, separators=(",", ":")).encode()
        assert topics(SerializeType.JSON, raw, type(header)) == ("granted", "granted")
