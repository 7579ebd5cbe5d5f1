"""The access page with brokers that have access control: what is shown, and every change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.client.core.credentials import Credentials
from kourou.testing.cluster import cluster
from tests.integration.console.kit import Console, console_of

ROOT = ("root", "root-secret")
AUTH: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"root","password":"root-secret"}',
}
PASSWORD = "password-of-ada"
PLAIN_FILE = """\
accounts:
- accessKey: rocketroot
  secretKey: root-secret
  admin: true
- accessKey: producer
  secretKey: producer-secret
  topicPerms:
  - Orders=PUB
"""


@asynccontextmanager
async def guarded(
    folder: Path, brokers: int = 1, own: Credentials | None = None, **settings: Any
) -> AsyncIterator[Console]:
    """A cluster with access control, and a console where nobody is logged in; `own` is its account."""
    async with (
        cluster(folder / "cluster", brokers=brokers, **settings) as running,
        console_of(running.namesrv_addr, folder, accounts=True, credentials=own) as console,
    ):
        yield console


@pytest.fixture
async def console(tmp_path: Path) -> AsyncIterator[Console]:
    async with guarded(tmp_path, 2, **AUTH) as console:
        await console.log_in(*ROOT)
        yield console


async def change(console: Console, method: str, path: str, body: dict[str, Any]) -> list[str]:
    """Make a change that was previewed: its effects."""
    preview = await console.preview(method, path, body)
    done = await console.change(method, path, body, plan=preview["plan"])
    assert all(one["is_done"] for one in done["outcomes"]) and done["outcomes"]
    return [*preview["effects"], *preview["warnings"]]


async def create_ada(console: Console) -> None:
    await change(console, "POST", "/access/users", {"username": "ada", "password": PASSWORD})


async def test_a_super_user_is_an_administrator_of_the_console(console: Console) -> None:
    assert (await console.get("/session"))["role"] == "administrator"
    assert (await console.get("/audit"))["items"] == []
    await create_ada(console)
    assert (await console.log_in("ada", PASSWORD))["role"] == "operator"
    await console.get("/audit", status=403)


async def test_a_super_user_who_becomes_a_normal_one_is_no_administrator_any_more(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.console.security.accounts.AccountLogins.renew_s", 0.0)
    await create_ada(console)
    await change(console, "PUT", "/access/users/ada", {"user_type": "Super"})
    assert (await console.log_in("ada", PASSWORD))["role"] == "administrator"
    await change(console, "PUT", "/access/users/ada", {"user_type": "Normal"})
    assert (await console.get("/session"))["role"] == "operator"


async def test_users_are_created_changed_and_deleted_on_all_brokers(console: Console) -> None:
    body = {"username": "ada", "password": PASSWORD}
    assert await change(console, "POST", "/access/users", body) == [
        "Creates the Normal user ada on broker-a, broker-b"
    ]
    await console.preview("POST", "/access/users", body, status=409)
    body = {"user_status": "disable", "password": "another one"}
    assert await change(console, "PUT", "/access/users/ada", body) == [
        "Changes user ada",
        "broker-a: new password; status enable → disable",
        "broker-b: new password; status enable → disable",
    ]
    access = (await console.get("/access"))["access"]
    assert access["is_supported"] and not access["is_plain"] and not access["problems"]
    assert access["users"] == [
        {
            "username": name,
            "user_type": kind,
            "user_status": status,
            "brokers": ["broker-a", "broker-b"],
        }
        for name, kind, status in (("ada", "Normal", "disable"), ("root", "Super", "enable"))
    ]
    effects = await change(console, "DELETE", "/access/users/ada", {})
    assert effects[0] == "Deletes user ada and all its permissions from broker-a, broker-b"
    assert [user["username"] for user in (await console.get("/access"))["access"]["users"]] == ["root"]
    await console.preview("DELETE", "/access/users/ada", status=404)


async def test_secrets_are_in_no_answer_and_no_record(
    console: Console, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"username": "ada", "password": PASSWORD, "brokers": ["broker-a"]}
    answers = [await console.preview("POST", "/access/users", body)]
    assert "createUser" in answers[0]["commands"][0] and "-p PASSWORD" in answers[0]["commands"][0]
    answers.append(await console.change("POST", "/access/users", body))
    answers.append(await console.change("PUT", "/access/users/ada", {"password": PASSWORD + "2"}))
    answers.append(await console.get("/access"))
    answers.append(await console.get("/audit"))
    text = f"{answers} {console.context.audit.path.read_text()} {caplog.text}"
    assert "ada" in text
    assert PASSWORD not in text and ROOT[1] not in text


async def test_the_last_super_user_is_not_deleted_without_a_warning(console: Console) -> None:
    for method, body in (("DELETE", {}), ("PUT", {"user_status": "disable"})):
        preview = await console.preview(method, "/access/users/root", body)
        assert "You are logged in with this account" in preview["warnings"]
        assert any("access cannot be managed there any more" in warning for warning in preview["warnings"])


async def test_permissions_are_given_changed_and_taken(console: Console) -> None:
    await create_ada(console)
    rule: dict[str, Any] = {"subject": "User:ada", "resource": "Topic:orders", "actions": ["Pub"]}
    assert await change(console, "PUT", "/access/rules", rule) == [
        "User:ada, Topic:orders on broker-a: nothing → Allow Pub",
        "User:ada, Topic:orders on broker-b: nothing → Allow Pub",
    ]
    rule |= {"actions": ["Sub"], "decision": "Deny", "source_ips": ["10.0.0.0/8"], "brokers": ["broker-a"]}
    effects = await change(console, "PUT", "/access/rules", rule)
    assert effects == ["User:ada, Topic:orders on broker-a: Allow Pub → Deny Sub from 10.0.0.0/8"]
    await console.preview("PUT", "/access/rules", rule, status=400)
    rules = (await console.get("/access"))["access"]["rules"]
    assert [(one["decision"], one["actions"], one["brokers"]) for one in rules] == [
        ("Allow", ["Pub"], ["broker-b"]),
        ("Deny", ["Sub"], ["broker-a"]),
    ]
    key = {"subject": "User:ada", "resource": "Topic:orders"}
    await change(console, "DELETE", "/access/rules", key)
    assert (await console.get("/access"))["access"]["rules"] == []
    await console.preview("DELETE", "/access/rules", key, status=404)


async def test_what_brokers_do_not_accept_is_said_in_their_words(console: Console) -> None:
    await create_ada(console)
    rule = {"subject": "User:ada", "resource": "Topic:t", "actions": ["Pub"], "source_ips": ["nowhere"]}
    answer = await console.change("PUT", "/access/rules", rule, status=403)
    assert "The source ip is invalid" in answer["error"]["message"]
    await console.change("PUT", "/access/rules", {**rule, "actions": ["Fly"]}, status=400)
    await console.change("POST", "/access/users", {"username": " ", "password": "x"}, status=400)


async def test_the_account_of_the_console_needs_to_read_the_cluster_only(tmp_path: Path) -> None:
    """As docs/console.md says."""
    async with guarded(tmp_path, own=Credentials("watch", "secret-of-watch"), **AUTH) as console:
        await console.log_in(*ROOT)
        user = {"username": "watch", "password": "secret-of-watch"}
        await change(console, "POST", "/access/users", user)
        rule = {"subject": "User:watch", "resource": "Cluster:DefaultCluster", "actions": ["Get"]}
        await change(console, "PUT", "/access/rules", rule)
        history = console.context.history
        assert history is not None
        own = console.context.sessions.own.view
        async with asyncio.timeout(20):
            # The account did not exist before: its requests are repeated after a pause.
            while (await own.brokers()).data[0].problem:
                await asyncio.sleep(0.1)
                console.context.sessions.forget()
        await history.sample()
        await history.sample()
        series = (await console.get("/overview"))["history"]
        assert (series["in_tps"][-1], series["lag"][-1]) == (0, 0)
        assert not (await own.brokers()).problems and not (await own.lags()).problems


async def test_a_normal_user_sees_the_refusal_of_the_brokers(console: Console) -> None:
    await create_ada(console)
    await console.log_in("ada", PASSWORD)
    access = (await console.get("/access"))["access"]
    assert not access["users"]
    assert any("User:ada has no permission to access Cluster:" in problem for problem in access["problems"])
    body = {"username": "eve", "password": "password-of-eve"}
    answer = await console.preview("POST", "/access/users", body, status=403)
    assert answer["error"]["message"].startswith("User:ada has no permission to access Cluster:")


async def test_an_account_sees_the_topic_that_it_may_see(console: Console) -> None:
    await console.change("POST", "/topics", {"topic": "Orders"})
    await console.change("POST", "/topics", {"topic": "Bills"})
    await create_ada(console)
    for resource, actions in (("Topic:Orders", ["Get", "Pub"]), ("Group:Billing", ["Get"])):
        rule = {"subject": "User:ada", "resource": resource, "actions": actions}
        await change(console, "PUT", "/access/rules", rule)
    await console.log_in("ada", PASSWORD)

    topics = await console.get("/topics")
    assert not topics["items"]
    assert any("User:ada has no permission to access Topic:*" in problem for problem in topics["problems"])
    assert not any("CODE" in problem for problem in topics["problems"])
    assert (await console.get("/topics/Orders"))["topic"] == "Orders"
    sent = await console.change("POST", "/topics/Orders/messages", {"body": "x"})
    assert sent["outcomes"][0]["is_done"]
    answer = await console.get("/topics/Bills", status=403)
    assert "has no permission" in answer["error"]["message"]
    answer = await console.change("PUT", "/topics/Orders", {"perm": 4}, status=403)
    assert answer["error"]["message"].startswith("User:ada has no permission to access Topic:Orders")


# -- RocketMQ 4 --------------------------------------------------------------------------------------


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Console]:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(PLAIN_FILE)
    async with guarded(tmp_path, acl_enable=True, rocketmq_home=str(home)) as console:
        await console.log_in("rocketroot", "root-secret")
        yield console


async def test_accounts_of_rocketmq_4_log_in_and_only_administrators_see_the_accounts(plain: Console) -> None:
    assert (await plain.get("/session"))["role"] == "administrator"
    access = (await plain.get("/access"))["access"]
    assert (access["is_supported"], access["is_plain"], access["plain_brokers"]) == (
        False,
        True,
        ["broker-a"],
    )
    assert [(one["access_key"], one["is_admin"], one["topic_perms"]) for one in access["accounts"]] == [
        ("producer", False, ["Orders=PUB"]),
        ("rocketroot", True, []),
    ]
    assert "secret" not in str(access)
    assert (await plain.log_in("producer", "producer-secret"))["role"] == "operator"
    access = (await plain.get("/access"))["access"]
    assert not access["accounts"] and access["problems"]
    await plain.log_in("producer", "another-secret", status=401)


async def test_accounts_of_rocketmq_4_are_created_changed_and_deleted(plain: Console) -> None:
    body: dict[str, Any] = {
        "access_key": "consumer",
        "secret_key": "consumer-secret",
        "group_perms": ["G=SUB"],
    }
    assert await change(plain, "POST", "/access/accounts", body) == [
        "Creates account consumer on broker-a: groups none → G=SUB"
    ]
    await plain.preview("POST", "/access/accounts", body, status=409)
    body = {"default_topic_perm": "SUB", "secret_key": "another-secret"}
    assert await change(plain, "PUT", "/access/accounts/consumer", body) == [
        "Changes account consumer",
        "broker-a: new secret key; default for topics none → SUB",
    ]
    await plain.log_in("consumer", "another-secret")
    await plain.log_in("rocketroot", "root-secret")
    await change(plain, "DELETE", "/access/accounts/consumer", {})
    await plain.log_in("consumer", "another-secret", status=401)
    text = plain.context.audit.path.read_text()
    assert "consumer" in text and "-secret" not in text


async def test_what_stays_is_not_sent(plain: Console) -> None:
    """A form has all fields; RocketMQ 4 does not accept empty lists."""
    body: dict[str, Any] = {"topic_perms": ["Orders=SUB"], "group_perms": [], "admin": False}
    assert await change(plain, "PUT", "/access/accounts/producer", body) == [
        "Changes account producer",
        "broker-a: topics Orders=PUB → Orders=SUB",
    ]
    answer = await plain.preview("PUT", "/access/accounts/producer", {"topic_perms": []}, status=400)
    assert "cannot empty this list" in answer["error"]["message"]


async def test_a_change_of_an_administrator_leaves_it_one(plain: Console) -> None:
    await change(plain, "PUT", "/access/accounts/rocketroot", {"default_topic_perm": "PUB|SUB"})
    accounts = (await plain.get("/access"))["access"]["accounts"]
    assert [one["is_admin"] for one in accounts if one["access_key"] == "rocketroot"] == [True]


async def test_the_white_list_of_rocketmq_4(plain: Console) -> None:
    effects = await change(plain, "PUT", "/access/white-list", {"addresses": ["10.0.0.{1,2}", "192.168.0.7"]})
    assert effects == [
        "White list of broker-a: none → 10.0.0.{1,2}, 192.168.0.7",
        "Clients at 10.0.0.{1,2},192.168.0.7 need no account and may do everything",
    ]
    lists = (await plain.get("/access"))["access"]["white_lists"]
    assert lists == [{"addresses": ["10.0.0.{1,2}", "192.168.0.7"], "brokers": ["broker-a"]}]


@pytest.mark.parametrize(
    "body",
    [
        {"access_key": "short", "secret_key": "long-enough"},
        {"access_key": "long-enough", "secret_key": "short"},
        {"access_key": "long-enough", "secret_key": "long-enough", "topic_perms": ["Orders"]},
        {"access_key": "long-enough", "secret_key": "long-enough", "group_perms": ["a=PUB,b=SUB"]},
    ],
)
async def test_accounts_that_rocketmq_4_could_not_read_are_refused(
    plain: Console, body: dict[str, Any]
) -> None:
    await plain.preview("POST", "/access/accounts", body, status=400)


async def test_a_change_that_only_administrators_may_make_is_refused_in_words(plain: Console) -> None:
    await plain.log_in("producer", "producer-secret")
    answer = await plain.change("POST", "/topics", {"topic": "Orders"}, status=403)
    assert answer["error"]["message"].startswith("Need admin permission for request code=17")
    assert "AclException" not in str(answer)


async def test_without_access_control_there_are_no_users(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path / "cluster") as running,
        console_of(running.namesrv_addr, tmp_path) as console,
    ):
        access = (await console.get("/access"))["access"]
        assert (access["is_supported"], access["is_plain"], access["problems"]) == (False, False, [])
        body = {"username": "ada", "password": PASSWORD}
        await console.preview("POST", "/access/users", body, status=404)
