"""A dashboard that takes calls and never answers keeps nobody waiting who does not ask for Ray."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx

from cbe.service.auth.tokens import Role, Tokens
from cbe.service.routes.ray_calls import AGAIN_S, MOST_ASKING
from cbe.store.folder import Store
from tests.made import finished
from tests.service.conftest import Served, bearer, text_of
from tests.waiting import until

SOON_S = 60.0
MORE = 8  # than may wait


def test_a_dashboard_that_hangs_stalls_neither_logins_nor_live_updates(tmp_path: Path) -> None:
    store = tmp_path / "store"
    tokens = Tokens(Store.open(str(store)))
    given = bearer(tokens.create("first", Role.admin)[0])
    with ThreadPoolExecutor(64) as pool, ExitStack() as ending:
        deaf = ending.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))
        service = Served(store, f"http://127.0.0.1:{deaf.getsockname()[1]}")
        ending.callback(service.kill)
        http = ending.enter_context(
            httpx.Client(base_url=service.url, timeout=300, limits=httpx.Limits(max_connections=None))
        )

        def ask(path: str) -> httpx.Response:
            return http.get(path, headers=given)

        def submit(number: int) -> httpx.Response:
            return http.post("/api/studies", content=text_of(f"s{number}"), headers=given)

        submitted = [pool.submit(submit, number) for number in range(MORE)]
        asked = [pool.submit(ask, "/api/cluster") for _ in range(MOST_ASKING + MORE)]
        ended = until(lambda: len(done := [each for each in asked if each.done()]) == MORE and done)
        for each in ended:
            assert each.result().status_code == 503
            assert each.result().headers["retry-after"] == f"{AGAIN_S:g}"
        newcomer = bearer(tokens.create("newcomer", Role.read)[0])
        me = http.get("/api/me", headers=newcomer, timeout=SOON_S)
        assert me.json()["name"] == "newcomer"
        finished(store, "fresh")
        until(lambda: ask("/api/studies/fresh").status_code == 200, SOON_S, "the news")
        with http.stream("GET", "/api/events", headers=newcomer, timeout=SOON_S) as events:
            assert '"fresh"' in next(events.iter_text())
        assert [each.done() for each in asked].count(False) == MOST_ASKING
        assert not any(each.done() for each in submitted)
        deaf.close()  # which ends what waits for it
        assert {each.result().status_code for each in asked} == {503}
        assert {each.result().status_code for each in submitted} == {201}
