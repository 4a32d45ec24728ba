"""What is made to break the service: it is refused in words, in time, and the service goes on as it was."""

from __future__ import annotations

import itertools
import json
import logging
import math
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cbe.service.guard import MOST_BYTES
from cbe.service.routes.answers import SQL_S
from cbe.service.serve import _OneLine
from cbe.spec import StudyConfig
from tests.made import HOSTILE, finished
from tests.service.conftest import NOBODY, Served, serving, text_of, until

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) \S.*")
SOON_S = 30.0

NAMES = [
    *(
        "../x",
        "..",
        ".",
        "../../etc/passwd",
        "..\\x",
        "a/../../x",
        "/etc/passwd",
        "a..b",
        ".hidden",
        "_service",
    ),
    *(
        "-x",
        "A",
        "a" * 65,
        "a" * 5000,
        "",
        " ",
        "a b",
        "ä",
        "名",
        "a\0b",
        "\0",
        "a\nb",
        "a\r\nX: 1",
        "a%2fb",
        "%2e%2e",
    ),
    *("a?b", "a#b", "a;b", "$(id)", "`id`", "{x}", "a\u2028b", "\u202ea", HOSTILE),
]
DEEP = "[" * 100_000
LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(b)}: &{chr(b)} [{', '.join(['*' + chr(b - 1)] * 9)}]\n" for b in range(ord("b"), ord("j"))
)
TEXTS: dict[str, str | bytes] = {
    "laughs": f"name: x\n{LAUGHS}",
    "alias": "name: x\ntraining: &a {steps: 4}\nloss: *a\n",
    "a circle": "name: x\nsearch: &a {a: *a}\n",
    "merge": "name: x\nbase: &b {trials: 3}\nbudget:\n  <<: [*b, *b]\n",
    "python": "name: x\nquestion: !!python/object/apply:os.system ['touch hit']\n",
    "python name": "name: x\nquestion: !!python/name:os.system\n",
    "unknown tag": "name: x\nquestion: !evil {a: 1}\n",
    "binary": "name: x\nquestion: !!binary /////w==\n",
    "set": "name: x\nsearch: !!set {a, b}\n",
    "brackets": f"name: x\nsearch: {DEEP}",
    "fewer brackets": f"name: x\nsearch: {DEEP[:20_000]}",
    "closed brackets": f"name: x\nsearch: {'[' * 900}{']' * 900}\n",
    "braces": "{a: " * 3000 + "}" * 3000,
    "indents": "".join(" " * n + "a:\n" for n in range(1300)),
    "no date": "name: x\nquestion: 2026-99-99\n",
    "no time": "name: x\nquestion: 2026-01-01 99:99:99\n",
    "huge integer": f"name: x\nbudget: {{trials: {'9' * 10_000}}}\n",
    "integer": f"name: x\nbudget: {{trials: {'9' * 4000}}}\n",
    "sexagesimal": f"name: x\nbudget: {{trials: 1{':59' * 5000}}}\n",
    "huge float": "name: x\ntraining: {lr: 1.0e+999}\n",
    "not a number": "name: x\ntraining: {lr: .nan}\nbudget: {usd: .inf}\n",
    "surrogate": 'name: x\nquestion: "\\ud800"\n',
    "surrogate key": 'name: x\n"\\udfff": 1\n',
    "twice": "name: x\nname: y\n",
    "twice below": "name: x\nbudget: {trials: 3, trials: 4}\n",
    "no key": "name: x\n? [a, b]\n: 1\n",
    "number key": "name: x\n1: 2\n2.5: 3\nnull: 4\ntrue: 5\n",
    "several": "name: x\n---\nname: y\n",
    "nothing": "",
    "spaces": " \n\t\n",
    "a list": "- name: x\n",
    "a word": "name\n",
    "nul": "name: x\0y\n",
    "control": "name: x\nquestion: \x1b[31m\x07\n",
    "latin": "name: x\nquestion: ä\n".encode("latin-1"),
    "half a letter": "name: x\nquestion: 名".encode()[:-1],
    "utf-16": "name: x\n".encode("utf-16"),
    "random": bytes(range(256)) * 8,
    "unknown": "".join(f"key{n}: 1\n" for n in range(1000)),
    "a long key": f"name: x\n{'k' * 900}: 1\n",
    "a long value": f"name: {'n' * 90_000}\n",
    "an endless grid": "name: x\nsampler: grid\nsearch: {training.steps: {int: [1, 999999999999]}}\n",
    "a large grid": "name: x\nsampler: grid\nsearch: {training.steps: {int: [1, 3000000]}}\n",
    "a large file": f"name: x\ndata: {{labels: 40000, label_indices: {list(range(40_000))}}}\n",
    "a long comment": "name: x\n" + "# hello\n" * 100_000,
}
ELSEWHERE = {
    "storage.optuna": "sqlite:///hit.db",
    "storage.store": "hit",
    "data.root": "hit",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Without tokens and without a cluster; with a finished study to ask about."""
    store = tmp_path_factory.mktemp("hostile") / "store"
    finished(store)
    finished(store, "victim")
    with serving(store, NOBODY) as found:
        yield found


@pytest.fixture(autouse=True)
def unharmed(service: Served) -> Iterator[None]:
    """Whatever a test does, the service goes on, says so in orderly lines, and writes into its store alone."""
    before, begun = around(service), len(service.log.read_text())
    yield
    assert service.process.poll() is None
    assert service.http.get("/api/studies/made", timeout=5).json()["state"] == "finished"
    assert around(service) == before
    told = service.log.read_text()[begun:]
    assert "Traceback" not in told
    assert [line for line in told.splitlines() if not LINE.fullmatch(line)] == []


def around(service: Served) -> list[str]:
    """All that is beside the store, where the service works, and all studies in it."""
    beside = [str(path) for path in service.store.parent.rglob("*") if service.store not in path.parents]
    return sorted(beside)


def refused(found: httpx.Response, *codes: int) -> dict[str, Any]:
    """The refusal, after a look at its form."""
    assert 400 <= found.status_code < 500, (found.status_code, found.text[:500])
    assert not codes or found.status_code in codes, (found.status_code, found.text[:500])
    plain: dict[str, Any] = found.json()
    assert set(plain) == {"message", "faults"} and plain["message"], plain
    for fault in plain["faults"]:
        assert set(fault) == {"where", "line", "key", "problem", "hint"}
    return plain


def quoted(name: str) -> str:
    """Every byte of a name as a percent sign and two digits."""
    return "".join(f"%{byte:02x}" for byte in name.encode())


def raw(service: Served, *lines: bytes, body: bytes = b"") -> httpx.Response:
    """What is answered to a request that no library would send."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=SOON_S) as line:
        host = f"host: 127.0.0.1:{service.port}".encode()
        line.sendall(b"\r\n".join([lines[0], host, b"connection: close", *lines[1:], b"", body]))
        answer = b""
        while part := line.recv(65536):
            answer += part
    top, _, content = answer.partition(b"\r\n\r\n")
    return httpx.Response(int(top.split()[1]), content=content)


def posted(service: Served, path: str, text: str | bytes, kind: str = "application/yaml") -> httpx.Response:
    begun = time.monotonic()
    found = service.http.post(path, content=text, headers={"content-type": kind})
    assert time.monotonic() - begun < SOON_S
    return found


def studies(service: Served) -> list[str]:
    return [each["study"] for each in service.http.get("/api/studies").json()["studies"]]


def test_no_name_in_an_address_leads_out_of_the_store(service: Served) -> None:
    paths = service.http.get("/openapi.json").json()["paths"]
    of_a_study = [(method.upper(), path) for path in paths if "{name}" in path for method in paths[path]]
    assert len(of_a_study) > 10
    for (method, path), name in itertools.product(of_a_study, NAMES):
        asked = path.replace("{name}", quoted(name)).replace("{trial}", "t0000")
        body = {"json": {}} if method in ("POST", "PATCH") else {}
        refused(service.http.request(method, asked, **body), 404, 405, 422)
    for name in (
        "..",
        ".",
        "../..",
        "../../../../etc/passwd",
        "..;/x",
        "\xff\xfe",
        "a b",
        "%ff",
        "%c0%ae",
        "%",
    ):
        for end in ("", "/file", "/../../x"):
            line = f"GET /api/studies/{name}{end} HTTP/1.1".encode("latin-1")
            found = raw(service, line)
            assert found.status_code in (400, 404, 405, 422), name


@pytest.mark.parametrize("path", ["/api/studies/made/trials/{}", "/api/studies/made/metrics?trial={}"])
def test_no_name_of_a_trial_leads_anywhere_else(service: Served, path: str) -> None:
    for name in [*NAMES, "t" + "9" * 12, "t" + "9" * 500, "c0000\n"]:
        found = service.http.get(path.format(quoted(name)))
        if not re.fullmatch(r"[ct][0-9]{4,12}", name) and name:
            refused(found, 404, 422)
        else:
            assert found.status_code in (200, 404, 405, 422)


def test_the_page_has_its_own_files_and_no_others(service: Served) -> None:
    assert service.http.get("/assets/main.js").status_code == 200
    others = (
        "index.html",
        "../service.py",
        "..%2fservice.py",
        "__init__.py",
        ".js",
        "x" * 5000 + ".js",
        "nothing.js",
    )
    for name in [*NAMES, *others, *(f"{name}.js" for name in NAMES)]:
        refused(service.http.get(f"/assets/{quoted(name)}"), 404, 405)


def test_no_name_in_a_file_becomes_a_folder(service: Served) -> None:
    before = studies(service)
    bodies: dict[str, list[str]] = {
        "application/yaml": [yaml.safe_dump({"name": name}) for name in NAMES],
        "application/json": [json.dumps({"name": name}) for name in (*NAMES[:3], None, 1, 1.5, [], ["x"], {})],
    }
    with ThreadPoolExecutor(4) as pool:
        for kind, texts in bodies.items():
            for found in pool.map(lambda text: posted(service, "/api/studies", text, kind), texts):  # noqa: B023
                assert [fault["key"] for fault in refused(found, 422)["faults"]] == ["name"]
    assert studies(service) == before
    assert {path.name for path in service.store.iterdir()} <= {"_service", *before}


@pytest.mark.parametrize("path", ["/api/studies", "/api/check", "/api/plan"])
def test_no_text_that_is_no_study_file_does_harm(service: Served, path: str) -> None:
    before = studies(service)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda text: posted(service, path, text), TEXTS.values()))
    for kind, found in zip(TEXTS, answers, strict=True):
        assert len(found.content) < 4_000_000, kind
        if path == "/api/check" and found.status_code == 200:
            plain = found.json()
            assert plain["faults"] and plain["about"] is None, kind
        else:
            assert len(refused(found, 422)["faults"]) <= 100, kind
    assert studies(service) == before


def test_faults_of_a_file_say_where(service: Served) -> None:
    for kind, line in {"twice": 2, "alias": 2, "python": 2, "no key": None}.items():
        told = refused(posted(service, "/api/studies", TEXTS[kind]), 422)
        assert [fault["line"] for fault in told["faults"]] == [line] or line is None, told


def test_a_body_that_is_too_large_is_not_taken(service: Served) -> None:
    size = 50_000_000
    part = b"#" * 1_000_000

    def parts() -> Iterator[bytes]:
        yield from itertools.repeat(part, size // len(part))

    routes = [
        ("POST", "/api/studies"),
        ("POST", "/api/sql"),
        ("PATCH", "/api/studies/made"),
        ("POST", "/nothing"),
    ]
    for method, path in routes:
        whole = service.http.request(method, path, content=part * (size // len(part)))
        assert "1,000,000 bytes" in refused(whole, 413)["message"]
        for kind in ("application/yaml", "application/json"):
            chunked = service.http.request(method, path, content=parts(), headers={"content-type": kind})
            refused(chunked, 404 if path == "/nothing" else 413)
    found = posted(service, "/api/check", b"#" * MOST_BYTES)
    assert found.status_code == 200
    refused(posted(service, "/api/check", b"#" * (MOST_BYTES + 1)), 413)
    memory = Path(f"/proc/{service.process.pid}/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", memory)[1])  # type: ignore[index]
    assert peak < 1_000_000, "the service held what it was sent"


def test_a_length_that_is_none_is_refused(service: Served) -> None:
    for length in (b"-1", b"1e9", b"9" * 30, b"\xb2", b"+5", b"5, 5", b""):
        found = raw(service, b"POST /api/check HTTP/1.1", b"content-length: " + length, body=b"a: 1")
        assert 400 <= found.status_code < 500, length
    both = (b"content-length: 4", b"transfer-encoding: chunked")
    assert raw(service, b"POST /api/check HTTP/1.1", *both, body=b"0\r\n\r\n").status_code == 400


@pytest.mark.parametrize("value", [None, 1, -1, 1.5, True, "x", "", [], [1], [[]], {}, {"x": {"y": []}}])
def test_values_of_any_type_at_any_level_are_refused_in_words(service: Served, value: Any) -> None:
    sections = {name: value for name in StudyConfig.model_fields if name != "name"}
    below = {
        name: {key: value for key in field.annotation.model_fields}
        for name, field in StudyConfig.model_fields.items()
        if hasattr(field.annotation, "model_fields")
    }
    searched = {"search": {"training.lr": value, "ensemble.heads": {"int": value, "when": value}}}
    for body in (value, {"name": "x", **sections}, {"name": "x", **below}, {"name": "x", **searched}):
        found = service.http.post("/api/check", json=body)
        if found.status_code != 200:
            refused(found, 422)
    for method, path in (("PATCH", "/api/studies/victim"), ("POST", "/api/studies/victim/resume")):
        service.http.post("/api/studies/victim/stop")
        for body in ({"set": {"": value}}, {"set": {"budget..trials": value}}, {"x": value}, {"set": {"x.y": value}}):
            refused(service.http.request(method, path, json=body), 422)
        for body in (value, {"set": value}, {"set": {"budget": value}}, {"set": {"budget.trials": value}}):
            found = service.http.request(method, path, json=body)
            assert found.status_code in (200, 409, 422)
    if type(value) is not int and value is not None:
        refused(service.http.patch("/api/studies/victim", json={"priority": value}), 422)
    asked = ({"query": value}, {"query": "select 1", "study": value or 5}, {"query": "select 1", "x": value})
    for body in (value, *asked):
        refused(service.http.post("/api/sql", json=body), 404, 422)


JSONS: dict[str, str | bytes] = {
    "brackets": "[" * 100_000,
    "braces": '{"a":' * 100_000,
    "closed braces": '{"set": {"budget": ' + "[" * 900 + "]" * 900 + "}}",
    "deep": '{"set": {"budget.trials": ' + '{"a":' * 400 + "1" + "}" * 400 + "}}",
    "not a number": '{"priority": NaN}',
    "infinite": '{"set": {"budget.usd": Infinity, "budget.trials": -Infinity}}',
    "beyond": '{"set": {"budget.usd": 1e999}, "priority": 1e999}',
    "huge integer": '{"priority": %s}' % ("9" * 10_000),
    "integer": '{"set": {"budget.trials": %s}}' % ("9" * 4000),
    "surrogate": '{"set": {"question": "\\ud800"}}',
    "surrogate key": '{"\\ud800": 1}',
    "surrogate in the set": '{"set": {"\\ud800": 1}}',
    "invalid": b'{"set": {"question": "\xff"}}',
    "nothing": "",
    "half": '{"set": ',
    "two": "{} {}",
    "many keys": json.dumps({f"key{n}": n for n in range(20_000)}),
    "many settings": json.dumps({"set": {f"budget.k{n}": n for n in range(101)}}),
    "a long setting": json.dumps({"set": {"question": "q" * 900_000}}),
    "a long list": json.dumps({"set": {"search": {"training.lr": list(range(100_000))}}}),
    "yaml": "set:\n  budget.trials: 5\n",
}


@pytest.mark.parametrize("operation", ["PATCH /api/studies/victim", "POST /api/studies/victim/resume", "POST /api/sql"])
def test_no_json_does_harm(service: Served, operation: str) -> None:
    method, path = operation.split()
    service.http.post("/api/studies/victim/stop")
    before = service.http.get("/api/studies/victim/file").text
    for kind, text in JSONS.items():
        begun = time.monotonic()
        found = service.http.request(method, path, content=text, headers={"content-type": "application/json"})
        assert time.monotonic() - begun < SOON_S
        if kind == "nothing" and path.endswith("/resume"):
            assert found.status_code in (200, 409)  # it is resumed as it is
            continue
        refused(found, 400, 409, 422)
        assert len(found.content) < 200_000, kind
    assert service.http.get("/api/studies/victim/file").text == before


def test_json_that_is_no_study_is_refused(service: Served) -> None:
    twice = '{"name": "x", "budget": {"trials": 3, "trials": 4}}'
    large = json.dumps({"name": "x", "data": {"label_indices": list(range(100_000))}})
    for text in (twice, large, '{"name": "x", "training": {"lr": NaN}}', *JSONS.values()):
        refused(posted(service, "/api/studies", text, "application/json"), 422)
    for kind in ("application/xml", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "\xff"):
        found = service.http.post(
            "/api/studies", content=text_of("x"), headers={"content-type": kind.encode("latin-1")}
        )
        refused(found, 415, 422)


@pytest.mark.parametrize("key", ELSEWHERE)
def test_a_submitted_file_cannot_say_where_things_are_written(service: Served, key: str) -> None:
    section, _, name = key.partition(".")
    for value in (ELSEWHERE[key], f"/tmp/{key}", "..", "~", "s3://elsewhere/x"):
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
        {"name": "../other"},
        {"storage": "hit"},
        {"storage": {**storage, "optuna": "sqlite:///hit.db"}},
        {"data": {**data, "root": "hit"}},
        {"data": {**data, "root": "hit"}, "budget.trials": 99},
        {" storage.optuna": "sqlite:///hit.db"},
        {"storage.optuna ": "sqlite:///hit.db"},
        {"storage={optuna: 'sqlite:///hit.db'} #": 1},
        {"budget.trials=99\nstorage.optuna": "sqlite:///hit.db"},
        {"data={root: hit} #": 1},
        {"data.root=hit #": 1},
        {"name=other #": 1},
        {"Storage.optuna": "sqlite:///hit.db"},
    ]
    for method, path in (("PATCH", "/api/studies/victim"), ("POST", "/api/studies/victim/resume")):
        for settings in tricks:
            refused(service.http.request(method, path, json={"set": settings}), 422)
    assert service.http.get("/api/studies/victim/file").text == before


FORBIDDEN_SQL = [
    "select * from read_csv('/etc/passwd')",
    "select * from '/etc/passwd'",
    "select * from read_text('/proc/self/environ')",
    "select * from read_blob('study.yaml')",
    "select * from read_parquet('s3://bucket/x')",
    "select * from glob('/*')",
    "select * from parquet_metadata('store/made/trials/x.parquet')",
    "select * from sniff_csv('/etc/passwd')",
    "copy trials to 'hit.csv'",
    "copy (select 1) to '/tmp/hit'",
    "export database 'hit'",
    "attach 'hit.db' as hit",
    "create table hit (x int)",
    "create view hit as select 1",
    "insert into trials values (1)",
    "delete from trials",
    "drop table trials",
    "update trials set state = 'hit'",
    "install httpfs",
    "load httpfs",
    "set enable_external_access = true",
    "reset lock_configuration",
    "pragma database_list",
    "call pragma_version()",
    "checkpoint",
    "vacuum",
    "select 1; select 2",
    "select 1; drop table trials",
    "begin",
    "prepare p as select 1",
    "explain analyze select 1",
    "select getenv('HOME')",
    "select * from trials where",
    "select",
    "--",
    ";",
    "\0",
    "select '\0'; x",
    "select " + "(" * 50_000,
    "select " + "(" * 30_000 + "1" + ")" * 30_000,
    "select " + "-" * 90_000 + "1",
    "select " + "not " * 20_000 + "true",
    "select 1" + " union all select 1" * 5000 + " union",
    "select " + "[" * 20_000 + "1" + "]" * 20_000,
    "select * from " + "(select * from " * 5000 + "trials" + ")" * 5000,
    "with recursive t as (select 1 as x union all select x from t) select x from",
    "select 'ä' collate nothing",
    "select error('hit\n2026-01-01 00:00:00,000 ERROR forged')",
    "select cast('x' as int)",
    "select 1/0 from nothing",
    "select hit()",
    "select repeat('x', 1000000) from range(1000)",
    "select repeat('x', 5000000000)",
    "select list(range) from range(3000000000)",
    "select max(a.range || b.range || c.range) from range(10000000) a, (select array_agg(range) x from range(900000000)) b, range(2) c",
]
ODD_SQL = [
    "select 'nan'::float, 'inf'::double, -'inf'::float, [1.0, 'nan'::float], {'a': 'nan'::float}",
    "select 1 as a, 2 as a, 3 as a",
    "select map {'a': 1}, map {1: 2}, map {[1]: 'x'}",
    "select 170141183460469231731687303715884105727::hugeint, 1.5::decimal(38, 2), 2::uhugeint",
    "select date '2026-01-01', time '12:00', timestamptz '2026-01-01', interval 1 month, interval 1 second",
    "select '\\xAA\\xFF'::blob, '101'::bit, uuid '00000000-0000-0000-0000-000000000000'",
    "select date '290000-01-01', date '5877000-01-01 (BC)' where false",
    "select timestamp 'infinity', date '-infinity', timestamp '290000-01-01'",
    "select null, [], {}, [null], [[[]]] where true",
    "select union_value(k := 1), 'a'::enum('a', 'b')",
    "select json('{}'), [1, 2]::int[2], row(1, 2)",
    "select params, config, error_text from trials limit 3",
    "select * from trials, metrics limit 5",
    "select * from duckdb_settings()",
    "select * from duckdb_secrets()",
    "select current_setting('secret_directory')",
    "from trials select columns('t.*') limit 1",
    "describe trials",
    "summarize trials",
    "show tables",
    "values (1), (2)",
    "select 1 --\n; ",
]


@pytest.mark.parametrize("path", ["sql", "best"])
def test_sql_reads_no_files_and_changes_nothing(service: Served, path: str) -> None:
    def ask(query: str) -> httpx.Response:
        if path == "sql":
            return service.http.post("/api/sql", json={"query": query})
        where = f"trial in ({query})"[:9000]
        return service.http.get("/api/studies/made/best", params={"where": where})

    with ThreadPoolExecutor(2) as pool:
        for query, found in zip(FORBIDDEN_SQL, pool.map(ask, FORBIDDEN_SQL), strict=True):
            told = refused(found, 422)
            assert len(told["message"]) < 200_000, query
    assert not Path("/tmp/hit").exists()


def test_sql_of_every_type_is_answered_as_json(service: Served) -> None:
    def ask(query: str) -> httpx.Response:
        return service.http.post("/api/sql", json={"query": query})

    with ThreadPoolExecutor(2) as pool:
        for query, found in zip(ODD_SQL, pool.map(ask, ODD_SQL), strict=True):
            if found.status_code != 200:
                refused(found, 422)
                continue
            plain = json.loads(found.content, parse_constant=lambda name: pytest.fail(f"{query}: {name}"))
            assert set(plain) == {"columns", "rows", "truncated"}
            assert all(len(row) == len(plain["columns"]) for row in plain["rows"])
            assert str(Path.home()) not in found.text, query
