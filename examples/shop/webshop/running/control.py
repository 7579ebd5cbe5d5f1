"""Control: the launcher's processes by HTTP, for the operator's page.

    GET  /processes                 every process, and the last events
    POST /processes/NAME/kill       kill -9; it is restarted after a pause
    POST /processes/NAME/stop       SIGSTOP: it hangs, with its connections and locks
    POST /processes/NAME/continue   SIGCONT
    POST /processes/NAME/end        ended in order; stays down
    POST /processes/NAME/start      start it now

It is called by the gateway, never by a browser: a page of another site could do that, too, and is refused by
the Origin header that browsers add.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from webshop.running.ports import HOST
from webshop.running.supervisor import Supervised, Supervisor, SupervisorError


async def _kill(process: Supervised) -> None:
    process.kill()


async def _stop(process: Supervised) -> None:
    process.freeze()


async def _continue(process: Supervised) -> None:
    process.unfreeze()


async def _end(process: Supervised) -> None:
    await process.end()


async def _start(process: Supervised) -> None:
    process.start()


_ACTIONS: Final[dict[str, tuple[str, Callable[[Supervised], Awaitable[None]]]]] = {
    "kill": ("is killed", _kill),
    "stop": ("is stopped (SIGSTOP)", _stop),
    "continue": ("continues", _continue),
    "end": ("is ended", _end),
    "start": ("is started", _start),
}


class Control:
    """The server, inside the launcher's event loop. Use `async with`."""

    def __init__(self, supervisor: Supervisor, port: int) -> None:
        self._supervisor = supervisor
        routes = [
            Route("/processes", self._list, methods=["GET"]),
            Route("/processes/{name}/{action}", self._act, methods=["POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            host=HOST,
            port=port,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._server.serve(), name="control")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._serving is not None
        self._server.should_exit = True
        await self._serving

    async def _list(self, request: Request) -> JSONResponse:
        rows = [_row(process) for process in self._supervisor.processes.values()]
        events = [
            {"at": event.at.isoformat(timespec="milliseconds"), "process": event.process, "what": event.what}
            for event in self._supervisor.events
        ]
        return JSONResponse({"processes": rows, "events": events})

    async def _act(self, request: Request) -> JSONResponse:
        if "origin" in request.headers:
            return _problem(
                403, "FORBIDDEN", "pages of other sites may not do this; use the shop's operator page"
            )
        name, action = request.path_params["name"], request.path_params["action"]
        if name not in self._supervisor.processes:
            known = ", ".join(self._supervisor.processes)
            return _problem(404, "NO_PROCESS", f"there is no process {name}; there are {known}")
        if action not in _ACTIONS:
            return _problem(404, "NO_ACTION", f"there is no action {action}; there are {', '.join(_ACTIONS)}")
        process = self._supervisor.find(name)
        what, act = _ACTIONS[action]
        try:
            self._supervisor.note(name, f"{what} by the operator")
            await act(process)
        except SupervisorError as error:
            return _problem(409, "WRONG_STATE", str(error))
        return JSONResponse(_row(process))


class _Server(uvicorn.Server):
    """Signals belong to the launcher."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _row(process: Supervised) -> dict[str, Any]:
    return {
        "name": process.program.name,
        "state": process.state,
        "pid": process.pid,
        "restarts": process.restarts,
        "since": process.since.isoformat(timespec="milliseconds"),
        "last_exit": process.last_exit,
    }


def _problem(status: int, code: str, text: str) -> JSONResponse:
    return JSONResponse({"error": text, "code": code}, status)
