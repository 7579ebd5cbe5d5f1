"""Metrics by HTTP: families as the text that Prometheus scrapes, made in slices of the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Final

from kourou.metrics.exposition import CONTENT_TYPE, MAX_SERIES, exposition
from kourou.metrics.families import Family, Labels
from kourou.metrics.merged_text import merged_text
from kourou.transport.http_get import http_get
from kourou.transport.http_server import HttpHandler, HttpResponse

_log = logging.getLogger(__name__)

METRICS: Final = "/metrics"
EXPORTER_METRICS: Final = "/metrics/exporter"

_SCRAPE_TIMEOUT_MS: Final = 8_000
# 50,000 series of 300 bytes, and some.
_MAX_SCRAPE_BYTES: Final = 32 * 1024 * 1024

Collect = Callable[[], Awaitable[Iterable[Family]]]
"""Returns the families of this moment."""


def metrics_handler(
    collect: Collect, max_series: Callable[[], int] = lambda: MAX_SERIES, scope: Labels = ()
) -> HttpHandler:
    """Answers with the families of `collect`; `scope` are the labels of what counts for all of them."""

    async def respond() -> HttpResponse:
        pieces: list[bytes] = []
        for piece in exposition(await collect(), max_series(), scope):
            pieces.append(piece.encode())
            await asyncio.sleep(0)  # a large scrape must not delay clients
        return HttpResponse(HTTPStatus.OK, pieces, CONTENT_TYPE)

    return respond


def merged_handler(own: HttpHandler, addresses: Callable[[], Iterable[str]], path: str) -> HttpHandler:
    """Answers with the metrics of `own` and of the servers at `addresses`, as one text. A server that does
    not answer is left out."""

    async def respond() -> HttpResponse:
        scrapes = [_scrape(address, path) for address in addresses()]
        first = await own()
        texts = [b"".join(first.body).decode(), *await asyncio.gather(*scrapes)]
        return HttpResponse(first.status, [piece.encode() for piece in merged_text(texts)], CONTENT_TYPE)

    return respond


async def _scrape(address: str, path: str) -> str:
    try:
        answer = await http_get(address, path, _SCRAPE_TIMEOUT_MS, _MAX_SCRAPE_BYTES)
    except OSError as error:
        _log.warning("no metrics from http://%s%s: %s", address, path, error)
        return ""
    return answer.body if answer.status == str(HTTPStatus.OK.value) else ""
