"""What each answer says about a message: acknowledged, not stored, or unknown."""

from __future__ import annotations

import asyncio

import pytest

from kourou import Message, MessageQueue, SendResult, SendStatus
from kourou.client import SendContext
from kourou.errors import (
    AtomicRolledBackError,
    AtomicUndecidedError,
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    KourouError,
    MessageRefusedError,
    NoRouteError,
    RequestError,
    ResponseError,
    SendFailedError,
    TooManyRequestsError,
)
from kourou.protocol.codes import ResponseCode
from tests.failover.outcomes import AttemptHook, Attempts, is_unsure, outcome_of, publish_outcome

MESSAGE = Message("Topic", b"value")
QUEUE = MessageQueue("Topic", "broker-a", 0)
GAVE_UP = SendFailedError("Topic", [], 3_000)


def answered(code: ResponseCode, remark: str = "") -> ResponseError:
    return ResponseError(int(code), remark)


@pytest.mark.parametrize(
    "error",
    [
        ConnectError("a:1", "refused"),
        NoRouteError("Topic", "unknown"),
        TooManyRequestsError("a:1", "requests", 1),
        MessageRefusedError("too long"),
        answered(ResponseCode.SYSTEM_BUSY),
        answered(ResponseCode.TOPIC_NOT_EXIST),
        answered(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough: 1 of 2"),
        answered(ResponseCode.KOUROU_NOT_STORED),
    ],
    ids=repr,
)
def test_an_attempt_that_stored_nothing(error: KourouError) -> None:
    assert not is_unsure(error)


@pytest.mark.parametrize(
    "error",
    [
        CallTimeoutError("a:1", 10, 3_000),
        ConnectionLostError("a:1", "closed"),
        answered(ResponseCode.SERVICE_NOT_AVAILABLE),
        answered(ResponseCode.SYSTEM_ERROR, "create mapped file failed"),
        answered(ResponseCode.KOUROU_SEQUENCE_TOO_OLD),
        RequestError(1, "unexpected"),
        asyncio.CancelledError(),
    ],
    ids=repr,
)
def test_an_attempt_that_may_have_stored_the_message(error: BaseException) -> None:
    assert is_unsure(error)


def attempts_of(*ends: Exception | SendStatus | None) -> Attempts:
    """The attempts of a send that ended so; None: it never ended."""
    hook = AttemptHook()
    attempts = hook.expect([MESSAGE])
    for number, end in enumerate(ends, 1):
        context = SendContext(
            producer_group="g",
            client_id="c",
            messages=[MESSAGE],
            queue=QUEUE,
            broker_address=f"a:{number}",
            attempt=number,
        )
        hook.before_send(context)
        if isinstance(end, SendStatus):
            context.result = SendResult(end, "id", QUEUE, 1, "00")
        else:
            context.error = end
        if end is not None:
            hook.after_send(context)
    hook.forget([MESSAGE])
    return attempts


BUSY, LOST = answered(ResponseCode.SYSTEM_BUSY), ConnectionLostError("a:1", "closed")


@pytest.mark.parametrize(
    ("ends", "unsure"),
    [
        ([SendStatus.SEND_OK], 0),
        ([LOST, SendStatus.SEND_OK], 1),
        ([LOST, BUSY, LOST, SendStatus.SEND_OK], 2),
        ([SendStatus.FLUSH_SLAVE_TIMEOUT], 1),
        ([BUSY, BUSY], 0),
        ([BUSY, None], 1),
    ],
)
def test_unsure_attempts_are_counted(ends: list[Exception | SendStatus | None], unsure: int) -> None:
    assert attempts_of(*ends).unsure == unsure


def test_a_send_that_gave_up_is_unknown_if_one_attempt_is() -> None:
    """SERVICE_NOT_AVAILABLE counts, although the client does not say `may_be_stored`."""
    fenced = answered(ResponseCode.SERVICE_NOT_AVAILABLE)
    assert outcome_of(GAVE_UP, attempts_of(fenced, BUSY)) == "unknown"
    assert outcome_of(GAVE_UP, attempts_of(BUSY, BUSY)) == "failed"
    assert outcome_of(BUSY, attempts_of(fenced, BUSY)) == "unknown"


def test_what_the_client_is_not_sure_of_is_unknown() -> None:
    may_be_stored = SendFailedError("Topic", [], 3_000, may_be_stored=True)
    assert outcome_of(may_be_stored, attempts_of()) == "unknown"
    assert outcome_of(asyncio.CancelledError(), attempts_of()) == "unknown"
    assert outcome_of(NoRouteError("Topic", "unknown"), attempts_of()) == "failed"
    assert outcome_of(MessageRefusedError("too long"), attempts_of()) == "failed"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (AtomicUndecidedError("id", "broker-a", "no answer"), "unknown"),
        (answered(ResponseCode.KOUROU_ATOMIC_TOO_OLD), "unknown"),
        (AtomicRolledBackError("id", "not in time"), "failed"),
        (ConnectError("a:1", "refused"), "failed"),
        (answered(ResponseCode.TOPIC_NOT_EXIST), "failed"),
    ],
    ids=repr,
)
def test_the_outcome_of_an_atomic_publish(error: KourouError, outcome: str) -> None:
    assert publish_outcome(error) == outcome


def test_the_address_is_that_of_the_broker_that_acknowledged() -> None:
    assert attempts_of(LOST, SendStatus.SEND_OK).address == "a:2"
