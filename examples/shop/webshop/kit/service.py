"""Service: the process of one service.

    service = Service("goods", tables=TABLES)

    @service.app.get("/goods/{goods_id}")
    async def one(goods_id: str) -> dict[str, object]:
        row = await service.database.row("SELECT …", goods_id)
        ...

    @service.consumes(Topic.ORDERS, Kind.ORDER_CANCELLED)
    async def undo(event: OrderEvent, unit: Unit) -> None:
        await unit.connection.execute(...)            # in the transaction of the inbox: once for each event

    @service.background
    async def loop() -> None: ...                     # a task while the service runs

and in `__main__.py`: `service.run()`. A service that emits events has `emits=True`, and then
`async with service.unit() as unit` in its routes, and `unit.emit(…)` there and in its consumers (emit.py).

It waits for a database or a broker that is away, at the start and later: routes answer 503, consumers try
again. RefusedError in a route becomes 4xx. `GET /health` answers 200 while the service is ready. SIGTERM ends
it: requests and handlers that run are finished. It may be killed at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, Final, LiteralString, TypeAlias, TypeVar

import psycopg
import uvicorn
import uvloop
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from kourou import AsyncPushConsumer, MessageExt
from kourou.errors import KourouError
from webshop.errors import AwayError, Code, RefusedError, ShopError
from webshop.events import Kind, Topic, decode
from webshop.kit import emit
from webshop.kit.calls import Calls
from webshop.kit.database import AWAY, Database
from webshop.kit.emit import Emitter, Handler, Unit
from webshop.kit.kill_points import kill_point_of, use_folder
from webshop.kit.later import LaterRows
from webshop.settings import Address, Settings

_log = logging.getLogger(__name__)

E = TypeVar("E")
F = TypeVar("F", bound=Callable[..., Awaitable[None]])
PlainHandler: TypeAlias = Callable[[Any], Awaitable[None]]
_PAUSES_S: Final = (0.1, 0.2, 0.5, 1.0)
_STOP_S: Final = 2
_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Service:
    """One service: its routes, its consumers and its life."""

    def __init__(self, name: str, *, tables: LiteralString = "", emits: bool = False) -> None:
        self.name = name
        self.app = FastAPI(title=name, docs_url=None, redoc_url=None, openapi_url=None)
        self._tables = (tables, *([emit.TABLES] if emits else []))
        self._emits = emits
        self._handlers: dict[Topic, dict[Kind, Handler | PlainHandler]] = {}
        self._plain: set[Handler | PlainHandler] = set()
        self._background: list[Callable[[], Awaitable[None]]] = []
        self._is_ready = False
        self._has_failed = False
        self._settings: Settings | None = None
        self._stop = asyncio.Event()
        _add_errors(self.app)
        self.app.get("/health")(self._health)

    # -- for routes and handlers -----------------------------------------------------------------

    def consumes(self, topic: Topic, *kinds: Kind, in_transaction: bool = True) -> Callable[[F], F]:
        """Decorates the handler of events of these kinds. It gets each event once, in a transaction.

        With `in_transaction=False` it gets only the event, and may get it again: for handlers that call other
        servers. No transaction is open while they wait, and a repeated call has to be harmless.
        """

        def add(handler: F) -> F:
            of_topic = self._handlers.setdefault(topic, {})
            for kind in kinds:
                assert kind.topic is topic and kind not in of_topic, (
                    f"{kind} is not of {topic}, or handled twice"
                )
                of_topic[kind] = handler
            if not in_transaction:
                self._plain.add(handler)
            return handler

        return add

    def background(self, loop: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Decorates what runs while the service does. If the database or the broker is away it is started
        again."""
        self._background.append(loop)
        return loop

    def later(self, insert: LiteralString) -> LaterRows:
        """Rows that this statement inserts in the background."""
        rows = LaterRows(insert)
        self.background(lambda: rows.write(self.database))
        return rows

    def unit(self) -> contextlib.AbstractAsyncContextManager[Unit]:
        """A transaction of the database with its events: emit.py."""
        return self._emitter.unit()

    @property
    def settings(self) -> Settings:
        """Of this process."""
        assert self._settings is not None, "the service was not started"
        return self._settings

    # -- life ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Be this service until SIGTERM or Ctrl-C."""
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_LOG_FORMAT)
        logging.getLogger("httpx").setLevel(logging.WARNING)
        uvloop.run(self._run_until_signal(Settings.load()))

    async def _run_until_signal(self, settings: Settings) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, self._stop.set)
        async with self.running(settings):
            await self._stop.wait()
        if self._has_failed:
            sys.exit(1)

    @contextlib.asynccontextmanager
    async def running(self, settings: Settings) -> AsyncIterator[Service]:
        """The service until the end of the block: it listens at once, and is ready when `/health` answers."""
        self._settings = settings
        use_folder(settings.kill_points)
        self.database = Database(settings.database, self.name)
        self._emitter = Emitter(self.name, settings, self.database)
        self.calls = Calls(settings)
        async with AsyncExitStack() as parts:
            parts.push_async_callback(self.database.close)
            parts.push_async_callback(self.calls.close)
            starting = asyncio.create_task(self._start(parts), name=f"start-{self.name}")
            starting.add_done_callback(self._end_if_failed)
            server = HttpServer(self._gate, settings.address(self.name))
            serving = asyncio.create_task(server.serve(), name=f"http-{self.name}")
            serving.add_done_callback(lambda _: self._stop.set())
            try:
                yield self
            finally:
                server.should_exit = True
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
                await serving
                self._is_ready = False

    async def _start(self, parts: AsyncExitStack) -> None:
        await self._until_there("the database", lambda: self.database.open(*self._tables))
        if self._emits:
            await self._until_there("the broker", self._emitter.start)
            parts.push_async_callback(self._emitter.stop)
            forget = asyncio.create_task(self._keep_running(self._emitter.forget_old), name="forget-old")
            parts.push_async_callback(_cancelled, forget)
        if self._handlers:
            consumer = await self._until_there("the broker", self._consumer)
            parts.push_async_callback(consumer.stop)
            watch = asyncio.create_task(consumer.wait(), name=f"watch-{self.name}")
            watch.add_done_callback(self._end_if_failed)
            parts.push_async_callback(_cancelled, watch)
        for loop in self._background:
            parts.push_async_callback(_cancelled, asyncio.create_task(self._keep_running(loop)))
        self._is_ready = True
        _log.info("%s is ready", self.name)

    def _end_if_failed(self, task: asyncio.Task[None]) -> None:
        """What cannot be repaired by waiting ends the process; the supervisor starts another."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s cannot go on", self.name, exc_info=error)
            self._has_failed = True
            self._stop.set()

    async def _keep_running(self, loop: Callable[[], Awaitable[None]]) -> None:
        name = getattr(loop, "__qualname__", "task")
        while True:
            try:
                await loop()
            except (*AWAY, AwayError, KourouError) as error:
                _log.warning("%s: %s has to wait: %s", self.name, name, error)
            except Exception:
                _log.exception("%s: %s failed", self.name, name)
            await asyncio.sleep(_PAUSES_S[-1])

    async def _until_there(self, what: str, start: Callable[[], Awaitable[E]]) -> E:
        for attempt in _pauses():
            try:
                return await start()
            except Exception as error:
                if not _is_away(error):
                    raise
                _log.warning("%s waits for %s: %s", self.name, what, error)
                await asyncio.sleep(attempt)
        raise AssertionError("unreachable")

    # -- messages --------------------------------------------------------------------------------

    async def _consumer(self) -> AsyncPushConsumer:
        consumer = AsyncPushConsumer(
            self._group,
            namesrv=self.settings.namesrv,
            consume_from="first",
            concurrency=8,
            stop_timeout_ms=_STOP_S * 1000,
        )
        for topic, handlers in self._handlers.items():
            await consumer.subscribe(topic.value, " || ".join(handlers), self._on_message)
        await consumer.start()
        return consumer

    @property
    def _group(self) -> str:
        return f"shop-{self.name}"

    async def _on_message(self, message: MessageExt) -> None:
        """Handle a message, however long the database or the broker is away: a message that is sent back
        would come again after 10 seconds at the earliest."""
        kind = Kind(message.tags or "")
        kill_point_of(self.name, "RECEIVED", kind)
        handler = self._handlers[Topic(message.topic)][kind]
        for pause_s in _pauses():
            try:
                if handler in self._plain:
                    await handler(decode(message.body))  # type: ignore[call-arg]
                    kill_point_of(self.name, "HANDLED", kind)
                else:
                    await self._emitter.consume(message, handler, self._group)  # type: ignore[arg-type]
                break
            except Exception as error:
                if not _is_away(error):
                    # The broker delivers it again, later and later, in the end as a dead letter.
                    _log.error("%s: EVENT FAILED: %s %s: %r", self.name, kind, message.keys, error)
                    raise
                _log.warning("%s: %s %s has to wait: %s", self.name, kind, message.keys, error)
                await asyncio.sleep(pause_s)
        kill_point_of(self.name, "BEFORE_ACK", kind)

    # -- HTTP ------------------------------------------------------------------------------------

    async def _health(self) -> dict[str, str]:
        await self.database.row("SELECT 1")
        return {"service": self.name}

    async def _gate(self, scope: Any, receive: Any, send: Any) -> None:
        if self._is_ready:
            await self.app(scope, receive, send)
        else:
            error = AwayError(f"{self.name} is starting, and waits for the database or the broker; try again")
            await _response(error)(scope, receive, send)


class HttpServer(uvicorn.Server):
    """uvicorn without signal handlers: consumers have to be stopped too."""

    def __init__(self, app: Any, address: Address) -> None:
        config = uvicorn.Config(
            app,
            host=address.host,
            port=address.port,
            interface="asgi3",
            proxy_headers=False,
            lifespan="off",
            access_log=False,
            log_level="warning",
            timeout_keep_alive=60,
            timeout_graceful_shutdown=_STOP_S,
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _is_away(error: Exception) -> bool:
    """Whether the same may succeed later: the database, the broker or another service is away."""
    return isinstance(error, (*AWAY, AwayError)) or (isinstance(error, KourouError) and error.retriable)


def _pauses() -> Iterator[float]:
    """Between attempts: short at first, without an end."""
    yield from _PAUSES_S
    while True:
        yield _PAUSES_S[-1]


def _response(error: ShopError) -> JSONResponse:
    return JSONResponse(error.as_json(), error.status)


def _add_errors(app: FastAPI) -> None:
    """Every error as JSON that says what to do."""

    async def shop_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ShopError)
        return _response(error)

    async def away(_: Request, error: Exception) -> JSONResponse:
        _log.warning("503: %s", error)
        return _response(AwayError(f"the database or the broker is away ({error}); try again"))

    async def bad_request(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return _response(
            RefusedError(Code.BAD_REQUEST, f"the request cannot be read: {problems}", status=422)
        )

    async def bad_data(_: Request, error: Exception) -> JSONResponse:
        return _response(RefusedError(Code.BAD_REQUEST, f"a value cannot be stored: {error}", status=422))

    app.add_exception_handler(ShopError, shop_error)
    app.add_exception_handler(psycopg.DataError, bad_data)  # NUL in a text, a number that is too large
    app.add_exception_handler(RequestValidationError, bad_request)
    for kind in (*AWAY, KourouError):
        app.add_exception_handler(kind, away)
