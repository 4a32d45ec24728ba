"""What a study must keep to, beyond each section by itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cbe.spec.conditions import unused
from cbe.spec.faults import Finding
from cbe.spec.metrics import METRICS, PERCENT
from cbe.spec.search import MUTABLE
from cbe.spec.search_rules import impossible, placed_faults
from cbe.spec.settings import margin_in
from cbe.spec.train import TrainConfig

if TYPE_CHECKING:
    from cbe.spec.study import StudyConfig


ONE_OBJECTIVE = ("cmaes",)  # samplers that Optuna has for one objective only
MOST_POINTS = 100_000  # of a grid


def study_faults(study: StudyConfig, is_given: bool) -> Iterator[Finding]:
    """All that is wrong between the sections of a study; what is not used only where a user gives it."""
    base = list(_base_faults(study, is_given))
    yield from base
    if not base:  # without a base there is nothing to search in
        build = partial(study.train_config, seed=0, split=0)
        found = impossible(study.search, study.values({}), build, is_given)
        yield from ((("search", *place), problem, hint) for place, problem, hint in found)
    for faults in (
        *(_sampler_faults, _search_from_faults, _scheduler_faults),
        *(_confirm_faults, _worker_faults, _budget_faults),
    ):
        yield from faults(study)


def _base_faults(study: StudyConfig, is_given: bool) -> Iterator[Finding]:
    try:
        config = study.base
    except ValidationError as error:
        yield from placed_faults(error, TrainConfig, {})
        return
    if is_given:
        searched = {key: parameter.listed for key, parameter in study.search.items()}
        yield from unused(config.to_plain(), TrainConfig().to_plain(), searched)


def _budget_faults(study: StudyConfig) -> Iterator[Finding]:
    """Limits that nothing could ever reach."""
    budget, resources = study.budget, study.resources
    if budget.usd is not None and not resources.usd_per_hour:
        problem = f"{budget.usd:g}: no cost is counted while resources.usd_per_hour is 0"
        yield ("budget", "usd"), problem, "set it to the price of the resources of one trial"
    if budget.gpu_hours is not None and resources.gpus == 0:
        problem = f"{budget.gpu_hours:g}: no trial uses a GPU while resources.gpus is 0"
        yield ("budget", "gpu_hours"), problem, "use budget.wall_hours, or leave it out"


def _sampler_faults(study: StudyConfig) -> Iterator[Finding]:
    name = study.sampler.name
    if name in ONE_OBJECTIVE and len(study.objectives) > 1:
        problem = f"{name} pursues one objective, not {len(study.objectives)}"
        yield ("sampler", "name"), problem, "use tpe, gp or nsga2, or one objective"
    if name == "grid":
        yield from _grid_faults(study)


def _search_from_faults(study: StudyConfig) -> Iterator[Finding]:
    if study.search_from == "auto":
        return
    for index, name in enumerate(study.search_from):
        if name == study.name:
            yield ("search_from", index), f"{name} is this study itself", "name an earlier study"
        elif name in study.search_from[:index]:
            yield ("search_from", index), f"{name} is given twice", "take one out"


def _grid_faults(study: StudyConfig) -> Iterator[Finding]:
    endless = [key for key, each in study.search.items() if not each.is_finite]
    for key in endless:
        problem = "a float without step has infinitely many values, too many for a grid"
        yield ("search", key), problem, "give a step, or a list of choices"
    # Counted, not listed: a file must not keep its reader busy.
    points = 0 if endless else math.prod(each.count for each in study.search.values())
    if points > MOST_POINTS:
        problem = f"a grid of {points:,} points; at most {MOST_POINTS:,} can be run"
        yield ("search",), problem, "search less, or use random or tpe with budget.trials"


def _scheduler_faults(study: StudyConfig) -> Iterator[Finding]:
    grace, steps = study.scheduler.grace, study.training.steps
    if isinstance(grace, int) and grace > steps:
        problem = f"{grace} is more than the {steps} of training.steps"
        yield ("scheduler", "grace"), problem, "give fewer, or a share below 1"
    if study.scheduler.pairs is not None and len(study.seeds) * len(study.label_splits) > 1:
        problem = f"{study.scheduler.pairs}: seeds and label_splits list the pairs already"
        yield ("scheduler", "pairs"), problem, "leave it out, or give one seed and one label split"
    if study.scheduler.pairs is not None and study.sampler.name == "grid":
        problem = f"{study.scheduler.pairs}: a grid runs all of its points on all pairs"
        yield ("scheduler", "pairs"), problem, "list seeds and label_splits instead, or use another sampler"
    fixed = sorted(study.search.keys() - MUTABLE)
    if study.scheduler.name == "pbt" and (fixed or not study.search):
        problem = f"pbt changes values during training, which {', '.join(fixed)} does not allow"
        if not fixed:
            problem = "pbt changes values as it trains, and nothing is searched"
        hint = "search only weights of the loss, thresholds, training.lr and the like, or use asha"
        yield ("scheduler", "name"), problem, hint
    if study.scheduler.name == "pbt" and len(study.pairs) > 1:
        problem = "pbt copies weights between trials, which must then have one seed and one label split"
        yield ("scheduler", "name"), problem, "give one of each, or use asha"


def _confirm_faults(study: StudyConfig) -> Iterator[Finding]:
    confirm = study.confirm
    metric = study.objectives[0].metric
    in_points = METRICS[metric].unit is PERCENT
    if confirm.margin and in_points != margin_in(confirm.margin)[1].startswith("point"):
        wanted = "points, as 1 point" if in_points else "nats, as 0.01 nats"
        yield (
            ("confirm", "margin"),
            f"{confirm.margin!r}: {metric} is not counted in that unit",
            f"use {wanted}",
        )
    for key, given, seen in (
        ("seeds", confirm.seeds, [seed for seed, _ in study.pairs]),
        ("label_splits", confirm.label_splits, [split for _, split in study.pairs]),
    ):
        again = ", ".join(str(seed) for seed in sorted(set(given or ()) & set(seen)))
        if again:
            problem = f"the search has seen {again}; what was chosen on it looks better there than it is"
            yield ("confirm", key), problem, f"give others than the {key} of the search"


def _worker_faults(study: StudyConfig) -> Iterator[Finding]:
    workers, searched = study.resources.workers, study.search.get("training.batch_size")
    sizes: Iterable[Any] = searched.values() if searched else [study.training.batch_size]
    odd = next((size for size in islice(sizes, MOST_POINTS) if size % workers), None)
    if odd is not None:
        problem = f"{workers} do not divide training.batch_size {odd}"
        yield ("resources", "workers"), problem, "each takes an equal part of it: change one of the two"
