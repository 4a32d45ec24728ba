"""Walking manifests: clusters, pods and containers, each with its place in its file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from cbe.cluster.files import Document
from cbe.cluster.groups import Group
from cbe.errors import Fault
from cbe.spec.files import Place

INSTANCE = "cbe-studies/instance"  # an annotation: the machine that a pod is priced as
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"

# Where a Ray cluster stands in a document, and a pod.
_CLUSTERS: dict[str, Place] = {
    "RayCluster": ("spec",),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayService": ("spec", "rayClusterConfig"),
}
_PODS: dict[str, Place] = {
    "Pod": (),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "RayJob": ("spec", "submitterPodTemplate"),
    **{
        kind: ("spec", "template") for kind in ("DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet")
    },
}
# By these labels clouds mark machines that they may take away.
_SPOT = {
    "cloud.google.com/gke-preemptible": "true",
    "cloud.google.com/gke-provisioning": "spot",
    "cloud.google.com/gke-spot": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
_UNITS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** n for n, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{unit: Decimal(1024) ** n for n, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


@dataclass(frozen=True)
class Part:
    """What stands at a place of a document; None where there is nothing."""

    document: Document
    place: Place
    value: Any

    def at(self, *place: str | int) -> Part:
        value = self.value
        for key in place:
            here = isinstance(value, dict) or (isinstance(value, list) and isinstance(key, int))
            keys = value if isinstance(value, dict) else range(len(value)) if here else ()
            value = value[key] if key in keys else None
        return Part(self.document, (*self.place, *place), value)

    def each(self) -> list[Part]:
        """The items of a list, or the values of a mapping."""
        if isinstance(self.value, dict):
            return [self.at(key) for key in self.value]
        return [self.at(n) for n in range(len(self.value))] if isinstance(self.value, list) else []

    def get(self, *place: str | int) -> Any:
        return self.at(*place).value

    def whole(self, *place: str | int) -> int | None:
        """The whole number that stands there, in quotes or not."""
        value = self.get(*place)
        try:
            return None if value is None or isinstance(value, bool) else int(value)
        except (TypeError, ValueError):
            return None

    @property
    def given(self) -> str:
        """What stands there, as a fault tells it."""
        return "is missing" if self.value is None else repr(self.value)

    def fault(self, problem: str, hint: str) -> Fault:
        return Fault(self.document.where(*self.place), problem, hint)


def whole(document: Document) -> Part:
    return Part(document, (), document.plain)


def clusters(document: Document) -> list[Part]:
    """The Ray clusters that a document describes; a RayJob on a cluster that is there has none."""
    place = _CLUSTERS.get(str(document.plain.get("kind")))
    part = whole(document).at(*place) if place else None
    return [part] if part and part.value is not None else []


def workers(cluster: Part) -> list[Part]:
    return cluster.at("workerGroupSpecs").each()


def node_groups(cluster: Part) -> list[Part]:
    """The head's group and those of workers."""
    return [cluster.at("headGroupSpec"), *workers(cluster)]


def pods(document: Document) -> list[Part]:
    """The specs of all pods that a document makes."""
    found = [group.at("template", "spec") for cluster in clusters(document) for group in node_groups(cluster)]
    place = _PODS.get(str(document.plain.get("kind")))
    if place is not None:
        own = whole(document).at(*place, "spec")
        found += [own] if own.value is not None or document.plain.get("kind") != "RayJob" else []
    return found


def containers(pod: Part) -> list[Part]:
    return [*pod.at("initContainers").each(), *pod.at("containers").each()]


def each_cluster(documents: Iterable[Document]) -> Iterator[Part]:
    return (cluster for document in documents for cluster in clusters(document))


def each_container(documents: Iterable[Document]) -> Iterator[tuple[Part, Part]]:
    """Every container with its pod."""
    for document in documents:
        for pod in pods(document):
            yield from ((pod, container) for container in containers(pod))


def variables(container: Part) -> Iterator[tuple[str, Part]]:
    """The environment variables that a container sets itself."""
    for part in container.at("env").each():
        yield str(part.get("name")), part


def quantity(value: Any) -> Decimal | None:
    """A quantity as Kubernetes writes it.

    >>> quantity("500m"), quantity("1Gi"), quantity("much")
    (Decimal('0.500'), Decimal('1073741824'), None)
    """
    text = "" if value is None or isinstance(value, bool) else str(value)
    number = text.rstrip("mkKMGTPEi")
    try:
        return Decimal(number) * _UNITS[text[len(number) :]]
    except (InvalidOperation, KeyError):
        return None


def custom_resources(group: Part) -> dict[str, float] | None:
    """What a group offers beside CPUs, GPUs and memory, as Ray's autoscaler reads it; None if it cannot."""
    given = group.at("resources").value
    if isinstance(given, dict) and given:
        amounts = {str(name): quantity(each) for name, each in given.items()}
        known = {name: float(each) for name, each in amounts.items() if each is not None}
        return {name: each for name, each in known.items() if name not in ("CPU", "GPU", "TPU", "memory")}
    text = group.get("rayStartParams", "resources")
    if text is None:
        return {}
    try:
        found = json.loads(str(text)[1:-1].replace("\\", ""))
        return {str(name): float(int(each)) for name, each in found.items()}
    except (ValueError, TypeError, AttributeError):
        return None


def ray_resources(group: Part) -> dict[str, float]:
    """What Ray counts on one node of a group."""
    asked = group.at("template", "spec", "containers", 0, "resources")
    amounts = [
        (str(each.place[-1]), each.value) for kind in ("limits", "requests") for each in asked.at(kind).each()
    ]
    found: dict[str, float] = {}
    for name, flag, ending in (("CPU", "num-cpus", "cpu"), ("GPU", "num-gpus", "gpu"), ("memory",) * 3):
        given = [group.get("resources", name), group.get("rayStartParams", flag)]
        given += [amount for unit, amount in amounts if unit.endswith(ending)]
        amount = quantity(next((each for each in given if each is not None), None))
        if amount is not None:
            found[name] = float(amount.to_integral_value(ROUND_CEILING))
    return found | (custom_resources(group) or {})


def is_spot(group: Part) -> bool:
    """Whether the pods of a group may stand on a machine that the cloud can take away."""
    pod = group.at("template", "spec")
    chosen = [(str(each.place[-1]), [each.value]) for each in pod.at("nodeSelector").each()]
    required = pod.at("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in required.at("nodeSelectorTerms").each():
        for rule in term.at("matchExpressions").each():
            if rule.get("operator") == "In":
                chosen.append((str(rule.get("key")), [each.value for each in rule.at("values").each()]))
    return any(key in _SPOT and _SPOT[key] in map(str, values) for key, values in chosen)


def group_of(part: Part, *, head: bool) -> Group:
    """A group of a manifest as any cluster file's."""
    hosts = part.whole("numOfHosts") or 1
    template = part.at("template")
    instance = template.get("metadata", "annotations", INSTANCE)
    instance = instance or template.get("spec", "nodeSelector", _INSTANCE_TYPE)
    disk = quantity(template.get("spec", "containers", 0, "resources", "limits", "ephemeral-storage"))
    return Group(
        name="head" if head else str(part.get("groupName")),
        instance=str(instance) if instance else None,
        spot=is_spot(part),
        min=1 if head else (part.whole("minReplicas") or 0) * hosts,
        max=1 if head else (part.whole("maxReplicas") or 0) * hosts,
        resources=ray_resources(part),
        head=head,
        disk_gb=round((disk or Decimal(0)) / 10**9),
        priority=part.whole("priority") or 0,
    )


def listed(documents: Iterable[Document]) -> list[Document]:
    """Of documents beside a kustomization those that it lists; otherwise all."""
    documents = list(documents)
    lists = [each for each in documents if each.plain.get("kind") == "Kustomization"]
    named = {
        (each.path.parent / str(name.value)).resolve()
        for each in lists
        for name in whole(each).at("resources").each()
    }
    return [each for each in documents if each.path.resolve() in named] if lists else documents
