"""`kourou ready`: checks whether servers are ready. For health checks, and scripts that wait for a cluster.

Not here: what ready means (admin/readiness.py).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kourou.admin.readiness import Readiness, ReadinessProbe
from kourou.cli.admin.connecting import credentials_of, tls_of
from kourou.cli.admin.options import ParsedArgs
from kourou.cli.problems import FAILURE
from kourou.client.core.credentials import Credentials
from kourou.transport.addresses import parse_addresses
from kourou.transport.settings import ClientTlsConfig

DEFAULT_BROKER: Final = "127.0.0.1:10911"
# Of one request. A health check that takes longer is usually killed.
_TIMEOUT_MS: Final = 3_000
_RETRY_INTERVAL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Connecting:
    """Keys and TLS of a probe."""

    credentials: Credentials | None = None
    tls: bool | ClientTlsConfig = False


_OPEN: Final = Connecting()


def run_ready(
    brokers: Sequence[str],
    namesrvs: str | None,
    listeners: Sequence[str],
    wait_s: float,
    *,
    as_json: bool,
    connecting: Mapping[str, str] | None = None,
) -> None:
    """Check until all are ready, or time out; exits with 1 if not. `connecting` has the options `acl`, `tls`
    and `tls-config`; without `acl`, keys come from the environment."""
    args = ParsedArgs(dict(connecting or {}))
    way = Connecting(credentials_of(args, None), tls_of(args, None))
    broker_addresses = [address for text in brokers for address in parse_addresses(text)]
    namesrv_addresses = parse_addresses(namesrvs) if namesrvs else []
    http_addresses = [address for text in listeners for address in parse_addresses(text)]
    if not broker_addresses and not namesrv_addresses and not http_addresses:
        broker_addresses = [DEFAULT_BROKER]
    found = asyncio.run(wait_ready(broker_addresses, namesrv_addresses, http_addresses, wait_s, way))
    is_ready = all(each.is_ready for each in found)
    _print(found, is_ready, as_json=as_json)
    if not is_ready:
        sys.exit(FAILURE)


async def wait_ready(
    brokers: Sequence[str],
    namesrvs: Sequence[str],
    listeners: Sequence[str],
    wait_s: float,
    connecting: Connecting = _OPEN,
) -> list[Readiness]:
    """The readiness of each server, checked until all are ready or the time is over."""
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        found = await ask(brokers, namesrvs, listeners, connecting)
        if all(each.is_ready for each in found) or asyncio.get_running_loop().time() >= deadline:
            return found
        await asyncio.sleep(_RETRY_INTERVAL_S)


async def ask(
    brokers: Sequence[str],
    namesrvs: Sequence[str],
    listeners: Sequence[str],
    connecting: Connecting = _OPEN,
) -> list[Readiness]:
    """The current readiness of each server."""
    probe = ReadinessProbe(_TIMEOUT_MS, credentials=connecting.credentials, tls=connecting.tls)
    try:
        asked = await asyncio.gather(*map(probe.broker, brokers))
        names = [name for _, name in asked if name is not None]
        answers = await asyncio.gather(*(probe.namesrv(address, names) for address in namesrvs))
        said = await asyncio.gather(*map(_probe_listener, listeners))
    finally:
        await probe.stop()
    return [*answers, *(readiness for readiness, _ in asked), *said]


async def _probe_listener(address: str) -> Readiness:
    from kourou.transport.http_probe import READYZ, ask_readyz

    return Readiness(f"http://{address}{READYZ}", await ask_readyz(address, _TIMEOUT_MS) or "")


def _print(found: Sequence[Readiness], is_ready: bool, *, as_json: bool) -> None:
    if as_json:
        servers = [
            {
                "server": each.server,
                "ready": each.is_ready,
                "problem": each.problem or None,
                "role": each.role or None,
            }
            for each in found
        ]
        print(msgspec.json.encode({"ready": is_ready, "servers": servers}).decode())
        return
    for each in found:
        if each.is_ready:
            print(f"{each.server}: ready" + (f" ({each.role})" if each.role else ""))
        else:
            print(f"kourou ready: {each.server}: {each.problem}", file=sys.stderr)
