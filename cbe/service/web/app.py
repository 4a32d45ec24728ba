"""The service as a web application: routes, refusals as JSON, and what every answer carries."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from cbe import __version__
from cbe.errors import CbeError, ConfigError, InputError, StoreError
from cbe.service import isolated_pool
from cbe.service.auth.loopback import origin_of
from cbe.service.isolated_tasks import MOST_FAULTS, plain_fault
from cbe.service.live import metrics
from cbe.service.queue.ray_jobs import RayAway
from cbe.service.routes import answers, pages, studies, system, trials
from cbe.service.routes.ray_calls import MOST_ACTING, MOST_ASKING, RayBusy, RayCalls
from cbe.service.routes.streams import Streams
from cbe.service.service import Service
from cbe.service.web.http_errors import (
    Conflict,
    Forbidden,
    NotFound,
    Taken,
    TooMany,
    Unauthorised,
    Unsupported,
)
from cbe.service.web.middleware import Guard
from cbe.service.web.schemas import Problem

log = logging.getLogger("cbe.service")

_STATUS: tuple[tuple[type[CbeError], int], ...] = (
    (Unauthorised, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Taken, 409),
    (Unsupported, 415),
    (TooMany, 429),
    (RayAway, 503),
    (StoreError, 503),
    (InputError, 422),
    (CbeError, 503),
)
_REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text}
    for code, text in {
        400: "Not a request that can be read",
        401: "No token, or one that is not valid",
        403: "The role does not reach so far",
        404: "No such study or trial",
        409: "The study is not in a state for this",
        413: "Too large",
        415: "Neither YAML nor JSON",
        422: "Bad input; the faults say where",
        429: "Too many wrong tokens, or too many listeners",
        503: "Ray or the store does not answer",
    }.items()
}


def create_app(
    service: Service, *, loopback: bool = True, tls: bool = False, public: str | None = None
) -> FastAPI:
    """The application; `loopback` says that it is reached from this machine alone, `public` how others do."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        isolated_pool.prepare()
        await asyncio.to_thread(service.reconciler.start)  # which reads the store
        await service.study_watcher.start()
        yield
        await service.study_watcher.stop()
        for each in (app.state.questions, app.state.actions):
            each.close()
        service.close()

    app = FastAPI(
        title="CBE Studies",
        version=__version__,
        summary="Hyperparameter studies for semi-supervised image classification",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=_REFUSALS,
    )
    app.state.service, app.state.loopback = service, loopback
    app.state.public, app.state.origin = public, origin_of(public) if public else None
    app.state.opened, app.state.opened_at = False, -math.inf  # see access.is_open
    app.state.streams = Streams()
    app.state.questions, app.state.actions = RayCalls(MOST_ASKING), RayCalls(MOST_ACTING)
    app.state.figures = metrics.Figures(service.study_watcher, service.reconciler)
    for routes in (system, studies, trials, answers, pages):
        app.include_router(routes.router)
    app.add_middleware(Guard, tls=tls)
    app.add_exception_handler(CbeError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _plain)
    return app


def problem(
    code: int, message: str, faults: list[dict[str, Any]] | None = None, headers: dict[str, str] | None = None
) -> Response:
    """A refusal in the form that all of them have; texts of others may hold what is no text."""
    text = json.dumps({"message": message, "faults": faults or []}, ensure_ascii=False)
    return Response(text.encode(errors="replace"), code, headers, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    code = next(code for kind, code in _STATUS if isinstance(error, kind))
    headers = {}
    if isinstance(error, Unauthorised):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooMany | RayBusy):
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    if code == 503:
        log.warning("%s: %s", request.url.path, str(error).replace("\n", " "))
    faults = [plain_fault(fault) for fault in error.faults] if isinstance(error, ConfigError) else []
    return problem(code, str(error), faults, headers)


async def _malformed(request: Request, error: Exception) -> Response:
    """What does not fit the OpenAPI description, in our words."""
    assert isinstance(error, RequestValidationError)
    faults = []
    for each in error.errors()[:MOST_FAULTS]:
        key = ".".join(str(part) for part in each["loc"])
        faults.append({"where": key, "line": None, "key": key, "problem": each["msg"], "hint": ""})
    message = "; ".join(f"{fault['where']}: {fault['problem']}" for fault in faults)
    return problem(422, message, faults)


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request)) or headers.get("Allow", "GET")
    return problem(error.status_code, str(error.detail), headers=headers)


def _methods(request: Request) -> list[str]:
    """All that an address can be asked for, of which a route knows its own method only."""
    paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    found = (each for path, each in paths.items() if compile_path(path)[0].match(request.scope["path"]))
    return sorted({method.upper() for each in found for method in each})
