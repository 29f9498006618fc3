"""The OpenAPI document of all endpoints: they are below FastAPI's own machinery, which therefore does not see them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from app.transports.endpoints import OPEN, Endpoint, Schema, mounted

_REF = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"{(\w+)(?::path)?}")
_BEARER = "bearer"
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "status", "message", "details"],
            "properties": {
                "code": {"type": "integer"},
                "status": {"type": "string"},
                "message": {"type": "string"},
                "details": {"type": "array", "items": {"type": "object"}},
            },
        }
    },
}


def install(app: FastAPI) -> None:
    """Have ``app.openapi()`` describe every endpoint that is mounted, whenever it is first asked."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = openapi


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document; FastAPI's own routes, if there are any, keep their description."""
    described = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    endpoints = [endpoint for endpoint in mounted(app) if not endpoint.hidden]
    components = described.setdefault("components", {})
    components.setdefault("schemas", {}).update({**_model_schemas(endpoints), "Error": _ERROR})
    components.setdefault("securitySchemes", {})[_BEARER] = {"type": "http", "scheme": "bearer"}
    for endpoint in endpoints:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        described["paths"].setdefault(path, {})[endpoint.method.lower()] = _describe(endpoint)
    return described


def _model_schemas(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    models = {
        schema: None
        for endpoint in endpoints
        for schema in (endpoint.request, endpoint.response)
        if isinstance(schema, type)
    }
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    return schemas.get("$defs", {})


def _describe(endpoint: Endpoint) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "tags": list(endpoint.tags),
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint.query)],
        "responses": {
            "200": {"description": "Success", "content": _content(endpoint.response, streams=endpoint.streams)},
            "default": {
                "description": "An error",
                "content": {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}},
            },
        },
    }
    if endpoint.request is not None:
        described["requestBody"] = {"content": _content(endpoint.request, streams=False)}
    if endpoint.access is not OPEN:
        described["security"] = [{_BEARER: [scope]} for scope in endpoint.access]
    return described


def _operation_id(endpoint: Endpoint) -> str:
    """Unique: one operation has several paths (the default agent's doors, GET and POST)."""
    return re.sub(r"\W+", "_", f"{endpoint.operation}_{endpoint.method}_{endpoint.path}").strip("_")


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(endpoint.path)
    ]


def _query_parameters(query: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}
        for name, description in query.items()
    ]


def _content(schema: Schema | None, *, streams: bool) -> dict[str, Any]:
    media_type = "text/event-stream" if streams else "application/json"
    if schema is None:
        return {media_type: {}}
    if isinstance(schema, type):
        return {media_type: {"schema": {"$ref": _REF.format(model=schema.__name__)}}}
    return {media_type: {"schema": dict(schema)}}
