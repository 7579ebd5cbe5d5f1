"""Handlers of RPCs, made of functions that know messages: one unary RPC, one function.

Every call is first checked by the registry of clients, which verifies its client id and signature, and then
decoded. Hot RPCs continue in callbacks (`Answer.after`), others in a coroutine (`by_coroutine`). Whatever
fails on the way becomes the status of a response of the RPC's type, in one place: `Answer.fail`.
Not here: the stream of Telemetry, which has statuses of its own (telemetry.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from kourou.proxy.call_latency import CallLatency
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.clients.registry import ClientRegistry
from kourou.proxy.http2.call import Call, Handler
from kourou.proxy.messages.statuses import StatusError, status_of
from kourou.proxy.wire.rocketmq_v2 import Code, DecodeError, Status
from kourou.transport.tasks import TaskOwner

_SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"


class WireRequest(Protocol):
    """A request message of protobuf."""

    @classmethod
    def FromString(cls, data: bytes) -> Self: ...


class WireResponse(Protocol):
    """A response message of protobuf: each has a status."""

    @property
    def status(self) -> Status: ...

    def __init__(self, *, status: Status | None = ...) -> None: ...

    def SerializeToString(self) -> bytes: ...


RequestT = TypeVar("RequestT", bound=WireRequest)
ResponseT = TypeVar("ResponseT", bound=WireResponse)
T = TypeVar("T")


class Answer(Generic[ResponseT]):
    """The response of one call, still to be given. After the end of the call nothing has an effect."""

    __slots__ = ("_began_s", "_meter", "_response_type", "call")

    def __init__(self, call: Call, response_type: type[ResponseT], meter: CallLatency | None = None) -> None:
        self.call = call
        self._response_type = response_type
        self._meter = meter
        self._began_s = 0.0 if meter is None else meter.now_s()

    def send(self, response: ResponseT) -> None:
        """Answer the call."""
        self.call.reply(response.SerializeToString())
        if self._meter is not None:
            self._meter.answered(self.call.path, response.status.code, self._began_s)

    def fail(self, error: BaseException) -> None:
        """Answer with the status of a failure."""
        # A stream of responses with one message looks like a unary response.
        self.send(self._response_type(status=status_of(error)))

    def finish(self, code: int) -> None:
        """End a stream of responses, whose status had this code."""
        self.call.finish()
        if self._meter is not None:
            self._meter.answered(self.call.path, code, self._began_s)

    def after(self, future: asyncio.Future[T], work: Callable[[T], None]) -> None:
        """Continue with the result of `future`. Its failure, and one of `work`, becomes the answer."""
        future.add_done_callback(partial(self._continue, work))

    def _continue(self, work: Callable[[T], None], future: asyncio.Future[T]) -> None:
        try:
            work(future.result())
        except (Exception, asyncio.CancelledError) as error:
            self.fail(error)


CallbackWork: TypeAlias = Callable[[ProxyClient, RequestT, Answer[ResponseT]], None]
"""Answers a request now, or keeps the answer for later."""
CoroutineWork: TypeAlias = Callable[[ProxyClient, RequestT, Call], Coroutine[Any, Any, ResponseT]]
"""Returns the response to a request."""


class HandlerMaker:
    """Makes handlers. Every RPC goes through `ClientRegistry.of`: no handler is made without."""

    def __init__(self, clients: ClientRegistry, tasks: TaskOwner, meter: CallLatency | None = None) -> None:
        self._clients = clients
        self._tasks = tasks
        self._meter = meter

    def by_callback(
        self,
        request_type: type[RequestT],
        response_type: type[ResponseT],
        work: CallbackWork[RequestT, ResponseT],
    ) -> Handler:
        """A handler without a task: for RPCs that are called for each message, or wait for long."""
        client_of, decode, meter = self._clients.of, request_type.FromString, self._meter

        def handle(call: Call) -> None:
            answer = Answer(call, response_type, meter)
            try:
                client = client_of(call)
                try:
                    request = decode(call.request)
                except DecodeError as error:
                    raise malformed(call) from error
                work(client, request, answer)
            except Exception as error:
                answer.fail(error)

        return handle

    def by_coroutine(
        self,
        request_type: type[RequestT],
        response_type: type[ResponseT],
        work: CoroutineWork[RequestT, ResponseT],
    ) -> Handler:
        """A handler that runs `work` in a task."""

        def start(client: ProxyClient, request: RequestT, answer: Answer[ResponseT]) -> None:
            coroutine = work(client, request, answer.call)
            task = self._tasks.start(_answer(coroutine, answer), answer.call.path)
            # A task that is cancelled before its first step never awaits the coroutine.
            task.add_done_callback(lambda _: coroutine.close())

        return self.by_callback(request_type, response_type, start)


async def _answer(coroutine: Coroutine[Any, Any, ResponseT], answer: Answer[ResponseT]) -> None:
    try:
        response = await coroutine
    except Exception as error:
        answer.fail(error)
    else:
        answer.send(response)


def path_of(method: str) -> str:
    """The path of the calls of a method."""
    return _SERVICE + method


def malformed(call: Call) -> StatusError:
    """The error for a message that is not what its path says."""
    name = call.path.rpartition("/")[2]
    return StatusError(Code.BAD_REQUEST, f"the message of {name} is not valid protobuf of rocketmq.v2")
