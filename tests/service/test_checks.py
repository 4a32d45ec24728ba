"""What the service says of a study file, before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cbe.service.isolated_tasks import check
from tests.made import SECTIONS, Made


def sent(**sections: object) -> str:
    return yaml.safe_dump({"name": "later", **SECTIONS, **sections}, sort_keys=False)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"search_from": ["mad"]}, "holds no study mad"),
        (
            {"search_from": ["made"], "data": {"labels": 80, "validation": 200}},
            "made has other data: data.labels",
        ),
    ],
)
def test_an_earlier_study_that_cannot_guide_is_a_fault_in_its_line(
    tmp_path: Path, given: dict[str, object], problem: str
) -> None:
    Made(tmp_path)
    text = sent(**given)
    found = check(text, str(tmp_path))
    (fault,) = found["faults"]
    line = next(n for n, each in enumerate(text.splitlines(), 1) if each.startswith("search_from"))
    assert problem in fault["problem"] and fault["key"] == "search_from" and fault["line"] in (line, line + 1)
    assert found["values"] is None


def test_earlier_studies_of_the_service_store_are_accepted(tmp_path: Path) -> None:
    Made(tmp_path)
    for name in (["made"], "auto"):
        found = check(sent(search_from=name), str(tmp_path))
        assert found["faults"] == [] and found["values"]["search_from"] == (
            name if name == "auto" else ["made"]
        )
