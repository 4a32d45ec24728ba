"""Answers: the best configs, SQL, reports, and what a study will take before it is submitted."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from cbe.report.best import Answer, best
from cbe.service import isolated_tasks
from cbe.service.auth.access import CurrentService, Reader, Submitter
from cbe.service.live.study_watcher import encode
from cbe.service.routes.bodies import STUDY_FILE, StudyFile, text_of
from cbe.service.routes.names import Condition, Many, Study
from cbe.service.routes.ray_calls import Questions
from cbe.service.service import Service
from cbe.service.web.schemas import Checked, Page, PlanShape, Query, QueryResult, Tasks
from cbe.words import finite

SQL_S = 20.0
REPORT_S = 60.0
PLAN_S = 120.0
MOST_ROWS = 10_000

router = APIRouter(prefix="/api", tags=["answers"])


@router.get(
    "/studies/{name}/best", responses={200: {"model": Answer}}, summary="Get the best configs of a study"
)
async def best_of(
    service: CurrentService, who: Reader, name: Study, k: Many = 1, where: Condition = None
) -> Response:
    """Ranks the k best configs of a study, with intervals and paired differences."""
    folder = await service.find(name)

    async def find() -> bytes:
        if where:
            return await service.queries.answer(
                isolated_tasks.best, service.store.uri, name, k, where, timeout_s=SQL_S
            )
        return await asyncio.to_thread(lambda: encode(finite(best(folder, k).to_plain())))

    return _json(await service.answer_cache.get(("best", name, k, where), _ended(service, name), find))


@router.get("/best", responses={200: {"model": Tasks}}, summary="Get the best configs of all studies")
async def best_of_all(service: CurrentService, who: Reader, k: Many = 1, where: Condition = None) -> Response:
    """Ranks the k best configs of all studies, for each set of images and labels."""

    async def find() -> bytes:
        given = (service.store.uri, k, where)
        if where:
            return await service.queries.answer(isolated_tasks.best_of_all, *given, timeout_s=SQL_S)
        return await service.isolated.answer(isolated_tasks.best_of_all, *given, timeout_s=REPORT_S)

    state = tuple((each.name, each.ended) for each in service.study_watcher.all())
    return _json(await service.answer_cache.get(("best", k, where), state, find))


@router.post("/sql", responses={200: {"model": QueryResult}}, summary="Run a SQL query")
async def sql(service: CurrentService, who: Reader, asked: Query) -> Response:
    """Answers one SELECT over trials, metrics, confusions and events, with at most 10,000 rows."""
    if asked.study is not None:
        await asyncio.to_thread(service.known, asked.study)
    given = (service.store.uri, asked.query, asked.study, SQL_S, MOST_ROWS)
    return _json(await service.queries.answer(isolated_tasks.sql, *given, timeout_s=SQL_S + 1))


@router.get(
    "/studies/{name}/report",
    response_class=Response,
    responses=text_of("text/html"),
    summary="Download a study's report",
)
async def report(service: CurrentService, who: Reader, name: Study) -> Response:
    """Gives the study's report: one HTML file that needs no other."""
    await service.find(name)

    async def find() -> bytes:
        return await service.isolated.answer(
            isolated_tasks.report, service.store.uri, name, timeout_s=REPORT_S
        )

    content = await service.answer_cache.get(("report", name), _version(service, name), find)
    # A file to keep, not a page of this service, whose policy it would not meet.
    headers = {"Content-Disposition": f'attachment; filename="{name}.html"'}
    return HTMLResponse(content, headers=headers)


@router.get(
    "/studies/{name}/page", responses={200: {"model": Page}}, summary="Get the parts of a study's page"
)
async def page(service: CurrentService, who: Reader, name: Study) -> Response:
    """Gives the parts of the report as HTML and figures, for a page that updates itself."""
    await service.find(name)

    async def find() -> bytes:
        return await service.isolated.answer(isolated_tasks.page, service.store.uri, name, timeout_s=REPORT_S)

    return _json(await service.answer_cache.get(("page", name), _version(service, name), find))


@router.post(
    "/check", responses={200: {"model": Checked}}, openapi_extra=STUDY_FILE, summary="Check a study file"
)
async def check(service: CurrentService, who: Reader, sent: StudyFile) -> Response:
    """Lists the faults of a study file with their lines; without faults, says what the file asks for."""
    found = await service.check(*sent)
    return _json(encode({"faults": found["faults"], "about": found["about"]}))


@router.post("/plan", responses={200: {"model": PlanShape}}, openapi_extra=STUDY_FILE, summary="Plan a study")
async def plan(service: CurrentService, who: Submitter, sent: StudyFile, questions: Questions) -> Response:
    """Estimates trials, steps, time and cost of a study by training a few steps on this machine."""
    found = await service.check(*sent)
    if found["faults"]:
        raise isolated_tasks.config_error(found["faults"])
    values: dict[str, Any] = found["values"]
    concurrent = await questions.run(service.concurrency, values)

    async def find() -> bytes:
        return await service.plans.answer(
            isolated_tasks.plan, values, concurrent, timeout_s=PLAN_S, memory=None
        )

    return _json(await service.answer_cache.get(("plan", encode(values)), concurrent, find))


def _ended(service: Service, name: str) -> object:
    """What an answer depends on: the trials that have ended."""
    found = service.study_watcher.get(name)
    return found and found.ended


def _version(service: Service, name: str) -> object:
    found = service.study_watcher.get(name)
    return found and found.version


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")
