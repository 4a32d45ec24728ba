"""What a table is made of: a study's configs, the runs of each that count, and their figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, stdev
from typing import Literal

from cbe.configs import Config, deciding_role, grouped, is_finite
from cbe.names import config_names
from cbe.report.best import Ranked, best
from cbe.report.published import DATA, NAMES, data_name, labels, setting
from cbe.spec import StudyConfig
from cbe.spec.terms import Pair, Role
from cbe.store.folder import StudyFolder
from cbe.store.rows import Row, pair_of

Error = Literal["last", "median", "best"]
ERRORS: dict[Error, str] = {
    "last": "that of the last evaluation",
    "median": "the median of the last 20 evaluations",
    "best": "that of the evaluation with the lowest validation error",
}
NOTHING = "–"

_COLUMNS = (
    *("trial", "role", "preset", "state", "config_id", "params", "seed", "label_split", "objective"),
    *(f"{which}_{kind}_error" for which in ERRORS for kind in ("validation", "test")),
    *("parameters", "macs", "wall_s", "device", "ensemble_kind", "ensemble_heads"),
    *("ensemble_private_channels", "method_name", "loss_weights_lb", "loss_weights_lv", "training_steps"),
)


@dataclass(frozen=True)
class Runs:
    """A study's configs; `whole` where its search is what the table is of, so that all of them are shown."""

    folder: StudyFolder
    study: StudyConfig
    rows: Sequence[Row]
    whole: bool
    error: Error

    @classmethod
    def read(cls, folder: StudyFolder, error: Error, study: StudyConfig, *, whole: bool) -> Runs:
        rows = folder.table("trials", _COLUMNS).sort_by("trial").to_pylist()
        return cls(folder, study, rows, whole, error)

    @cached_property
    def _all(self) -> list[Config]:
        return grouped(self.rows, self.study)

    @cached_property
    def role(self) -> Role:
        """Whose runs count: one part's for all configs, so that they ran on the same seeds and splits."""
        if not self.whole:
            return deciding_role(self._all)
        return "confirm" if all(config.completed("confirm") for config in self._all) else "search"

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        """All configs as `cbe best` ranks them: on validation."""
        return best(self.folder, len(self._all), self.study).ranked if self._all else ()

    @property
    def tuned(self) -> str | None:
        """Of the searched configs, the one that ranks first; None where all are shown."""
        return None if self.whole else next((r.config_id for r in self.ranked if not r.preset), None)

    @cached_property
    def names(self) -> dict[str, str]:
        """What configs are called, by config_id."""
        return config_names(self.rows)

    @cached_property
    def configs(self) -> list[Config]:
        """Those shown: all, or the base, the paper's and the tuned one."""
        if self.whole:
            return self._all
        return [each for each in self._all if each.preset or each.config_id == self.tuned]

    @property
    def kind(self) -> Literal["test", "validation"]:
        """On which labels the errors are: the test set's, where there is one."""
        done = [row for config in self._all for row in config.completed(self.role)]
        tested = any(is_finite(row["last_test_error"]) for row in done)
        return "test" if tested or not done else "validation"

    def errors(self, config: Config) -> list[float]:
        """In %, one for each seed and split."""
        return [100 * value for value in self.figures(config, f"{self.error}_{self.kind}_error")]

    def figures(self, config: Config, column: str) -> list[float]:
        """A column's values, one for each seed and split: the same run made twice is one."""
        return list(config.runs(self.role, column).values())

    def pairs(self) -> set[Pair]:
        return {pair_of(row) for config in self.configs for row in config.completed(self.role)}

    def devices(self, configs: Iterable[Config]) -> list[str]:
        rows = (row for config in configs for row in config.completed(self.role))
        return sorted({re.sub(r"\b(NVIDIA|GeForce) ", "", row["device"]) for row in rows if row["device"]})

    def left_out(self) -> Counter[str]:
        """Runs that did not reach their end, by state: of the configs shown, or of all that should be."""
        shown = {config.config_id for config in self.configs}
        ours = (row for row in self.rows if self.whole or row["config_id"] in shown)
        ended = ("pruned", "failed")
        return Counter(row["state"] for row in ours if row["role"] == self.role and row["state"] in ended)

    @property
    def data(self) -> str:
        """The images and how many labels, as a column's head."""
        name = data_name(self.study.data)
        return f"{DATA.get(name, name)} @ {labels(self.study.data)}"

    def setting(self) -> str:
        """How the runs were made, in a line."""
        pairs = self.pairs()
        seeds, splits = len({seed for seed, _ in pairs}), len({split for _, split in pairs})
        where = ", ".join(self.devices(self.configs)) or "no device"
        counted = f"{_counted(seeds, 'seed')}, {_counted(splits, 'label split')}"
        part = "the search" if self.role == "search" else "the confirmation"
        return f"{setting(self.study).words()}; {counted} of {part}; on {where}"


def cell(values: Sequence[float], digits: int = 2) -> str:
    """A mean with the standard deviation of its runs and their number.

    >>> cell([5.0, 7.0]), cell([5.0]), cell([])
    ('6.00 ± 1.41 (2)', '5.00 (1)', '–')
    """
    if not values:
        return NOTHING
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread} ({len(values)})"


_ADDED: Mapping[str, str] = {
    "model": "{} models",
    "temporal": "temporal",
    "multihead": "{} heads",
    "channel": "CBE",
}


def called(row: Row) -> str:
    """A config by its method and its ensemble, as the paper calls them."""
    name, kind = NAMES.get(row["method_name"], str(row["method_name"])), str(row["ensemble_kind"])
    return name if kind == "single" else f"{name} + {_ADDED.get(kind, kind).format(row['ensemble_heads'])}"


def named(runs: Runs, names: Mapping[str, str]) -> dict[str, str]:
    """A name of its own for each config: two that would have the same are told apart by their trials."""
    own = {id_: f"{name}, tuned" if id_ == runs.tuned else name for id_, name in names.items()}
    times = Counter(own.values())
    which = {"paper": "the paper's", "base": "the base"}
    return {
        id_: f"{name} ({which.get(runs.names[id_], runs.names[id_])})" if times[name] > 1 else name
        for id_, name in own.items()
    }


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
