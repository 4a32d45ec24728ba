"""What clusters cost, by the dated list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cbe.cluster.cost import cost
from cbe.cluster.prices import HOURS_A_MONTH, price_list
from cbe.errors import InputError

ROOT = Path(__file__).parent.parent.parent


def priced(
    folder: Path, groups: dict[str, dict[str, Any]], max_workers: int, region: str = "us-east-2"
) -> Any:
    """The bill of a file with a head of m6i.large and given groups of AWS machines."""
    head = {"resources": {"CPU": 0}, "max_workers": 0, "node_config": {"InstanceType": "m6i.large"}}
    config = {
        "cluster_name": "x",
        "max_workers": max_workers,
        "provider": {"type": "aws", "region": region},
        "head_node_type": "head",
        "available_node_types": {"head": head, **groups},
    }
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(config))
    return cost(file)


def group(instance: str, most: int, *, spot: bool = False, least: int = 0, disk: int = 0) -> dict[str, Any]:
    config: dict[str, Any] = {"InstanceType": instance}
    if spot:
        config["InstanceMarketOptions"] = {"MarketType": "spot"}
    if disk:
        config["BlockDeviceMappings"] = [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": disk}}]
    return {"min_workers": least, "max_workers": most, "resources": {"GPU": 1}, "node_config": config}


SMALL, LARGE, HEAD = (price_list().machines[name] for name in ("g6.xlarge", "g6e.xlarge", "m6i.large"))
ADDRESS = HEAD.address
L4 = "g2-standard-4"


def test_idle_is_the_head_and_the_workers_that_stay(tmp_path: Path) -> None:
    bill = priced(tmp_path, {"a": group("g6.xlarge", 4, least=1)}, 4)
    assert bill.idle_usd_h == pytest.approx(HEAD.on_demand + SMALL.on_demand + 2 * ADDRESS)


def test_a_disk_costs_by_the_month(tmp_path: Path) -> None:
    bare, with_disk = (
        priced(tmp_path, {"a": group("g6.xlarge", 1, disk=disk)}, 1).full_usd_h for disk in (0, 730)
    )
    assert with_disk - bare == pytest.approx(0.08 * 730 / HOURS_A_MONTH)


def test_full_size_is_bounded_by_all_workers_and_takes_the_dearest(tmp_path: Path) -> None:
    groups = {
        "small-spot": group("g6.xlarge", 3, spot=True),
        "small": group("g6.xlarge", 3),
        "large-spot": group("g6e.xlarge", 2, spot=True),
        "large": group("g6e.xlarge", 2),
    }
    bill = priced(tmp_path, groups, 5)
    head = HEAD.on_demand + ADDRESS
    assert bill.full_usd_h == pytest.approx(head + 5 * ADDRESS + 2 * LARGE.on_demand + 3 * SMALL.on_demand)
    assert SMALL.spot and LARGE.spot
    assert bill.full_spot_usd_h == pytest.approx(head + 5 * ADDRESS + 2 * LARGE.spot + 3 * SMALL.spot)


def test_spot_in_any_cloud_s_words_is_priced_as_spot(tmp_path: Path) -> None:
    for cloud, instance, place in (
        ("gcp", "g2-standard-4", {"machineType": "g2-standard-4", "scheduling": [{"preemptible": True}]}),
        (
            "gcp",
            "g2-standard-4",
            {"machineType": "g2-standard-4", "scheduling": {"provisioningModel": "SPOT"}},
        ),
        (
            "azure",
            "Standard_NC4as_T4_v3",
            {"azure_arm_parameters": {"vmSize": "Standard_NC4as_T4_v3", "priority": "Spot"}},
        ),
    ):
        bill = priced(tmp_path, {"a": {"max_workers": 1, "resources": {"GPU": 1}, "node_config": place}}, 1)
        price = price_list().machines[instance]
        assert price.cloud == cloud and bill.workers[0].group.spot
        assert bill.workers[0].node_usd_h == pytest.approx(price.spot + price.address)


def test_a_machine_without_a_price_is_told_with_the_nearest_that_has_one(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"cluster.yaml a: there is no price of g6.xlrge; did you mean g6.xlarge"
    ):
        priced(tmp_path, {"a": group("g6.xlrge", 1)}, 1)


def test_the_price_list_has_exactly_the_machines_of_our_files() -> None:
    used = {
        each.group.instance
        for name in ("aws.yaml", "gcp.yaml", "azure.yaml")
        for bill in [cost(ROOT / "cluster" / name)]
        for each in (bill.head, *bill.workers)
        if each
    }
    assert used == set(price_list().machines)


def test_the_bill_is_plain_for_a_program(tmp_path: Path) -> None:
    bill = cost(ROOT / "cluster/aws.yaml").to_plain(hours=24)
    assert json.loads(json.dumps(bill)) == bill
    assert bill["idle_usd"] == pytest.approx(24 * cost(ROOT / "cluster/aws.yaml").idle_usd_h, abs=1e-3)
    assert bill["prices_as_of"] == price_list().as_of.isoformat()


def test_prices_of_another_region_are_told_as_such(tmp_path: Path) -> None:
    groups = {"a": group("g6.xlarge", 1)}
    assert not priced(tmp_path, groups, 1).elsewhere
    there = priced(tmp_path, groups, 1, region="eu-west-1")
    assert there.elsewhere
    assert there.to_plain()["file_region"] == "eu-west-1"


def test_a_file_without_machines_has_no_price(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    for text, problem in (
        ("cluster_name: x\nprovider: {type: aws}\n", "describes no machines"),
        ("apiVersion: v1\nkind: Namespace\n", "describes no Ray cluster, but Namespace"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=problem):
            cost(file)


def test_this_machine_costs_nothing() -> None:
    bill = cost(ROOT / "cluster/local.yaml")
    assert (bill.idle_usd_h, bill.full_usd_h, bill.region) == (0, 0, "")
