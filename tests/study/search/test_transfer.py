"""Studies that start from what earlier studies of the store have found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from optuna.trial import FrozenTrial, TrialState

from cbe.errors import ConfigError
from cbe.report.best import best
from cbe.spec import StudyConfig, read_config
from cbe.store.folder import Store
from cbe.study.overview import details, overview
from cbe.study.search.earlier_studies import find, priors
from cbe.study.search.transfer import FROM, transfer
from tests.conftest import Cbe
from tests.made import Made, whole
from tests.study.conftest import rows, study
from tests.study.learning import Driver, ran

SPACE = {"ensemble.heads": {"int": [2, 8]}, "loss.weights.lb": {"float": [0.1, 10], "log": True}}
LB = {"loss.weights.lb": {"float": [0.1, 3]}}


def later(where: Path, **sections: Any) -> StudyConfig:
    """A study of the same data as those of `tests.made`."""
    made = Made(where / "aside", "later", **{"search": SPACE, "search_from": ["made"], **sections})
    return made.study


def learned(config: StudyConfig, where: Path) -> list[FrozenTrial]:
    return transfer(config, find(config, Store.open(str(where)))).told(config)


def told(found: list[FrozenTrial]) -> dict[str, Any]:
    return {trial.user_attrs[FROM]: trial for trial in found}


def test_values_are_told_as_differences_to_the_base_plus_its_mean(tmp_path: Path) -> None:
    for name, base, error in (("easy", 0.10, 0.08), ("hard", 0.30, 0.25)):
        made = Made(tmp_path, name)
        made.trial(base, preset="base")
        made.trial(error, {"ensemble.heads": 3, "loss.weights.lb": 1.0})
    found = told(learned(later(tmp_path, search_from=["easy", "hard"]), tmp_path))
    assert {name: trial.value for name, trial in found.items()} == {
        "easy/t0001": pytest.approx(0.20 - 0.02),
        "hard/t0001": pytest.approx(0.20 - 0.05),
    }
    assert found["easy/t0001"].params == {"ensemble.heads": 3, "loss.weights.lb": 1.0}


def test_a_trial_without_the_base_on_its_pair_is_not_told(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.1, preset="base", pair=(0, 0))
    made.trial(0.2, preset="base", pair=(0, 1), state="pruned")
    for pair in ((0, 0), (0, 1), (0, 2)):
        made.trial(0.05, {"ensemble.heads": 3, "loss.weights.lb": 1.0}, pair=pair)
    assert list(told(learned(later(tmp_path), tmp_path))) == ["made/t0002"]


def test_only_points_of_this_space_are_told(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.1, preset="base")
    made.trial(0.05, {"ensemble.heads": 3, "loss.weights.lb": 1.0})
    made.trial(0.05, {"ensemble.heads": 8, "loss.weights.lb": 1.0})  # more heads than are searched
    narrow = later(tmp_path, search={"ensemble.heads": {"int": [2, 4]}})
    # λ_lb is searched there and not here: it must have the value that it has here.
    made.trial(0.05, {"ensemble.heads": 3, "loss.weights.lb": 2.0})
    found = told(learned(narrow, tmp_path))
    assert {name: trial.params for name, trial in found.items()} == {"made/t0001": {"ensemble.heads": 3}}


def test_trials_stopped_early_are_told_only_to_a_study_of_as_many_steps(tmp_path: Path) -> None:
    made = whole(tmp_path)
    steps = made.study.training.steps
    same = told(learned(later(tmp_path), tmp_path)).values()
    longer = later(tmp_path, training={"steps": 2 * steps, "eval_every": 50})
    other = told(learned(longer, tmp_path)).values()
    assert TrialState.PRUNED in {trial.state for trial in same}
    assert other and {trial.state for trial in other} <= {TrialState.COMPLETE, TrialState.PRUNED}
    stopped = [trial for trial in other if trial.state == TrialState.PRUNED]
    assert all(trial.constraints for trial in stopped)  # its loss was not finite


def test_the_best_confirmed_config_becomes_the_prior_where_the_file_gives_none(tmp_path: Path) -> None:
    whole(tmp_path)  # confirms 4 heads and λ_lb 1, better than the base and the paper's
    own = {**SPACE, "loss.weights.lb": {"float": [0.1, 10], "prior": {"at": 5.0}}}
    found = Store.open(str(tmp_path))
    for search, wanted in (
        (SPACE, {"ensemble.heads": 4, "loss.weights.lb": 1.0}),
        (own, {"ensemble.heads": 4}),
    ):
        config = later(tmp_path, search=search)
        assert priors(config, find(config, found)) == wanted


def test_priors_of_the_default_search_give_way(tmp_path: Path) -> None:
    whole(tmp_path)
    config = later(tmp_path, search="default")
    found = priors(config, find(config, Store.open(str(tmp_path))))
    assert config.search["ensemble.heads"].prior and found["ensemble.heads"] == 4


def test_a_config_that_is_worse_than_the_base_is_no_prior(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.1, preset="base")
    for number in (1, 2, 3):
        made.trial(0.1, preset="base", role="confirm", pair=(number, number))
        made.trial(0.2, {"ensemble.heads": 3, "loss.weights.lb": 1.0}, role="confirm", pair=(number, number))
    config = later(tmp_path)
    assert priors(config, find(config, Store.open(str(tmp_path)))) == {}


def test_auto_takes_all_comparable_studies(tmp_path: Path) -> None:
    for name, sections in {
        "alike": {},
        "other-data": {"data": {"labels": 80, "validation": 200}},
        "other-method": {"method": "freematch"},
        "other-space": {"search": {"training.lr": [0.01, 0.02]}},
        "other-values": {"search": {"ensemble.heads": {"int": [20, 30]}}},
        "other-objective": {"objective": "validation_loss"},
    }.items():
        Made(tmp_path, name, **sections).trial(0.1, preset="base")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "study.yaml").write_text("name: [")
    config = later(tmp_path, search_from="auto")
    assert [each.name for each in find(config, Store.open(str(tmp_path)))] == ["alike"]
    nothing = later(tmp_path, search_from="auto", search={"training.ema": [0.9, 0.99]})
    assert find(nothing, Store.open(str(tmp_path))) == []


@pytest.mark.parametrize(
    ("names", "sections", "message"),
    [
        (["mad"], {}, r"search_from: .* holds no study mad; did you mean made\?"),
        (
            ["made"],
            {"data": {"labels": 80, "validation": 200}},
            r"search_from: made has other data: data\.labels is 40, here 80; wanted a study of the same data",
        ),
        (
            ["made"],
            {"search": {"training.lr": [0.01, 0.02]}},
            r"search_from: made searches ensemble\.heads, loss\.weights\.lb; none of it is searched here",
        ),
        (
            ["made"],
            {"objective": "validation_loss"},
            r"search_from: made has another objective: minimize validation_error, here minimize",
        ),
        (
            ["made"],
            {"confirm": {"configs": 1, "seeds": [3, 4], "label_splits": [13, 14]}},
            r"confirm\.seeds: made has run on 3, and its results guide this search; give others",
        ),
    ],
)
def test_a_study_that_cannot_guide_another_is_told_in_one_line(
    names: list[str], sections: dict[str, Any], message: str, tmp_path: Path
) -> None:
    whole(tmp_path)
    config = later(tmp_path, search_from=names, **sections)
    with pytest.raises(ConfigError, match=message) as raised:
        find(config, Store.open(str(tmp_path)))
    assert len(str(raised.value).splitlines()) == 1


def test_the_command_refuses_an_unknown_study_and_leaves_nothing_behind(tmp_path: Path, cbe_: Cbe) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("name: a\nsearch_from: [nowhere]\n")
    done = cbe_("run", file, "--store", tmp_path / "store")
    assert done.code == 2
    assert re.search(r"search_from: .* holds no study nowhere; ", " ".join(done.err.split()))
    assert Store.open(str(tmp_path / "store")).names() == []


@pytest.mark.parametrize(
    ("earlier", "message"),
    [("nowhere", "holds no study nowhere; "), ("made", "made has other data: data.labels")],
)
def test_a_check_refuses_an_earlier_study_in_the_words_of_a_run(
    earlier: str, message: str, tmp_path: Path, cbe_: Cbe
) -> None:
    store, file = tmp_path / "store", tmp_path / "a.yaml"
    Made(store)
    file.write_text(f"name: a\nsearch_from: [{earlier}]\ndata: {{labels: 80}}\n")
    checked, refused = (cbe_(verb, file, "--store", store) for verb in ("check", "run"))
    assert checked == refused and (checked.code, checked.out) == (2, "")
    assert "search_from: " in checked.err and message in " ".join(checked.err.split())


def test_a_check_tells_of_an_earlier_study_and_of_the_data_together(tmp_path: Path, cbe_: Cbe) -> None:
    file = tmp_path / "a.yaml"
    data = "{source: folder, path: nothing}"
    file.write_text(f"name: a\nsearch_from: [nowhere]\nstorage: elsewhere\ndata: {data}\n")
    done = cbe_("check", file)
    assert done.code == 2 and done.out == ""
    assert "elsewhere holds no study nowhere" in done.err and f"{file}:4 data.path: " in done.err


def test_a_check_accepts_an_earlier_study_that_can_guide(tmp_path: Path, cbe_: Cbe) -> None:
    made = whole(tmp_path / "store")
    file = tmp_path / "later.yaml"
    plain = {**made.study.to_plain(), "name": "later", "search_from": ["made"]}
    file.write_text(yaml.safe_dump(plain))
    done = cbe_("check", file, "--store", tmp_path / "store")
    assert done.code == 0 and "study later" in done.out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("search_from: [a]", r"a\.yaml:2 search_from\.0: a is this study itself; name an earlier study"),
        ("search_from: [b, b]", r"a\.yaml:2 search_from\.1: b is given twice; take one out"),
    ],
)
def test_a_file_that_names_itself_or_a_study_twice_is_refused(
    line: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"name: a\n{line}\n")
    with pytest.raises(ConfigError, match=message):
        read_config(StudyConfig, file)


def test_a_guided_study_confirms_on_pairs_of_its_own(tmp_path: Path) -> None:
    plain, guided, other = (
        StudyConfig.model_validate({"name": name, "search_from": given})
        for name, given in (("a", []), ("a", ["c"]), ("b", ["c"]))
    )
    pairs = [set(each.confirm_pairs) for each in (plain, guided, other)]
    assert pairs[0].isdisjoint(pairs[1]) and pairs[1].isdisjoint(pairs[2])
    assert len(pairs[1]) == len(pairs[0])


def test_history_guides_the_sampler_and_is_no_trial_of_the_study(tmp_path: Path) -> None:
    ran(study(name="first", search=LB, budget={"trials": 12}, sampler="prior"), tmp_path)
    config = study(name="second", search=LB, budget={"trials": 5}, sampler="prior", search_from=["first"])
    second = ran(config, tmp_path)
    assert second.sampling.transfer.studies == ("first",) and len(second.sampling.transfer.rows) == 11
    found = rows(second.folder)
    assert sorted(found) == [f"t{n:04d}" for n in range(5)]
    assert set(second.sampling.trials()) == {name for name, row in found.items() if row["params"] != "{}"}
    store = Store.open(str(tmp_path))
    seen = overview(store, "second").search
    assert seen is not None and (seen.done, seen.total) == (5, 5)
    assert len(details(store, "second").trials) == 5
    named = {trial for each in best(second.folder, 5).ranked for trial in each.trials}
    assert named <= found.keys()
    sampled = [json.loads(row["params"])["loss.weights.lb"] for row in found.values() if not row["preset"]]
    assert all(abs(value - 1) < 1.5 for value in sampled)  # all of the first draws would not be


@pytest.mark.parametrize("before", [0, 1, 3])
def test_resuming_adds_no_history_twice_and_keeps_the_priors(before: int, tmp_path: Path) -> None:
    first = study(
        name="first", search=LB, budget={"trials": 6}, confirm={"configs": 1, "runs": 4}, sampler="prior"
    )
    ran(first, tmp_path)
    config = study(name="second", search=LB, budget={"trials": 5}, sampler="prior", search_from="auto")
    driver = Driver(config, tmp_path)
    for _ in range(before):
        driver.finish(driver.start())
    given = driver.sampling.transfer
    assert len(given.rows) == 5 and given.priors.keys() == {"loss.weights.lb"}
    driver.die()
    ran(study(name="third", search=LB, budget={"trials": 4}), tmp_path)  # comparable, and too late
    again = ran(config, tmp_path)
    assert again.sampling.transfer == given
    known = again.sampling._optuna.trials
    assert sum(FROM in trial.user_attrs for trial in known) == 5
    assert len(rows(again.folder)) == 5
