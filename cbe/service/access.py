"""Who may come in: tokens, roles, and requests that a foreign page has sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from cbe.service.loopback import LOOPBACK
from cbe.service.refusals import Forbidden, TooMany, Unauthorised
from cbe.service.service import LOCAL, Service
from cbe.service.tokens import Holder, Role

SAFE = ("GET", "HEAD", "OPTIONS")

_bearer = HTTPBearer(auto_error=False, description="`cbe token create NAME --role submit` makes one.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def needs(role: Role) -> Any:
    """What a route depends on: whoever calls it, if their role reaches so far."""

    async def holder(request: Request, given: Credentials) -> Holder:
        found = await _holder(request, given)
        if not found.role.allows(role):
            raise Forbidden(f"the token of {found.name} has the role {found.role}; this needs {role}")
        return found

    return Depends(holder)


async def _holder(request: Request, given: HTTPAuthorizationCredentials | None) -> Holder:
    service = service_of(request)
    if given is None:
        if await is_open(request):
            return LOCAL
        raise Unauthorised("a token is needed; send it as `Authorization: Bearer cbe_…`")
    key = (request.client.host if request.client else "?", service.tokens.known_id(given.credentials))
    wait_s = service.failures.retry_after_s(key)
    if wait_s is not None:
        raise TooMany(f"too many wrong tokens; try again in {wait_s:.0f} s", wait_s)
    fresh = request.method not in SAFE  # what changes something never goes by what was true a moment ago
    found = service.tokens.check(given.credentials)
    if found is None or fresh:
        found = await asyncio.to_thread(service.tokens.check, given.credentials, fresh=True)
    if found is None:
        service.failures.note(key)
        raise Unauthorised("the token is not valid, or no longer; ask for a new one")
    return found


async def is_open(request: Request) -> bool:
    """Whether no token is needed: on this machine alone, and as long as none was ever made."""
    loopback: bool = request.app.state.loopback
    return loopback and not await asyncio.to_thread(service_of(request).tokens.any_made)


def refuse_foreign(request: Request) -> None:
    """Refuses what another site's page has sent through the user's browser.

    Such a page can send simple requests anywhere, and where no token is needed it could read the answers,
    by a name of its own that leads to this machine.
    """
    host = request.headers.get("host", "")
    if request.app.state.loopback and _name(host) not in LOOPBACK:
        raise Forbidden(f"host {host[:80]!r}: this service answers to {', '.join(LOOPBACK)} alone")
    origin = request.headers.get("origin")
    if origin and request.method not in SAFE and urlsplit(origin).netloc.lower() != host.lower():
        raise Forbidden("the request comes from another site's page; use this service's own")
    if request.headers.get("sec-fetch-site") == "cross-site" and request.method not in SAFE:
        raise Forbidden("the request comes from another site's page; use this service's own")


def _name(host: str) -> str:
    """A host without its port."""
    return (urlsplit(f"//{host}").hostname or "") if host else ""


Check = Callable[[Request], Awaitable[Holder]]
Reader = Annotated[Holder, needs(Role.read)]
Submitter = Annotated[Holder, needs(Role.submit)]
Admin = Annotated[Holder, needs(Role.admin)]
Ours = Annotated[Service, Depends(service_of)]
