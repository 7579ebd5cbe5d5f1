"""The session: who is logged in, and what the pages need to know at the start."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kourou import __version__
from kourou.console.cluster_sessions import ClusterSession
from kourou.console.endpoints import Call, Endpoint, NoBody, NoQuery, Raw, Read, Role
from kourou.console.responses import json_response
from kourou.console.security.access import SESSION_COOKIE, SESSION_IDLE_S, Visitor
from kourou.errors import KourouError


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user and a password, or an access key and its secret key."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(user={self.user!r})"


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of the request. Without a login every field about the cluster is empty."""

    user: str | None
    role: str | None
    login_required: bool
    by_accounts: bool
    """Whether accounts of the cluster log in, with access key and secret key."""
    csrf_token: str | None
    """For the header X-CSRF-Token of every change."""
    version: str = __version__
    namesrvs: list[str] = []
    clusters: list[str] = []
    problem: str = ""
    """Why the cluster cannot be reached; empty if it can."""


async def _session(call: Call[NoQuery, NoBody]) -> SessionInfo:
    return await _info(call, call.visitor, call.cluster)


async def _info(call: Call[Any, Any], visitor: Visitor, cluster: ClusterSession | None) -> SessionInfo:
    is_required, by_accounts = call.context.access.is_login_required, call.context.settings.accounts
    if cluster is None:
        return SessionInfo(
            user=None, role=None, login_required=is_required, by_accounts=by_accounts, csrf_token=None
        )
    clusters: list[str] = []
    problem = ""
    try:
        brokers = await cluster.view.brokers()
        clusters = sorted({broker.cluster for broker in brokers.data})
    except KourouError as error:
        problem = str(error)
    return SessionInfo(
        user=visitor.user or None,
        role=visitor.role.label,
        login_required=is_required,
        by_accounts=by_accounts,
        csrf_token=visitor.csrf_token,
        namesrvs=list(cluster.admin.namesrvs),
        clusters=clusters,
        problem=problem,
    )


async def _log_in(call: Call[NoQuery, Login], request: Request) -> Response:
    context = call.context
    if not context.access.is_login_required:
        return json_response(await _info(call, call.visitor, call.cluster))
    cookie = await context.access.log_in(call.body.user, call.body.password, call.visitor.address)
    visitor = await context.access.visitor(cookie=cookie, authorization=None, address=call.visitor.address)
    async with context.session_of(visitor) as cluster:
        response = json_response(await _info(call, visitor, cluster))
    response.set_cookie(
        SESSION_COOKIE,
        cookie,
        max_age=SESSION_IDLE_S,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


async def _log_out(call: Call[NoQuery, NoBody], request: Request) -> Response:
    call.context.access.log_out(request.cookies.get(SESSION_COOKIE))
    await call.context.drop_logged_out()
    response = json_response({})
    response.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict")
    return response


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/session",
        summary="The user, the CSRF token, the clusters",
        role=Role.NONE,
        handler=_session,
        returns=SessionInfo,
    ),
    Raw(
        method="POST",
        path="/login",
        summary="Open a session",
        role=Role.NONE,
        body=Login,
        respond=_log_in,
        returns=SessionInfo,
    ),
    Raw(method="POST", path="/logout", summary="End the session", role=Role.NONE, respond=_log_out),
)
