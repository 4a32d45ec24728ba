"""The web page: its files as the package and installed wheels have them, and `metrics.js`, made here.

Nothing in them is from users.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import mimetypes
import re
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

from cbe.spec.metrics import CHARTS, METRICS, Metric

router = APIRouter(include_in_schema=False)

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,40}\.(js|css|svg)")
_PLACES = ("cbe.service.web.static", "cbe.report.page")
_METRICS = "metrics.js"
_OF_WHEELS = {
    "plotly.min.js": ("plotly", "package_data/plotly.min.js"),
    "swagger-ui-bundle.js": ("fastapi_offline", "static/swagger-ui-bundle.js"),
    "swagger-ui.css": ("fastapi_offline", "static/swagger-ui.css"),
}


@router.get("/")
@router.get("/submit")
@router.get("/studies/{name}")
async def page() -> Response:
    """One page for all of them: what it shows, it asks for."""
    return HTMLResponse(_own("index.html"))


@router.get("/docs")
async def docs() -> Response:
    """The OpenAPI description, to read and to try."""
    return HTMLResponse(_own("docs.html"))


@router.get("/assets/{name}")
async def asset(name: str, request: Request) -> Response:
    """A script or a style."""
    if name != _METRICS and _place(name) is None:
        raise HTTPException(404, f"no file {name[:80]!r} belongs to the page")
    content, packed, tag = _asset(name)
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, media_type=kind, headers=headers | {"Content-Encoding": "gzip"})
    return Response(content, media_type=kind, headers=headers)


@cache
def _asset(name: str) -> tuple[bytes, bytes, str]:
    """A file, the same packed, and a tag that changes with it."""
    place = _place(name)
    content = place.read_bytes() if place else _metrics().encode()
    packed = gzip.compress(content, 6, mtime=0)
    return content, packed, f'"{hashlib.sha256(content).hexdigest()[:16]}"'


def _metrics() -> str:
    """A module with what the page knows of metrics."""
    metrics = {name: _plain(each) for name, each in METRICS.items()}
    charts = {name: asdict(each) for name, each in CHARTS.items()}
    return f"export const METRICS = {json.dumps(metrics)};\nexport const CHARTS = {json.dumps(charts)};\n"


def _plain(metric: Metric) -> dict[str, Any]:
    unit = {name: getattr(metric.unit, name) for name in ("sign", "factor", "decimals")}
    return {"title": metric.title, **unit, "curve": metric.curve}


def _place(name: str) -> Traversable | None:
    if name in _OF_WHEELS:
        package, path = _OF_WHEELS[name]
        return files(package) / path
    if not _NAME.fullmatch(name):
        return None
    return next((place for package in _PLACES if (place := files(package) / name).is_file()), None)


def _own(name: str) -> str:
    return (files("cbe.service.web.static") / name).read_text("utf-8")
