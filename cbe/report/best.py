"""Which config is best, and how sure that is: from a study's `trials` table alone."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from statistics import fmean, mean
from typing import Any, Literal

import yaml

from cbe.errors import InputError
from cbe.report.configs import Config, Role, Row, deciding_role, grouped, is_finite
from cbe.report.front import FrontPoint, front
from cbe.report.lookup import read_study
from cbe.report.paired import Difference, Interval, Pair, paired, t_interval
from cbe.report.wording import UNITS, against, figure, verdict
from cbe.spec import Objective, StudyConfig
from cbe.store import sql
from cbe.store.folder import StudyFolder

_COLUMNS = (
    *("trial", "role", "preset", "state", "config_id", "params", "config", "seed", "split_seed"),
    *("objective", "values", "last_test_error", "error_class", "error_text"),
)
_CALLED = {"paper": "the paper's config", "base": "the base"}


@dataclass(frozen=True)
class Ranked:
    """A config and what its runs say: those of the confirmation, or of the search before there is one."""

    rank: int
    config_id: str
    preset: str | None  # paper or base
    trials: tuple[str, ...]
    n: int
    mean: float
    interval: Interval | None  # 95 % of the mean; None for one run
    failed: int  # runs that would have counted, had they not failed
    searched: float | None  # what the search said, too good by having been chosen
    test_error: float | None  # never ranked by
    versus_base: Difference | None  # None: fewer than two shared runs
    versus_paper: Difference | None
    better: bool | None  # than the base, by the interval of the confirmation; None: there is none
    sentence: str
    point: dict[str, Any]  # what was sampled
    config: dict[str, Any]  # resolved, on the first of the seeds
    seeds: tuple[Pair, ...]  # seed and label split of every run


@dataclass(frozen=True)
class Answer:
    study: str
    metric: str
    direction: Literal["minimize", "maximize"]
    confirmed: bool
    where: str | None  # the condition that trials had to meet
    ranked: tuple[Ranked, ...]  # the best, then the presets that are not among them
    front: tuple[FrontPoint, ...]  # where there are several objectives
    counts: dict[str, int]  # trials by state
    sentence: str

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    def to_yaml(self, ranked: Ranked | None = None) -> str:
        """A file for `cbe train`: a config, the best unless another is given, on its first seed and split."""
        chosen = ranked or self.ranked[0]
        among = f", of trials where {self.where}" if self.where else ""
        about = f"Rank {chosen.rank} of study {self.study}{among}: {chosen.sentence}"
        header = textwrap.fill(
            about, 110, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
        )
        return f"{header}\n{yaml.safe_dump(chosen.config, sort_keys=False, allow_unicode=True)}"


def best(
    folder: StudyFolder, k: int = 1, study: StudyConfig | None = None, where: str | None = None
) -> Answer:
    """The k best configs of a study, with the paper's and the base beside them.

    `where` is a condition in SQL that trials must meet to be ranked; what they are compared with is not.
    """
    if k < 1:
        raise InputError(f"k = {k}: wanted a number of configs; give 1 or more")
    study = study or read_study(folder)
    rows = folder.table("trials", _COLUMNS).sort_by("trial").to_pylist()
    wanted = _meeting(folder, where) if where else {row["trial"] for row in rows}
    configs = grouped((row for row in rows if row["preset"] or row["trial"] in wanted), study)
    if not any(_is_wanted(config, wanted) for config in configs):
        meets_not = f"{folder.name}: no trial that was trained to its end meets {where}; ask for less"
        raise InputError(meets_not if where and configs else _nothing(folder.name, rows))
    first, role = study.objectives[0], deciding_role(configs)
    ranked = _rank(configs, role, first, wanted, k)
    return Answer(
        study=study.name,
        metric=first.metric,
        direction=first.direction,
        confirmed=role == "confirm",
        where=where,
        ranked=ranked,
        front=front(configs, study.objectives) if len(study.objectives) > 1 else (),
        counts=dict(Counter(row["state"] for row in rows)),
        sentence=ranked[0].sentence,
    )


def _rank(
    configs: Sequence[Config], role: Role, objective: Objective, wanted: Set[str], k: int
) -> tuple[Ranked, ...]:
    """The k best, and the presets that are not among them."""
    sign = 1 if objective.direction == "minimize" else -1
    runs = {config.config_id: found for config in configs if (found := config.runs(role))}

    def merit(config: Config) -> tuple[Any, ...]:
        values = runs[config.config_id]
        # The search may have stopped a config on the seeds it is bad on: what ended on most comes first.
        finished = -len(values) if role == "search" else 0
        is_beside = not _is_wanted(config, wanted)  # there to be compared with
        return (is_beside, finished, sign * fmean(values.values()), config.first_trial)

    fixed = {config.preset: runs.get(config.config_id, {}) for config in configs if config.preset}
    in_order = sorted((config for config in configs if config.config_id in runs), key=merit)
    return tuple(
        _ranked(rank, config, role, objective, fixed)
        for rank, config in enumerate(in_order, start=1)
        if rank <= k or config.preset
    )


def _is_wanted(config: Config, wanted: Set[str]) -> bool:
    return any(row["trial"] in wanted for row in config.rows)


def _meeting(folder: StudyFolder, where: str) -> set[str]:
    """The trials that meet a condition."""
    found = sql.answer(
        f"select trial from trials where ({where}\n)", lambda table, columns: folder.table(table, columns)
    )
    return set(found["trial"].to_pylist())


def _ranked(
    rank: int,
    config: Config,
    role: Role,
    objective: Objective,
    fixed: Mapping[str, Mapping[Pair, float]],
) -> Ranked:
    rows, values = config.completed(role), config.runs(role)
    searched = config.runs("search").values()
    tested = [row["last_test_error"] for row in rows if is_finite(row["last_test_error"])]
    to_base, to_paper = (
        paired(values, fixed.get(name, {})) if config.preset != name else None for name in ("base", "paper")
    )
    found = Ranked(
        rank=rank,
        config_id=config.config_id,
        preset=config.preset,
        trials=tuple(row["trial"] for row in rows),
        n=len(values),
        mean=mean(values.values()),
        interval=t_interval(list(values.values())),
        failed=config.failed(role),
        searched=mean(searched) if searched else None,
        test_error=mean(tested) if tested else None,
        versus_base=to_base,
        versus_paper=to_paper,
        # The search's own runs chose the config: they cannot judge it.
        better=verdict(to_base, objective.direction) is True if to_base and role == "confirm" else None,
        sentence="",
        point=json.loads(rows[0]["params"] or "{}"),
        config=json.loads(rows[0]["config"]),
        seeds=tuple(values),
    )
    return replace(found, sentence=_sentence(found, role, objective))


def _sentence(ranked: Ranked, role: Role, objective: Objective) -> str:
    unit = UNITS[objective.metric]
    name = f"{_CALLED[ranked.preset]} ({ranked.config_id})" if ranked.preset else ranked.config_id
    said = f"{name} has {figure(unit, ranked.mean, ranked.interval, ranked.n)}"
    if ranked.preset == "base":
        said += ": no config ranks above it" if ranked.rank == 1 else ""
    elif ranked.versus_base is not None:
        said += f", {against(unit, ranked.versus_base, 'the base')}"
        if ranked.better is not None:
            words = {True: "better", False: "worse", None: "not shown to be better"}
            said += f": {words[verdict(ranked.versus_base, objective.direction)]}"
    elif ranked.interval is not None:
        said += ", and fewer than two runs in common with the base: not compared"
    if ranked.failed:
        said += f"; {ranked.failed} more of its runs failed"
    if objective.metric == "test_error":
        said += "; selected on test labels"
    said += "." if role == "confirm" else "; not yet confirmed."
    return said[0].upper() + said[1:] if ranked.preset else said


def _nothing(name: str, rows: Sequence[Row]) -> str:
    if not rows:
        return f"{name}: has no trials yet; start them with `cbe resume {name}`"
    counts = ", ".join(f"{count} {state}" for state, count in Counter(row["state"] for row in rows).items())
    failures = [f"{row['error_class']}: {row['error_text']}" for row in rows if row["state"] == "failed"]
    why = f", the last one with {failures[-1]}" if failures else ""
    return (
        f"{name}: no trial has been trained to its end ({counts}{why}); look at them with `cbe show {name}`, "
        f"and go on with `cbe resume {name}`"
    )
