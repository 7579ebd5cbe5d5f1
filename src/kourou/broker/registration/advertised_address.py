"""Whether clients can reach the address that a broker tells them: the mistake made most often.

Looked at from this machine, which proves a wrong address, never a right one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kourou.config.host import is_loopback
from kourou.transport.addresses import join_address

TIMEOUT_MS: Final = 500
_REMEDY: Final = (
    "set brokerIP1 to an address that clients can reach (kourou broker, kourou standalone: --advertise)"
)


async def reach_warning(bind_address: str, host: str, port: int, timeout_ms: int = TIMEOUT_MS) -> str | None:
    """What is wrong with telling clients `host:port`, for a server that listens on `bind_address`;
    None when nothing seems to be."""
    address = f"the advertised address {join_address(host, port)}"
    if is_loopback(host) and not is_loopback(bind_address):
        return f"{address} is reachable from this machine only; {_REMEDY}"
    problem = await _connect_problem(host, port, timeout_ms)
    if problem is None:
        return None
    return f"{address} cannot be reached from here: {problem}; {_REMEDY}"


async def _connect_problem(host: str, port: int, timeout_ms: int) -> str | None:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no connection within {timeout_ms} ms"
    except OSError as error:
        return error.strerror or str(error)
    writer.transport.abort()
    return None
