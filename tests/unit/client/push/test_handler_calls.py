"""What is logged of a handler that failed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kourou.client.core.failure_log import FailureLog
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult, done_count
from kourou.client.push.handler_calls import HandlerCalls
from kourou.client.push.handler_threads import HandlerThreads
from kourou.client.push.handlers import Handler, handler_of
from kourou.errors import MessageInProgressError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import MessageExt
from tests.unit.client.push.test_push_parts import messages

QUEUE = MessageQueue("TopicTest", "broker-a", 0)


def charge(message: MessageExt, context: ConsumeContext) -> None:
    raise SystemExit(3)


@pytest.fixture
async def calls() -> AsyncIterator[HandlerCalls]:
    threads = HandlerThreads("unit", 1)
    yield HandlerCalls(
        "billing", is_batch=True, hooks=(), threads=threads, is_stopping=lambda: False, failures=FailureLog()
    )
    await threads.stop()


@pytest.fixture
def handler() -> Handler:
    return handler_of(charge)


async def test_a_handler_that_exits_is_logged_with_its_traceback(
    calls: HandlerCalls, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        charge(messages(1)[0], ConsumeContext(QUEUE))
    except SystemExit as error:
        outcome = calls.outcome(handler, QUEUE, messages(1), None, None, error)
    assert outcome.result is ConsumeResult.LATER
    assert "raise SystemExit(3)" in caplog.text
    assert "the handler raised SystemExit(3)" in caplog.text


async def test_a_message_in_progress_elsewhere_takes_one_line(
    calls: HandlerCalls, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = calls.outcome(
        handler, QUEUE, messages(1), None, None, MessageInProgressError("billing/order-1")
    )
    assert outcome.result is ConsumeResult.LATER
    (record,) = caplog.records
    assert record.exc_info is None
    assert "'billing/order-1' is being handled elsewhere" in record.getMessage()


@pytest.mark.parametrize(
    ("ack_index", "reported"),
    [(None, "and 2 more"), (0, "offset 2 and 1 more"), (1, "offset 3:"), (2, "its 3 messages are consumed")],
)
async def test_only_those_that_come_again_are_named(
    calls: HandlerCalls,
    handler: Handler,
    caplog: pytest.LogCaptureFixture,
    ack_index: int | None,
    reported: str,
) -> None:
    context = ConsumeContext(QUEUE, ack_index=ack_index)
    calls.outcome(handler, QUEUE, messages(1, 2, 3), context, None, KeyError("x"))
    assert reported in caplog.records[0].getMessage()


async def test_a_retry_that_fails_is_not_logged_with_the_offset_of_the_retry_topic_in_its_own_topic(
    calls: HandlerCalls, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    (retry,) = messages(7)
    retry.reconsume_times = 1
    queue = MessageQueue("%RETRY%billing", "broker-a", 0)
    calls.outcome(handler, queue, [retry], None, None, KeyError("x"))
    where = "TopicTest, now in %RETRY%billing, queue 0, offset 7"
    assert caplog.records[0].getMessage() == (
        f"charge failed: KeyError: 'x'; message {retry.msg_id} of {where}: attempt 2"
    )


@pytest.mark.parametrize(
    ("result", "ack_index", "done"),
    [
        (ConsumeResult.SUCCESS, None, 6),
        (ConsumeResult.SUCCESS, 2, 3),
        (ConsumeResult.LATER, None, 0),
        (ConsumeResult.LATER, 2, 3),
        (ConsumeResult.LATER, -1, 0),
        (ConsumeResult.SUSPEND, 99, 6),
        (ConsumeResult.SUCCESS, -5, 0),
    ],
)
def test_how_many_of_a_batch_are_done_with(result: ConsumeResult, ack_index: int | None, done: int) -> None:
    assert done_count(result, ConsumeContext(QUEUE, ack_index=ack_index), 6) == done
    if ack_index is None:
        assert done_count(result, None, 6) == done
