"""Who answers at an address: a CBE service, or the dashboard of a Ray cluster alone."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx

from cbe.errors import InputError
from cbe.service.auth.loopback import is_loopback
from cbe.service.clients.interface import Studies
from cbe.service.clients.service import connect
from cbe.service.clients.transport import checked

ASK_S = 10.0


def at(address: str) -> Studies:
    """What runs studies at an address."""
    if not address.startswith(("http://", "https://")):
        raise InputError(
            f"--address {address}: wanted http(s)://…, of a CBE service or of a Ray cluster's dashboard "
            "(usually on port 8265)"
        )
    place = checked(address)
    here = is_loopback(urlsplit(place).hostname or "")
    try:
        answer = httpx.get(f"{place}/healthz", timeout=ASK_S, trust_env=not here)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InputError(
            f"{place}: nobody answers there ({error}); check the address, or start a service with `cbe serve`"
        ) from None
    if _is_service(answer):
        return connect(place)
    if not _is_ray(place, here):
        raise InputError(
            f"{place}: is neither a CBE service nor the dashboard of a Ray cluster; check the address"
        )
    from cbe.service.clients.ray_jobs import RayJobsStudies  # loads Ray

    return RayJobsStudies(place)


def _is_ray(place: str, here: bool) -> bool:
    try:
        answer = httpx.get(f"{place}/api/version", timeout=ASK_S, trust_env=not here)
    except httpx.HTTPError:
        return False
    return answer.status_code in (401, 403) or (answer.status_code == 200 and "ray_version" in answer.text)


def _is_service(answer: httpx.Response) -> bool:
    try:
        told = answer.json()
    except ValueError:
        return False
    return isinstance(told, dict) and told.get("service") == "cbe-studies"
