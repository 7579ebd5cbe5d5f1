"""Commands through both serializations and back, whatever is in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.codes import LanguageCode, RequestCode, SerializeType
from kourou.protocol.command import (
    RemotingCommand,
    decode_command,
    decode_ext,
    decode_head,
    encode_response,
)
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.headers import PullMessageRequestHeader, SendMessageRequestHeaderV2, ext_fields_of

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
languages = st.sampled_from([int(language) for language in LanguageCode])
texts = st.text(max_size=30)
some_text = st.text(min_size=1, max_size=30)
bodies = st.binary(max_size=100)

json_commands = st.builds(
    RemotingCommand,
    code=int32,
    language=languages,
    version=int32,
    opaque=int32,
    flag=int32,
    remark=st.none() | texts,
    ext_fields=st.none() | st.dictionaries(texts, texts, max_size=8),
    body=bodies,
    serialize_type=st.just(int(SerializeType.JSON)),
)

# The binary form has no empty texts and no codes beyond 16 bits but those that are mapped back.
binary_commands = st.builds(
    RemotingCommand,
    code=int16.filter(lambda code: code not in {wide & 0xFFFF for wide in RequestCode if wide > 0xFFFF})
    | st.sampled_from([int(code) for code in RequestCode]),
    language=st.integers(0, 255),
    version=int16,
    opaque=int32,
    flag=int32.map(lambda flag: flag & ~1),
    remark=st.none() | some_text,
    ext_fields=st.none() | st.dictionaries(some_text, some_text, min_size=1, max_size=8),
    body=bodies,
    serialize_type=st.just(int(SerializeType.ROCKETMQ)),
)


def again(command: RemotingCommand) -> RemotingCommand:
    (raw,) = FrameDecoder().feed(command.encode())
    return decode_command(raw)


@given(json_commands)
def test_json_commands_come_back(command: RemotingCommand) -> None:
    assert again(command) == command


@given(binary_commands)
def test_binary_commands_come_back(command: RemotingCommand) -> None:
    assert again(command) == command


@given(
    st.sampled_from([int(kind) for kind in SerializeType]),
    int32,
    int16,
    st.none() | some_text,
    st.none() | st.dictionaries(some_text, some_text, min_size=1),
    bodies,
)
def test_responses_come_back(
    serialize_type: int,
    opaque: int,
    code: int,
    remark: str | None,
    fields: dict[str, str] | None,
    body: bytes,
) -> None:
    (raw,) = FrameDecoder().feed(encode_response(serialize_type, opaque, code, remark, fields, body))
    command = decode_command(raw)
    assert (command.opaque, command.code, command.remark) == (opaque, code, remark)
    assert (command.ext_fields, command.body, command.is_response) == (fields, body, True)


send_headers = st.builds(
    SendMessageRequestHeaderV2,
    producer_group=some_text,
    topic=some_text,
    default_topic=some_text,
    default_topic_queue_nums=int32,
    queue_id=int32,
    sys_flag=int32,
    born_timestamp=int64,
    flag=int32,
    properties=st.none() | some_text,
    reconsume_times=int32,
    unit_mode=st.booleans(),
    max_reconsume_times=st.none() | int32,
    batch=st.booleans(),
    broker_name=st.none() | some_text,
)
pull_headers = st.builds(
    PullMessageRequestHeader,
    consumer_group=some_text,
    topic=some_text,
    queue_id=int32,
    queue_offset=int64,
    max_msg_nums=int32,
    sys_flag=int32,
    commit_offset=int64,
    suspend_timeout_millis=int64,
    subscription=st.none() | some_text,
    sub_version=int64,
    expression_type=st.none() | some_text,
    max_msg_bytes=st.none() | int32,
)


@given(send_headers | pull_headers, st.sampled_from([int(kind) for kind in SerializeType]))
def test_hot_headers_come_back_typed(
    header: SendMessageRequestHeaderV2 | PullMessageRequestHeader, serialize_type: int
) -> None:
    command = RemotingCommand(1, ext_fields=ext_fields_of(header), serialize_type=serialize_type)
    (raw,) = FrameDecoder().feed(command.encode())
    assert decode_ext(decode_head(raw[0], raw[1]), type(header)) == header


@given(st.sampled_from([int(kind) for kind in SerializeType]), st.binary(max_size=200))
def test_any_bytes_are_a_command_or_a_protocol_error(serialize_type: int, header: bytes) -> None:
    try:
        decode_command((serialize_type, header, b""))
    except ProtocolError:
        pass
