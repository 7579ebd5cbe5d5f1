"""Every page for an account without a permission: what it may see, or 403 with the words of the cluster."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

from kourou.console.app import ENDPOINTS
from kourou.console.endpoints import Endpoint, Raw, Read
from kourou.testing.cluster import cluster
from tests.integration.console.kit import Console, console_of

ROOT, POOR = ("rocketroot", "root-secret"), ("poorest", "poorest-secret")
AUTH: Final[dict[str, Any]] = {
    "authentication_enabled": True,
    "init_authentication_user": '{"username":"rocketroot","password":"root-secret"}',
    "inner_client_authentication_credentials": '{"accessKey":"brokers","secretKey":"secret-of-brokers"}',
}
PLAIN_FILE: Final = """\
accounts:
- {accessKey: rocketroot, secretKey: root-secret, admin: true}
- {accessKey: brokers, secretKey: secret-of-brokers, admin: true}
- {accessKey: poorest, secretKey: poorest-secret}
"""
READS: Final = tuple(one for one in ENDPOINTS if isinstance(one, Read | Raw) and one.method == "GET")
SHOWN: Final = {
    "get_session",
    "get_overview",
    "get_brokers",
    "get_brokers_name_id",
    "get_namesrvs",
    "get_access",
    "get_pipelines",
    "get_topics",
    "get_groups",
    "get_dead_letters",
    "get_delayed",
    "get_half_messages",
    "get_producers",
}
"""Pages that show what there is, and list what could not be read."""


@asynccontextmanager
async def guarded(folder: Path, *, is_plain: bool) -> AsyncIterator[Console]:
    """A cluster with access control, also at the name server, with a topic, a group, a message and an account
    without permissions."""
    of_both: dict[str, Any] = {"rocketmq_home": str(folder)}
    of_namesrv: dict[str, Any] = {"access_users_folder": str(folder / "cluster" / "broker-a" / "config")}
    of_broker: dict[str, Any] = {"authorization_enabled": not is_plain, "trace_topic_enable": True}
    if is_plain:
        (folder / "conf").mkdir()
        (folder / "conf" / "plain_acl.yml").write_text(PLAIN_FILE)
        (folder / "conf" / "plain_acl.yml").chmod(0o600)
        inner = "inner_client_authentication_credentials"
        of_both |= {"acl_enable": True, inner: AUTH[inner]}
        of_namesrv = {}
    else:
        of_both |= AUTH
    async with (
        cluster(folder / "cluster", of_namesrv={**of_both, **of_namesrv}, **of_both, **of_broker) as running,
        console_of(running.namesrv_addr, folder, accounts=True) as console,
    ):
        await console.log_in(*ROOT)
        if not is_plain:
            await console.change("POST", "/access/users", {"username": POOR[0], "password": POOR[1]})
        await console.change("POST", "/topics", {"topic": "Orders"})
        for topic in ("%RETRY%billing", "%DLQ%billing"):
            await console.change("POST", "/topics", {"topic": topic})
        await console.change("POST", "/groups", {"group": "billing"})
        message = {"body": "hello", "keys": ["k"]}
        await console.change("POST", "/topics/Orders/messages", message)
        yield console


class Walk:
    """Requests for all pages about things that exist."""

    def __init__(self, console: Console, message_id: str) -> None:
        self._console = console
        self._path = {"name": "broker-a", "topic": "Orders", "group": "billing", "client": "c@1"}
        self._message_id = message_id
        self._query = {"topic": "Orders", "group": "billing", "begin": "0", "end": str(10**15), "key": "k"}
        self._query |= {"namespace": "n"}

    async def get(self, endpoint: Endpoint) -> httpx.Response:
        values = {**self._path, "id": self._message_id if "{topic}/{id}" in endpoint.path else "0"}
        path = re.sub(r"{(\w+)(?::path)?}", lambda found: values[found[1]], endpoint.path)
        fields = msgspec.structs.fields(endpoint.query)
        query = {
            field.encode_name: self._query[field.encode_name]
            for field in fields
            if field.required or field.encode_name in ("topic", "key")
        }
        return await self._console.http.get(f"/api{path}", params=query)


@pytest.fixture(params=[False, True], ids=["users", "plain accounts"])
async def console(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Console]:
    async with guarded(tmp_path, is_plain=request.param) as started:
        yield started


async def test_each_page_shows_what_the_account_may_see_or_is_refused_in_words(console: Console) -> None:
    page = await console.get("/messages", topic="Orders", begin=0, end=10**15)
    walk = Walk(console, page["items"][0]["msg_id"])
    missing = {"get_groups_group_clients_client", "get_message_searches_id", "get_producers_group"}
    for endpoint in READS:
        answer = await walk.get(endpoint)
        assert (answer.status_code == 200) is (endpoint.name not in missing), (endpoint.name, answer.text)
    await console.log_in(*POOR)
    shown = set()
    for endpoint in READS:
        answer = await walk.get(endpoint)
        assert not re.search(r"CODE:|AclException|secret", answer.text), (endpoint.name, answer.text)
        if answer.status_code == 200:
            shown.add(endpoint.name)
        elif endpoint.name == "get_message_searches_id":
            assert answer.status_code == 404, answer.text
        else:
            error = answer.json()["error"]
            assert answer.status_code == 403, (endpoint.name, answer.text)
            assert re.search("permission|not found|role operator", error["message"]), error
    assert shown == SHOWN


async def test_a_page_of_which_nothing_can_be_read_shows_why(console: Console) -> None:
    await console.log_in(*POOR)
    for path in ("/topics", "/groups", "/dead-letters", "/delayed", "/producers"):
        problems = (await console.get(path))["problems"]
        assert problems and all("permission" in problem for problem in problems), (path, problems)
    assert (await console.get("/access"))["access"]["problems"]
    for broker in (await console.get("/brokers"))["items"]:
        assert "permission" in broker["problem"]
    for namesrv in (await console.get("/namesrvs"))["items"]:
        assert namesrv["brokers"] and not namesrv["config"]
        assert re.search("permission|not found", namesrv["config_problem"]), namesrv
