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
from cbe.report.configs import Config, Role, Row, deciding_role, grouped
from cbe.report.front import FrontPoint, front
from cbe.report.lookup import read_study
from cbe.report.paired import LEVEL, Difference, Interval, Pair, paired, t_interval
from cbe.report.wording import UNITS, against, figure, verdict
from cbe.spec import StudyConfig
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

    rank: int | None  # None: it does not meet the condition, and stands beside to be compared with
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
    better: bool | None  # than the base, by the confirmation, allowing for `of`; None: there is none
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
    of: int  # configs of the search that were confirmed: the best of many looks better than it is
    where: str | None  # the condition that trials had to meet
    ranked: tuple[Ranked, ...]  # the best, then the presets, and the best of the search, not among them
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

    `where` is a condition in SQL that a trial of a config must meet for the config to be ranked. All runs of
    such a config count, and so do those it is compared with.
    """
    if k < 1:
        raise InputError(f"k = {k}: wanted a number of configs; give 1 or more")
    study = study or read_study(folder)
    rows = folder.table("trials", _COLUMNS).sort_by("trial").to_pylist()
    found = grouped(rows, study)
    wanted = _meeting(folder, where, study) if where else {config.config_id for config in found}
    configs = [config for config in found if config.preset or config.config_id in wanted]
    if not any(config.config_id in wanted for config in configs):
        meets_not = f"{folder.name}: no trial that was trained to its end meets {where}; ask for less"
        raise InputError(meets_not if where and found else _nothing(folder.name, rows))
    first, role = study.objectives[0], deciding_role(configs)
    confirmed = sum(not config.preset and bool(config.runs("confirm")) for config in found)
    ranked = _rank(configs, role, study, wanted, k, confirmed)
    return Answer(
        study=study.name,
        metric=first.metric,
        direction=first.direction,
        confirmed=role == "confirm",
        of=confirmed,
        where=where,
        ranked=ranked,
        front=front(configs, study.objectives) if len(study.objectives) > 1 else (),
        counts=dict(Counter(row["state"] for row in rows)),
        sentence=ranked[0].sentence,
    )


def _rank(
    configs: Sequence[Config], role: Role, study: StudyConfig, wanted: Set[str], k: int, confirmed: int
) -> tuple[Ranked, ...]:
    """The k best; beside them the presets, and of what was searched at least the best."""
    objective = study.objectives[0]
    sign = 1 if objective.direction == "minimize" else -1
    runs = {config.config_id: found for config in configs if (found := config.runs(role))}

    def merit(config: Config) -> tuple[Any, ...]:
        values = runs[config.config_id]
        # The search may have stopped a config on the seeds it is bad on: what ended on most comes first.
        finished = -len(values) if role == "search" else 0
        return (config.config_id not in wanted, finished, sign * fmean(values.values()), config.first_trial)

    fixed = {config.preset: runs.get(config.config_id, {}) for config in configs if config.preset}
    in_order = sorted((config for config in configs if config.config_id in runs), key=merit)
    searched = next((config.config_id for config in in_order if not config.preset), None)
    return tuple(
        _ranked(rank if config.config_id in wanted else None, config, role, study, fixed, confirmed)
        for rank, config in enumerate(in_order, start=1)
        if rank <= k or config.preset or config.config_id == searched
    )


def _meeting(folder: StudyFolder, where: str, study: StudyConfig) -> set[str]:
    """The configs of trials that meet a condition."""
    query = f"select distinct config_id from trials where ({where}\n)"
    refuse_test_labels(query, allowed=study.allow_test_selection)
    found = sql.answer(query, lambda table, columns: folder.table(table, columns))
    return set(found["config_id"].to_pylist())


def refuse_test_labels(query: str, *, allowed: bool = False) -> None:
    """Refuses a condition that would choose configs by how they do on the test set."""
    read = sorted(column for column in sql.columns_read(query) if column.endswith("test_error"))
    if read and not allowed:
        raise InputError(
            f"--where: asks for {', '.join(read)}; configs are not chosen by test labels; ask for validation "
            "errors, or look at test errors with `cbe query`"
        )


def _ranked(
    rank: int | None,
    config: Config,
    role: Role,
    study: StudyConfig,
    fixed: Mapping[str, Mapping[Pair, float]],
    confirmed: int,
) -> Ranked:
    rows, values = config.completed(role), config.runs(role)
    searched = config.runs("search").values()
    tested = config.runs(role, "last_test_error").values()
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
        better=_is_better(to_base, study, confirmed) if to_base and role == "confirm" else None,
        sentence="",
        point=json.loads(rows[0]["params"] or "{}"),
        config=json.loads(rows[0]["config"]),
        seeds=tuple(values),
    )
    shared = values.keys() & fixed.get("base", {}).keys()
    alone = [values[pair] - fixed["base"][pair] for pair in shared] if len(shared) == 1 else []
    return replace(found, sentence=_sentence(found, role, study, confirmed, alone))


def _is_better(found: Difference, study: StudyConfig, confirmed: int) -> bool:
    """Whether the interval shows it even for the best of so many confirmed configs (Bonferroni)."""
    sure = verdict(found, study.objectives[0].direction)
    return sure is True and found.p * max(1, confirmed) < 1 - LEVEL


def _sentence(ranked: Ranked, role: Role, study: StudyConfig, confirmed: int, alone: Sequence[float]) -> str:
    objective = study.objectives[0]
    unit = UNITS[objective.metric]
    name = f"{_CALLED[ranked.preset]} ({ranked.config_id})" if ranked.preset else ranked.config_id
    said = f"{name} has {figure(unit, ranked.mean, ranked.interval, ranked.n)}"
    if ranked.preset == "base":
        said += ": no config ranks above it" if ranked.rank == 1 else ""
    elif ranked.versus_base is not None:
        said += f", {against(unit, ranked.versus_base, 'the base')}"
        if ranked.better is not None:
            words = {True: "better", False: "worse", None: "not shown to be better"}
            sure = verdict(ranked.versus_base, objective.direction)
            said += f": {words[sure if sure is not True or ranked.better else None]}"
            if sure and not ranked.better:
                said += f", being one of {confirmed} that were confirmed"
    elif alone and ranked.preset != "base":
        said += f", {unit.amount(abs(alone[0]), (alone[0], alone[0]))} {_side(alone[0])} the base on the one "
        said += "run they share"
    elif ranked.interval is not None:
        said += ", and fewer than two runs in common with the base: not compared"
    if ranked.failed:
        said += f"; {ranked.failed} more of its runs failed"
    if study.scheduler.name == "pbt" and not ranked.preset:
        said += "; its values changed during training, and these are the last"
    if objective.metric == "test_error":
        said += "; selected on test labels"
    if role == "search":
        said += "; not yet confirmed" if study.confirm.runs else "; not confirmed"
    said += "."
    return said[0].upper() + said[1:] if ranked.preset else said


def _side(difference: float) -> str:
    return "below" if difference < 0 else "above" if difference > 0 else "from"


def _nothing(name: str, rows: Sequence[Row]) -> str:
    if not rows:
        return f"{name}: has no trials yet; wait for them, or start them with `cbe resume {name}`"
    counts = ", ".join(f"{count} {state}" for state, count in Counter(row["state"] for row in rows).items())
    failures = [f"{row['error_class']}: {row['error_text']}" for row in rows if row["state"] == "failed"]
    why = f", the last one with {failures[-1]}" if failures else ""
    return (
        f"{name}: no trial has been trained to its end ({counts}{why}); look at them with `cbe show {name}`; "
        f"unless it is running, go on with `cbe resume {name}`"
    )
