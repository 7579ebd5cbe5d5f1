"""What a broker answers about its messages and tables, so that a slave's answers can be compared with its
master's. Single requests, since a client would choose which of the two to ask."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kourou.protocol.bodies import decode_body
from kourou.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from kourou.protocol.bodies.subscription import SubscriptionGroupWrapper
from kourou.protocol.bodies.topics import TopicConfigSerializeWrapper
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from kourou.protocol.headers.pull import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from tests.interop.kit import wire

_PULLED_AT_ONCE: Final = 32
_FOREVER_MS: Final = 1 << 62
_RECORD_SIZE: Final = struct.Struct(">i")


def queue_range(address: str, topic: str, queue_id: int) -> tuple[int, int]:
    """The first and the next offset of a queue."""
    low = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
    high = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
    return (
        _ask(address, RequestCode.GET_MIN_OFFSET, low).header(GetMinOffsetResponseHeader).queue_offset,
        _ask(address, RequestCode.GET_MAX_OFFSET, high).header(GetMaxOffsetResponseHeader).queue_offset,
    )


def pulled(address: str, topic: str, queue_id: int, group: str, queue_offset: int = 0) -> bytes:
    """All messages of a queue from an offset on, as they are stored."""
    data = bytearray()
    while True:
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            max_msg_nums=_PULLED_AT_ONCE,
            sys_flag=int(PullSysFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        answer = wire.call(address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header))
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.PULL_NOT_FOUND, f"{address} {topic}/{queue_id}: {answer}"
            return bytes(data)
        data += answer.body or b""
        queue_offset = answer.header(PullMessageResponseHeader).next_begin_offset


def found_by_key(address: str, topic: str, key: str, *, is_unique: bool = False) -> list[bytes]:
    """The messages with a key, or with a unique id, as they are stored; in the order of the log."""
    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=64,
        begin_timestamp=0,
        end_timestamp=_FOREVER_MS,
        unique_key_query=is_unique,
    )
    answer = wire.call(address, RemotingCommand.request(RequestCode.QUERY_MESSAGE, header))
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND), answer
    return sorted(_records(answer.body or b""))


def viewed(address: str, topic: str, phy_offset: int) -> bytes:
    """The message at an offset of the log."""
    header = ViewMessageRequestHeader(topic=topic, phy_offset=phy_offset)
    return _ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header).body or b""


def offset_at(address: str, topic: str, queue_id: int, timestamp_ms: int) -> int:
    """The offset of a queue for a time."""
    header = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=timestamp_ms)
    answer = _ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return answer.header(SearchOffsetResponseHeader).queue_offset


def topics(address: str) -> dict[str, tuple[int, int, int, bool]]:
    """Every topic: queues to read and to write, permission, whether it is ordered."""
    body = _ask(address, RequestCode.GET_ALL_TOPIC_CONFIG).body
    table = decode_body(body, TopicConfigSerializeWrapper).topic_config_table
    return {
        name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.order)
        for name, topic in table.items()
    }


def groups(address: str) -> dict[str, dict[str, Any]]:
    """Every subscription group, with what both versions know of it."""
    body = _ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    table = decode_body(body, SubscriptionGroupWrapper).subscription_group_table
    since_5 = ("group_retry_policy", "subscription_data_set", "attributes")
    return {
        name: {key: value for key, value in msgspec.structs.asdict(group).items() if key not in since_5}
        for name, group in table.items()
    }


def consumer_offsets(address: str) -> dict[str, dict[int, int]]:
    """How far each group is, by `topic@group` and queue."""
    body = _ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET).body
    return decode_body(body, ConsumerOffsetSerializeWrapper).offset_table


def delay_offsets(address: str) -> dict[int, int]:
    """How far each delay level is delivered."""
    body = _ask(address, RequestCode.GET_ALL_DELAY_OFFSET).body
    return decode_body(body, DelayOffsetSerializeWrapper).offset_table


def kept_delay_offsets(path: Path) -> dict[int, int]:
    """How far each delay level is delivered, by a broker's file; empty where there is none."""
    return decode_body(path.read_bytes(), DelayOffsetSerializeWrapper).offset_table if path.exists() else {}


def _ask(address: str, code: RequestCode, header: Any = None) -> RemotingCommand:
    answer = wire.call(address, RemotingCommand.request(code, header))
    assert answer.code == ResponseCode.SUCCESS, f"{address} answers {code.name} {header} with {answer}"
    return answer


def _records(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        (size,) = _RECORD_SIZE.unpack_from(data, position)
        yield data[position : position + size]
        position += size
