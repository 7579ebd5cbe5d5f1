"""FollowedAccounts: users and policies of Kourou's brokers, and of Apache's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kourou.access.audit_log import AuditLog, RotatedFile
from kourou.access.lockout import Lockout
from kourou.access.model import RefusalKind
from kourou.access.needs import publish
from kourou.errors import ConnectError, ResponseError
from kourou.protocol.bodies import AccessTables, encode_body
from kourou.protocol.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from kourou.protocol.bodies.topics import DataVersion
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.proxy.access.followed_accounts import FollowedAccounts
from kourou.proxy.access.grpc_login import GatedAccess
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.settings import AccessSettings
from kourou.transport.tasks import TaskOwner
from tests.unit.proxy.access.test_grpc_login import signed

ALICE = UserInfo(username="alice", password="alice-secret", user_type="Normal", user_status="enable")
POLICY = AclInfo(
    subject="User:alice",
    policies=[PolicyInfo("Custom", [PolicyEntryInfo("Topic:orders", ["Pub"], None, "Allow")])],
)


class Broker:
    """A broker that knows alice."""

    def __init__(self, *, is_apache: bool) -> None:
        self.is_apache = is_apache
        self.version = DataVersion(timestamp=1, counter=1)
        self.users = [ALICE]
        self.error: Exception | None = None
        self.asked: list[int] = []

    async def request(self, command: RemotingCommand, absent: int) -> RemotingCommand | None:
        self.asked.append(command.code)
        if self.error is not None:
            raise self.error
        if command.code == RequestCode.GET_KOUROU_ACCESS:
            if self.is_apache:
                return None
            known = (command.ext_fields or {})["kourouDataVersion"]
            if known == encode_body(self.version).decode():
                return RemotingCommand(0)
            return RemotingCommand(0, body=encode_body(AccessTables(self.version, self.users, [POLICY])))
        if not self.is_apache:
            return None
        found: object = self.users if command.code == RequestCode.AUTH_LIST_USER else [POLICY]
        return RemotingCommand(0, body=encode_body(found))  # type: ignore[type-var]


async def followed(broker: Broker, **settings: bool) -> FollowedAccounts:
    lockout = Lockout(attempts=3, window_ms=60_000, time_ms=60_000)
    return FollowedAccounts(AccessSettings(lockout=lockout, **settings), broker, TaskOwner("test"))


@pytest.mark.parametrize("is_apache", [False, True])
async def test_users_and_policies_decide(is_apache: bool) -> None:
    accounts = await followed(Broker(is_apache=is_apache))
    access = GatedAccess(lambda: accounts.gate)
    with pytest.raises(StatusError, match="not found"):  # nothing is known yet
        access.login(signed("alice", "alice-secret"))
    assert "not known yet" in accounts.problem
    await accounts._look()
    assert not accounts.problem
    found = access.login(signed("alice", "alice-secret"))
    assert found is not None and found.secret_key == "alice-secret"
    access.check(signed("alice", "alice-secret"), publish("orders"))
    with pytest.raises(StatusError, match="no permission"):
        access.check(signed("alice", "alice-secret"), publish("other"))
    for _ in range(2):  # beside the one above
        with pytest.raises(StatusError, match="check signature failed"):
            access.login(signed("alice", "guess"))
    with pytest.raises(StatusError, match="too many wrong logins"):
        access.login(signed("alice", "alice-secret"))
    assert accounts.gate.refusals[RefusalKind.LOCKED_OUT] == 1


async def test_without_authorization_a_signature_is_enough() -> None:
    accounts = await followed(Broker(is_apache=False), checks_policies=False)
    await accounts._look()
    GatedAccess(lambda: accounts.gate).check(signed("alice", "alice-secret"), publish("other"))


async def test_unchanged_tables_are_not_sent_again() -> None:
    broker = Broker(is_apache=False)
    accounts = await followed(broker)
    await accounts._look()
    before = accounts.current
    await accounts._look()
    assert accounts.current is before
    broker.version, broker.users = DataVersion(timestamp=2, counter=2), []
    await accounts._look()
    assert not accounts.current.users


async def test_what_is_known_stays_in_force_while_brokers_do_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker(is_apache=False)
    accounts = await followed(broker)
    await accounts._look()
    broker.error = ConnectError("b:1", "connection refused")
    await accounts._look()
    await accounts._look()
    assert "connection refused" in accounts.problem
    assert len([line for line in caplog.messages if "cannot be read" in line]) == 1
    assert GatedAccess(lambda: accounts.gate).login(signed("alice", "alice-secret")) is not None


async def test_an_account_that_is_no_administrator_is_a_problem() -> None:
    broker = Broker(is_apache=False)
    broker.error = ResponseError(16, "User:inner has no permission", "b:1")
    accounts = await followed(broker)
    await accounts._look()
    assert "User:inner has no permission" in accounts.problem


async def test_brokers_that_know_no_users() -> None:
    broker = Broker(is_apache=True)
    broker.users = []

    async def unknown(command: RemotingCommand, absent: int) -> None:
        return None

    broker.request = unknown  # type: ignore[method-assign]
    accounts = await followed(broker)
    await accounts._look()
    assert "set authenticationEnabled to false" in accounts.problem


async def test_refusals_are_in_the_audit_log_and_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(
        RotatedFile(tmp_path / "logs" / "audit_proxy.log", max_bytes=10_000, backups=1),
        interval_ms=10_000,
        now_ms=lambda: 1_000,
    )
    accounts = FollowedAccounts(AccessSettings(audit_log=log), Broker(is_apache=False), TaskOwner("test"))
    await accounts._look()
    access = GatedAccess(lambda: accounts.gate)
    for secret in ("guess", "other guess"):
        with pytest.raises(StatusError, match="check signature failed"):
            access.login(signed("alice", secret))
    await accounts.stop()
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [(line["kind"], line["user"], line.get("count")) for line in lines] == [
        ("wrong signature", "alice", None),
        ("wrong signature", "alice", 1),
    ]
    assert f"2 gRPC calls refused: wrong signature 2; see {log.path}" in caplog.text
    assert "guess" not in log.path.read_text() + caplog.text
