"""The OpenAPI document, from the declarations of the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kourou import __version__
from kourou.console.api_errors import ErrorAnswer
from kourou.console.endpoints import Change, Endpoint, NoBody, Preview, Role

_REF: Final = "#/components/schemas/{name}"
_PATH_FIELD: Final = re.compile(r"{(\w+)(?::path)?}")


def openapi_document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """OpenAPI 3.1 of all endpoints."""
    listed = list(endpoints)
    types = [ErrorAnswer, Preview, *(kind for one in listed for kind in (one.query, one.body, one.returns))]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = dict(zip(map(_type_key, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in listed:
        path = _PATH_FIELD.sub(r"{\1}", f"/api{endpoint.path}")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Kourou console", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "kourou_session"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _type_key(kind: Any) -> str:
    return f"{getattr(kind, '__module__', '')}.{kind!r}"


def _operation(
    endpoint: Endpoint, schema_of: dict[str, dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.path.strip("/").split("/")[0]],
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint, schema_of, components)],
        "responses": {
            "200": _json(schema_of[_type_key(endpoint.returns)], "success"),
            "default": _json(schema_of[_type_key(ErrorAnswer)], "an error"),
        },
        "security": [] if endpoint.role is Role.NONE else [{"session": []}, {"basic": []}],
        "x-role": endpoint.role.label,
    }
    if isinstance(endpoint, Change):
        preview = _json(schema_of[_type_key(Preview)], "the cluster has changed since the preview")
        operation["responses"]["409"] = preview
        operation["responses"]["207"] = _json(
            schema_of[_type_key(endpoint.returns)], "some targets failed; `outcomes` says which"
        )
    if endpoint.body is not NoBody:
        operation["requestBody"] = _json(schema_of[_type_key(endpoint.body)], "") | {"required": True}
    return operation


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = _PATH_FIELD.findall(endpoint.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(
    endpoint: Endpoint, schema_of: dict[str, dict[str, Any]], components: dict[str, Any]
) -> list[dict[str, Any]]:
    reference = schema_of[_type_key(endpoint.query)]["$ref"]
    schema = components[reference.rpartition("/")[2]]
    required = schema.get("required", [])
    parameters = [
        {"name": name, "in": "query", "required": name in required, "schema": kind}
        for name, kind in schema["properties"].items()
    ]
    if isinstance(endpoint, Change):
        parameters += [
            {
                "name": "preview",
                "in": "query",
                "required": False,
                "description": "Return what would be done, and do nothing",
                "schema": {"type": "boolean", "default": False},
            },
            {
                "name": "plan",
                "in": "query",
                "required": False,
                "description": "`plan` of a preview: done only if it would still be the same",
                "schema": {"type": "string"},
            },
        ]
    return parameters


def _json(schema: dict[str, Any], description: str) -> dict[str, Any]:
    content = {"content": {"application/json": {"schema": schema}}}
    return {"description": description, **content}
