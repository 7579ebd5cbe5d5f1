"""The signature of a request: what is signed, in which order, however often the same fields come."""

from __future__ import annotations

import hmac
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.bodies.acl import AccessTables, PlainAccessConfig, PlainAclConfig, UserInfo
from kourou.protocol.headers.acl import CreateAccessConfigRequestHeader
from kourou.protocol.signature import HashedKey, signature_of

_NAMES = st.sampled_from(["a", "b", "AccessKey", "Signature", "SecurityToken", "B", "zone", "", "é"])


def expected(fields: dict[str, str], body: bytes, secret: str, without: frozenset[str]) -> str:
    signed = "".join(fields[name] for name in sorted(fields) if name != "Signature" and name not in without)
    return b64encode(hmac.digest(secret.encode(), signed.encode() + body, "sha1")).decode()


@given(
    st.dictionaries(_NAMES, st.text(st.sampled_from("ab1é漢"), max_size=5)),
    st.binary(max_size=20),
    st.text(st.sampled_from("kéy"), min_size=1, max_size=70),
    st.frozensets(_NAMES, max_size=2),
)
def test_any_fields(fields: dict[str, str], body: bytes, secret: str, without: frozenset[str]) -> None:
    for _ in range(2):  # the second time the order of the names is known
        assert signature_of(fields, body, secret, without=without) == expected(fields, body, secret, without)
    hashed = HashedKey(secret)
    for _ in range(2):  # of a copy of what is hashed
        assert hashed.signature_of(fields, body).decode() == expected(fields, body, secret, frozenset())
    backwards = dict(reversed(fields.items()))
    assert signature_of(backwards, body, secret) == expected(fields, body, secret, frozenset())


def test_many_kinds_of_requests_and_long_names() -> None:
    """More than are remembered; names too long to be kept."""
    for number in range(600):
        fields = {f"name{number}": "1", "a" * 2 * number: "2", "AccessKey": "3"}
        assert signature_of(fields, memoryview(b"body"), "sk") == expected(fields, b"body", "sk", frozenset())


@pytest.mark.parametrize(
    "secret",
    [
        UserInfo("alice", "hidden"),
        AccessTables(users=[UserInfo("alice", "hidden")]),
        PlainAclConfig(plain_access_configs=[PlainAccessConfig(access_key="alice", secret_key="hidden")]),
        CreateAccessConfigRequestHeader(access_key="alice", secret_key="hidden"),
    ],
)
def test_requests_and_answers_with_secrets_do_not_print_them(secret: object) -> None:
    assert "alice" in repr(secret) and "hidden" not in repr(secret)
