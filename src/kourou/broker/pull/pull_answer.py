"""The answer to a pull: a header, and the records as they lie in the log, without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kourou.broker.admission import PullForbiddenError
from kourou.protocol.codes import CommandFlag, LanguageCode, ResponseCode, SerializeType
from kourou.protocol.ext_fields import ext_fields_of
from kourou.protocol.header_binary import encode_binary_head
from kourou.protocol.headers.pull import PullMessageResponseHeader
from kourou.protocol.layout import BINARY_VALUE_LENGTH, FRAME, Buffer
from kourou.protocol.versions import CURRENT_VERSION
from kourou.store.read.get_message_result import GetMessageResult, GetMessageStatus
from kourou.transport.request import Request

_PREFIX: Final = FRAME.struct()
_JSON: Final = SerializeType.JSON.value
_ONEWAY: Final = CommandFlag.ONEWAY.value
_TEMPLATE: Final = (
    '{"code":0,"extFields":{"groupSysFlag":"0","maxOffset":"%d","minOffset":"%d","nextBeginOffset":"%d",'
    '"suggestWhichBrokerId":"%d","topicSysFlag":"%d"},"flag":1,"language":"PYTHON","opaque":%d,'
    f'"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":{CURRENT_VERSION}}}'
).encode()


def _binary_template() -> bytes:
    """The header of an answer with messages, in binary: its numbers, with their lengths, are left out."""
    hole = "%d"
    fields = PullMessageResponseHeader(
        suggest_which_broker_id=0,
        next_begin_offset=0,
        min_offset=0,
        max_offset=0,
        topic_sys_flag=0,
        group_sys_flag=0,
    )
    texts = {name: hole if name != "groupSysFlag" else text for name, text in ext_fields_of(fields).items()}
    header = encode_binary_head(
        0,
        LanguageCode.PYTHON,
        CURRENT_VERSION,
        0,
        CommandFlag.RESPONSE,
        GetMessageStatus.FOUND.name,
        texts,
    )
    return header.replace(len(hole).to_bytes(BINARY_VALUE_LENGTH.size, "big") + hole.encode(), hole.encode())


KERNEL_TEMPLATES: Final = _TEMPLATE, _binary_template()
"""Headers of answers with messages, of which the compiled kernel makes its answers: JSON and binary."""

_CODES: Final = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


def pull_code(status: GetMessageStatus, queue_offset: int) -> ResponseCode:
    """The code for what the store said to a pull from `queue_offset`."""
    code = _CODES.get(status)
    if code is not None:
        return code
    # An empty queue: a pull at its start may wait there.
    return ResponseCode.PULL_OFFSET_MOVED if queue_offset else ResponseCode.PULL_NOT_FOUND


_READ: Final = frozenset({GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.MESSAGE_WAS_REMOVING})


def leave_offset(result: GetMessageResult, code: ResponseCode, queue_offset: int) -> ResponseCode:
    """The code of a slave for a pull that found nothing. A slave may be behind its master, so the consumer
    stays at `queue_offset` unless messages were passed over, and is not sent back."""
    if result.status not in _READ:
        result.next_begin_offset = queue_offset
    return ResponseCode.PULL_RETRY_IMMEDIATELY if code == ResponseCode.PULL_OFFSET_MOVED else code


def answer_forbidden(request: Request, refusal: PullForbiddenError) -> None:
    """Reject a pull; no offsets go with it."""
    fields = {"forbiddenType": str(refusal.forbidden_type.value)}
    request.reply(fields, code=refusal.response_code, remark=refusal.remark)


def answer_found(request: Request, result: GetMessageResult, broker_id: int, topic_sys_flag: int) -> None:
    """Respond with messages, which have to be loaded."""
    if request.serialize_type != _JSON or request.head.flag & _ONEWAY:
        header = _header(result, broker_id, topic_sys_flag)
        request.reply(header, b"".join(result.buffers), remark=result.status.name)
        return
    head = _TEMPLATE % (
        result.max_offset,
        result.min_offset,
        result.next_begin_offset,
        broker_id,
        topic_sys_flag,
        request.opaque,
    )
    send_records(request, head, result.buffers)


def send_records(request: Request, head: bytes, buffers: Sequence[Buffer]) -> None:
    """Respond with success: a header in JSON, and records, which are not copied."""
    request.answered = True
    if request.meter is not None:
        request.meter.answered(request, 0)
    # What there is, not what there should be: a length that is wrong would leave the client waiting for ever.
    size = 4 + len(head) + (len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers)))
    request.connection.send_parts([_PREFIX.pack(size, len(head)) + head, *buffers], 4 + size)


def answer_none(
    request: Request, result: GetMessageResult, code: ResponseCode, broker_id: int, topic_sys_flag: int
) -> None:
    """Say that there is nothing, and where to go on."""
    request.reply(_header(result, broker_id, topic_sys_flag), code=code, remark=result.status.name)


def answer_moved(request: Request, queue_offset: int, min_offset: int, max_offset: int, remark: str) -> None:
    """Say that the group goes on at `queue_offset`: an administrator has set it, or an overflow policy has
    dropped what lies below."""
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0,
        next_begin_offset=queue_offset,
        min_offset=min_offset,
        max_offset=max_offset,
    )
    request.reply(header, code=ResponseCode.PULL_OFFSET_MOVED, remark=remark)


def _header(result: GetMessageResult, broker_id: int, topic_sys_flag: int) -> PullMessageResponseHeader:
    return PullMessageResponseHeader(
        suggest_which_broker_id=broker_id,
        next_begin_offset=result.next_begin_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        topic_sys_flag=topic_sys_flag,
        group_sys_flag=0,
    )
