"""The report before any browser: what its panels, tables and file say of a study's tables."""

from __future__ import annotations

import fnmatch
import json
import math
import re
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cbe.errors import InputError
from cbe.report.best import best
from cbe.report.page import evidence as evidences
from cbe.report.page import render as pages
from cbe.report.page.evidence import gather
from cbe.report.page.panels import PANELS, panels
from cbe.report.page.render import render, to_json
from cbe.store.folder import Store, StudyFolder
from tests.conftest import Cbe
from tests.made import CLASSES, HOSTILE, Made, finished, status

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return finished(tmp_path_factory.mktemp("store"))


def test_a_study_whose_driver_has_fallen_silent_is_not_called_running(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.3, {"ensemble.heads": 5, "loss.weights.lb": 2.0}, state="running")
    status(made, "running", beat=time.time() - 3600)
    page = render(made.folder)
    assert "Not finished as of" in page and "its driver last reported at" in page
    assert "1 interrupted" in page and "1 running" not in page and "No answer yet" in page


def test_the_ablation_groups_trials_by_the_weights_of_both_losses(tmp_path: Path) -> None:
    made = Made(tmp_path, search={"loss.weights.lb": [0, 1], "loss.weights.lv": [0, 1]})
    for lb, lv, error in ((0, 0, 0.3), (0, 1, 0.25), (1, 0, 0.2), (1, 1, 0.1)):
        for split in (0, 1):
            made.trial(error + 0.02 * split, {"loss.weights.lb": lb, "loss.weights.lv": lv}, pair=(0, split))
    figure = next(panel.figure for panel in panels(gather(made.folder)) if panel.id == "ablation")
    assert figure is not None
    lines = [each for each in figure["data"] if each["xaxis"] == "x" and "fill" not in each]
    assert {line["name"]: round(line["y"][-1], 3) for line in lines} == {
        "lb = 0, lv = 0 (n = 2 of 2)": 31.0,
        "lb = 0, lv = 1 (n = 2 of 2)": 26.0,
        "lb = 1, lv = 0 (n = 2 of 2)": 21.0,
        "lb = 1, lv = 1 (n = 2 of 2)": 11.0,
    }


def lines_of(made: Made) -> list[tuple[set[str], dict[str, Any]]]:
    """The groups of lines that the parallel coordinates draw, from below to the top: trials and line."""
    figure = next(panel.figure for panel in panels(gather(made.folder)) if panel.id == "parallel")
    assert figure is not None
    return [(set(trace["customdata"]), trace["line"]) for trace in figure["data"]]


def test_trials_that_are_equally_good_have_the_same_line(tmp_path: Path) -> None:
    made = Made(tmp_path)
    errors = (0.1, 0.2, 0.1, 0.3, 0.2, 0.1, 0.3, 0.3, 0.1, 0.3)
    names = [
        made.trial(error, {"ensemble.heads": 2 + at % 7, "loss.weights.lb": 1.0 + at})
        for at, error in enumerate(errors)
    ]
    *others, (chosen, line) = lines_of(made)
    assert chosen == {names[0]} and line["width"] > max(other["width"] for _, other in others)
    by_error = [
        {name for name, error in zip(names, errors, strict=True) if error == e} for e in (0.3, 0.2, 0.1)
    ]
    assert [trials for trials, _ in others] == [each - chosen for each in by_error]


def test_the_best_searched_config_is_on_top_also_where_the_search_liked_others_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = Made(tmp_path)
    points = [{"ensemble.heads": heads, "loss.weights.lb": 1.0} for heads in range(2, 9)]
    names = [turned.trial(0.1 + 0.01 * at, point) for at, point in enumerate(points)]
    for at, error in ((0, 0.3), (5, 0.2)):
        turned.trial(error, points[at], role="confirm", pair=(1, 1))
    assert lines_of(turned)[-1][0] == {names[5]}
    monkeypatch.setattr(sys.modules["cbe.report.page.panels.parallel"], "MAX_LINES", 3)
    assert lines_of(turned)[-1][0] == {names[5]} and sum(len(each) for each, _ in lines_of(turned)) < 7


def test_no_verdict_is_given_without_a_confirmation(tmp_path: Path) -> None:
    seeds = {"seeds": [0, 1], "label_splits": [0, 1]}
    points = [{"ensemble.heads": heads, "loss.weights.lb": 1.0} for heads in (4, 5)]
    searched = Made(tmp_path, "searched", **seeds)
    for pair, more in (((0, 0), 0.0), ((1, 1), 0.01)):
        searched.trial(0.2 + more, preset="base", pair=pair)
        searched.trial(0.1 + 2 * more, points[0], pair=pair)
    page = render(searched.folder)
    assert "−9.50<small>" in page and not re.search(r"<small>[^<]*, \w+</small>", page)
    assert "No verdict is given without a confirmation" in page and "Undecided:" not in page
    for number, point in enumerate(points):
        for at in (7, 8):
            preset = {"preset": "base"} if number == 0 else {}
            if preset:
                searched.trial(0.2 + 0.01 * (at - 7), role="confirm", pair=(at, at), **preset)
            searched.trial(0.1 + 0.02 * (at - 7), point, role="confirm", pair=(at, at))
        page = render(searched.folder)
        assert re.search(r"<small>[−+.\d]+ to [−+.\d]+, undecided</small>", page)
        assert "No verdict" not in page and "Undecided: the pairs so far show none of these." in page


def test_labels_that_are_given_one_by_one_are_counted(tmp_path: Path) -> None:
    made = Made(tmp_path, data={"labels": 40, "validation": 200, "label_indices": list(range(30))})
    made.trial(0.2, preset="base")
    page = render(made.folder)
    assert "with 30 labels" in page and "with 40 labels" not in page


@dataclass(frozen=True)
class Breaking(StudyFolder):
    """A folder whose trials are damaged once they have been read."""

    def table(self, name: str, *about: Any, **more: Any) -> pa.Table:
        found = super().table(name, *about, **more)
        for path in Path(self.location.root).rglob("*.parquet") if name == "trials" else ():
            path.write_bytes(b"no table")
        return found


def test_a_damaged_table_is_told_and_not_taken_for_an_unfinished_study(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.2, preset="base")
    with pytest.raises(InputError, match="parquet"):
        render(Breaking(made.folder.name, made.folder.location))


def test_names_and_states_are_escaped_where_marks_are_pointed_at(tmp_path: Path) -> None:
    made = finished(tmp_path)
    evidence = gather(made.folder)
    odd = [
        row | {"state": f"{row['state']}<i>"} if row["state"] == "failed" else row for row in evidence.rows
    ]
    rows = [row | {"trial": f"<i>{row['trial']}"} for row in odd]
    curves = {f"<i>{name}": curve for name, curve in evidence.curves.items()}
    answer = evidence.answer
    assert answer is not None
    ranked = tuple(
        replace(each, trials=tuple(f"<i>{name}" for name in each.trials)) for each in answer.ranked
    )
    evidence = replace(evidence, rows=rows, curves=curves, answer=replace(answer, ranked=ranked))
    figures = {panel.id: panel.figure for panel in panels(evidence)}
    assert {"race", "curves", "parallel", "lemma", "history", "slices", "intervals"} <= figures.keys()
    for figure in filter(None, figures.values()):
        for trace in figure["data"]:
            assert "<i>" not in f"{trace.get('text')}" and "%{customdata" not in trace.get(
                "hovertemplate", ""
            )


def test_a_study_that_selects_on_test_labels_is_not_said_to_leave_them_alone(tmp_path: Path) -> None:
    made = finished(tmp_path, objective="test_error", allow_test_selection=True)
    page = render(made.folder)
    assert "Not used for selection" not in page and "Used for selection, so it says little" in page


def test_a_trial_without_a_single_value_has_no_curve(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(math.nan, {"ensemble.heads": 3, "loss.weights.lb": 1.0})
    assert panels(gather(made.folder)) == []


def test_panels_know_neither_html_nor_colours(made: Made) -> None:
    def strings(plain: Any) -> Iterator[str]:
        if isinstance(plain, dict):
            plain = list(plain.values())
        for each in plain if isinstance(plain, list | tuple) else ():
            yield from strings(each)
        if isinstance(plain, str):
            yield plain

    found = panels(gather(made.folder))
    assert len(PANELS) == 14 and len(found) == 12
    said = [text for panel in found for text in strings(panel.to_plain())]
    assert not [text for text in said if re.match(r"#[0-9a-f]{3}|rgba?\(|<(?!b>)", text)]
    style = (Path(pages.__file__).parent / "page.css").read_text("utf-8")
    named = {name for text in said for name in re.findall(r"^var\((--[a-z0-9-]+)\)$", text)}
    assert len(named) > 10 and not [name for name in named if f"  {name}: light-dark(" not in style]


def test_of_many_curves_some_are_drawn_and_the_page_says_how_many(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidences, "MOST_CURVES", 5)
    evidence = gather(made.folder)
    note = next(panel.note for panel in panels(evidence) if panel.id == "curves")
    assert len(evidence.curves) == 9 + 5 and "14 of 27 curves are drawn" in note


def test_of_many_trials_the_best_config_is_always_among_those_drawn(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["cbe.report.page.panels.slices"], "MAX_POINTS", 2)
    evidence = gather(made.folder)
    panel = next(panel for panel in panels(evidence) if panel.id == "slices")
    assert panel.figure is not None and re.search(r"\d of 18 trials are drawn", panel.note)
    assert "best searched" in [trace["name"] for trace in panel.figure["data"]]


def unlabeled(made: Made) -> None:
    """Makes the true labels of a study's unlabeled images unknown."""
    for table, unknown in (("metrics", {"pseudo_accuracy": None}), ("confusions", {})):
        rows = made.folder.table(table).to_pylist()
        if table == "confusions":
            zeros = [[0.0] * CLASSES] * CLASSES
            rows = [row | {"matrix": zeros} for row in rows if row["kind"] == "pseudo"]
        made.folder.append(table, [row | unknown | {"revision": row["revision"] + 1} for row in rows])


def test_where_true_labels_are_unknown_no_panel_and_no_matrix_is_empty(tmp_path: Path) -> None:
    made = finished(tmp_path)
    unlabeled(made)
    found = {panel.id: panel for panel in panels(gather(made.folder))}
    for name, metric in (("pseudo-labels", "sampling rate, %"), ("ablation", "validation error, %")):
        layout = (found[name].figure or {})["layout"]
        assert layout["yaxis"]["title"]["text"] == metric and "yaxis2" not in layout
        assert "true labels of the unlabeled images are unknown" in found[name].note
    figure = found["confusions"].figure
    assert figure is not None
    assert [each["name"] for each in figure["data"]] == [
        "validation: best searched",
        "validation: paper",
        "validation: base",
    ]
    assert "Pseudo-labels have no matrix" in found["confusions"].note


def test_axes_of_confusions_have_the_names_of_the_classes(tmp_path: Path) -> None:
    made = finished(tmp_path)
    names = ["cat & dog", "a rather long name of a class", *"cdefghij"]
    for content, wanted in (
        (json.dumps({"classes": names}), ["cat &amp; dog", "a rather lo…", *"cdefghij"]),
        (json.dumps({"classes": names[:3]}), [*"0123456789"]),
        ("[1", [*"0123456789"]),
    ):
        made.folder.write("data.json", content.encode())
        figure = next(panel.figure for panel in panels(gather(made.folder)) if panel.id == "confusions")
        assert figure is not None
        assert figure["layout"]["xaxis"]["ticktext"] == figure["layout"]["yaxis6"]["ticktext"] == wanted


def test_facts_and_warnings_of_the_data_are_told_where_the_study_has_them(tmp_path: Path) -> None:
    made = finished(tmp_path)
    facts = {"classes": [], "sentence": "pets: 12 validation", "warnings": ["Steps of 8.33 %."]}
    made.folder.write("data.json", json.dumps(facts).encode())
    page = render(made.folder)
    assert "<dd>pets: 12 validation</dd>" in page and '<p class="note warning">Steps of 8.33 %.</p>' in page


def test_a_running_trial_is_not_said_to_have_ended(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.1, {"ensemble.heads": 4, "loss.weights.lb": 1.0})
    made.trial(0.3, {"ensemble.heads": 5, "loss.weights.lb": 2.0}, state="running")
    status(made, "running")
    found = {panel.id: panel for panel in panels(gather(made.folder))}
    said = json.dumps([panel.to_plain() for panel in found.values()])
    assert "searched, still running" in said and ", ended early" not in said
    assert "Hollow with a dot: still running" in found["slices"].note
    assert "1 trial still running: not shown" in found["history"].note


def test_a_paused_trial_is_told_apart_from_a_running_one_all_over_the_report(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.1, {"ensemble.heads": 4, "loss.weights.lb": 1.0})
    for heads in (5, 6, 7):
        made.trial(0.3, {"ensemble.heads": heads, "loss.weights.lb": 2.0}, state="running")
    status(made, "running", paused=["t0002", "t0003"])
    found = {panel.id: panel for panel in panels(gather(made.folder))}
    assert "Hollow with a dot: still running or paused," in found["slices"].note
    assert "1 trial still running: not shown. 2 trials paused: not shown." in found["history"].note
    assert "1 of them still running, 2 of them paused." in found["curves"].note
    page = render(made.folder)
    assert "Running: 1 trial under way and 2 paused as of " in page
    assert "1 completed · 1 running · 2 paused" in page and '<span class="state paused">' in page
    assert best(made.folder).counts == {"completed": 1, "running": 1, "paused": 2}


def test_the_caption_of_the_learning_curves_tells_what_is_drawn(made: Made, tmp_path: Path) -> None:
    def caption(of: Made) -> str:
        return next(panel.note for panel in panels(gather(of.folder)) if panel.id == "curves")

    assert caption(made) == (
        "Validation error at each evaluation. Thick: each run of the confirmation with t0006, the paper’s "
        "config and the base. Thin: all other trials. × marks a trial that the scheduler pruned."
    )
    begun = Made(tmp_path)
    begun.trial(0.2, preset="base")
    begun.trial(0.3, {"ensemble.heads": 5, "loss.weights.lb": 2.0}, state="running")
    status(begun, "running")
    assert caption(begun) == (
        "Validation error at each evaluation. Thick: each run of the search with the base. Thin: all other "
        "trials, 1 of them still running."
    )


def test_no_axis_of_an_error_ends_above_100_per_cent(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for seed, error in ((1, 0.05), (2, 0.9)):
        for each in ({"preset": "base"}, {"point": {"ensemble.heads": 4, "loss.weights.lb": 1.0}}):
            made.trial(error, role="confirm", pair=(seed, seed), **each)
    evidence = gather(made.folder)
    figure = next(panel.figure for panel in panels(evidence) if panel.id == "intervals")
    assert figure is not None and figure["layout"]["xaxis"]["autorangeoptions"] == {"clipmax": 103}
    bars = [trace for trace in figure["data"] if "error_x" in trace]
    ends = [trace["x"][0] + trace["error_x"]["array"][0] for trace in bars]
    assert len(ends) == 2 and all(90 < end <= 100 for end in ends)


def test_the_axis_of_losses_does_not_follow_a_very_wide_interval(tmp_path: Path) -> None:
    made = Made(tmp_path, objective="validation_loss")
    for seed, loss in ((1, 0.5), (2, 1.5)):
        for each in ({"preset": "base"}, {"point": {"ensemble.heads": 4, "loss.weights.lb": 1.0}}):
            made.trial(loss, role="confirm", pair=(seed, seed), **each)
    panel = next(panel for panel in panels(gather(made.folder)) if panel.id == "intervals")
    assert panel.figure is not None and panel.figure["layout"]["xaxis"]["autorangeoptions"] == {
        "clipmax": 4.5
    }
    assert panel.note.endswith("The table has the ends of intervals that leave the figure.")


def test_a_dash_is_shown_where_no_price_is_known(tmp_path: Path) -> None:
    page = render(finished(tmp_path, "free").folder)
    assert "$0.00" not in page and "0.00 GPU hours" not in page
    priced = Made(tmp_path, "priced")
    priced.trial(0.2, preset="base", cost_usd=1.25)
    assert "$1.25" in render(priced.folder)


def test_json_in_a_script_cannot_end_it() -> None:
    text = to_json({"name": HOSTILE})
    assert not set("<>&\u2028\u2029") & set(text) and json.loads(text) == {"name": HOSTILE}


def test_all_files_of_the_page_are_in_the_package() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"][
        "package-data"
    ]["cbe"]
    here = Path(pages.__file__).parent
    files = [path for path in here.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    names = [str(path.relative_to(ROOT / "cbe")) for path in files]
    assert len(names) == 12 and all(any(fnmatch.fnmatch(name, each) for each in patterns) for name in names)


def test_the_command_writes_the_page_and_says_where(cbe_: Cbe, tmp_path: Path) -> None:
    finished(tmp_path / "results")
    done = cbe_("report", "made")
    assert (done.code, done.out) == (0, "") and re.fullmatch(r"made\.html: \d\.\d MB; open it.*\n", done.err)
    page = (tmp_path / "made.html").read_text("utf-8")
    assert page.startswith("<!doctype html>") and "<code>cbe report made</code>" in page
    (tmp_path / "deep").mkdir()
    assert cbe_("report", "made", "-o", "deep/down.html").code == 0
    assert (tmp_path / "deep" / "down.html").exists() and not list(tmp_path.rglob(".*"))


def test_what_cannot_be_reported_is_refused_in_one_line(cbe_: Cbe, tmp_path: Path) -> None:
    finished(tmp_path / "results")
    Made(tmp_path / "results", "empty")
    (tmp_path / "taken").mkdir()
    for arguments, wanted in (
        (("mad",), "did you mean made?"),
        (("empty",), "empty: has no trials yet"),
        (("made", "-o", "taken"), "taken: is a folder; give the name of a file, as -o taken/made.html"),
        (("made", "-o", "made.html/x.html"), "there is no folder made.html"),
        (
            ("made", "-o", "no/such/x.html"),
            "no/such/x.html: there is no folder no/such; make it, or give another -o",
        ),
    ):
        (tmp_path / "made.html").write_text("kept")
        done = cbe_("report", *arguments)
        assert done.code == 2 and wanted in done.err and len(done.err.splitlines()) == 1
    assert (tmp_path / "made.html").read_text() == "kept" and not (tmp_path / "no").exists()


def test_an_unknown_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is none of that name"):
        render(Store.open(str(tmp_path)).study("nothing"))
