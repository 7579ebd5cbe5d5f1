"""Refusals of access control: in the words of each version, with the user, logged once."""

from __future__ import annotations

import logging

import pytest

from kourou.client.core.credentials import Credentials
from kourou.client.core.refusals import RefusalLog, response_error
from kourou.client.producer.pending_send import describe_attempt, is_retriable
from kourou.errors import AccessDeniedError, AccountLimitError, CallTimeoutError, ResponseError
from kourou.testing.clock import FakeClock

PLAIN = "org.apache.rocketmq.acl.common.AclException: {}, org.apache.rocketmq.acl.plain.X.y(X.java:1)"
NO_MATCH = "User:ann has no permission to access Topic:orders from 10.0.0.7, no matched policies."
ANN = Credentials("ann", "the-secret")


@pytest.mark.parametrize(
    ("code", "remark", "remedy"),
    [
        (1, PLAIN.format("No default permission for topic:orders"), "signed by user 'ann': an administrator"),
        (1, PLAIN.format("Check signature failed for accessKey=ann"), "check access key and secret key of"),
        (1, PLAIN.format("No acl config for ann"), "check access key and secret key of user 'ann'"),
        (16, NO_MATCH, "signed by user 'ann': an administrator has to permit it"),
        (16, "User:ann is not found.", "check access key and secret key of user 'ann'"),
        (16, "User:ann is disabled.", "an administrator has to enable user 'ann'"),
        (
            16,
            "too many wrong logins from 10.0.0.7, they are refused for 57 s",
            "wait: a client at that address signs with wrong keys, as user 'ann' or as others",
        ),
        (16, "check signature failed.", "check access key and secret key of user 'ann'"),
    ],
)
def test_words_of_both_versions(code: int, remark: str, remedy: str) -> None:
    error = response_error(code, remark, "10.0.0.1:10911", ANN)
    assert isinstance(error, AccessDeniedError)
    assert error.user == "ann"
    assert remedy in str(error)
    assert remark in str(error) and "10.0.0.1:10911" in str(error)
    assert "the-secret" not in repr(error) + str(error)


@pytest.mark.parametrize(
    "remark", ["username cannot be null.", PLAIN.format("No accessKey is configured")], ids=["5.x", "4.x"]
)
def test_requests_without_signature(remark: str) -> None:
    error = response_error(16 if "username" in remark else 1, remark, "", None)
    assert isinstance(error, AccessDeniedError)
    assert error.user == ""
    assert "the request was not signed: give the client an access key" in str(error)
    assert "--acl FILE" in error.remedy


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (16, "the broker[10.0.0.1] sending message is forbidden"),
        (16, "the consumer group[g] is not allowed to consume"),
        (1, "in-sync replicas not enough"),
        (17, NO_MATCH),
    ],
)
def test_other_failures_are_no_refusals(code: int, remark: str) -> None:
    error = response_error(code, remark, "", ANN)
    assert type(error) is ResponseError
    assert not RefusalLog().report("group g", error)


def test_a_send_has_the_attempts_of_java_and_the_remedy() -> None:
    """Brokers of one cluster may differ in their accounts, so another one is tried, as Java's client does."""
    error = response_error(16, NO_MATCH, "10.0.0.1:10911", ANN)
    assert is_retriable(error)
    words = describe_attempt("broker-a", "10.0.0.1:10911", error)
    assert (
        "no matched policies; the request was signed by user 'ann': an administrator has to permit" in words
    )


def test_a_refusal_is_logged_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    log = RefusalLog(clock)
    error = response_error(16, NO_MATCH, "10.0.0.1:10911", ANN)
    assert all(log.report("group g", error) for _ in range(100))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "group g: refused" in caplog.text and NO_MATCH in caplog.text
    other = response_error(16, NO_MATCH.replace("orders", "bills"), "10.0.0.1:10911", ANN)
    log.report("group g", other)
    assert len(caplog.records) == 2
    clock.advance(ms=3_600_000)
    log.report("group g", error)
    assert len(caplog.records) == 3


def test_failures_of_the_network_are_left_to_others(caplog: pytest.LogCaptureFixture) -> None:
    assert not RefusalLog().report("group g", CallTimeoutError("10.0.0.1:10911", 11, 3_000))
    assert not caplog.records


LIMIT = "account ann is over its limit: more than 9 messages are pulled per second, wait {} ms"


def test_a_limit_has_account_words_and_time() -> None:
    error = response_error(2, LIMIT.format(250), "10.0.0.1:10911", ANN)
    assert isinstance(error, AccountLimitError)
    assert (error.account, error.limit) == ("ann", "more than 9 messages are pulled per second")
    assert (error.wait_ms, error.wait_s) == (250, 0.25)
    assert LIMIT.format(250) in str(error)
    error = response_error(
        2, "account ann is over its limit: it has 1 connection, and may not have more", "", ANN
    )
    assert isinstance(error, AccountLimitError) and error.wait_s is None
    for code, remark in ((1, LIMIT.format(1)), (2, "[REJECTREQUEST]system busy, start flow control")):
        assert not isinstance(response_error(code, remark, "", ANN), AccountLimitError)


def test_a_limit_is_logged_once_an_hour_whatever_the_time_to_wait(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(wall_ms=0)
    log = RefusalLog(clock)
    for wait_ms in range(10):
        assert log.report("group g", response_error(2, LIMIT.format(wait_ms), "", ANN))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    clock.advance(ms=3_600_000)
    assert log.report("group g", response_error(2, LIMIT.format(1), "", ANN))
    assert len(caplog.records) == 2
