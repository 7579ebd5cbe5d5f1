"""Logins by accounts of the cluster: every request is signed with the keys of the person who is logged in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from kourou.broker.admission import RequestCheck
from kourou.client.core.credentials import Credentials
from kourou.console import cluster_sessions
from kourou.console.api_errors import ApiError
from kourou.console.app import CSRF_HEADER, ENDPOINTS
from kourou.console.endpoints import Read, Role
from kourou.console.security.accounts import AccountLogins
from kourou.console.settings import ConsoleSettings
from kourou.errors import ConfigError
from kourou.testing.cluster import Cluster
from tests.integration.console.account_checks import SECRETS, Accounts
from tests.integration.console.kit import Console, console_of

NO_PERMISSION = "User:bob has no permission to access Cluster:DefaultCluster from 127.0.0.1"


@pytest.fixture
def accounts(running: Cluster) -> Accounts:
    """The accounts of both brokers."""
    accounts = Accounts()
    for broker in running.brokers:
        broker.admission.add(RequestCheck(accounts.check))
    return accounts


@pytest.fixture
async def guarded(running: Cluster, accounts: Accounts, tmp_path: Path) -> AsyncIterator[Console]:
    """A console without an account of its own."""
    async with console_of(running.namesrv_addr, tmp_path, accounts=True) as console:
        yield console


async def log_in(console: Console, user: str) -> None:
    """Log in with the right keys."""
    await console.log_in(user, SECRETS[user])


async def test_every_request_is_signed_by_the_account_that_is_logged_in(
    guarded: Console, accounts: Accounts
) -> None:
    info = await guarded.log_in("ada", SECRETS["ada"])
    assert (info["user"], info["role"], info["by_accounts"]) == ("ada", "operator", True)
    accounts.refused.clear()
    pages = [one.path for one in ENDPOINTS if isinstance(one, Read) and "{" not in one.path]
    for path in pages:
        if path not in ("/audit", "/doctor"):
            await guarded.http.get(f"/api{path}")
    body = {"topic": "Orders", "brokers": ["broker-a"]}
    preview = await guarded.preview("POST", "/topics", body)
    await guarded.change("POST", "/topics", body, plan=preview["plan"])
    await guarded.change("POST", "/topics/Orders/messages", {"body": "hello"})
    page = await guarded.get("/messages", topic="Orders", begin=0, end=10**15)
    assert [item["topic"] for item in page["items"]] == ["Orders"]
    report = await guarded.get("/doctor")
    assert report["report"]["findings"] is not None
    assert accounts.users() == {"ada"} and not accounts.refused


async def test_wrong_keys_do_not_log_in(guarded: Console) -> None:
    for user, secret in (
        ("ada", "wrong"),
        ("eve", SECRETS["ada"]),
        ("ada", SECRETS["bob"]),
        ("", ""),
        ("a", ""),
    ):
        answer = await guarded.log_in(user, secret, status=401)
        assert answer["error"]["message"] == "the cluster does not accept these keys"
        assert "hint" in answer["error"]
    await guarded.get("/overview", status=401)


async def test_a_cluster_that_accepts_any_keys_lets_nobody_in(guarded: Console, accounts: Accounts) -> None:
    accounts.exempts_all = True
    answer = await guarded.log_in("ada", SECRETS["ada"], status=403)
    assert answer["error"]["code"] == "no_access_control"


async def test_a_read_that_a_broker_refuses_is_shown_in_its_words(guarded: Console) -> None:
    await log_in(guarded, "bob")
    groups = await guarded.get("/groups")
    assert any(NO_PERMISSION in problem for problem in groups["problems"])
    assert not any("CODE:" in problem for problem in groups["problems"])


async def test_a_change_that_the_brokers_refuse_is_refused_in_their_words(guarded: Console) -> None:
    await log_in(guarded, "bob")
    answer = await guarded.change("POST", "/topics", {"topic": "Orders"}, status=403)
    assert answer["error"]["code"] == "refused_by_cluster"
    assert NO_PERMISSION in answer["error"]["message"] and "CODE:" not in answer["error"]["message"]


async def test_what_was_read_for_one_account_is_not_shown_to_another(
    guarded: Console, running: Cluster, accounts: Accounts
) -> None:
    await log_in(guarded, "ada")
    await guarded.change("POST", "/groups", {"group": "Billing"})
    assert "Billing" in {item["group"] for item in (await guarded.get("/groups"))["items"]}
    await log_in(guarded, "bob")
    assert (await guarded.get("/groups"))["items"] == []
    await guarded.change("POST", "/logout")
    assert (await guarded.http.get("/api/groups")).status_code == 401


async def test_people_with_the_same_keys_share_what_was_read(guarded: Console, accounts: Accounts) -> None:
    await log_in(guarded, "ada")
    await guarded.get("/topics")
    count = len(accounts.calls)
    basic = httpx.BasicAuth("ada", SECRETS["ada"])
    guarded.http.cookies.clear()
    assert (await guarded.http.get("/api/session", auth=basic)).json()["user"] == "ada"
    logins = len(accounts.calls) - count
    assert (await guarded.http.get("/api/topics", auth=basic)).status_code == 200
    assert len(accounts.calls) - count == logins


async def test_only_administrators_of_the_cluster_see_the_audit_log_of_the_console(guarded: Console) -> None:
    await log_in(guarded, "ada")
    answer = await guarded.get("/audit", status=403)
    assert answer["error"]["code"] == "role_not_sufficient"


async def test_without_an_account_of_its_own_the_console_samples_nothing(
    guarded: Console, accounts: Accounts
) -> None:
    assert guarded.context.history is None
    await log_in(guarded, "ada")
    assert (await guarded.get("/overview"))["history"] is None


async def test_what_the_console_samples_with_its_own_account_is_for_administrators_only(
    running: Cluster, accounts: Accounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Credentials("watch", SECRETS["watch"])
    async with console_of(running.namesrv_addr, tmp_path, accounts=True, credentials=own) as console:
        assert console.context.history is not None
        await console.context.history.sample()
        assert accounts.users() == {"watch"}
        await log_in(console, "ada")
        assert (await console.get("/overview"))["history"] is None

        async def as_administrator(*_: object) -> Role:
            return Role.ADMINISTRATOR

        monkeypatch.setattr("kourou.console.security.accounts._role", as_administrator)
        await log_in(console, "ada")
        assert (await console.get("/overview"))["history"]["times"]
        assert (await console.get("/audit"))["items"] == []


async def test_the_metrics_of_the_cluster_are_those_of_the_account_that_scrapes(
    guarded: Console, accounts: Accounts
) -> None:
    assert (await guarded.http.get("/metrics/exporter")).status_code == 401
    basic = httpx.BasicAuth("bob", SECRETS["bob"])
    answer = await guarded.http.get("/metrics/exporter", auth=basic)
    assert answer.status_code == 200 and "rocketmq_" in answer.text
    assert accounts.users() == {"bob"}


async def test_an_account_that_is_removed_is_out_within_a_minute(
    guarded: Console, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AccountLogins, "renew_s", 0.0)
    await log_in(guarded, "ada")
    await guarded.get("/topics")
    del accounts.secrets["ada"]
    await guarded.get("/topics", status=401)


async def test_an_outage_of_the_cluster_ends_no_session(
    guarded: Console, running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AccountLogins, "renew_s", 0.0)
    await log_in(guarded, "ada")
    for server in (*running.brokers, running.namesrv):
        await server.stop()
    assert (await guarded.get("/session"))["user"] == "ada"


async def test_idle_sessions_are_closed_and_opened_again(
    guarded: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_sessions, "IDLE_S", -1.0)
    await log_in(guarded, "ada")
    await guarded.get("/topics")
    assert len(guarded.context.sessions._kept) == 1
    await guarded.context.sessions.close_idle()
    assert not guarded.context.sessions._kept
    await guarded.get("/topics")


async def test_a_logout_leaves_no_keys_behind(guarded: Console, caplog: pytest.LogCaptureFixture) -> None:
    await log_in(guarded, "ada")
    await guarded.get("/topics")
    answer = await guarded.http.get("/api/session")
    assert SECRETS["ada"] not in answer.text and SECRETS["ada"] not in str(guarded.http.cookies.jar)
    await guarded.change("POST", "/logout")
    assert not guarded.context.access.credentials() and not guarded.context.sessions._kept
    assert SECRETS["ada"] not in caplog.text
    assert SECRETS["ada"] not in guarded.context.audit.path.read_text()


async def test_guesses_end_before_the_brokers_lock_the_console_out(
    guarded: Console, accounts: Accounts
) -> None:
    access = guarded.context.access
    for number in range(15):
        with pytest.raises(ApiError, match="does not accept"):
            await access.log_in("ada", "wrong", f"10.0.0.{number}")
    assert len(accounts.refused) == 30  # at both brokers
    with pytest.raises(ApiError, match="too many"):
        await access.log_in("ada", "wrong", "10.0.0.99")
    assert len(accounts.refused) == 30  # at both brokers
    assert await access.log_in("bob", SECRETS["bob"], "10.0.0.1")


async def test_a_change_needs_the_csrf_token_of_the_session(guarded: Console) -> None:
    await log_in(guarded, "ada")
    headers = {CSRF_HEADER: "of another session"}
    answer = await guarded.http.post("/api/topics", json={"topic": "Orders"}, headers=headers)
    assert answer.json()["error"]["code"] == "csrf_token_missing"


async def test_a_cluster_that_is_away_is_not_a_wrong_password(tmp_path: Path) -> None:
    async with console_of("127.0.0.1:1", tmp_path, accounts=True) as console:
        answer = await console.log_in("ada", SECRETS["ada"], status=502)
        assert answer["error"]["code"] == "cannot_reach_cluster"


def test_accounts_and_a_users_file_exclude_each_other(tmp_path: Path) -> None:
    settings = ConsoleSettings(audit_file=tmp_path / "audit", users_file=tmp_path / "users", accounts=True)
    with pytest.raises(ConfigError, match="--accounts"):
        settings.check()
    ConsoleSettings(audit_file=tmp_path / "audit", accounts=True, host="0.0.0.0").check()
