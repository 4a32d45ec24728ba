"""What a user probably meant by a name that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

_STEPS = "training.steps, a number of steps, not of epochs"
_HOURS = "budget.wall_hours, in hours"
_LABELS = "data.labels, a number of labels over all classes"

# Names from Ray Tune, Optuna, USB, PyTorch and papers. A remark after the key says what else differs.
SYNONYMS = {
    "epoch": _STEPS,
    "epochs": _STEPS,
    "max_epochs": _STEPS,
    "num_epochs": _STEPS,
    "iterations": "training.steps",
    "max_steps": "training.steps",
    "num_steps": "training.steps",
    "num_train_iter": "training.steps",
    "num_eval_iter": "training.eval_every",
    "learning_rate": "training.lr",
    "learningrate": "training.lr",
    "wd": "training.weight_decay",
    "batch": "training.batch_size",
    "bs": "training.batch_size",
    "mu": "training.unlabeled_ratio",
    "uratio": "training.unlabeled_ratio",
    "ema_decay": "training.ema",
    "ema_m": "training.ema",
    "amp": "training.precision",
    "hours": "budget.wall_hours",
    "max_hours": "budget.wall_hours",
    "time": _HOURS,
    "time_budget_s": _HOURS,
    "timeout": _HOURS,
    "cost": "budget.usd",
    "dollars": "budget.usd",
    "max_trials": "budget.trials",
    "n_trials": "budget.trials",
    "num_samples": "budget.trials",
    "num_trials": "budget.trials",
    "dataset": "data.source",
    "data_dir": "data.path",
    "folder": "data.path",
    "image_size": "data.size",
    "img_size": "data.size",
    "resolution": "data.size",
    "label_count": "data.labels",
    "labels_per_class": _LABELS,
    "n_labels": "data.labels",
    "num_labels": "data.labels",
    "num_labels_per_class": _LABELS,
    "val": "data.validation",
    "val_split": "data.validation",
    "validation_split": "data.validation",
    "split_seed": "data.label_split",
    "architecture": "model.name",
    "backbone": "model.name",
    "net": "model.name",
    "network": "model.name",
    "alg": "method.name",
    "algorithm": "method.name",
    "p_cutoff": "method.threshold",
    "tau": "method.threshold",
    "gamma": "loss.agreement",
    "lambda_u": "loss.weights.unlabeled",
    "ulb_loss_ratio": "loss.weights.unlabeled",
    "n_heads": "ensemble.heads",
    "num_heads": "ensemble.heads",
    "direction": "objective.direction",
    "metric": "objective.metric",
    "mode": "objective.direction",
    "pruner": "scheduler.name",
    "grace_period": "scheduler.grace",
    "reduction_factor": "scheduler.reduction",
    "search_alg": "sampler.name",
    "param_space": "search",
    "parameters": "search",
    "space": "search",
    "cpu": "resources.cpus",
    "num_cpus": "resources.cpus",
    "gpu": "resources.gpus",
    "num_gpus": "resources.gpus",
    "num_workers": "resources.workers",
    "max_concurrent_trials": "resources.concurrent",
    "n_jobs": "resources.concurrent",
    "price": "resources.usd_per_hour",
    "resources_per_trial": "resources",
    "save_dir": "storage.store",
    "storage_path": "storage.store",
    "study_name": "name",
}
_MAX_LISTED = 4  # keys of one name that are worth listing


def meant_key(model: type[BaseModel], place: Sequence[str | int]) -> str:
    """A suggestion for a key that a model does not have at a place, from all keys of the model.

    >>> from cbe.spec import StudyConfig
    >>> meant_key(StudyConfig, ("budget", "hours"))
    'did you mean wall_hours?'
    >>> meant_key(StudyConfig, ("learning_rate",))
    'did you mean training.lr?'
    """
    *above, last = (str(part) for part in place)
    here = keys_at(model, place[:-1])
    if not here:
        return ""
    found = by_last_name(last, list(_dotted(model)))
    if found:
        section = ".".join(part for part in above if not part.isdigit())
        return question([key.removeprefix(f"{section}.") for key in found])
    if difflib.get_close_matches(last, here, 1):
        return did_you_mean(last, here)
    elsewhere = {key.rpartition(".")[2]: key for key in _dotted(model)}
    near = difflib.get_close_matches(last, elsewhere, 1, cutoff=0.8)
    return question([elsewhere[near[0]]]) if near else did_you_mean(last, here)


def by_last_name(name: str, keys: Sequence[str]) -> list[str]:
    """The dotted keys whose last part is this name, or a name that others have for it.

    A remark may follow the key.

    >>> by_last_name("lr", ["training.lr"]), by_last_name("n_trials", ["budget.trials"])
    (['training.lr'], ['budget.trials'])
    """
    plain = name.lower().replace("-", "_")
    found = [key for key in keys if key.rpartition(".")[2] == plain]
    if 0 < len(found) <= _MAX_LISTED:
        return found
    other = SYNONYMS.get(plain, "")
    return [other] if other.partition(", ")[0] in keys else []


def keys_at(kind: Any, place: Sequence[str | int]) -> list[str]:
    """The keys that may stand at a place below an annotation."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        if not place:
            return list(fields)
        return keys_at(fields[str(place[0])].annotation, place[1:]) if place[0] in fields else []
    inner = _item(kind)
    if inner is None:
        return []
    return keys_at(inner, place[1:] if place and isinstance(place[0], int) else place)


def did_you_mean(given: str, allowed: Sequence[str]) -> str:
    """The nearest of what is allowed, or all of it."""
    near = difflib.get_close_matches(given, allowed, 1)
    if near:
        return question(near)
    return f"there are {', '.join(allowed)}" if allowed else ""


def nearest_choice(given: Any, message: str) -> str:
    """A suggestion out of the choices that a message lists."""
    if not isinstance(given, str):
        return ""
    choices = [word for word in message.replace("'", " ").replace(",", " ").split() if word != given]
    near = difflib.get_close_matches(given, choices, 1, cutoff=0.7)
    return question(near) if near else ""


def question(names: Sequence[str]) -> str:
    """Asks for one of several names."""
    *others, last = names
    return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"


def _dotted(kind: Any, above: str = "") -> Iterator[str]:
    """Every key of a model and of the models in it, with its sections."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            key = f"{above}{field.alias or name}"
            yield key
            yield from _dotted(field.annotation, f"{key}.")
    elif (inner := _item(kind)) is not None:
        yield from _dotted(inner, above)


def _item(kind: Any) -> Any:
    """What an annotation or a list of values is of; None for anything else."""
    return get_args(kind)[0] if get_origin(kind) in (Annotated, tuple) else None
