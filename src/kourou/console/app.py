"""The console as an ASGI application: guard, API, static files, and the page for every other path.

One gate for all operations of the API: `_Operation.__call__` finds the sender, compares the role, checks the
CSRF token and converts the parameters. Nothing else is reachable but static files and the empty page.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from kourou.console.api import (
    access,
    access_accounts,
    access_rules,
    access_users,
    audit,
    brokers,
    dead_letters,
    doctor,
    group_changes,
    group_files,
    group_offsets,
    groups,
    message,
    message_search,
    messages,
    namesrvs,
    overview,
    pending,
    pipelines,
    producers,
    sends,
    session,
    topic_changes,
    topic_files,
    topics,
    traces,
)
from kourou.console.api_errors import ApiError, api_error_of, bad_input, not_found
from kourou.console.audit import AuditRecord
from kourou.console.cluster_sessions import ClusterSession
from kourou.console.context import ConsoleContext
from kourou.console.endpoints import Call, Change, Done, Endpoint, Plan, Raw, Read, Role
from kourou.console.openapi import openapi_document
from kourou.console.page_files import PageFiles
from kourou.console.refusals import is_refusal, readable
from kourou.console.responses import error_response, json_response
from kourou.console.security.access import SESSION_COOKIE, Visitor
from kourou.console.security.guard import Guard
from kourou.errors import KourouError, ResponseError
from kourou.metrics.families import Family
from kourou.metrics.process import process_families
from kourou.transport.http_server import HttpHandler, HttpResponse
from kourou.transport.metrics_http import EXPORTER_METRICS, METRICS, metrics_handler

API: Final = "/api"
CSRF_HEADER: Final = "X-CSRF-Token"
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""A message of 4 MiB, escaped as JSON."""
_RESOURCE_PARTS: Final = 4
"""`/api/topics/orders` of `/api/topics/orders/offsets`."""
_SHOWN_PROBLEMS: Final = 5
_MIN_GZIP_BYTES: Final = 2_048
_GZIP_LEVEL: Final = 3

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *session.ENDPOINTS,
    *overview.ENDPOINTS,
    *brokers.ENDPOINTS,
    *namesrvs.ENDPOINTS,
    *doctor.ENDPOINTS,
    *access.ENDPOINTS,
    *access_users.ENDPOINTS,
    *access_rules.ENDPOINTS,
    *access_accounts.ENDPOINTS,
    *pipelines.ENDPOINTS,
    *audit.ENDPOINTS,
    *topics.ENDPOINTS,
    *topic_changes.ENDPOINTS,
    *group_changes.ENDPOINTS,
    *group_offsets.ENDPOINTS,
    *groups.ENDPOINTS,
    *messages.ENDPOINTS,
    *message.ENDPOINTS,
    *message_search.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *traces.ENDPOINTS,
    *pending.ENDPOINTS,
    *producers.ENDPOINTS,
    *sends.ENDPOINTS,
    *topic_files.ENDPOINTS,
    *group_files.ENDPOINTS,
)
"""Every operation of the API."""


def make_app(context: ConsoleContext) -> Starlette:
    """The application of one console."""
    return Starlette(
        routes=list(_routes(context)),
        middleware=[
            Middleware(Guard, allowed_hosts=context.settings.allowed_hosts),
            Middleware(GZipMiddleware, minimum_size=_MIN_GZIP_BYTES, compresslevel=_GZIP_LEVEL),
        ],
    )


def _routes(context: ConsoleContext) -> Iterable[BaseRoute]:
    document = openapi_document(ENDPOINTS)

    async def describe(call: Call[Any, Any]) -> dict[str, Any]:
        return document

    described = Read(path="/openapi.json", summary="This document", handler=describe)
    for endpoint in (*ENDPOINTS, described):
        operation = _Operation(context, endpoint)
        yield Route(API + endpoint.path, operation.respond, methods=[endpoint.method], name=endpoint.name)
    yield Route(API + "/{path:path}", _no_operation, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    for scrape in _scrapes(context):
        yield Route(scrape.path, _Operation(context, scrape).respond, methods=["GET"], name=scrape.path)
    yield Route("/livez", _alive, methods=["GET"])
    yield Route("/readyz", _readiness(context), methods=["GET"])
    files = PageFiles()
    yield Route("/static/{path:path}", files.respond, methods=["GET"])
    yield Route("/{path:path}", files.index, methods=["GET"])


async def _no_operation(request: Request) -> Response:
    path = request.url.path
    return error_response(not_found(f"there is no {request.method} {path}", f"{API}/openapi.json lists all"))


def _scrapes(context: ConsoleContext) -> Iterable[Raw]:
    """The metrics of the servers in this process; without any those of the process itself, and those of the
    cluster under the names of rocketmq-exporter, read with the account of the scrape."""
    if context.metrics is None:
        yield _scrape(METRICS, Role.READER, _process_metrics)
        yield _scrape(EXPORTER_METRICS, Role.READER, _cluster_metrics)
        return
    # They name all topics, and no broker is asked who may see them.
    role = Role.ADMINISTRATOR if context.settings.accounts else Role.READER
    for path, collect in context.metrics.items():
        yield _scrape(path, role, partial(_given_metrics, collect))


def _scrape(path: str, role: Role, collect: Callable[[Call[Any, Any]], Awaitable[HttpResponse]]) -> Raw:
    async def respond(call: Call[Any, Any], request: Request) -> Response:
        answer = await collect(call)
        return Response(b"".join(answer.body), answer.status, media_type=answer.content_type)

    return Raw(method="GET", path=path, summary="Metrics", role=role, respond=respond)


async def _given_metrics(collect: HttpHandler, call: Call[Any, Any]) -> HttpResponse:
    return await collect()


async def _cluster_metrics(call: Call[Any, Any]) -> HttpResponse:
    return await metrics_handler(call.session.exporter.families)()


async def _process_metrics(call: Call[Any, Any]) -> HttpResponse:
    return await metrics_handler(_of_process)()


async def _of_process() -> list[Family]:
    return list(process_families())


async def _alive(request: Request) -> Response:
    return PlainTextResponse("alive\n")


def _readiness(context: ConsoleContext) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            await context.sessions.own.view.brokers()
        except ResponseError:
            pass  # it answers, though it refuses the console's own account
        except KourouError:
            # Without the reason, which names servers: this path needs no login.
            return PlainTextResponse("the cluster cannot be reached\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return PlainTextResponse("ready\n")

    return respond


def _preview_of(query: dict[str, str]) -> tuple[bool, str | None]:
    """Whether only a preview is requested, and the plan to compare with; both are removed from the query."""
    text, plan = query.pop("preview", "false"), query.pop("plan", None)
    if text not in ("true", "false"):
        raise bad_input("preview", f"{text!r} is neither true nor false")
    return text == "true", plan


def _failed_everywhere(done: Done) -> ApiError:
    """The error of a change that failed for all of its targets: 403 if access control refused each."""
    words = [f"{one.target}: {readable(one.problem)}" for one in done.outcomes[:_SHOWN_PROBLEMS]]
    more = len(done.outcomes) - _SHOWN_PROBLEMS
    text = "; ".join(words) + (f"; and {more:,} more" if more > 0 else "")
    is_refused = all(is_refusal(one.problem) for one in done.outcomes)
    status, code = (
        (HTTPStatus.FORBIDDEN, "refused_by_cluster")
        if is_refused
        else (HTTPStatus.BAD_GATEWAY, "failed_everywhere")
    )
    return ApiError(status, code, text, done=_in_words(done))


def _in_words(done: Done) -> Done:
    """With refusals of access control in words only."""
    outcomes = [msgspec.structs.replace(one, problem=readable(one.problem)) for one in done.outcomes]
    return msgspec.structs.replace(done, outcomes=outcomes)


@dataclass(frozen=True, slots=True)
class _Operation:
    """One endpoint as a request handler."""

    context: ConsoleContext
    endpoint: Endpoint

    async def respond(self, request: Request) -> Response:
        try:
            return await self._respond(request)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        except asyncio.CancelledError:
            # Only a stop of the console cancels requests, or the reads that they wait for; a change goes on.
            stopping = ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the console is being stopped")
            return error_response(stopping)
        except Exception as error:
            return error_response(api_error_of(error))

    async def _respond(self, request: Request) -> Response:
        visitor = await self._authorized(request)
        async with self.context.session_of(visitor) as cluster:
            return await self._answer(request, visitor, cluster)

    async def _answer(self, request: Request, visitor: Visitor, cluster: ClusterSession | None) -> Response:
        endpoint = self.endpoint
        query = dict(request.query_params)
        is_preview, plan = _preview_of(query) if isinstance(endpoint, Change) else (False, None)
        call: Call[Any, Any] = Call(
            self.context,
            visitor,
            cluster,
            request.path_params,
            msgspec.convert(query, endpoint.query, strict=False),
            await self._body(request),
        )
        match endpoint:
            case Read():
                return json_response(await endpoint.handler(call))
            case Raw():
                return await endpoint.respond(call, request)
            case Change():
                return await self._change(endpoint, call, request, plan, is_preview=is_preview)
        raise AssertionError(endpoint)

    async def _authorized(self, request: Request) -> Visitor:
        """The sender, if it may do this; else ApiError 401 or 403."""
        visitor = await self.context.access.visitor(
            cookie=request.cookies.get(SESSION_COOKIE),
            authorization=request.headers.get("authorization"),
            address=request.client.host if request.client else "",
        )
        if visitor.role < self.endpoint.role:
            if visitor.role is Role.NONE:
                raise ApiError(HTTPStatus.UNAUTHORIZED, "login_required", "log in first")
            roles = f"role {visitor.role.label}; this needs {self.endpoint.role.label}"
            raise ApiError(
                HTTPStatus.FORBIDDEN, "role_not_sufficient", f"user {visitor.user} has the {roles}"
            )
        if self.endpoint.method != "GET" and visitor.csrf_token is not None:
            token = request.headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(token.encode(), visitor.csrf_token.encode()):
                raise ApiError(
                    HTTPStatus.FORBIDDEN,
                    "csrf_token_missing",
                    f"the header {CSRF_HEADER} is missing or not that of this session",
                    f"GET {API}/session returns the token; reload the page",
                )
        return visitor

    async def _body(self, request: Request) -> Any:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise ApiError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    "too_large",
                    f"the request has more than {MAX_BODY_BYTES:,} bytes",
                )
        try:
            return msgspec.json.decode(bytes(body) or b"{}", type=self.endpoint.body)
        except (UnicodeDecodeError, RecursionError) as error:
            raise bad_input("body", f"it is not JSON: {error}") from None

    # -- changes ---------------------------------------------------------------------------------

    async def _change(
        self,
        endpoint: Change,
        call: Call[Any, Any],
        request: Request,
        plan_id: str | None,
        *,
        is_preview: bool,
    ) -> Response:
        if is_preview:
            return json_response((await endpoint.planner(call)).preview())
        # Two administrators who confirm the same preview: the second one is compared with what the first did.
        done = await self.context.changes.run(
            "/".join(request.url.path.split("/")[:_RESOURCE_PARTS]),
            lambda: self._confirmed(endpoint, call, request, plan_id),
        )
        if done.is_failed:
            raise _failed_everywhere(done)
        return json_response(_in_words(done), HTTPStatus.OK if done.is_complete else HTTPStatus.MULTI_STATUS)

    async def _confirmed(
        self, endpoint: Change, call: Call[Any, Any], request: Request, plan_id: str | None
    ) -> Done:
        # A change goes on when its browser goes away: the session has to stay open as long.
        async with self.context.session_of(call.visitor):
            return await self._compared(endpoint, call, request, plan_id)

    async def _compared(
        self, endpoint: Change, call: Call[Any, Any], request: Request, plan_id: str | None
    ) -> Done:
        plan = await endpoint.planner(call)
        preview = plan.preview()
        if plan_id is not None and plan_id != preview.plan:
            raise ApiError(
                HTTPStatus.CONFLICT,
                "changed_meanwhile",
                "the cluster has changed since the preview; nothing was done",
                "check what would happen now, and confirm again",
                preview=preview,
            )
        return await self._run(endpoint, call, request, plan)

    async def _run(self, endpoint: Change, call: Call[Any, Any], request: Request, plan: Plan) -> Done:
        outcome, problems = "failed", ["interrupted"]
        try:
            done = await plan.run()
            problems = [f"{one.target}: {readable(one.problem)}" for one in done.outcomes if not one.is_done]
            if any(one.is_done for one in done.outcomes) or not problems:
                outcome = "partly" if problems else "done"
            return done
        except Exception as error:
            problems = [readable(str(error)) or repr(error)]
            raise
        finally:
            self.context.sessions.forget()
            self.context.audit.append(
                AuditRecord(
                    time=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                    user=call.visitor.user,
                    address=call.visitor.address,
                    operation=endpoint.name,
                    path=request.url.path,
                    body=None if endpoint.is_secret or plan.is_secret else call.body,
                    effects=plan.effects,
                    outcome=outcome,
                    problems=problems,
                )
            )
