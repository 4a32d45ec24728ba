"""What a study searches: parameters, the conditions under which they exist, and the points they span."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_serializer, model_validator

from cbe.spec.changes import FREE
from cbe.spec.files import Faults
from cbe.spec.train import PAPER_SHARE, WITH_HEADS, Section, TrainConfig

if TYPE_CHECKING:
    from cbe.spec.study import StudyConfig

Finite = Annotated[float, Field(allow_inf_nan=False)]
Scalar = bool | int | Finite | str
Values = Mapping[str, Any]  # by dotted key

FORMS = "{int: [low, high]}, {float: [low, high]} or a list of choices"

# Methods with a threshold to set; the others have none, or move it themselves.
THRESHOLDED = frozenset({"pseudo-label", "uda", "fixmatch", "flexmatch"})


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


def _listed(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


class Prior(Section):
    """Where the author of a study believes the best value of a parameter to be."""

    at: Scalar  # the value
    confidence: Literal["low", "medium", "high"] = "medium"  # how firmly


class Parameter(Section):
    """One dimension: a range of whole numbers or of reals, or a list of choices."""

    int_: tuple[int, int] | None = Field(None, alias="int")  # lowest and highest whole number
    float_: tuple[Finite, Finite] | None = Field(None, alias="float")  # lowest and highest real number
    choice: tuple[Scalar, ...] | None = None  # the values; a bare list means the same
    log: bool = False  # search on a logarithmic scale
    # distance between values, from low to high
    step: Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    # the parameter exists only where other keys have one of these values
    when: dict[str, Annotated[tuple[Scalar, ...], BeforeValidator(_listed)]] = Field({})
    prior: Prior | None = None  # where the best value is believed to be; null: anywhere

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple, dict, cls)):
            raise ValueError(f"a parameter is {FORMS}")
        return {"choice": value} if isinstance(value, (list, tuple)) else value

    @model_validator(mode="after")
    def _is_one_dimension(self) -> Self:
        if sum(given is not None for given in (self.int_, self.float_, self.choice)) != 1:
            raise ValueError(f"a parameter is exactly one of {FORMS}")
        if self.choice is not None:
            if not self.choice:
                raise ValueError("no choice is given; give at least one")
            if self.log or self.step is not None:
                raise ValueError("log and step belong to int and float, not to choices")
            return self
        if not self.low < self.high:
            raise ValueError(f"low must be below high, not {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"log needs a low above 0, not {self.low}")
        if self.log and self.step is not None:
            raise ValueError("log and step exclude each other; leave one out")
        if self.step is not None:
            self._step_fits(Decimal(str(self.step)))
        return self

    def _step_fits(self, step: Decimal) -> None:
        low, high = Decimal(str(self.low)), Decimal(str(self.high))
        if self.int_ is not None and step % 1:
            raise ValueError(f"step of an int is a whole number, not {self.step}")
        if (high - low) % step:
            last = low + (high - low) // step * step
            raise ValueError(f"steps of {step} from {low} do not reach {high}; the last one is {last}")

    @model_serializer
    def _to_plain(self) -> dict[str, Any]:
        given = {"int": self.int_, "float": self.float_, "choice": self.choice, "step": self.step}
        plain: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        plain |= {"log": True} if self.log else {}
        plain |= {"when": {key: list(values) for key, values in self.when.items()}} if self.when else {}
        plain |= {"prior": self.prior.model_dump()} if self.prior else {}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    @property
    def kind(self) -> Literal["int", "float", "choice"]:
        return "choice" if self.choice is not None else "int" if self.int_ is not None else "float"

    @property
    def low(self) -> float:
        return self._bounds[0]

    @property
    def high(self) -> float:
        return self._bounds[1]

    @property
    def _bounds(self) -> tuple[float, float]:
        bounds = self.int_ or self.float_
        if bounds is None:
            raise ValueError("choices have no bounds")
        return bounds

    def values(self) -> tuple[Any, ...]:
        """All values, in order; ValueError where there is no end of them."""
        if self.choice is not None:
            return self.choice
        if self.int_ is not None:
            return tuple(range(self.int_[0], self.int_[1] + 1, int(self.step or 1)))
        count = self.count
        low, step = Decimal(str(self.low)), Decimal(str(self.step))
        return tuple(float(low + n * step) for n in range(count))

    @property
    def count(self) -> int:
        """How many values there are, without listing them; the same ValueError."""
        if self.choice is not None:
            return len(self.choice)
        if self.int_ is None and self.step is None:
            raise ValueError(
                "a float without step has infinitely many values; give a step, or a list of choices"
            )
        return int((Decimal(str(self.high)) - Decimal(str(self.low))) / Decimal(str(self.step or 1))) + 1

    def __str__(self) -> str:
        """As a person would say it.

        >>> str(Parameter.model_validate({"int": [2, 8], "step": 2}))
        '2 to 8 in steps of 2'
        """
        if self.choice is not None:
            return ", ".join(map(str, self.choice))
        return f"{self.low:g} to {self.high:g}" + (f" in steps of {self.step:g}" if self.step else "")

    def contains(self, value: Any) -> bool:
        """Whether the value lies in the dimension, on a step where there are steps."""
        if self.choice is not None:
            return (type(value) is bool, value) in [(type(each) is bool, each) for each in self.choice]
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not self.low <= value <= self.high
        ):
            return False
        step = self.step or (1 if self.int_ is not None else None)
        return step is None or (Decimal(str(value)) - Decimal(str(self.low))) % Decimal(str(step)) == 0


def _has_heads(values: Values) -> bool:
    return values["ensemble.kind"] in WITH_HEADS


def _has_several_heads(values: Values) -> bool:
    heads = values.get("ensemble.heads")
    return _has_heads(values) and (heads is None or heads > 1)


def _has_private_channels(values: Values) -> bool:
    return values["ensemble.kind"] == "channel" and _has_several_heads(values)


_ENSEMBLE = ("ensemble.kind", "ensemble.heads")
# What a key needs in order to mean anything: the keys that decide it, and how.
_NEEDS: Mapping[str, tuple[tuple[str, ...], Callable[[Values], bool]]] = {
    "ensemble.heads": (("ensemble.kind",), _has_heads),
    "ensemble.private_channels": (_ENSEMBLE, _has_private_channels),
    "ensemble.momentum": (("ensemble.kind",), lambda values: values["ensemble.kind"] == "temporal"),
    "method.threshold": (("method.name",), lambda values: values["method.name"] in THRESHOLDED),
    "method.fairness": (("method.name",), lambda values: values["method.name"] == "freematch"),
    "loss.target": (_ENSEMBLE, _has_several_heads),
    "loss.agreement": (_ENSEMBLE, _has_several_heads),
    "loss.lb_correlation": (_ENSEMBLE, _has_private_channels),
    "loss.lb_pairs": (_ENSEMBLE, _has_private_channels),
    "loss.weights.lb": (_ENSEMBLE, _has_private_channels),
}


def applies(key: str, values: Values) -> bool:
    """Whether a key means anything where the others have these values."""
    return key not in _NEEDS or _NEEDS[key][1](values)


def applicable(key: str, parameter: Parameter, values: Values) -> bool:
    """Whether a parameter exists where the other keys have these values."""
    return applies(key, values) and all(values.get(k) in allowed for k, allowed in parameter.when.items())


def values_of(config: TrainConfig) -> dict[str, Any]:
    """A config's values by dotted key."""
    plain: Any = config.to_plain()

    def at(key: str) -> Any:
        value = plain
        for part in key.split("."):
            value = value[part]
        return value

    return {key: at(key) for key in KEYS}


def deciding(key: str, parameter: Parameter) -> tuple[str, ...]:
    """The keys whose values decide whether a parameter exists."""
    return (*_NEEDS.get(key, ((),))[0], *parameter.when)


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
