"""What readers of the service are told: read once for all of them, all of it first, then what has changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cbe.errors import InputError
from cbe.service.live.answer_cache import AnswerCache
from cbe.service.live.study_status import StudyStatus
from cbe.service.live.study_watcher import StudyWatcher
from cbe.store.folder import STUDY_FILE, Store
from cbe.store.states import STATUS
from tests.conftest import requests
from tests.made import Made, status, whole

Event = tuple[str, Any]


def study_watcher(store: Path) -> StudyWatcher:
    return StudyWatcher(Store.open(str(store)), lambda found: StudyStatus(found.overview))


async def heard(news: AsyncIterator[bytes]) -> list[Event]:
    """The events of the next message."""
    found: list[Event] = []
    for each in (await asyncio.wait_for(anext(news), 10)).decode().split("\n\n"):
        if each.startswith("event: "):
            kind, data = each.split("\n")
            found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_listener_hears_all_of_a_study_first_and_then_what_has_changed(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.2, preset="paper")

    async def listen() -> None:
        seen = study_watcher(tmp_path)
        await seen.look()
        news = seen.listen_to("made")
        (_, study), (_, first) = await heard(news)
        assert study["study"] == "made" and [row["trial"] for row in first["trials"]] == ["t0000"]
        made.trial(0.1, preset="base")
        await seen.look()
        (_, study), (_, later) = await heard(news)
        assert study["counts"] == {"completed": 2} and [row["trial"] for row in later["trials"]] == ["t0001"]
        made.folder.remove()
        await seen.look()
        assert await heard(news) == [("gone", {})]
        with pytest.raises(StopAsyncIteration):
            await anext(news)
        assert seen.listeners == 0

    asyncio.run(listen())


def test_a_listener_who_is_slow_misses_no_trial(tmp_path: Path) -> None:
    made = Made(tmp_path)

    async def listen() -> None:
        seen = study_watcher(tmp_path)
        await seen.look()
        news = seen.listen_to("made")
        await heard(news)
        for error in (0.3, 0.2, 0.1):
            made.trial(error)
            await seen.look()
        events = await heard(news)
        assert [row["trial"] for row in events[-1][1]["trials"]] == ["t0000", "t0001", "t0002"]
        await seen.stop()

    asyncio.run(listen())


def test_the_list_tells_what_is_new_and_what_is_gone_and_nothing_twice(tmp_path: Path) -> None:
    first, second = Made(tmp_path, "first"), Made(tmp_path, "second")

    async def listen() -> None:
        seen = study_watcher(tmp_path)
        await seen.look()
        news = seen.listen()
        [(_, told)] = await heard(news)
        assert [each["study"] for each in told["studies"]] == ["first", "second"] and told["gone"] == []
        status(second, "stopped", stop_reason="budget.trials of 4 is spent")
        await seen.look()
        [(_, told)] = await heard(news)
        assert [(each["study"], each["state"]) for each in told["studies"]] == [("second", "stopped")]
        first.folder.remove()
        await seen.look()
        assert await heard(news) == [("studies", {"studies": [], "gone": ["first"]})]
        await seen.stop()
        with pytest.raises(StopAsyncIteration):
            await anext(news)

    asyncio.run(listen())


def test_a_study_at_rest_is_read_once_and_one_that_cannot_be_read_is_told_so(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.2)

    async def look() -> None:
        seen = study_watcher(tmp_path)
        await seen.look()
        before = seen.get("made")
        await seen.look()
        assert seen.get("made") is before
        made.folder.write(STUDY_FILE, b"name: [")
        await seen.look()
        now = seen.get("made")
        assert now and now.state == "unreadable" and "not valid YAML" in now.status["reason"]

    asyncio.run(look())


def test_an_answer_is_worked_out_once_for_all_who_ask_until_something_has_changed() -> None:
    async def ask() -> None:
        kept, times = AnswerCache(), 0

        async def find() -> bytes:
            nonlocal times
            times += 1
            await asyncio.sleep(0)
            return b"%d" % times

        assert await asyncio.gather(*[kept.get("best", 1, find) for _ in range(50)]) == [b"1"] * 50
        assert await kept.get("best", 2, find) == b"2"

    asyncio.run(ask())


def test_a_failure_is_told_to_all_who_asked_and_is_not_kept() -> None:
    async def ask() -> None:
        kept, broken = AnswerCache(), True

        async def find() -> bytes:
            if broken:
                raise InputError("no trial has ended")
            return b"fine"

        found = await asyncio.gather(*[kept.get("best", 1, find) for _ in range(3)], return_exceptions=True)
        assert [str(each) for each in found] == ["no trial has ended"] * 3
        broken = False
        assert await kept.get("best", 1, find) == b"fine"

    asyncio.run(ask())


def test_a_service_that_starts_again_takes_studies_at_rest_from_the_index(store: Store) -> None:
    def watcher() -> StudyWatcher:
        return StudyWatcher(store, lambda found: StudyStatus(found.overview))

    for name in ("a", "b"):
        status(whole(store.uri, name), "finished")

    async def start_twice() -> None:
        await watcher().look()
        second = watcher()
        with requests() as made:
            await second.look()
        assert not any("/trials" in line or STATUS in line for line in made)
        assert [(each.name, each.state, len(each.rows)) for each in second.all()] == [
            ("a", "finished", 0),
            ("b", "finished", 0),
        ]
        assert not second.is_whole("a")
        second.fill("a")
        found = second.get("a")
        assert found and len(found.rows) == 24 and second.is_whole("a") and not second.is_whole("b")
        with store.study("b").changing():
            store.study("b").write(STATUS, b'{"state": "stopped"}')
        third = watcher()
        await third.look()
        assert {each.name: each.state for each in third.all()} == {"a": "finished", "b": "stopped"}
        if store.location.local:
            await second.look()
            assert {each.name: each.state for each in second.all()} == {"a": "finished", "b": "stopped"}

    asyncio.run(start_twice())
