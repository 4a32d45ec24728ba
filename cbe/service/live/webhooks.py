"""Messages to webhooks and to Slack: a study has finished, has failed, has spent its budget.

Who knows a webhook's address may write to it: addresses are secrets, and only their hosts are ever told.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import httpx

from cbe import __version__
from cbe.errors import InputError
from cbe.store.redact import redact
from cbe.words import clean, figure, finite, first_line

Event = Literal["finished", "failed", "budget"]

_SLACK = "hooks.slack.com"
_LONGEST = 2000  # characters of a text that is sent
_LONGEST_WAIT_S = 30.0  # that a server may ask for
_AT_ONCE = 8
_TRY_AGAIN = (408, 425, 429)  # and 500 or more
_HAPPENED = {"finished": "has finished", "failed": "has failed", "budget": "has spent its budget"}


@dataclass(frozen=True)
class Notice:
    """What is told of a study."""

    event: Event
    study: str
    state: str
    reason: str | None = None
    sentence: str | None = None  # the answer so far
    metric: str | None = None
    best: float | None = None
    url: str | None = None  # of the study's page
    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_plain(self) -> dict[str, Any]:
        return {
            "event": self.event,
            "study": self.study,
            "state": self.state,
            "reason": _shortened(self.reason),
            "sentence": _shortened(self.sentence),
            "metric": self.metric,
            "best": finite(self.best),
            "url": self.url,
            "time": self.time.isoformat(),
        }

    def to_slack(self) -> dict[str, str]:
        """Slack's message; `&`, `<` and `>` steer it and are escaped as it wants them."""
        plain = self.to_plain()
        head = f"{self.study} {_HAPPENED[self.event]}" + (
            f": {first_line(self.reason)}" if self.reason else ""
        )
        best = f"{self.metric} {figure(self.metric, self.best)}" if self.best is not None else None
        lines = [_shortened(head), plain["sentence"] or best, self.url]
        text = "\n".join(line for line in lines if line)
        return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


@dataclass(frozen=True)
class Target:
    """Where notices go."""

    url: str = field(repr=False)
    host: str
    slack: bool


def parse_target(text: str) -> Target:
    """A webhook as a user writes it: a URL, or `slack:URL` where Slack's kind of message is wanted.

    >>> parse_target("https://hooks.slack.com/services/T0/B0/xyz")
    Target(host='hooks.slack.com', slack=True)
    """
    bare = text.strip()
    url = bare.removeprefix("slack:")
    try:
        parsed = httpx.URL(url)
        good = parsed.scheme in ("https", "http") and parsed.host and (parsed.port or 443) < 2**16
        good = good and url.isprintable() and " " not in url
    except (httpx.InvalidURL, ValueError):
        good = False
    if not good:
        raise InputError(
            "webhook: got what is no address (it is not repeated here, for it may be a secret); wanted "
            "https://host/path, http://host/path, or slack: and such an address; check it for typing errors"
        )
    return Target(url, parsed.host, bare != url or parsed.host == _SLACK)


class Webhooks:
    """Sends notices to all targets; holds nothing that changes, so any thread may send."""

    def __init__(
        self,
        urls: Sequence[str],
        timeout_s: float = 10.0,
        waits_s: Sequence[float] = (1.0, 5.0),
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self.targets = tuple(map(parse_target, urls))
        self._timeout_s, self._waits_s, self._wait = timeout_s, tuple(waits_s), wait

    def send(self, notice: Notice) -> list[str]:
        """Tells every target, some of them again; one line for each that could not be told. Never raises."""
        if not self.targets:
            return []
        with ThreadPoolExecutor(min(_AT_ONCE, len(self.targets))) as pool:
            failed = pool.map(lambda target: self._deliver(target, notice), self.targets)
            return [line for line in failed if line is not None]

    def _deliver(self, target: Target, notice: Notice) -> str | None:
        content = json.dumps(notice.to_slack() if target.slack else notice.to_plain())
        again, problem, asked_s = self._attempt(target, content)
        for wait_s in self._waits_s:
            if not again:
                break
            self._wait(max(wait_s, asked_s))
            again, problem, asked_s = self._attempt(target, content)
        return (
            problem and f"{target.host}: the notice {notice.event} of {notice.study} was not taken: {problem}"
        )

    def _attempt(self, target: Target, content: str) -> tuple[bool, str | None, float]:
        """Whether another attempt may help, what went wrong, and how long the server wants us to wait."""
        try:
            with _unlogged():
                status, asked = asyncio.run(self._post(target.url, content))
        except (TimeoutError, httpx.TimeoutException):
            return True, f"no answer within {self._timeout_s:g} s", 0.0
        except httpx.TransportError as error:
            return True, f"it cannot be reached ({type(error).__name__})", 0.0
        except Exception as error:  # its text may hold the address; and no webhook may stop a study
            return False, type(error).__name__, 0.0
        if 200 <= status < 300:
            return False, None, 0.0
        if 300 <= status < 400:
            return False, f"it answered {status}, and redirections are not followed", 0.0
        asked_s = min(float(asked), _LONGEST_WAIT_S) if asked.isascii() and asked.isdigit() else 0.0
        return status >= 500 or status in _TRY_AGAIN, f"it answered {status}", asked_s

    async def _post(self, url: str, content: str) -> tuple[int, str]:
        """The answer's status and Retry-After. The time limit is of the whole, which httpx's own is not."""
        headers = {"Content-Type": "application/json", "User-Agent": f"cbe-studies/{__version__}"}
        async with (
            asyncio.timeout(self._timeout_s),
            httpx.AsyncClient(timeout=self._timeout_s, follow_redirects=False) as client,
            client.stream("POST", url, content=content, headers=headers) as answer,
        ):
            return answer.status_code, answer.headers.get("Retry-After", "")


def _shortened(text: str | None) -> str | None:
    return None if text is None else redact(clean(text))[:_LONGEST]


class _Unlogged(logging.Filter):
    """Keeps httpx, which logs every address it calls, silent about ours."""

    def __init__(self) -> None:
        super().__init__()
        self.here = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(self.here, "sending", False)


_SILENCE = _Unlogged()
for _name in ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))):
    logging.getLogger(_name).addFilter(_SILENCE)


@contextmanager
def _unlogged() -> Iterator[None]:
    """No line of this thread's calls reaches a log."""
    _SILENCE.here.sending = True
    try:
        yield
    finally:
        _SILENCE.here.sending = False
