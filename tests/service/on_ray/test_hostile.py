"""What is made to break the service is refused in words and in time, and the service goes on as it was."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cbe.service.queue.ray_jobs import Jobs
from cbe.service.routes import answers
from cbe.service.serve import MOST_HEAD, _OneLine
from cbe.service.service import Service
from cbe.service.web.app import create_app
from cbe.service.web.middleware import MOST_BODY_BYTES
from cbe.spec import StudyConfig
from cbe.store.folder import Store
from tests.made import finished
from tests.service.conftest import ENDLESS_SQL, NOBODY, Served, serving, text_of
from tests.service.on_ray.hostile_inputs import (
    CLOSED_SQL,
    ELSEWHERE,
    FORGED,
    JSONS,
    NAMES,
    ODD_SQL,
    TEXTS,
    Text,
)
from tests.service.on_ray.hostile_requests import (
    SOON_S,
    all_posted,
    asked,
    beside,
    memory_mb,
    posted,
    quoted,
    raw,
    refused,
    studies,
)
from tests.waiting import until

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING|ERROR) \S.*")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Without tokens and without a cluster, with a study to ask about and another to be changed."""
    store = tmp_path_factory.mktemp("hostile") / "store"
    finished(store)
    finished(store, "victim")
    with serving(store, NOBODY) as found:
        yield found


@pytest.fixture(autouse=True)
def unharmed(service: Served) -> Iterator[None]:
    """Whatever a test does, the service goes on, its log is in order, and it writes into its store alone."""
    before, begun = beside(service), len(service.log.read_text())
    yield
    assert service.process.poll() is None
    assert service.http.get("/api/studies/made", timeout=SOON_S).json()["state"] == "finished"
    assert beside(service) == before
    told = service.log.read_text()[begun:]
    assert [line for line in told.splitlines() if not LINE.fullmatch(line) or "forged" in line] == []


def test_sql_that_never_ends_keeps_nobody_else_waiting_and_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(tmp_path)
    ours = Service(Store.open(str(tmp_path)), Jobs(NOBODY))
    sql, best = "/api/sql", "/api/studies/made/best"

    async def ask() -> None:
        transport = httpx.ASGITransport(create_app(ours))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as caller:
            limit_s = 1.0
            monkeypatch.setattr(answers, "SQL_S", limit_s)
            begun = time.monotonic()
            ended = await caller.get(best, params={"where": ENDLESS_SQL})
            assert f"took longer than {limit_s:g} s" in refused(ended, 422)["message"]
            assert time.monotonic() - begun >= limit_s and not ours.queries._running

            monkeypatch.setattr(answers, "SQL_S", 3600.0)  # what is answered was not kept waiting for its end
            endless = asyncio.ensure_future(caller.post(sql, json={"query": f"select {ENDLESS_SQL}"}))
            await asyncio.to_thread(until, lambda: ours.queries._running, SOON_S, "its process")
            assert (await caller.get("/api/studies/made")).status_code == 200
            assert (await caller.post("/api/check", content="name: x\n")).json()["faults"] == []
            assert (await caller.post(sql, json={"query": "select 1"})).json()["rows"] == [[1]]
            assert not endless.done()
            ours.queries.close()
            assert (await endless).status_code == 422

    asyncio.run(ask())


def test_no_name_in_an_address_leads_out_of_the_store(service: Served) -> None:
    paths = service.http.get("/openapi.json").json()["paths"]
    of_a_study = [(method.upper(), path) for path in paths if "{name}" in path for method in paths[path]]
    assert len(of_a_study) > 10
    for (method, path), name in itertools.product(of_a_study, NAMES):
        address = path.replace("{name}", quoted(name)).replace("{trial}", "t0000")
        body = {"json": {}} if method in ("POST", "PATCH") else {}
        refused(service.http.request(method, address, **body), 404, 405, 422)
    for name in (
        "..",
        ".",
        "../../../../etc/passwd",
        "..;/x",
        "\xff\xfe",
        "a b",
        "%ff",
        "%c0%ae",
        "%",
        "a\0b",
    ):
        for end in ("", "/file", "/../../x"):
            refused(
                raw(service, f"GET /api/studies/{name}{end} HTTP/1.1".encode("latin-1")), 400, 404, 405, 422
            )


@pytest.mark.parametrize("path", ["/api/studies/made/trials/{}", "/api/studies/made/metrics?trial={}"])
def test_no_name_of_a_trial_leads_anywhere_else(service: Served, path: str) -> None:
    for name in [*filter(None, NAMES), "t" + "9" * 500, "c0000\n", "t0000/../t0001"]:
        refused(service.http.get(path.format(quoted(name))), 404, 422)


def test_the_page_has_its_own_files_and_no_others(service: Served) -> None:
    assert service.http.get("/assets/main.js").status_code == 200
    others = ("index.html", "../service.py", "__init__.py", ".js", "x" * 5000 + ".js", "nothing.js")
    for name in [*NAMES, *others, *(f"{name}.js" for name in NAMES)]:
        refused(service.http.get(f"/assets/{quoted(name)}"), 404, 405)


def test_no_name_in_a_file_becomes_a_folder(service: Served) -> None:
    before = studies(service)
    names: list[Any] = [*NAMES, None, 1, 1.5, [], ["x"], {}]
    for found in all_posted(
        service, "/api/studies", {str(name): yaml.safe_dump({"name": name}) for name in names}
    ).values():
        assert [fault["key"] for fault in refused(found, 422)["faults"]] == ["name"]
    for name in (NAMES[0], None, ["x"]):
        found = service.http.post("/api/studies", json={"name": name})
        assert [fault["key"] for fault in refused(found, 422)["faults"]] == ["name"]
    assert studies(service) == before
    assert {path.name for path in service.store.iterdir()} <= {"_service", "_index", *before}


def test_no_text_that_is_no_study_file_does_harm(service: Served) -> None:
    before = studies(service)
    for kind, found in all_posted(service, "/api/studies", TEXTS).items():
        told = refused(found, 422)
        assert len(told["faults"]) <= 100 and len(found.content) < 1_000_000, kind
    some = {kind: TEXTS[kind] for kind in ("laughs", "python", "twice", "utf-16", "a large file")}
    for found in all_posted(service, "/api/plan", some).values():
        refused(found, 422)
    for kind, found in all_posted(service, "/api/check", some).items():
        if kind == "utf-16":
            refused(found, 422)
        else:
            assert found.status_code == 200 and found.json()["faults"] and found.json()["about"] is None
    assert studies(service) == before


def test_faults_of_a_file_say_where(service: Served) -> None:
    found = all_posted(
        service, "/api/check", {kind: TEXTS[kind] for kind in ("twice", "alias", "a large grid")}
    )
    told = {
        kind: [(fault["line"], fault["problem"]) for fault in each.json()["faults"]]
        for kind, each in found.items()
    }
    assert told == {
        "twice": [(2, "not valid YAML: name is given twice")],
        "alias": [(2, "not valid YAML: aliases are not allowed")],
        "a large grid": [(3, "a grid of 3,000,000 points; at most 100,000 can be run")],
    }


def test_a_body_that_is_too_large_is_not_taken(service: Served) -> None:
    part, times = b"#" * 1_000_000, 50

    def parts() -> Iterator[bytes]:
        yield from itertools.repeat(part, times)

    for method, path in (("POST", "/api/studies"), ("POST", "/api/sql"), ("PATCH", "/api/studies/made")):
        whole = service.http.request(method, path, content=part * times)
        assert "larger than 1,000,000 bytes" in refused(whole, 413)["message"]
        for kind in ("application/yaml", "application/json"):
            chunked = service.http.request(method, path, content=parts(), headers={"content-type": kind})
            refused(chunked, 413)
    assert posted(service, "/api/check", b"#" * MOST_BODY_BYTES).status_code == 200
    refused(posted(service, "/api/check", b"#" * (MOST_BODY_BYTES + 1)), 413)
    assert memory_mb(service) < 1000


def test_a_head_that_does_not_end_is_not_kept(service: Served) -> None:
    begun = memory_mb(service)
    chunk = b"POST /api/check HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    endless = {
        "address": (b"GET /", b"a" * 1000),
        "header": (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ", b"a" * 1000),
        "headers": (
            b"GET / HTTP/1.1\r\nhost: localhost\r\n",
            b"".join(b"x%d: y\r\n" % n for n in range(150)),
        ),
        "chunk's size": (chunk + b"5;", b"a" * 1000),
        "trailer": (chunk + b"0\r\nx: ", b"a" * 1000),
    }
    for kind, (top, more) in endless.items():
        address = ("127.0.0.1", service.port)
        with socket.create_connection(address, timeout=SOON_S) as line, pytest.raises(OSError):
            line.sendall(top)
            for _ in range(50_000):
                line.sendall(more)  # until it hangs up
            pytest.fail(f"50 MB were read of one {kind}")
    within = {"host": "localhost", **{f"x-{n}": "y" * 1000 for n in range(MOST_HEAD // 1100)}}
    assert service.http.get("/healthz", headers=within).status_code == 200
    assert memory_mb(service) < begun + 100


def test_a_length_that_is_none_is_refused(service: Served) -> None:
    for length in (b"-1", b"1e9", b"9" * 30, b"\xb2", b"+5", b"5, 6", b""):
        refused(
            raw(service, b"POST /api/check HTTP/1.1", b"content-length: " + length, body=b"a: 1"), 400, 413
        )
    both = (b"content-length: 4", b"transfer-encoding: chunked")
    refused(raw(service, b"POST /api/check HTTP/1.1", *both, body=b"0\r\n\r\n"), 400)


def test_clients_that_say_nothing_or_hang_up_are_borne(service: Served) -> None:
    with ExitStack() as lines:
        for top in (
            b"",
            b"GET / HT",
            b"POST /api/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\na",
        ):
            for _ in range(100):
                address = ("127.0.0.1", service.port)
                line = lines.enter_context(socket.create_connection(address, timeout=SOON_S))
                line.sendall(top)
        assert service.http.get("/healthz", timeout=SOON_S).status_code == 200
    assert posted(service, "/api/check", "a: 1").status_code == 200


@pytest.mark.parametrize("value", [None, 1, 1.5, True, "x", [], [[]], {"x": {"y": []}}])
def test_values_of_any_type_at_any_level_are_refused_in_words(service: Served, value: Any) -> None:
    sections = dict.fromkeys(StudyConfig.model_fields, value)
    below = {
        name: dict.fromkeys(field.annotation.model_fields, value)
        for name, field in StudyConfig.model_fields.items()
        if hasattr(field.annotation, "model_fields")
    }
    searched = {"training.lr": value, "ensemble.heads": {"int": value, "when": value}}
    for body in (sections | {"name": "x"}, below | {"name": "x", "search": searched}):
        assert service.http.post("/api/check", json=body).status_code == 200
    refused(posted(service, "/api/studies", json.dumps(value), "application/json"), 422)
    service.http.post("/api/studies/victim/stop")
    for method, path in (("PATCH", "/api/studies/victim"), ("POST", "/api/studies/victim/resume")):
        for settings in ({"": value}, {"budget..trials": value}, {"x.y": value}, {"1": value}):
            refused(service.http.request(method, path, json={"set": settings}), 422)
        refused(service.http.request(method, path, json={"x": value}), 422)
        for body in (value, {"set": value}, {"set": {"budget": value}}):
            assert service.http.request(method, path, json=body).status_code in (200, 409, 422)
    if type(value) is not int and value is not None:
        refused(service.http.patch("/api/studies/victim", json={"priority": value}), 422)
    for body in (
        value,
        {"query": value},
        {"query": "select 1", "study": value or 5},
        {"query": "select 1", "x": 1},
    ):
        refused(service.http.post("/api/sql", json=body), 404, 422)


@pytest.mark.parametrize("path", ["/api/studies/victim", "/api/studies/victim/resume", "/api/sql"])
def test_no_json_does_harm(service: Served, path: str) -> None:
    service.http.post("/api/studies/victim/stop")
    before = service.http.get("/api/studies/victim/file").text
    method = "PATCH" if path.endswith("victim") else "POST"
    for kind, text in JSONS.items():
        found = service.http.request(method, path, content=text, headers={"content-type": "application/json"})
        refused(found, 400, 422)
        assert len(found.content) < 200_000, kind
    assert service.http.get("/api/studies/victim/file").text == before


def test_json_that_is_no_study_is_refused(service: Served) -> None:
    texts: list[Text] = [
        '{"name": "x", "budget": {"trials": 3, "trials": 4}}',
        '{"name": "x", "training": {"lr": NaN}}',
        *(
            JSONS[kind]
            for kind in ("braces", "closed brackets", "huge integer", "surrogate below", "invalid")
        ),
        *(JSONS[kind] for kind in ("many keys", "yaml")),
    ]
    for text in texts:
        refused(posted(service, "/api/studies", text, "application/json"), 422)
    for kind in (b"application/xml", b"multipart/form-data; boundary=x", b"\xff"):
        refused(service.http.post("/api/studies", content=text_of("x"), headers={"content-type": kind}), 415)


@pytest.mark.parametrize("key", ELSEWHERE)
def test_a_file_cannot_say_where_things_are_written(service: Served, key: str) -> None:
    section, _, name = key.partition(".")
    for value in (ELSEWHERE[key], f"/tmp/{key}", "..", "~"):
        text = f"name: elsewhere\n{section}:\n  {name}: {json.dumps(value)}\n"
        told = refused(posted(service, "/api/studies", text), 422)
        assert [(fault["key"], fault["line"]) for fault in told["faults"]] == [(key, 3)], told
    assert "elsewhere" not in studies(service)
    assert posted(service, "/api/check", f"name: x\nstorage: {service.store}\n").json()["faults"] == []


def test_nor_can_what_is_set_later(service: Served) -> None:
    service.http.post("/api/studies/victim/stop")
    before = service.http.get("/api/studies/victim/file").text
    data, storage = (yaml.safe_load(before)[section] for section in ("data", "storage"))
    tricks: list[dict[str, Any]] = [
        *({key: value} for key, value in ELSEWHERE.items()),
        {"name": "other"},
        {"storage": "hit"},
        {"storage": {**storage, "optuna": "sqlite:///hit.db"}},
        {"data": {**data, "root": "hit"}},
        {"data": {**data, "root": "hit"}, "budget.trials": 99},
        {" storage.optuna": "sqlite:///hit.db"},
        {"storage.optuna ": "sqlite:///hit.db"},
        {"storage={optuna: 'sqlite:///hit.db'} #": 1},
        {"budget.trials=99\nstorage.optuna": "sqlite:///hit.db"},
        {"data.root=hit #": 1},
        {"name=other #": 1},
        {"Storage.optuna": "sqlite:///hit.db"},
    ]
    for method, path in (("PATCH", "/api/studies/victim"), ("POST", "/api/studies/victim/resume")):
        for settings in tricks:
            refused(service.http.request(method, path, json={"set": settings}), 422)
    assert service.http.get("/api/studies/victim/file").text == before


def test_sql_reads_no_files_changes_nothing_and_takes_no_more_than_its_share(service: Served) -> None:
    for query, found in asked(service, *CLOSED_SQL).items():
        told = refused(found, 422)
        assert "root:" not in told["message"] and len(told["message"]) < 200_000, query
    for where in (f"trial in ({CLOSED_SQL[0]})", "true; drop table trials", "\0", "x" * 10_001):
        for path in ("/api/studies/made/best", "/api/best"):
            refused(service.http.get(path, params={"where": where}), 422)
    assert memory_mb(service) < 1000


def test_sql_of_every_type_is_answered_as_json(service: Served) -> None:
    def no_number(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    for query, found in asked(service, *ODD_SQL).items():
        assert found.status_code == 200, found.text
        plain = json.loads(found.content, parse_constant=no_number)
        assert set(plain) == {"columns", "rows", "truncated"} and plain["rows"], query
        assert all(len(row) == len(plain["columns"]) for row in plain["rows"])
        assert str(Path.home()) not in found.text, query


def test_the_same_file_sent_often_at_once_is_one_study(service: Served) -> None:
    text = text_of("same")
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda _: service.submit(text), range(10)))
    assert sorted(each.status_code for each in found) == [200] * 9 + [201]
    assert len({each.json()["submitted"] for each in found}) == 1
    events = service.http.get("/api/audit").json()["events"]
    assert [each["study"] for each in events if each["kind"] == "submitted"].count("same") == 1


def test_of_several_files_of_one_name_one_is_taken(service: Served) -> None:
    texts = [text_of("disputed", budget={"trials": number}) for number in range(2, 10)]
    with ThreadPoolExecutor(len(texts)) as pool:
        found = list(pool.map(service.submit, texts))
    assert sorted(each.status_code for each in found) == [201] + [409] * 7
    taken = next(number for number, each in zip(range(2, 10), found, strict=True) if each.status_code == 201)
    assert service.http.get("/api/studies/disputed").json()["search"]["total"] == taken
    for each in found:
        if each.status_code == 409:
            assert [fault["key"] for fault in refused(each)["faults"]][1:] == ["budget.trials"]


def test_no_text_begins_a_line_of_the_log(service: Served) -> None:
    made = posted(service, "/api/studies", yaml.safe_dump({"name": "told", "question": f"why{FORGED}"}))
    assert made.status_code == 201 and FORGED in made.json()["question"]
    service.http.get(f"/api/cluster/{quoted(FORGED)}", headers={"user-agent": "x", "x-request-id": "x"})
    assert service.http.get("/api/cluster").status_code == 503  # which is logged
    until(lambda: "/api/cluster" in service.log.read_text(), SOON_S, "the line")
    try:
        raise ValueError(f"hit{FORGED}\u2028{FORGED}\x1b[31m")
    except ValueError:
        record = logging.LogRecord(
            "x", logging.ERROR, "", 1, "%s", (f"hit{FORGED}\r{FORGED}",), sys.exc_info()
        )
    first, *others = _OneLine("%(asctime)s %(levelname)s %(message)s").format(record).split("\n")
    assert LINE.fullmatch(first) and others and all(line.startswith("  ") for line in others)
    assert not re.search(r"[\x1b\r\u2028]", first + "".join(others))
