"""The paper's four tables, each from the configs of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

from cbe.configs import Config
from cbe.report import published
from cbe.report.tables.render import PAPER, PaperTable
from cbe.report.tables.runs import ERRORS, NOTHING, Runs, called, cell, named
from cbe.spec import StudyConfig
from cbe.spec.ensembles import ENSEMBLES
from cbe.spec.methods import METHODS
from cbe.spec.metrics import METRICS, on_test
from cbe.store.rows import Row

_METHODS, _ENSEMBLES = list(METHODS), list(ENSEMBLES)


def comparisons(studies: Sequence[Runs]) -> PaperTable:
    """Table 1: the error of each method and ensemble, a column for each study."""
    columns: list[dict[str, str]] = []
    header, order = ["method"], dict[str, tuple[int, ...]]()
    for runs in studies:
        names = named(runs, {each.config_id: called(each.rows[0]) for each in runs.configs})
        order |= {
            names[each.config_id]: (*_place(each.rows[0]), each.config_id == runs.tuned)
            for each in runs.configs
        }
        columns.append({names[each.config_id]: cell(runs.errors(each)) for each in runs.configs})
        header.append(_head(runs, studies))
        figures = published.comparisons(runs.study)
        if figures:
            shown = [each for each in runs.configs if _is_papers(runs, each)]
            paper = {names[each.config_id]: figures.get(_method(each)) for each in shown}
            columns.append({name: f"{value:.2f}" for name, value in paper.items() if value is not None})
            header.append(_paper(runs))
    rows = [
        [name, *(column.get(name, NOTHING) for column in columns)]
        for name in sorted(order, key=order.__getitem__)
    ]
    kinds = " or ".join(sorted({runs.kind for runs in studies})).capitalize()
    return PaperTable(
        "comparisons", f"{kinds} error, %", header, rows, _notes(studies, published.comparisons)
    )


def ablation(runs: Runs) -> PaperTable:
    """Table 2: the error without and with the low bias and the low variance loss."""
    names = named(runs, {each.config_id: _ablated(each.rows[0]) for each in runs.configs})
    beside = published.has_ablation(runs.study)
    rows = []
    for each in sorted(runs.configs, key=lambda each: (*_place(each.rows[0]), *_losses(each.rows[0]))):
        row = each.rows[0]
        on = (bool(row["loss_weights_lb"]), bool(row["loss_weights_lv"]))
        plain = {row["loss_weights_lb"] or 0.0, row["loss_weights_lv"] or 0.0} <= {0.0, 1.0}
        plain = plain and (row["ensemble_kind"] != "channel" or row["ensemble_heads"] == 5)
        paper = published.ABLATION.get((*_method(each), *on)) if plain else None
        cells = [names[each.config_id], cell(runs.errors(each))]
        rows.append([*cells, *([NOTHING if paper is None else f"{paper:.2f}"] if beside else [])])
    header = ["method", runs.data, *([_paper(runs)] if beside else [])]
    return PaperTable(
        "ablation", f"{_kind(runs)} error, %, by loss", header, rows, _notes([runs], published.has_ablation)
    )


def time(runs: Runs) -> PaperTable:
    """Table 3: the error after so many steps, and how long they took."""
    names = named(runs, {each.config_id: _stepped(each.rows[0]) for each in runs.configs})
    beside = published.has_ablation(runs.study)
    most = max((each.rows[0]["training_steps"] for each in runs.configs), default=1)
    rows = []
    for each in sorted(
        runs.configs, key=lambda each: (*_place(each.rows[0]), each.rows[0]["training_steps"])
    ):
        row, minutes = each.rows[0], [value / 60 for value in runs.figures(each, "wall_s")]
        cells = [names[each.config_id], _minutes(minutes), ", ".join(runs.devices([each])) or NOTHING]
        cells.append(cell(runs.errors(each)))
        share = (*_method(each), row["training_steps"] / most)
        paper = published.TIMES.get(share) if _is_papers(runs, each) else None
        shown = [NOTHING, NOTHING] if paper is None else [f"{paper[0]:,}", f"{paper[1]:.2f}"]
        rows.append([*cells, *(shown if beside else [])])
    header = ["method, steps", "minutes", "device", "error"]
    header += [f"{PAPER}, min", _paper(runs)] if beside else []
    notes = ["Minutes: a trial's wall time, evaluations included, with whatever else ran on the machine."]
    if beside:
        notes.append("The paper: minutes on an RTX 3090; it does not say how many steps.")
    title = f"Training time, and {_kind(runs).lower()} error, %, {runs.data}"
    return PaperTable("time", title, header, rows, (*notes, *_notes([runs], published.has_ablation)))


def cost(runs: Runs) -> PaperTable:
    """Table 4: parameters and multiply-accumulates, and what they bring."""
    names = named(runs, {each.config_id: _sized(each.rows[0]) for each in runs.configs})
    base = next((each for each in runs.configs if each.preset == "base"), None)
    rows = []
    for each in sorted(runs.configs, key=lambda each: (*_place(each.rows[0]), *_size(each.rows[0]))):
        cells = [names[each.config_id]]
        for column, unit in (("parameters", 1), ("macs", 1e6)):
            value, of_base = _count(each, column), _count(base, column) if base else None
            cells += [_number(value, unit), _added(value, of_base) if each is not base else NOTHING]
        rows.append([*cells, cell(runs.errors(each))])
    if published.has_cost(runs.study):
        rows += [_published(kind) for kind in published.COSTS]
    header = ["method", "parameters", "+, %", "MACs, M", "+, %", "error"]
    notes = [
        "CBE: heads × private channels. MACs: multiply-accumulates of one image in convolutions and linear "
        "layers; +: against the base.",
        published.COST_NOTE,
    ]
    title = f"Cost of the ensemble, and {_kind(runs).lower()} error, %, {runs.data}"
    return PaperTable("cost", title, header, rows, (*notes, *_notes([runs], lambda study: False)))


def _method(config: Config) -> published.Approach:
    return (config.rows[0]["method_name"], config.rows[0]["ensemble_kind"])


def _is_papers(runs: Runs, config: Config) -> bool:
    return published.is_papers(config.rows[0]) and config.config_id != runs.tuned


def _head(runs: Runs, studies: Sequence[Runs]) -> str:
    head = runs.study.name if _shares_data(runs, studies) else runs.data
    return f"{head} (validation)" if runs.kind == "validation" and len(studies) > 1 else head


def _paper(runs: Runs) -> str:
    return f"{PAPER}†" if _unlike(runs) else PAPER


def _shares_data(runs: Runs, studies: Sequence[Runs]) -> bool:
    return any(each.data == runs.data for each in studies if each is not runs)


def _notes(studies: Sequence[Runs], beside: Callable[[StudyConfig], object]) -> tuple[str, ...]:
    """What a reader has to know of the figures: what they are, how they were made, how the paper's were.

    `beside` says whether errors of the paper stand beside a study's.
    """
    notes = [
        f"Mean ± standard deviation of the runs (their number); the error is {ERRORS[studies[0].error]}."
    ]
    settings: dict[str, list[str]] = {}
    for runs in studies:
        if runs.configs:
            data = f"{runs.data}, " if _shares_data(runs, studies) else ""
            settings.setdefault(f"{data}{runs.setting()}", []).append(runs.study.name)
    notes += [f"{_listed(names)}: {words}." for words, names in settings.items()]
    for runs in studies:
        notes += _about(runs)
    compared = [runs for runs in studies if beside(runs.study)]
    theirs = dict.fromkeys(published.data_set(runs.study.data) for runs in compared)
    notes += [
        f"The paper, {published.DATA[name]}: {published.PAPER[name].words()}, images 32 × 32; one seed."
        for name in theirs
        if name
    ]
    notes += [
        f"† {runs.study.name} differs from the paper in {_listed(_unlike(runs))}: not comparable."
        for runs in compared
        if _unlike(runs)
    ]
    return tuple(notes)


def _unlike(runs: Runs) -> list[str]:
    """In what a study differs from the paper's setting on the same images."""
    name = published.data_set(runs.study.data)
    return published.setting(runs.study).unlike(published.PAPER[name]) if name else []


def _about(runs: Runs) -> list[str]:
    name = runs.study.name
    if not runs.configs:
        return [f"{name}: no run has been trained to its end yet."]
    notes = []
    if runs.kind == "validation":
        notes.append(f"{name}: has no test set; the errors are those on the validation images.")
    lost = [f"{count} {state}" for state, count in sorted(runs.left_out().items())]
    if lost:
        notes.append(f"{name}: left out are runs that did not reach their end: {', '.join(lost)}.")
    if runs.tuned:
        notes.append(_chosen(runs, runs.tuned))
    return notes


def _chosen(runs: Runs, tuned: str) -> str:
    metric, first = runs.study.objectives[0].metric, runs.ranked[0].preset
    by = "test labels, which makes its error too low" if on_test(metric) else METRICS[metric].title
    said = f"{runs.study.name}: tuned is {runs.names[tuned]}, of the searched configs the best by {by}"
    if first:
        said += f"; {'the base' if first == 'base' else 'the paper’s config'} ranks above it"
    if runs.role == "search" and not on_test(metric):
        said += "; not confirmed: the same runs chose it"
    return f"{said}."


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _kind(runs: Runs) -> str:
    return runs.kind.capitalize()


def _place(row: Row) -> tuple[int, int]:
    """Methods, and the ensembles of each, in the order of their registries."""
    method, ensemble = row["method_name"], row["ensemble_kind"]
    known = method in _METHODS and ensemble in _ENSEMBLES
    return (_METHODS.index(method), _ENSEMBLES.index(ensemble)) if known else (len(_METHODS), 0)


def _losses(row: Row) -> tuple[float, float]:
    lb, lv = row["loss_weights_lb"] or 0.0, row["loss_weights_lv"] or 0.0
    return (lb + lv, -lb)


def _ablated(row: Row) -> str:
    lb, lv = row["loss_weights_lb"] or 0.0, row["loss_weights_lv"] or 0.0
    if row["ensemble_kind"] != "channel" or (lb, lv) == (1.0, 1.0):
        return called(row)
    words = {(0.0, 0.0): "no LB and LV loss", (1.0, 0.0): "no LV loss", (0.0, 1.0): "no LB loss"}
    return f"{called(row)} ({words.get((lb, lv), f'LB {lb:g}, LV {lv:g}')})"


def _stepped(row: Row) -> str:
    return f"{called(row)}, {row['training_steps']:,}"


def _size(row: Row) -> tuple[int, int]:
    return (row["ensemble_heads"] or 1, row["ensemble_private_channels"] or 0)


def _sized(row: Row) -> str:
    heads, private = _size(row)
    return f"CBE {heads} × {private}" if private else called(row)


def _count(config: Config, column: str) -> float | None:
    """The same for all trials of a config, whether they reached their end or not."""
    return next((row[column] for row in config.rows if row[column] is not None), None)


def _number(value: float | None, unit: float) -> str:
    return NOTHING if value is None else f"{value:,.0f}" if unit == 1 else f"{value / unit:,.3f}"


def _added(value: float | None, base: float | None) -> str:
    return NOTHING if value is None or not base else f"{100 * (value - base) / base:+.2f}".replace("-", "−")


def _published(kind: str) -> list[str]:
    (parameters, macs), (of_base, macs_of_base) = published.COSTS[kind], published.COSTS["single"]
    name = f"{PAPER}, CBE" if kind == "channel" else f"{PAPER}, FixMatch"
    more = [_added(parameters, of_base), _added(macs, macs_of_base)] if kind == "channel" else [NOTHING] * 2
    return [name, f"{parameters:.3f} M", more[0], f"{macs:.3f}", more[1], NOTHING]


def _minutes(values: Sequence[float]) -> str:
    return cell(values, 2 if not values or mean(values) < 10 else 0)


KINDS: Mapping[str, str] = {  # and what a study of each searches
    "comparisons": "method.name and ensemble.kind",
    "ablation": "loss.weights.lb and loss.weights.lv",
    "time": "training.steps",
    "cost": "ensemble.heads and ensemble.private_channels",
}
