"""Who gets in: login, roles, CSRF, Host, Origin, and no way around them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from kourou.console.api_errors import ApiError
from kourou.console.app import CSRF_HEADER, ENDPOINTS, make_app
from kourou.console.context import console_context
from kourou.console.endpoints import Endpoint, Role
from kourou.console.security import access as access_module
from kourou.console.security.guard import SECURITY_HEADERS
from kourou.console.security.users import User, changed_users, hash_password, parse_users, write_users
from kourou.console.settings import ConsoleSettings
from kourou.errors import ConfigError
from tests.integration.console.kit import ADMINISTRATOR, PASSWORD, READER, Console, console_of

NO_CLUSTER = "127.0.0.1:1"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Console]:
    """A console with users, of a cluster that is away."""
    async with console_of(NO_CLUSTER, tmp_path, users=True) as console:
        yield console


def _url(endpoint: Endpoint) -> str:
    return "/api" + re.sub(r"{\w+(:path)?}", "x", endpoint.path)


async def test_every_operation_needs_a_login_and_its_role(guarded: Console) -> None:
    basic = httpx.BasicAuth(READER, PASSWORD)
    for endpoint in ENDPOINTS:
        if endpoint.role is Role.NONE:
            continue
        answer = await guarded.http.request(endpoint.method, _url(endpoint), json={})
        refused = (answer.status_code, answer.json()["error"]["code"])
        assert refused == (401, "login_required"), endpoint.name
        if endpoint.role is Role.ADMINISTRATOR:
            answer = await guarded.http.request(endpoint.method, _url(endpoint), json={}, auth=basic)
            refused = (answer.status_code, answer.json()["error"]["code"])
            assert refused == (403, "role_not_sufficient"), endpoint.name


async def test_every_change_in_a_session_needs_its_csrf_token(guarded: Console) -> None:
    await guarded.log_in(ADMINISTRATOR)
    for endpoint in (one for one in ENDPOINTS if one.method != "GET"):
        for headers in ({}, {CSRF_HEADER: "of another session"}):
            answer = await guarded.http.request(endpoint.method, _url(endpoint), json={}, headers=headers)
            refused = (answer.status_code, answer.json()["error"]["code"])
            assert refused == (403, "csrf_token_missing"), endpoint.name


async def test_every_route_is_an_operation_or_has_no_data(guarded: Console) -> None:
    declared = {f"/api{endpoint.path}" for endpoint in ENDPOINTS} | {"/api/openapi.json"}
    declared |= {"/metrics", "/metrics/exporter"}
    without_data = {"/api/{path:path}", "/livez", "/readyz", "/static/{path:path}", "/{path:path}"}
    for route in make_app(guarded.context).routes:
        assert isinstance(route, Route)
        assert route.path in declared | without_data, route.path
    for path in ("/api/openapi.json", "/metrics", "/metrics/exporter"):
        assert (await guarded.http.get(path)).status_code == 401


async def test_roles_and_sessions(guarded: Console) -> None:
    assert (await guarded.get("/session"))["role"] is None
    assert (await guarded.log_in(READER))["role"] == "reader"
    assert (await guarded.get("/audit", status=403))["error"]["message"] == (
        "user bob has the role reader; this needs administrator"
    )
    assert (await guarded.log_in(ADMINISTRATOR))["role"] == "administrator"
    assert await guarded.get("/audit") == {
        "items": [],
        "total": 0,
        "as_of": 0,
        "problems": [],
        "commands": [f"tail -n 100 {guarded.context.audit.path}"],
    }
    await guarded.change("POST", "/logout")
    await guarded.get("/audit", status=401)


async def test_the_session_cookie_is_out_of_reach_of_scripts_and_other_sites(guarded: Console) -> None:
    answer = await guarded.http.post("/api/login", json={"user": READER, "password": PASSWORD})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie


async def test_a_removed_user_is_out_at_once(guarded: Console) -> None:
    await guarded.log_in(READER)
    assert guarded.context.settings.users_file is not None
    guarded.context.settings.users_file.write_text("# nobody is left\n")
    assert (await guarded.get("/session"))["user"] is None
    await guarded.log_in(READER, status=401)


async def test_a_changed_password_ends_the_sessions_of_the_user(guarded: Console) -> None:
    await guarded.log_in(READER)
    path = guarded.context.settings.users_file
    assert path is not None
    users = parse_users(path)
    write_users(path, {**users, READER: User(READER, Role.READER, hash_password("another one"))})
    assert (await guarded.get("/session"))["user"] is None


async def test_a_users_file_without_users_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("# name role password\n")
    settings = ConsoleSettings(
        host="0.0.0.0", audit_file=tmp_path / "audit.log", users_file=tmp_path / "users"
    )
    with pytest.raises(ConfigError, match="has no users.*kourou console user add"):
        async with console_context(settings, {"namesrv": NO_CLUSTER}):
            pass


async def test_guesses_at_the_same_time_are_counted(guarded: Console) -> None:
    body = {"user": READER, "password": "wrong"}
    answers = await asyncio.gather(*(guarded.http.post("/api/login", json=body) for _ in range(14)))
    statuses = [answer.status_code for answer in answers]
    # The last allowed one may be compared beside another.
    assert set(statuses) == {401, 429} and statuses.count(401) <= 11


async def test_guessing_passwords_is_stopped(guarded: Console) -> None:
    for _ in range(10):
        await guarded.log_in(READER, "wrong", status=401)
    answer = await guarded.log_in(READER, PASSWORD, status=429)
    assert answer["error"]["code"] == "too_many_attempts"


async def test_guesses_from_one_address_lock_nobody_out_elsewhere(guarded: Console) -> None:
    access = guarded.context.access
    for _ in range(10):
        with pytest.raises(ApiError, match="wrong"):
            await access.log_in(ADMINISTRATOR, "wrong", "203.0.113.9")
    with pytest.raises(ApiError, match="too many"):
        await access.log_in(ADMINISTRATOR, PASSWORD, "203.0.113.9")
    assert await access.log_in(ADMINISTRATOR, PASSWORD, "10.0.0.7")
    assert await access.log_in(READER, PASSWORD, "203.0.113.9")


async def test_guesses_at_many_users_from_one_address_are_stopped(
    guarded: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "_MAX_ADDRESS_FAILURES", 3)
    for number in range(3):
        await guarded.log_in(f"user{number}", "wrong", status=401)
    await guarded.log_in(READER, PASSWORD, status=429)


async def test_a_users_file_that_is_gone_is_reported_once(
    guarded: Console, caplog: pytest.LogCaptureFixture
) -> None:
    path = guarded.context.settings.users_file
    assert path is not None
    await guarded.log_in(READER)
    text = path.read_text()
    path.unlink()
    for _ in range(3):
        assert (await guarded.get("/session"))["user"] == READER
    assert sum("stay in force" in message for message in caplog.messages) == 1
    path.write_text(text)
    assert (await guarded.get("/session"))["user"] == READER
    path.write_text(text.replace(READER, "eve"))
    assert (await guarded.get("/session"))["user"] is None
    await guarded.log_in("eve")
    path.unlink()
    await guarded.get("/session")
    assert sum("stay in force" in message for message in caplog.messages) == 2


async def test_users_that_are_added_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "users"

    def add(number: int) -> None:
        with changed_users(path) as users:
            time.sleep(0.001)
            users[f"user{number}"] = User(f"user{number}", Role.READER, "scrypt$x")

    await asyncio.gather(*(asyncio.to_thread(add, number) for number in range(8)))
    assert set(parse_users(path)) == {f"user{number}" for number in range(8)}


async def test_basic_authentication_needs_no_csrf_token(guarded: Console) -> None:
    wrong = await guarded.http.get("/api/audit", auth=httpx.BasicAuth(ADMINISTRATOR, "wrong"))
    assert wrong.status_code == 401
    for damaged in (b"Basic \xe9", b"Basic ?", b"Basic /w=="):
        answer = await guarded.http.get("/api/audit", headers={b"authorization": damaged})
        assert answer.status_code == 401, damaged
    basic = httpx.BasicAuth(ADMINISTRATOR, PASSWORD)
    assert (await guarded.http.get("/api/audit", auth=basic)).status_code == 200
    assert (await guarded.http.post("/api/logout", auth=basic, json={})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "[::1", "127.0.0.1.nip.io"])
async def test_other_host_names_are_refused(guarded: Console, host: str) -> None:
    for path in ("/", "/api/session", "/static/index.html"):
        answer = await guarded.http.get(path, headers={"Host": host})
        assert answer.status_code == 421, path


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "LOCALHOST"])
async def test_addresses_and_localhost_are_served(guarded: Console, host: str) -> None:
    assert (await guarded.http.get("/api/session", headers={"Host": host})).status_code == 200


async def test_an_allowed_host_name_is_served_also_behind_a_proxy(tmp_path: Path) -> None:
    async with console_of(NO_CLUSTER, tmp_path, allowed_hosts=("mq.example",)) as console:
        headers = {"Host": "mq.example", CSRF_HEADER: console.csrf_token}
        for host in ("mq.example", "127.0.0.1:8080"):
            origin = {"Host": host, "Origin": "https://mq.example"}
            answer = await console.http.post("/api/logout", json={}, headers={**headers, **origin})
            assert answer.status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:9999", "http://localhost"]
)
async def test_pages_of_other_origins_cannot_change_anything(tmp_path: Path, origin: str) -> None:
    async with console_of(NO_CLUSTER, tmp_path) as console:
        headers = {"Origin": origin, CSRF_HEADER: console.csrf_token}
        answer = await console.http.post("/api/logout", json={}, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
        headers["Origin"] = "http://localhost:8080"
        assert (await console.http.post("/api/logout", json={}, headers=headers)).status_code == 200


async def test_every_response_has_the_security_headers(guarded: Console) -> None:
    for path in ("/api/session", "/api/none", "/api/audit", "/livez"):
        answer = await guarded.http.get(path)
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value, (path, name)
