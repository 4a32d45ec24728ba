"""What a study searches: the conditions under which parameters exist, and the points they span."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from cbe.spec.changes import FREE
from cbe.spec.conditions import Values, applies, deciders, value_at
from cbe.spec.faults import Faults
from cbe.spec.parameters import Parameter
from cbe.spec.train import PAPER_SHARE, TrainConfig

if TYPE_CHECKING:
    from cbe.spec.study import StudyConfig


def _leaves(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _leaves(kind, f"{above}{name}.")
        else:
            yield f"{above}{name}", kind


KEYS = dict(_leaves(TrainConfig))  # every dotted key of a training file, and its annotation

# What a trial keeps for life, since its network, its batches or its clock depend on it; population-based
# training may give a running trial other values of everything else.
_OF_TRAINING = ("steps", "batch_size", "unlabeled_ratio", "forward", "randaugment", "seed")
_OF_REPORTS = ("eval_every", "eval_batch", "precision")
FIXED = frozenset(
    {key for key in KEYS if key.startswith(("data.", "model.", "ensemble."))}
    | {f"training.{key}" for key in (*_OF_TRAINING, *_OF_REPORTS)}
    | {"method.name"}
    | FREE
)
MUTABLE = frozenset(KEYS) - FIXED


def applicable(key: str, parameter: Parameter, values: Values) -> bool:
    """Whether a parameter exists where the other keys have these values."""
    return applies(key, values) and all(values.get(k) in allowed for k, allowed in parameter.when.items())


def values_of(config: TrainConfig) -> dict[str, Any]:
    """A config's values by dotted key."""
    plain = config.to_plain()
    return {key: value_at(key, plain) for key in KEYS}


def deciding(key: str, parameter: Parameter) -> tuple[str, ...]:
    """The keys whose values decide whether a parameter exists."""
    return (*deciders(key), *parameter.when)


def order(search: Mapping[str, Parameter]) -> list[str]:
    """The keys, each after those that decide whether it exists."""
    after = {key: [k for k in deciding(key, parameter) if k in search] for key, parameter in search.items()}
    try:
        return list(TopologicalSorter(after).static_order())
    except CycleError as error:
        circle = error.args[1]
        problem = f"these conditions form a circle: {' ← '.join(circle)}"
        raise Faults([((circle[0], "when"), problem, "remove one `when`")]) from None


def walk(
    search: Mapping[str, Parameter], base: Values, choices: Callable[[str], Iterable[Any]]
) -> Iterator[dict[str, Any]]:
    """Every point of the given choices of each key; a key that does not apply is absent."""
    keys = order(search)

    def below(depth: int, point: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if depth == len(keys):
            yield point
        elif applicable(key := keys[depth], search[key], {**base, **point}):
            for value in choices(key):
                yield from below(depth + 1, {**point, key: value})
        else:
            yield from below(depth + 1, point)

    return below(0, {})


def grid(study: StudyConfig) -> Iterator[dict[str, Any]]:
    """All points of a finite search, each once, in the order of the file."""
    return walk(study.search, study.values({}), lambda key: study.search[key].values())


def default_search(base: TrainConfig) -> dict[str, Parameter]:
    """What is searched where the file does not say: all that the channel-based ensemble can be tuned by."""
    features = base.model.features

    def around(at: Any, space: dict[str, Any]) -> dict[str, Any]:
        return {**space, "prior": {"at": at, "confidence": "low"}}

    # The paper's config is what is believed in, and not firmly: of 260 configs that were trained on digits it
    # is in the middle (benchmarks/landscapes). Weights range from a quarter to four times the paper's 1, and
    # further down for the two regularisers, which the ablation takes out altogether.
    regulariser = {"float": [0.1, 4], "log": True}
    space: dict[str, Any] = {
        "ensemble.heads": around(5, {"int": [2, 8]}),
        "ensemble.private_channels": around(
            round(PAPER_SHARE * features),
            {"int": [max(1, round(0.02 * features)), round(0.25 * features)]},
        ),
        "method.threshold": around(0.9, {"float": [0.7, 0.99]}),
        "loss.target": around("soft", {"choice": ["soft", "hard"]}),
        "loss.agreement": around(0.8, {"choice": [0.4, 0.6, 0.8, 1.0], "when": {"loss.target": "hard"}}),
        "loss.lb_correlation": around("abs", {"choice": ["abs", "square", "signed"]}),
        "loss.weights.unlabeled": around(1.0, {"float": [0.25, 4], "log": True}),
        "loss.weights.lb": around(1.0, regulariser),
        "loss.weights.lv": around(1.0, regulariser),
    }
    values = {**values_of(base), "ensemble.heads": 2}  # as it will be wherever heads are searched
    return {key: Parameter.model_validate(space[key]) for key in space if applies(key, values)}
