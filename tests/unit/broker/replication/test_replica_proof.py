"""Who may replicate: what is overheard, guessed or left out proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kourou.broker.replication.replica_proof import ReplicaProofs
from kourou.config import BrokerConfig
from kourou.errors import ConfigError
from kourou.protocol.ha import MasterHello, SlaveHello
from kourou.protocol.signature import SigningKeys

KEYS = SigningKeys("inner", "the secret")
HOST = "10.0.0.7"


def hello(**fields: Any) -> SlaveHello:
    default: dict[str, Any] = {"cluster": "C", "broker_name": "broker-a", "broker_id": 1}
    return SlaveHello(**{**default, "min_phy_offset": 0, "max_phy_offset": 9, "file_bytes": 1024, **fields})


def nonces(prefix: str) -> Iterator[str]:
    return (f"{prefix}{number}" for number in count())


def side(
    keys: SigningKeys | None = KEYS, *, allowed: str = "", is_required: bool = True, prefix: str = "n"
) -> ReplicaProofs:
    config = SimpleNamespace(current=BrokerConfig(ha_allowed_addresses=allowed))
    new = nonces(prefix)
    return ReplicaProofs(keys, config=cast(Any, config), is_required=is_required, new_nonce=lambda: next(new))


def challenge_of(answer: MasterHello | None) -> str:
    assert answer is not None and answer.challenge and not answer.refusal
    return answer.challenge


def refusal_of(answer: MasterHello | None) -> str:
    assert answer is not None and not answer.challenge
    return answer.refusal


def test_both_sides_prove_themselves() -> None:
    master, slave = side(prefix="m"), side(prefix="s")
    first = slave.opened(hello())
    challenge = challenge_of(master.answer(HOST, first, ""))
    second = slave.proven(first, challenge)
    assert second is not None
    assert master.answer(HOST, second, challenge) is None
    answer = master.signed(MasterHello(start_phy_offset=9), second, challenge)
    assert slave.unproven_master(HOST, first, challenge, answer) is None
    assert KEYS.secret_key not in repr(first) + repr(second) + repr(answer)


def test_an_overheard_hello_proves_nothing_on_another_link() -> None:
    master, slave = side(prefix="m"), side(prefix="s")
    first = slave.opened(hello())
    overheard = slave.proven(first, challenge_of(master.answer(HOST, first, "")))
    assert overheard is not None
    challenge = challenge_of(master.answer(HOST, overheard, ""))
    assert "must be the same" in refusal_of(master.answer(HOST, overheard, challenge))


@pytest.mark.parametrize(
    "changed",
    [
        {"broker_id": 2},
        {"broker_name": "broker-b"},
        {"cluster": "D"},
        {"known_epoch": 1_000},
        {"max_phy_offset": 10},
        {"nonce": "another"},
        {"access_key": "admin"},
        {"proof": ""},
    ],
)
def test_a_proof_is_of_what_the_hello_says(changed: dict[str, Any]) -> None:
    master, slave = side(prefix="m"), side(prefix="s")
    first = slave.opened(hello())
    challenge = challenge_of(master.answer(HOST, first, ""))
    second = slave.proven(first, challenge)
    assert second is not None
    assert refusal_of(master.answer(HOST, replace(second, **changed), challenge))


def test_the_proof_of_a_master_is_none_of_a_slave() -> None:
    master, slave = side(prefix="m"), side(prefix="s")
    first = slave.opened(hello())
    challenge = challenge_of(master.answer(HOST, first, ""))
    reflected = master.signed(MasterHello(), first, challenge).proof
    assert refusal_of(master.answer(HOST, replace(first, proof=reflected), challenge))


def test_other_keys_are_refused_on_both_sides() -> None:
    master, slave = side(prefix="m"), side(SigningKeys("inner", "another secret"), prefix="s")
    first = slave.opened(hello())
    challenge = challenge_of(master.answer(HOST, first, ""))
    second = slave.proven(first, challenge)
    assert second is not None
    assert "are not those of its master" in refusal_of(master.answer(HOST, second, challenge))
    answer = master.signed(MasterHello(), second, challenge)
    assert "are not those of this slave" in str(slave.unproven_master(HOST, first, challenge, answer))


def test_brokers_without_proofs_are_let_in_by_address_only() -> None:
    strict, open_to_some = side(), side(allowed="10.0.0.0/24, fd00::1")
    assert "haAllowedAddresses" in str(strict.unproven_slave(HOST))
    assert "haAllowedAddresses" in refusal_of(strict.answer(HOST, hello(), ""))
    assert "haAllowedAddresses" in str(strict.unproven_master(HOST))
    for host in (HOST, "fd00::1", "::ffff:10.0.0.8"):
        assert open_to_some.unproven_slave(host) is None
        assert open_to_some.answer(host, hello(), "") is None
        assert open_to_some.unproven_master(host) is None
    assert open_to_some.unproven_slave("10.0.1.7")


def test_without_access_control_nothing_is_asked_and_keys_are_proven_all_the_same() -> None:
    """So access control can be turned on one broker after the other."""
    master, slave = side(is_required=False, prefix="m"), side(prefix="s")
    first = slave.opened(hello())
    assert master.answer(HOST, first, "") is None
    assert slave.unproven_master(HOST, first, "", master.signed(MasterHello(), first, "")) is None
    assert side(is_required=False).unproven_slave(HOST) is None


def test_without_keys_the_reason_names_the_key() -> None:
    assert "this master has no innerClient" in refusal_of(side(None).answer(HOST, hello(nonce="n"), ""))
    assert "this slave has no innerClient" in str(
        side(None).unproven_master(HOST, hello(), "", MasterHello())
    )
    assert side(None).proven(hello(), "challenge") is None


def test_addresses_are_checked_when_they_are_configured() -> None:
    with pytest.raises(ConfigError, match=r"10\.0\.0\.7,10\.1\.0\.0/16"):
        BrokerConfig(ha_allowed_addresses="broker-a.example")
