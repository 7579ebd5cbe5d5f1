"""Dispatcher: maps request codes to functions, and errors to responses."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from kourou.errors import KourouError
from kourou.protocol.codes import ResponseCode
from kourou.transport.request import Processor, Request, RequestMeter
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)


def answer_failure(request: Request, error: Exception) -> None:
    """Respond to a request whose handler raised; only unexpected errors are logged with a traceback."""
    if not isinstance(error, KourouError):
        _log.error(
            "request %d from %s failed", request.code, request.connection.remote_address, exc_info=error
        )
    request.fail(error)


class Dispatcher:
    """Calls the processor of a request's code; every error becomes a response.

    `checks` see each request first, whatever its code, and raise to reject it. The sequence may change while
    the server runs. `meter` measures requests, if there is one.
    """

    __slots__ = ("_checks", "_meter", "_processors")

    def __init__(
        self,
        processors: Mapping[int, Processor],
        checks: Sequence[Processor] = (),
        meter: RequestMeter | None = None,
    ) -> None:
        self._meter = meter
        self._processors = {int(code): processor for code, processor in processors.items()}
        self._checks = checks

    def __call__(self, request: Request) -> None:
        if self._meter is not None:
            self._meter.begin(request)
        try:
            if self._checks:
                for check in self._checks:
                    check(request)
            self._processors.get(request.code, _unsupported)(request)
        except Exception as error:
            answer_failure(request, error)


def run_request(tasks: TaskOwner, request: Request, work: Coroutine[Any, Any, None]) -> None:
    """Continue a request in a task, for the few that have to wait. Errors become its response."""
    task = tasks.start(_answer_in_task(request, work), f"request-{request.code}")
    # A task cancelled before its first step never awaits the work, which must still be closed.
    task.add_done_callback(lambda _: work.close())


async def _answer_in_task(request: Request, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:
        answer_failure(request, error)


def _unsupported(request: Request) -> None:
    # Apache's text, including the leading space: tools show it.
    request.error(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")
