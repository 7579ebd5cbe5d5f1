"""Handlers that fail for every message do not fill the log."""

from __future__ import annotations

import pytest

from kourou.client.core.failure_log import REPORT_INTERVAL_MS, FailureLog, kind_of
from kourou.client.producer.producer_hooks import ProducerHook, SendContext, call_hooks
from kourou.client.push.handler_calls import HandlerCalls
from kourou.client.push.handler_threads import HandlerThreads
from kourou.client.push.handlers import ConsumeHookContext, ConsumerHook, call_after, call_before, handler_of
from kourou.protocol.message import Message, MessageExt
from kourou.testing.clock import FakeClock
from tests.unit.client.push.test_push_parts import QUEUE, messages


def charge(message: MessageExt) -> None:
    raise KeyError("price")


def failure_of(message: MessageExt, fails: bool = True) -> KeyError:
    try:
        if fails:
            charge(message)
        raise KeyError("another line")
    except KeyError as error:
        return error


async def test_ten_thousand_failing_messages_take_one_traceback_and_one_line_every_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock(0)
    failures = FailureLog(clock)
    calls = HandlerCalls(
        "billing",
        is_batch=False,
        hooks=(),
        threads=HandlerThreads("unit", 1),
        is_stopping=lambda: False,
        failures=failures,
    )
    handler = handler_of(charge)
    message = messages(1)[0]
    for _ in range(2):
        for _ in range(5_000):
            calls.outcome(handler, QUEUE, [message], None, None, failure_of(message))
        clock.advance(REPORT_INTERVAL_MS)
        await failures.report()
    first, summed, again = [record.getMessage() for record in caplog.records]
    which = f"message {message.msg_id} of TopicTest, queue 0, offset 1: attempt 1"
    assert first == f"charge failed: KeyError: 'price'; {which}"
    assert caplog.records[0].exc_info is not None
    assert summed == f"charge failed 4999 more times in 10 s; the last: KeyError: 'price'; {which}"
    assert again == summed.replace("4999", "5000")


async def test_another_fault_of_the_same_type_is_logged_with_its_own_traceback() -> None:
    message = messages(1)[0]
    assert kind_of(failure_of(message)) == kind_of(failure_of(message))
    assert kind_of(failure_of(message)) != kind_of(failure_of(message, fails=False))


async def test_a_failure_after_a_quiet_interval_is_logged_in_full(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(0)
    failures = FailureLog(clock)
    failures.warn("kind", "charge failed", "message 1")
    failures.warn("kind", "charge failed", "message 2")
    for _ in range(2):
        clock.advance(REPORT_INTERVAL_MS)
        await failures.report()
    failures.warn("kind", "charge failed", "message 3")
    assert [record.getMessage() for record in caplog.records] == [
        "charge failed: message 1",
        "charge failed once more in 10 s; the last: message 2",
        "charge failed: message 3",
    ]


async def test_a_hook_that_fails_for_every_message_is_logged_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(ConsumerHook):
        __hash__ = None  # type: ignore[assignment]

        def __repr__(self) -> str:
            return "Broken()"

        def before_consume(self, context: ConsumeHookContext) -> None:
            raise ValueError("before")

        def after_consume(self, context: ConsumeHookContext) -> None:
            raise ValueError("after")

    failures, hooks = FailureLog(FakeClock(0)), [Broken()]
    context = ConsumeHookContext("billing", QUEUE, messages(1))
    for _ in range(100):
        call_before(hooks, context, failures)
        call_after(hooks, context, failures)
    await failures.report()
    before, after, *sums = [record.getMessage() for record in caplog.records]
    assert before.startswith("hook Broken() failed before consuming: message ")
    assert after.startswith("hook Broken() failed after consuming: message ")
    assert ["99 more times" in text for text in sums] == [True, True]


async def test_a_producers_hook_that_fails_for_every_send_is_logged_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(ProducerHook):
        def __repr__(self) -> str:
            return "Broken()"

        def before_send(self, context: SendContext) -> None:
            raise ValueError("before")

    failures, methods = FailureLog(FakeClock(0)), [Broken().before_send]
    for _ in range(100):
        context = SendContext(
            producer_group="g",
            client_id="c",
            messages=[Message("Orders", b"x")],
            queue=QUEUE,
            broker_address="",
            attempt=1,
        )
        call_hooks(methods, context, failures)
    await failures.report()
    first, total = [record.getMessage() for record in caplog.records]
    assert first.endswith("before_send of Broken()> failed: topic Orders")
    assert "failed 99 more times in 1 s; the last: topic Orders" in total
