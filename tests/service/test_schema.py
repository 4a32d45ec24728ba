"""The OpenAPI description is true: whatever is made up by it or against it is answered as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import ensure_resource_availability, ignored_auth, positive_data_acceptance

from cbe.service.head import Head
from cbe.service.jobs import Jobs
from tests.made import finished
from tests.service.conftest import Served, serving, until

BLOCKER = "blocker"


@pytest.fixture(scope="module")
def described(head: Head, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a finished study, whose one place on the cluster a job has that only sleeps.

    What is submitted here waits for ever: nothing that was made up is trained.
    """
    store = tmp_path_factory.mktemp("described") / "store"
    finished(store, "quickstart")
    jobs = Jobs(head.address)
    jobs.submit(BLOCKER, ["sleep", "3600"], {})
    with serving(store, head.address, "--studies", "1") as service:
        yield service
    jobs.stop(BLOCKER)
    until(lambda: not (job := jobs.find(BLOCKER)) or not job.active, 30, "the end of the sleeping job")
    jobs.delete(BLOCKER)


@pytest.fixture(scope="module")
def api(described: Served) -> Any:
    schema = schemathesis.openapi.from_url(f"{described.url}/openapi.json")
    # Events go on for as long as somebody listens.
    return schema.exclude(path_regex="/events$")


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_described(case: schemathesis.Case) -> None:
    case.call_and_validate(
        timeout=60,
        # It is open to this machine; and what fits its description may still name a study that is not there.
        excluded_checks=[ignored_auth, positive_data_acceptance, ensure_resource_availability],
    )
