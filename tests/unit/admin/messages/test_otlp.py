"""Spans in OTLP's JSON, and where they are sent."""

from __future__ import annotations

import pytest

from kourou.admin.messages.otlp import headers_of, otlp_body, traces_url
from kourou.admin.messages.trace_spans import SpanKind, TraceSpan
from kourou.errors import ConfigError


def span(**changes: object) -> TraceSpan:
    values: dict[str, object] = {
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "span_id": "b7ad6b7169203331",
        "parent_span_id": None,
        "trace_state": None,
        "name": "send Orders",
        "kind": SpanKind.PRODUCER,
        "start_ns": 1_794_711_772_794_000_000,
        "end_ns": 1_794_711_772_799_000_000,
        "attributes": {"text": "x", "flag": True, "number": 5, "list": ["a", "b"]},
        "error": None,
        "service": "shop",
        "client_host": "10.0.0.9",
    }
    return TraceSpan(**values | changes)  # type: ignore[arg-type]


def test_a_span() -> None:
    (resource,) = otlp_body([span()])["resourceSpans"]
    assert resource["resource"]["attributes"] == [
        {"key": "service.name", "value": {"stringValue": "shop"}},
        {"key": "host.ip", "value": {"arrayValue": {"values": [{"stringValue": "10.0.0.9"}]}}},
    ]
    (scope,) = resource["scopeSpans"]
    assert scope["scope"]["name"] == "kourou.trace"
    assert scope["spans"] == [
        {
            "traceId": "0af7651916cd43dd8448eb211c80319c",
            "spanId": "b7ad6b7169203331",
            "name": "send Orders",
            "kind": 4,
            "startTimeUnixNano": "1794711772794000000",
            "endTimeUnixNano": "1794711772799000000",
            "attributes": [
                {"key": "text", "value": {"stringValue": "x"}},
                {"key": "flag", "value": {"boolValue": True}},
                {"key": "number", "value": {"intValue": "5"}},
                {
                    "key": "list",
                    "value": {"arrayValue": {"values": [{"stringValue": "a"}, {"stringValue": "b"}]}},
                },
            ],
        }
    ]


def test_numbers_beyond_64_bits_are_text() -> None:
    (resource,) = otlp_body([span(attributes={"number": 1 << 63})])["resourceSpans"]
    assert resource["scopeSpans"][0]["spans"][0]["attributes"] == [
        {"key": "number", "value": {"stringValue": str(1 << 63)}}
    ]


def test_what_only_some_spans_have() -> None:
    changed = span(parent_span_id="00f067aa0ba902b7", trace_state="vendor=1", error="timeout")
    body = otlp_body([changed, span(client_host="10.0.0.8"), span()])
    first, second = body["resourceSpans"]
    assert [len(each["scopeSpans"][0]["spans"]) for each in (first, second)] == [2, 1]
    encoded = first["scopeSpans"][0]["spans"][0]
    assert encoded["parentSpanId"] == "00f067aa0ba902b7" and encoded["traceState"] == "vendor=1"
    assert encoded["status"] == {"code": 2, "message": "timeout"}


@pytest.mark.parametrize(
    ("given", "environment", "url"),
    [
        (None, {}, "http://localhost:4318/v1/traces"),
        ("http://c:4318/", {}, "http://c:4318/v1/traces"),
        ("https://c/otlp/v1/traces", {}, "https://c/otlp/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1/otlp"}, "http://c:1/otlp/v1/traces"),
        (
            None,
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:1/x", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"},
            "http://t:1/x",
        ),
    ],
)
def test_the_address_of_a_collector(given: str | None, environment: dict[str, str], url: str) -> None:
    assert traces_url(given, environment) == url


@pytest.mark.parametrize("given", ["localhost:4318", "grpc://c:4317", "http://", "file:///etc/passwd"])
def test_what_is_no_address_of_a_collector(given: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a collector; write http://host:4318"):
        traces_url(given, {})


def test_headers() -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Basic%20abc=, x=1",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x=2",
    }
    assert headers_of(environment) == {"Authorization": "Basic abc=", "x": "2"}
    with pytest.raises(ConfigError, match="'nothing' is not name=value"):
        headers_of({"OTEL_EXPORTER_OTLP_HEADERS": "nothing"})
