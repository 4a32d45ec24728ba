"""The copy of the sampler's history for `optuna-dashboard`: true where it can be written."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import BaseStorage

from cbe.errors import InputError
from cbe.study.search.mirror import Mirror, open_storage
from cbe.study.search.sampling import Sampling
from tests.study.conftest import study
from tests.study.search.test_sampling import SPACE, drive
from tests.waiting import until


def mirrored(mirror: Mirror) -> Sampling:
    return Sampling(study(search=SPACE, budget={"trials": 20}), mirror=mirror)


def copied(storage: BaseStorage, name: str = "small") -> list[tuple[Any, ...]]:
    return [plain(trial) for trial in optuna.load_study(study_name=name, storage=storage).trials]


def plain(trial: Any) -> tuple[Any, ...]:
    about = (trial.number, trial.params, trial.state, trial.values, trial.intermediate_values)
    return (*about, trial.user_attrs, trial.constraints)


def known(sampling: Sampling) -> list[tuple[Any, ...]]:
    return [plain(trial) for trial in sampling._optuna.trials]


@pytest.mark.parametrize("url", [None, "sqlite:///{}/optuna.db"])
def test_a_copy_has_all_that_the_sampler_knows_as_it_happens(url: str | None, tmp_path: Path) -> None:
    url = url and url.format(tmp_path)
    journal = tmp_path / "optuna.journal"
    mirror = Mirror(url, journal)
    sampling = mirrored(mirror)
    drive(sampling, range(3))
    asked = sampling.ask("t0003", (0, 0))
    assert asked.number is not None

    def is_copied() -> bool:
        return copied(open_storage(url, journal)) == known(sampling)

    until(lambda: mirror._copy, what="the copy")  # two at once cannot make a database
    until(is_copied, what="all of it")
    sampling.report(asked.number, 10, 0.5)
    sampling.pause("t0003")
    until(is_copied, what="the report")
    sampling.tell(asked.number, "failed", None, "OutOfMemory")
    mirror.close()
    assert is_copied() and journal.exists() == (url is None)


def test_a_copy_that_another_machine_has_left_behind_is_replaced(tmp_path: Path) -> None:
    journal = tmp_path / "optuna.journal"
    for count in (5, 2, 4):  # the second is not what the first has begun
        mirror = Mirror(None, journal, home="here")
        sampling = mirrored(mirror)
        drive(sampling, range(10 * count, 11 * count))
        mirror.close()
        assert copied(open_storage(None, journal)) == known(sampling)


def test_two_stores_with_one_database_have_a_copy_each(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/optuna.db"
    for home, count in (("here", 2), ("there", 3), ("here", 4)):
        mirror = Mirror(url, tmp_path / "unused", home=home)
        drive(mirrored(mirror), range(count))
        mirror.close()
    storage = open_storage(url, tmp_path / "unused")
    assert sorted(optuna.get_all_study_names(storage)) == ["small", "small (2)"]
    assert [len(copied(storage, name)) for name in ("small", "small (2)")] == [4, 3]


def test_a_line_that_a_killed_writer_left_unfinished_is_cut_off(tmp_path: Path) -> None:
    journal = tmp_path / "optuna.journal"
    for count in (3, 5):
        mirror = Mirror(None, journal)
        drive(mirrored(mirror), range(count))
        mirror.close()
        assert len(copied(open_storage(None, journal))) == count
        with journal.open("ab") as file:
            file.write(b'{"op_code": 4, "wor')


def test_a_copy_that_cannot_be_written_is_told_once_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cbe.study.search.mirror.RETRY_S", 0.01)
    told: list[str] = []
    place = tmp_path / "away"
    mirror = Mirror(f"sqlite:///{place}/optuna.db", tmp_path / "unused", failed=told.append)
    sampling = mirrored(mirror)
    drive(sampling, range(3))
    until(lambda: told, what="the word of it")
    place.mkdir()
    until(lambda: mirror.problem is None, what="the copy")
    drive(sampling, range(3, 5))
    mirror.close()
    assert len(told) == 1 and "unable to open database file" in told[0]
    assert copied(open_storage(f"sqlite:///{place}/optuna.db", tmp_path / "unused")) == known(sampling)


def test_a_copy_that_somebody_holds_up_keeps_no_study_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cbe.study.search.mirror.CLOSE_S", 0.1)
    journal = tmp_path / "optuna.journal"
    (tmp_path / "optuna.journal.lock").write_bytes(b"")
    mirror = Mirror(None, journal)
    began = time.monotonic()
    drive(mirrored(mirror), range(3))
    mirror.close()
    assert time.monotonic() - began < 20  # a lock that nobody lets go is broken after 30


def test_an_address_that_is_none_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"storage\.optuna: cannot be opened .*give an Optuna storage URL"):
        Mirror("nosuch://x", tmp_path / "unused")
