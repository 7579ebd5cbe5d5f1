"""Health checks of a standalone: one listener that speaks for the name server and every broker.

Not here: what ready means for each (namesrv/server.py, broker/readiness.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kourou.config.option_names import naming_options
from kourou.standalone.options import PROBE_OPTIONS, StandaloneOptions

if TYPE_CHECKING:
    from kourou.transport.http_probe import HttpProbes


async def start_health_checks(
    options: StandaloneOptions, why_not_ready: Callable[[], Awaitable[str | None]]
) -> HttpProbes | None:
    """The started listener; None if none is requested. ConfigError names the option."""
    if options.http_port is None:
        return None
    from kourou.transport.http_probe import HttpProbes  # rarely used, and a start should be short

    probes = HttpProbes(options.host, options.http_port, why_not_ready)
    with naming_options(PROBE_OPTIONS, PROBE_OPTIONS):
        await probes.start()
    return probes
