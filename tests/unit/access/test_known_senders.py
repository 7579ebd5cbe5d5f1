"""Known senders: a change takes effect on the next message, and only a signature makes a send known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.access import known_senders
from kourou.access.auth.model import User, UserStatus
from kourou.access.auth.rules import AuthRules
from kourou.access.auth.settings import AuthSettings
from kourou.access.gate import AccessGate
from kourou.access.lockout import Lockout
from kourou.access.model import AccessCall, AccessRefusedError, AccessRules, Account, Needs, RefusalKind
from kourou.access.plain.accounts_file import AccountFiles
from kourou.access.plain.rules import PlainRules
from kourou.access.quotas import AccountLimits, Quotas
from kourou.access.requests import RequestTable
from kourou.protocol.codes import RequestCode as Code
from kourou.protocol.header_json import encode_json_head
from kourou.protocol.request_head import decode_request_head
from kourou.protocol.signature import SIGNATURE
from kourou.transport.request import Request
from tests.unit.access.auth import calls
from tests.unit.access.kit import ALICE, FakeConnection, FakeRequest, Rules, signed

SEND = {"a": "g", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
MakeSend = Callable[..., Any]


class Ruling:
    """Another one after `change`."""

    def __init__(self) -> None:
        self.now = object()

    def __call__(self) -> object:
        return self.now

    def change(self) -> None:
        self.now = object()


def typed_send(
    account: Account | User = ALICE, topic: str = "T", *, address: str = "10.0.0.1:1", **fields: str
) -> Request:
    """As the dispatcher has it: the header was decoded into its type."""
    made = signed({**SEND, "b": topic}, _account(account), b"body") | fields
    header = encode_json_head(Code.SEND_MESSAGE_V2, 0, 501, 1, 0, None, made)
    connection: Any = FakeConnection(address)
    request = Request(connection, 0, decode_request_head(0, header), b"body", header)
    assert request.signed_send() is not None
    return request


def other_send(
    account: Account | User = ALICE, topic: str = "T", *, address: str = "10.0.0.1:1", **fields: str
) -> FakeRequest:
    """In any other form."""
    made = signed({"topic": topic}, _account(account), b"body") | fields
    return FakeRequest(Code.SEND_MESSAGE, made, b"body", connection=FakeConnection(address))


def _account(account: Account | User) -> Account:
    return (
        account if isinstance(account, Account) else Account(name=account.name, secret_key=account.password)
    )


@pytest.fixture(params=[typed_send, other_send])
def send(request: pytest.FixtureRequest) -> MakeSend:
    made: MakeSend = request.param
    return made


class Counted:
    """Rules, and how often they have decided."""

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules
        self.count = 0

    @property
    def version(self) -> object:
        return self._rules.version

    def check(self, call: AccessCall) -> Account | None:
        self.count += 1
        return self._rules.check(call)

    def has_everywhere(self, access_key: str, needs: Needs) -> bool:
        return self._rules.has_everywhere(access_key, needs)

    def sender(self, access_key: str, topic: str) -> Account | None:
        return self._rules.sender(access_key, topic)


def gate_of(rules: AccessRules, **parts: Any) -> AccessGate:
    parts.setdefault("ruling", Ruling())
    return AccessGate(rules, RequestTable(), monotonic_ms=lambda: 0, **parts)


def kind_of(gate: AccessGate, request: Any) -> RefusalKind:
    with pytest.raises(AccessRefusedError) as caught:
        gate.check(request)
    return caught.value.kind


def test_a_known_send_is_only_checked_for_its_signature(send: MakeSend) -> None:
    rules = Counted(Rules("T"))
    gate = gate_of(rules)
    for _ in range(5):
        request = send()
        gate.check(request)
        assert gate.account_of(request) is ALICE
    assert rules.count == 1
    assert kind_of(gate, send(**{SIGNATURE: "A" * 27 + "="})) is RefusalKind.WRONG_SIGNATURE
    assert kind_of(gate, send(**{SIGNATURE: "é"})) is RefusalKind.WRONG_SIGNATURE
    assert kind_of(gate, send(topic="U")) is RefusalKind.NO_PERMISSION
    other_body = send()
    other_body.body = b"other"
    assert kind_of(gate, other_body) is RefusalKind.WRONG_SIGNATURE


def test_another_ruling_or_version_decides_anew(send: MakeSend) -> None:
    inner, ruling = Rules("T"), Ruling()
    rules = Counted(inner)
    gate = gate_of(rules, ruling=ruling)
    gate.check(send())
    ruling.change()
    gate.check(send())
    assert rules.count == 2
    inner.version = object()
    gate.check(send())
    gate.check(send())
    assert rules.count == 3
    inner.granted.clear()
    ruling.change()
    assert kind_of(gate, send()) is RefusalKind.NO_PERMISSION


def test_without_a_ruling_nothing_is_known(send: MakeSend) -> None:
    rules = Counted(Rules("T"))
    gate = gate_of(rules, ruling=None)
    for _ in range(3):
        gate.check(send())
    assert rules.count == 3


def test_a_change_while_a_send_is_decided_is_not_missed() -> None:
    ruling = Ruling()

    class Changing(Rules):
        def sender(self, access_key: str, topic: str) -> Account | None:
            found = super().sender(access_key, topic)
            ruling.change()
            return found

    rules = Changing("T")
    gate = gate_of(rules, ruling=ruling)
    for _ in range(3):
        gate.check(other_send())
    assert len(rules.calls) == 3


# -- changes of users and policies (RocketMQ 5) ---------------------------------------------------

ALLOWED = calls.acl(calls.entry("Topic:T", "Pub"))
BOTH = AuthSettings(is_authentication_enabled=True, is_authorization_enabled=True)


@pytest.mark.parametrize(
    ("user", "acl", "kind"),
    [
        (None, ALLOWED, RefusalKind.UNKNOWN_USER),
        (User("alice", "alice-secret", status=UserStatus.DISABLE), ALLOWED, RefusalKind.DISABLED_USER),
        (User("alice", "another-secret"), ALLOWED, RefusalKind.WRONG_SIGNATURE),
        (calls.ALICE, calls.acl(calls.entry("Topic:U", "Pub")), RefusalKind.NO_PERMISSION),
        (calls.ALICE, calls.acl(calls.entry("Topic:T", "Pub", "Deny")), RefusalKind.NO_PERMISSION),
        (
            calls.ALICE,
            calls.acl(calls.entry("Topic:T", "Pub", "Allow", "10.7.7.7")),
            RefusalKind.NO_PERMISSION,
        ),
    ],
)
def test_a_changed_user_or_policy_acts_on_the_next_message(
    tmp_path: Path, send: MakeSend, user: User | None, acl: Any, kind: RefusalKind
) -> None:
    tables = calls.tables(tmp_path, calls.data(calls.ALICE, acls=(ALLOWED,)))
    rules = Counted(AuthRules(BOTH, tables))
    gate = gate_of(rules)
    for _ in range(2):
        gate.check(send(calls.ALICE))
    assert rules.count == 1
    tables.adopt(calls.data(*(() if user is None else (user,)), acls=(acl,)))
    assert kind_of(gate, send(calls.ALICE)) is kind


def test_a_policy_for_some_addresses_makes_nobody_known(tmp_path: Path, send: MakeSend) -> None:
    acl = calls.acl(calls.entry("Topic:T", "Pub", "Allow", "10.0.0.1"))
    rules = calls.rules(tmp_path, calls.data(calls.ALICE, acls=(acl,)), BOTH)
    gate = gate_of(rules)
    gate.check(send(calls.ALICE))
    assert kind_of(gate, send(calls.ALICE, address="10.0.0.2:1")) is RefusalKind.NO_PERMISSION


# -- changes of accounts and white lists (RocketMQ 4) ---------------------------------------------

PLAIN = """\
globalWhiteRemoteAddresses: [{white}]
accounts:
- accessKey: producer-1
  secretKey: {secret}
  whiteRemoteAddress: {own_white}
  topicPerms: [T={perm}]
"""
PRODUCER = Account(name="producer-1", secret_key="producer-secret")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"perm": "SUB"}, RefusalKind.NO_PERMISSION),
        ({"secret": "another-secret"}, RefusalKind.WRONG_SIGNATURE),
    ],
)
def test_a_changed_account_acts_on_the_next_message(
    tmp_path: Path, send: MakeSend, change: dict[str, str], kind: RefusalKind
) -> None:
    rules = plain_rules(tmp_path)
    gate = gate_of(rules)
    for _ in range(2):
        gate.check(send(PRODUCER))
    rules.edit(lambda files: write_accounts(tmp_path, **change))
    assert kind_of(gate, send(PRODUCER)) is kind


@pytest.mark.parametrize("white", ["white", "own_white"])
def test_a_changed_white_list_acts_on_the_next_message(tmp_path: Path, send: MakeSend, white: str) -> None:
    """From an exempt address a wrong signature passes, which makes nobody known elsewhere, or later."""
    rules = plain_rules(tmp_path, **{white: "10.0.0.1"})
    gate = gate_of(rules)
    wrong = {SIGNATURE: "A" * 27 + "="}
    for _ in range(2):
        gate.check(send(PRODUCER, **wrong))
        gate.check(send(PRODUCER))
    assert kind_of(gate, send(PRODUCER, address="10.0.0.2:1", **wrong)) is RefusalKind.WRONG_SIGNATURE
    rules.edit(lambda files: write_accounts(tmp_path))
    assert kind_of(gate, send(PRODUCER, **wrong)) is RefusalKind.WRONG_SIGNATURE
    gate.check(send(PRODUCER))
    rules.edit(lambda files: write_accounts(tmp_path, **{white: "10.0.0.1"}))
    gate.check(send(PRODUCER, **wrong))


def write_accounts(home: Path, **values: str) -> None:
    defaults = {"white": "", "own_white": "''", "secret": PRODUCER.secret_key, "perm": "PUB"}
    path = home / "conf" / "plain_acl.yml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(PLAIN.format(**{**defaults, **values}))
    path.chmod(0o600)


def plain_rules(home: Path, **values: str) -> PlainRules:
    write_accounts(home, **values)
    rules = PlainRules(AccountFiles.of_home(home))
    rules.load()
    return rules


# -- what is looked at beside the rules -----------------------------------------------------------


def test_a_new_limit_acts_on_the_next_message(send: MakeSend) -> None:
    quotas = Quotas(lambda: 0)
    gate = gate_of(Rules("T"), quotas=quotas)
    for _ in range(5):
        gate.check(send())
    quotas.replace({"alice": AccountLimits(produced_messages_per_second=2)})
    for _ in range(2):
        gate.check(send())
    assert kind_of(gate, send()) is RefusalKind.OVER_QUOTA
    quotas.replace({"bob": AccountLimits(produced_messages_per_second=2)})
    for _ in range(5):
        gate.check(send())


def test_an_account_that_is_locked_out_is_refused_although_it_is_known(send: MakeSend) -> None:
    gate = gate_of(Rules("T"), lockout=Lockout(attempts=3, window_ms=1_000, time_ms=5_000))
    gate.check(send())
    for _ in range(3):
        assert kind_of(gate, send(**{SIGNATURE: "A" * 27 + "="})) is RefusalKind.WRONG_SIGNATURE
    assert kind_of(gate, send()) is RefusalKind.LOCKED_OUT
    gate.check(send(address="10.0.0.2:1"))


def test_where_certificates_name_the_user_each_send_is_decided(send: MakeSend) -> None:
    rules = Counted(Rules("T"))
    gate = gate_of(rules)
    for certificate_user in (None, "root", "alice", None):
        request = send()
        request.connection.certificate_user = certificate_user
        gate.check(request)
    assert rules.count == 3


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_senders, "MAX_KNOWN", 50)
    gate = gate_of(Rules(*(f"T{number}" for number in range(60))))
    for number in range(60):
        gate.check(other_send(topic=f"T{number}"))
    assert gate._known is not None and len(gate._known) == 10
