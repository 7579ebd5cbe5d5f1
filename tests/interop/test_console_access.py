"""The console at Apache's brokers with access control: accounts log in, see and change what they may."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from kourou.console.app import ENDPOINTS
from kourou.console.endpoints import Read
from tests.integration.console.kit import Console, console_of
from tests.interop.kit.access_accounts import ADMIN, NOBODY, WORKER, SampleAccount
from tests.interop.kit.access_servers import AUTH, PLAIN
from tests.interop.kit.access_world import RULES, AccessCluster, AccessWorld, theirs

pytestmark = pytest.mark.interop

ANN: Final = SampleAccount(access_key="annuser", secret_key="annsecret")
WORDS: Final = {
    PLAIN: "Need admin permission for request code=17",
    AUTH: "User:nobodyuser has no permission to access Topic:Fresh",
}
"""What Apache's broker answers to an account that may not create a topic."""


@pytest.fixture(params=RULES)
def cluster(request: pytest.FixtureRequest, access_world: AccessWorld) -> AccessCluster:
    """Apache's broker of a version, registered at its name server, which takes it some seconds."""
    found = access_world[theirs(request.param)]
    found.create_topic("Orders")
    return found


@pytest.fixture
async def console(cluster: AccessCluster, tmp_path: Path) -> AsyncIterator[Console]:
    """A console without an account of its own."""
    async with console_of(cluster.names, tmp_path, accounts=True) as started:
        yield started


async def log_in(console: Console, account: SampleAccount, status: int = 200) -> Any:
    return await console.log_in(account.access_key, account.secret_key, status)


async def test_the_accounts_of_the_cluster_log_in_with_their_role(console: Console) -> None:
    for account, role in ((ADMIN, "administrator"), (WORKER, "operator"), (NOBODY, "operator")):
        assert (await log_in(console, account))["role"] == role, account.access_key
    wrong = (
        SampleAccount(access_key=ADMIN.access_key, secret_key=WORKER.secret_key),
        SampleAccount(access_key="strangeruser", secret_key="strangersecret"),
    )
    await console.change("POST", "/logout")
    for account in wrong:
        answer = await log_in(console, account, status=401)
        assert answer["error"]["message"] == "the cluster does not accept these keys"


@pytest.mark.parametrize("account", [ADMIN, NOBODY], ids=["administrator", "no permissions"])
async def test_pages_show_what_the_account_may_see(console: Console, account: SampleAccount) -> None:
    await log_in(console, account)
    for endpoint in ENDPOINTS:
        if not isinstance(endpoint, Read) or endpoint.method != "GET" or re.search("{|/kv$", endpoint.path):
            continue
        query = {"topic": "Orders", "key": "k"} if endpoint.path in ("/messages/by-key", "/traces") else {}
        if endpoint.path == "/messages":
            query = {"topic": "Orders", "begin": "0", "end": str(10**15)}
        answer = await console.http.get(f"/api{endpoint.path}", params=query)
        allowed = (200,) if account is ADMIN else (200, 403)
        assert answer.status_code in allowed, (endpoint.path, answer.text)
        assert not re.search(r"CODE: 16|AclException", answer.text), (endpoint.path, answer.text)
        assert account.secret_key not in answer.text, endpoint.path
        if answer.status_code == 200 and "problems" in answer.json() and account is ADMIN:
            assert not answer.json()["problems"], (endpoint.path, answer.text)


async def test_a_change_without_permission_is_refused_in_the_words_of_the_broker(
    console: Console, cluster: AccessCluster
) -> None:
    await log_in(console, NOBODY)
    answer = await console.change("POST", "/topics", {"topic": "Fresh"}, status=403)
    assert answer["error"]["message"].startswith(WORDS[cluster.place.rules])
    assert (answer["error"]["code"], "AclException" in str(answer)) == ("refused_by_cluster", False)


async def test_an_administrator_creates_changes_and_deletes_an_account(
    console: Console, cluster: AccessCluster
) -> None:
    is_plain = cluster.place.rules == PLAIN
    await log_in(console, ADMIN)
    access = (await console.get("/access"))["access"]
    assert (access["is_plain"], access["is_supported"], access["problems"]) == (is_plain, not is_plain, [])
    if is_plain:
        kind, key = "accounts", "access_key"
        created: dict[str, Any] = {key: ANN.access_key, "secret_key": ANN.secret_key}
        created["topic_perms"] = ["Orders=PUB"]
        changed = {"group_perms": ["Workers=SUB"]}
    else:
        kind, key = "users", "username"
        created = {key: ANN.access_key, "password": ANN.secret_key}
        changed = {"user_type": "Super"}
    await done(console, "POST", f"/access/{kind}", created)
    found = {one[key]: one for one in (await console.get("/access"))["access"][kind]}
    assert ANN.access_key in found and ADMIN.access_key in found and ANN.secret_key not in str(found)
    await done(console, "PUT", f"/access/{kind}/{ANN.access_key}", changed)
    expected = "operator" if is_plain else "administrator"
    assert (await log_in(console, ANN))["role"] == expected
    await log_in(console, ADMIN)
    if not is_plain:
        rule: dict[str, Any] = {"subject": f"User:{ANN.access_key}", "resource": "Topic:Orders"}
        await done(console, "PUT", "/access/rules", {**rule, "actions": ["Pub"]})
        rules = (await console.get("/access"))["access"]["rules"]
        assert [one["actions"] for one in rules if one["subject"] == rule["subject"]] == [["Pub"]]
        await done(console, "DELETE", "/access/rules", rule)
    await done(console, "DELETE", f"/access/{kind}/{ANN.access_key}", {})
    await console.change("POST", "/logout")
    await log_in(console, ANN, status=401)
    text = console.context.audit.path.read_text()
    assert ANN.access_key in text and ANN.secret_key not in text


async def done(console: Console, method: str, path: str, body: dict[str, Any]) -> None:
    """Make a change that succeeds everywhere."""
    answer = await console.change(method, path, body)
    assert answer["outcomes"] and all(one["is_done"] for one in answer["outcomes"]), answer
