"""Who may come in: tokens, roles, and requests that a foreign page has sent."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from cbe.service.auth.loopback import LOOPBACK, is_loopback
from cbe.service.auth.tokens import UNKNOWN, Holder, Role
from cbe.service.service import LOCAL, Service
from cbe.service.web.http_errors import Forbidden, TooMany, Unauthorised

SAFE = ("GET", "HEAD", "OPTIONS")
OPEN_S = 2.0  # for which an open service may not know of its first token
COSTLY = ("/api", "/metrics")  # where an answer takes work, also one that nobody may read

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")

_bearer = HTTPBearer(auto_error=False, description="`cbe token create NAME --role submit` makes one.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


async def service_of(request: Request) -> Service:  # not a plain function, which FastAPI sends to a thread
    service: Service = request.app.state.service
    return service


def needs(role: Role) -> Any:
    """What a route depends on: the caller, if their role allows it."""

    async def holder(request: Request, given: Credentials) -> Holder:
        found = await _holder(request, given)
        if not found.role.allows(role):
            raise Forbidden(f"the token of {found.name} has the role {found.role}; this needs {role}")
        return found

    return Depends(holder)


async def _holder(request: Request, given: HTTPAuthorizationCredentials | None) -> Holder:
    if given is None:
        if await is_open(request):
            return LOCAL
        raise Unauthorised("a token is needed; give it as CBE_TOKEN, or send `Authorization: Bearer cbe_…`")
    service = await service_of(request)
    fresh = request.method not in SAFE  # what changes something never goes by what was true a moment ago
    found = None if fresh else service.tokens.remembered(given.credentials)
    if found is not None:
        return found
    address = request.client.host if request.client else "?"
    return await asyncio.to_thread(_checked, service, given.credentials, address, fresh)


def _checked(service: Service, presented: str, address: str, fresh: bool) -> Holder:
    """Whose token this is; a caller who has presented too many wrong ones of late must wait.

    Guesses at a token that there is keep nobody out who has it: with 256 bits they come to nothing.
    """
    key = (address, service.tokens.known_id(presented))
    wait_s = service.failures.retry_after_s(key)
    if wait_s is None or key[1] != UNKNOWN:
        found = service.tokens.check(presented, fresh=fresh)
        if found is not None:
            return found
    if wait_s is not None:
        raise TooMany(f"too many wrong tokens; try again in {wait_s:.0f} s", wait_s)
    service.failures.note(key)
    raise Unauthorised("the token is not valid, or no longer; ask for a new one")


async def is_open(request: Request) -> bool:
    """Whether no token is needed: on this machine alone, and as long as none was ever made."""
    state = request.app.state
    if state.loopback and time.monotonic() - state.opened_at > OPEN_S:
        service = await service_of(request)
        state.opened, state.opened_at = not await asyncio.to_thread(service.tokens.any_made), time.monotonic()
    return bool(state.loopback and state.opened)


def refuse_foreign(request: Request) -> None:
    """Refuses what another site's page has sent through the user's browser.

    Such a page can send simple requests anywhere, and where no token is needed it could read the answers,
    by a name of its own that leads to this machine.
    """
    host = request.headers.get("host", "")
    found = _HOST.fullmatch(host)
    if host and not found:
        raise Forbidden(f"host {host[:80]!r}: is no name of a machine; give one, as localhost:8321")
    if request.app.state.loopback and not (found and is_loopback(found[1].strip("[]").lower())):
        raise Forbidden(f"host {host[:80]!r}: this service answers to {', '.join(LOOPBACK)} alone")
    if _is_foreign(request, host.lower()) or _is_cross_site(request):
        raise Forbidden("the request comes from another site's page; use this service's own")


def _is_foreign(request: Request, host: str) -> bool:
    """Whether a page has sent this that is neither at the address asked nor at the one by which others come.

    A proxy may put its own name for this machine in the place of the host that the browser has asked.
    """
    origin = request.headers.get("origin")
    if origin is None:
        return False
    return origin.lower().partition("://")[2] != host and origin.lower() != request.app.state.origin


def _is_cross_site(request: Request) -> bool:
    """Whether another site's page asks for more than to be followed by a link to one of ours."""
    path: str = request.scope["path"]
    costly = any(path == each or path.startswith(f"{each}/") for each in COSTLY)
    return request.headers.get("sec-fetch-site") == "cross-site" and (costly or request.method not in SAFE)


Check = Callable[[Request], Awaitable[Holder]]
Reader = Annotated[Holder, needs(Role.read)]
Submitter = Annotated[Holder, needs(Role.submit)]
Admin = Annotated[Holder, needs(Role.admin)]
CurrentService = Annotated[Service, Depends(service_of)]
