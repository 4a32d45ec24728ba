"""What the parameters of a search must keep to, each by itself and all together."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from cbe.errors import ConfigError
from cbe.spec.changes import FREE
from cbe.spec.conditions import Values
from cbe.spec.faults import Faults, Finding, KeyPath, faults_of
from cbe.spec.parameters import Parameter, Prior
from cbe.spec.search import KEYS, order, walk
from cbe.spec.suggestions import by_last_name, nearest_choice, question
from cbe.spec.train import TrainConfig

ELSEWHERE = {"training.seed": "seeds", "data.label_split": "label_splits"}
MOST_CORNERS = 20_000
# Rules between keys read these; of any other key one value is enough to see whether a point can be built.
_READ_BY_RULES = ("data.", "model.name", "ensemble.", "method.name", "loss.weights.lb", "loss.target")


def typed(search: Mapping[str, Any]) -> dict[str, Parameter]:
    """The parameters of a search, each value as its key has it; Faults for all that cannot be."""
    found: list[Finding] = []
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
            for place, problem, hint in placed_faults(error, kind, given):
                found.append(((key, *place), problem, hint))
            continue
        result[key], faults = _fitted(key, parameter)
        found += faults
    if found:
        raise Faults(found)
    order(result)  # refuses circles
    return result


def placed_faults(error: ValidationError, model: type[BaseModel], given: Any) -> Iterator[Finding]:
    for fault in faults_of(error, model, given):
        yield tuple(part for part in fault.where.split(".") if part), fault.problem, fault.hint


def _fitted(key: str, parameter: Parameter) -> tuple[Parameter, list[Finding]]:
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


def _fitted_prior(key: str, parameter: Parameter) -> tuple[Prior | None, list[Finding]]:
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


def _typed(key: str, values: tuple[Any, ...], place: KeyPath) -> tuple[tuple[Any, ...], list[Finding]]:
    tried = [_try(key, value) for value in values]
    faults: list[Finding] = [
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
) -> Iterator[Finding]:
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
        place, reason = ((about,), rest) if about in search else ((), problem)
        yield place, f"no point of the search can be built: {reason}", "widen the search"
