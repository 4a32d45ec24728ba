"""What `cbe.connect` gives: the verbs of the command line, spoken to a CBE service over HTTP."""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import TypeAdapter

from cbe.errors import ConfigError, Fault, InputError, RunError
from cbe.service.loopback import is_loopback
from cbe.service.standing import Standing, StandingDetails
from cbe.service.trials import Trial
from cbe.study.overview import Overview, in_order, row_from_plain

if TYPE_CHECKING:
    import pyarrow as pa

    from cbe.report.across import Task
    from cbe.report.best import Answer

Found = TypeVar("Found")

PAGE = 200  # studies a request
SILENT_S = 60.0  # a line of events on which nothing is heard for so long is dead; the service says more often
_AGAIN_S = (0.2, 1.0)  # waits before a read is tried again
_RECONNECT_S = (1, 2, 4, 8, 15, 30)
_PASSING = (502, 503, 504)
_YAML = {"content-type": "application/yaml"}


def connect(url: str | None = None, token: str | None = None, *, insecure: bool | None = None) -> Client:
    """A CBE service at http(s)://…; CBE_ADDRESS and CBE_TOKEN are taken where nothing is given.

    A token is sent in the clear (http) to this machine only, unless `insecure` or CBE_INSECURE=1 allows it.
    """
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
    return Client(address, http)


class Client:
    """A service's studies: submitted, watched, steered, asked."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self.url = url
        self._http = http
        weakref.finalize(self, http.close)  # for whoever does not

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def check(self, text: str | Path) -> dict[str, Any]:
        """What is wrong with a study file (`faults`), or what it asks for (`about`)."""
        return self._json("POST", "/api/check", content=_file(text), headers=_YAML)

    def plan(self, text: str | Path) -> dict[str, Any]:
        """What a study will take: trials, steps, time and money as ranges."""
        return self._json("POST", "/api/plan", content=_file(text), headers=_YAML, timeout=300)

    def submit(
        self,
        text: str | Path,
        priority: int = 0,
        *,
        store: str | None = None,
        code: Path | None = None,
    ) -> Standing:
        """Puts a study into the queue; the same file again is the same study."""
        if store or code:
            what = "--store" if store else "--code"
            raise InputError(f"{what}: {self.url} is a service, which has its own; leave it out")
        asked = {"priority": priority} if priority else {}
        plain = self._json("POST", "/api/studies", content=_file(text), params=asked, headers=_YAML)
        return self._understood(Standing.from_plain, plain)

    def ls(
        self, *, state: str | None = None, owner: str | None = None, search: str | None = None
    ) -> list[Standing]:
        """The studies that are there, or those of a state, of an owner, or with a word in them."""
        wanted = {"state": state, "owner": owner, "search": search}
        asked = {name: value for name, value in wanted.items() if value is not None}
        found: list[Standing] = []
        while True:
            page = self._json("GET", "/api/studies", params={**asked, "limit": PAGE, "offset": len(found)})
            more, total = self._understood(_page, page)
            found += more
            if not more or len(found) >= total:
                return found

    def show(self, name: str) -> StandingDetails:
        """A study with all its trials, and its standing."""
        return self._understood(StandingDetails.from_plain, self._json("GET", _study(name)))

    def trial(self, name: str, trial: str) -> Trial:
        """One trial: what was recorded, its curve, its config."""
        plain = self._json("GET", _study(name, "trials", trial))
        return self._understood(Trial.from_plain, plain)

    def logs(self, name: str, follow: bool = False, tail: int = 500) -> Iterator[str]:
        """The last lines that the study's driver has printed; those that follow, too, until it ends."""
        asked: dict[str, Any] = {"tail": tail, **({"follow": "true"} if follow else {})}
        silence = None if follow else SILENT_S  # a driver may have nothing to say for long
        with self._stream(_study(name, "logs"), silence, asked) as response:
            yield from response.iter_lines()

    def stop(self, name: str) -> Standing:
        """Takes a study out of the queue, or stops it in order; what it has done is kept."""
        return self._understood(Standing.from_plain, self._json("POST", _study(name, "stop")))

    def resume(self, name: str, **settings: Any) -> Standing:
        """Puts a study into the queue again; with more to do as `**{"budget.trials": 80}`."""
        plain = self._json("POST", _study(name, "resume"), json={"set": settings} if settings else None)
        return self._understood(Standing.from_plain, plain)

    def amend(
        self, name: str, settings: Mapping[str, Any] | None = None, priority: int | None = None
    ) -> Standing:
        """Changes what may change of a study that does not run, or its priority."""
        wanted = {"set": dict(settings) if settings else None, "priority": priority}
        asked = {key: value for key, value in wanted.items() if value is not None}
        return self._understood(Standing.from_plain, self._json("PATCH", _study(name), json=asked))

    def delete(self, name: str) -> None:
        """Removes a study with all its results."""
        self._call("DELETE", _study(name), params={"confirm": name})

    def best(self, name: str, k: int = 1, where: str | None = None) -> Answer:
        """The k best configs of a study and how sure that is; `where` is a condition in SQL."""
        from cbe.report.best import Answer

        plain = self._json("GET", _study(name, "best"), params=_choice(k, where))
        return self._understood(TypeAdapter(Answer).validate_python, plain)

    def best_of_all(self, k: int = 1, where: str | None = None) -> tuple[Task, ...]:
        """The k best configs of all studies, for each set of images and labels."""
        from cbe.report.across import Task

        plain = self._json("GET", "/api/best", params=_choice(k, where))
        return self._understood(TypeAdapter(tuple[Task, ...]).validate_python, plain.get("tasks"))

    def sql(self, query: str, study: str | None = None) -> pa.Table:
        """The answer to one SELECT over trials, metrics, confusions and events."""
        import pyarrow as pa

        plain = self._json("POST", "/api/sql", json={"query": query, "study": study})
        names, rows, cut = self._understood(itemgetter("columns", "rows", "truncated"), plain)
        if cut:
            raise InputError(
                f"the answer has more than the {len(rows):,} rows that the service sends; `limit` it, or ask "
                "for less"
            )
        return pa.Table.from_arrays([pa.array([row[n] for row in rows]) for n in range(len(names))], names)

    def report(self, name: str) -> str:
        """The study's report: one HTML file that opens offline."""
        return self._call("GET", _study(name, "report"), timeout=300).text

    def cluster(self) -> dict[str, Any]:
        """The machines of the cluster, and what of them is used."""
        return self._json("GET", "/api/cluster")

    def events(self, name: str | None = None) -> Iterator[tuple[str, Any]]:
        """What happens to a study, or to all, as it happens: first how all stands, then what changes."""
        path = "/api/events" if name is None else _study(name, "events")
        with self._stream(path, SILENT_S) as response:
            yield from _server_sent(response.iter_lines())

    def watch(self, name: str) -> Iterator[StandingDetails]:
        """A study as it goes on, until it goes on no longer; a line that breaks is taken up again."""
        waits = iter(_RECONNECT_S)
        while True:
            broken: RunError | None = None
            try:
                for found in self._news(name):
                    yield found
                    waits = iter(_RECONNECT_S)
                    if not found.overview.under_way:
                        return
            except RunError as error:
                broken = error
            wait = next(waits, None)
            if broken and wait is None:
                raise broken
            time.sleep(wait or 0)

    def _news(self, name: str) -> Iterator[StandingDetails]:
        """A study until it goes on no longer, or its line of events ends."""
        found = self.show(name)
        yield found
        for kind, data in self.events(name) if found.overview.under_way else ():
            if kind == "gone":
                raise InputError(f"{name}: was deleted; see what there is with `cbe ls`")
            found = self._understood(partial(_changed, found, kind), data)
            if not found.overview.under_way:
                found = self.show(name)  # with its last trials
            yield found

    def _json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """The object that is answered."""
        return self._understood(_object, self._call(method, path, **request))

    def _call(self, method: str, path: str, **request: Any) -> httpx.Response:
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
    def _stream(
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
        why = "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error) or "broken off"
        done = "; it may have been done all the same: look with `cbe ls`" if sent else ""
        return RunError(f"{self.url}: cannot be reached ({why}); check the address and the service{done}")

    def _understood(self, read: Callable[[Any], Found], plain: Any) -> Found:
        try:
            return read(plain)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(
                f"{self.url}: answers what this version does not understand ({type(error).__name__}); "
                "install the version that the service has"
            ) from error


def checked(given: str) -> str:
    """An address as it is used; refuses what is none, or tells a password to whoever reads it."""
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


def _study(name: str, *below: str) -> str:
    """The path of a study; a name that would lead elsewhere is refused."""
    for part in (name, *below):
        if not part.strip("."):
            raise InputError(f"{part!r}: is no name; see what there is with `cbe ls`")
    return "/api/studies/" + "/".join(quote(part, safe="") for part in (name, *below))


def _file(given: str | Path) -> bytes:
    """A study's text: what is given, or what the file of that name holds."""
    named = isinstance(given, Path) or ("\n" not in given and given.endswith((".yaml", ".yml")))
    if not named:
        return str(given).encode()
    try:
        return Path(given).read_bytes()
    except OSError as error:
        raise InputError(f"{given}: cannot be read ({error.strerror}); give a study file (YAML)") from None


def _object(response: httpx.Response) -> dict[str, Any]:
    return dict(response.json())


def _page(plain: Mapping[str, Any]) -> tuple[list[Standing], int]:
    return [Standing.from_plain(each) for each in plain["studies"]], int(plain["total"])


def _choice(k: int, where: str | None) -> dict[str, Any]:
    return {"k": k, **({"where": where} if where else {})}


def _fault(plain: Mapping[str, Any]) -> Fault:
    return Fault(str(plain.get("where")), str(plain.get("problem")), str(plain.get("hint") or ""))


def _server_sent(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
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


def _changed(found: StandingDetails, kind: str, plain: Any) -> StandingDetails:
    """A study after an event; one of a kind that is not known changes nothing."""
    if kind == "study":
        return replace(found, overview=Overview.from_plain(plain), standing=Standing.from_plain(plain))
    if kind == "trials":
        rows = {row["trial"]: row for row in (*found.trials, *map(row_from_plain, plain["trials"]))}
        return replace(found, trials=tuple(in_order(rows.values())))
    return found
