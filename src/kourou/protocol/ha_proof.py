"""Proofs on the HA link: that a peer has the inner credentials, without showing them.

Each side gives a nonce that is new for each link, and proves itself by the HMAC-SHA256 of what the slave says
with both nonces. So an overheard hello is worth nothing on another link, and no proof is the signature of a
request (protocol/signature.py, HMAC-SHA1) or the proof of the other side.

    slave → master    hello     accessKey, nonce
    master → slave    hello     challenge, the nonce of the master; nothing follows
    slave → master    hello     the same again, with a proof
    master → slave    hello     the answer, with a proof

Older slaves give no nonce, older masters no challenge. What follows the hellos is neither signed nor
encrypted. Not here: which peers have to prove themselves (broker/replication/replica_proof.py).
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode
from typing import Final

from kourou.protocol.ha import SlaveHello

_NONCE_BYTES: Final = 24
_SLAVE: Final = "kourou HA slave"
_MASTER: Final = "kourou HA master"


def new_nonce() -> str:
    """Text that was never used before and cannot be guessed."""
    return secrets.token_urlsafe(_NONCE_BYTES)


def slave_proof(secret_key: str, challenge: str, hello: SlaveHello) -> str:
    """The slave's proof, for the master that has given this challenge."""
    return _proof(secret_key, _SLAVE, challenge, hello)


def master_proof(secret_key: str, challenge: str, hello: SlaveHello) -> str:
    """The master's proof, for the slave with this hello; without a challenge, that is empty."""
    return _proof(secret_key, _MASTER, challenge, hello)


def is_same_proof(given: str, expected: str) -> bool:
    """Whether a proof is the expected one; compared in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())


def _proof(secret_key: str, role: str, challenge: str, hello: SlaveHello) -> str:
    said = [
        role,
        challenge,
        hello.nonce,
        hello.access_key,
        hello.cluster,
        hello.broker_name,
        str(hello.broker_id),
        str(hello.max_phy_offset),
        str(hello.known_epoch),
    ]
    # With their lengths: no two lists give the same bytes.
    raw = b"".join(len(part).to_bytes(4, "big") + part for part in (text.encode() for text in said))
    return b64encode(hmac.digest(secret_key.encode(), raw, "sha256")).decode()
