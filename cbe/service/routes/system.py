"""The service itself: who calls, whether all is well, its figures, the cluster, and what was done by whom."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from cbe import __version__
from cbe.service.auth.access import Admin, CurrentService, Reader, is_open
from cbe.service.live.study_watcher import encode
from cbe.service.routes.bodies import text_of
from cbe.service.routes.ray_calls import Questions
from cbe.service.web.schemas import Cluster, Events, Health, Me, Ready

router = APIRouter(tags=["service"])


@router.get("/healthz", summary="Is the service up?")
async def healthz() -> Health:
    """Says whether the service answers."""
    return Health(service="cbe-studies", status="ok", version=__version__)


@router.get(
    "/readyz",
    responses={200: {"model": Ready}, 503: {"model": Ready}},
    summary="Are the store and the cluster reachable?",
)
async def readyz(service: CurrentService) -> Response:
    """Says whether the store and the cluster answer; /api/problems says why not, to those with a token."""
    store = "away" if service.study_watcher.problem else "ok"
    ray = "away" if service.reconciler.problem else "ok"
    return JSONResponse({"store": store, "ray": ray}, 200 if store == ray == "ok" else 503)


@router.get(
    "/metrics", response_class=Response, responses=text_of("text/plain"), summary="Get metrics for Prometheus"
)
async def figures(request: Request, who: Reader) -> Response:
    """Gives the service's metrics in the format of Prometheus."""
    content = await asyncio.to_thread(request.app.state.figures.text)
    return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/api/me", summary="Who am I?")
async def me(request: Request, who: Reader) -> Me:
    """Says who calls, and with which role."""
    return Me(name=who.name, role=who.role, open=await is_open(request))


@router.get("/api/cluster", responses={200: {"model": Cluster}}, summary="Show the cluster")
async def cluster(service: CurrentService, who: Reader, questions: Questions) -> Response:
    """Lists the cluster's nodes, and how much of their resources is used."""
    found = await questions.run(service.jobs.resources)
    return Response(encode(found), media_type="application/json")


@router.get("/api/problems", summary="Show current problems")
async def problems(service: CurrentService, who: Reader) -> dict[str, str | None]:
    """Says why the store or the cluster did not answer lately."""
    return {"store": service.study_watcher.problem, "ray": service.reconciler.problem}


@router.get("/api/audit", responses={200: {"model": Events}}, summary="Read the audit log")
async def audit(
    service: CurrentService, who: Admin, limit: Annotated[int, Query(ge=1, le=10_000)] = 100
) -> Response:
    """Lists who did what, the latest first."""
    found = await asyncio.to_thread(service.audit.latest, limit)
    return Response(encode({"events": found}), media_type="application/json")
