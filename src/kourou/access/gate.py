"""AccessGate: the check of every request of one server, by the rules of either version of RocketMQ.

Each request is decided for itself: a connection that has signed once is trusted no more than another. Names
are read from a body only after its signature was right. What cannot be read is refused, unless it comes from
an administrator or an exempt address: then its processor says what is wrong with it.

Wrong logins lock out (lockout.py), accounts may have limits (quotas.py), refusals and administrative requests
are written to the audit log (audit_log.py). Of a send like one that was admitted only the signature is
checked (known_senders.py). Not here: the permissions (plain/, auth/), the table of requests (requests.py).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

from kourou.access.audit import AuditedRequest, audited_resource, resource_of
from kourou.access.audit_log import AuditLog
from kourou.access.known_senders import KnownSenders
from kourou.access.lockout import LockedOut, Lockout
from kourou.access.model import (
    AccessCall,
    AccessRefusedError,
    AccessRules,
    Account,
    Needs,
    RefusalKind,
)
from kourou.access.needs import ADMINISTRATOR, SUB_OR_GET, act_for, publish, read_messages
from kourou.access.quotas import Quotas
from kourou.access.requests import AUDITED, BODY_CODES, RequestTable
from kourou.access.signatures import is_signed_by
from kourou.errors import KourouError, ProtocolError, RequestError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.producer_sequence import owner_digits
from kourou.protocol.signature import ACCESS_KEY
from kourou.protocol.signed_send import SignedSend

_log = logging.getLogger(__name__)

_WRONG_LOGINS: Final = frozenset({RefusalKind.UNKNOWN_USER, RefusalKind.WRONG_SIGNATURE})


class GateConnection(Protocol):
    """What the gate needs of a connection."""

    remote_address: str
    certificate_user: str | None
    closed: bool


class GateRequest(Protocol):
    """What the gate needs of a request."""

    code: int
    body: bytes
    meter: Any

    @property
    def version(self) -> int:
        """The sender's version number."""
        ...

    @property
    def is_oneway(self) -> bool:
        """Whether there is no response."""
        ...

    @property
    def ext_fields(self) -> dict[str, str]:
        """All header fields as text."""
        ...

    def signed_send(self) -> SignedSend | None:
        """Of a send in the usual form, what is signed; None: see `ext_fields`."""
        ...

    @property
    def connection(self) -> GateConnection:
        """Where it came from."""
        ...


class AccessGate:
    """One per server. `rules` may change what they decide; the owner then invalidates what was decided."""

    def __init__(
        self,
        rules: AccessRules,
        requests: RequestTable,
        *,
        monotonic_ms: Callable[[], int],
        lockout: Lockout | None = None,
        quotas: Quotas | None = None,
        audit_log: AuditLog | None = None,
        own_account: Account | None = None,
        ruling: Callable[[], object] | None = None,
    ) -> None:
        self._rules = rules
        self._requests = requests
        self._monotonic_ms = monotonic_ms
        self._lockout = lockout
        self._quotas = quotas
        self._audit_log = audit_log
        # Of requests that the server sends to itself; it is not among the accounts of the rules.
        self._own_account = own_account
        # Without a ruling to bind them to, no decisions are kept.
        self._known = None if ruling is None else KnownSenders(rules, ruling)
        self._last: tuple[GateRequest, Account | None] | None = None
        self.refusals: Counter[RefusalKind] = Counter()
        """How many requests were refused, by the reason."""

    # -- decisions -------------------------------------------------------------------------------

    def check(self, request: GateRequest) -> None:
        """Admit a request. AccessRefusedError: it is refused."""
        known = self._known_sender(request)
        if known is not None:
            self._last = request, known
            return
        call = _call_of(request)
        try:
            account = self._admit(call)
            if account is not None and self._quotas is not None and self._quotas.has_limits:
                self._quotas.admit(call, account, request.connection)
        except AccessRefusedError as error:
            self._refused(call, error)
            raise
        self._last = request, account
        if self._known is not None and account is not None and call.certificate_user is None:
            self._known.learn(request, self.sender)
        if self._audit_log is not None and call.code in AUDITED:
            self._audit(self._audit_log, request, call, account)

    def check_call(self, call: AccessCall) -> Account | None:
        """Admit a call that came by another protocol, with what it needs. AccessRefusedError: it is refused,
        counted and locked out like a request."""
        try:
            if self._lockout is not None:
                self._check_lockout(self._lockout, call)
            return self._decide(call)
        except AccessRefusedError as error:
            self._refused(call, error)
            raise

    def account_of(self, request: GateRequest) -> Account | None:
        """The account of an admitted request; None: it is exempt."""
        last = self._last
        if last is not None and last[0] is request:
            return last[1]
        return self._decide(_call_of(request))

    def is_administrator(self, request: GateRequest) -> bool:
        """Whether an administrator sent a request that was admitted."""
        account = self.account_of(request)
        return account is not None and account.is_admin

    def check_read(self, request: GateRequest, topic: str) -> None:
        """Check that the sender of a request may read messages of `topic`, which was not in the request."""
        if self._requests.checks_records:
            self._check_needs(request, read_messages(topic, SUB_OR_GET))

    def check_publish(self, request: GateRequest, topic: str) -> None:
        """The same for sending to it."""
        if self._requests.checks_records:
            self._check_needs(request, publish(topic))

    def may_publish(self, request: GateRequest, topic: str) -> bool:
        """Whether the sender of a request may send to `topic`; nothing is counted."""
        if not self._requests.checks_records:
            return True
        call = _call_of(request)
        call.needs = publish(topic)
        try:
            self._decide(call)
        except AccessRefusedError:
            return False
        return True

    def check_producer(self, request: GateRequest, identity: str) -> Account | None:
        """Check that the sender of a request may send as an idempotent producer: of a name that is the owner
        of its group, of a random id the account that has opened it, of both an administrator. The account;
        None: it is exempt, or may from here only."""
        account = self.account_of(request)
        if account is None or account.is_admin:
            return account
        needs = act_for(identity.rpartition(":")[0])
        if not self._rules.has_everywhere(account.name, needs):
            self._check_needs(request, needs)
            return None
        try:
            _check_owner(account, needs)
        except AccessRefusedError as error:
            self._refused(_call_of(request), error)
            raise
        return account

    def sender(self, access_key: str, topic: str) -> Account | None:
        """The account that may send to `topic` from everywhere, its signature provided. None: `check` has to
        see each request."""
        account = self._rules.sender(access_key, topic)
        quotas = self._quotas
        if account is None or quotas is None or not quotas.has_limits:
            return account
        return None if quotas.is_limited(account) else account

    def has_to_see_sends(self, connection: GateConnection) -> bool:
        """Whether `check` has to see each send of a connection: its certificate names the user, or a user is
        locked out from its address. A right signature must not be told from wrong ones then."""
        if connection.certificate_user is not None:
            return True
        lockout = self._lockout
        if lockout is None or not len(lockout):
            return False
        return lockout.has_lock(_ip_address(connection.remote_address), self._monotonic_ms())

    def pulled(self, request: GateRequest, messages: int, size_bytes: int) -> None:
        """Messages go to a consumer: they count for its account."""
        quotas = self._quotas
        if quotas is not None and quotas.has_limits:
            name = request.connection.certificate_user or request.ext_fields.get(ACCESS_KEY, "")
            quotas.pulled(name, messages, size_bytes)

    def _known_sender(self, request: GateRequest) -> Account | None:
        """The account of a send like one that was admitted, if this one is signed, too, and nothing else has
        to be looked at."""
        connection, lockout, quotas = request.connection, self._lockout, self._quotas
        if self._known is None or connection.certificate_user is not None:
            return None
        account = self._known.sender_of(request)
        if account is None or (quotas is not None and quotas.has_limits and quotas.is_limited(account)):
            return None
        if lockout is not None and len(lockout):
            address = _ip_address(connection.remote_address)
            if lockout.left_ms(address, account.name, self._monotonic_ms()):
                return None
        return account

    def _check_needs(self, request: GateRequest, needs: Needs) -> None:
        call = _call_of(request)
        call.needs = needs
        try:
            self._decide(call)
        except AccessRefusedError as error:
            self._refused(call, error)
            raise

    def _admit(self, call: AccessCall) -> Account | None:
        if self._lockout is not None:
            self._check_lockout(self._lockout, call)
        if call.code in BODY_CODES:
            self._decide(call)
        try:
            call.needs = self._requests.needs_of(call.code, call.fields, call.body)
        except (ProtocolError, RequestError) as error:
            account = self._decide(call)
            if account is None:
                # A code that is exempt where nothing is needed is not, as long as that is unknown.
                call.needs = ADMINISTRATOR
                return self._decide(call)
            if account.is_admin:
                return account
            raise _unreadable(error, account) from None
        account = self._decide(call)
        _check_owner(account, call.needs)
        return account

    def _decide(self, call: AccessCall) -> Account | None:
        own = self._own_account
        if own is not None and call.access_key == own.name and is_signed_by(call, own.secret_key):
            return own
        return self._rules.check(call)

    # -- what is recorded ------------------------------------------------------------------------

    def audit_secrets(self, request: GateRequest, *, are_shown: bool, usual: str | None) -> None:
        """Audit an admitted request before it is answered, if the response has secrets, or if another account
        than the `usual` one sent it."""
        account = self.account_of(request)
        is_usual = account is not None and account.name == usual
        if self._audit_log is not None and (are_shown or not is_usual):
            self._audit(self._audit_log, request, _call_of(request), account)

    def refusal_counts(self) -> list[tuple[str, int]]:
        """Every kind of refusal, with how many requests were refused for it."""
        return [(kind.name.lower(), self.refusals[kind]) for kind in RefusalKind]

    def _check_lockout(self, lockout: Lockout, call: AccessCall) -> None:
        left_ms = lockout.left_ms(call.address, call.access_key, self._monotonic_ms())
        if left_ms:
            raise AccessRefusedError(
                RefusalKind.LOCKED_OUT,
                ResponseCode.NO_PERMISSION,
                f"too many wrong logins from {call.address}, they are refused for {-(-left_ms // 1000)} s",
                user=call.access_key,
            )

    def _refused(self, call: AccessCall, error: AccessRefusedError) -> None:
        self.refusals[error.kind] += 1
        if self._audit_log is not None:
            self._audit_log.refused(call, error, resource_of(call))
        lockout = self._lockout
        if lockout is None or error.kind not in _WRONG_LOGINS:
            return
        locked = lockout.failed(call.address, call.access_key, self._monotonic_ms())
        user = call.access_key[:_LOGGED_CHARACTERS]
        if locked is LockedOut.USER:
            _log.warning(
                "too many wrong logins of user %r from %s: its logins from there are refused for %d ms",
                user,
                call.address,
                lockout.time_ms,
            )
        elif locked is LockedOut.ADDRESS:
            _log.warning(
                "too many wrong logins from %s, the last as user %r: logins of all users from there are "
                "refused for %d ms",
                call.address,
                user,
                lockout.time_ms,
            )

    @staticmethod
    def _audit(log: AuditLog, request: GateRequest, call: AccessCall, account: Account | None) -> None:
        entry = AuditedRequest(
            log, "" if account is None else account.name, call.address, audited_resource(call), request.meter
        )
        if request.is_oneway:
            entry.answered(request, None)
        else:
            request.meter = entry


def _check_owner(account: Account | None, needs: Needs) -> None:
    """AccessRefusedError: another account has opened the producer that a request acts for."""
    producer_id = needs.random_producer
    if not producer_id or account is None or account.is_admin:
        return
    if not producer_id.endswith(owner_digits(account.name)):
        raise AccessRefusedError(
            RefusalKind.NO_PERMISSION,
            ResponseCode.NO_PERMISSION,
            f"producer {producer_id[:_LOGGED_CHARACTERS]} was opened by another account than {account.name}: "
            "sign with that account, or open a producer with this one",
            user=account.name,
        )


def _unreadable(error: KourouError, account: Account) -> AccessRefusedError:
    code = ResponseCode.NO_PERMISSION if isinstance(error, RequestError) else error.response_code
    return AccessRefusedError(RefusalKind.NO_PERMISSION, code, str(error), user=account.name)


_LOGGED_CHARACTERS: Final = 64
_NOTHING: Final = Needs()


def _call_of(request: GateRequest) -> AccessCall:
    connection = request.connection
    return AccessCall(
        code=request.code,
        version=request.version,
        fields=request.ext_fields,
        body=request.body,
        address=_ip_address(connection.remote_address),
        needs=_NOTHING,
        certificate_user=connection.certificate_user,
    )


def _ip_address(remote_address: str) -> str:
    """Without port and brackets."""
    host = remote_address.rpartition(":")[0]
    return host[1:-1] if host.startswith("[") else host
