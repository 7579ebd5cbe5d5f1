"""Logins of gRPC calls: by the rules, lock-outs and counters of the gate of remoting requests."""

from __future__ import annotations

import hmac
from pathlib import Path

import pytest

from kourou.access.gate import AccessGate
from kourou.access.lockout import Lockout
from kourou.access.model import Account, RefusalKind
from kourou.access.needs import publish
from kourou.access.requests import RequestTable
from kourou.proxy.access.credentials import NO_CREDENTIALS, credentials_of
from kourou.proxy.access.grpc_login import GatedAccess
from kourou.proxy.http2.call import Call, GrpcCode
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code
from tests.unit.access.auth.calls import ALICE, ROOT, acl, data, entry, rules
from tests.unit.access.kit import Rules

DATE = "20261119T041500Z"


class FakeCall(Call):
    """A call with metadata, of which only these are looked at."""

    def __init__(self, method: str = "SendMessage", peer: str = "10.0.0.1:4711", **metadata: str) -> None:
        self.path = f"/apache.rocketmq.v2.MessagingService/{method}"
        self.peer = peer
        self.metadata = {name.replace("_", "-"): text for name, text in metadata.items()}

    unsent_bytes = 0

    def reply(self, message: bytes) -> None: ...
    def send(self, message: bytes) -> None: ...
    def finish(self) -> None: ...
    def fail(self, code: GrpcCode, text: str) -> None: ...


def signed(
    name: str, secret: str, tail: str = "", *, upper: bool = False, peer: str = "10.0.0.1:4711"
) -> Call:
    made = hmac.digest(secret.encode(), DATE.encode(), "sha1").hex()
    made = made.upper() if upper else made
    return FakeCall(
        peer=peer,
        x_mq_date_time=DATE,
        authorization=f"MQv2-HMAC-SHA1 Credential={name}{tail}, SignedHeaders=x-mq-date-time, "
        f"Signature={made}",
    )


def refusal(access: GatedAccess, call: Call) -> StatusError:
    with pytest.raises(StatusError) as caught:
        access.login(call)
    assert caught.value.code == Code.UNAUTHORIZED
    return caught.value


@pytest.fixture
def gate(tmp_path: Path) -> AccessGate:
    policies = acl(entry("Topic:orders", "Pub", "Allow", "10.0.0.0/8"))
    return AccessGate(
        rules(tmp_path, data(ALICE, ROOT, acls=(policies,))),
        RequestTable(),
        monotonic_ms=lambda: 0,
        lockout=Lockout(attempts=3, window_ms=1_000, time_ms=5_000),
    )


@pytest.mark.parametrize("tail", ["", "/cn-hangzhou/RocketMQ", "//RocketMQ"])
@pytest.mark.parametrize("upper", [False, True])
def test_every_clients_form_of_a_signature(gate: AccessGate, tail: str, upper: bool) -> None:
    found = GatedAccess(lambda: gate).login(signed("alice", "alice-secret", tail, upper=upper))
    assert found == Account(name="alice", secret_key="alice-secret")


def test_wrong_logins_are_refused_counted_and_locked_out(gate: AccessGate) -> None:
    access = GatedAccess(lambda: gate)
    assert "User:bob is not found" in str(refusal(access, signed("bob", "x")))
    for _ in range(3):
        assert "check signature failed" in str(refusal(access, signed("alice", "wrong")))
    assert "too many wrong logins" in str(refusal(access, signed("alice", "alice-secret")))
    assert access.login(signed("alice", "alice-secret", peer="10.0.0.2:1")) is not None
    assert gate.refusals[RefusalKind.WRONG_SIGNATURE] == 3


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer abc",
        "MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature=",
        "MQv2-HMAC-SHA1 Credential=alice, Signature=00",
        "MQv2-HMAC-SHA1 Credential=alice, SignedHeaders=x-mq-date-time, Signature=zz",
        "MQv2-HMAC-SHA1 Credential=" + "a" * 2_000 + ", SignedHeaders=x-mq-date-time, Signature=00",
    ],
)
def test_what_is_no_login(gate: AccessGate, header: str) -> None:
    call = FakeCall(authorization=header)
    assert credentials_of(call.metadata) in (NO_CREDENTIALS, credentials_of({}))
    assert str(refusal(GatedAccess(lambda: gate), call)) == (
        "username cannot be null. (the call was not signed: give the client an access key and its secret key)"
    )


def test_an_empty_date_is_signed_like_any_other(gate: AccessGate) -> None:
    made = hmac.digest(b"alice-secret", b"", "sha1").hex()
    header = f"MQv2-HMAC-SHA1 Credential=alice, SignedHeaders=x-mq-date-time, Signature={made}"
    assert GatedAccess(lambda: gate).login(FakeCall(authorization=header)) is not None


def test_rights_depend_on_the_address_of_the_client(gate: AccessGate) -> None:
    access = GatedAccess(lambda: gate)
    access.check(signed("alice", "alice-secret"), publish("orders"))
    for call, topic in (
        (signed("alice", "alice-secret"), "other"),
        (signed("alice", "alice-secret", peer="192.168.0.1:1"), "orders"),
        (signed("alice", "alice-secret", peer="[::1]:1"), "orders"),
    ):
        with pytest.raises(StatusError, match="no permission to access Topic") as caught:
            access.check(call, publish(topic))
        assert caught.value.code == Code.UNAUTHORIZED


def test_an_exempt_address_needs_no_login() -> None:
    gate = AccessGate(Rules(), RequestTable(), monotonic_ms=lambda: 0)
    assert GatedAccess(lambda: gate).login(FakeCall(peer="10.9.9.9:1")) is None


def test_without_access_control_a_login_is_not_looked_at() -> None:
    access = GatedAccess(lambda: None)
    assert access.login(signed("nobody", "wrong")) is None
    access.check(FakeCall(), publish("orders"))
