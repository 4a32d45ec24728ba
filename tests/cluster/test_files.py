"""Cluster files for `ray up`: ours pass, and each way of breaking one is refused by the name of its rule."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cbe.cluster.check import check
from cbe.cluster.cost import cost
from cbe.cluster.fallback import LESS, WAIT_S, step
from cbe.cluster.files import read
from cbe.cluster.groups import GPU_CLASS, ray_groups
from cbe.cluster.limits import VARIABLE, read_limits
from cbe.cluster.rules import PYTHON, unfilled
from cbe.errors import ConfigError

ROOT = Path(__file__).parent.parent.parent
CLOUDS = ("aws", "gcp", "azure")

Change = Callable[[dict[str, Any]], object]


def plain(cloud: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / f"cluster/{cloud}.yaml").read_text("utf-8"))
    return found


def refused(folder: Path, change: Change, cloud: str = "aws") -> list[str]:
    """What is told about one of our files after a change; nothing if it passes."""
    changed = plain(cloud)
    change(changed)
    file = folder / "changed.yaml"
    file.write_text(yaml.safe_dump(changed, sort_keys=False))
    try:
        check([file])
    except ConfigError as error:
        return [str(fault) for fault in error.faults]
    return []


@pytest.mark.parametrize("cloud", [*CLOUDS, "local"])
def test_our_files_pass_without_a_cloud(cloud: str) -> None:
    (found,) = check([ROOT / f"cluster/{cloud}.yaml"])
    assert found.file.kind == "ray"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_file_begins_with_its_costs_as_the_price_list_has_them(cloud: str) -> None:
    path = ROOT / f"cluster/{cloud}.yaml"
    bill = cost(path)
    head = " ".join(line.removeprefix("#").strip() for line in path.read_text("utf-8").splitlines()[:30])
    assert f"{bill.idle_usd_h:.2f} USD an hour idle" in head
    assert f"{bill.full_spot_usd_h:.2f} USD an hour if all are spot" in head
    assert f"{bill.full_usd_h:.2f} USD an hour at most" in head
    assert f"is {bill.max_workers} workers" in head


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_file_begins_with_commands_that_exist(cloud: str) -> None:
    text = (ROOT / f"cluster/{cloud}.yaml").read_text("utf-8")
    commands = re.findall(r"^#   (cbe \w+(?: \w+)?)", text, re.MULTILINE)
    assert {"cbe cluster check", "cbe cluster up", "cbe cluster status", "cbe cluster down"} <= set(commands)
    assert "cbe submit studies" in " ".join(commands)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_commands_of_a_file_are_shell(cloud: str) -> None:
    keys = [f"{which}setup_commands" for which in ("", "head_", "worker_")]
    keys += [f"{which}_start_ray_commands" for which in ("head", "worker")]
    commands = [command for key in keys for command in plain(cloud)[key]]
    for command in commands:
        told = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True)
        assert (told.returncode, told.stderr) == (0, ""), command
    (version,) = {command for command in commands if command.startswith("cbe --version")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert subprocess.run(["bash", "-c", version], env={"PATH": path}).returncode == 0


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_a_file_copies_is_in_the_checkout_and_is_all_that_a_build_needs(cloud: str) -> None:
    mounts = {remote: here for remote, here in plain(cloud)["file_mounts"].items() if "cbe" in remote}
    assert all((ROOT / here).exists() for here in mounts.values())
    assert {remote.removeprefix("~/cbe/") for remote in mounts} == set(mounts.values())
    built = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert built["requires-python"] == ">={}.{}".format(*PYTHON)
    assert {built["readme"], *built["license-files"], "pyproject.toml", "cbe"} <= set(mounts.values())


def test_the_guide_has_the_costs_as_the_price_list_has_them() -> None:
    guide = (ROOT / "cluster/README.md").read_text("utf-8")
    for cloud in CLOUDS:
        bill = cost(ROOT / f"cluster/{cloud}.yaml")
        (row,) = [line for line in guide.splitlines() if line.startswith(f"| `{cloud}.yaml`")]
        full = f"{bill.full_spot_usd_h:.2f} to {bill.full_usd_h:.2f} USD/h"
        assert row.endswith(f"| {bill.idle_usd_h:.2f} USD/h | {full} |")


def take(*place: str) -> Change:
    def change(config: dict[str, Any]) -> None:
        for part in place[:-1]:
            config = config[part]
        del config[place[-1]]

    return change


def put(value: Any, *place: str | int) -> Change:
    def change(config: Any) -> None:
        for part in place[:-1]:
            config = config[part]
        config[place[-1]] = value

    return change


def replace(old: str, new: str, key: str) -> Change:
    def change(config: dict[str, Any]) -> None:
        assert any(old in command for command in config[key])
        config[key] = [command.replace(old, new) for command in config[key]]

    return change


BROKEN: dict[str, tuple[Change, str, str]] = {
    "no idle timeout": (take("idle_timeout_minutes"), "idle-timeout", "idle_timeout_minutes"),
    "an idle timeout of a day": (put(1440, "idle_timeout_minutes"), "idle-timeout", "1440"),
    "a group that stays": (
        put(7200, "available_node_types", "small-spot", "idle_timeout_s"),
        "idle-timeout",
        "small-spot.idle_timeout_s",
    ),
    "no fallback": (take("available_node_types", "small-on-demand"), "fallback", "small-spot"),
    "a fallback that offers something else": (
        put(2, "available_node_types", "large-on-demand", "resources", "CPU"),
        "fallback",
        "large-spot",
    ),
    "a fallback of no nodes": (
        put(0, "available_node_types", "small-on-demand", "max_workers"),
        "fallback",
        "small-spot",
    ),
    "on demand first": (
        put(5, "available_node_types", "small-on-demand", "priority"),
        "fallback",
        "give it priority 6",
    ),
    "auth turned off again": (
        replace("ray start", "export RAY_AUTH_MODE=disabled; ray start", "head_start_ray_commands"),
        "auth",
        "RAY_AUTH_MODE=disabled",
    ),
    "auth off on the head": (
        replace("RAY_AUTH_MODE=token", "RAY_AUTH_MODE=disabled", "head_start_ray_commands"),
        "auth",
        "RAY_AUTH_MODE=disabled",
    ),
    "auth forgotten on workers": (
        replace("RAY_AUTH_MODE=token;", "X=1;", "worker_start_ray_commands"),
        "auth",
        "worker_start_ray_commands",
    ),
    "no token": (take("file_mounts", "~/.ray/auth_token"), "auth", "file_mounts"),
    "Ray's own way to start": (take("head_start_ray_commands"), "auth", "head_start_ray_commands"),
    "another Ray": (
        replace("==2.60.0", "==2.9.0", "worker_setup_commands"),
        "versions",
        "2.9.0",
    ),
    "another version of this": (
        replace("--line-regexp 0.1.0", "--line-regexp 0.0.9", "head_setup_commands"),
        "versions",
        "0.0.9",
    ),
    "an old Python": (replace("--python 3.11", "--python 3.10", "setup_commands"), "python", "Python 3.10"),
    "whatever Ray there is": (
        replace("'ray[default,tune,train]==2.60.0'", "ray", "worker_setup_commands"),
        "versions",
        "worker_setup_commands",
    ),
    "a store on the head": (
        replace("s3://your-bucket/studies", "results", "head_start_ray_commands"),
        "store",
        "--store results",
    ),
    "no service": (put(["ray start --head"], "head_start_ray_commands"), "store", "not started"),
    "an unknown key": (put(5, "idle_timeout"), "ray", "did you mean idle_timeout_minutes?"),
    "an unknown key of a group": (
        put(5, "available_node_types", "small-spot", "max_worker"),
        "ray",
        "did you mean max_workers?",
    ),
    "a wrong type": (put("many", "max_workers"), "ray", "'many'"),
    "a group without a machine": (take("available_node_types", "head", "node_config"), "ray", "node_config"),
    "a head that is not there": (put("haed", "head_node_type"), "ray", "head_node_type"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused_by_the_name_of_the_rule(what: str, tmp_path: Path) -> None:
    change, rule, told = BROKEN[what]
    found = [fault for fault in refused(tmp_path, change) if f"[{rule}]" in fault]
    assert any(told in fault for fault in found), refused(tmp_path, change)
    assert all(fault.startswith(f"{tmp_path}/changed.yaml") for fault in found)


def test_what_is_refused_is_refused_for_that_alone(tmp_path: Path) -> None:
    (fault,) = refused(tmp_path, put(1440, "idle_timeout_minutes"))
    told = re.search(r"changed.yaml:(\d+) idle_timeout_minutes: 1440: wanted 1 to 30 minutes ", fault)
    assert told
    line = (tmp_path / "changed.yaml").read_text().splitlines()[int(told[1]) - 1]
    assert line == "idle_timeout_minutes: 1440"


def test_what_ray_tells_is_not_told_twice(tmp_path: Path) -> None:
    (fault,) = refused(tmp_path, put("five", "idle_timeout_minutes"))
    assert "[ray]" in fault


@pytest.mark.parametrize("cloud", CLOUDS)
def test_our_files_start_from_no_workers_run_no_trial_on_the_head_and_keep_the_dashboard_to_it(
    cloud: str,
) -> None:
    groups = {group.name: group for group in ray_groups(read(ROOT / f"cluster/{cloud}.yaml")[0].document)}
    head = groups.pop("head")
    assert (head.head, head.resources, head.max) == (True, {"CPU": 0}, 0)
    assert {group.min for group in groups.values()} == {0}
    commands = " ".join(plain(cloud)["head_start_ray_commands"])
    assert re.findall(r"--(?:dashboard-)?host[= ](\S+)", commands) == ["127.0.0.1"]


def test_on_aws_ray_opens_port_22_alone_for_our_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ambient: None, s3_port: int
) -> None:
    """Ray's own code makes the security group, on a pretend EC2."""
    import boto3
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.util import prepare_config

    given = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}", "HOME": str(tmp_path)}  # a key goes to ~/.ssh
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    made = bootstrap_aws(prepare_config(plain("aws")))
    ec2 = boto3.client("ec2", region_name="us-east-2")
    (group,) = ec2.describe_security_groups(GroupNames=["cbe"])["SecurityGroups"]
    outside = [rule for rule in group["IpPermissions"] if rule["IpRanges"] or rule["Ipv6Ranges"]]
    assert [(rule["FromPort"], rule["ToPort"]) for rule in outside] == [(22, 22)]
    for node in made["available_node_types"].values():
        assert node["node_config"]["SecurityGroupIds"] == [group["GroupId"]]


def test_all_faults_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    def several(config: dict[str, Any]) -> None:
        take("idle_timeout_minutes")(config)
        take("file_mounts", "~/.ray/auth_token")(config)
        put("many", "max_workers")(config)

    named = {name for fault in refused(tmp_path, several) for name in re.findall(r"\[([\w-]+)\]", fault)}
    assert named >= {"idle-timeout", "auth", "ray"}
    with pytest.raises(ConfigError) as told:
        check([tmp_path / "changed.yaml", tmp_path / "none.yaml"])
    assert any("none.yaml" in str(fault) for fault in told.value.faults)


@pytest.mark.parametrize(
    "broken", ["cluster_name: [", "- a", "", "provider: 3\n", "a: &x 1\nb: *x\n", "provider: {type: mars}\n"]
)
def test_what_is_no_cluster_file_is_told_so(broken: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(broken)
    with pytest.raises(ConfigError) as told:
        check([file])
    assert all("broken.yaml" in fault.where for fault in told.value.faults)


def test_manifests_of_one_folder_belong_together_and_keep_their_lines(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "# two\n---\napiVersion: v1\nkind: A\n---\nkind: RayCluster\nspec:\n  x: 1\n"
    )
    (tmp_path / "b.yaml").write_text("kind: C\n")
    (tmp_path / "aws.yaml").write_text("cluster_name: x\n")
    ray, manifests = read(tmp_path)
    assert (ray.kind, manifests.kind, manifests.path) == ("ray", "kubernetes", tmp_path)
    assert [each.plain["kind"] for each in manifests.documents] == ["A", "RayCluster", "C"]
    assert manifests.documents[1].where("spec", "x") == f"{tmp_path}/a.yaml:8 spec.x"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_file_still_has_names_to_be_filled_in(cloud: str) -> None:
    (file,) = read(ROOT / f"cluster/{cloud}.yaml")
    assert {fault.problem.split()[0] for fault in unfilled(file.document)} >= {
        {"aws": "your-bucket", "gcp": "your-project", "azure": "your-account"}[cloud]
    }


def launches(config: dict[str, Any], bundles: list[dict[str, float]]) -> dict[str, int]:
    """What Ray's own scheduler (autoscaler v2) would start on an empty cluster."""
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    class Events:
        def log_cluster_scheduling_update(self, **_: Any) -> None: ...

    settings = AutoscalingConfig(copy.deepcopy(config), skip_content_hash=True)
    reply = ResourceDemandScheduler(Events()).schedule(
        SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=settings.get_node_type_configs(),
            max_num_nodes=settings.get_max_num_nodes(),
            idle_timeout_s=settings.get_idle_timeout_s(),
            resource_requests=ResourceRequestUtil.group_by_count(
                [ResourceRequestUtil.make(bundle) for bundle in bundles]
            ),
        )
    )
    found = {each.instance_type: each.count for each in reply.to_launch}
    return {name: count for name, count in found.items() if name != "head"}


# What Ray finds out about the machines of AWS and adds, and nobody asks for.
DETECTED = {"memory": 12_025_908_428, "accelerator_type:L4": 1}


@pytest.mark.parametrize("more", [{}, DETECTED])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_ray_starts_spot_first_and_the_smaller_machine(cloud: str, more: dict[str, int]) -> None:
    config = plain(cloud)
    for name, group in config["available_node_types"].items():
        group["resources"].update(more if name != "head" else {})
    (file,) = read(ROOT / f"cluster/{cloud}.yaml")
    offered = {name for group in ray_groups(file.document) for name in group.resources}
    small, large = sorted(int(size[1]) for name in offered if (size := GPU_CLASS.fullmatch(name)))
    fits_both = {"CPU": 1, "GPU": 1, f"gpu_{small}gb": 1}
    fits_large = {"CPU": 1, "GPU": 1, f"gpu_{large}gb": 1}
    assert launches(config, [fits_both]) == {"small-spot": 1}
    assert launches(config, [fits_large]) == {"large-spot": 1}
    # More than there may be of spot: the rest on demand.
    assert launches(config, [fits_large] * 6) == {"large-spot": 4, "large-on-demand": 2}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_studies_on_the_head_are_told_what_the_cluster_may_grow_to(cloud: str, tmp_path: Path) -> None:
    """By the file that Ray puts there, of which the start of Ray tells them, also after a refusal."""
    (start,) = [each for each in plain(cloud)["head_start_ray_commands"] if "ray start" in each]
    assert re.search(rf"\b{VARIABLE}=\$HOME/ray_bootstrap_config.yaml;.*ray start", start)
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in start
    file = tmp_path / "ray_bootstrap_config.yaml"
    file.write_text(json.dumps(plain(cloud)))  # as Ray writes it
    before = read_limits(file)
    step(file, [("small-spot", 1000.0)], now=1030.0)
    after = read_limits(file)
    assert (after.most, after.idle_s) == (before.most, before.idle_s) == (12, 300)
    assert [group.name for group in after.groups] == [group.name for group in before.groups]


def test_a_refused_spot_group_stands_behind_the_one_on_demand_for_a_while(tmp_path: Path) -> None:
    file = tmp_path / "bootstrap.yaml"
    file.write_text((ROOT / "cluster/aws.yaml").read_text("utf-8"))
    file.chmod(0o600)
    wanted = [{"CPU": 1, "GPU": 1, "gpu_24gb": 1}]

    assert step(file, [("small-spot", 1000.0)], now=1030.0) == {"small-spot": 1 - LESS}
    assert launches(yaml.safe_load(file.read_text()), wanted) == {"small-on-demand": 1}
    assert file.stat().st_mode & 0o777 == 0o600

    refusals = [("small-spot", 1000.0), ("small-on-demand", 1010.0)]
    assert step(file, refusals, now=1040.0) == {}
    assert step(file, refusals, now=1000.0 + WAIT_S) == {"small-spot": 1}
    assert launches(yaml.safe_load(file.read_text()), wanted) == {"small-spot": 1}


def test_the_price_list_and_our_files_come_with_what_the_commands_need() -> None:
    """Asking for help, or a price, does not wait for Ray or torch."""
    code = (
        "import sys; from pathlib import Path; import cbe.cli; from cbe.cluster.cost import cost;"
        "cost(Path(sys.argv[1])); sys.exit(bool({'ray', 'torch'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", code, ROOT / "cluster/aws.yaml"]
    assert subprocess.run(command).returncode == 0
