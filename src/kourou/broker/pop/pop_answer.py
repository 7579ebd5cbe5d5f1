"""What a pop returns, and the answer to it: a header, and the records as they lie in the log, without a copy.

Records of a retry topic are encoded again with the topic that the consumer has subscribed to and their
receipt handle as property POP_CK, which clients of RocketMQ then take. Every answer that clients decode has
the numbers of its header, also if there are no messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.broker.pull.pull_answer import send_records
from kourou.protocol.codes import CommandFlag, ResponseCode, SerializeType
from kourou.protocol.headers.pop import PopMessageResponseHeader
from kourou.protocol.layout import (
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    Buffer,
)
from kourou.protocol.pop.offset_infos import (
    OrderCounts,
    PoppedQueue,
    encode_msg_offset_info,
    encode_order_counts,
    encode_start_offset_info,
)
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind
from kourou.protocol.properties import (
    MessageConst,
    properties_from_bytes,
    properties_to_bytes,
    remove_property,
    set_property,
)
from kourou.protocol.record import decode_records, encode_record
from kourou.protocol.versions import CURRENT_VERSION

if TYPE_CHECKING:
    from kourou.broker.pop.pop_run import PopPart, PopRun
    from kourou.protocol.headers.pop import PopMessageRequestHeader
    from kourou.transport.request import Request

FOUND: Final = "FOUND"
NO_MESSAGE: Final = "NO_MESSAGE_IN_QUEUE"
_JSON: Final = SerializeType.JSON.value
_ONEWAY: Final = CommandFlag.ONEWAY.value
# The infos hold digits and separators: there is nothing to escape.
_TEMPLATE: Final = (
    '{"code":0,"extFields":{"invisibleTime":"%d","msgOffsetInfo":"%b",%b"popTime":"%d","restNum":"%d",'
    '"reviveQid":"%d","startOffsetInfo":"%b"},"flag":1,"language":"PYTHON","opaque":%d,'
    f'"remark":"{FOUND}","serializeTypeCurrentRPC":"JSON","version":{CURRENT_VERSION}}}'
).encode()


class PopResult(NamedTuple):
    """What a pop returns. `code` is SUCCESS with messages, else POLLING_TIMEOUT or POLLING_FULL."""

    code: ResponseCode
    pop_time: int
    invisible_time_ms: int
    revive_queue_id: int
    rest: int
    """How many messages are left in the queues that it has looked at."""
    queues: Sequence[PoppedQueue] = ()
    """In the order of `buffers`, which hold the records."""
    buffers: Sequence[Buffer] = ()
    message_count: int = 0
    size_bytes: int = 0
    order_counts: OrderCounts | None = None
    """Of a pop in order: how often each message was handed out before."""


def response_header(result: PopResult) -> PopMessageResponseHeader:
    """The header of an answer."""
    counts = result.order_counts
    return PopMessageResponseHeader(
        pop_time=result.pop_time,
        invisible_time=result.invisible_time_ms,
        revive_qid=result.revive_queue_id,
        rest_num=result.rest,
        start_offset_info=encode_start_offset_info(result.queues),
        msg_offset_info=encode_msg_offset_info(result.queues),
        order_count_info=None if counts is None else encode_order_counts(counts),
    )


def answer_pop(request: Request, result: PopResult) -> None:
    """Respond to a pop."""
    if result.code != ResponseCode.SUCCESS:
        request.reply(response_header(result), code=result.code, remark=NO_MESSAGE)
    elif request.serialize_type != _JSON or request.head.flag & _ONEWAY:
        request.reply(response_header(result), b"".join(result.buffers), remark=FOUND)
    else:
        counts = result.order_counts
        order_counts = ""
        if counts is not None:
            order_counts = f'"orderCountInfo":"{encode_order_counts(counts)}",'
        head = _TEMPLATE % (
            result.invisible_time_ms,
            encode_msg_offset_info(result.queues).encode(),
            order_counts.encode(),
            result.pop_time,
            result.rest,
            result.revive_queue_id,
            encode_start_offset_info(result.queues).encode(),
            request.opaque,
        )
        send_records(request, head, result.buffers)


def nothing(code: ResponseCode, invisible_time_ms: int = 0, run: PopRun | None = None) -> PopResult:
    """What a pop returns without messages; `run` None: it has not looked for them."""
    if run is None:
        return PopResult(code, 0, invisible_time_ms, 0, 0)
    return PopResult(code, run.pop_time, invisible_time_ms, run.revive_queue_id, run.rest)


def found(
    header: PopMessageRequestHeader,
    run: PopRun,
    parts: Sequence[PopPart],
    *,
    broker_name: str,
    with_handles: bool,
) -> PopResult:
    """What a pop returns: messages of `parts`, those of retry topics with their handles."""
    queues: list[PoppedQueue] = []
    buffers: list[Buffer] = []
    counts = OrderCounts({}, {}) if header.order else None
    for part in parts:
        kind = PopTopicKind.of(part.key.topic) if part.is_retry else PopTopicKind.NORMAL
        queues.append(PoppedQueue(kind, part.key.queue_id, part.start_offset, part.result.found_offsets()))
        if part.is_retry and with_handles:
            handle = ReceiptHandle(
                part.start_offset,
                run.pop_time,
                header.invisible_time,
                run.revive_queue_id,
                kind,
                broker_name,
                part.key.queue_id,
                0,
            )
            buffers.append(records_with_handles(b"".join(part.result.buffers), header.topic, handle))
        else:
            buffers += part.result.buffers
        if counts is not None and part.counts is not None:
            counts.by_queue.update(part.counts.by_queue)
            counts.by_offset.update(part.counts.by_offset)
    return PopResult(
        ResponseCode.SUCCESS,
        run.pop_time,
        header.invisible_time,
        run.revive_queue_id,
        run.rest,
        queues,
        buffers,
        sum(part.result.message_count for part in parts),
        sum(part.result.size_bytes for part in parts),
        counts,
    )


def records_with_handles(records: Buffer, topic: str, handle: ReceiptHandle) -> bytes:
    """Records of a queue of a retry topic as messages of `topic`, each with a handle like this one, for its
    own place in the queue."""
    magic = MESSAGE_MAGIC_CODE if len(topic.encode()) <= MAX_TOPIC_BYTES_V1 else MESSAGE_MAGIC_CODE_V2
    encoded = bytearray()
    for message in decode_records(records):
        own = handle._replace(queue_offset=message.queue_offset)
        # A CRC over the whole record would be that of another one.
        properties = remove_property(
            properties_from_bytes(message.raw_properties), MessageConst.PROPERTY_CRC32
        )
        properties = set_property(properties, MessageConst.PROPERTY_POP_CK, own.encode())
        raw_properties = properties_to_bytes(properties)
        if len(raw_properties) <= MAX_PROPERTIES_BYTES:
            message.raw_properties = raw_properties
            message.topic, message.magic = topic, magic
        # Without room for the handle it stays as it is: clients can make the handle from the header.
        encoded += encode_record(message)
    return bytes(encoded)
