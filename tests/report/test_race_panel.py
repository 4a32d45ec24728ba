"""The panel of the race: who ran how long, on which pairs, and where trials are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbe.report.page.evidence import gather
from cbe.report.page.panel import Panel
from cbe.report.page.panels import panels
from tests.made import Made, status


def race_of(made: Made) -> Panel | None:
    return next((panel for panel in panels(gather(made.folder)) if panel.id == "race"), None)


def raced(place: Path, scheduler: str = "race") -> Made:
    """A search over two label splits that one config survives, and its confirmation."""
    sections = {"scheduler": scheduler, "label_splits": [0, 1], "confirm": {"configs": 1, "runs": 2}}
    made = Made(place, **sections)
    points = [{"ensemble.heads": heads, "loss.weights.lb": 1.0} for heads in (3, 4, 6)]
    for split in (0, 1):
        made.trial(0.2, preset="base", pair=(0, split))
        made.trial(0.3, preset="paper", pair=(0, split))
    made.trial(0.5, points[0], state="pruned", steps=50)
    made.trial(None, points[1], state="failed", steps=0, error_class="NonFiniteLoss", error_text="no")
    made.trial(0.1, points[2])
    made.trial(0.4, points[2], pair=(0, 1), state="pruned", steps=150)
    for number in (1, 2):
        made.trial(0.2, preset="base", role="confirm", pair=(number, 1 + number))
        made.trial(0.1, points[2], role="confirm", pair=(number, 1 + number))
    status(made, "finished")
    return made


def test_the_race_shows_who_ran_how_long_on_which_pairs(tmp_path: Path) -> None:
    panel = race_of(raced(tmp_path))
    assert panel is not None and panel.figure is not None
    traces, layout = panel.figure["data"], panel.figure["layout"]
    rows = layout["yaxis"]["categoryarray"]
    assert rows == ["◆ t0006", "▲ base", "■ paper", "t0004", "t0005"]
    assert layout["yaxis"]["range"] == [4.5, -0.5]  # the first at the top
    assert layout["xaxis"]["ticktext"] == ["0/0", "0/1", "1/2", "2/3"]
    bars = {
        (trace["name"], label): [(base, round(length / 0.94, 3)) for at, base, length in found if at == label]
        for trace in traces
        if trace["type"] == "bar"
        for found in [list(zip(trace["y"], trace["base"], trace["x"], strict=True))]
        for label in trace["y"]
    }
    assert bars["completed", "◆ t0006"] == [(0, 1), (2, 1), (3, 1)]
    assert bars["completed", "▲ base"] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert bars["stopped by the scheduler", "◆ t0006"] == [(1, 0.5)]
    assert bars["stopped by the scheduler", "t0004"] == [(0, 0.167)]
    cross = traces[-1]
    assert (cross["name"], cross["x"], cross["y"], cross["customdata"]) == (
        "failed",
        [0],
        ["t0005"],
        ["t0005"],
    )
    assert "stopped 2 of 8 trials" in panel.note


@pytest.mark.parametrize(
    ("scheduler", "steps", "pairs"),
    [("race", (150, 200), (0,)), ("asha", (50, 150), (0, 1)), ("median", (50,), (0, 1))],
)
def test_the_race_has_a_line_at_every_rung_of_every_pair_on_which_trials_are_compared(
    tmp_path: Path, scheduler: str, steps: tuple[int, ...], pairs: tuple[int, ...]
) -> None:
    panel = race_of(raced(tmp_path, scheduler))
    assert panel is not None and panel.figure is not None
    lines = [line for line in panel.figure["layout"]["shapes"] if line["line"]["dash"] == "dot"]
    wanted = [column + 0.94 * step / 300 for column in pairs for step in steps]
    assert [line["x0"] for line in lines] == pytest.approx(wanted, abs=1e-3)
    assert " and ".join(map(str, steps)) in panel.note


def test_a_scheduler_that_stops_no_trial_has_no_race(tmp_path: Path) -> None:
    assert race_of(raced(tmp_path, "none")) is None


def test_of_many_configs_the_race_shows_the_best_and_the_presets_and_counts_the_others(
    tmp_path: Path,
) -> None:
    made = Made(tmp_path, scheduler="race", budget={"trials": 60})
    made.trial(0.9, preset="base")
    made.trial(0.95, preset="paper")
    for number in range(50):
        point = {"ensemble.heads": 4, "loss.weights.lb": 0.1 + number / 10}
        made.trial(0.1 + number / 100, point, state="completed" if number < 10 else "pruned", steps=50)
    panel = race_of(made)
    assert panel is not None and panel.figure is not None
    rows = panel.figure["layout"]["yaxis"]["categoryarray"]
    assert len(rows) == 40 and rows[0] == "◆ t0002" and {"▲ base", "■ paper"} <= set(rows)
    assert "t0039" in rows and "t0040" not in rows and panel.note.endswith(" Left out: the last 12 configs.")


def test_a_trial_that_runs_or_waits_is_drawn_up_to_the_step_it_has_reached(tmp_path: Path) -> None:
    made = Made(tmp_path, scheduler="race")
    made.trial(0.2, preset="base")
    made.trial(0.3, {"ensemble.heads": 5, "loss.weights.lb": 2.0}, state="running", steps=100)
    made.trial(0.4, {"ensemble.heads": 6, "loss.weights.lb": 2.0}, state="running", steps=50)
    status(made, "running", stage="search", trials=12, confirmations=12, paused=["t0002"])
    panel = race_of(made)
    assert panel is not None and panel.figure is not None
    bars = {trace["name"]: trace for trace in panel.figure["data"]}
    for name, trial, share in (("running", "t0001", 1 / 3), ("paused at a rung", "t0002", 1 / 6)):
        bar = bars[name]
        assert bar["y"] == [trial] and bar["x"] == pytest.approx([0.94 * share], abs=1e-3)
        assert f"{name.split()[0]} at {300 * share:.0f}/300" in bar["text"][0]
        assert "seed 0, label split 0" in bar["text"][0]
