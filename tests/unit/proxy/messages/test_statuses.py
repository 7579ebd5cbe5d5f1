"""Statuses: which code a response or an error becomes. Clients retry by code, some for ever."""

from __future__ import annotations

import pytest

from kourou.client.core.refusals import response_error
from kourou.errors import CallTimeoutError, ConnectError, NoRouteError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.over_limit import Limited, OverLimit
from kourou.proxy.messages.statuses import StatusError, status_of, status_of_response
from kourou.proxy.wire.rocketmq_v2 import Code


@pytest.mark.parametrize(
    ("code", "remark", "expected"),
    [
        (ResponseCode.SUCCESS, None, Code.OK),
        (ResponseCode.SYSTEM_BUSY, "busy", Code.TOO_MANY_REQUESTS),
        (ResponseCode.TOPIC_NOT_EXIST, "gone", Code.TOPIC_NOT_FOUND),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "gone", Code.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.NO_PERMISSION, "the topic sending message is forbidden", Code.FORBIDDEN),
        (ResponseCode.NO_PERMISSION, "check signature failed", Code.UNAUTHORIZED),
        (ResponseCode.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: no", Code.UNAUTHORIZED),
        (ResponseCode.SYSTEM_ERROR, "disk broken", Code.INTERNAL_SERVER_ERROR),
        (4711, None, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_responses(code: int, remark: str | None, expected: Code) -> None:
    status = status_of_response(code, remark)
    assert status.code == expected
    assert status.message


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StatusError(Code.ILLEGAL_TOPIC, "words"), Code.ILLEGAL_TOPIC),
        (NoRouteError("t", "nothing there"), Code.TOPIC_NOT_FOUND),
        (CallTimeoutError("a:1", 10, 3000), Code.PROXY_TIMEOUT),
        (ConnectError("a:1", "refused"), Code.INTERNAL_SERVER_ERROR),
        (response_error(16, "check signature failed", "a:1", None), Code.UNAUTHORIZED),
        (
            response_error(2, OverLimit(Limited.TOPIC, "t", "rate", 5).remark(), "a", None),
            Code.TOO_MANY_REQUESTS,
        ),
    ],
)
def test_errors(error: Exception, expected: Code) -> None:
    status = status_of(error)
    assert (status.code, bool(status.message)) == (expected, True)


def test_an_error_of_ours_is_logged_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    assert status_of(ZeroDivisionError("by zero")).code == Code.INTERNAL_SERVER_ERROR
    (record,) = caplog.records
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("remark", "advice"),
    [
        ("username cannot be null.", "the proxy did not sign its request"),
        ("check signature failed.", "check the access key and the secret key of the client"),
        ("User:a has no permission to access Topic:t", "an administrator has to permit it"),
    ],
)
def test_refusals_of_brokers_name_the_next_step(remark: str, advice: str) -> None:
    message = status_of_response(ResponseCode.NO_PERMISSION, remark).message
    assert message.startswith(f"{remark} (") and advice in message
