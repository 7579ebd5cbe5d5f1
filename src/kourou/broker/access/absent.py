"""Answers to the admin requests of an access control that a broker does not have.

RocketMQ 4 leaves two of its five requests without an answer, which ends in a timeout; here all are refused.
Not here: the requests where there is one (plain_processor.py, auth_processor.py), which take long to import.
"""

from __future__ import annotations

from typing import Final

from kourou.errors import RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.transport.request import Processor, Request

_NO_USERS: Final = (
    "The authenticationMetadataProvider is not configured. This broker has no users: it was started without "
    "authenticationEnabled=true"
)
_NO_ACCOUNTS: Final = (
    "This broker has no accounts of RocketMQ 4: it was started without aclEnable=true, and does not use "
    "plain_acl.yml"
)
_PLAIN_CODES: Final = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    RequestCode.DELETE_ACL_CONFIG: ResponseCode.DELETE_ACL_CONFIG_FAILED,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: ResponseCode.SYSTEM_ERROR,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: ResponseCode.SYSTEM_ERROR,
}
"""With the codes of RocketMQ's answers."""


class NoAuthProcessor:
    """Refuses the requests of users and policies, of RocketMQ 5."""

    def processors(self) -> dict[int, Processor]:
        """The request codes refused here."""
        codes = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)
        return dict.fromkeys(codes, _refusing(ResponseCode.SYSTEM_ERROR, _NO_USERS))


class NoPlainAclProcessor:
    """Refuses the requests of accounts of RocketMQ 4."""

    def processors(self) -> dict[int, Processor]:
        """The request codes refused here."""
        return {code: _refusing(answer, _NO_ACCOUNTS) for code, answer in _PLAIN_CODES.items()}


def _refusing(code: ResponseCode, words: str) -> Processor:
    def refuse(request: Request) -> None:
        raise RequestError(code, words)

    return refuse
