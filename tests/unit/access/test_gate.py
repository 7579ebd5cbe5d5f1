"""The gate: every request for itself, bodies after signatures, refusals counted, wrong logins locked out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kourou.access.auth.settings import AuthSettings
from kourou.access.gate import AccessGate
from kourou.access.lockout import Lockout
from kourou.access.model import AccessRefusedError, Account, RefusalKind
from kourou.access.needs import SHARED_TOPICS
from kourou.access.openings import Opening
from kourou.access.request_needs import MAX_NAMES
from kourou.access.requests import BODY_CODES, RequestTable
from kourou.protocol.atomic import StagedGroup, encode_groups
from kourou.protocol.bodies.codec import encode_body
from kourou.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from kourou.protocol.codes import RequestCode as Code
from kourou.protocol.pop.retry_topics import revive_topic
from kourou.protocol.producer_sequence import owner_digits
from kourou.protocol.signature import signature_of
from tests.unit.access.auth.calls import data as auth_data
from tests.unit.access.auth.calls import rules as auth_rules
from tests.unit.access.kit import ALICE, ROOT, FakeConnection, FakeRequest, Rules, signed


class Clock:
    now_ms = 0


def gate_of(rules: Rules, *openings: Opening, attempts: int = 0) -> AccessGate:
    lockout = Lockout(attempts=attempts, window_ms=1_000, time_ms=5_000) if attempts else None
    Clock.now_ms = 0
    return AccessGate(
        rules, RequestTable(openings=openings), monotonic_ms=lambda: Clock.now_ms, lockout=lockout
    )


def send(topic: str, account: object = ALICE) -> FakeRequest:
    return FakeRequest(Code.SEND_MESSAGE_V2, signed({"b": topic}, account))  # type: ignore[arg-type]


def refusal(gate: AccessGate, request: FakeRequest) -> AccessRefusedError:
    with pytest.raises(AccessRefusedError) as caught:
        gate.check(request)
    return caught.value


def test_a_request_needs_what_the_table_says() -> None:
    rules = Rules("T")
    gate = gate_of(rules)
    gate.check(send("T"))
    assert rules.calls[-1].address == "10.0.0.1"
    assert refusal(gate, send("U")).kind is RefusalKind.NO_PERMISSION
    gate.check(send("U", ROOT))
    assert gate.refusals == {RefusalKind.NO_PERMISSION: 1}


def test_a_connection_that_has_signed_is_not_trusted() -> None:
    """Apache's stateful strategy is: one request that needs no signature opened it to others."""
    gate, connection = gate_of(Rules("T")), FakeConnection()
    request = send("T")
    request.connection = connection
    gate.check(request)
    unsigned = FakeRequest(Code.SEND_MESSAGE_V2, {"b": "T"}, connection=connection)
    assert refusal(gate, unsigned).kind is RefusalKind.NO_CREDENTIALS


def test_one_way_requests_and_unknown_codes_are_checked() -> None:
    gate = gate_of(Rules("T"))
    unsigned = FakeRequest(Code.SEND_MESSAGE_V2, {"b": "T"}, is_oneway=True)
    assert refusal(gate, unsigned).kind is RefusalKind.NO_CREDENTIALS
    unknown = FakeRequest(987_654, signed({"topic": "T"}, ALICE))
    assert refusal(gate, unknown).kind is RefusalKind.NO_PERMISSION


@pytest.mark.parametrize("code", sorted(BODY_CODES))
def test_bodies_are_read_after_signatures_only(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read a body costs much more than to check its signature."""
    gate = gate_of(Rules())
    body = b"{" * 10_000
    with monkeypatch.context() as patch:
        patch.setattr(RequestTable, "needs_of", None)
        assert refusal(gate, FakeRequest(code, {"topic": "T"}, body)).kind is RefusalKind.NO_CREDENTIALS
    request = FakeRequest(code, signed({"topic": "T"}, ALICE, body), body)
    assert refusal(gate, request).kind is RefusalKind.NO_PERMISSION


def test_a_large_body_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is checked before names are read from it, and again with these."""
    hashed: list[int] = []

    def counted(fields: Mapping[str, str], body: bytes, *rest: str) -> str:
        hashed.append(len(body))
        return signature_of(fields, body, *rest)

    monkeypatch.setattr("kourou.access.signatures.signature_of", counted)
    body = encode_groups([StagedGroup("T", 0, 0, 0, b"x" * 1_000)])
    fields = {"kourouAtomicId": f"0123456789{owner_digits('alice')}:1:0"}
    gate_of(Rules("T")).check(FakeRequest(Code.STAGE_KOUROU_ATOMIC, signed(fields, ALICE, body), body))
    assert hashed == [len(body)]


def test_heartbeats_need_their_groups_and_topics() -> None:
    def heartbeat(topic: str) -> FakeRequest:
        subscriptions = [SubscriptionData(topic=topic)]
        consumer = ConsumerData(group_name="g", subscription_data_set=subscriptions)
        body = encode_body(HeartbeatData(client_id="c", consumer_data_set=[consumer]))
        return FakeRequest(Code.HEART_BEAT, signed({}, ALICE, body), body)

    gate = gate_of(Rules("g", "T"))
    gate.check(heartbeat("T"))
    assert refusal(gate, heartbeat("U")).kind is RefusalKind.NO_PERMISSION


def test_what_cannot_be_read_is_refused_with_words_but_for_administrators() -> None:
    gate = gate_of(Rules("T"))
    nameless = FakeRequest(Code.SEND_MESSAGE_V2, signed({}, ALICE))
    assert (refusal(gate, nameless).remark, refusal(gate, nameless).user) == ("topic is null.", "alice")
    gate.check(FakeRequest(Code.SEND_MESSAGE_V2, signed({}, ROOT)))
    gate.check(FakeRequest(Code.SEND_MESSAGE_V2, {}, connection=FakeConnection("10.9.9.9:1")))
    unsigned = FakeRequest(Code.SEND_MESSAGE_V2, {})
    assert refusal(gate, unsigned).kind is RefusalKind.NO_CREDENTIALS


def test_what_cannot_be_read_is_not_exempt_by_its_code(tmp_path: Path) -> None:
    """It was: a code of the white list is exempt only where no permission is asked for."""
    settings = AuthSettings(authentication_whitelist=frozenset({int(Code.HEART_BEAT)}))
    gate = AccessGate(
        auth_rules(tmp_path, auth_data(), settings), RequestTable(), monotonic_ms=lambda: Clock.now_ms
    )
    gate.check(FakeRequest(Code.HEART_BEAT, body=encode_body(HeartbeatData(client_id="c"))))
    too_many = [ConsumerData(group_name=f"g{number}") for number in range(MAX_NAMES + 1)]
    body = encode_body(HeartbeatData(client_id="c", consumer_data_set=too_many))
    assert refusal(gate, FakeRequest(Code.HEART_BEAT, body=body)).kind is RefusalKind.NO_CREDENTIALS


def test_who_has_sent_a_request_is_known_until_its_processor_has_run() -> None:
    gate = gate_of(Rules("T"))
    request, other = send("T", ROOT), send("T")
    gate.check(request)
    assert gate.account_of(request) is ROOT and gate.is_administrator(request)
    gate.check(other)
    assert not gate.is_administrator(other)
    assert gate.is_administrator(request), "checked again"
    exempt = FakeRequest(Code.SEND_MESSAGE_V2, {"b": "T"}, connection=FakeConnection("10.9.9.9:1"))
    gate.check(exempt)
    assert not gate.is_administrator(exempt)


@pytest.mark.parametrize("topic", [*sorted(SHARED_TOPICS), revive_topic("C")])
def test_messages_that_wait_for_all_topics_are_for_administrators(topic: str) -> None:
    gate = gate_of(Rules(topic, "T", "g"))
    fields = {"topic": topic, "consumerGroup": "g", "key": "k", "offset": "1"}
    for code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID):
        gate.check(FakeRequest(code, signed({**fields, "topic": "T"}, ALICE)))
        assert refusal(gate, FakeRequest(code, signed(fields, ALICE))).kind is RefusalKind.NO_PERMISSION
        gate.check(FakeRequest(code, signed(fields, ROOT)))
        gate_of(Rules(topic, "g"), Opening.RECORDS).check(FakeRequest(code, signed(fields, ALICE)))
    with pytest.raises(AccessRefusedError):
        gate.check_read(FakeRequest(Code.VIEW_MESSAGE_BY_ID, signed({"topic": "T"}, ALICE)), topic)


def test_messages_found_by_offset_are_checked_by_their_topic() -> None:
    gate = gate_of(Rules("T"))
    request = FakeRequest(Code.VIEW_MESSAGE_BY_ID, signed({"topic": "T", "offset": "1"}, ALICE))
    gate.check(request)
    gate.check_read(request, "T")
    with pytest.raises(AccessRefusedError):
        gate.check_read(request, "other")
    with pytest.raises(AccessRefusedError):
        gate.check_publish(request, "other")
    refusals = dict(gate.refusals)
    assert gate.may_publish(request, "T") and not gate.may_publish(request, "other")
    assert gate.refusals == refusals, "a question is no refusal"
    opened = gate_of(Rules("T"), Opening.RECORDS)
    opened.check_read(request, "other")
    assert opened.may_publish(request, "other")


def test_a_server_may_call_itself() -> None:
    """The coordinator of atomic publishes calls its own broker as any other."""
    own = Account(name="own-1", secret_key="random", is_admin=True)
    gate = AccessGate(Rules(), RequestTable(), monotonic_ms=lambda: 0, own_account=own)
    gate.check(FakeRequest(Code.END_KOUROU_ATOMIC, signed({}, own)))
    stolen = Account(name="own-1", secret_key="guess")
    assert refusal(gate, FakeRequest(Code.END_KOUROU_ATOMIC, signed({}, stolen))).user == "own-1"


@pytest.mark.parametrize(
    "code", [Code.STAGE_KOUROU_ATOMIC, Code.DECIDE_KOUROU_ATOMIC, Code.QUERY_KOUROU_ATOMIC]
)
def test_atomic_publishes_of_a_random_producer_belong_to_its_account(code: int) -> None:
    """Consumers see their ids: another account could roll them back."""
    gate = gate_of(Rules("T"))

    def request(owner: str, account: Account) -> FakeRequest:
        body = encode_groups([StagedGroup("T", 0, 0, 0, b"x")]) if code == Code.STAGE_KOUROU_ATOMIC else b""
        fields = {"kourouAtomicId": f"0123456789{owner_digits(owner)}:1:0"}
        return FakeRequest(code, signed(fields, account, body), body)

    gate.check(request("alice", ALICE))
    gate.check(request("bob", ROOT))
    exempt = request("bob", ALICE)
    exempt.connection = FakeConnection("10.9.9.9:1")
    gate.check(exempt)
    for owner in ("bob", "root", ""):
        refused = refusal(gate, request(owner, ALICE))
        assert (refused.kind, refused.response_code) == (RefusalKind.NO_PERMISSION, 16)
        assert "was opened by another account than alice" in refused.remark
    assert gate.refusals == {RefusalKind.NO_PERMISSION: 3}


def test_the_fast_path_asks_for_senders() -> None:
    gate = gate_of(Rules("T"))
    assert gate.sender("alice", "T") is ALICE
    assert gate.sender("alice", "U") is None


def test_wrong_logins_lock_out_a_user_at_an_address() -> None:
    rules = Rules("T")
    gate = gate_of(rules, attempts=3)
    wrong = send("T")
    wrong.ext_fields["Signature"] = "wrong"
    for _ in range(3):
        assert refusal(gate, wrong).kind is RefusalKind.WRONG_SIGNATURE
    looked = len(rules.calls)
    locked = refusal(gate, wrong)
    assert (locked.kind, locked.response_code, len(rules.calls)) == (RefusalKind.LOCKED_OUT, 16, looked)
    assert locked.remark == "too many wrong logins from 10.0.0.1, they are refused for 5 s"
    gate.check(send("T", ROOT))
    elsewhere = send("T")
    elsewhere.connection = FakeConnection("10.0.0.2:1")
    gate.check(elsewhere)
    Clock.now_ms = 5_001
    gate.check(send("T"))


def test_the_log_names_the_user_that_is_locked_out(caplog: pytest.LogCaptureFixture) -> None:
    gate = gate_of(Rules("T"), attempts=2)
    wrong = send("T")
    wrong.ext_fields["Signature"] = "wrong"
    for _ in range(4):
        refusal(gate, wrong)
    user = wrong.ext_fields["AccessKey"]
    assert [record.message for record in caplog.records] == [
        f"too many wrong logins of user {user!r} from 10.0.0.1: its logins from there are refused for 5000 ms"
    ]


def test_missing_permissions_lock_nobody_out() -> None:
    gate = gate_of(Rules(), attempts=1)
    for _ in range(5):
        assert refusal(gate, send("T")).kind is RefusalKind.NO_PERMISSION
