"""Refusals: the words of access control, of both versions."""

from __future__ import annotations

import pytest

from kourou.client.core.credentials import Credentials
from kourou.client.core.refusals import response_error
from kourou.console.api_errors import api_error_of
from kourou.console.refusals import is_about_login, is_about_permission, is_refusal, readable, refusal
from kourou.errors import ResponseError

PLAIN = (
    "org.apache.rocketmq.acl.common.AclException: No default permission for topic:orders, "
    "org.apache.rocketmq.acl.plain.PlainPermissionManager.checkPerm(PlainPermissionManager.java:612)"
)
AUTH = "User:bob has no permission to access Topic:orders from 10.0.0.7, no matched policies."


@pytest.mark.parametrize(
    ("code", "remark", "words"),
    [
        (1, PLAIN, "No default permission for topic:orders"),
        (16, AUTH, AUTH),
        (1, "the disk is full", None),
        (17, "No topic route info", None),
    ],
)
def test_the_words_of_a_refusal(code: int, remark: str, words: str | None) -> None:
    error = ResponseError(code, remark, "10.0.0.1:10911")
    assert refusal(error) == words
    assert is_refusal(str(error)) == (words is not None)
    assert readable(f"broker a: {error}") == (
        f"broker a: {words} (from 10.0.0.1:10911)" if words else f"broker a: {error}"
    )


@pytest.mark.parametrize("user", ["bob", ""])
@pytest.mark.parametrize(
    "remark",
    [
        AUTH,
        "User:bob is disabled.",
        "check signature failed.",
        "username cannot be null.",
        "too many wrong logins from 10.0.0.7, they are refused for 57 s",
    ],
)
def test_what_is_added_for_programs_is_left_out(remark: str, user: str) -> None:
    credentials = Credentials(user, "secret") if user else None
    error = response_error(16, remark, "10.0.0.1:10911", credentials)
    assert readable(str(error)) == f"{remark} (from 10.0.0.1:10911)"


@pytest.mark.parametrize(
    ("words", "is_permission", "is_login"),
    [
        (AUTH, True, False),
        ("User:bob has no permission to access Topic:t from 1.2.3.4, the decision is deny.", True, False),
        ("No default permission for group:billing", True, False),
        ("Need admin permission for request code=17, but accessKey=bob is not", True, False),
        ("authorization context is empty.", True, False),
        ("User:permission is not found.", False, True),
        ("User:bob is disabled.", False, True),
        ("check signature failed.", False, True),
        ("Check signature failed for accessKey=bob", False, True),
        ("No acl config for bob", False, True),
        ("Can not update config in black list.", False, False),
    ],
)
def test_what_a_refusal_is_about(words: str, is_permission: bool, is_login: bool) -> None:
    assert (is_about_permission(words), is_about_login(words)) == (is_permission, is_login)


def test_a_refusal_is_403_with_what_to_do() -> None:
    error = api_error_of(ResponseError(1, PLAIN, "10.0.0.1:10911"))
    assert (error.status, str(error)) == (
        403,
        "No default permission for topic:orders (from 10.0.0.1:10911)",
    )
    assert "can grant it" in error.answer.error.hint
