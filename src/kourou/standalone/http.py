"""HTTP of a standalone: one listener that answers for the name server and every broker: health checks, and
metrics, whose labels tell the brokers apart.

Not here: what ready means (namesrv/server.py, broker/readiness.py), what is measured (broker/metrics/).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from kourou.config.option_names import naming_options
from kourou.standalone.options import PROBE_OPTIONS, StandaloneOptions

if TYPE_CHECKING:
    from kourou.transport.http_server import HttpHandler, HttpServer


async def start_http(
    options: StandaloneOptions,
    why_not_ready: Callable[[], Awaitable[str | None]],
    metrics: Callable[[], Mapping[str, HttpHandler]],
) -> HttpServer | None:
    """The started listener; None if none is requested. `metrics` returns the paths of metrics. ConfigError
    names the option."""
    if options.http_port is None:
        return None
    # Rarely used, and a start should be short.
    from kourou.transport.http_probe import probe_routes
    from kourou.transport.http_server import HttpServer

    routes = {**probe_routes(why_not_ready), **metrics()}
    server = HttpServer(options.host, options.http_port, routes)
    with naming_options(PROBE_OPTIONS, PROBE_OPTIONS):
        await server.start()
    return server
