"""Permission to replicate: what the two sides of an HA link demand of each other with access control.

A broker of Kourou proves that it has the inner credentials (protocol/ha_proof.py): a slave, because the log
has every message; a master, because a slave takes over what it sends, and cuts its log where a master of a
fail-over set says so. Apache's brokers, and Kourou's before this, cannot prove anything: they are let in by
address, `haAllowedAddresses`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kourou.config.networks import Networks
from kourou.protocol.ha import MasterHello, SlaveHello
from kourou.protocol.ha_proof import is_same_proof, master_proof, new_nonce, slave_proof

if TYPE_CHECKING:
    from kourou.broker.settings import LiveConfig
    from kourou.protocol.signature import SigningKeys

_KEY = "innerClientAuthenticationCredentials"


class ReplicaProofs:
    """Both sides of one broker. `keys` are its inner credentials; `is_required`: access control is on."""

    def __init__(
        self,
        keys: SigningKeys | None,
        *,
        config: LiveConfig,
        is_required: bool,
        new_nonce: Callable[[], str] = new_nonce,
    ) -> None:
        self._keys = keys
        self._config = config
        self._is_required = is_required
        self._new_nonce = new_nonce

    def needs_proof(self, host: str) -> bool:
        """Whether the peer with this IP address has to prove itself."""
        return self._is_required and host not in Networks.parse(self._config.current.ha_allowed_addresses)

    # -- as master -------------------------------------------------------------------------------

    def unproven_slave(self, host: str) -> str | None:
        """Why a slave without a hello is refused; None: it is not."""
        return _not_allowed("a slave", host) if self.needs_proof(host) else None

    def answer(self, host: str, hello: SlaveHello, challenge: str) -> MasterHello | None:
        """The challenge of a slave, or its refusal; None: it may replicate. `challenge` is what this link
        was given before, or empty."""
        if not self.needs_proof(host):
            return None
        if self._keys is None:
            return MasterHello(refusal=f"access control is on, and this master has no {_KEY}; set it")
        if not hello.nonce:
            return MasterHello(refusal=_not_allowed("a slave", host))
        if not challenge:
            return MasterHello(challenge=self._new_nonce())
        expected = slave_proof(self._keys.secret_key, challenge, hello)
        is_right = is_same_proof(hello.proof, expected)
        if is_right and hello.access_key == self._keys.access_key:
            return None
        return MasterHello(refusal=f"the slave's {_KEY} are not those of its master; they must be the same")

    def signed(self, answer: MasterHello, hello: SlaveHello, challenge: str) -> MasterHello:
        """The answer to a slave that may replicate, with the proof of this master if it can give one."""
        if self._keys is None or not hello.nonce:
            return answer
        return replace(answer, proof=master_proof(self._keys.secret_key, challenge, hello))

    # -- as slave --------------------------------------------------------------------------------

    def opened(self, hello: SlaveHello) -> SlaveHello:
        """The first hello of a link."""
        if self._keys is None:
            return hello
        return replace(hello, access_key=self._keys.access_key, nonce=self._new_nonce())

    def proven(self, hello: SlaveHello, challenge: str) -> SlaveHello | None:
        """The second hello, for the challenge of the master; None: this slave cannot prove itself."""
        if self._keys is None:
            return None
        return replace(hello, proof=slave_proof(self._keys.secret_key, challenge, hello))

    def unproven_master(
        self,
        host: str,
        hello: SlaveHello | None = None,
        challenge: str = "",
        answer: MasterHello | None = None,
    ) -> str | None:
        """Why a master with this answer, or without any, is not followed; None: it is."""
        if not self.needs_proof(host):
            return None
        if self._keys is None:
            return f"access control is on, and this slave has no {_KEY}; set it as at the master"
        if hello is None or answer is None or not answer.proof:
            return _not_allowed("the master", host)
        if is_same_proof(answer.proof, master_proof(self._keys.secret_key, challenge, hello)):
            return None
        return f"the master's {_KEY} are not those of this slave; they must be the same"


def _not_allowed(what: str, host: str) -> str:
    return (
        f"access control is on, and {what} at {host} does not prove itself; give it the same {_KEY}, or list "
        "its address in haAllowedAddresses if it is Apache's"
    )
