"""Which config is best, and how sure that is: from a study's `trials` table alone."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from statistics import mean
from typing import Any

import yaml

from cbe.configs import Config, deciding_role, grouped, in_order, no_config_is_ahead
from cbe.errors import InputError
from cbe.names import config_names
from cbe.report import sentences
from cbe.report.chance import at_chance
from cbe.report.front import FrontPoint, front
from cbe.report.intervals import Interval, images_behind, mean_interval
from cbe.report.lookup import data_facts, read_study
from cbe.report.paired import Difference, paired
from cbe.report.progress import Progress, read_progress
from cbe.spec import Objective, StudyConfig
from cbe.spec.metrics import METRICS, on_test
from cbe.spec.terms import PRESETS, Direction, Pair, Preset, Role
from cbe.store import sql
from cbe.store.folder import StudyFolder
from cbe.store.rows import Row
from cbe.store.states import Status, current_trials, status
from cbe.verdicts import Said, Verdict, compare

_COLUMNS = (
    *("trial", "role", "preset", "state", "config_id", "params", "config", "seed", "label_split"),
    *("objective", "values", "last_test_error", "error_class", "error_text"),
)

Facts = Mapping[str, Any] | None  # of the data, as `data_facts` reads them


@dataclass(frozen=True)
class About:
    """What the figures of all configs have in common."""

    study: StudyConfig
    rows: Sequence[Row]  # of `trials`
    progress: Progress
    role: Role
    names: Mapping[str, str]  # by config_id
    facts: Facts
    images: int | None  # that the objective, an error, is counted on
    runs: Mapping[str, Mapping[Pair, float]]  # of the role, by config_id
    fixed: Mapping[Preset, Mapping[Pair, float]]  # those of the paper's config and of the base
    verdicts: Mapping[str, Verdict]  # against the base, by config_id; empty before the confirmation
    confirmed: int  # configs of the search that were confirmed
    none_ahead: bool  # of the base in the search, which is over: none of them is confirmed

    @property
    def objective(self) -> Objective:
        return self.study.objectives[0]

    def chance(self, ranked: Ranked) -> str | None:
        """What to call an error that guessing would make."""
        images = _found(self.facts, self.objective.metric)
        if not self.facts or not images:
            return None
        return at_chance(ranked.mean, len(self.facts["classes"]), images * ranked.n)


@dataclass(frozen=True)
class Ranked:
    """A config and what its runs say: those of the confirmation, or of the search before there is one."""

    rank: int | None  # None: it does not meet the condition, and stands beside to be compared with
    config_id: str
    name: str  # for a person: paper, base, or the first trial of the config
    preset: Preset | None
    trials: tuple[str, ...]
    n: int
    mean: float
    interval: Interval | None  # 95 % of the mean; None for one run
    failed: int  # runs that would have counted, had they not failed
    searched: float | None  # what the search said, too good by having been chosen
    test_error: float | None  # never ranked by
    versus_base: Difference | None  # None: fewer than two shared runs
    versus_paper: Difference | None
    verdict: Said | None  # against the base, by the confirmation; None: there is none
    pairs_needed: int | None  # to decide a difference of this size; None: it is decided, or takes too many
    sentence: str
    point: dict[str, Any]  # what was sampled
    config: dict[str, Any]  # resolved, on the first of the seeds
    seeds: tuple[Pair, ...]  # seed and label split of every run


@dataclass(frozen=True)
class Answer:
    study: str
    metric: str
    direction: Direction
    confirmed: bool
    of: int  # configs of the search that were confirmed: the best of many looks better than it is
    where: str | None  # the condition that trials had to meet
    ranked: tuple[Ranked, ...]  # the best, then the presets, and the best of the search, not among them
    front: tuple[FrontPoint, ...]  # where there are several objectives
    counts: dict[str, int]  # trials by state
    headline: str  # the answer in a few words
    sentence: str  # the same with its figures, the paper's config, and what is still to come
    note: str  # how to read the differences and verdicts
    to_come: str | None  # what is left to do, while the study runs
    threads: int  # of each trial; with as many, training a config again gives the same numbers

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
    last = status(folder)
    rows = current_trials(folder, _COLUMNS, last=last).sort_by("trial").to_pylist()
    found = grouped(rows, study)
    wanted = _meeting(folder, where, study) if where else {config.config_id for config in found}
    configs = [config for config in found if config.preset or config.config_id in wanted]
    if not any(config.config_id in wanted for config in configs):
        meets_not = f"{folder.name}: no trial that was trained to its end meets {where}; ask for less"
        raise InputError(meets_not if where and found else _nothing(folder.name, rows))
    about = _about(folder, study, rows, found, configs, last)
    ranked = _rank(configs, wanted, k, about)
    return Answer(
        study=study.name,
        metric=about.objective.metric,
        direction=about.objective.direction,
        confirmed=about.role == "confirm",
        of=about.confirmed,
        where=where,
        ranked=ranked,
        front=front(configs, study.objectives, about.names) if len(study.objectives) > 1 else (),
        counts=dict(Counter(row["state"] for row in rows)),
        headline=sentences.headline(ranked[0], about),
        sentence=sentences.text(ranked, about),
        note=sentences.note(about),
        to_come=about.progress.to_come(rows),
        threads=study.resources.threads,
    )


def _about(
    folder: StudyFolder,
    study: StudyConfig,
    rows: Sequence[Row],
    found: Sequence[Config],
    configs: Sequence[Config],
    last: Status,
) -> About:
    """Of all configs that were `found`, and of those among them that may be ranked."""
    first = study.objectives[0]
    none_ahead = no_config_is_ahead(found, rows, first.direction)
    role: Role = "confirm" if none_ahead else deciding_role(configs)
    facts = data_facts(folder) if METRICS[first.metric].counted_on else None
    images = images_counted(first.metric, study, rows, facts)
    runs = {config.config_id: config.runs(role) for config in configs}
    fixed = {config.preset: runs[config.config_id] for config in configs if config.preset}
    judged = {  # the search's own runs chose the config: they cannot judge it
        config.config_id: compare(study, runs[config.config_id], fixed.get("base", {}), images)
        for config in configs
        if role == "confirm" and config.preset != "base"
    }
    return About(
        study=study,
        rows=rows,
        progress=read_progress(last),
        role=role,
        names=config_names(rows),
        facts=facts,
        images=images,
        runs=runs,
        fixed=fixed,
        verdicts={config_id: verdict for config_id, verdict in judged.items() if verdict},
        confirmed=sum(not config.preset and bool(config.runs("confirm")) for config in found),
        none_ahead=none_ahead,
    )


def images_counted(metric: str, study: StudyConfig, rows: Sequence[Row], facts: Facts) -> int | None:
    """How many images an error is counted on: as the driver found, the study's file says or errors show."""
    counted_on = METRICS[metric].counted_on
    if counted_on is None:
        return None
    if found := _found(facts, metric):
        return found
    if counted_on == "validation" and isinstance(study.data.validation, int):
        return study.data.validation
    return images_behind(row["objective"] for row in rows if row["state"] == "completed")


def _found(facts: Facts, metric: str) -> int | None:
    """The images of a metric, as the driver counted them."""
    return facts.get(METRICS[metric].counted_on or "") if facts else None


def _rank(configs: Sequence[Config], wanted: Set[str], k: int, about: About) -> tuple[Ranked, ...]:
    """The k best; beside them the presets, and of what was searched at least the best."""
    last = about.runs.keys() - wanted
    ordered = in_order(configs, about.role, about.objective.direction, last)
    searched = next((config.config_id for config in ordered if not config.preset), None)
    return tuple(
        _ranked(rank if config.config_id in wanted else None, config, about)
        for rank, config in enumerate(ordered, start=1)
        if rank <= k or config.preset or config.config_id == searched
    )


def _meeting(folder: StudyFolder, where: str, study: StudyConfig) -> set[str]:
    """The configs of trials that meet a condition."""
    query = f"select distinct config_id from trials where ({where}\n)"
    refuse_test_labels(query, allowed=study.allow_test_selection)
    found = sql.answer(
        query,
        lambda table, columns, where: (
            current_trials(folder, columns, where)
            if table == "trials"
            else folder.table(table, columns, where)
        ),
    )
    return set(found["config_id"].to_pylist())


def refuse_test_labels(query: str, *, allowed: bool = False) -> None:
    """Refuses a condition that would choose configs by how they do on the test set."""
    read = sorted(column for column in sql.columns_read(query) if on_test(column))
    if read and not allowed:
        raise InputError(
            f"--where: asks for {', '.join(read)}; configs are not chosen by test labels; ask for validation "
            "errors, or look at test errors with `cbe query`"
        )


def _ranked(rank: int | None, config: Config, about: About) -> Ranked:
    role, metric, fixed = about.role, about.objective.metric, about.fixed
    rows, values = config.completed(role), about.runs[config.config_id]
    searched = config.runs("search").values()
    tested = config.runs(role, "last_test_error").values()
    to_paper, to_base = (
        paired(values, fixed.get(name, {}), METRICS[metric].unit.largest, about.images)
        if config.preset != name
        else None
        for name in PRESETS
    )
    judged = about.verdicts.get(config.config_id)
    if judged and to_base:
        to_base = replace(to_base, mean=judged.mean, interval=judged.interval, n=judged.n)
    found = Ranked(
        rank=rank,
        config_id=config.config_id,
        name=about.names[config.config_id],
        preset=config.preset,
        trials=tuple(row["trial"] for row in rows),
        n=len(values),
        mean=mean(values.values()),
        interval=mean_interval(metric, list(values.values()), about.images),
        failed=config.failed(role),
        searched=mean(searched) if searched else None,
        test_error=mean(tested) if tested else None,
        versus_base=to_base,
        versus_paper=to_paper,
        verdict=judged.said if judged else None,
        pairs_needed=judged.pairs_needed if judged else None,
        sentence="",
        point=json.loads(rows[0]["params"] or "{}"),
        config=json.loads(rows[0]["config"]),
        seeds=tuple(values),
    )
    return replace(found, sentence=sentences.sentence(found, about))


def _nothing(name: str, rows: Sequence[Row]) -> str:
    if not rows:
        return f"{name}: has no trials yet; wait for them, or start them with `cbe resume {name}`"
    counts = ", ".join(f"{count} {state}" for state, count in Counter(row["state"] for row in rows).items())
    failures = [f"{row['error_class']}: {row['error_text']}" for row in rows if row["state"] == "failed"]
    counts += f", the last one with {failures[-1]}" if failures else ""
    return (
        f"{name}: no trial has been trained to its end ({counts}); look at them with `cbe show {name}`; "
        f"unless it is running, go on with `cbe resume {name}`"
    )
