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
from cbe.cluster import kinds, manifests
from cbe.cluster.files import Document, read_one
from cbe.cluster.parts import quantity
from cbe.errors import InputError

ROOT = Path(__file__).parents[1]
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
    return [str(fault) for fault in manifests.faults(read_one(path).documents, crds)]


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


def told_with_ours(path: Path, crds: Path | None = None) -> list[str]:
    """What is wrong with one manifest in the place of ours of its name."""
    others = [each for each in OURS if each.path.name != path.name]
    return [str(fault) for fault in manifests.faults([*others, *read_one(path).documents], crds)]


def test_our_manifests_keep_every_rule_and_fit_kuberays_definitions_where_they_are_at_hand() -> None:
    assert [str(fault) for fault in manifests.faults(OURS, CRDS)] == []


def test_each_of_our_manifests_keeps_the_rules_by_itself() -> None:
    for path in sorted(KUBERAY.glob("*.yaml")):
        found = manifests.faults([each for each in OURS if each.path == path])
        # The policies of the namespace stand in a file of their own.
        assert [str(each) for each in found if path.name != "namespace.yaml"] == []


BROKEN = {
    "idle timeout missing": ("study.yaml", "    idleTimeoutSeconds: 120", "    #", "idle-timeout"),
    "idle for a day": ("study.yaml", "idleTimeoutSeconds: 120", "idleTimeoutSeconds: 86400", "idle-timeout"),
    "cluster that stays": (
        *("study.yaml", "shutdownAfterJobFinishes: true", "shutdownAfterJobFinishes: false"),
        "idle-timeout",
    ),
    "load balancer": ("study.yaml", "serviceType: ClusterIP", "serviceType: LoadBalancer", "ports"),
    "ingress": ("study.yaml", "enableIngress: false", "enableIngress: true", "ports"),
    "host port": ("study.yaml", "containerPort: 8265", "containerPort: 8265, hostPort: 8265", "ports"),
    "host network": ("service.yaml", "      enableServiceLinks: false", "      hostNetwork: true", "ports"),
    "open policy": ("network.yaml", "    - from:\n", "    - other:\n", "ports"),
    "no policy": ("network.yaml", "podSelector: {}", "podSelector: {matchLabels: {a: b}}", "ports"),
    "auth off": ("study.yaml", "mode: token", "mode: disabled", "auth"),
    "auth missing": ("study.yaml", "mode: token", "enableK8sTokenAuth: false", "auth"),
    "auth off in a pod": ("service.yaml", "RAY_AUTH_MODE, value: token", "RAY_AUTH_MODE, value: x", "auth"),
    "no fallback": ("study.yaml", "values: [ON_DEMAND]", "values: [SPOT]", "fallback"),
    "fallback of another size": ("study.yaml", 'limits: {cpu: "3"', 'limits: {cpu: "2"', "fallback"),
    "on demand first": ("study.yaml", "priority: 1", "priority: 0", "fallback"),
    "node kept": ("study.yaml", "minReplicas: 0", "minReplicas: 1", "from-zero"),
    "node at the start": ("study.yaml", "      replicas: 0", "      replicas: 2", "from-zero"),
    "no end of nodes": ("study.yaml", "      maxReplicas: 8", "      #", "from-zero"),
    "trials on the head": ("study.yaml", 'num-cpus: "0"', 'num-cpus: "2"', "head"),
    "class left out": (
        *("raycluster.yaml", r'"{\"gpu_16gb\": 1, \"gpu_40gb\": 1}"', r'"{\"gpu_40gb\": 1}"'),
        "fallback gpu-classes",
    ),
    "classes unreadable": ("study.yaml", r'"{\"gpu_16gb\": 1}"', "gpu_16gb: 1", "fallback gpu-classes"),
    "autoscaler v1": ("study.yaml", "version: v2", "version: v1", "autoscaler"),
    "no autoscaler": ("study.yaml", "Autoscaling: true", "Autoscaling: false", "autoscaler"),
    "no time to drain": (
        *("study.yaml", "terminationGracePeriodSeconds: 120", "terminationGracePeriodSeconds: 60"),
        "drain",
    ),
    "cut off": ("study.yaml", 'TIMEOUT_S, value: "90"', 'TIMEOUT_S, value: "0"', "drain"),
    "another Ray": ("study.yaml", "rayVersion: 2.60.0", "rayVersion: 2.9.0", "versions"),
    "no limits": ("service.yaml", '            limits: {cpu: "2", ', "            limits: {", "limits"),
    "no limits of the autoscaler": ("study.yaml", "limits: {cpu: 500m, ", "limits: {", "limits"),
    "root": ("study.yaml", "runAsUser: 1000", "runAsUser: 0", "no-root"),
    "perhaps root": ("service.yaml", "        runAsNonRoot: true\n", "", "no-root"),
    "submitter of KubeRay's own": ("study.yaml", "submissionMode: HTTPMode", "suspend: false", "no-root"),
    "escalation": ("study.yaml", "allowPrivilegeEscalation: false", "privileged: true", "no-root"),
    "capabilities": ("service.yaml", "capabilities: {drop: [ALL]}", "capabilities: {}", "no-root"),
    "no seccomp": ("study.yaml", "{type: RuntimeDefault}", "{type: Unconfined}", "no-root"),
    "secret": (
        "service.yaml",
        "RAY_AUTH_TOKEN_PATH, value: /run",
        "RAY_AUTH_TOKEN, value: s3cr3t",
        "secrets",
    ),
    "no tag": ("study.yaml", "cbe-studies-cuda:0.1.0", "cbe-studies-cuda", "images"),
    "latest": ("service.yaml", "cbe-studies-cpu:0.1.0", "registry:5000/cbe-studies-cpu:latest", "images"),
    "no namespace": ("service.yaml", "  namespace: cbe\n", "", "namespace"),
    "shared namespace": ("study.yaml", "  namespace: cbe\n", "  namespace: default\n", "namespace"),
    "typo at the top": ("network.yaml", "spec:", "specs:", "kind ports"),
    "typo in a policy": ("network.yaml", "policyTypes", "policyType", "kind ports"),
    "another version": ("service.yaml", "apps/v1", "extensions/v1beta1", "kind"),
    "no such file": ("kustomization.yaml", "  - service.yaml ", "  - serve.yaml ", "kind"),
    "store on a pod": ("kustomization.yaml", "store=s3://", "store=/", "store"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_manifest_is_refused_by_name(case: str, tmp_path: Path) -> None:
    file, old, new, wanted = BROKEN[case]
    found = told_with_ours(changed(tmp_path, file, old, new))
    assert names(found) == set(wanted.split())
    assert all(re.match(r"\S+\.yaml[: ]", line) for line in found)


def test_a_fault_tells_the_line_what_was_given_what_is_wanted_and_what_to_do(tmp_path: Path) -> None:
    path = changed(tmp_path, "raycluster.yaml", "serviceType: ClusterIP", "serviceType: NodePort")
    lines = path.read_text("utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "NodePort" in text)
    assert told(path) == [
        f"{path}:{line} spec.headGroupSpec.serviceType: NodePort: wanted ClusterIP [ports]; "
        "reach it by `kubectl port-forward`"
    ]


def test_a_secret_is_found_and_not_repeated(tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    (tmp_path / "all.yaml").write_text(
        f"""
apiVersion: v1
kind: Secret
metadata: {{name: ray-token, namespace: cbe}}
stringData: {{auth_token: {secret}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings, namespace: cbe}}
data: {{password: {secret}}}
---
apiVersion: ray.io/v1
kind: RayJob
metadata: {{name: study, namespace: cbe}}
spec:
  clusterSelector: {{ray.io/cluster: cbe}}
  runtimeEnvYAML: "env_vars: {{AWS_SECRET_ACCESS_KEY: {secret}}}"
"""
    )
    found = [line for line in told(tmp_path) if "[secrets]" in line]
    for place in ("stringData.auth_token", "data.password", "spec.runtimeEnvYAML"):
        assert any(place in line for line in found), place
    assert secret not in "".join(told(tmp_path))


OPEN = """
apiVersion: v1
kind: Service
metadata: {name: page, namespace: cbe}
spec: {type: ClusterIP, ports: [{port: 8321}], selector: {app: page}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: page, namespace: cbe}
spec:
  tls: [{hosts: [studies.example.org], secretName: page-tls}]
  rules: [{host: studies.example.org}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: page, namespace: cbe}
spec:
  podSelector: {matchLabels: {app: page}}
  policyTypes: [Ingress]
  ingress: [{from: [{namespaceSelector: {matchLabels: {name: ingress}}}], ports: [{port: 8321}]}]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("type: ClusterIP", "type: NodePort"),
        ("type: ClusterIP", "externalIPs: [203.0.113.7]"),
        ("  tls: [{hosts: [studies.example.org], secretName: page-tls}]\n", ""),
        ("from: [{namespaceSelector: {matchLabels: {name: ingress}}}], ", ""),
        ("{namespaceSelector: {matchLabels: {name: ingress}}}", "{ipBlock: {cidr: 0.0.0.0/0}}"),
        ("{namespaceSelector: {matchLabels: {name: ingress}}}", "{namespaceSelector: {}}"),
    ],
)
def test_a_way_in_from_outside_is_closed_unless_it_has_tls_and_a_policy(
    old: str, new: str, tmp_path: Path
) -> None:
    (tmp_path / "page.yaml").write_text(OPEN)
    assert told(tmp_path) == []
    (tmp_path / "page.yaml").write_text(OPEN.replace(old, new))
    assert names(told(tmp_path)) == {"ports"}


def test_a_token_by_reference_does_where_the_operator_does_not_know_authoptions(tmp_path: Path) -> None:
    options = "    authOptions:\n      mode: token\n      secretName: ray-token\n"
    path = changed(tmp_path, "study.yaml", options, "")
    assert names(told(path)) == {"auth"}
    token = "{name: RAY_AUTH_TOKEN, valueFrom: {secretKeyRef: {name: ray-token, key: auth_token}}}"
    by_hand = rf"\g<0>\1  - {{name: RAY_AUTH_MODE, value: token}}\n\1  - {token}\n"
    text = re.sub(r"(?m)^( +)env:\n(?=\1  - \{name: RAY_GRACEFUL)", by_hand, path.read_text("utf-8"))
    path.write_text(text, "utf-8")
    assert told(path) == []


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
        document = Document(Path("a.yaml"), plain, {})
        return [str(fault) for fault in kinds.by_kuberay([document], crds)]

    head: dict[str, Any] = {"headGroupSpec": {}}
    assert said({**head, "suspend": None, "port": "http", "free": {"b": 1}}) == []
    assert said({**head, "port": 80}) == []
    assert said({}) == ["a.yaml spec.headGroupSpec: is missing; add it"]
    wanted = "wanted type ['boolean', 'null']"
    assert said({**head, "suspend": "no"}) == [f"a.yaml spec.suspend: 'no': {wanted}; change it"]
    assert said({**head, "port": 1.5})[0].startswith("a.yaml spec.port: 1.5: wanted anyOf")


def test_a_folder_without_definitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no definition of RayCluster"):
        manifests.faults(OURS, tmp_path)


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
        for place in places(document.plain):
            if place[:2] == ("spec", "workerGroupSpecs") and place[2:] > (1,):
                continue  # one group is as good as four
            plain = copy.deepcopy(document.plain)
            here: Any = plain
            for key in place[:-1]:
                here = here[key]
            here[place[-1]] = next(others)
            broken = [Document(path, plain, document.lines)]
            manifests.faults(broken)
            manifests.groups(broken)


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
        ours = manifests.groups([each for each in OURS if each.plain["kind"] == kind])
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
    assert [group.name for group in manifests.groups(OURS)] == standing
    path = changed(tmp_path, "kustomization.yaml", "  - raycluster.yaml ", "  - study.yaml ")
    found = manifests.groups(read_one(path.parent).documents)
    assert [group.name for group in found] == standing[:3]
    assert [group.spot for group in found] == [False, True, False]
    assert [group.instance for group in found] == ["m6i.large", "g6.xlarge", "g6.xlarge"]


def test_quantities_are_read_as_kubernetes_writes_them() -> None:
    given = {"500m": 0.5, "3": 3, 3: 3, "1Gi": 2**30, "1.5G": 1.5e9, "2k": 2000}
    assert {text: quantity(text) for text in given} == given
    assert [quantity(text) for text in ("", "much", None, True, "1Xi", [1])] == [None] * 6


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
