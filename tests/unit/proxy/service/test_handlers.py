"""Handlers: every failure becomes a status of the right response, wherever it happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kourou.errors import CallTimeoutError, ResponseError
from kourou.protocol.codes import ResponseCode
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.http2.call import Call, GrpcCode
from kourou.proxy.messages.statuses import StatusError, make_status
from kourou.proxy.service.handlers import Answer
from kourou.proxy.wire.rocketmq_v2 import Code, QueryRouteRequest, QueryRouteResponse, Resource
from tests.unit.proxy.recorded import ProxyKit, RecordedCall, settle

REQUEST = QueryRouteRequest(topic=Resource(name="T"))
FAILURES = [
    (StatusError(Code.ILLEGAL_TOPIC, "why"), Code.ILLEGAL_TOPIC),
    (ResponseError(ResponseCode.TOPIC_NOT_EXIST, "no topic"), Code.TOPIC_NOT_FOUND),
    (CallTimeoutError("broker-a", 10, 3_000), Code.PROXY_TIMEOUT),
    (ZeroDivisionError("a bug"), Code.INTERNAL_SERVER_ERROR),
]


def call(request: Any = REQUEST, **options: Any) -> RecordedCall:
    return RecordedCall("QueryRoute", request, **options)


async def test_a_coroutine_returns_the_response(kit: ProxyKit) -> None:
    async def route(client: ProxyClient, request: QueryRouteRequest, call: Call) -> QueryRouteResponse:
        await asyncio.sleep(0)
        return QueryRouteResponse(status=make_status(Code.OK, f"{client.client_id} {request.topic.name}"))

    made = call()
    kit.make.by_coroutine(QueryRouteRequest, QueryRouteResponse, route)(made)
    await settle()
    assert (made.response.status.message, made.status) == ("c1 T", GrpcCode.OK)


@pytest.mark.parametrize(("error", "code"), FAILURES)
async def test_failures_are_statuses(kit: ProxyKit, error: Exception, code: Code) -> None:
    def at_once(client: ProxyClient, request: QueryRouteRequest, answer: Answer[QueryRouteResponse]) -> None:
        raise error

    def later(client: ProxyClient, request: QueryRouteRequest, answer: Answer[QueryRouteResponse]) -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer.after(future, lambda _: None)
        future.set_exception(error)

    def in_callback(
        client: ProxyClient, request: QueryRouteRequest, answer: Answer[QueryRouteResponse]
    ) -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        answer.after(future, lambda _: at_once(client, request, answer))
        future.set_result(1)

    async def in_task(client: ProxyClient, request: QueryRouteRequest, call: Call) -> QueryRouteResponse:
        raise error

    for handler in (
        *(
            kit.make.by_callback(QueryRouteRequest, QueryRouteResponse, each)
            for each in (at_once, later, in_callback)
        ),
        kit.make.by_coroutine(QueryRouteRequest, QueryRouteResponse, in_task),
    ):
        made = call()
        handler(made)
        await settle()
        assert (made.response.status.code, made.status) == (code, GrpcCode.OK)


@pytest.mark.parametrize(
    ("made", "code"),
    [
        ({"request": b"\xff"}, Code.BAD_REQUEST),
        ({"client_id": ""}, Code.CLIENT_ID_REQUIRED),
        ({"request": b"\xff", "client_id": ""}, Code.CLIENT_ID_REQUIRED),
    ],
)
async def test_calls_are_checked_before_they_are_handled(
    kit: ProxyKit, made: dict[str, Any], code: Code
) -> None:
    def work(*_: object) -> None:
        raise AssertionError("not reached")

    sent = call(**made)
    kit.make.by_callback(QueryRouteRequest, QueryRouteResponse, work)(sent)
    assert sent.response.status.code == code


async def test_a_call_that_is_over_gets_no_answer(kit: ProxyKit) -> None:
    held: list[Answer[QueryRouteResponse]] = []
    made = call()
    kit.make.by_callback(
        QueryRouteRequest, QueryRouteResponse, lambda client, request, answer: held.append(answer)
    )(made)
    made.cancel()
    held[0].send(QueryRouteResponse())
    held[0].fail(StatusError(Code.BAD_REQUEST, "too late"))
    assert made.sent == []
