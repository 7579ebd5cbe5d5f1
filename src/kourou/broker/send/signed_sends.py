"""SignedSends: what the compiled kernel needs to verify signed sends in place of the check of access control.

    gate                                           kernel
    RequestCheck(check, fast_sends=SignedSends(sender))
        check accepts a send  ──► learn ──► accounts: access key → (ruling, signing state, topics, identities
                                                │                                   of producers)
                                                └──► verifies the signature of each send (store/native)

The kernel accepts a send if its account is known under the current ruling, may send to the topic and as the
idempotent producer, if it is of one, and has signed all fields and the body. Everything else takes the slow
path, where the check decides and responds: a first send, an unknown or a wrong key, fields that some clients
do not sign. So nothing is refused here, and
nothing accepted that the check would refuse, as long as `sender` and `concerns` are as strict as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from kourou.access.model import Account
from kourou.broker.admission import Ruling
from kourou.protocol.codes import RequestCode
from kourou.protocol.signature import ACCESS_KEY
from kourou.store.kernel import SigningAccounts
from kourou.transport.connection import Connection
from kourou.transport.request import Request

SigningState: TypeAlias = Callable[[bytes], bytes]
"""What HMAC-SHA1 with a secret key begins with (`Kernel.signing_state`)."""

MAX_PAIRS: Final = 20_000
"""Accounts with a topic or a producer each: the tables forget all when they have more, of about 250 bytes
each."""


class SignedSends:
    """The accounts that send, as the kernel knows them. Empty without a kernel."""

    def __init__(
        self,
        sender: Callable[[str, str], Account | None],
        *,
        concerns: Callable[[Connection], bool] | None = None,
    ) -> None:
        """`sender(access_key, topic)`: the account that may send to a topic from every address, its signature
        provided; None: the check has to see each send. Its results hold for one ruling: after a change of the
        rules `Admission.invalidate` is called. `concerns(connection)`: False where the check has to see each
        send of a connection; called for each read."""
        self._sender = sender
        self._concerns = concerns
        self._accounts: dict[str, tuple[Ruling, bytes, set[str], set[str]]] = {}
        self._pairs = 0
        # None: there is no kernel, or it has not been asked yet.
        self._ruling: Ruling | None = None
        self._signing_state: SigningState | None = None

    def concerns(self, connection: Connection) -> bool:
        """Whether the kernel may verify the sends of a connection."""
        return self._concerns is None or self._concerns(connection)

    def accounts_under(self, ruling: Ruling, signing_state: SigningState) -> SigningAccounts:
        """What the kernel may verify with; of another ruling nothing is kept."""
        if ruling is not self._ruling:
            self._clear()
            self._ruling = ruling
        self._signing_state = signing_state
        return self._accounts

    def learn(self, request: Request) -> None:
        """A send was accepted by the check: let the kernel verify the next ones of that account and topic."""
        if self._ruling is None:
            return
        fields = request.ext_fields
        access_key = fields.get(ACCESS_KEY, "")
        topic = fields.get("topic" if request.code == RequestCode.SEND_MESSAGE else "b", "")
        if access_key and topic:
            self._allow(self._ruling, access_key, topic)

    def learn_producer(self, account: Account, identity: str) -> None:
        """An account may send as an idempotent producer, by the decision of the gate."""
        known = self._accounts.get(account.name)
        if known is None or identity in known[3]:
            return
        if self._pairs >= MAX_PAIRS:
            self._clear()
            return
        known[3].add(identity)
        self._pairs += 1

    def _allow(self, ruling: Ruling, access_key: str, topic: str) -> None:
        known = self._accounts.get(access_key)
        if known is not None and topic in known[2]:
            return
        account = self._sender(access_key, topic)
        if account is None or self._signing_state is None:
            return
        if self._pairs >= MAX_PAIRS:
            self._clear()
            known = None
        if known is None:
            state = self._signing_state(account.secret_key.encode())
            self._accounts[access_key] = known = (ruling, state, set(), set())
        known[2].add(topic)
        self._pairs += 1

    def _clear(self) -> None:
        self._accounts.clear()
        self._pairs = 0
