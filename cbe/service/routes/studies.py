"""Studies: submitted, listed, shown, steered and deleted; and what happens to them, as it happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse, Response

from cbe.errors import CbeError
from cbe.service.auth.access import CurrentService, Reader, Submitter
from cbe.service.isolated_tasks import config_error
from cbe.service.routes.bodies import STUDY_FILE, StudyFile, text_of
from cbe.service.routes.names import Limit, Offset, Study, Text
from cbe.service.routes.ray_calls import Actions, Questions
from cbe.service.routes.streams import Live, redacted
from cbe.service.service import Service
from cbe.service.web.http_errors import Conflict, NotFound
from cbe.service.web.schemas import Change, Resume, Studies, StudyShape, StudyStatusShape
from cbe.store.folder import STUDY_FILE as FILE
from cbe.store.redact import redact

log = logging.getLogger("cbe.service")
router = APIRouter(prefix="/api", tags=["studies"])


@router.get("/studies", responses={200: {"model": Studies}}, summary="List studies")
async def list_studies(
    service: CurrentService,
    who: Reader,
    state: Text = None,
    owner: Text = None,
    search: Text = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Response:
    """Lists all studies, the latest first."""
    found = [each for each in service.study_watcher.latest if each.study_status.matches(state, owner, search)]
    lines = b",".join(each.line for each in found[offset : offset + limit])
    return _json(b'{"total":%d,"studies":[%b]}' % (len(found), lines))


@router.post(
    "/studies",
    status_code=201,
    openapi_extra=STUDY_FILE,
    responses={
        201: {"model": StudyStatusShape, "description": "Taken into the queue"},
        200: {"model": StudyStatusShape, "description": "The same file was submitted before"},
    },
    summary="Submit a study",
)
async def submit(
    service: CurrentService,
    who: Submitter,
    sent: StudyFile,
    actions: Actions,
    priority: Annotated[int, Query(ge=-100, le=100)] = 0,
) -> Response:
    """Takes a study file. The same file again is the same study; another file under its name is refused."""
    found = await service.check(*sent)
    if found["faults"]:
        raise config_error(found["faults"])
    name, new = await actions.run(service.submit, found["values"], who, priority)
    return await _study_status(service, name, 201 if new else 200)


@router.get("/studies/{name}", responses={200: {"model": StudyShape}}, summary="Show a study and its trials")
async def show(service: CurrentService, who: Reader, name: Study) -> Response:
    """Shows a study with all its trials."""
    seen = service.study_watcher.get(name)
    await service.find(name)  # with its trials
    if seen is None:
        await service.study_watcher.look()
    found = service.study_watcher.get(name)
    if found is None:
        raise NotFound(
            f"study {name}: there is none of that name; see what there is with `cbe ls`, or at /api/studies"
        )
    return _json(found.whole)


@router.get(
    "/studies/{name}/file",
    response_class=Response,
    responses=text_of("text/yaml", "object"),
    summary="Get a study's file",
)
async def file(service: CurrentService, who: Reader, name: Study) -> Response:
    """Gives the study's YAML file."""
    folder = await service.find(name)
    content = await asyncio.to_thread(folder.read, FILE)
    return PlainTextResponse(content or b"", media_type="text/yaml")


@router.patch(
    "/studies/{name}",
    responses={200: {"model": StudyStatusShape}},
    summary="Change a study's budget, space or priority",
)
async def amend(
    service: CurrentService, who: Submitter, name: Study, change: Change, actions: Actions
) -> Response:
    """Changes what leaves the study's trials comparable: its budget, search space or priority."""
    await actions.run(service.amend, name, who, change.settings, change.priority)
    return await _study_status(service, name)


@router.post("/studies/{name}/stop", responses={200: {"model": StudyStatusShape}}, summary="Stop a study")
async def stop(
    service: CurrentService, who: Submitter, name: Study, actions: Actions, now: bool = False
) -> Response:
    """Removes a study from the queue, or stops it; `now` does not wait for its trials' checkpoints."""
    await actions.run(service.stop, name, who, now=now)
    return await _study_status(service, name)


@router.post("/studies/{name}/resume", responses={200: {"model": StudyStatusShape}}, summary="Resume a study")
async def resume(
    service: CurrentService, who: Submitter, name: Study, actions: Actions, given: Resume | None = None
) -> Response:
    """Continues a study where it stopped, with a larger budget if one is given.

    `retry` names failed trials to try again, or `failed` for all.
    """
    asked = given or Resume()
    await actions.run(service.resume, name, who, asked.settings, asked.retry)
    return await _study_status(service, name)


@router.delete("/studies/{name}", status_code=204, response_class=Response, summary="Delete a study")
async def delete(
    service: CurrentService,
    who: Submitter,
    name: Study,
    actions: Actions,
    confirm: Annotated[str, Query(max_length=64, description="The study's name again")] = "",
) -> Response:
    """Deletes a study and all its results. This cannot be undone."""
    await service.find(name)
    if confirm != name:
        raise Conflict(f"{name}: is deleted for good with all its results; say so with ?confirm={name}")
    await actions.run(service.delete, name, who)
    await service.study_watcher.look()
    return Response(status_code=204)


@router.get(
    "/studies/{name}/logs",
    response_class=Response,
    responses=text_of("text/plain"),
    summary="Read a driver's log",
)
async def logs(
    request: Request,
    service: CurrentService,
    who: Reader,
    name: Study,
    questions: Questions,
    tail: Annotated[int, Query(ge=1, le=100_000, description="The last lines")] = 500,
    follow: bool = False,
) -> Response:
    """Gives what the study's driver printed; with `follow`, until it ends."""
    await service.find(name)
    if await questions.run(service.jobs.find, name) is None:
        return PlainTextResponse("")
    if follow:
        parts = redacted(_to_its_end(service.jobs.follow(name)))
        return Live(request, who, parts, "text/plain; charset=utf-8")

    def find() -> str:
        return redact("".join(service.jobs.logs(name).splitlines(keepends=True)[-tail:]))

    return PlainTextResponse(await questions.run(find))


@router.get(
    "/events", response_class=Response, responses=text_of("text/event-stream"), summary="Follow all studies"
)
async def events(request: Request, service: CurrentService, who: Reader) -> Response:
    """Sends the state of all studies now and after each change, as server-sent events."""
    return Live(request, who, service.study_watcher.listen(), "text/event-stream")


@router.get(
    "/studies/{name}/events",
    response_class=Response,
    responses=text_of("text/event-stream"),
    summary="Follow a study",
)
async def study_events(request: Request, service: CurrentService, who: Reader, name: Study) -> Response:
    """Sends the state of a study and its trials now and after each change, as server-sent events."""
    await service.find(name)
    return Live(request, who, service.study_watcher.listen_to(name), "text/event-stream")


async def _to_its_end(parts: AsyncIterator[str]) -> AsyncIterator[str]:
    """What is printed until nobody is left to ask for it: an answer that has begun can tell no error."""
    try:
        async for part in parts:
            yield part
    except CbeError as error:
        log.warning("%s", error)


async def _study_status(service: Service, name: str, code: int = 200) -> Response:
    """A study as it stands after what was just done."""
    await service.study_watcher.look()
    found = service.study_watcher.get(name)
    if found is None:
        raise NotFound(f"study {name}: was deleted meanwhile")
    return _json(found.line, code)


def _json(content: bytes, code: int = 200) -> Response:
    return Response(content, code, media_type="application/json")
