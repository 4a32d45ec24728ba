"""Pages of other sites, names that were made to lead here, and proxies: none of them opens the service."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from cbe.service.auth.tokens import Role, Tokens
from cbe.service.queue.ray_jobs import Jobs
from cbe.service.service import Service
from cbe.service.web.app import create_app
from cbe.store.folder import Store
from tests.service.conftest import ENDLESS_SQL, NOBODY, Served, serving, text_of
from tests.service.on_ray.callers import CHEAP, PUBLIC, answer, client, operations
from tests.waiting import until

SOON_S = 60.0


@pytest.fixture(scope="module")
def unlocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service on this machine without tokens."""
    with serving(tmp_path_factory.mktemp("unlocked") / "store", NOBODY) as service:
        yield service


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
