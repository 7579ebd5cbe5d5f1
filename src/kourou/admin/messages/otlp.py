"""OTLP over HTTP with JSON: sends spans to an OpenTelemetry collector, without its SDK.

`http://host:4318` stands for `http://host:4318/v1/traces`. A collector that is away, or answers 429, 502, 503
or 504, gets the same spans again, after the time it names or an increasing pause; spans that it rejects as
invalid are dropped and counted. Any other answer is a mistake in the settings: ExportRefusedError.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kourou import __version__
from kourou.admin.messages.trace_spans import TraceSpan
from kourou.client.trace.span_attributes import Attributes, AttributeValue
from kourou.errors import ConfigError

_log = logging.getLogger(__name__)

DEFAULT_ENDPOINT: Final = "http://localhost:4318"
ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
TRACES_HEADERS: Final = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
_PATH: Final = "/v1/traces"
_BATCH: Final = 512
_RETRY_CODES: Final = frozenset({429, 502, 503, 504})
_INVALID_CODES: Final = frozenset({400, 413, 422})
_TIMEOUT_S: Final = 10.0
_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 30.0
_MAX_ANSWER_BYTES: Final = 64 * 1024


class ExportRefusedError(ConfigError):
    """The collector does not accept spans at this address, or not from this client."""


def traces_url(given: str | None, environment: Mapping[str, str]) -> str:
    """The address of a collector: `given`, or OpenTelemetry's environment variables. ConfigError if it is not
    an address."""
    if given is None and (url := environment.get(TRACES_ENDPOINT)):
        return _checked(url)
    url = _checked(given or environment.get(ENDPOINT) or DEFAULT_ENDPOINT)
    if given is not None and urlsplit(url).path not in ("", "/"):
        return url
    return url.rstrip("/") + _PATH


def headers_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The headers in OpenTelemetry's environment variables: `name=value,name=value`, values URL-encoded."""
    headers: dict[str, str] = {}
    for variable in (HEADERS, TRACES_HEADERS):
        for part in filter(None, (part.strip() for part in environment.get(variable, "").split(","))):
            name, separator, value = part.partition("=")
            if not separator or not name.strip():
                raise ConfigError(f"{variable}: {part!r} is not name=value")
            headers[name.strip()] = unquote(value.strip())
    return headers


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"{url!r} is not the address of a collector; write http://host:4318")
    return url


class OtlpExporter:
    """Sends spans to one collector. `on_trouble` gets a line when it does not answer."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        on_trouble: Callable[[str], None] = _log.warning,
    ) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._on_trouble = on_trouble
        self.exported = 0
        """How many spans the collector accepted."""
        self.rejected = 0
        """How many it rejected."""

    async def export(self, spans: Sequence[TraceSpan]) -> None:
        """Send spans; on return the collector has accepted or rejected all of them."""
        for start in range(0, len(spans), _BATCH):
            batch = spans[start : start + _BATCH]
            rejected = await self._send(batch)
            self.rejected += rejected
            self.exported += len(batch) - rejected

    async def _send(self, batch: Sequence[TraceSpan]) -> int:
        """Send until there is an answer; how many spans were rejected."""
        body = json.dumps(otlp_body(batch), separators=(",", ":")).encode()
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                answer = await asyncio.to_thread(self._post, body)
            except urllib.error.HTTPError as error:
                if error.code in _INVALID_CODES:
                    self._on_trouble(f"{self._url} rejected {len(batch)} spans: {_describe(error)}")
                    return len(batch)
                if error.code not in _RETRY_CODES:
                    raise ExportRefusedError(f"{self._url} answered {_describe(error)}") from None
                problem, named_s = _describe(error), _retry_after_s(error)
            except (OSError, HTTPException) as error:
                problem, named_s = str(getattr(error, "reason", error)) or type(error).__name__, None
            else:
                return self._rejected(answer, len(batch))
            wait_s = pause_s if named_s is None else named_s
            self._on_trouble(f"{self._url} does not accept spans: {problem}; next attempt in {wait_s:g} s")
            await asyncio.sleep(wait_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    def _post(self, body: bytes) -> bytes:
        request = urllib.request.Request(self._url, body, self._headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            read: bytes = response.read(_MAX_ANSWER_BYTES)
            return read

    def _rejected(self, answer: bytes, sent: int) -> int:
        """How many spans a collector rejected that accepted the request."""
        try:
            partial = json.loads(answer or b"{}").get("partialSuccess") or {}
            rejected = min(sent, int(partial.get("rejectedSpans") or 0))
            message = partial.get("errorMessage") or ""
        except (AttributeError, TypeError, ValueError):
            return 0
        if rejected or message:
            self._on_trouble(f"{self._url} rejected {rejected} of {sent} spans: {message}")
        return rejected


def _describe(error: urllib.error.HTTPError) -> str:
    return f"{error.code} {error.reason}"


def _retry_after_s(error: urllib.error.HTTPError) -> float | None:
    named = error.headers.get("Retry-After", "")
    return min(float(named), _MAX_PAUSE_S) if named.isdecimal() else None


# -- JSON ---------------------------------------------------------------------------------------------


def otlp_body(spans: Iterable[TraceSpan]) -> dict[str, Any]:
    """The body of a request. The group of a client is its service, its host a resource of its own."""
    resources: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for span in spans:
        resources.setdefault((span.service, span.client_host), []).append(_span(span))
    scope = {"name": "kourou.trace", "version": __version__}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes({"service.name": service, "host.ip": [host]})},
                "scopeSpans": [{"scope": scope, "spans": its_spans}],
            }
            for (service, host), its_spans in resources.items()
        ]
    }


def _span(span: TraceSpan) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": int(span.kind),
        # 64-bit numbers are text in OTLP's JSON.
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
    }
    if span.parent_span_id is not None:
        encoded["parentSpanId"] = span.parent_span_id
    if span.trace_state:
        encoded["traceState"] = span.trace_state
    if span.error is not None:
        encoded["status"] = {"code": 2, "message": span.error}
    return encoded


def _attributes(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: AttributeValue) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [{"stringValue": text} for text in value]}}
    return {"stringValue": str(value)}
