"""The service itself: who calls, whether all is well, its figures, the cluster, and what was done by whom."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from cbe import __version__
from cbe.service.access import Admin, Ours, Reader, is_open
from cbe.service.board import encode
from cbe.service.routes.bodies import text_of
from cbe.service.routes.errands import Questions
from cbe.service.shapes import Cluster, Events, Health, Me, Ready

router = APIRouter(tags=["service"])


@router.get("/healthz")
async def healthz() -> Health:
    """Whether the service answers at all."""
    return Health(service="cbe-studies", status="ok", version=__version__)


@router.get("/readyz", responses={200: {"model": Ready}, 503: {"model": Ready}})
async def readyz(service: Ours) -> Response:
    """Whether its store and its cluster answer, too; why not is told to those with a token."""
    store = "away" if service.board.problem else "ok"
    ray = "away" if service.keeper.problem else "ok"
    return JSONResponse({"store": store, "ray": ray}, 200 if store == ray == "ok" else 503)


@router.get("/metrics", response_class=Response, responses=text_of("text/plain"))
async def figures(request: Request, who: Reader) -> Response:
    """Figures for Prometheus."""
    content = await asyncio.to_thread(request.app.state.figures.text)
    return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/api/me")
async def me(request: Request, who: Reader) -> Me:
    """Who calls, and what they may do."""
    return Me(name=who.name, role=who.role, open=await is_open(request))


@router.get("/api/cluster", responses={200: {"model": Cluster}})
async def cluster(service: Ours, who: Reader, questions: Questions) -> Response:
    """The cluster's nodes, and what is used of what they have together."""
    found = await questions.run(service.jobs.resources)
    return Response(encode(found), media_type="application/json")


@router.get("/api/problems")
async def problems(service: Ours, who: Reader) -> dict[str, str | None]:
    """Why the store or the cluster could not be asked of late."""
    return {"store": service.board.problem, "ray": service.keeper.problem}


@router.get("/api/audit", responses={200: {"model": Events}})
async def audit(service: Ours, who: Admin, limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> Response:
    """What was done by whom, the latest first."""
    found = await asyncio.to_thread(service.audit.latest, limit)
    return Response(encode({"events": found}), media_type="application/json")
