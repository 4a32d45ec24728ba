"""The way to a service: requests and answers over HTTP, refusals and trouble as our own errors."""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from cbe.errors import ConfigError, Fault, InputError, RunError
from cbe.service.auth.loopback import is_loopback

Found = TypeVar("Found")

_AGAIN_S = (0.2, 1.0)  # waits before a read is tried again
_PASSING = (502, 503, 504)


def opened(url: str | None, token: str | None, insecure: bool | None) -> Transport:
    """A way to a service, with the token that its requests carry; what is not given is in the environment."""
    given = url or os.environ.get("CBE_ADDRESS") or ""
    secret = (token or os.environ.get("CBE_TOKEN") or "").strip()
    if insecure is None:
        insecure = os.environ.get("CBE_INSECURE", "") not in ("", "0")
    address = checked(given)
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InputError("CBE_TOKEN: holds what no token has; set it to the token as it was given to you")
    here = is_loopback(urlsplit(address).hostname or "")
    if secret and address.startswith("http://") and not here and not insecure:
        raise InputError(
            f"{address}: anybody on the way could read your token; give an https:// address, or one on this "
            f"machine that leads there, as by `ssh -L`; on a network you trust set CBE_INSECURE=1"
        )
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    # What goes to this machine goes through no proxy.
    http = httpx.Client(
        base_url=address, headers=headers, timeout=httpx.Timeout(60, connect=5), trust_env=not here
    )
    return Transport(address, http)


def checked(given: str) -> str:
    """An address as it is used; refuses what is none, or holds a password that others could read."""
    wanted = "wanted http://HOST:PORT or https://HOST of a CBE service"
    try:
        parts = urlsplit(given)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InputError(f"address {given!r}: is none; {wanted}") from None
    if parts.username is not None or parts.password is not None:
        raise InputError(f"address: holds a name or password, which others can read; {wanted}, and CBE_TOKEN")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        hint = "" if given else "; give one, or set CBE_ADDRESS"
        raise InputError(f"address {given!r}: {wanted}{hint}")
    return given.rstrip("/")


class Transport:
    """Requests to one service, and nowhere else: redirects are not followed."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self.url = url
        self._http = http
        weakref.finalize(self, http.close)  # where nobody does

    def close(self) -> None:
        self._http.close()

    def object(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """The object that is answered."""
        return self.understood(_object, self.call(method, path, **request))

    def call(self, method: str, path: str, **request: Any) -> httpx.Response:
        """What is answered; a read is tried again where the trouble may pass."""
        for wait in (*_AGAIN_S, None) if method == "GET" else (None,):
            try:
                response = self._http.request(method, path, **request)
            except httpx.TransportError as error:
                if wait is None:
                    raise self._away(error, sent=method != "GET") from None
            else:
                if response.status_code not in _PASSING or wait is None:
                    return self._accepted(response)
            time.sleep(wait)
        raise AssertionError("the last try ends above")

    @contextmanager
    def stream(
        self, path: str, silence_s: float | None, asked: Mapping[str, Any] | None = None
    ) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(silence_s, connect=5)
        try:
            with self._http.stream("GET", path, params=asked, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                yield self._accepted(response)
        except httpx.TransportError as error:
            raise self._away(error) from None

    def _accepted(self, response: httpx.Response) -> httpx.Response:
        """An answer that is one; what the service refuses is raised with its own words."""
        if response.is_success:
            return response
        status = response.status_code
        if response.is_redirect:
            elsewhere = urlsplit(str(response.next_request.url if response.next_request else ""))
            raise InputError(
                f"{self.url}: sends on to {elsewhere.scheme}://{elsewhere.netloc}, where your token was not "
                "taken; if that is the service, give its address"
            )
        try:
            plain = response.json()
            message, faults = str(plain["message"]), list(plain.get("faults") or ())
        except (ValueError, KeyError, TypeError):
            said = response.reason_phrase or "no reason"
            message, faults = f"{self.url}: answers {status} ({said}); is a CBE service there?", []
        if status >= 500:
            raise RunError(message if self.url in message else f"{self.url}: {message}")
        if faults:
            raise ConfigError([_fault(each) for each in faults])
        if status == 401 and "authorization" not in self._http.headers:
            message += "; set CBE_TOKEN to the token that you were given"
        raise InputError(message)

    def _away(self, error: httpx.TransportError, sent: bool = False) -> RunError:
        reason = (
            "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error) or "broken off"
        )
        done = "; it may have been done all the same: look with `cbe ls`" if sent else ""
        return RunError(f"{self.url}: cannot be reached ({reason}); check the address and the service{done}")

    def understood(self, read: Callable[[Any], Found], plain: Any) -> Found:
        try:
            return read(plain)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(
                f"{self.url}: answers what this version does not understand ({type(error).__name__}); "
                "install the version that the service has"
            ) from error


def _object(response: httpx.Response) -> dict[str, Any]:
    return dict(response.json())


def _fault(plain: Mapping[str, Any]) -> Fault:
    return Fault(str(plain.get("where")), str(plain.get("problem")), str(plain.get("hint") or ""))


def server_sent(lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Events out of their lines; a comment only keeps the line open."""
    kind, data = "message", ""
    for line in lines:
        name, _, value = line.partition(":")
        if not line and data:
            yield kind, json.loads(data)
            kind, data = "message", ""
        elif name == "event":
            kind = value.strip()
        elif name == "data":
            data += value
