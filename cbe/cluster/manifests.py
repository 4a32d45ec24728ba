"""What we ask of manifests for Kubernetes. Each rule has a name, which its faults end with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from cbe.cluster import kinds, objects, rules
from cbe.cluster.files import Document
from cbe.cluster.groups import Group, gpu_classes
from cbe.cluster.parts import (
    Part,
    clusters,
    custom_resources,
    each_cluster,
    each_container,
    group_of,
    listed,
    node_groups,
    quantity,
    ray_resources,
    variables,
    whole,
    workers,
)
from cbe.errors import Fault

MOST_IDLE_S = 60 * rules.MOST_IDLE_MIN
MOST_NODES = 10_000
# How long a node that must leave waits for its trials, and how long a pod may take to end, if nobody says.
DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
DRAIN_S = 30.0
GRACE_S = 30

Rule = Callable[[Sequence[Document]], Iterator[Fault]]


def faults(documents: Sequence[Document], crds: Path | None = None) -> list[Fault]:
    """Everything in manifests that breaks a rule, or does not fit KubeRay's definitions in a folder."""
    found = [
        Fault(fault.where, f"{fault.problem} [{name}]", fault.hint)
        for name, rule in RULES.items()
        for fault in rule(documents)
    ]
    if crds is not None:
        found += [
            Fault(fault.where, f"{fault.problem} [kuberay]", fault.hint)
            for fault in kinds.by_kuberay(documents, crds)
        ]
    return found


def groups(documents: Sequence[Document]) -> list[Group]:
    """The nodes that manifests make; beside a kustomization those of the files that it lists."""
    return [
        group_of(part, head=part.place[-1] == "headGroupSpec")
        for document in listed(documents)
        for cluster in clusters(document)
        for part in node_groups(cluster)
    ]


def _idle_timeout(documents: Sequence[Document]) -> Iterator[Fault]:
    for cluster in each_cluster(documents):
        wanted = cluster.at("autoscalerOptions", "idleTimeoutSeconds")
        limits = [wanted, *(group.at("idleTimeoutSeconds") for group in workers(cluster))]
        for part in (part for part in limits if part is wanted or part.value is not None):
            if not 0 < (part.whole() or 0) <= MOST_IDLE_S:
                hint = "a node that nobody uses must leave; 120 keeps it warm for the next trial"
                yield part.fault(f"{part.given}: wanted 1 to {MOST_IDLE_S} seconds", hint)
    for job in (whole(each) for each in documents if each.plain.get("kind") == "RayJob" and clusters(each)):
        if job.get("spec", "shutdownAfterJobFinishes") is not True:
            problem = "the cluster stays when its study has ended; wanted true"
            yield job.at("spec", "shutdownAfterJobFinishes").fault(problem, "set it")


def _auth(documents: Sequence[Document]) -> Iterator[Fault]:
    hint = "set authOptions: {mode: token, secretName: …}"
    for cluster in each_cluster(documents):
        mode = cluster.at("authOptions", "mode")
        by_hand = all(
            _says_token(dict(variables(container)))
            for group in node_groups(cluster)
            for container in group.at("template", "spec", "containers").each()[:1]
        )
        if mode.value != "token" and (mode.value is not None or not by_hand):
            yield mode.fault(f"{mode.given}: anybody who reaches Ray may run code; wanted token", hint)
    for _, container in each_container(documents):
        for name, part in variables(container):
            if name == "RAY_AUTH_MODE" and part.get("value") != "token":
                yield part.fault(f"RAY_AUTH_MODE {part.get('value')!r}: wanted token", hint)


def _says_token(given: Mapping[str, Part]) -> bool:
    """Whether an environment has the token, by reference, as for a KubeRay that does not know authOptions."""
    mode, token = given.get("RAY_AUTH_MODE"), given.get("RAY_AUTH_TOKEN")
    by_reference = token is not None and token.get("valueFrom", "secretKeyRef") is not None
    return (
        mode is not None and mode.get("value") == "token" and (by_reference or "RAY_AUTH_TOKEN_PATH" in given)
    )


def _fallback(documents: Sequence[Document]) -> Iterator[Fault]:
    for cluster in each_cluster(documents):
        known = [(part, group_of(part, head=False)) for part in workers(cluster)]
        for part, group in known:
            same = [
                other
                for _, other in known
                if not other.spot and other.resources == group.resources and other.max > 0
            ]
            if group.spot and not same:
                offer = ", ".join(f"{name}: {count:g}" for name, count in group.resources.items())
                yield part.fault(
                    f"{group.name} is spot, with nothing to replace it; wanted a group on demand that offers "
                    f"{{{offer}}}",
                    f"copy it as {group.name}-on-demand, onto nodes that are not spot",
                )
            elif group.spot and group.priority <= (most := max(other.priority for other in same)):
                problem = f"{group.priority}: spot would not be the first choice; wanted more than {most}"
                yield part.at("priority").fault(problem, f"give it {most + 1}")


def _from_zero(documents: Sequence[Document]) -> Iterator[Fault]:
    hint = "nodes come when trials wait, and an idle cluster is its head"
    for group in (group for cluster in each_cluster(documents) for group in workers(cluster)):
        least, now, most = (group.at(key) for key in ("minReplicas", "replicas", "maxReplicas"))
        if least.whole() != 0:
            yield least.fault(f"{least.given}: wanted 0", hint)
        if now.value is not None and now.whole() != 0:
            yield now.fault(f"{now.given}: wanted 0", hint)
        if not 0 < (most.whole() or 0) <= MOST_NODES:
            yield most.fault(f"{most.given}: wanted 1 to {MOST_NODES:,}", "say how many nodes there may be")


def _head(documents: Sequence[Document]) -> Iterator[Fault]:
    for group in (cluster.at("headGroupSpec") for cluster in each_cluster(documents)):
        says = group.at("rayStartParams", "num-cpus")
        if says.whole() != 0 and quantity(group.get("resources", "CPU")) != 0:
            problem = f'{says.given}: trials would run on the head; wanted "0"'
            yield says.fault(problem, "studies are driven there, and a trial that takes its memory ends them")
        if ray_resources(group).get("GPU") or custom_resources(group):
            yield group.fault("offers what trials ask for", "leave GPUs and classes of them to workers")


def _gpu_classes(documents: Sequence[Document]) -> Iterator[Fault]:
    for cluster in each_cluster(documents):
        known = [(part, group_of(part, head=False)) for part in workers(cluster)]
        classes = gpu_classes(group for _, group in known)
        for part, group in known:
            there = part.at("rayStartParams", "resources")
            if custom_resources(part) is None:
                yield there.fault("cannot be read", 'write it as \'"{\\"gpu_24gb\\": 1}"\'')
            elif group.gpus and not group.classes:
                yield there.fault(
                    "does not say how much memory its cards have", "add gpu_24gb, or what it is"
                )
            largest = max(group.classes, default=0)
            for size in (size for size in classes if size <= largest):
                if group.classes.get(size) != group.gpus:
                    problem = (
                        f"gpu_{size}gb {group.classes.get(size, 0):g}: wanted {group.gpus:g}, as many as GPUs"
                    )
                    yield there.fault(problem, f"a card of {largest} GB takes trials for {size} GB, too")


def _autoscaler(documents: Sequence[Document]) -> Iterator[Fault]:
    for cluster in each_cluster(documents):
        switch = cluster.at("enableInTreeAutoscaling")
        if switch.value is not True:
            yield switch.fault(f"{switch.given}: no nodes would come or leave; wanted true", "set it")
        chosen = cluster.at("autoscalerOptions", "version")
        head = dict(variables(cluster.at("headGroupSpec", "template", "spec", "containers", 0)))
        by_hand = "RAY_enable_autoscaler_v2" in head and chosen.value is None
        if chosen.value != "v2" and not by_hand:
            yield chosen.fault(f"{chosen.given}: wanted v2", "v1 does not let nodes go")
        for group in node_groups(cluster):
            policy = group.at("template", "spec", "restartPolicy")
            if policy.value not in (None, "Never"):
                yield policy.fault(f"{policy.value}: wanted Never", "autoscaler v2 knows a node by its pod")


def _drain(documents: Sequence[Document]) -> Iterator[Fault]:
    """Whether pods live as long as Ray may take to empty their node."""
    for group in (group for cluster in each_cluster(documents) for group in node_groups(cluster)):
        pod = group.at("template", "spec")
        given = dict(variables(pod.at("containers", 0))).get(DRAIN)
        drain = quantity(given.get("value")) if given else None
        least = DRAIN_S if drain is None else float(drain)
        if given and least <= 0:
            yield given.fault(
                f"{DRAIN} {least:g}: trials would be cut off", "give them time for a checkpoint"
            )
        grace = pod.at("terminationGracePeriodSeconds")
        if (GRACE_S if grace.value is None else grace.whole() or 0) <= least:
            problem = (
                f"{grace.given}: the pod ends before the {least:g} s that its trials have for a checkpoint"
            )
            yield grace.fault(problem, f"set it to {least + 30:g}")


def _versions(documents: Sequence[Document]) -> Iterator[Fault]:
    for cluster in each_cluster(documents):
        said = cluster.at("rayVersion")
        if said.value != version("ray"):
            problem = f"{said.given}: wanted {version('ray')}, as installed here"
            yield said.fault(problem, "change it, with the image")


RULES: Mapping[str, Rule] = {
    "kind": kinds.shapes,
    "namespace": objects.namespace,
    "idle-timeout": _idle_timeout,
    "ports": objects.ports,
    "auth": _auth,
    "fallback": _fallback,
    "from-zero": _from_zero,
    "head": _head,
    "gpu-classes": _gpu_classes,
    "autoscaler": _autoscaler,
    "drain": _drain,
    "versions": _versions,
    "limits": objects.limits,
    "no-root": objects.no_root,
    "secrets": objects.secrets,
    "images": objects.images,
    "store": objects.store,
}
