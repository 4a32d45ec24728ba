"""The answers of the service, as its OpenAPI description shows them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cbe.service.auth.tokens import Role
from cbe.service.service import PRIORITIES
from cbe.study.overview import Spent, StageProgress

MOST_SETTINGS = 20_000  # characters of all settings together

Key = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$", max_length=100)]
Setting = str | int | float | bool | None | list[Any] | dict[str, Any]


def _short(settings: dict[str, Any]) -> dict[str, Any]:
    try:
        length = len(json.dumps(settings))
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if length > MOST_SETTINGS:
        raise ValueError(f"is longer than {MOST_SETTINGS:,} characters")
    return settings


Settings = Annotated[
    dict[Key, Setting], Field(max_length=100, description="By key, as budget.trials"), AfterValidator(_short)
]


class Problem(BaseModel):
    message: str
    faults: list[FaultShape] = []


class FaultShape(BaseModel):
    where: str
    line: int | None
    key: str
    problem: str
    hint: str


class Me(BaseModel):
    name: str
    role: Role
    open: bool  # no token is needed


class StudyStatusShape(BaseModel):
    study: str
    question: str
    state: str
    reason: str | None
    stage: str | None
    search: StageProgress | None
    confirm: StageProgress | None
    counts: dict[str, int]
    metric: str | None
    best: float | None
    best_trial: str | None
    best_role: str | None
    updated: datetime | None
    elapsed_s: float | None
    eta_s: tuple[float, float] | None
    steps_per_s: float | None
    problem: str | None
    outage: str | None
    spent: Spent
    cut_short: str | None
    unspent: dict[str, float] | None
    under_way: bool
    owner: str | None
    priority: int
    submitted: datetime | None
    queue_position: int | None


class Studies(BaseModel):
    total: int
    studies: list[StudyStatusShape]


class Record(BaseModel):
    """A row of a table; its columns are those of the store."""

    model_config = ConfigDict(extra="allow")


class TrialRow(Record):
    trial: str
    role: str | None
    preset: str | None
    state: str | None
    config_id: str | None
    params: dict[str, Any] | None
    objective: float | None


class StudyShape(StudyStatusShape):
    optuna: str
    trials: list[TrialRow]


class Trials(BaseModel):
    total: int
    trials: list[TrialRow]


class TrialShape(TrialRow):
    config: dict[str, Any] | None
    yaml: str | None
    rerun: str | None
    curve: list[Record]
    events: list[Record]
    log: str


class Metrics(BaseModel):
    total: int
    metrics: list[Record]


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid")
    query: Annotated[str, Field(min_length=1, max_length=100_000)]
    study: Annotated[str, Field(max_length=64)] | None = None


class QueryResult(BaseModel):
    columns: list[str]
    rows: list[list[Any]]
    truncated: bool


class Change(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    settings: Annotated[Settings, Field(alias="set")] = {}
    priority: Annotated[int, Field(strict=True, ge=PRIORITIES[0], le=PRIORITIES[-1])] | None = None


class Resume(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    settings: Annotated[Settings, Field(alias="set")] = {}
    retry: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=10_000)] = []


class About(BaseModel):
    name: str
    parameters: int
    trials: int
    confirm: int
    sampler: str
    scheduler: str


class Checked(BaseModel):
    faults: list[FaultShape]
    about: About | None


class PlanShape(Record):
    study: str
    trials: int
    confirm_runs: int
    concurrent: int
    note: str | None


class Tasks(BaseModel):
    tasks: list[Record]


class Page(BaseModel):
    version: str
    html: dict[str, str]
    panels: list[dict[str, Any]]


class Node(BaseModel):
    id: str
    ip: str
    head: bool
    state: str
    cpu: float
    gpu: float
    memory_gib: float


class Cluster(BaseModel):
    nodes: list[Node]
    used: dict[str, float]
    total: dict[str, float]


class Events(BaseModel):
    events: list[Record]


class Health(BaseModel):
    service: str
    status: str
    version: str


class Ready(BaseModel):
    store: str
    ray: str


Problem.model_rebuild()
