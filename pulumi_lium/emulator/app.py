"""The emulator as a FastAPI application: the same routes, with an OpenAPI document and a page to try them on.

The document is made from the route table, `bodies` and `answers`, so that it cannot differ from what is served;
requests go to the same `Emulator.serve` that answers without FastAPI.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from . import answers, bodies
from .asgi import API, CONTROL, Emulator, Receive, Scope, Send
from .control import CONTROL_ROUTES, ControlRoute
from .exchange import JSON_TYPE
from .routes import ROUTES, Route, Text

REF = "#/components/schemas/{model}"
EVERYWHERE = {401: "no valid key", 403: "not allowed", 429: "too many requests"}
ERRORS = {
    400: "cannot be done in this state",
    402: "the key's budget is used up",
    404: "no such thing, or not visible to this key",
    409: "not in this state",
    413: "the body is too large",
    415: "the body is not JSON",
    422: "the request is not valid; `validation_errors` names the fields",
    **EVERYWHERE,
}


class _Served(Response):
    """Hands an exchange back to the emulator, which may also end it without an answer."""

    def __init__(self, emulator: Emulator) -> None:
        super().__init__()
        self._emulator = emulator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._emulator.serve(scope, receive, send)


def create_app(emulator: Emulator) -> FastAPI:
    """A FastAPI application in front of `emulator`."""
    app = FastAPI(
        title="Lium API emulator",
        version="1",
        description="The cluster part of the Lium API on one machine. The control plane under /_emulator needs no key.",
        redoc_url=None,
        redirect_slashes=False,
    )

    async def endpoint() -> Response:
        return _Served(emulator)

    async def unknown(request: Request, error: Exception) -> Response:
        return _Served(emulator)

    for route in ROUTES:
        app.add_api_route(
            API + route.path,
            endpoint,
            methods=[route.method],
            summary=route.summary,
            tags=[route.tag],
            operation_id=_operation_id(route.method, route.path),
            response_class=Response,
            openapi_extra=_operation(route),
            responses=_responses(route),
        )
    for control in CONTROL_ROUTES:
        app.add_api_route(
            f"{CONTROL}/{control.name}",
            endpoint,
            methods=[control.method],
            summary=control.summary,
            tags=["control plane"],
            operation_id=_operation_id(control.method, f"emulator/{control.name}"),
            response_class=Response,
            openapi_extra=_control_operation(control),
            responses={200: {"description": "done", "content": {JSON_TYPE: {"schema": {}}}}},
        )
    app.add_exception_handler(HTTPException, unknown)
    write = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = write()
            components = document.setdefault("components", {})
            components["schemas"] = _components()
            components["securitySchemes"] = {"ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-KEY"}}
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _operation_id(method: str, path: str) -> str:
    return f"{method.lower()}_{re.sub(r'[^a-z]+', '_', path.lower()).strip('_')}"


def _operation(route: Route) -> dict[str, Any]:
    """What FastAPI cannot read off the endpoint: parameters, body, and whether a key is needed."""
    operation: dict[str, Any] = {"parameters": list(_parameters(route))}
    if route.body is not None:
        operation["requestBody"] = _body_of(route.body, required=route.body_required)
    key: list[dict[str, list[str]]] = [{"ApiKey": []}]
    operation["security"] = [*key, {}] if route.keyless else key
    return operation


def _parameters(route: Route) -> Iterator[dict[str, Any]]:
    for segment in route.segments:
        if segment.startswith("{"):
            schema = {"type": "string", "format": "uuid"} if route.uuid else {"type": "string", "minLength": 1}
            yield {"name": segment[1:-1], "in": "path", "required": True, "schema": schema}
    for parameter in route.query:
        yield {
            "name": parameter.name,
            "in": "query",
            "required": parameter.required,
            "description": parameter.description,
            "schema": {"type": parameter.type},
        }
    if route.idempotent:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "one per order, the same on every resend of it",
            "schema": {"type": "string"},
        }


def _body_of(model: type[bodies.Body] | type[BaseModel], *, required: bool) -> dict[str, Any]:
    return {"required": required, "content": {JSON_TYPE: {"schema": {"$ref": REF.format(model=model.__name__)}}}}


def _responses(route: Route) -> dict[int | str, dict[str, Any]]:
    if route.answers is Text:
        content = {"text/plain": {"schema": {"type": "string"}}}
    else:
        content = {
            JSON_TYPE: {"schema": TypeAdapter(route.answers).json_schema(ref_template=REF, mode="serialization")}
        }
        content[JSON_TYPE]["schema"].pop("$defs", None)
    described: dict[int | str, dict[str, Any]] = {200: {"description": "done", "content": content}}
    statuses = {*route.errors, *EVERYWHERE}
    if route.body is not None:
        statuses |= {413, 415, 422}
    envelope = {JSON_TYPE: {"schema": {"$ref": REF.format(model=answers.ErrorEnvelope.__name__)}}}
    for status in sorted(statuses):
        described[status] = {"description": ERRORS[status], "content": envelope}
    return described


def _control_operation(route: ControlRoute) -> dict[str, Any]:
    if route.body is None:
        return {}
    if isinstance(route.body, str):
        return {"requestBody": {"content": {JSON_TYPE: {"schema": {"type": "object", "description": route.body}}}}}
    return {"requestBody": _body_of(route.body, required=True)}


def _components() -> dict[str, Any]:
    """Every model that the document refers to."""
    inputs: set[type[BaseModel]] = {route.body for route in ROUTES if route.body is not None}
    inputs |= {route.body for route in CONTROL_ROUTES if isinstance(route.body, type)}
    outputs = {answers.ErrorEnvelope} | {
        model
        for model in vars(answers).values()
        if isinstance(model, type) and issubclass(model, answers.Shape) and model is not answers.Shape
    }
    wanted = [(model, "validation") for model in inputs] + [(model, "serialization") for model in outputs]
    _, document = models_json_schema(wanted, ref_template=REF)  # type: ignore[arg-type]
    return dict(sorted(document["$defs"].items()))
