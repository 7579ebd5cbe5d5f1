"""The console's application in this process, and a client for its API.

async with console_of(running.namesrv_addr, tmp_path) as console:
    topics = await console.get("/topics")
    preview = await console.preview("POST", "/topics", {"topic": "Orders"})
    await console.change("POST", "/topics", {"topic": "Orders"}, plan=preview["plan"])
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from kourou.client.core.credentials import Credentials
from kourou.client.core.settings import ClientOptions
from kourou.console.app import CSRF_HEADER, make_app
from kourou.console.context import ConsoleContext, console_context
from kourou.console.endpoints import Role
from kourou.console.security.users import User, hash_password, write_users
from kourou.console.settings import ConsoleSettings

PASSWORD = "correct horse"
READER, ADMINISTRATOR = "bob", "ada"


class Console:
    """A browser's view of the API."""

    def __init__(self, context: ConsoleContext, http: httpx.AsyncClient) -> None:
        self.context = context
        self.http = http
        self.csrf_token = ""

    async def get(self, path: str, status: int = 200, **query: object) -> Any:
        """The answer of a read."""
        return self._checked(
            await self.http.get(f"/api{path}", params={key: str(value) for key, value in query.items()}),
            status,
        )

    async def change(
        self, method: str, path: str, body: object = None, *, status: int = 200, **query: str
    ) -> Any:
        """The answer of a change."""
        headers = {CSRF_HEADER: self.csrf_token}
        answer = await self.http.request(
            method, f"/api{path}", params=query, json={} if body is None else body, headers=headers
        )
        return self._checked(answer, status)

    async def preview(self, method: str, path: str, body: object = None, status: int = 200) -> Any:
        """What a change would do."""
        return await self.change(method, path, body, status=status, preview="true")

    async def log_in(self, user: str, password: str = PASSWORD, status: int = 200) -> Any:
        """Log in; later requests are sent in this session."""
        info = await self.change("POST", "/login", {"user": user, "password": password}, status=status)
        self.csrf_token = info.get("csrf_token") or ""
        return info

    @staticmethod
    def _checked(answer: httpx.Response, status: int) -> Any:
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json()


@cache
def _hashed() -> str:
    """The password, hashed once: it takes as long as an attacker should need."""
    return hash_password(PASSWORD)


@asynccontextmanager
async def console_of(
    namesrv: str,
    folder: Path,
    *,
    users: bool = False,
    allowed_hosts: tuple[str, ...] = (),
    accounts: bool = False,
    credentials: Credentials | None = None,
) -> AsyncIterator[Console]:
    """A console for a cluster; with `users` those above, and nobody is logged in. `accounts`: those of the
    cluster log in; `credentials` are the console's own."""
    users_file = None
    if users:
        users_file = folder / "users"
        hashed = _hashed()
        both = (User(READER, Role.READER, hashed), User(ADMINISTRATOR, Role.ADMINISTRATOR, hashed))
        write_users(users_file, {user.name: user for user in both})
    settings = ConsoleSettings(
        audit_file=folder / "audit.log", users_file=users_file, allowed_hosts=allowed_hosts, accounts=accounts
    )
    client: ClientOptions = {"namesrv": namesrv, "credentials": credentials}
    async with console_context(settings, client, watch_s=0.1) as context:
        transport = httpx.ASGITransport(make_app(context), client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as http:
            console = Console(context, http)
            console.csrf_token = (await console.get("/session"))["csrf_token"] or ""
            yield console
