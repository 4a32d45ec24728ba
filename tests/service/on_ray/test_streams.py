"""Answers that go on: so many of one reader, without secrets, and no longer than their reader's token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from cbe.processes import BackgroundProcess, session
from cbe.service.auth.tokens import Role, Tokens
from cbe.service.routes.streams import MOST_OF_A_TOKEN, Streams, redacted
from cbe.store.folder import Store
from tests.conftest import SECRETS
from tests.made import finished
from tests.service.conftest import NOBODY, Served, bearer, jobs_at, serving
from tests.waiting import until

SOON_S = 60.0
SILENT, CHATTY = "silent", "chatty"
PRINTED = ("hunter2", "s3cr3t")
PRINTS = "import os; print('password=hunter2 begins'); print('at https://me:s3cr3t@host/x', end='')"


@pytest.fixture(scope="module")
def running(
    head: BackgroundProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, str, str]]:
    """A service with a driver that says nothing and one that prints secrets; an admin's token, a reader's."""
    store = tmp_path_factory.mktemp("streams") / "store"
    for name in (SILENT, CHATTY):
        finished(store, name)
    jobs = jobs_at(head.address, Store.open(str(store)).uri)
    jobs.submit(SILENT, ["sleep", "3600"], {})
    jobs.submit(CHATTY, ["python", "-c", PRINTS], {})
    until(lambda: not (job := jobs.find(CHATTY)) or job.status == "succeeded", what="what is printed")
    tokens = Tokens(Store.open(str(store)))
    admin, reader = tokens.create("admin", Role.admin)[0], tokens.create("reader", Role.read)[0]
    with serving(store, head.address, token=admin) as service:
        yield service, admin, reader
    if (left := jobs.find(SILENT)) and left.active:
        jobs.stop(SILENT)
    until(lambda: not (job := jobs.find(SILENT)) or not job.active, 60, "the end of the sleeping job")
    for name in (SILENT, CHATTY):
        jobs.delete(name)


def calling(service: Served) -> httpx.Client:
    """Whoever has as many lines at once as they want."""
    return httpx.Client(base_url=service.url, timeout=SOON_S, limits=httpx.Limits(max_connections=None))


def opened(lines: ExitStack, caller: httpx.Client, path: str, token: str | None) -> httpx.Response:
    """An answer that has begun; it goes on until the lines are closed."""
    return lines.enter_context(caller.stream("GET", path, headers=bearer(token)))


def test_one_token_takes_its_share_of_all_kinds_of_streams_and_no_more(
    running: tuple[Served, str, str],
) -> None:
    service, admin, reader = running
    kinds = ("/api/events", f"/api/studies/{CHATTY}/events", f"/api/studies/{SILENT}/logs?follow=true")
    with calling(service) as caller, ExitStack() as lines:
        first = opened(lines, caller, kinds[0], reader)
        for number in range(1, MOST_OF_A_TOKEN):
            assert opened(lines, caller, kinds[number % 3], reader).status_code == 200
        for kind in kinds:
            with ExitStack() as others:
                refused = opened(others, caller, kind, reader)
                assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
                assert "you listen 50 times already" in refused.read().decode()
                assert opened(others, caller, kind, admin).status_code == 200
        assert caller.get("/api/me", headers=bearer(reader)).status_code == 200
        first.close()

        def free() -> bool:
            with ExitStack() as others:
                return opened(others, caller, kinds[2], reader).status_code == 200

        until(free, SOON_S, "the place of the one that has ended")


def test_a_log_in_which_nothing_happens_ends_with_its_readers_token(running: tuple[Served, str, str]) -> None:
    service, _, _ = running
    tokens = Tokens(Store.open(str(service.store)))
    text, kept = tokens.create("leaver", Role.read)
    with calling(service) as caller, ExitStack() as lines:
        silent = [
            opened(lines, caller, f"/api/studies/{SILENT}/{kind}", text)
            for kind in ("logs?follow=1", "events")
        ]
        assert [each.status_code for each in silent] == [200, 200]
        tokens.revoke(kept.id)
        printed, told = (each.read() for each in silent)  # to their ends
    assert b"sleep 3600" in printed and b"event: study" in told  # for an hour nobody says more


def test_a_machine_without_tokens_has_more_streams_than_a_token_until_the_first_is_made(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "store", NOBODY) as service, ExitStack() as lines:
        caller = lines.enter_context(calling(service))
        found = [opened(lines, caller, "/api/events", None) for _ in range(2 * MOST_OF_A_TOKEN)]
        assert {each.status_code for each in found} == {200}
        Tokens(Store.open(str(service.store))).create("first", Role.read)
        assert all(b"event: studies" in each.read() for each in found)  # to their ends


def test_a_stream_that_has_ended_counts_no_more() -> None:
    streams = Streams()
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), streams.one_more("ada", 1):
            raise ZeroDivisionError
    assert not streams._of


@pytest.mark.parametrize("query", ["", "?follow=true", "?tail=1"])
def test_what_a_driver_prints_is_shown_without_secrets(running: tuple[Served, str, str], query: str) -> None:
    service, _, _ = running
    printed = service.http.get(f"/api/studies/{CHATTY}/logs{query}").text
    assert printed.endswith("at https://***@host/x")
    assert ("password=*** begins" in printed) == (query != "?tail=1")
    assert not any(secret in printed for secret in PRINTED)


def test_a_secret_that_comes_in_pieces_is_not_shown() -> None:
    text = "one\npassword=hunter2\r50%\r100%\n" + "x" * 250_000 + "\ntoken: s3cr3t"

    async def pieces() -> AsyncIterator[str]:
        for start in range(0, len(text), 7):
            yield text[start : start + 7]

    async def read() -> list[bytes]:
        return [part async for part in redacted(pieces())]

    found = asyncio.run(read())
    assert found[0] == b"one\n"  # as soon as it is whole
    assert max(map(len, found)) < 110_000  # a line without an end is not waited for
    assert b"".join(found).decode() == text.replace("hunter2", "***").replace("s3cr3t", "***")


def test_no_secret_of_the_service_is_in_the_environment_of_trials(head: BackgroundProcess) -> None:
    seen = [Path(f"/proc/{pid}/environ").read_bytes() for pid in session(head.pid)]
    assert len(seen) > 3 and any(b"RAY_AUTH_TOKEN_PATH" in each for each in seen)
    assert not [each for each in seen if any(secret.encode() in each for secret in SECRETS.values())]
