"""What a slave makes of a pull that found nothing."""

from __future__ import annotations

import pytest

from kourou.broker.pull.pull_answer import leave_offset, pull_code
from kourou.protocol.codes import ResponseCode
from kourou.store.read.get_message_result import GetMessageResult, GetMessageStatus

MOVED, NOT_FOUND, AGAIN = (
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
)


@pytest.mark.parametrize(
    ("status", "of_master", "of_slave", "next_offset"),
    [
        (GetMessageStatus.OFFSET_OVERFLOW_BADLY, MOVED, AGAIN, 7),
        (GetMessageStatus.OFFSET_TOO_SMALL, MOVED, AGAIN, 7),
        (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, MOVED, AGAIN, 7),
        (GetMessageStatus.NO_MESSAGE_IN_QUEUE, MOVED, AGAIN, 7),
        (GetMessageStatus.OFFSET_OVERFLOW_ONE, NOT_FOUND, NOT_FOUND, 7),
        (GetMessageStatus.NO_MATCHED_MESSAGE, AGAIN, AGAIN, 30),
    ],
)
def test_a_slave_moves_no_consumer_to_an_offset_that_it_has_instead(
    status: GetMessageStatus, of_master: ResponseCode, of_slave: ResponseCode, next_offset: int
) -> None:
    result = GetMessageResult(status, 30, 30, 40)
    code = pull_code(status, 7)
    assert code == of_master
    assert (leave_offset(result, code, 7), result.next_begin_offset) == (of_slave, next_offset)
