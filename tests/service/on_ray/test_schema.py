"""The OpenAPI description is true: whatever is made up by it or against it is answered as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import ignored_auth, positive_data_acceptance

from cbe.processes import BackgroundProcess
from cbe.service.auth.tokens import Role, Tokens
from cbe.service.queue.ray_jobs import Jobs
from cbe.service.service import Service
from cbe.service.web.app import create_app
from cbe.store.folder import Store
from tests.made import finished
from tests.service.conftest import NOBODY, Served, place_taken, serving


@pytest.fixture(scope="module")
def described(head: BackgroundProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a finished study, whose one place on the cluster a job has that only sleeps.

    What is submitted here waits for ever: nothing that was made up is trained.
    """
    store = tmp_path_factory.mktemp("described") / "store"
    finished(store, "quickstart")
    token, _ = Tokens(Store.open(str(store))).create("tester", Role.admin)
    with (
        place_taken(head.address),
        serving(store, head.address, "--studies", "1", token=token) as service,
    ):
        yield service


def description() -> dict[str, Any]:
    """As a service tells it at /openapi.json."""
    return create_app(Service(Store.open("results"), Jobs(NOBODY))).openapi()


# The token is given by the test, and to parameters that nobody knows nobody listens.
generated = {"with-security-parameters": False, "allow-extra-parameters": False}
config = schemathesis.Config.from_dict({"generation": generated})
schema = schemathesis.openapi.from_dict(description(), config=config)


# Events go on for as long as somebody listens. Files that are checked and planned are told of below: they are
# what is submitted, and a plan is a training of seconds.
@schema.exclude(path_regex="/(events|check|plan)$").parametrize()
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_described(case: schemathesis.Case, described: Served) -> None:
    given = {"Authorization": f"Bearer {described.token}"}
    # Wrong tokens are soon answered by 429, and test_access.py sees to them. What fits its description
    # may still name a study that is not there.
    left_out = [ignored_auth, positive_data_acceptance]
    case.call_and_validate(described.url, headers=given, timeout=60, excluded_checks=left_out)


def test_checks_and_plans_of_files_are_as_described(described: Served) -> None:
    content = schema.raw_schema["paths"]["/api/plan"]["post"]["requestBody"]["content"]
    file = content["application/json"]["example"]
    tiny = {**file, "resources": {"cpus": 5e-324}}  # of which more fit than there are numbers
    for path, body in (("check", file), ("check", {**file, "budget": {"trials": 0}}), ("plan", tiny)):
        found = described.http.post(f"/api/{path}", json=body)
        assert found.status_code == 200, found.text
        schema[f"/api/{path}"]["POST"].validate_response(found)
    assert {"wall_s", "trial_hours", "note"} <= found.json().keys()


def test_the_description_is_the_one_that_is_served(described: Served) -> None:
    assert described.http.get("/openapi.json").json() == json.loads(json.dumps(description()))
