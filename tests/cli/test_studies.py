"""The commands of studies: on stores that are written here, and one study that is really run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from cbe.spec import TrainConfig, read_config
from cbe.ssl import resolve
from cbe.store.folder import Store, StudyFolder
from cbe.store.states import STATUS
from cbe.study.control import Claim
from cbe.study.lifecycle import amend, begin, load
from cbe.study.overview import details, overviews
from tests.conftest import Cbe
from tests.heads_study import PLAIN, ROWS, base, config, finished_study, row, write
from tests.made import Made
from tests.made import status as write_status


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    """A study that has finished, in the store `results`."""
    return finished_study(tmp_path / "results")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1")
    client.create_bucket(Bucket="studies")
    client.close()
    yield f"s3://studies/results?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    server.stop()


def test_a_study_in_a_bucket_begins_changes_and_is_shown_alike(bucket: str, cbe_: Cbe) -> None:
    store = Store.open(bucket)
    begin(config(), store)
    _, folder = load(store, "heads")
    folder.append("trials", ROWS)
    assert amend(folder, settings=["budget.trials=9"]).trials == 9
    assert load(store, "heads")[0].trials == 9 and folder.read("study.1.yaml") is not None
    shown = cbe_("show", "heads", "--store", bucket)
    assert "search 4/9" in shown.words
    assert f"Go on with: cbe resume heads --store '{bucket}'" in shown.out
    assert re.search(r"optuna-dashboard results/heads-\w{8}/optuna.journal", shown.out)


# --- how studies stand --------------------------------------------------------------------------------------


def test_the_overview_counts_what_has_ended_and_has_the_first_of_the_answer(folder: StudyFolder) -> None:
    (found,) = overviews(Store.open(str(Path(folder.uri).parent)))
    assert found.search is not None and found.confirm is not None
    assert (found.search.done, found.search.total) == (4, 4)
    assert (found.confirm.done, found.confirm.total) == (4, 4)
    assert (found.state, found.stage) == ("finished", "confirm")
    assert (found.best, found.best_trial, found.best_role) == (0.31, "t0001", "confirm")
    assert found.counts == {"completed": 6, "pruned": 1, "failed": 1}


def test_trials_of_a_driver_that_is_gone_do_not_run(folder: StudyFolder, tmp_path: Path) -> None:
    folder.append("trials", [row("t0001", 0.3, state="running", step=20)])
    gone = {"state": "running", "pid": 2**22 + 1, "host": os.uname().nodename}
    folder.write(STATUS, json.dumps(gone).encode())
    found = details(Store.open(str(tmp_path / "results")), "heads")
    assert found.overview.state == "interrupted"
    assert [row["state"] for row in found.trials if row["trial"] == "t0001"] == ["interrupted"]
    with Claim(folder):
        alive = details(Store.open(str(tmp_path / "results")), "heads")
    assert [row["state"] for row in alive.trials if row["trial"] == "t0001"] == ["running"]


def test_the_best_of_a_search_that_maximises_is_the_largest(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    objective = [{"metric": "validation_error", "direction": "maximize"}]
    begin(config(objective=objective), store)
    rows = [row(f"t000{n}", error, config_id=str(n)) for n, error in enumerate((0.2, 0.6, float("nan")))]
    store.study("heads").append("trials", rows)
    (found,) = overviews(store)
    assert found.best_trial == "t0001"


def test_ls_lists_studies_and_one_that_cannot_be_read_hides_no_other(folder: StudyFolder, cbe_: Cbe) -> None:
    Store.open("results").study("broken").write("study.yaml", b"name: broken\nmodel: vit\n")
    done = cbe_("ls")
    assert done.code == 0
    assert "heads finished confirm 4/4 4/4 31.00 % 1.6 min 2026-01-0" in done.words
    assert "broken unreadable" in done.words and "model" in done.err and "wrn-DEPTH-WIDTH" in done.err
    assert max(map(len, done.out.splitlines())) <= 80
    listed = {each["study"]: each for each in json.loads(cbe_("ls", "--json").out)}
    assert listed["heads"]["search"] == {"done": 4, "total": 4} and listed["heads"]["best"] == 0.31
    assert listed["heads"]["updated"] == "2026-01-02T03:04:00+00:00"
    assert listed["broken"]["state"] == "unreadable"


def test_an_empty_store_lists_nothing_and_says_how_to_begin(cbe_: Cbe) -> None:
    assert cbe_("ls", "--store", "nowhere").code == 2
    done = cbe_("ls")
    assert (done.code, done.out) == (0, "") and "begin one with `cbe run FILE`" in done.err
    assert json.loads(cbe_("ls", "--json").out) == []


def test_the_store_is_that_of_the_option_or_the_environment(
    folder: StudyFolder, cbe_: Cbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CBE_STORE", "nowhere")
    assert cbe_("ls").out == ""
    assert "heads" in cbe_("ls", "--store", "results").out


def test_show_tells_trials_values_failures_and_the_samplers_history(folder: StudyFolder, cbe_: Cbe) -> None:
    done = cbe_("show", "heads")
    assert done.code == 0
    assert done.out.startswith("heads: finished\nDo [bold]more[/bold] heads help?\n")
    assert "search 4/4, confirm 4/4: 6 completed · 1 pruned · 1 failed" in done.words
    assert "t0000 search, base completed 40/40 50.00 % 51.00 % 12 s" in done.words
    assert "t0003 search failed 20/40 – – 12 s NonFiniteLoss" in done.words
    assert "* not used for selection" in done.out
    assert "t0001 c0002 c0003 heads 4, lb 0.25" in done.words and "t0002 heads 2" in done.words
    assert "t0003: NonFiniteLoss: loss [red]is[/red] not finite [2J\nat step 20" in done.out
    assert f"optuna-dashboard {folder.uri}/optuna.journal" in done.out
    assert "\x1b" not in done.out
    assert done.out.index("t0000") < done.out.index("c0000")


def test_every_line_of_the_tables_survives_80_columns(folder: StudyFolder, cbe_: Cbe) -> None:
    for command in (["show", "heads"], ["best", "heads", "-k", "5"]):
        lines = cbe_(*command).out.splitlines()
        rule = next(number for number, line in enumerate(lines) if line.startswith("──"))
        assert max(map(len, lines[rule - 2 : rule + 9])) <= 80
        assert all("…" not in line for line in lines)


def test_show_for_a_program_has_every_trial(folder: StudyFolder, cbe_: Cbe) -> None:
    found = json.loads(cbe_("show", "heads", "--json").out)
    trials = {each["trial"]: each for each in found["trials"]}
    assert len(trials) == 8 and found["optuna"].endswith("results/heads/optuna.journal")
    assert trials["t0001"]["params"] == {"loss.weights.lb": 0.25, "ensemble.heads": 4}
    assert trials["t0003"]["objective"] is None and trials["t0003"]["error_class"] == "NonFiniteLoss"


def test_an_own_optuna_storage_is_the_one_shown(cbe_: Cbe) -> None:
    begin(config(storage={"optuna": "sqlite:///history.db"}), Store.open("results"))
    assert "optuna-dashboard sqlite:///history.db" in cbe_("show", "heads").out


def test_a_study_that_is_running_can_be_asked_to_stop(folder: StudyFolder, cbe_: Cbe) -> None:
    refused = cbe_("stop", "heads")
    assert refused.code == 2 and "is not running; there is nothing to stop" in refused.err
    with Claim(folder):
        done = cbe_("stop", "heads")
        assert folder.read("stop") is not None
    assert (done.code, done.out) == (0, "") and "Go on with: cbe resume heads" in done.err


def test_a_study_is_deleted_only_where_that_is_meant_and_it_rests(folder: StudyFolder, cbe_: Cbe) -> None:
    refused = cbe_("delete", "heads")
    assert refused.code == 2 and "give --yes" in refused.err
    with suppress(KeyboardInterrupt), Claim(folder):
        refused = cbe_("delete", "heads", "--yes")
        assert refused.code == 2 and "is running; stop it with `cbe stop heads` first" in refused.err
        raise KeyboardInterrupt
    assert folder.exists()
    done = cbe_("delete", "heads", "--yes")
    assert (done.code, done.out, done.err.strip()) == (0, "", "heads: deleted")
    assert not Path("results/heads").exists()
    gone = cbe_("delete", "heads", "--yes")
    assert gone.code == 2 and "holds no study heads" in gone.err


# --- the answer ---------------------------------------------------------------------------------------------


def test_best_says_its_verdict_then_its_sentence_the_table_and_the_searched_values(
    folder: StudyFolder, cbe_: Cbe
) -> None:
    done = cbe_("best", "heads")
    assert done.code == 0
    assert done.out.startswith("t0001 is better than the base: 31.0 % validation error\nt0001 has 31.0 % ")
    assert "31.0 % validation error (95 % 19.9 to 45.0, n = 2), 19.5 points (" in done.words
    # The differences −.20 and −.19 by a verdict of two pairs; the means by t on the logit scale.
    assert re.search(
        r"1 t0001 2 31\.00 −19\.50 – 25\.00 32\.00 \(19\.9 to 45\.0\) \([−.\d]+ to [−.\d]+\) better",
        done.words,
    )
    assert "2 base 2 50.50 – – 50.00 51.50 (" in done.words
    assert "* not used for selection" in done.out
    assert "loss.weights.lb: 0.25" in done.out and "ensemble.heads: 4" in done.out


def test_best_for_a_program_and_as_a_training_file(folder: StudyFolder, cbe_: Cbe, tmp_path: Path) -> None:
    answer = json.loads(cbe_("best", "heads", "--json").out)
    assert answer["confirmed"] and answer["ranked"][0]["config_id"] == "aaaaaaaaaaaa"
    (tmp_path / "best.yaml").write_text(cbe_("best", "heads", "--yaml").out)
    assert read_config(TrainConfig, tmp_path / "best.yaml").heads == 4
    both = cbe_("best", "heads", "--json", "--yaml")
    assert both.code == 2 and "give one of the two" in both.err


def test_show_says_why_a_search_ended_early_and_what_was_not_needed(cbe_: Cbe, tmp_path: Path) -> None:
    budget = {"trials": 30, "usd": 10}
    made = Made("results", budget=budget, resources={"usd_per_hour": 3.6}, confirm={"configs": 0, "runs": 5})
    for pair in ((1, 1), (2, 2)):
        made.trial(0.2, preset="base", role="confirm", pair=pair, cost_usd=1.25)
        made.trial(0.1, preset="paper", role="confirm", pair=pair)
    write_status(made, "finished", cut_short="budget.usd of 10 keeps 2 for the confirmation")
    words = cbe_("show", "made").words
    assert "search ended early: budget.usd of 10 keeps 2 for the confirmation" in words
    assert "unspent: 6 runs of the confirmation, 7.50 USD" in words


def test_several_objectives_have_a_front(cbe_: Cbe) -> None:
    store = Store.open("results")
    begin(config(objective=["validation_error", "macs"]), store)
    cheap = row("t0001", 0.5, values=[0.5, 1e6], config_id="cccccccccccc")
    dear = row("t0002", 0.2, values=[0.2, 2.5e6], config_id="dddddddddddd")
    store.study("heads").append("trials", [base("t0000", 0.6, values=[0.6, 3e6]), cheap, dear])
    words = cbe_("best", "heads").words
    assert "No other config is better in every objective" in words
    assert "t0002 t0002 20.00 2,500,000" in words and "t0001 t0001 50.00 1,000,000" in words
    assert "t0000" not in words


def test_a_study_without_an_answer_says_what_to_do(cbe_: Cbe) -> None:
    begin(config(), Store.open("results"))
    done = cbe_("best", "heads")
    assert (done.code, done.out) == (2, "") and "cbe resume heads" in done.err


def test_a_finished_study_answers_at_once_when_it_is_resumed(folder: StudyFolder, cbe_: Cbe) -> None:
    at_an_address_that_is_not_there = cbe_("resume", "heads", "--address", "127.0.0.1:1", "--json")
    assert at_an_address_that_is_not_there.code == 0
    assert json.loads(at_an_address_that_is_not_there.out)["study"] == "heads"


def test_a_study_that_is_there_goes_on_by_the_file_that_is_run(
    folder: StudyFolder, cbe_: Cbe, tmp_path: Path
) -> None:
    file = write(tmp_path / "heads.yaml")
    assert cbe_("run", file).code == 2
    done = cbe_("run", file, "--resume", "--json")
    assert done.code == 0 and json.loads(done.out)["study"] == "heads"
    nowhere = ["--address", "127.0.0.1:1"]
    more = cbe_("run", write(file, budget={"trials": 9}), "--resume", *nowhere)
    assert more.code == 2 and "no Ray cluster at 127.0.0.1:1" in more.err
    assert load(Store.open("results"), "heads")[0].trials == 9
    other = cbe_("run", write(file, data={"labels": 80}), "--resume", *nowhere)
    assert other.code == 2 and "data.labels: the study was started with 40, now it is 80" in other.err


def test_a_new_limit_is_given_in_short(folder: StudyFolder, cbe_: Cbe) -> None:
    nowhere = ["--address", "127.0.0.1:1"]
    free = cbe_("resume", "heads", "--budget", "usd=20", *nowhere)
    assert free.code == 2 and "no cost is counted while resources.usd_per_hour is 0" in free.err
    priced = ["--set", "resources.usd_per_hour=1.2"]
    more = cbe_("resume", "heads", "--budget", "usd=20", "--budget", "gpu_hours=8", *priced, *nowhere)
    assert more.code == 2 and "no Ray cluster at 127.0.0.1:1" in more.err
    budget = load(Store.open("results"), "heads")[0].budget
    assert (budget.usd, budget.gpu_hours) == (20, 8)
    wrong = cbe_("resume", "heads", "--budget", "usd=-1", *nowhere)
    assert wrong.code == 2 and "budget.usd" in wrong.err


# --- one trial ----------------------------------------------------------------------------------------------


def test_a_trial_shows_its_values_state_error_and_how_to_train_it_again(
    folder: StudyFolder, cbe_: Cbe
) -> None:
    reports = [{"trial": "t0001", "step": n, "validation_error": 1 / n, "test_error": 0.5} for n in (20, 40)]
    folder.append("metrics", reports)
    words = cbe_("show", "heads/t0001").words
    assert words.startswith("heads/t0001: completed role search config aaaaaaaaaaaa, seed 0, label split 0")
    assert "values heads 4, lb 0.25 step 40 of 40, 12 s validation error 2.50 % test error* 50.00 %" in words
    again = "Train it again: cbe show heads/t0001 --yaml > t0001.yaml && cbe train t0001.yaml"
    assert again in words
    failed = cbe_("show", "heads/t0003")
    assert "NonFiniteLoss: loss [red]is[/red] not finite [2J at step 20" in failed.words
    assert "\x1b" not in failed.out
    found = json.loads(cbe_("show", "heads/t0001", "--json").out)
    assert found["params"]["ensemble.heads"] == 4 and [each["step"] for each in found["curve"]] == [20, 40]
    assert found["rerun"].endswith("cbe train t0001.yaml") and found["config"]["ensemble"]["heads"] == 4
    assert "did you mean t0000?" in cbe_("show", "heads/t00000").err


def test_the_file_of_a_trial_is_its_very_config(folder: StudyFolder, cbe_: Cbe, tmp_path: Path) -> None:
    made = Made(tmp_path / "results")
    name = made.trial(0.2, {"ensemble.heads": 3, "loss.weights.lb": 0.7}, pair=(5, 7))
    (tmp_path / "again.yaml").write_text(cbe_("show", f"made/{name}", "--yaml").out)
    found = read_config(TrainConfig, tmp_path / "again.yaml")
    assert found == resolve(made.study.train_config({"ensemble.heads": 3, "loss.weights.lb": 0.7}, 5, 7))
    folder.append("trials", [row("t0009", None, state="infeasible", config=None)])
    none = cbe_("show", "heads/t0009", "--yaml")
    assert none.code == 2 and "could not be built" in none.err
    assert "Train it again" not in cbe_("show", "heads/t0009").out


# --- what it takes ------------------------------------------------------------------------------------------


def test_plan_tells_trials_rungs_steps_and_time(cbe_: Cbe, tmp_path: Path) -> None:
    file = write(tmp_path / "heads.yaml", budget={"trials": 4, "usd": 1e-9}, resources={"usd_per_hour": 2})
    done = cbe_("plan", file, "--concurrent", "2")
    assert done.code == 0, done.err
    assert "heads: 4 trials and 6 runs to confirm, 2 at once" in done.out
    assert "20 4 40 2 to 4" in done.words
    assert "steps 360 to 400" in done.words and "USD 0.0" in done.words
    assert "budget.usd will be spent before the end: the study stops there" in done.words
    assert " ms a step, " in done.out and " ms an evaluation, " in done.words
    assert max(map(len, done.out.splitlines())) <= 80
    plan = json.loads(cbe_("plan", file, "--json", "--concurrent", "1", "--set", "budget.trials=6").out)
    assert (plan["trials"], plan["concurrent"]) == (6, 1)


# --- one study, from its file to its answer -----------------------------------------------------------------


def test_listing_showing_and_checking_load_neither_torch_nor_ray(folder: StudyFolder, tmp_path: Path) -> None:
    file = write(tmp_path / "heads.yaml")
    commands = [["ls"], ["show", "heads"], ["best", "heads"], ["check", str(file)]]
    code = (
        "import sys; from cbe.cli import app\n"
        f"for each in {commands!r}: app(each, standalone_mode=False)\n"
        "sys.exit(' '.join({'torch', 'ray', 'optuna'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_bad_input_starts_nothing(cbe_: Cbe, tmp_path: Path) -> None:
    file = write(tmp_path / "bad.yaml", search={"ensemble.haeds": [2, 3]}, sampler="tpee")
    for command in ("run", "plan"):
        done = cbe_(command, file)
        assert done.code == 2 and done.out == ""
        assert "did you mean ensemble.heads?" in done.err and "did you mean tpe?" in done.err
    assert cbe_("resume", "nothing").code == 2
    assert not (tmp_path / "results").exists()


@pytest.mark.ray
def test_a_study_runs_to_its_answer_and_is_not_begun_twice(tmp_path: Path) -> None:
    quick = {"budget": {"trials": 3}, "confirm": {"configs": 1, "runs": 1}, "scheduler": "none"}
    file = write(tmp_path / "heads.yaml", **quick, training=PLAIN["training"] | {"steps": 20})

    def cbe(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from cbe.cli import main; main()", *map(str, arguments)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CBE_STORE": "stored"}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)

    done = cbe("run", file, "--resume", "--json")  # there is nothing to go on with
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["study"] == "heads" and answer["confirmed"]
    assert {each["preset"] for each in answer["ranked"]} >= {"paper", "base"}
    ends = [line.split() for line in done.stderr.splitlines() if line[0] in "tc" and line[1:5].isdigit()]
    confirmed = {each["name"] for each in answer["ranked"]}  # the sampled one only where it is ahead
    assert sorted(f"{trial} {state}" for trial, state, *_ in ends) == [
        *(f"c000{n} completed" for n in range(len(confirmed))),
        *(f"t000{n} completed" for n in range(3)),
    ]
    assert "Traceback" not in done.stderr
    again = cbe("run", file)
    assert again.returncode == 2 and "exists already; it is finished: see `cbe best heads`" in again.stderr


def test_a_cluster_that_does_not_answer_is_told_at_once_and_leaves_no_study(
    cbe_: Cbe, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("name: a\n")
    done = cbe_("run", "a.yaml", "--address", "127.0.0.1:1")
    assert done.code == 2 and "no Ray cluster at 127.0.0.1:1" in done.err
    assert not list((tmp_path / "results").glob("a"))
