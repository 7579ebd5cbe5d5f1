"""Answers of brokers to pops, and handles, as tests write them."""

from __future__ import annotations

from typing import Any, Final

from kourou.protocol.command import RemotingCommand
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind
from kourou.protocol.properties import encode_properties, properties_to_bytes
from kourou.protocol.record import encode_record
from kourou.proxy.clients.handle_requests import client_handle
from tests.unit.protocol.test_message import stored

POP_TIME: Final = 1_700_000_000_000
INVISIBLE_MS: Final = 60_000


def receipt(queue_offset: int, broker_name: str = "broker-a", **changes: Any) -> ReceiptHandle:
    """The handle of a message of queue 0, popped from offset 5 on."""
    handle = ReceiptHandle(5, POP_TIME, INVISIBLE_MS, 3, PopTopicKind.NORMAL, broker_name, 0, queue_offset)
    return handle._replace(**changes)


def handle(queue_offset: int, broker_name: str = "broker-a", **changes: Any) -> str:
    """The same as a client gets it; the message is at 1,000 times its offset in the log."""
    return client_handle(receipt(queue_offset, broker_name, **changes), queue_offset * 1_000)


def pop_answer(*offsets: int, order_counts: str | None = None, **properties: str) -> RemotingCommand:
    """An answer with messages of queue 0; `properties` are those of each message."""
    raw = properties_to_bytes(encode_properties({"UNIQ_KEY": "id", **properties}))
    body = b"".join(
        encode_record(
            stored(b"body", raw, topic="T", queue_id=0, queue_offset=offset, phy_offset=offset * 1_000)
        )
        for offset in offsets
    )
    fields = {
        "popTime": str(POP_TIME),
        "invisibleTime": str(INVISIBLE_MS),
        "reviveQid": "3",
        "restNum": "0",
        "startOffsetInfo": "0 0 5",
        "msgOffsetInfo": f"0 0 {','.join(map(str, offsets))}",
    }
    if order_counts is not None:
        fields["orderCountInfo"] = order_counts
    return RemotingCommand(0, remark="FOUND", ext_fields=fields, body=body)
