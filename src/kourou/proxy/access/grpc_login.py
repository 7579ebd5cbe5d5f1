"""ProxyAccess: the account of a call, and whether it may do what no request to a broker decides.

Decided by an AccessGate: in the process of a broker its own, with its lock-outs, audit log and counters, else
that of the proxy (followed_accounts.py). Not here: the rights of sends, receives and whatever else reaches a
broker in a request, which the link signs with the account's own keys (links/): the broker's gate decides
those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kourou.access.gate import AccessGate
from kourou.access.model import AccessCall, AccessRefusedError, Account, Needs
from kourou.access.needs import NOTHING
from kourou.protocol.codes import RequestCode
from kourou.protocol.signature import ACCESS_KEY
from kourou.protocol.versions import CURRENT_VERSION
from kourou.proxy.access.credentials import credentials_of
from kourou.proxy.http2.call import Call
from kourou.proxy.messages.refusals import refusal_of_call
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code

# What an RPC is in remoting: for the audit log, and for codes that the configuration exempts.
_CODES: Final[dict[str, int]] = {
    "QueryRoute": RequestCode.GET_ROUTEINFO_BY_TOPIC,
    "Heartbeat": RequestCode.HEART_BEAT,
    "SendMessage": RequestCode.SEND_MESSAGE_V2,
    "QueryAssignment": RequestCode.QUERY_ASSIGNMENT,
    "ReceiveMessage": RequestCode.POP_MESSAGE,
    "AckMessage": RequestCode.ACK_MESSAGE,
    "ChangeInvisibleDuration": RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    "ForwardMessageToDeadLetterQueue": RequestCode.CONSUMER_SEND_MSG_BACK,
    "PullMessage": RequestCode.PULL_MESSAGE,
    "UpdateOffset": RequestCode.UPDATE_CONSUMER_OFFSET,
    "GetOffset": RequestCode.QUERY_CONSUMER_OFFSET,
    "QueryOffset": RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    "EndTransaction": RequestCode.END_TRANSACTION,
    "RecallMessage": RequestCode.RECALL_MESSAGE,
    "Telemetry": RequestCode.HEART_BEAT,
    "NotifyClientTermination": RequestCode.UNREGISTER_CLIENT,
}


class ProxyAccess(Protocol):
    """The accounts of a proxy."""

    def login(self, call: Call) -> Account | None:
        """The account whose signature a call carries; None: access control is off, or the call is exempt.
        StatusError: UNAUTHORIZED."""
        ...

    def check(self, call: Call, needs: Needs) -> None:
        """Check that the caller has these rights (`kourou.access.needs` makes them). StatusError:
        UNAUTHORIZED."""
        ...


class GatedAccess:
    """ProxyAccess by a gate, which `gate` returns; None: there is no access control."""

    def __init__(self, gate: Callable[[], AccessGate | None]) -> None:
        self._gate = gate

    def login(self, call: Call) -> Account | None:
        """The account of a call."""
        gate = self._gate()
        return None if gate is None else _checked(gate, call, NOTHING)

    def check(self, call: Call, needs: Needs) -> None:
        """Check rights."""
        gate = self._gate()
        if gate is not None:
            _checked(gate, call, needs)


def _checked(gate: AccessGate, call: Call, needs: Needs) -> Account | None:
    credentials = credentials_of(call.metadata)
    host = call.peer.rpartition(":")[0]
    try:
        return gate.check_call(
            AccessCall(
                code=_CODES.get(call.path.rpartition("/")[2], 0),
                version=CURRENT_VERSION,
                fields={ACCESS_KEY: credentials.access_key} if credentials.access_key else {},
                body=b"",
                address=host[1:-1] if host.startswith("[") else host,
                needs=needs,
                is_signed_with=credentials.is_signed_with,
            )
        )
    except AccessRefusedError as error:
        words = refusal_of_call(error.remark, is_signed=bool(credentials.access_key))
        raise StatusError(Code.UNAUTHORIZED, words) from error
