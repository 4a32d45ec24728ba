"""The paper's tables from the store: figures by hand, the paper's beside ours only where they belong."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from cbe.errors import InputError
from cbe.report import published
from cbe.report.tables import PaperTable, latex, markdown, table
from cbe.spec import Data
from cbe.spec.study import StudyConfig
from tests.conftest import Cbe
from tests.made import SECTIONS, Made, whole

PAPERS: dict[str, Any] = {"model": "wrn-28-2", "training": {"eval_every": 102400}, "budget": {}}
SMALL = {"model": SECTIONS["model"], "training": SECTIONS["training"], "budget": {}}
GRID: dict[str, Any] = {
    **{"sampler": "grid", "scheduler": "none", "confirm": {"runs": 0}, "label_splits": [0, 1, 2]},
    "search": {"method.name": ["fixmatch", "freematch"], "ensemble.kind": ["single", "channel"]},
}
CIFAR = {"source": "cifar10", "labels": 40}
ERRORS = (0.05, 0.06, 0.10)  # of validation; a made study's test errors are 0.01 more


def comparison(store: Path, name: str = "comparison", **sections: Any) -> Made:
    """The presets on three splits, FreeMatch on one."""
    made = Made(store, name, **{**PAPERS, **GRID, "data": CIFAR, **sections})
    for split, error in enumerate(ERRORS):
        made.trial(error, preset="base", pair=(0, split))
        made.trial(error / 2, preset="paper", pair=(0, split))
    made.trial(0.2, {"method.name": "freematch", "ensemble.kind": "single"})
    return made


def cells(made: PaperTable) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in made.rows}


def said(made: PaperTable) -> str:
    return "\n".join(made.notes)


def test_a_cell_is_mean_deviation_and_number_of_the_test_errors(tmp_path: Path) -> None:
    made = table([comparison(tmp_path).folder])
    tested = [100 * (error + 0.01) for error in ERRORS]
    assert made.header == ["method", "CIFAR-10 @ 40", "paper"]
    assert cells(made)["FixMatch"] == [f"{mean(tested):.2f} ± {stdev(tested):.2f} (3)", "8.15"]


def test_one_run_has_no_deviation_and_no_run_no_figure(tmp_path: Path) -> None:
    first, second = (
        comparison(tmp_path),
        Made(tmp_path, "second", **PAPERS | GRID | {"data": CIFAR | {"labels": 250}}),
    )
    second.trial(0.1, preset="base")
    found = cells(table([first.folder, second.folder]))
    assert found["FreeMatch"] == ["21.00 (1)", "14.85", "–", "–"]
    assert found["FixMatch"][2:] == ["11.00 (1)", "5.96"]


def test_a_grid_config_that_is_a_preset_pools_with_it_each_pair_once(tmp_path: Path) -> None:
    made = comparison(tmp_path)
    made.trial(
        0.11, {"method.name": "fixmatch", "ensemble.kind": "single"}, pair=(0, 2)
    )  # as the base's 0.10
    made.trial(0.08, {"method.name": "fixmatch", "ensemble.kind": "single"}, pair=(1, 0))
    tested = [6.0, 7.0, (11.0 + 12.0) / 2, 9.0]
    assert cells(table([made.folder]))["FixMatch"][0] == f"{mean(tested):.2f} ± {stdev(tested):.2f} (4)"


def test_rows_stand_in_the_papers_order(tmp_path: Path) -> None:
    assert list(cells(table([comparison(tmp_path).folder]))) == ["FixMatch", "FixMatch + CBE", "FreeMatch"]


def test_runs_that_did_not_end_are_left_out_and_told(tmp_path: Path) -> None:
    made = comparison(tmp_path)
    point = {"method.name": "freematch", "ensemble.kind": "channel"}
    made.trial(0.5, point, state="pruned", steps=102400)
    made.trial(None, point, state="failed", steps=0)
    found = table([made.folder])
    assert "FreeMatch + CBE" not in cells(found)
    assert "1 failed, 1 pruned" in said(found)


@pytest.mark.parametrize(
    ("data", "beside"),
    [
        (CIFAR, True),
        ({"source": "parquet", "path": "data/cifar10/", "labels": 40}, True),
        ({"source": "parquet", "path": "s3://bucket/cifar10?region=x", "labels": 40}, True),
        (CIFAR | {"labels": 41}, False),
        ({"source": "parquet", "path": "data/fashion_mnist", "labels": 40}, False),
        ({"source": "folder", "path": "data/cifar10", "labels": 40}, False),
        (CIFAR | {"label_indices": list(range(50))}, False),
    ],
)
def test_published_figures_stand_only_beside_the_same_images_and_labels(
    tmp_path: Path, data: dict[str, Any], beside: bool
) -> None:
    found = table([comparison(tmp_path, data=data).folder])
    assert ("paper" in found.header) == beside
    assert ("The paper" in said(found)) == beside


def test_a_small_network_beside_published_figures_is_said_to_differ(tmp_path: Path) -> None:
    small = comparison(tmp_path, **SMALL, data=CIFAR | {"size": 16})
    found = table([small.folder])
    assert found.header[-1] == "paper†"
    assert "† comparison differs from the paper in network, steps and image size" in said(found)
    assert "WRN-10-1, 300 steps, batch 32 + 224, images 16 × 16; 1 seed, 3 label splits" in said(found)
    assert "†" not in markdown(table([comparison(tmp_path, "alike").folder]))


def test_another_ensemble_than_the_papers_has_no_figure_of_the_paper_beside_it(tmp_path: Path) -> None:
    made = comparison(tmp_path, ensemble={"kind": "channel", "heads": 3})
    made.trial(0.07, {"method.name": "fixmatch", "ensemble.kind": "channel"})
    found = cells(table([made.folder]))
    assert found["FixMatch + CBE (the paper's)"][1] == "7.21"
    (three,) = (name for name in found if re.fullmatch(r"FixMatch \+ CBE \(t\d{4}\)", name))
    assert found[three] == ["8.00 (1)", "–"]


def test_other_studies_show_base_paper_and_the_config_chosen_on_validation(tmp_path: Path) -> None:
    found = table([whole(tmp_path).folder])
    assert list(cells(found)) == ["FixMatch", "FixMatch + CBE", "FixMatch + CBE, tuned"]
    assert cells(found)["FixMatch + CBE, tuned"] == ["7.40 ± 0.20 (3)"]  # the confirmation's runs alone
    assert "the best by validation error." in said(found)


def test_a_config_that_the_base_beats_is_not_hidden(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.1, preset="base")
    made.trial(0.2, {"ensemble.heads": 2, "loss.weights.lb": 1.0})
    found = table([made.folder])
    assert "FixMatch + CBE, tuned" in cells(found)
    assert "the base ranks above it" in said(found)


def test_what_was_chosen_does_not_depend_on_test_errors(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.2, preset="base")
    made.trial(0.3, {"ensemble.heads": 2, "loss.weights.lb": 1.0}, last_test_error=0.0)
    made.trial(0.1, {"ensemble.heads": 3, "loss.weights.lb": 1.0}, last_test_error=0.9)
    found = table([made.folder])
    assert cells(found)["FixMatch + CBE, tuned"] == ["90.00 (1)"]
    assert "not confirmed" in said(found)


def test_without_a_test_set_the_errors_are_of_validation_and_it_is_said(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.2, preset="base", last_test_error=None)
    found = table([made.folder])
    assert found.title == "Validation error, %"
    assert cells(found) == {"FixMatch": ["20.00 (1)"]}
    assert "has no test set" in said(found)


def test_the_error_asked_for_is_the_one_shown(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.trial(0.2, preset="base", median_test_error=0.25, best_test_error=0.15)
    shown = {
        error: cells(table([made.folder], None, error))["FixMatch"][0] for error in ("last", "median", "best")
    }
    assert shown == {"last": "21.00 (1)", "median": "25.00 (1)", "best": "15.00 (1)"}


def test_the_ablation_has_the_papers_rows_and_one_more(tmp_path: Path) -> None:
    search = {"loss.weights.lb": [0, 1], "loss.weights.lv": [0, 1]}
    made = Made(
        tmp_path, "ablation", **PAPERS | GRID | {"data": CIFAR, "method": "freematch", "search": search}
    )
    made.trial(0.1, preset="base")
    made.trial(0.05, preset="paper")
    for lb, lv in ((0, 0), (0, 1), (1, 0)):
        made.trial(0.09, {"loss.weights.lb": lb, "loss.weights.lv": lv})
    found = table([made.folder])
    assert {name: row[1] for name, row in cells(found).items()} == {
        "FreeMatch": "14.85",
        "FreeMatch + CBE (no LB and LV loss)": "10.26",
        "FreeMatch + CBE (no LV loss)": "8.83",
        "FreeMatch + CBE (no LB loss)": "–",
        "FreeMatch + CBE": "6.13",
    }


def test_training_time_is_minutes_with_steps_and_device(tmp_path: Path) -> None:
    search = {"ensemble.kind": ["single", "channel"], "training.steps": [102400, 204800]}
    made = Made(tmp_path, "times", **PAPERS | GRID | {"data": CIFAR, "search": search})
    made.trial(0.1, preset="base", wall_s=7200.0, device="NVIDIA GeForce RTX 3090")
    half = {"ensemble.kind": "channel", "training.steps": 102400}
    made.trial(0.08, half, wall_s=3600.0)
    made.trial(0.08, half, pair=(0, 1), wall_s=3720.0)
    found = table([made.folder])
    assert found.kind == "time"
    assert cells(found) == {
        "FixMatch, 204,800": ["120 (1)", "RTX 3090", "11.00 (1)", "4,096", "7.47"],
        "FixMatch + CBE, 102,400": ["61 ± 1 (2)", "cpu", "9.00 ± 0.00 (2)", "2,048", "7.45"],
    }


def test_costs_are_counted_and_the_papers_headings_put_right(tmp_path: Path) -> None:
    search = {"ensemble.heads": [2, 5], "ensemble.private_channels": [13]}
    made = Made(tmp_path, "cost", **PAPERS | GRID | {"data": CIFAR, "search": search})
    made.trial(0.1, preset="base", parameters=1_467_610, macs=214_351_872)
    made.trial(0.1, preset="paper", parameters=1_496_094, macs=215_830_000)
    found = table([made.folder])
    assert cells(found) == {
        "FixMatch": ["1,467,610", "–", "214.352", "–", "11.00 (1)"],
        "CBE 5 × 13": ["1,496,094", "+1.94", "215.830", "+0.69", "11.00 (1)"],
        "paper, FixMatch": ["1.468 M", "–", "216.254", "–", "–"],
        "paper, CBE": ["1.473 M", "+0.34", "216.390", "+0.06", "–"],
    }
    assert "headings swapped" in said(found)


def test_costs_of_another_network_stand_alone(tmp_path: Path) -> None:
    made = Made(tmp_path, "cost", **SMALL | GRID | {"data": CIFAR, "search": {"ensemble.heads": [2, 5]}})
    made.trial(0.1, preset="base")
    assert list(cells(table([made.folder]))) == ["FixMatch"]


def test_studies_of_several_kinds_are_not_put_into_one_table(tmp_path: Path) -> None:
    first = comparison(tmp_path)
    cost = Made(tmp_path, "cost", **SMALL | GRID | {"search": {"ensemble.heads": [2, 5]}})
    with pytest.raises(InputError, match="comparison comparisons, cost cost: only comparisons"):
        table([first.folder, cost.folder])


def test_two_studies_of_the_same_images_are_told_apart_by_name(tmp_path: Path) -> None:
    small = comparison(tmp_path, "small", **SMALL)
    found = table([comparison(tmp_path).folder, small.folder])
    assert found.header == ["method", "comparison", "paper", "small", "paper†"]
    assert "small: CIFAR-10 @ 40, WRN-10-1" in said(found)


def test_an_ablation_of_another_search_is_refused_with_the_kinds_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"searches ensemble.heads.*comparisons \(of.*ablation.*time.*cost"):
        table([whole(tmp_path).folder], "ablation")


def test_a_study_without_presets_or_a_known_search_is_refused_with_the_kinds_there_are(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=r"made: searches nothing.*comparisons.*ablation.*time.*cost"):
        table([Made(tmp_path).folder])


def test_every_study_file_has_the_kind_its_header_says() -> None:
    from cbe.report.tables import searched
    from cbe.spec import read_config

    folder = Path(__file__).parent.parent.parent / "studies"
    kinds = {"comparison": "comparisons", "ablation": "ablation", "training-time": "time", "cost": "cost"}
    for start, kind in kinds.items():
        found = {searched(read_config(StudyConfig, path)) for path in folder.glob(f"{start}*.yaml")}
        assert found == {kind}


def test_published_comparisons_are_those_of_the_paper() -> None:
    assert published.COMPARISONS["cifar100", 2500]["freematch", "channel"] == 26.85
    assert published.data_set(Data(source="parquet", path="/x/cifar100")) == "cifar100"


def test_markdown_is_aligned_fits_and_keeps_paper_columns_beside_ours(tmp_path: Path) -> None:
    names = ["comparison", "b", "c"]
    folders = [
        comparison(tmp_path, name, data=CIFAR | {"labels": labels}).folder
        for name, labels in zip(names, (40, 250, 4000), strict=True)
    ]
    text = markdown(table(folders))
    assert max(map(len, text.splitlines())) <= 80
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 2
    assert all(len(set(map(len, block))) == 1 for block in blocks)
    assert [block[0].split("|")[-2].strip() for block in blocks] == ["paper", "paper"]


def test_latex_is_escaped_and_closes_what_it_opens() -> None:
    made = PaperTable(
        "cost", "Error, % of a_b", ["m&m", "x"], [["50 %", "1 ± 2"], ["\\input{x}", "−1 – ×"]], ["$#~^"]
    )
    text = latex(made)
    assert r"\caption{Error, \% of a\_b.}" in text
    assert r"m\&m & x \\" in text
    assert r"50 \% & 1 $\pm$ 2 \\" in text
    assert r"\textbackslash{}input\{x\} & $-$1 -- $\times$ \\" in text
    assert r"\$\#\textasciitilde{}\textasciicircum{}" in text
    assert r"\label{tab:cost}" in text
    assert re.findall(r"\\begin{(\S+?)}", text) == re.findall(r"\\end{(\S+?)}", text)[::-1]
    assert text.isascii()


def test_the_command_prints_either_format(tmp_path: Path, cbe_: Cbe) -> None:
    whole(tmp_path / "results")
    done = cbe_("table", "made")
    assert done.code == 0
    assert "| FixMatch + CBE, tuned |  7.40 ± 0.20 (3) |" in done.out
    assert done.err == ""
    assert cbe_("table", "made", "--format", "latex").out.startswith("% \\usepackage{booktabs}")
    assert "minutes" in cbe_("table", "made", "--kind", "time").out


def test_the_command_refuses_what_is_not_there(tmp_path: Path, cbe_: Cbe) -> None:
    whole(tmp_path / "results")
    done = cbe_("table", "mede")
    assert (done.code, done.out) == (2, "")
    assert "did you mean made?" in done.err


def test_a_path_cannot_steer_the_terminal(tmp_path: Path, cbe_: Cbe) -> None:
    made = Made(tmp_path / "results", data={"source": "parquet", "path": "x/\x1b[31m|red", "labels": 40})
    made.trial(0.2, preset="base")
    out = cbe_("table", "made").out
    assert "\x1b" not in out
    assert "\\|red @ 40" in out
