"""What `cbe.connect` gives: the studies of a CBE service, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import quote

from pydantic import TypeAdapter

from cbe.errors import InputError, RunError
from cbe.service.clients.interface import command_at, require_no_file
from cbe.service.clients.transport import Transport, opened, server_sent
from cbe.service.live.study_status import StudyStatus, StudyStatusDetails
from cbe.service.trials import Trial
from cbe.spec import StudyConfig
from cbe.spec.files import read_setting, text_to_send
from cbe.study.overview import Overview, in_order, row_from_plain

if TYPE_CHECKING:
    import pyarrow as pa

    from cbe.report.across import Task
    from cbe.report.best import Answer

PAGE = 200  # studies a request
SILENT_S = 60.0  # a line of events on which nothing is heard for so long is dead; the service says more often
_RECONNECT_S = (1, 2, 4, 8, 15, 30)
_YAML = {"content-type": "application/yaml"}


def connect(url: str | None = None, token: str | None = None, *, insecure: bool | None = None) -> Client:
    """A CBE service at http(s)://…; CBE_ADDRESS and CBE_TOKEN are taken where nothing is given.

    A token is sent in the clear (http) to this machine only, unless `insecure` or CBE_INSECURE=1 allows it.
    """
    return Client(opened(url, token, insecure))


class Client:
    """A service's studies: submitted, watched, steered, asked."""

    begin: ClassVar[str] = "cbe submit FILE"

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.url = transport.url

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def command(self, verb: str, name: str) -> str:
        """The command that does something with a study or a trial, as it can be typed here."""
        return command_at(self.url, verb, name)

    def local_folder(self, name: str) -> None:
        """None: a service has its own files."""

    def check(self, text: str | Path) -> dict[str, Any]:
        """What is wrong with a study file (`faults`), or what it asks for (`about`)."""
        return self._transport.object("POST", "/api/check", content=_file(text), headers=_YAML)

    def plan(self, text: str | Path) -> dict[str, Any]:
        """What a study will take: trials, steps, time and money as ranges."""
        return self._transport.object("POST", "/api/plan", content=_file(text), headers=_YAML, timeout=300)

    def submit(
        self,
        text: str | Path,
        priority: int = 0,
        *,
        settings: Sequence[str] = (),
        store: str | None = None,
        code: Path | None = None,
    ) -> StudyStatus:
        """Puts a study into the queue; the same file again is the same study.

        `settings` are of the form key=value, over the file of that name.
        """
        if store or code:
            what = "--store" if store else "--code"
            raise InputError(f"{what}: {self.url} is a service, which has its own; leave it out")
        asked = {"priority": priority} if priority else {}
        plain = self._transport.object(
            "POST", "/api/studies", content=_file(text, settings), params=asked, headers=_YAML
        )
        return self._transport.understood(StudyStatus.from_plain, plain)

    def ls(
        self, *, state: str | None = None, owner: str | None = None, search: str | None = None
    ) -> list[StudyStatus]:
        """The studies that are there, or those of a state, of an owner, or with a word in them."""
        wanted = {"state": state, "owner": owner, "search": search}
        asked = {name: value for name, value in wanted.items() if value is not None}
        found: list[StudyStatus] = []
        while True:
            page = self._transport.object(
                "GET", "/api/studies", params={**asked, "limit": PAGE, "offset": len(found)}
            )
            more, total = self._transport.understood(_page, page)
            found += more
            if not more or len(found) >= total:
                return found

    def show(self, name: str) -> StudyStatusDetails:
        """A study with all its trials, and its standing."""
        return self._transport.understood(
            StudyStatusDetails.from_plain, self._transport.object("GET", _study(name))
        )

    def trial(self, name: str, trial: str) -> Trial:
        """One trial: what was recorded, its curve, its config."""
        plain = self._transport.object("GET", _study(name, "trials", trial))
        return self._transport.understood(Trial.from_plain, plain)

    def logs(self, name: str, follow: bool = False, tail: int = 500) -> Iterator[str]:
        """The last lines that the study's driver has printed; those that follow, too, until it ends."""
        asked: dict[str, Any] = {"tail": tail, **({"follow": "true"} if follow else {})}
        silence = None if follow else SILENT_S  # a driver may have nothing to say for long
        with self._transport.stream(_study(name, "logs"), silence, asked) as response:
            yield from response.iter_lines()

    def stop(self, name: str) -> StudyStatus:
        """Takes a study out of the queue, or stops it in order; its results are kept."""
        return self._transport.understood(
            StudyStatus.from_plain, self._transport.object("POST", _study(name, "stop"))
        )

    def resume(
        self, name: str, changes: Sequence[str] = (), *, file: Path | None = None, **settings: Any
    ) -> StudyStatus:
        """Puts a study into the queue again.

        With more to do as `["budget.trials=80"]`, or `**{"budget.trials": 80}`. `file` is refused.
        """
        require_no_file(self.url, file)
        settings |= dict(map(read_setting, changes))
        plain = self._transport.object(
            "POST", _study(name, "resume"), json={"set": settings} if settings else None
        )
        return self._transport.understood(StudyStatus.from_plain, plain)

    def amend(
        self, name: str, settings: Mapping[str, Any] | None = None, priority: int | None = None
    ) -> StudyStatus:
        """Changes what may change of a study that does not run, or its priority."""
        wanted = {"set": dict(settings) if settings else None, "priority": priority}
        asked = {key: value for key, value in wanted.items() if value is not None}
        return self._transport.understood(
            StudyStatus.from_plain, self._transport.object("PATCH", _study(name), json=asked)
        )

    def delete(self, name: str) -> None:
        """Removes a study with all its results."""
        self._transport.call("DELETE", _study(name), params={"confirm": name})

    def best(self, name: str, k: int = 1, where: str | None = None) -> Answer:
        """The k best configs of a study and how sure that is; `where` is a condition in SQL."""
        from cbe.report.best import Answer

        plain = self._transport.object("GET", _study(name, "best"), params=_choice(k, where))
        return self._transport.understood(TypeAdapter(Answer).validate_python, plain)

    def best_of_all(self, k: int = 1, where: str | None = None) -> tuple[Task, ...]:
        """The k best configs of all studies, for each set of images and labels."""
        from cbe.report.across import Task

        plain = self._transport.object("GET", "/api/best", params=_choice(k, where))
        return self._transport.understood(TypeAdapter(tuple[Task, ...]).validate_python, plain.get("tasks"))

    def sql(self, query: str, study: str | None = None) -> pa.Table:
        """The answer to one SELECT over trials, metrics, confusions and events."""
        import pyarrow as pa

        plain = self._transport.object("POST", "/api/sql", json={"query": query, "study": study})
        names, rows, cut = self._transport.understood(itemgetter("columns", "rows", "truncated"), plain)
        if cut:
            raise InputError(
                f"the answer has more than the {len(rows):,} rows that the service sends; `limit` it, or ask "
                "for less"
            )
        return pa.Table.from_arrays([pa.array([row[n] for row in rows]) for n in range(len(names))], names)

    def report(self, name: str) -> str:
        """The study's report: one HTML file that opens offline."""
        return self._transport.call("GET", _study(name, "report"), timeout=300).text

    def cluster(self) -> dict[str, Any]:
        """The machines of the cluster, and what of them is used."""
        return self._transport.object("GET", "/api/cluster")

    def events(self, name: str | None = None) -> Iterator[tuple[str, Any]]:
        """What happens to a study, or to all, as it happens: first how all stands, then what changes."""
        path = "/api/events" if name is None else _study(name, "events")
        with self._transport.stream(path, SILENT_S) as response:
            yield from server_sent(response.iter_lines())

    def watch(self, name: str) -> Iterator[StudyStatusDetails]:
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

    def _news(self, name: str) -> Iterator[StudyStatusDetails]:
        """A study until it goes on no longer, or its line of events ends."""
        found = self.show(name)
        yield found
        for kind, data in self.events(name) if found.overview.under_way else ():
            if kind == "gone":
                raise InputError(f"{name}: was deleted; see what there is with `cbe ls`")
            found = self._transport.understood(partial(_changed, found, kind), data)
            if not found.overview.under_way:
                found = self.show(name)  # with its last trials
            yield found


def _study(name: str, *below: str) -> str:
    """The path of a study; a name that would lead elsewhere is refused."""
    for part in (name, *below):
        if not part.strip("."):
            raise InputError(f"{part!r}: is no name; see what there is with `cbe ls`")
    return "/api/studies/" + "/".join(quote(part, safe="") for part in (name, *below))


def _file(given: str | Path, settings: Sequence[str] = ()) -> bytes:
    """A study's text: what is given, or what the file of that name holds, with settings over it."""
    if settings:
        return text_to_send(StudyConfig, Path(given), settings).encode()
    named = isinstance(given, Path) or ("\n" not in given and given.endswith((".yaml", ".yml")))
    if not named:
        return str(given).encode()
    path = Path(given)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{given}: cannot be read ({error.strerror}); give a study file (YAML)") from None
    with suppress(InputError):  # the service lists the faults
        return text_to_send(StudyConfig, path).encode()
    return content


def _page(plain: Mapping[str, Any]) -> tuple[list[StudyStatus], int]:
    return [StudyStatus.from_plain(each) for each in plain["studies"]], int(plain["total"])


def _choice(k: int, where: str | None) -> dict[str, Any]:
    return {"k": k, **({"where": where} if where else {})}


def _changed(found: StudyStatusDetails, kind: str, plain: Any) -> StudyStatusDetails:
    """A study after an event; one of a kind that is not known changes nothing."""
    if kind == "study":
        return replace(found, overview=Overview.from_plain(plain), study_status=StudyStatus.from_plain(plain))
    if kind == "trials":
        rows = {row["trial"]: row for row in (*found.trials, *map(row_from_plain, plain["trials"]))}
        return replace(found, trials=tuple(in_order(rows.values())))
    return found
