"""Responses as JSON."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from kourou.console.api_errors import ApiError


def json_response(data: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Data as JSON, in the same form as `mqadmin --json`."""
    body = msgspec.json.encode(msgspec.to_builtins(data, str_keys=True))
    return Response(body, status, headers={"Cache-Control": "no-store"}, media_type="application/json")


def error_response(error: ApiError) -> Response:
    """An error as JSON."""
    return json_response(error.answer, error.status)
