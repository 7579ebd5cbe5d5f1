"""Health checks by HTTP:

    GET /livez     200: the event loop runs. Checks nothing else: a recovery is no reason for a restart
    GET /readyz    200 `ready`, or 503 and one line that says why clients cannot work now

Not here: what ready means (broker/readiness.py, namesrv/server.py), HTTP itself (http_server.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from kourou.transport.http_get import http_get
from kourou.transport.http_server import HttpHandler, HttpResponse

_log = logging.getLogger(__name__)

READYZ: Final = "/readyz"
LIVEZ: Final = "/livez"
READY: Final = "ready"

WhyNotReady = Callable[[], Awaitable[str | None]]
"""Returns in one line why clients cannot work now; None if they can."""

# For the check itself. Health probes wait for 1 to 10 seconds.
_CHECK_TIMEOUT_S: Final = 3.0
# Maximum length of another server's response that is passed on.
_MAX_REASON: Final = 1_000


def probe_routes(
    why_not_ready: WhyNotReady, *, check_timeout_s: float = _CHECK_TIMEOUT_S
) -> dict[str, HttpHandler]:
    """The paths of health checks."""

    async def ready() -> HttpResponse:
        why_not = await _check(why_not_ready, check_timeout_s)
        if why_not is None:
            return HttpResponse.line(HTTPStatus.OK, READY)
        return HttpResponse.line(HTTPStatus.SERVICE_UNAVAILABLE, why_not)

    return {READYZ: ready, LIVEZ: _alive}


async def _alive() -> HttpResponse:
    return HttpResponse.line(HTTPStatus.OK, "alive")


async def _check(why_not_ready: WhyNotReady, timeout_s: float) -> str | None:
    try:
        async with asyncio.timeout(timeout_s):
            return await why_not_ready()
    except TimeoutError:
        return f"could not determine within {timeout_s:g} s whether it is ready"
    except Exception as error:
        # The probe gets a response even if readiness cannot be determined.
        _log.exception("cannot determine whether the server is ready")
        return f"cannot determine whether it is ready: {error!r}; see the log"


async def ask_readyz(address: str, timeout_ms: int) -> str | None:
    """Why the server with a listener at `address` is not ready, in its words or ours; None if it is."""
    try:
        answer = await http_get(address, READYZ, timeout_ms)
    except TimeoutError:
        return f"no answer within {timeout_ms} ms"
    except ConnectionRefusedError:
        return "cannot connect: connection refused; is the server running there, with --http-port?"
    except OSError as error:
        return f"no answer: {error.strerror or error}"
    if answer.status == str(HTTPStatus.OK.value):
        return None
    return answer.first_line[:_MAX_REASON] or f"it answered {answer.status_line[:_MAX_REASON]!r}"
