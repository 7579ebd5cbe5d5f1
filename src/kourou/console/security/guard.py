"""Guard: the checks of every HTTP request, before anything else sees it, and the headers of every response.

`Host` must be an IP address, `localhost` or an allowed name: a web page whose name resolves to this machine
(DNS rebinding) has another one. A request that changes something and comes from a browser must come from the
console's own pages: its `Origin` names the same host.
"""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kourou.console.api_errors import ApiError
from kourou.console.responses import error_response

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, allowed_hosts: tuple[str, ...]) -> None:
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check and pass on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] != "http":
            return
        error = self._problem(scope["method"], Headers(scope=scope))
        if error is not None:
            await error_response(error)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _problem(self, method: str, headers: Headers) -> ApiError | None:
        host = headers.get("host", "")
        if not self._is_allowed(host):
            return ApiError(
                HTTPStatus.MISDIRECTED_REQUEST,
                "host_not_allowed",
                f"the console does not answer as {host[:200]!r}",
                "use its IP address or localhost, or start it with --allowed-host NAME",
            )
        origin = headers.get("origin")
        if method not in _SAFE_METHODS and origin is not None and not self._is_own(origin, host):
            return ApiError(
                HTTPStatus.FORBIDDEN,
                "origin_not_allowed",
                f"a page of {origin[:200]!r} may not change anything here",
                "open the console itself",
            )
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        # A proxy in front of the console may have replaced Host.
        return origin.partition("//")[2].lower() == host.lower() or _name(origin) in self._allowed

    def _is_allowed(self, host: str) -> bool:
        name = _name(f"//{host}")
        if name == "localhost" or name in self._allowed:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
