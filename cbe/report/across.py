"""The best configs of many studies: for each set of images and labels, over all studies that used it.

Studies may pursue different objectives, so that what they share decides: the validation error at the end of
training. A config that several studies ran is one config, and a run that two of them made is one run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from statistics import fmean
from typing import Any

from cbe.errors import InputError
from cbe.report.paired import Difference, Interval, Pair, paired, t_interval
from cbe.store import sql
from cbe.store.folder import Store

Row = Mapping[str, Any]

# What makes validation errors comparable.
_TASK = ("data_source", "data_path", "data_labels", "data_validation", "data_size", "data_channels")

_COLUMNS = ", ".join(_TASK)
_ENDED = "state = 'completed' and isfinite(last_validation_error)"

# A config's id says nothing about the path of its images: the two together tell configs apart.
_QUERY = f"""
with ended as (
    select study, trial, config_id, role, preset, seed, split_seed, {_COLUMNS}, last_validation_error,
        last_test_error
    from trials where {_ENDED} and ({{where}}
)),
runs as (
    select config_id, data_path, role, seed, split_seed, avg(last_validation_error) as error
    from ended group by all
),
means as (select config_id, data_path, role, avg(error) as error from runs group by all),
kinds as (
    select config_id, data_path, role, max(preset) as preset,
        {", ".join(f"any_value({name}) as {name}" for name in _TASK if name != "data_path")}
    from ended group by config_id, data_path, role
),
configs as (
    select kinds.*, hash({", ".join(f"kinds.{name}" for name in _TASK)}) as task, error
    from kinds join means on kinds.config_id = means.config_id and kinds.role = means.role
        and kinds.data_path is not distinct from means.data_path
),
-- As in one study: once something that was searched is confirmed, only new seeds and splits decide.
tasks as (
    select task, if(bool_or(role = 'confirm' and preset is null), 'confirm', 'search') as role
    from configs group by task
),
-- The search may have stopped a config on the seeds it is bad on: such configs come last.
cut as (select distinct config_id from trials where state = 'stopped' and role = 'search'),
chosen as (
    select *, row_number() over (
        partition by task order by role = 'search' and config_id in (from cut), error, config_id) as rank
    from configs join tasks using (task, role)
    qualify rank <= {{k}}
),
bases as (
    select study, role, seed, split_seed, avg(last_validation_error) as base_error
    from trials where preset = 'base' and {_ENDED} group by all
)
select chosen.* exclude (error), ended.study, ended.seed, ended.split_seed,
    ended.last_validation_error as error, ended.last_test_error as test_error, base_error
from ended join chosen on ended.config_id = chosen.config_id and ended.role = chosen.role
    and ended.data_path is not distinct from chosen.data_path
left join bases on (ended.study, ended.role, ended.seed, ended.split_seed)
    = (bases.study, bases.role, bases.seed, bases.split_seed)
order by {", ".join(f"chosen.{name} nulls first" for name in _TASK)}, rank, ended.study, ended.trial
"""


@dataclass(frozen=True)
class Placed:
    """A config among those of all studies on the same images."""

    rank: int
    config_id: str
    preset: str | None  # paper or base, where a study has it as such
    studies: tuple[str, ...]
    n: int
    mean: float  # validation error
    interval: Interval | None  # 95 % of the mean; None for one run
    versus_base: Difference | None  # of the same studies; None: fewer than two shared runs
    test_error: float | None  # never ranked by


@dataclass(frozen=True)
class Task:
    """One set of images and labels."""

    data: dict[str, Any]
    confirmed: bool  # the runs are of confirmations, not of searches
    ranked: tuple[Placed, ...]

    @property
    def title(self) -> str:
        """The images in a few words.

        >>> Task({"source": "parquet", "path": "data/pets", "labels": "40"}, False, ()).title
        'pets, 40 labels'
        """
        path = self.data.get("path")
        images = PurePosixPath(path).name if path else self.data["source"]
        size = f" at {self.data['size']} pixels" if self.data.get("size") else ""
        return f"{images}{size}, {self.data['labels']} labels"

    def to_plain(self) -> dict[str, Any]:
        return asdict(self) | {"title": self.title}


def best_of_all(store: Store, k: int = 1, where: str | None = None) -> tuple[Task, ...]:
    """The k best configs on each set of images; `where` is a condition in SQL that trials must meet."""
    if k < 1:
        raise InputError(f"k = {k}: wanted a number of configs; give 1 or more")
    rows = sql.select(store, _QUERY.format(where=where or "true", k=int(k))).to_pylist()
    if not rows:
        if where:
            raise InputError(
                f"no trial that was trained to its end meets {where}; ask for less with --where, "
                "or look at what there is with `cbe ls`"
            )
        raise InputError(
            f"{store.uri}: no study has a trial that was trained to its end; check --store, or `cbe run FILE`"
        )
    tasks: dict[tuple[Any, ...], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        tasks[tuple(row[name] for name in _TASK)][row["rank"]].append(row)
    return tuple(_task(list(configs.values())) for configs in tasks.values())


def _task(configs: Sequence[Sequence[Row]]) -> Task:
    first = configs[0][0]
    data = {name.removeprefix("data_"): first[name] for name in _TASK}
    return Task(data, first["role"] == "confirm", tuple(map(_placed, configs)))


def _placed(rows: Sequence[Row]) -> Placed:
    first, runs = rows[0], _by_pair(rows, "error")
    tested = _by_pair(rows, "test_error")
    return Placed(
        rank=first["rank"],
        config_id=first["config_id"],
        preset=first["preset"],
        studies=tuple(dict.fromkeys(row["study"] for row in rows)),
        n=len(runs),
        mean=fmean(runs.values()),
        interval=t_interval(list(runs.values())),
        versus_base=paired(runs, _by_pair(rows, "base_error")) if first["preset"] != "base" else None,
        test_error=fmean(tested.values()) if tested else None,
    )


def _by_pair(rows: Sequence[Row], name: str) -> dict[Pair, float]:
    """A figure of every run; of a run that several studies made, the mean."""
    found: dict[Pair, list[float]] = defaultdict(list)
    for row in rows:
        if row[name] is not None:
            found[row["seed"], row["split_seed"]].append(row[name])
    return {pair: fmean(values) for pair, values in found.items()}
