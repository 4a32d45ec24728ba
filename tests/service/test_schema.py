"""The OpenAPI description is true: whatever is made up by it or against it is answered as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import ignored_auth, negative_data_rejection, positive_data_acceptance

from cbe.service.app import create_app
from cbe.service.head import Head
from cbe.service.jobs import Jobs
from cbe.service.service import Service
from cbe.service.tokens import Role, Tokens
from cbe.store.folder import Store
from tests.made import finished
from tests.service.conftest import NOBODY, Served, serving, until

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
    token, _ = Tokens(Store.open(str(store))).create("tester", Role.admin)
    with serving(store, head.address, "--studies", "1", token=token) as service:
        yield service
    jobs.stop(BLOCKER)
    until(lambda: not (job := jobs.find(BLOCKER)) or not job.active, 30, "the end of the sleeping job")
    jobs.delete(BLOCKER)


def description() -> dict[str, Any]:
    """As a service tells it at /openapi.json."""
    return create_app(Service(Store.open("results"), Jobs(NOBODY))).openapi()


# The token is given by the test, and to parameters that nobody knows nobody listens.
generated = {"with-security-parameters": False, "allow-extra-parameters": False}
config = schemathesis.Config.from_dict({"generation": generated})
schema = schemathesis.openapi.from_dict(description(), config=config)


# Events go on for as long as somebody listens, and a plan is a training of seconds: see below.
@schema.exclude(path_regex="/(events|plan)$").parametrize()
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_described(case: schemathesis.Case, described: Served) -> None:
    # Wrong tokens are soon answered by 429, and tests/service/test_access.py sees to them; and what fits its
    # description may still name a study that is not there.
    left_out = [ignored_auth, positive_data_acceptance]
    if case.path == "/api/check":  # which tells the faults of a file instead of refusing it
        left_out.append(negative_data_rejection)
    given = {"Authorization": f"Bearer {described.token}"}
    case.call_and_validate(described.url, headers=given, timeout=60, excluded_checks=left_out)


def test_a_plan_is_as_described(described: Served) -> None:
    asked = schema.raw_schema["paths"]["/api/plan"]["post"]["requestBody"]["content"]["application/json"]
    tiny = {"resources": {"cpus": 5e-324}}  # of which more fit than there are numbers
    found = described.http.post("/api/plan", json={**asked["example"], **tiny})
    assert found.status_code == 200, found.text
    schema["/api/plan"]["POST"].validate_response(found)
    assert {"wall_s", "trial_hours", "note"} <= found.json().keys()


def test_the_description_is_the_one_that_is_served(described: Served) -> None:
    assert described.http.get("/openapi.json").json() == json.loads(json.dumps(description()))
