"""Calls: HTTP requests to other services of the shop.

A service that is away (no connection, no answer, 503) gets the request again until `within_s` is over: every
request of the shop has an id, and a service carries it out once. A refusal (4xx) is definite.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from webshop.errors import AwayError, Code, RefusedError
from webshop.kit.http_client import HttpClient, HttpError, HttpResponse
from webshop.settings import Settings

WITHIN_S: Final = 5.0
_ATTEMPT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 0.5


_PLAIN_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class Path(str):
    """A path that path_of has made."""


def path_of(*parts: str) -> Path:
    """A path of parts, which may contain any characters.

    >>> path_of("users", "a/b?c")
    '/users/a%2Fb%3Fc'
    """
    return Path("".join(f"/{quote(part, safe='')}" for part in parts))


class Calls:
    """Requests to services by their names; keeps connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = HttpClient()

    async def get(self, service: str, path: str, *, within_s: float = WITHIN_S, **query: str | int) -> Any:
        """The JSON of a GET."""
        return await self._call("GET", service, path, within_s, query=urlencode(query))

    async def post(
        self,
        service: str,
        path: str,
        body: object,
        *,
        within_s: float = WITHIN_S,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON of the answer to a POST; `body` is bytes, or becomes JSON."""
        return await self._call("POST", service, path, within_s, _encoded(body), headers)

    async def put(self, service: str, path: str, body: object, *, within_s: float = WITHIN_S) -> Any:
        """The JSON of the answer to a PUT; `body` becomes JSON."""
        return await self._call("PUT", service, path, within_s, _encoded(body))

    async def _call(
        self,
        method: str,
        service: str,
        path: str,
        within_s: float,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        query: str = "",
    ) -> Any:
        if not isinstance(path, Path) and _PLAIN_PATH.fullmatch(path) is None:
            # An id with a ? or a % in it would be another id.
            raise RefusedError(Code.BAD_REQUEST, f"{path!r} is no path; an id in it is wrong", status=422)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        url = f"http://{self._settings.address(service)}{path}{query and f'?{query}'}"
        pause_s = _FIRST_PAUSE_S
        timeout_s = min(_ATTEMPT_S, within_s)
        while True:
            try:
                response = await self._client.request(method, url, body, headers=headers, timeout_s=timeout_s)
                if response.status != 503:
                    return _answer(service, method, path, response)
                why = _error_of(response).get("error", "503")
            except HttpError as error:
                why = str(error)
            if loop.time() + pause_s > deadline:
                raise AwayError(
                    f"{service} is away: no answer to {method} {path} in {within_s:g} s ({why}); try again"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _encoded(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def _answer(service: str, method: str, path: str, response: HttpResponse) -> Any:
    if response.status < 300:
        return response.json()
    said = _error_of(response)
    message = said.get("error") or f"{service} answered {method} {path} with {response.status}"
    if 400 <= response.status < 500:
        raise RefusedError(Code.of(said.get("code")), message, status=response.status)
    raise AwayError(f"{message}; try again, and see the log of {service}")


def _error_of(response: HttpResponse) -> dict[str, str]:
    try:
        read = response.json()
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
