"""What a study must keep to, beyond each section by itself."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from cbe.errors import ConfigError
from cbe.spec.changes import FREE
from cbe.spec.conditions import Values, unused
from cbe.spec.files import Faults, Place, faults_of
from cbe.spec.metrics import METRICS, PERCENT
from cbe.spec.parameters import Parameter, Prior
from cbe.spec.search import KEYS, MUTABLE, order, walk
from cbe.spec.settings import margin_in
from cbe.spec.suggestions import by_last_name, nearest_choice, question
from cbe.spec.train import TrainConfig

if TYPE_CHECKING:
    from cbe.spec.study import StudyConfig

Found = tuple[Place, str, str]  # where, what is wrong, what to do next

ELSEWHERE = {"training.seed": "seeds", "data.label_split": "label_splits"}
ONE_OBJECTIVE = ("cmaes",)  # samplers that Optuna has for one objective only
MOST_CORNERS = 20_000
MOST_POINTS = 100_000  # of a grid
# Rules between keys read these; of any other key one value is enough to see whether a point can be built.
_READ_BY_RULES = ("data.", "model.name", "ensemble.", "method.name", "loss.weights.lb", "loss.target")


def typed(search: Mapping[str, Any]) -> dict[str, Parameter]:
    """The parameters of a search, each value as its key has it; Faults for all that cannot be."""
    found: list[Found] = []
    result: dict[str, Parameter] = {}
    for key, given in search.items():
        unusable = _unusable(str(key))
        if unusable:
            found.append(((key,), *unusable))
            continue
        kind = Parameter.kind_of(given)
        try:
            parameter = kind.model_validate(given)
        except ValidationError as error:
            found += [((key, *place), problem, hint) for place, problem, hint in _places(error, kind, given)]
            continue
        result[key], faults = _fitted(key, parameter)
        found += faults
    if found:
        raise Faults(found)
    order(result)  # refuses circles
    return result


def _places(error: ValidationError, model: type[BaseModel], given: Any) -> Iterator[Found]:
    for fault in faults_of(error, model, given):
        yield tuple(part for part in fault.where.split(".") if part), fault.problem, fault.hint


def _fitted(key: str, parameter: Parameter) -> tuple[Parameter, list[Found]]:
    """A parameter whose values are as their key has them, since `1e-3` is text to YAML."""
    listed, found = _typed(key, parameter.listed, (key, parameter.kind))
    try:
        parameter = parameter.fitted(key, listed)
    except Faults as unfit:
        found += [((key, parameter.kind, *place), problem, hint) for place, problem, hint in unfit.found]
    prior, faults = _fitted_prior(key, parameter)
    found += faults
    when: dict[str, tuple[Any, ...]] = {}
    for other, values in parameter.when.items():
        if other not in KEYS:
            found.append(((key, "when", other), "unknown key", suggestion(other)))
        else:
            when[other], faults = _typed(other, values, (key, "when", other))
            found += faults
    return parameter.model_copy(update={"when": when, "prior": prior}), found


def _fitted_prior(key: str, parameter: Parameter) -> tuple[Prior | None, list[Found]]:
    if parameter.prior is None:
        return None, []
    given = parameter.prior.at
    at, problem = _try(key, given)
    if not problem and not parameter.contains(at):
        problem = f"is outside its own search, {parameter}"
    if problem:
        return None, [
            ((key, "prior", "at"), f"{given!r}: {problem}", "give one of these values, or widen the search")
        ]
    return parameter.prior.model_copy(update={"at": at}), []


def suggestion(key: str) -> str:
    """The key that was probably meant."""
    inside = [k for k in KEYS if k.startswith(f"{key}.")]
    if inside:
        return f"it is a section; name a key of it, as {inside[0]}"
    found = by_last_name(key.rpartition(".")[2], list(KEYS)) or difflib.get_close_matches(key, KEYS, 1)
    if not found:
        lasts = {known.rpartition(".")[2]: known for known in KEYS}
        near = difflib.get_close_matches(key.rpartition(".")[2], lasts, 1, cutoff=0.8)
        found = [lasts[name] for name in near]
    if found:
        return question(found)
    return "name a key of a training file with its section, as ensemble.heads"


def _unusable(key: str) -> tuple[str, str] | None:
    if key not in KEYS:
        return "unknown key", suggestion(key)
    if key in ELSEWHERE:
        return "makes a trial of a config, and is not searched", f"list its values under {ELSEWHERE[key]}"
    if key in FREE:
        return "says where a trial runs, not what it computes", "set it for the whole study"
    return None


def _typed(key: str, values: tuple[Any, ...], place: Place) -> tuple[tuple[Any, ...], list[Found]]:
    tried = [_try(key, value) for value in values]
    faults: list[Found] = [
        ((*place, index), f"{given!r}: {problem}", nearest_choice(given, problem))
        for index, (given, (_, problem)) in enumerate(zip(values, tried, strict=True))
        if problem
    ]
    return tuple(value for value, _ in tried), faults


def _try(key: str, value: Any) -> tuple[Any, str]:
    """The value as the key has it, and what is wrong with it for whatever the other keys are."""
    place = tuple(key.split("."))
    plain: Any = value
    for part in reversed(place):
        plain = {part: plain}
    try:
        built: Any = TrainConfig.model_validate(plain)
    except ValidationError as error:
        items = error.errors(include_url=False)
        messages = [
            item["msg"].removeprefix("Value error, ") for item in items if item["loc"][: len(place)] == place
        ]
        return value, " or ".join(message[0].lower() + message[1:] for message in messages)
    for part in place:
        built = getattr(built, part)
    return built, ""


def impossible(
    search: Mapping[str, Parameter], base: Values, build: Callable[[Values], object], is_given: bool = True
) -> Iterator[Found]:
    """Parameters that exist nowhere, and a search of which no point can be built."""
    named = {key for parameter in search.values() for key in parameter.when}

    def corners(key: str) -> list[Any]:
        parameter = search[key]
        ends = list(parameter.listed)
        if not key.startswith(_READ_BY_RULES) and key not in named:
            return ends[:1]
        asked = [v for p in search.values() for v in p.when.get(key, ()) if parameter.contains(v)]
        return ends + [value for value in asked if value not in ends]

    never, problem, built = set(search) if is_given else set(), "", False
    for count, point in enumerate(walk(search, base, corners)):
        if count == MOST_CORNERS:  # not seen is not impossible
            return
        never -= point.keys()
        if not built:
            try:
                build(point)
                built = True
            except ConfigError as error:
                problem = problem or str(error)
        if built and not never:
            return
    for key in (key for key in search if key in never):
        yield (
            (key,),
            "is never used: its condition holds at no point of the search",
            "remove it, or change what it depends on",
        )
    if not built:
        about, _, rest = problem.partition(": ")
        place, why = ((about,), rest) if about in search else ((), problem)
        yield place, f"no point of the search can be built: {why}", "widen the search"


def study_faults(study: StudyConfig, is_given: bool) -> Iterator[Found]:
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


def _base_faults(study: StudyConfig, is_given: bool) -> Iterator[Found]:
    try:
        config = study.base
    except ValidationError as error:
        yield from _places(error, TrainConfig, {})
        return
    if is_given:
        searched = {key: parameter.listed for key, parameter in study.search.items()}
        yield from unused(config.to_plain(), TrainConfig().to_plain(), searched)


def _budget_faults(study: StudyConfig) -> Iterator[Found]:
    """Limits that nothing could ever reach."""
    budget, resources = study.budget, study.resources
    if budget.usd is not None and not resources.usd_per_hour:
        problem = f"{budget.usd:g}: no cost is counted while resources.usd_per_hour is 0"
        yield ("budget", "usd"), problem, "set it to the price of the resources of one trial"
    if budget.gpu_hours is not None and resources.gpus == 0:
        problem = f"{budget.gpu_hours:g}: no trial uses a GPU while resources.gpus is 0"
        yield ("budget", "gpu_hours"), problem, "use budget.wall_hours, or leave it out"


def _sampler_faults(study: StudyConfig) -> Iterator[Found]:
    name = study.sampler.name
    if name in ONE_OBJECTIVE and len(study.objectives) > 1:
        problem = f"{name} pursues one objective, not {len(study.objectives)}"
        yield ("sampler", "name"), problem, "use tpe, gp or nsga2, or one objective"
    if name == "grid":
        yield from _grid_faults(study)


def _search_from_faults(study: StudyConfig) -> Iterator[Found]:
    if study.search_from == "auto":
        return
    for index, name in enumerate(study.search_from):
        if name == study.name:
            yield ("search_from", index), f"{name} is this study itself", "name an earlier study"
        elif name in study.search_from[:index]:
            yield ("search_from", index), f"{name} is given twice", "take one out"


def _grid_faults(study: StudyConfig) -> Iterator[Found]:
    endless = [key for key, each in study.search.items() if not each.is_finite]
    for key in endless:
        problem = "a float without step has infinitely many values, too many for a grid"
        yield ("search", key), problem, "give a step, or a list of choices"
    # Counted, not listed: who reads a file must not be kept busy by it.
    points = 0 if endless else math.prod(each.count for each in study.search.values())
    if points > MOST_POINTS:
        problem = f"a grid of {points:,} points; at most {MOST_POINTS:,} can be run"
        yield ("search",), problem, "search less, or use random or tpe with budget.trials"


def _scheduler_faults(study: StudyConfig) -> Iterator[Found]:
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
    if study.scheduler.name != "none" and "training.steps" in study.search:
        problem = f"the scheduler {study.scheduler.name} compares trials that train for the same steps"
        yield ("search", "training.steps"), problem, "use `scheduler: none`, or give training.steps one value"
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


def _confirm_faults(study: StudyConfig) -> Iterator[Found]:
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


def _worker_faults(study: StudyConfig) -> Iterator[Found]:
    workers, searched = study.resources.workers, study.search.get("training.batch_size")
    sizes: Iterable[Any] = searched.values() if searched else [study.training.batch_size]
    odd = next((size for size in islice(sizes, MOST_POINTS) if size % workers), None)
    if odd is not None:
        problem = f"{workers} do not divide training.batch_size {odd}"
        yield ("resources", "workers"), problem, "each takes an equal part of it: change one of the two"
