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
from cbe.report.chance import at_chance
from cbe.report.configs import Config, Role, Row, deciding_role, grouped, no_config_is_ahead
from cbe.report.front import FrontPoint, front
from cbe.report.intervals import Interval, images_behind, mean_interval
from cbe.report.lookup import data_facts, read_study
from cbe.report.names import config_names
from cbe.report.paired import Difference, Pair, most_between, paired
from cbe.report.wording import UNITS, against, capitalized, figure, margin_of, said_by
from cbe.spec import Objective, StudyConfig
from cbe.store import sql
from cbe.store.folder import StudyFolder
from cbe.verdicts import Said, Verdict, compare

_COLUMNS = (
    *("trial", "role", "preset", "state", "config_id", "params", "config", "seed", "split_seed"),
    *("objective", "values", "last_test_error", "error_class", "error_text"),
)
_COUNTED_ON = {"validation_error": "validation", "test_error": "test"}
_CALLED = {"paper": "the paper's config", "base": "the base"}

Facts = Mapping[str, Any] | None  # of the data, as `data_facts` reads them


@dataclass(frozen=True)
class _About:
    """What the figures of all configs have in common."""

    study: StudyConfig
    role: Role
    names: Mapping[str, str]  # by config_id
    images: int | None  # that the objective, an error, is counted on
    fixed: Mapping[str, Mapping[Pair, float]]  # runs of the paper's config and of the base
    confirmed: int  # configs of the search that were confirmed
    none_ahead: bool  # of the base in the search, which is over: none of them is confirmed

    @property
    def objective(self) -> Objective:
        return self.study.objectives[0]


@dataclass(frozen=True)
class Ranked:
    """A config and what its runs say: those of the confirmation, or of the search before there is one."""

    rank: int | None  # None: it does not meet the condition, and stands beside to be compared with
    config_id: str
    name: str  # for a person: paper, base, or the first trial of the config
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
    verdict: Said | None  # against the base, by the confirmation; None: there is none
    pairs_needed: (
        int | None
    )  # by which a difference of this size would be decided; None: decided, or too many
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
    headline: str  # the answer in a few words
    sentence: str  # the same with its figures
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
    rows = folder.table("trials", _COLUMNS).sort_by("trial").to_pylist()
    found = grouped(rows, study)
    wanted = _meeting(folder, where, study) if where else {config.config_id for config in found}
    configs = [config for config in found if config.preset or config.config_id in wanted]
    if not any(config.config_id in wanted for config in configs):
        meets_not = f"{folder.name}: no trial that was trained to its end meets {where}; ask for less"
        raise InputError(meets_not if where and found else _nothing(folder.name, rows))
    first = study.objectives[0]
    none_ahead = no_config_is_ahead(found, rows, first.direction)
    role: Role = "confirm" if none_ahead else deciding_role(configs)
    facts = data_facts(folder) if first.metric in _COUNTED_ON else None
    about = _About(
        study=study,
        role=role,
        names=config_names(rows),
        images=images_counted(first.metric, study, rows, facts),
        fixed={config.preset: config.runs(role) for config in configs if config.preset},
        confirmed=sum(not config.preset and bool(config.runs("confirm")) for config in found),
        none_ahead=none_ahead,
    )
    ranked = _with_chance(_rank(configs, wanted, k, about), first.metric, facts)
    return Answer(
        study=study.name,
        metric=first.metric,
        direction=first.direction,
        confirmed=role == "confirm",
        of=about.confirmed,
        where=where,
        ranked=ranked,
        front=front(configs, study.objectives, about.names) if len(study.objectives) > 1 else (),
        counts=dict(Counter(row["state"] for row in rows)),
        headline=_headline(ranked[0], about),
        sentence=ranked[0].sentence,
        threads=study.resources.threads,
    )


def images_counted(metric: str, study: StudyConfig, rows: Sequence[Row], facts: Facts) -> int | None:
    """How many images an error is counted on: as the driver found, the study's file says or errors show."""
    if metric not in _COUNTED_ON:
        return None
    if found := _found(facts, metric):
        return found
    if metric == "validation_error" and isinstance(study.data.validation, int):
        return study.data.validation
    return images_behind(row["objective"] for row in rows if row["state"] == "completed")


def _found(facts: Facts, metric: str) -> int | None:
    """The images of a metric, as the driver counted them."""
    return facts.get(_COUNTED_ON[metric]) if facts else None


def _rank(configs: Sequence[Config], wanted: Set[str], k: int, about: _About) -> tuple[Ranked, ...]:
    """The k best; beside them the presets, and of what was searched at least the best."""
    sign = 1 if about.objective.direction == "minimize" else -1
    runs = {config.config_id: found for config in configs if (found := config.runs(about.role))}

    def merit(config: Config) -> tuple[Any, ...]:
        values = runs[config.config_id]
        # The search may have stopped a config on the seeds it is bad on: what ended on most comes first.
        finished = -len(values) if about.role == "search" else 0
        return (config.config_id not in wanted, finished, sign * fmean(values.values()), config.first_trial)

    in_order = sorted((config for config in configs if config.config_id in runs), key=merit)
    searched = next((config.config_id for config in in_order if not config.preset), None)
    return tuple(
        _ranked(rank if config.config_id in wanted else None, config, about)
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


def _ranked(rank: int | None, config: Config, about: _About) -> Ranked:
    role, metric, fixed = about.role, about.objective.metric, about.fixed
    rows, values = config.completed(role), config.runs(role)
    searched = config.runs("search").values()
    tested = config.runs(role, "last_test_error").values()
    to_base, to_paper = (
        paired(values, fixed.get(name, {}), most_between(metric), about.images)
        if config.preset != name
        else None
        for name in ("base", "paper")
    )
    judged = None  # the search's own runs chose the config: they cannot judge it
    if role == "confirm" and config.preset != "base":
        judged = compare(about.study, values, fixed.get("base", {}), about.images)
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
    shared = values.keys() & fixed.get("base", {}).keys()
    alone = [values[pair] - fixed["base"][pair] for pair in shared] if len(shared) == 1 else []
    return replace(found, sentence=_sentence(found, about, alone, judged))


def _with_chance(ranked: tuple[Ranked, ...], metric: str, facts: Facts) -> tuple[Ranked, ...]:
    """Says of errors that guessing would make that they are such."""
    images = _found(facts, metric)
    if not facts or not images:
        return ranked

    def told(each: Ranked) -> Ranked:
        chance = at_chance(each.mean, len(facts["classes"]), images * each.n)
        return replace(each, sentence=f"{each.sentence[:-1]}; {chance}.") if chance else each

    return tuple(map(told, ranked))


def _headline(first: Ranked, about: _About) -> str:
    """The answer in a few words: which config, its figure, and whether it is better than the base."""
    value = UNITS[about.objective.metric].value(first.mean)
    name = capitalized(_CALLED.get(first.preset or "", first.name))
    if first.preset == "base" and about.role == "confirm":
        tried = ": none of the search is ahead of it" if about.none_ahead else ""
        return f"No config ranks above the base, {value}{tried}"
    if about.role == "search":
        return (
            f"{name} leads the search with {value}, not {'yet ' if about.study.confirm.runs else ''}confirmed"
        )
    if first.verdict in ("better", "worse"):
        return f"{name} is {first.verdict} than the base: {value}"
    if first.verdict == "equivalent":
        return f"{name} is equivalent to the base within {margin_of(about.study)}: {value}"
    judged = "not compared with" if first.verdict is None else "undecided against"
    return f"{name} ranks first with {value}, {judged} the base"


def _sentence(ranked: Ranked, about: _About, alone: Sequence[float], judged: Verdict | None) -> str:
    study, objective = about.study, about.objective
    unit = UNITS[objective.metric]
    name = _CALLED.get(ranked.preset or "", ranked.name)
    said = f"{name} has {figure(unit, ranked.mean, ranked.interval, ranked.n)}"
    if ranked.preset == "base":
        said += ": no config ranks above it" if ranked.rank == 1 else ""
    elif ranked.versus_base is not None:
        said += f", {against(unit, ranked.versus_base, 'the base')}"
        said += f": {said_by(judged, study)}" if judged else ""
    elif alone and ranked.preset != "base":
        amount = unit.amount(abs(alone[0]), unit.digits(alone[0]))
        said += f", {amount} {_side(alone[0])} the base on the one run they share"
    elif ranked.interval is not None:
        said += ", and fewer than two runs in common with the base: not compared"
    if ranked.failed:
        said += f"; {ranked.failed} more of its runs failed"
    if study.scheduler.name == "pbt" and not ranked.preset:
        said += "; its values changed during training, and these are the last"
    if objective.metric == "test_error":
        said += "; selected on test labels"
    if about.role == "search":
        said += "; not yet confirmed" if study.confirm.runs else "; not confirmed"
    if about.none_ahead:
        said += "; no config of the search is ahead of the base on the runs they share: none was confirmed"
    said += "."
    return capitalized(said) if ranked.preset else said


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
