"""The Ray clusters in manifests, and their groups as Ray's own autoscaler reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cbe.cluster.files import CLUSTERS, Document, Kind, at
from cbe.cluster.groups import NodeGroup
from cbe.errors import ConfigError, Fault
from cbe.spec.faults import KeyPath

INSTANCE = "cbe-studies/instance"  # an annotation: the machine that a pod is priced as

# By these labels clouds mark machines that they may take away.
_SPOT = {
    "cloud.google.com/gke-preemptible": "true",
    "cloud.google.com/gke-provisioning": "spot",
    "cloud.google.com/gke-spot": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}


@dataclass(frozen=True)
class ClusterSpec:
    """A Ray cluster, and its place in its document."""

    document: Document
    place: KeyPath

    def at(self, kind: type[Kind] | tuple[type[Kind], ...], *place: str | int) -> Kind | None:
        return at(self.document.plain, kind, *self.place, *place)

    def where(self, *place: str | int) -> str:
        return self.document.where(*self.place, *place)


def cluster_specs(documents: Iterable[Document]) -> Iterator[ClusterSpec]:
    """The Ray clusters that documents describe; a RayJob on a cluster that is there has none."""
    for document in documents:
        place = CLUSTERS.get(str(document.plain.get("kind")))
        if place and at(document.plain, dict, *place) is not None:
            yield ClusterSpec(document, place)


def manifest_groups(documents: Iterable[Document]) -> list[NodeGroup]:
    """The groups of all clusters; beside a kustomization those of the files that it lists."""
    return [group for spec in cluster_specs(_listed(documents)) for group in groups_of(spec)]


def groups_of(spec: ClusterSpec) -> list[NodeGroup]:
    """The groups of one cluster; ConfigError with what Ray's autoscaler cannot read."""
    places: list[KeyPath] = [("headGroupSpec",)]
    places += [("workerGroupSpecs", index) for index in range(len(spec.at(list, "workerGroupSpecs") or ()))]
    found, wrong = [], []
    for place in places:
        try:
            found.append(_group(spec, place))
        except Exception as error:  # Ray's own are of many kinds
            problem = " ".join(str(getattr(error, "message", error)).split()) or type(error).__name__
            problem = f"{error.args[0]} is missing" if isinstance(error, KeyError) else problem
            hint = "cluster/kuberay/raycluster.yaml has groups that Ray can read"
            wrong.append(Fault(spec.where(*place), f"{problem} [ray]", hint))
    if wrong:
        raise ConfigError(wrong)
    return found


def _group(spec: ClusterSpec, place: KeyPath) -> NodeGroup:
    plain = spec.at(dict, *place)
    if plain is None:
        raise ValueError("wanted a group of nodes")
    head = place == ("headGroupSpec",)
    node = _by_ray(plain, head)
    template = at(plain, dict, "template") or {}
    return NodeGroup(
        name="head" if head else str(plain["groupName"]),
        place=(*spec.place, *place),
        instance=at(template, str, "metadata", "annotations", INSTANCE)
        or at(template, str, "spec", "nodeSelector", "node.kubernetes.io/instance-type"),
        spot=_is_spot(template),
        min=1 if head else node["min_workers"],
        max=1 if head else node["max_workers"],
        resources=node["resources"],
        head=head,
        disk_gb=_disk_gb(template),
        priority=node.get("priority", 0),
        idle_s=node.get("idle_timeout_s"),
    )


def _by_ray(group: dict[str, Any], head: bool) -> dict[str, Any]:
    """A group by itself, so that Ray's errors are about it."""
    from ray.autoscaler._private.kuberay import autoscaling_config

    autoscaling_config.logger.disabled = True  # it repeats its errors
    spec = {"headGroupSpec": group if head else _A_HEAD, "workerGroupSpecs": [] if head else [group]}
    named = {"name": "cluster", "namespace": "default"}  # Ray asks for both, and reads no groups from them
    read = autoscaling_config._derive_autoscaling_config_from_ray_cr({"metadata": named, "spec": spec})
    *_, node = read["available_node_types"].values()
    found: dict[str, Any] = node
    return found


_A_HEAD = {"rayStartParams": {"num-cpus": "0"}, "template": {"spec": {"containers": [{}]}}}


def _is_spot(template: dict[str, Any]) -> bool:
    """Whether pods may stand on a machine that the cloud can take away."""
    chosen = [(key, [value]) for key, value in (at(template, dict, "spec", "nodeSelector") or {}).items()]
    required = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in at(template, list, "spec", *required, "nodeSelectorTerms") or ():
        for each in at(term, list, "matchExpressions") or ():
            if at(each, str, "operator") == "In":
                chosen.append((at(each, str, "key"), at(each, list, "values") or []))
    return any(key in _SPOT and _SPOT[key] in map(str, values) for key, values in chosen)


def _disk_gb(template: dict[str, Any]) -> int:
    from ray.autoscaler._private.kuberay.utils import parse_quantity

    limit = ("spec", "containers", 0, "resources", "limits", "ephemeral-storage")
    return round(parse_quantity(at(template, (str, int), *limit) or 0) / 10**9)


def _listed(documents: Iterable[Document]) -> list[Document]:
    """Of documents beside a kustomization those that it lists; otherwise all."""
    documents = list(documents)
    lists = [each for each in documents if each.plain.get("kind") == "Kustomization"]
    named = {
        (each.path.parent / name).resolve()
        for each in lists
        for name in at(each.plain, list, "resources") or ()
        if isinstance(name, str)
    }
    return [each for each in documents if each.path.resolve() in named] if lists else documents
