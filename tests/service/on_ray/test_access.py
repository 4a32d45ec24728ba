"""Who may do what: tokens, roles and owners, and what other sites' pages may not do through a browser."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import signal
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from cbe.errors import InputError
from cbe.service.auth.tokens import CACHE_S, Role, Tokens
from cbe.service.queue.ray_jobs import Jobs
from cbe.service.serve import Settings, check
from cbe.service.service import Service
from cbe.service.web.app import create_app
from cbe.store.folder import Store
from tests.conftest import Cbe, free_port
from tests.made import finished
from tests.service.conftest import ENDLESS_SQL, NOBODY, Served, bearer, serving, text_of
from tests.waiting import until

Roles = tuple[Served, dict[str, str]]
Operation = tuple[str, str]

DAY_S = 24 * 3600.0
SOON_S = 60.0
WRITES = ("POST", "PATCH", "DELETE", "PUT")
ASKED_BY_POST = {("POST", "/api/sql"), ("POST", "/api/check")}  # these change nothing
FOR_ADMINS = {("GET", "/api/audit")}
CHEAP = ("/healthz", "/readyz")
FOR_ALL = {("GET", path) for path in CHEAP}
PUBLIC = "https://studies.example.org"
HEADERS = {
    "content-security-policy": "default-src 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

_numbers = itertools.count(1)


@contextmanager
def client(service: Served, token: str | None = None, **headers: str) -> Iterator[httpx.Client]:
    """A caller from an address of its own, whom nobody else's failures slow down."""
    number = next(_numbers)
    transport = httpx.HTTPTransport(local_address=f"127.1.{number // 250}.{1 + number % 250}", verify=False)
    given = {name: value.encode("latin-1") for name, value in (bearer(token) | headers).items()}
    with httpx.Client(base_url=service.url, transport=transport, headers=given, timeout=30) as found:
        yield found


def operations(service: Served) -> list[Operation]:
    paths: Mapping[str, Mapping[str, Any]] = service.http.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, each in paths.items() for method in each]


def code(service: Served, operation: Operation, token: str | None, **headers: str) -> int:
    """What somebody is answered who asks for this of the study `mine`."""
    method, path = operation
    path = path.replace("{name}", "mine").replace("{trial}", "t0000")
    body = {} if method in ("GET", "DELETE") else {"json": {}}
    with client(service, token, **headers) as caller:
        found = caller.request(method, path, **body)
    if found.status_code >= 400 and operation not in FOR_ALL:
        assert set(found.json()) == {"message", "faults"}
    return found.status_code


def invalid(service: Served, given: Mapping[str, str]) -> dict[str, str]:
    """Tokens that nobody is let in by."""
    store, (kind, id_, secret) = Store.open(str(service.store)), given["admin"].split("_", 2)
    expired, _ = Tokens(store, now=lambda: time.time() - 2 * DAY_S).create("late", Role.admin, days=1)
    return {
        "of nobody": f"{kind}_{'0' * 8}_{secret}",
        "with another secret": f"{kind}_{id_}_{secret[:-1]}{'A' if secret[-1] != 'A' else 'B'}",
        "malformed": "letmein",
        "with a path": f"{kind}_../../x_{secret}",
        "of other letters": "cbe_ünïcödé",
        "too long": "cbe_" * 2000,
        "revoked": given["revoked"],
        "expired": expired,
    }


@pytest.fixture(scope="module")
def mine(tokens: Roles) -> Roles:
    """With a study of the submitter's; no cluster starts it."""
    service, given = tokens
    with client(service, given["submit"]) as submitter:
        assert submitter.post("/api/studies", content=text_of("mine")).status_code in (200, 201)
    return tokens


@pytest.fixture(scope="module")
def unlocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service on this machine without tokens."""
    with serving(tmp_path_factory.mktemp("unlocked") / "store", NOBODY) as service:
        yield service


def test_nothing_but_its_health_is_told_without_a_token(mine: Roles) -> None:
    service, _ = mine
    known = [each for each in operations(service) if each not in FOR_ALL]
    assert len(known) > 20
    assert {each: code(service, each, None) for each in known} == dict.fromkeys(known, 401)
    assert {each: code(service, each, None) for each in FOR_ALL} == {
        ("GET", "/healthz"): 200,
        ("GET", "/readyz"): 503,  # there is no Ray
    }


def test_a_token_that_does_not_hold_lets_nobody_in(mine: Roles) -> None:
    service, given = mine
    for kind, token in invalid(service, given).items():
        known = [each for each in operations(service) if each not in FOR_ALL]
        told = {each: code(service, each, token) for each in known}
        assert told == dict.fromkeys(known, 401), kind
    with client(service, authorization=f"Basic {given['admin']}") as caller:
        assert caller.get("/api/me").status_code == 401
    with client(service) as caller:  # nor is a token taken from where it would be logged or sent by itself
        assert caller.get("/api/me", params={"token": given["admin"]}).status_code == 401
        assert caller.get("/api/me", headers={"cookie": f"token={given['admin']}"}).status_code == 401
        told = caller.get("/api/me")
    assert told.headers["www-authenticate"] == "Bearer" and "Authorization: Bearer" in told.json()["message"]


def test_a_reader_changes_nothing_and_every_new_route_that_writes_is_closed_to_it(mine: Roles) -> None:
    service, given = mine
    closed = [
        each
        for each in operations(service)
        if each in FOR_ADMINS or (each[0] in WRITES and each not in ASKED_BY_POST)
    ]
    assert len(closed) >= 7
    assert {each: code(service, each, given["read"]) for each in closed} == dict.fromkeys(closed, 403)
    assert service.http.get("/api/studies/mine").json()["state"] == "queued"


def test_a_reader_sees_all_but_the_audit(mine: Roles) -> None:
    service, given = mine
    streams = ("/events", "/logs")
    open_ = [
        each
        for each in operations(service)
        if each not in FOR_ADMINS
        and (each[0] == "GET" or each in ASKED_BY_POST)
        and not each[1].endswith(streams)
    ]
    told = {each: code(service, each, given["read"]) for each in open_}
    assert not {401, 403} & set(told.values()), told
    assert told["GET", "/api/studies/{name}"] == told["GET", "/metrics"] == 200
    with client(service, given["read"]) as reader:
        assert reader.get("/api/me").json() == {"name": "reader", "role": "read", "open": False}
        with reader.stream("GET", "/api/events") as events:
            assert events.status_code == 200
    assert code(service, ("GET", "/api/audit"), given["submit"]) == 403
    assert code(service, ("GET", "/api/audit"), given["admin"]) == 200


def test_whoever_submits_steers_their_own_studies_and_no_others(mine: Roles) -> None:
    service, given = mine
    text = text_of("hers")
    steps: list[tuple[str, str, Any, int]] = [
        ("PATCH", "/api/studies/hers", {"priority": -1}, 200),
        ("PATCH", "/api/studies/hers", {"set": {"budget.trials": 5}}, 200),
        ("POST", "/api/studies/hers/stop", None, 200),
        ("POST", "/api/studies/hers/resume", {"set": {"budget.trials": 6}}, 200),
        ("POST", "/api/studies/hers/stop", None, 200),
        ("DELETE", "/api/studies/hers?confirm=hers", None, 204),
    ]
    with client(service, given["submit"]) as owner, client(service, given["other"]) as other:
        assert owner.post("/api/studies", content=text).status_code == 201
        for method, path, body, allowed in steps:
            before = owner.get("/api/studies/hers").json()
            refused = other.request(method, path, json=body)
            assert refused.status_code == 403 and "is submiter's" in refused.json()["message"], (method, path)
            assert owner.get("/api/studies/hers").json() == before
            assert owner.request(method, path, json=body).status_code == allowed, (method, path)
        assert owner.post("/api/studies", content=text).status_code == 201
        assert other.post("/api/studies", content=text).status_code == 200  # the same study, still hers
        assert other.get("/api/studies/hers").json()["owner"] == "submiter"
    with client(service, given["admin"]) as admin:
        assert admin.post("/api/studies/hers/stop").status_code == 200
        assert admin.delete("/api/studies/hers?confirm=hers").status_code == 204


def test_only_an_admin_goes_before_others(mine: Roles) -> None:
    service, given = mine
    text = text_of("urgent")
    with client(service, given["submit"]) as submitter, client(service, given["admin"]) as admin:
        refused = submitter.post("/api/studies", content=text, params={"priority": 1})
        assert refused.status_code == 403 and "above 0 is for the role admin" in refused.json()["message"]
        assert submitter.get("/api/studies/urgent").status_code == 404
        assert submitter.post("/api/studies", content=text, params={"priority": -3}).json()["priority"] == -3
        assert submitter.patch("/api/studies/urgent", json={"priority": 1}).status_code == 403
        assert submitter.patch("/api/studies/urgent", json={"priority": 0}).json()["priority"] == 0
        for beyond in (101, -101, 10**30):
            assert admin.patch("/api/studies/urgent", json={"priority": beyond}).status_code == 422
        first = admin.patch("/api/studies/urgent", json={"priority": 100}).json()
        assert (first["priority"], first["place"]) == (100, 1)
        done = [each["who"] for each in admin.get("/api/audit").json()["events"] if each["kind"] == "amended"]
        assert done[:2] == ["adminer", "submiter"]
        assert submitter.post("/api/studies/urgent/stop").status_code == 200


def test_a_revoked_token_changes_nothing_more_and_soon_sees_nothing(mine: Roles) -> None:
    service, _ = mine
    made = Tokens(Store.open(str(service.store)))
    text, kept = made.create("leaver", Role.submit)
    with client(service, text) as leaver:
        assert leaver.get("/api/me").json()["name"] == "leaver"
        assert leaver.post("/api/studies", content=text_of("last")).status_code == 201
        made.revoke(kept.id)
        for method, path in operations(service):
            if method in WRITES:
                found = leaver.request(method, path.replace("{name}", "last"))
                assert found.status_code in (401, 429), (method, path)
        assert leaver.post("/api/studies/last/stop").status_code in (401, 429)
        until(lambda: leaver.get("/api/me").status_code in (401, 429), CACHE_S + 5, "the end of reading")
    assert service.http.get("/api/studies/last").json()["state"] == "queued"
    assert service.http.post("/api/studies/last/stop").status_code == 200


def test_guessing_is_slowed_down_and_locks_out_nobody_who_has_a_token(mine: Roles) -> None:
    service, given = mine
    kind, id_, secret = given["read"].split("_", 2)
    with client(service) as caller:  # all from one address
        for guess in (f"{kind}_{'0' * 8}_{secret}", f"{kind}_{id_}_{'A' * 43}"):
            told = [caller.get("/api/me", headers=bearer(guess)) for _ in range(12)]
            assert [each.status_code for each in told] == [401] * 10 + [429] * 2
            assert 1 <= int(told[-1].headers["retry-after"]) <= 60
            assert told[-1].json()["message"].startswith("too many wrong tokens; try again in ")
            assert caller.post("/api/sql", headers=bearer(guess), json={}).status_code == 429
        for role in ("read", "submit", "admin"):
            assert caller.get("/api/me", headers=bearer(given[role])).status_code == 200
            assert caller.post("/api/check", headers=bearer(given[role]), content="a: 1").status_code == 200


def test_no_secret_is_kept_or_logged(mine: Roles) -> None:
    service, given = mine
    with client(service, given["admin"]) as admin:
        assert admin.get("/api/cluster").status_code == 503  # which is logged
        told = admin.get("/api/audit").text + admin.get("/metrics").text + admin.get("/api/problems").text
    secrets = [token.split("_", 2)[2].encode() for token in given.values()]
    assert "/api/cluster" in service.log.read_text()
    kept = [path for path in service.store.rglob("*") if path.is_file()]
    assert any("tokens" in path.parts for path in kept)
    for content in [told.encode(), service.log.read_bytes(), *(path.read_bytes() for path in kept)]:
        assert not any(secret in content for secret in secrets)


def test_this_machine_needs_no_token_until_there_is_one(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    app = create_app(Service(store, Jobs(NOBODY)))
    assert answer(app, "/api/me").json() == {"name": "local", "role": "admin", "open": True}
    text, _ = Tokens(store).create("first", Role.read)
    until(lambda: answer(app, "/api/me").status_code == 401, CACHE_S + 5, "the lock")
    assert answer(app, "/api/me", **bearer(text)).json() == {"name": "first", "role": "read", "open": False}


def test_the_network_needs_a_token_always(tmp_path: Path) -> None:
    app = create_app(Service(Store.open(str(tmp_path)), Jobs(NOBODY)), loopback=False)
    assert answer(app, "/api/me").status_code == 401
    assert answer(app, "/api/me", host="studies.example:8321").status_code == 401
    assert answer(app, "/healthz", host="studies.example:8321").status_code == 200
    assert answer(app, "/healthz", host="[").status_code == 403


def answer(app: FastAPI, path: str, **headers: str) -> httpx.Response:
    """What an application says that nobody serves."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as caller:
            return await caller.get(path, headers=headers)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "evil.example:8321", "localhost.evil.example", "0.0.0.0"),
        *("10.0.0.1", "127.0.0.1@evil.example", "[", "[::1", "]", "a b", "localhost:port", "\xff", ""),
    ],
)
def test_a_name_that_was_made_to_lead_here_opens_nothing(unlocked: Served, host: str) -> None:
    for method, path in (("GET", "/api/studies"), ("POST", "/api/check"), ("GET", "/"), ("GET", "/docs")):
        found = unlocked.http.request(method, path, headers={"host": host.encode("latin-1")})
        assert found.status_code in (400, 403), path
        assert "cbe" not in found.headers.get("content-type", "") and "studies" not in found.json()


def test_this_machine_has_several_names(unlocked: Served) -> None:
    for host in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST"):
        for port in ("", f":{unlocked.port}"):
            assert unlocked.http.get("/api/me", headers={"host": host + port}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://[", "http://127.0.0.1:1", "https://localhost.evil.example"],
)
def test_another_sites_page_cannot_use_the_service_through_a_browser(unlocked: Served, origin: str) -> None:
    text = text_of("forged")
    found = unlocked.http.post("/api/studies", content=text, headers={"origin": origin})
    assert found.status_code == 403 and "another site's page" in found.json()["message"]
    assert unlocked.http.get("/api/studies", headers={"origin": origin}).status_code == 403
    simple = {"content-type": "text/plain", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert unlocked.http.post("/api/studies", content=text, headers=simple).status_code == 403
    assert unlocked.http.get("/api/studies/forged").status_code == 404
    own = {"origin": unlocked.url, "sec-fetch-site": "same-origin"}
    assert unlocked.http.post("/api/studies/forged/stop", headers=own).status_code == 404


def test_another_sites_page_costs_nothing_though_it_may_lead_to_a_page_of_ours(unlocked: Served) -> None:
    cross = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    read = [path for method, path in operations(unlocked) if method == "GET" and path not in CHEAP]
    assert len(read) > 10
    for path in [*read, "/api", "/api/nothing"]:
        for method in ("GET", "HEAD", "OPTIONS"):
            assert unlocked.http.request(method, path, headers=cross).status_code == 403, (method, path)
    for path in ("/", "/studies/any", "/submit", "/docs", *CHEAP[:1]):
        assert unlocked.http.get(path, headers=cross).status_code == 200
    own = cross | {"sec-fetch-site": "same-origin"}
    assert unlocked.http.get("/api/studies", headers=own).status_code == 200
    assert unlocked.http.get("/api/studies", headers=cross | {"sec-fetch-site": "none"}).status_code == 200


def test_no_other_origin_may_read_answers(mine: Roles) -> None:
    service, given = mine
    asked = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    for method, path in [*operations(service), ("GET", "/"), ("GET", "/nothing"), ("GET", "/openapi.json")]:
        path = path.replace("{name}", "mine").replace("{trial}", "t0000")
        if path.endswith(("/events", "/logs")):
            continue
        for origin in ("http://evil.example", service.url):
            with client(service, given["read"], origin=origin) as caller:
                both = [caller.request(method, path), caller.options(path, headers=asked)]
            for found in both:
                assert not [name for name in found.headers if name.startswith("access-control-")], path
            assert both[1].status_code in (403, 404, 405)


def test_every_answer_carries_the_headers_that_protect_its_reader(mine: Roles) -> None:
    service, given = mine
    with client(service, given["submit"]) as caller, client(service) as nobody:
        answers = {
            "page": nobody.get("/"),
            "docs": nobody.get("/docs"),
            "script": nobody.get("/assets/main.js"),
            "schema": nobody.get("/openapi.json"),
            "health": nobody.get("/healthz"),
            "answer": caller.get("/api/me"),
            "file": caller.get("/api/studies/mine/file"),
            "report": caller.get("/api/studies/mine/report"),
            "401": nobody.get("/api/me"),
            "403": caller.get("/api/audit"),
            "foreign": nobody.get("/", headers={"host": "evil.example"}),
            "404": nobody.get("/nothing"),
            "404 of a study": caller.get("/api/studies/none"),
            "405": nobody.put("/api/studies"),
            "413": caller.post("/api/studies", content=b"x" * 2_000_000),
            "422": caller.post("/api/studies", content="a: 1"),
            "503": caller.get("/api/cluster"),
        }
        with caller.stream("GET", "/api/events") as events:
            answers["events"] = events
    codes = {kind: found.status_code for kind, found in answers.items() if kind[:3].isdigit()}
    assert codes == {kind: int(kind[:3]) for kind in codes}
    for kind, found in answers.items():
        for name, value in HEADERS.items():
            assert found.headers[name].startswith(value), (kind, name)
        assert found.headers["cache-control"] in ("no-store", "no-cache"), kind
        assert "server" not in found.headers and "set-cookie" not in found.headers, kind
    policy = answers["page"].headers["content-security-policy"]
    assert "script-src 'self';" in policy and "frame-ancestors 'none'" in policy
    assert answers["page"].headers["content-type"].startswith("text/html")


def test_a_fault_of_the_service_tells_nothing_of_it_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(Service(Store.open(str(tmp_path)), Jobs(NOBODY)))

    @app.get("/broken")
    async def broken() -> None:
        raise ZeroDivisionError("of the password hunter2")

    found = answer(app, "/broken")
    assert found.status_code == 500 and found.json() == {
        "message": "the service has a fault; its log says more",
        "faults": [],
    }
    assert all(found.headers[name].startswith(value) for name, value in HEADERS.items())
    assert "GET /broken" in caplog.text and "hunter2" in caplog.text


@pytest.fixture(scope="module")
def behind_a_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service at the usual address that others reach by another, with one token."""
    store = tmp_path_factory.mktemp("proxied") / "store"
    token, _ = Tokens(Store.open(str(store))).create("first", Role.admin)
    with serving(store, NOBODY, "--url", f"{PUBLIC}:443/", token=token) as service:
        yield service


@pytest.mark.parametrize("host", ["studies.example.org", "127.0.0.1:{port}", "upstream"])
def test_whoever_comes_through_a_proxy_needs_a_token_and_can_use_the_page(
    behind_a_proxy: Served, host: str
) -> None:
    service = behind_a_proxy
    given = {"host": host.format(port=service.port)}
    own = given | {"origin": PUBLIC, "sec-fetch-site": "same-origin"}
    assert service.http.get("/", headers=given).status_code == 200
    assert service.http.get("/api/me", headers=own).json() == {
        "name": "first",
        "role": "admin",
        "open": False,
    }
    assert service.http.post("/api/check", headers=own, content="name: x").status_code == 200
    for origin in ("https://evil.example", "http://studies.example.org", f"{PUBLIC}.evil.example", "null"):
        if origin.partition("://")[2] != host:  # plain HTTP at the very host that was asked
            assert service.http.get("/api/me", headers=own | {"origin": origin}).status_code == 403
    with client(service) as nobody:
        assert nobody.get("/api/me", headers=own).status_code == 401


def test_a_proxy_makes_nobody_an_admin_where_tokens_are_gone(tmp_path: Path) -> None:
    app = create_app(Service(Store.open(str(tmp_path)), Jobs(NOBODY)), loopback=False, public=PUBLIC)
    assert answer(app, "/api/me", host="127.0.0.1:8321").status_code == 401


def test_an_address_for_others_wants_a_token_and_one_of_this_machine_does_not(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with pytest.raises(InputError) as refused:
        check(Settings(store, port=free_port(), public=PUBLIC))
    told = f"--url {PUBLIC}: can be reached from other machines, and there is no token; make one with"
    assert str(refused.value).startswith(told) and str(refused.value).endswith("or leave --url out")
    for here in ("http://localhost:9000", "http://127.0.0.1", "https://[::1]:9000/"):
        check(Settings(store, port=free_port(), public=here))
    Tokens(Store.open(store)).create("first", Role.read)
    check(Settings(store, port=free_port(), public=PUBLIC))


@pytest.mark.parametrize(
    "url",
    [
        *("", "studies.example.org", "ftp://studies.example.org", "https://", "https://a:port", "https://["),
        *("https://me:pass@studies.example.org", "https://a b", "https://a?b", "https://a#b", "https://a\n"),
    ],
)
def test_an_address_for_others_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError, match="is no address; give one as https://"):
        check(Settings(str(tmp_path), port=free_port(), public=url))


def test_the_command_that_trains_a_trial_again_names_the_address_for_others(tmp_path: Path) -> None:
    finished(tmp_path)
    service = Service(Store.open(str(tmp_path)), Jobs(NOBODY))
    text, _ = service.tokens.create("first", Role.read)
    for public, address in ((f"{PUBLIC}/", PUBLIC), (None, "http://localhost")):
        app = create_app(service, public=public)
        found = answer(app, "/api/studies/made/trials/t0000", **bearer(text)).json()["rerun"]
        assert found.startswith(f"cbe show made/t0000 --yaml --address {address} > "), found


def test_what_cannot_be_listened_at_is_told_with_what_to_change(tmp_path: Path) -> None:
    Tokens(Store.open(str(tmp_path))).create("first", Role.read)
    check(Settings(str(tmp_path), host="::", port=free_port()))
    for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
        with socket.create_server((host, 0), family=family) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(InputError, match=f"--port {port}: .*; give another --port"):
                check(Settings(str(tmp_path), host=host, port=port))
    for host in ("192.0.2.1", "2001:db8::1"):  # of documentation, and so nobody's
        with pytest.raises(InputError, match="; give another --host"):
            check(Settings(str(tmp_path), host=host, port=free_port()))


@pytest.mark.parametrize("made", ["none", "revoked", "expired"])
def test_the_network_is_not_served_without_a_token_that_holds(cbe_: Cbe, tmp_path: Path, made: str) -> None:
    tokens = Tokens(Store.open(str(tmp_path / "store")), now=lambda: time.time() - 2 * DAY_S)
    if made == "revoked":
        tokens.revoke(tokens.create("gone", Role.admin)[1].id)
    if made == "expired":
        tokens.create("late", Role.admin, days=1)
    done = cbe_("serve", "--store", "store", "--host", "0.0.0.0", "--ray", NOBODY)
    assert (done.code, done.out) == (2, "")
    told = " ".join(done.err.split())
    assert "--host 0.0.0.0: can be reached from other machines, and there is no token" in told
    assert "cbe token create NAME --role admin" in told and "Traceback" not in told


def test_the_service_listens_at_an_ipv6_address(tmp_path: Path) -> None:
    with serving(tmp_path / "store", NOBODY, "--host", "::1", host="[::1]") as service:
        assert service.http.get("/api/me").json()["open"] is True
        own = {"origin": service.url, "sec-fetch-site": "same-origin"}
        assert service.http.post("/api/studies/none/stop", headers=own).status_code == 404


def test_the_service_speaks_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving(tmp_path / "store", NOBODY, *options, trusted=certificate) as service:
        assert service.url.startswith("https://")
        found = service.http.get("/api/me")
        assert found.json()["open"] is True
        assert found.headers["strict-transport-security"] == "max-age=31536000"
        own = {"origin": service.url, "sec-fetch-site": "same-origin"}
        assert service.http.post("/api/studies/none/stop", headers=own).status_code == 404
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{service.url}/healthz", verify=ssl.create_default_context())
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"http://127.0.0.1:{service.port}/healthz")
        old = ssl.create_default_context(cafile=str(certificate))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        old.set_ciphers("AES128-SHA:@SECLEVEL=0")  # without forward secrecy
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{service.url}/healthz", verify=old)
    assert "Traceback" not in service.log.read_text()


@pytest.mark.parametrize("given", ["cert", "missing"])
def test_half_of_tls_is_refused(cbe_: Cbe, tmp_path: Path, given: str) -> None:
    options: list[object] = ["--tls-cert", self_signed(tmp_path)[0]]
    if given == "missing":
        options += ["--tls-key", "nothing.pem"]
    done = cbe_("serve", "--store", "store", "--ray", NOBODY, *options)
    wanted = "wanted both --tls-cert and --tls-key" if given == "cert" else "there is no such file"
    assert done.code == 2 and wanted in " ".join(done.err.split()) and "Traceback" not in done.err


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cbe")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - day, now + day
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return certificate, private


# The last of this file: it ends what others use.
@pytest.mark.parametrize(
    ("kept", "number"), [("unlocked", signal.SIGTERM), ("behind_a_proxy", signal.SIGKILL)]
)
def test_a_service_that_ends_leaves_nobody_waiting_and_nothing_running(
    request: pytest.FixtureRequest, kept: str, number: int
) -> None:
    service: Served = request.getfixturevalue(kept)
    with ThreadPoolExecutor(2) as pool:
        query = pool.submit(service.http.post, "/api/sql", json={"query": f"select {ENDLESS_SQL}"})
        events = pool.submit(service.http.get, "/api/events")
        left = until(lambda: isolated(service), SOON_S, "the query")
        until(lambda: "cbe_listeners 1.0" in service.http.get("/metrics").text, SOON_S, "the listener")
        service.process.send_signal(number)
        service.process.wait(SOON_S)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), SOON_S, "its end")
        if number == signal.SIGTERM:
            assert query.result().status_code == 503 and events.result().status_code == 200
        else:
            assert isinstance(query.exception(), httpx.TransportError) and events.exception()
    assert "Traceback" not in service.log.read_text()


def isolated(service: Served) -> set[int]:
    """The processes that work for the service at this moment: children of the one that makes them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    return {pid for pid, parent in parents.items() if parents.get(parent) == service.process.pid}
