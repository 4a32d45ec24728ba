"""Studies on a real Ray: one cluster for all tests that only need one, small real trainings, no mocks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cbe.spec import StudyConfig
from cbe.store.folder import Store, StudyFolder
from cbe.study.progress import Progress, Watch
from cbe.study.scaling import cluster as of_study
from tests.conftest import CREDENTIALS

# Ray's workers give way to every other process, and would wait for as long as other tests have the cores.
os.environ.setdefault("RAY_worker_niceness", "0")

BASE: dict[str, Any] = {
    "name": "small",
    "data": {"source": "digits", "labels": 40, "validation": 200},
    "model": {"name": "wrn-10-1", "bn_momentum": 0.05},
    "training": {
        **{"steps": 40, "eval_every": 10, "batch_size": 8, "unlabeled_ratio": 2},
        **{"lr": 0.06, "ema": 0.9},
    },
    "scheduler": {"name": "asha", "grace": 10, "reduction": 2},
    "confirm": {"configs": 0, "runs": 0},
    "budget": {"trials": 4},
    "resources": {"concurrent": 1},  # each trial at once is one more process that must load torch first
}


def study(**sections: Any) -> StudyConfig:
    """A study of seconds; sections that are mappings are merged into the base's."""
    plain = dict(BASE)
    for name, section in sections.items():
        both = isinstance(section, dict) and isinstance(plain.get(name), dict) and name != "search"
        plain[name] = {**plain[name], **section} if both else section
    return StudyConfig.model_validate(plain)


def run(config: StudyConfig, where: Path | str, **options: Any) -> tuple[Progress, StudyFolder]:
    from cbe.study.engine import run as run_study

    store = Store.open(str(where))
    return run_study(config, store, **options), store.study(config.name)


def rows(folder: StudyFolder) -> dict[str, dict[str, Any]]:
    """The trials by name."""
    return {row["trial"]: row for row in sorted(folder.table("trials").to_pylist(), key=lambda r: r["trial"])}


def curve(folder: StudyFolder, trial: str, *figures: str) -> list[tuple[Any, ...]]:
    """A trial's reports in the order of steps."""
    names = ("step", *(figures or ("loss", "validation_error")))
    table = folder.table("metrics", ["trial", *names]).sort_by("step").to_pylist()
    return [tuple(row[name] for name in names) for row in table if row["trial"] == trial]


def actors() -> list[Any]:
    """Those that live on this test's cluster, whatever other Ray there is on the machine."""
    import ray
    from ray.util.state import list_actors

    # Asked for there: the dead of earlier tests would fill the hundred that are told.
    alive = list_actors(
        address=ray.get_runtime_context().gcs_address, filters=[("state", "=", "ALIVE")], limit=1000
    )
    rays_own = "_AutoscalingCoordinatorActor"  # one a cluster, for all of Ray Train
    return [found for found in alive if found.class_name != rays_own]


def groups() -> list[Any]:
    """The resources that are still set aside for somebody."""
    import ray

    known = ray.util.placement_group_table().values()
    return [group for group in known if group["state"] != "REMOVED"]


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs something in a thread until the block ends, and raises what it raised."""
    over, raised = threading.Event(), []

    def all_of_it() -> None:
        try:
            work(over)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=all_of_it)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if raised:
        raise raised[0]


def meanwhile(work: Callable[[Progress, threading.Event], None]) -> Watch:
    """What a test does while a study runs; should that fail, the study stops, and does not train on alone."""

    def watch(progress: Progress) -> AbstractContextManager[None]:
        def all_of_it(over: threading.Event) -> None:
            try:
                work(progress, over)
            except BaseException:
                progress.ledger.halt("the test has failed")
                raise

        return beside(all_of_it)

    return watch


@pytest.fixture
def bucket(s3_port: int, ambient: None) -> str:
    """The address of an empty store on a real S3 API."""
    from pyarrow.fs import FileSystem

    query = f"endpoint_override=127.0.0.1:{s3_port}&scheme=http&region=us-east-1"
    filesystem, path = FileSystem.from_uri(f"s3://cbe-studies?{query}&allow_bucket_creation=true")
    filesystem.create_dir(path)
    return f"s3://cbe-studies/results?{query}"


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Two cores of Ray, with the dashboard that several workers need."""
    import ray

    assert of_study  # its settings come before Ray's import
    # Of a process that was killed Ray says so, however late it hears of it; else it would be out of reach.
    patient = {"timeout_ms_task_wait_for_death_info": 60_000}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():  # trials have the environment in which their cluster began
            environment.setenv(name, value)
        ray.init(
            "local",
            num_cpus=2,
            include_dashboard=True,
            log_to_driver=False,
            logging_level="ERROR",
            _system_config=patient,
        )
    yield
    ray.shutdown()
