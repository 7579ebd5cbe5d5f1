"""The gateway: serves the pages, and passes their requests on to the services.

/            every page: one empty document, whose script shows what the path names
/shop        the files of the pages (pages/); no build step
/static      style sheets and parts of the pages of Kourou's console, from the installed package
/api         what the pages read and change: buyer.py, and webshop/operator
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.trustedhost import TrustedHostMiddleware

from webshop.errors import AwayError, Code, RefusedError
from webshop.gateway.buyer import buyer_routes
from webshop.gateway.domain import API_TEXTS, problem, refusal, try_again
from webshop.kit.calls import Calls
from webshop.operator.routes import operator_routes
from webshop.settings import Settings

OWN_PAGES: Final = Path(__file__).parent / "pages"
CONSOLE_PAGES: Final = Path(str(importlib.resources.files("kourou.console"))) / "pages"
HEADERS: Final = {
    # Names of goods and buyers are text wherever they come from; if one became a script, it would not run.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",  # browsers keep files, but look whether they have changed
}


def run() -> None:
    """Serve until SIGTERM."""
    settings = Settings.load()
    address = settings.address("gateway")
    options: dict[str, Any] = {"access_log": False, "log_level": "warning", "timeout_graceful_shutdown": 2}
    uvicorn.run(make_app(settings), host=address.host, port=address.port, **options)


def make_app(settings: Settings) -> FastAPI:
    """The application. It is ready at once: its pages show what is away."""
    calls = Calls(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await calls.close()

    # FastAPI's pages of documentation would load scripts from elsewhere.
    app = FastAPI(lifespan=lifespan, openapi_url="/api/openapi.json", docs_url=None, redoc_url=None)
    app.include_router(buyer_routes(settings, calls))
    app.include_router(operator_routes(settings, calls))
    _add_pages(app)
    _add_errors(app)
    app.middleware("http")(_guard)
    # A page elsewhere whose name leads to this machine has another host.
    hosts = ["localhost", "127.0.0.1", settings.address("gateway").host]
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    return app


async def _guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Only the shop's own pages may change something: a browser names the origin of the page."""
    origin = request.headers.get("origin")
    is_own = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if is_own or request.method in ("GET", "HEAD"):
        response = await call_next(request)
    else:
        response = JSONResponse(problem("ORIGIN", f"A page of {origin} may not change anything here."), 403)
    response.headers.update(HEADERS)
    return response


def _add_pages(app: FastAPI) -> None:
    texts: dict[str, Any] = json.loads((CONSOLE_PAGES / "lang" / "en.json").read_text("utf-8")) | {
        "api": API_TEXTS
    }

    @app.get("/health", include_in_schema=False)
    async def health() -> dict[str, str]:
        return {"service": "gateway"}

    @app.get("/static/lang/en.json", include_in_schema=False)
    async def texts_of_the_parts() -> dict[str, Any]:
        return texts

    app.mount("/static", StaticFiles(directory=CONSOLE_PAGES))
    app.mount("/shop", StaticFiles(directory=OWN_PAGES))

    @app.get("/{path:path}", include_in_schema=False)
    async def page(path: str) -> FileResponse:
        if path.startswith("api/"):
            raise RefusedError(
                Code.BAD_REQUEST, f"there is no /{path}; /api/openapi.json lists all", status=404
            )
        return FileResponse(OWN_PAGES / "index.html")


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> JSONResponse:
        return JSONResponse(refusal(error), error.status)

    @app.exception_handler(RequestValidationError)
    async def bad_request(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return JSONResponse(problem(Code.BAD_REQUEST, f"{where}: {first['msg']}"), 422)

    async def away(request: Request, error: Exception) -> JSONResponse:
        why = str(error) or "the database does not answer in time"
        return JSONResponse(try_again(why, is_read=request.method == "GET"), 503)

    for kind in (AwayError, psycopg.OperationalError, TimeoutError):
        app.add_exception_handler(kind, away)

    @app.exception_handler(Exception)  # uvicorn logs it
    async def failed(_: Request, error: Exception) -> JSONResponse:
        hint = f"{type(error).__name__}; the log of the gateway has the details"
        return JSONResponse(problem("FAILED", "The gateway failed.", hint), 500)
