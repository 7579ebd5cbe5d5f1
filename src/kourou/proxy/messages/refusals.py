"""Refusals of access control in words for the user of a gRPC client: what is refused, and what to do.

A client's user knows neither proxy nor brokers, so that the words say whose configuration it is about.
"""

from __future__ import annotations

from typing import Final

from kourou.client.core.refusals import is_wrong_login

UNSIGNED_CALL: Final = "the call was not signed: give the client an access key and its secret key"
"""What to do about a call without credentials."""

_OF_ROCKETMQ_4: Final = "AclException"
_UNSIGNED: Final = ("username cannot be null", "No accessKey is configured")


def is_unsigned(remark: str) -> bool:
    """Whether a server has refused a request because nobody has signed it."""
    return any(words in remark for words in _UNSIGNED)


def unsigned_remedy(remark: str) -> str:
    """What to do where a broker refuses what a proxy did not sign."""
    if _OF_ROCKETMQ_4 in remark:
        return (
            "the proxy passes no keys on, and accounts of RocketMQ 4 cannot be read by one of its own: start "
            "the brokers with --enable-proxy"
        )
    return (
        "the proxy did not sign its request, and passes no keys on: set authenticationEnabled and "
        "innerClientAuthenticationCredentials in its configuration"
    )


def refusal_of_call(remark: str, *, is_signed: bool) -> str:
    """The words for a call that the proxy refuses."""
    return f"{remark} ({_remedy(remark) if is_signed else UNSIGNED_CALL})"


def refusal_of_broker(remark: str) -> str:
    """The words for a request of the proxy that a broker or name server refuses. What a proxy signs, it signs
    with the keys of the client."""
    return f"{remark} ({unsigned_remedy(remark) if is_unsigned(remark) else _remedy(remark)})"


def _remedy(remark: str) -> str:
    if "too many wrong logins" in remark:
        return "wait: a client at that address signs with wrong keys, and the audit log names it"
    if "is disabled" in remark:
        return "an administrator has to enable the user"
    if is_wrong_login(remark):
        return "check the access key and the secret key of the client"
    return "an administrator has to permit it"
