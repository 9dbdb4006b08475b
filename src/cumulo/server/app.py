"""The application: routes over `Services`, failures as problems, the gate in front."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute

from cumulo import __version__
from cumulo.server import problems
from cumulo.server.gate import Gate
from cumulo.server.keeping import DailySweep
from cumulo.server.query import refuse_unknown
from cumulo.server.routes import ROUTERS
from cumulo.server.services import Services
from cumulo.wire import api

logger = logging.getLogger(__name__)


def make_app(services: Services, *, loopback_only: bool) -> FastAPI:
    """The ASGI application. It starts the control loops with itself, and stops them with itself."""
    app = make_api()
    app.state.services = services
    # As a middleware it stands inside the framework's own net for faults, which would answer in plain text.
    app.add_middleware(Gate, counters=services.counters, loopback_only=loopback_only)
    return app


def make_api() -> FastAPI:
    """All the routes, described; they need `state.services` to answer."""
    app = FastAPI(
        title="Cumulo",
        version=__version__,
        description="A GPU cloud on your machines. Failures are RFC 9457 problems with one stable code each.",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        dependencies=[Depends(refuse_unknown)],
        generate_unique_id_function=_operation_id,
        separate_input_output_schemas=False,
        responses={
            "default": {
                "description": "A problem: `code` says which",
                "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }
        },
    )
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = _described(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    sweep = DailySweep(services)
    services.control.start()
    services.feed.start()
    sweep.start()
    try:
        yield
    finally:
        sweep.close()
        services.feed.close()
        services.control.close()


def _operation_id(route: APIRoute) -> str:
    return route.name


def _described(app: FastAPI) -> Any:
    """OpenAPI with what FastAPI can't know: our problems in place of its own, and how callers show who they are."""
    plain = app.openapi

    def describe() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        schema = plain()
        components = schema["components"]
        for name in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(name, None)
        components["schemas"]["Problem"] = api.Problem.model_json_schema()
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                if path == "/v1/health":
                    operation["security"] = []
        return schema

    return describe
