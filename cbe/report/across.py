"""The best configs of many studies: for each set of images and labels, over all studies that used it.

Studies may pursue different objectives, so that what they share decides: the validation error at the end of
training. A config that several studies ran is one config, and a run that two of them made is one run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from cbe.errors import InputError
from cbe.report.best import refuse_test_labels
from cbe.report.intervals import Interval, images_behind, mean_interval
from cbe.report.lookup import data_facts
from cbe.report.paired import Difference, paired
from cbe.report.published import image_name
from cbe.spec.metrics import METRICS
from cbe.spec.terms import Pair, Preset
from cbe.store import sql
from cbe.store.folder import Store
from cbe.store.rows import Row, pair_of

Key = tuple[Any, ...]

# What makes validation errors comparable.
_TASK = ("data_source", "data_path", "data_labels", "data_validation", "data_size", "data_channels")

_COLUMNS = ", ".join(_TASK)
_ENDED = "state = 'completed' and isfinite(last_validation_error)"
# As in one study: what was meant for the confirmation may since have been searched on.
_COUNTS = """(role = 'search' or not ((study, seed) in (select study, seed from trials where role = 'search')
        or (study, label_split) in (select study, label_split from trials where role = 'search')))"""
_WANTED = """(config_id, coalesce(data_path, '')) in
    (select (config_id, coalesce(data_path, '')) from trials where ({}
    ))"""

# A config's id says nothing about the path of its images: the two together tell configs apart.
_QUERY = f"""
with counted as (
    select study, config_id, coalesce(data_path, '') as path, role, preset, seed, label_split, state,
        {_COLUMNS}, last_validation_error, last_test_error
    from trials where config_id is not null and {{counts}} and {{wanted}}
),
ended as (from counted where {_ENDED}),
runs as (
    select config_id, path, role, seed, label_split, avg(last_validation_error) as error
    from ended group by all
),
means as (select config_id, path, role, avg(error) as error, count(*) as n from runs group by all),
-- Runs that were stopped or failed are mostly those a config is bad on.
lost as (
    select config_id, path, role, count(distinct (seed, label_split)) as lost from counted
    where state in ('pruned', 'failed')
        and (config_id, path, role, seed, label_split) not in
            (select (config_id, path, role, seed, label_split) from runs)
    group by all
),
kinds as (
    select config_id, path, role, max(preset) as preset,
        {", ".join(f"any_value({name}) as {name}" for name in _TASK)}
    from ended group by config_id, path, role
),
configs as (
    select kinds.*, hash({_COLUMNS}) as task, error, coalesce(lost, 0) > n as mostly_lost
    from kinds join means using (config_id, path, role) left join lost using (config_id, path, role)
),
-- As in one study: once something that was searched is confirmed, only the confirmation decides.
tasks as (
    select task, if(bool_or(role = 'confirm' and preset is null), 'confirm', 'search') as role
    from configs group by task
),
chosen as (
    select * exclude (error), row_number() over (
        partition by task order by mostly_lost, error, config_id) as rank
    from configs join tasks using (task, role) qualify rank <= {{k}}
),
firsts as (
    select study, config_id, first(trial order by role <> 'search', length(trial), trial) as first_trial
    from trials where config_id in (select config_id from chosen) group by all
),
bases as (
    select study, role, seed, label_split, avg(last_validation_error) as base_error
    from trials where preset = 'base' and {_ENDED} group by all
)
select chosen.*, ended.study, ended.seed, ended.label_split, ended.last_validation_error as error,
    if(isfinite(ended.last_test_error), ended.last_test_error, null) as test_error, base_error, first_trial
from ended join chosen using (config_id, path, role) join firsts using (study, config_id)
    left join bases using (study, role, seed, label_split)
order by {", ".join(f"chosen.{name} nulls first" for name in _TASK)}, rank, ended.study, ended.seed
"""

_UNCONFIRMED = f"""
select {_COLUMNS}, list(distinct study order by study) as studies from trials
where {_ENDED} and study not in (
    select study from trials where role = 'confirm' and preset is null and {_ENDED} and {_COUNTS})
group by all
"""


@dataclass(frozen=True)
class Placed:
    """A config among those of all studies on the same images."""

    rank: int
    config_id: str
    name: str  # for a person: paper, base, or the config's first trial, with its study where several ran it
    preset: Preset | None  # where a study has it as such
    studies: tuple[str, ...]
    n: int
    mean: float  # validation error
    interval: Interval | None  # 95 % of the mean; None for one run
    versus_base: Difference | None  # of the same studies; None: fewer than two shared runs
    test_error: float | None  # never ranked by


@dataclass(frozen=True)
class Task:
    """One set of images and labels."""

    title: str
    data: dict[str, Any]
    confirmed: bool  # the runs are of confirmations, not of searches
    unconfirmed: tuple[str, ...]  # studies that have none yet, and so are left out
    ranked: tuple[Placed, ...]

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def best_of_all(store: Store, k: int = 1, where: str | None = None) -> tuple[Task, ...]:
    """The k best configs on each set of images.

    `where` is a condition in SQL that a trial of a config must meet; all runs of such a config count.
    """
    if k < 1:
        raise InputError(f"k = {k}: wanted a number of configs; give 1 or more")
    wanted = _WANTED.format(where) if where else "true"
    query = _QUERY.format(wanted=wanted, counts=_COUNTS, k=int(k))
    if where:
        refuse_test_labels(f"select 1 from trials where {wanted}")
    rows = sql.select(store, query).to_pylist()
    if not rows and where:
        raise InputError(
            f"no trial that was trained to its end meets {where}; ask for less with --where, "
            "or look at what there is with `cbe ls`"
        )
    if not rows:
        raise InputError(
            f"{store.uri}: no study has a trial that was trained to its end; check --store, or `cbe run FILE`"
        )
    tasks: dict[Key, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        tasks[_key(row)][row["rank"]].append(row)
    unconfirmed: dict[Key, tuple[str, ...]] = {}
    if any(row["role"] == "confirm" for row in rows):
        found = sql.select(store, _UNCONFIRMED).to_pylist()
        unconfirmed = {_key(row): tuple(row["studies"]) for row in found}
    titles = _titles(tasks)
    return tuple(
        _task(store, titles[key], list(configs.values()), unconfirmed.get(key, ()))
        for key, configs in tasks.items()
    )


def _key(row: Row) -> Key:
    return tuple(row[name] for name in _TASK)


def _titles(keys: Iterable[Key]) -> dict[Key, str]:
    """The images in a few words, and in more where those would be the same for two."""
    about = {key: dict(zip(_TASK, key, strict=True)) for key in keys}
    short = {key: _short(each) for key, each in about.items()}
    times = Counter(short.values())
    return {
        key: f"{short[key]} ({_long(each)})" if times[short[key]] > 1 else short[key]
        for key, each in about.items()
    }


def _short(data: Row) -> str:
    """
    >>> _short({"data_source": "parquet", "data_path": "data/pets", "data_labels": "40", "data_size": 32})
    'pets at 32 pixels, 40 labels'
    """
    size = f" at {data['data_size']} pixels" if data["data_size"] else ""
    return f"{image_name(data['data_source'], data['data_path'])}{size}, {data['data_labels']} labels"


def _long(data: Row) -> str:
    more = [f"validation {data['data_validation']:g}"] if data["data_validation"] is not None else []
    more += [f"{data['data_channels']} channels"] if data["data_channels"] else []
    more += [data["data_path"].partition("?")[0]] if data["data_path"] else []
    return ", ".join(more)


def _task(store: Store, title: str, configs: Sequence[Sequence[Row]], unconfirmed: tuple[str, ...]) -> Task:
    first = configs[0][0]
    data = {name.removeprefix("data_"): first[name] for name in _TASK}
    confirmed = first["role"] == "confirm"
    images = _images(store, first["data_validation"], [row for rows in configs for row in rows])
    ranked = tuple(_placed(rows, images) for rows in configs)
    return Task(title, data, confirmed, unconfirmed if confirmed else (), ranked)


def _images(store: Store, validation: float | None, rows: Sequence[Row]) -> int:
    """How many images an error is counted on: as the files say, a driver found or the errors show."""
    if validation is not None and validation >= 1:
        return int(validation)
    for study in dict.fromkeys(row["study"] for row in rows):
        facts = data_facts(store.study(study)) or {}
        if found := facts.get("validation"):
            return int(found)
    return images_behind(row["error"] for row in rows)


def _placed(rows: Sequence[Row], images: int) -> Placed:
    first, runs = rows[0], _by_pair(rows, "error")
    tested = _by_pair(rows, "test_error")
    # Only where a study made both: the same seed in another may stand for something else.
    both = [row for row in rows if row["base_error"] is not None]
    most = METRICS["validation_error"].unit.largest
    against = paired(_by_pair(both, "error"), _by_pair(both, "base_error"), most, images)
    studies = tuple(dict.fromkeys(row["study"] for row in rows))
    trial = first["first_trial"] if len(studies) == 1 else f"{first['study']}/{first['first_trial']}"
    return Placed(
        rank=first["rank"],
        config_id=first["config_id"],
        name=first["preset"] or trial,
        preset=first["preset"],
        studies=studies,
        n=len(runs),
        mean=fmean(runs.values()),
        interval=mean_interval("validation_error", list(runs.values()), images),
        versus_base=against if first["preset"] != "base" else None,
        test_error=fmean(tested.values()) if tested else None,
    )


def _by_pair(rows: Sequence[Row], name: str) -> dict[Pair, float]:
    """A figure of every run; of a run that several studies made, the mean."""
    found: dict[Pair, list[float]] = defaultdict(list)
    for row in rows:
        if row[name] is not None:
            found[pair_of(row)].append(row[name])
    return {pair: fmean(values) for pair, values in found.items()}
