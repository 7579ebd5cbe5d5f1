"""KnownSenders: sends that need nothing but their signature checked, since one like them was admitted.

The compiled kernel has the same for its path (broker/send/signed_sends.py). A send is like another if it has
the same code, account and topic. What was admitted counts under one ruling of the server and one version of
the rules: when either changes, every send is decided anew. Only what holds for every address is known.
Not here: which accounts may send (the gate asks its rules); refusals: what is unknown goes to the gate.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from kourou.access.model import AccessRules, Account
from kourou.protocol.codes import RequestCode
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE, HashedKey

if TYPE_CHECKING:
    from kourou.protocol.signed_send import SignedSend

_TOPIC_FIELDS: Final[Mapping[int, str]] = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
}
MAX_KNOWN: Final = 20_000
"""Codes with an account and a topic each: all are forgotten when there are more, of about 500 bytes each."""

_Kind = tuple[int, str | None, str | None]


class _Sender:
    __slots__ = ("account", "key")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.key = HashedKey(account.secret_key)


class SentRequest(Protocol):
    """What is needed of a request."""

    code: int
    body: bytes

    @property
    def ext_fields(self) -> dict[str, str]:
        """All header fields as text."""
        ...

    def signed_send(self) -> SignedSend | None:
        """The fields that are signed, in their order; None: see `ext_fields`."""
        ...


class KnownSenders:
    """Those of one server. `ruling()` returns another object after every change of what is decided, as
    `Admission.ruling` is; so does the version of the rules, which may be earlier."""

    def __init__(self, rules: AccessRules, ruling: Callable[[], object]) -> None:
        self._rules = rules
        self._ruling = ruling
        self._known: dict[_Kind, _Sender] = {}
        self._known_under: tuple[object, object] = (None, None)

    def sender_of(self, request: SentRequest) -> Account | None:
        """The account that has sent a request like this, and has signed this one; None: decide about it."""
        ruling, version = self._known_under
        if ruling is not self._ruling() or version is not self._rules.version:
            self._known.clear()
            self._known_under = self._ruling(), self._rules.version
        field = _TOPIC_FIELDS.get(request.code)
        if field is None or not self._known:
            return None
        # Clients that sign only some of the fields are for the gate.
        if (send := request.signed_send()) is not None:
            access_key, topic, text, signature = send
            sender = self._known.get((request.code, access_key, topic))
            if sender is None:
                return None
            expected = sender.key.signature_of_text(text, request.body)
        else:
            fields = request.ext_fields
            sender = self._known.get((request.code, fields.get(ACCESS_KEY), fields.get(field)))
            if sender is None:
                return None
            expected = sender.key.signature_of(fields, request.body)
            signature = fields.get(SIGNATURE, "")
        return sender.account if hmac.compare_digest(signature.encode(), expected) else None

    def learn(self, request: SentRequest, sender: Callable[[str, str], Account | None]) -> None:
        """A request was admitted. If it is a send, the next ones like it are known, as long as
        `sender(access_key, topic)` returns their account."""
        field = _TOPIC_FIELDS.get(request.code)
        if field is None:
            return
        fields = request.ext_fields
        access_key, topic = fields.get(ACCESS_KEY), fields.get(field)
        account = sender(access_key, topic) if access_key and topic else None
        if account is None or self._known_under != (self._ruling(), self._rules.version):
            return
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[request.code, access_key, topic] = _Sender(account)

    def __len__(self) -> int:
        """How many are known."""
        return len(self._known)
