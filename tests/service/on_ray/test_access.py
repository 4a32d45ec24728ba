"""Who may do what: tokens, roles and owners, and what other sites' pages may not do through a browser."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cbe.service.auth.tokens import CACHE_S, Role, Tokens
from cbe.service.queue.ray_jobs import Jobs
from cbe.service.service import Service
from cbe.service.web.app import create_app
from cbe.store.folder import Store
from tests.service.conftest import NOBODY, Served, bearer, text_of
from tests.service.on_ray.callers import CHEAP, DAY_S, Operation, answer, client, operations
from tests.waiting import until

Roles = tuple[Served, dict[str, str]]

WRITES = ("POST", "PATCH", "DELETE", "PUT")
ASKED_BY_POST = {("POST", "/api/sql"), ("POST", "/api/check")}  # these change nothing
FOR_ADMINS = {("GET", "/api/audit")}
FOR_ALL = {("GET", path) for path in CHEAP}
HEADERS = {
    "content-security-policy": "default-src 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


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
        assert (first["priority"], first["queue_position"]) == (100, 1)
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
