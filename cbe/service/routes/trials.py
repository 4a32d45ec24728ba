"""Trials and their curves."""

from __future__ import annotations

import asyncio
import shlex

from fastapi import APIRouter, Request
from fastapi.responses import Response

from cbe.errors import InputError
from cbe.service import isolated_tasks
from cbe.service.auth.access import CurrentService, Reader
from cbe.service.live.study_watcher import encode
from cbe.service.routes.names import Limit, Offset, Study, Text, Trial, TrialQuery
from cbe.service.trials import trial as trial_of
from cbe.service.web.http_errors import NotFound
from cbe.service.web.schemas import Metrics, Trials, TrialShape

METRICS_S = 20.0

router = APIRouter(prefix="/api/studies/{name}", tags=["trials"])


@router.get("/trials", responses={200: {"model": Trials}}, summary="List trials")
async def list_trials(
    service: CurrentService,
    who: Reader,
    name: Study,
    state: Text = None,
    role: Text = None,
    limit: Limit = 1000,
    offset: Offset = 0,
) -> Response:
    """Lists the trials of a study, those of the search first."""
    await service.find(name)
    seen = service.study_watcher.get(name)
    rows = list(seen.rows.values()) if seen else []
    found = [row for row in rows if state in (None, row["state"]) and role in (None, row["role"])]
    return _json(encode({"total": len(found), "trials": found[offset : offset + limit]}))


@router.get("/trials/{trial}", responses={200: {"model": TrialShape}}, summary="Show a trial")
async def show_trial(
    request: Request, service: CurrentService, who: Reader, name: Study, trial: Trial
) -> Response:
    """Shows a trial: its config, curve and events, and the command that trains it again."""
    await service.find(name)
    try:
        found = (await asyncio.to_thread(trial_of, service.store, name, trial)).to_plain()
    except InputError as error:
        raise NotFound(str(error)) from None
    if found["rerun"]:
        # Behind a proxy that speaks TLS a request does not say how its sender came here.
        here = shlex.quote((request.app.state.public or str(request.base_url)).rstrip("/"))
        found["rerun"] = found["rerun"].replace(" --yaml", f" --yaml --address {here}", 1)
    return _json(encode(found))


@router.get("/metrics", responses={200: {"model": Metrics}}, summary="Get learning curves")
async def metrics(
    service: CurrentService,
    who: Reader,
    name: Study,
    trial: TrialQuery = None,
    limit: Limit = 1000,
    offset: Offset = 0,
) -> Response:
    """Gives the evaluations of a study's trials, or of one trial, by trial and step."""
    await service.find(name)
    given = (service.store.uri, name, trial, limit, offset)
    return _json(await service.isolated.answer(isolated_tasks.metrics, *given, timeout_s=METRICS_S))


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")
