"""Manifests for Kubernetes: ours keep the rules, and a broken one is refused by name.

`CBE_KUBERAY_CRDS` may name a folder with KubeRay's own definitions; ours are then held against them, too.
"""

from __future__ import annotations

import copy
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import cbe
from cbe.cluster.check import faults, schema_faults
from cbe.cluster.files import CLUSTERS, ClusterFile, Document, read_one
from cbe.cluster.manifest_groups import manifest_groups
from cbe.cluster.manifest_schemas import matching
from cbe.errors import InputError

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "cluster"
KUBERAY = CLUSTER / "kuberay"
CRDS = Path(os.environ["CBE_KUBERAY_CRDS"]) if "CBE_KUBERAY_CRDS" in os.environ else None

# As KubeRay's, of a size that can be read here.
SMALL_CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: ray.io
  names: {kind: RayCluster}
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            metadata: {type: object}
            spec:
              type: object
              required: [headGroupSpec]
              properties:
                rayVersion: {type: string}
                suspend: {type: boolean, nullable: true}
                port: {x-kubernetes-int-or-string: true}
                free:
                  type: object
                  x-kubernetes-preserve-unknown-fields: true
                  properties: {a: {type: string}}
                headGroupSpec:
                  type: object
                  properties:
                    template: {type: object, properties: {spec: {type: object}}}
"""


OURS = read_one(KUBERAY).documents


def told(path: Path, crds: Path | None = None) -> list[str]:
    return [str(fault) for fault in faults(read_one(path), crds)]


def names(lines: list[str]) -> set[str]:
    found = [re.search(r" \[([a-z-]+)\](;|$)", line) for line in lines]
    assert all(found), lines
    return {match[1] for match in found if match}


def changed(to: Path, file: str, old: str, new: str) -> Path:
    """One of our manifests in which the first of a text is another, with the others beside it."""
    folder = Path(shutil.copytree(KUBERAY, to / "kuberay"))
    text = (folder / file).read_text("utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), "utf-8")
    return folder / file


def test_our_manifests_keep_every_rule_and_fit_kuberays_definitions_where_they_are_at_hand() -> None:
    assert told(KUBERAY, CRDS) == []


def test_each_cluster_of_ours_keeps_the_rules_by_itself() -> None:
    found = [
        path
        for path in KUBERAY.glob("*.yaml")
        if any(f"\nkind: {kind}\n" in path.read_text() for kind in CLUSTERS)
    ]
    assert sorted(path.name for path in found) == ["raycluster.yaml", "study.yaml"]
    assert [line for path in found for line in told(path)] == []


BROKEN = {
    "idle timeout missing": ("study.yaml", "    idleTimeoutSeconds: 120", "    #", "idle-timeout"),
    "idle for a day": ("study.yaml", "idleTimeoutSeconds: 120", "idleTimeoutSeconds: 86400", "idle-timeout"),
    "auth off": ("study.yaml", "mode: token", "mode: disabled", "auth"),
    "auth missing": ("study.yaml", "mode: token", "enableK8sTokenAuth: false", "auth"),
    "auth off in a pod": ("service.yaml", "RAY_AUTH_MODE, value: token", "RAY_AUTH_MODE, value: x", "auth"),
    "no fallback": ("study.yaml", "values: [ON_DEMAND]", "values: [SPOT]", "fallback"),
    "fallback of another size": ("study.yaml", 'limits: {cpu: "3"', 'limits: {cpu: "2"', "fallback"),
    "on demand first": ("study.yaml", "priority: 1", "priority: 0", "fallback"),
    "no end of nodes": ("study.yaml", "      maxReplicas: 8", "      #", "ray"),
    "class left out": (
        *("raycluster.yaml", r'"{\"gpu_16gb\": 1, \"gpu_40gb\": 1}"', r'"{\"gpu_40gb\": 1}"'),
        "fallback",
    ),
    "classes unreadable": ("study.yaml", r'"{\"gpu_16gb\": 1}"', "gpu_16gb: 1", "ray"),
    "another Ray": ("study.yaml", "rayVersion: 2.60.0", "rayVersion: 2.9.0", "versions"),
    "store on a pod": ("kustomization.yaml", "store=s3://", "store=/", "store"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_manifest_is_refused_by_name(case: str, tmp_path: Path) -> None:
    file, old, new, wanted = BROKEN[case]
    found = told(changed(tmp_path, file, old, new).parent)
    assert names(found) == set(wanted.split())
    assert all(re.match(r"\S+\.yaml[: ]", line) for line in found)


def test_a_fault_tells_the_line_what_was_given_what_is_wanted_and_what_to_do(tmp_path: Path) -> None:
    path = changed(tmp_path, "raycluster.yaml", "mode: token", "mode: disabled")
    lines = path.read_text("utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "mode: disabled" in text)
    assert told(path) == [
        f"{path}:{line} spec.authOptions.mode: disabled: wanted token [auth]; "
        "set authOptions: {mode: token, secretName: …}"
    ]


def crd_folders(small: Path) -> list[Path]:
    small.mkdir()
    (small / "crd.yaml").write_text(SMALL_CRD)
    return [small, *([CRDS] if CRDS else [])]


def test_a_field_that_kuberay_does_not_know_is_refused_by_its_definitions(tmp_path: Path) -> None:
    path = changed(tmp_path, "raycluster.yaml", "  enableInTree", "  rayVersoin: x\n  enableInTree")
    assert told(path) == []  # our own rules know only what they ask for
    for crds in crd_folders(tmp_path / "crds"):
        wanted = "spec.rayVersoin: unknown key [kuberay]; did you mean rayVersion?"
        assert any(wanted in line for line in told(path, crds))


def test_definitions_are_read_as_kubernetes_means_them(tmp_path: Path) -> None:
    [crds, *_] = crd_folders(tmp_path / "crds")

    def said(spec: dict[str, Any]) -> list[str]:
        plain = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": spec}
        ((document, schema),) = matching([Document(Path("a.yaml"), plain, {})], crds)
        return [str(fault) for fault in schema_faults(document, schema, "kuberay")]

    head: dict[str, Any] = {"headGroupSpec": {}}
    assert said({**head, "suspend": None, "port": "http", "free": {"b": 1}}) == []
    assert said({**head, "port": 80}) == []
    assert said({}) == ["a.yaml spec.headGroupSpec: is missing [kuberay]; add it"]
    wanted = "wanted type ['boolean', 'null'] [kuberay]"
    assert said({**head, "suspend": "no"}) == [f"a.yaml spec.suspend: 'no': {wanted}; change it"]
    assert said({**head, "port": 1.5})[0].startswith("a.yaml spec.port: 1.5: wanted anyOf")


def test_a_folder_without_definitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no definition of RayCluster"):
        told(KUBERAY, tmp_path)


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*place, key)
        yield from places(value[key], (*place, key))


def test_a_value_of_the_wrong_type_never_breaks_the_check(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.touch()
    others = itertools.cycle([None, 7, "x", [], [7], {}, {"x": 7}, True, [{"x": [7]}]])
    for document in (each for each in OURS if each.path.name != "study.yaml"):
        ours = copy.deepcopy(document.plain)
        if document.plain["kind"] == "RayCluster":
            del ours["spec"]["workerGroupSpecs"][1:]  # one group is as good as four
        for place in places(ours):
            plain = copy.deepcopy(ours)
            here: Any = plain
            for key in place[:-1]:
                here = here[key]
            here[place[-1]] = next(others)
            faults(ClusterFile(path, "kubernetes", (Document(path, plain, document.lines),)))


def by_ray(kind: str, place: tuple[str, ...]) -> dict[str, Any]:
    """What Ray's own autoscaler makes of our manifest of a kind; it checks it, too."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    plain = next(each.plain for each in OURS if each.plain["kind"] == kind)
    spec: Any = plain
    for key in place:
        spec = spec[key]
    found: dict[str, Any] = _derive_autoscaling_config_from_ray_cr({**plain, "spec": spec})
    return found


def test_groups_are_what_rays_autoscaler_makes_of_them() -> None:
    for kind, place in (("RayCluster", ("spec",)), ("RayJob", ("spec", "rayClusterSpec"))):
        config = by_ray(kind, place)
        ours = manifest_groups([each for each in OURS if each.plain["kind"] == kind])
        theirs = config["available_node_types"]
        assert config["idle_timeout_minutes"] == 2
        assert ["headgroup", *(group.name for group in ours[1:])] == list(theirs)
        for group, node in zip(ours, theirs.values(), strict=True):
            assert group.resources == node["resources"]
            assert group.head or (group.min, group.max) == (node["min_workers"], node["max_workers"])
            assert group.head or group.priority == node["priority"]


def launched(resources: dict[str, float], count: int = 1, lost: tuple[str, ...] = ()) -> dict[str, int]:
    """What autoscaler v2 would launch for so many bundles, when no machine came for some groups of late."""
    from ray.autoscaler.v2.event_logger import AutoscalerEventLogger
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    config = AutoscalingConfig(by_ray("RayCluster", ("spec",)), skip_content_hash=True)
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=config.get_node_type_configs(),
        max_num_nodes=config.get_max_num_nodes(),
        resource_requests=ResourceRequestUtil.group_by_count([ResourceRequestUtil.make(resources)] * count),
        recoverable_resource_availabilities=dict.fromkeys(lost, 0.0),
    )
    reply = ResourceDemandScheduler(AutoscalerEventLogger(None)).schedule(request)
    return {each.instance_type: each.count for each in reply.to_launch if each.instance_type != "headgroup"}


def test_trials_go_to_the_smallest_card_that_holds_them_spot_first_and_else_on_demand() -> None:
    small, large = {"CPU": 1, "GPU": 1, "gpu_16gb": 1}, {"CPU": 1, "GPU": 1, "gpu_40gb": 1}
    assert launched(small) == {"small-spot": 1}
    assert launched(large) == {"large-spot": 1}
    assert launched(small, lost=("small-spot",)) == {"small-on-demand": 1}
    assert launched(large, lost=("large-spot",)) == {"large-on-demand": 1}
    assert launched(small, count=10) == {"small-spot": 8, "small-on-demand": 2}
    assert launched(large, count=10) == {"large-spot": 4, "large-on-demand": 4}


def test_groups_are_of_what_the_kustomization_lists(tmp_path: Path) -> None:
    standing = ["head", "small-spot", "small-on-demand", "large-spot", "large-on-demand"]
    assert [group.name for group in manifest_groups(OURS)] == standing
    path = changed(tmp_path, "kustomization.yaml", "  - raycluster.yaml ", "  - study.yaml ")
    found = manifest_groups(read_one(path.parent).documents)
    assert [group.name for group in found] == standing[:3]
    assert [group.spot for group in found] == [False, True, False]
    assert [group.instance for group in found] == ["m6i.large", "g6.xlarge", "g6.xlarge"]


def test_every_image_is_one_that_the_kustomization_sets() -> None:
    [chosen] = [each.plain["images"] for each in OURS if each.plain["kind"] == "Kustomization"]
    used = re.findall(
        r"(?m)^ +image: ([\w-]+):", "".join(path.read_text() for path in KUBERAY.glob("*.yaml"))
    )
    assert len(used) == 9
    assert set(used) == {each["name"] for each in chosen}


@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl here")
def test_kubectl_puts_images_and_roles_in_everywhere(tmp_path: Path) -> None:
    path = changed(tmp_path, "kustomization.yaml", "  # - study.yaml ", "  - study.yaml ")
    command = ["kubectl", "kustomize", str(path.parent)]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (tmp_path / "made.yaml").write_text(made)
    assert told(tmp_path / "made.yaml", CRDS) == []
    kept = "".join(part for part in made.split("\n---\n") if "\nkind: ConfigMap\n" not in part)
    images = re.findall(r"(?m)^ +(?:- )?image: (.*)$", kept)
    assert len(images) == 9
    assert {image.rpartition("/")[0] for image in images} == {"your-registry"}
    accounts = [each for each in yaml.safe_load_all(made) if each["kind"] == "ServiceAccount"]
    assert [len(each["metadata"]["annotations"]) for each in accounts] == [3, 3]


def test_images_and_manifests_are_of_this_version() -> None:
    docker = (CLUSTER / "Dockerfile").read_text("utf-8")
    assert set(re.findall(r"ARG CBE_VERSION=(.*)", docker)) == {cbe.__version__}
    manifests_text = "".join(path.read_text("utf-8") for path in KUBERAY.glob("*.yaml"))
    assert set(re.findall(r"cbe-studies-\w+:([\w.]+)", docker + manifests_text)) == {cbe.__version__}
    pinned = (ROOT / "constraints.txt").read_text("utf-8")
    for name, version in re.findall(r"(torch\w*)==([\d.]+)", docker):
        assert f"{name}=={version}\n" in pinned


def test_images_are_pinned_and_do_not_run_as_root() -> None:
    stages = re.split(r"(?m)^FROM ", (CLUSTER / "Dockerfile").read_text("utf-8"))[1:]
    ends = {re.split(r"\s+", stage)[2]: stage.strip().splitlines()[-1] for stage in stages}
    assert {ends["cpu"], ends["cuda"]} == {"USER 1000:1000"}
    assert stages[0].startswith("python:${PYTHON}-slim-bookworm ")
    assert all(stage.startswith("base ") for stage in stages[1:])


def test_an_image_gets_what_the_package_is_built_from_and_nothing_else() -> None:
    allowed = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in allowed
    copies = re.findall(r"(?m)^COPY (.*) \S+$", (CLUSTER / "Dockerfile").read_text("utf-8"))
    assert {name for line in copies for name in line.split()} == {
        line[1:] for line in allowed if line[0] == "!"
    }
