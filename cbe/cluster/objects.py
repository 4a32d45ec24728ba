"""What we ask of pods, and of what stands beside them in Kubernetes, whether Ray runs there or not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from cbe.cluster import rules
from cbe.cluster.files import Document
from cbe.cluster.parts import (
    Part,
    clusters,
    containers,
    each_cluster,
    each_container,
    pods,
    quantity,
    variables,
    whole,
)
from cbe.errors import Fault

_CLUSTER_WIDE = ("Kustomization", "Namespace")
_SHARED = ("default", "kube-node-lease", "kube-public", "kube-system")
_SECRET = re.compile(
    r"(?i)(token|secret|passw(or)?d|api_?key|access_?key(_id)?|private_?key|credentials?|connection_?string)$"
)


def ports(documents: Sequence[Document]) -> Iterator[Fault]:
    inside = "reach it by `kubectl port-forward`"
    for document in documents:
        part = whole(document)
        services = [part.at("spec")] if document.plain.get("kind") == "Service" else []
        for cluster in clusters(document):
            head = cluster.at("headGroupSpec")
            services.append(head.at("headService", "spec"))
            if head.get("serviceType") not in (None, "ClusterIP"):
                problem = f"{head.get('serviceType')}: wanted ClusterIP"
                yield head.at("serviceType").fault(problem, inside)
            if head.get("enableIngress"):
                yield head.at("enableIngress").fault("opens Ray's dashboard; wanted false", inside)
        for service in services:
            if service.get("type") not in (None, "ClusterIP"):
                yield service.at("type").fault(f"{service.get('type')}: wanted ClusterIP", inside)
            if service.get("externalIPs"):
                yield service.at("externalIPs").fault("opens its ports to outside", inside)
        if document.plain.get("kind") == "Ingress" and not part.get("spec", "tls"):
            yield part.at("spec", "tls").fault("is missing: tokens could be read on their way", "add it")
        if document.plain.get("kind") == "NetworkPolicy":
            yield from _open_to_all(part.at("spec", "ingress"))
        for pod in pods(document):
            if pod.get("hostNetwork"):
                yield pod.at("hostNetwork").fault("every port is one of the node's", "take it out")
            for port in (port for each in containers(pod) for port in each.at("ports").each()):
                if port.get("hostPort"):
                    yield port.at("hostPort").fault(f"port {port.get('hostPort')} of the node", "take it out")
    yield from _without_a_policy(documents)


def _open_to_all(ingress: Part) -> Iterator[Fault]:
    for rule in ingress.each():
        if not rule.get("from"):
            yield rule.fault("open to everybody; wanted `from`", "say who may come in")
        for peer in rule.at("from").each():
            if str(peer.get("ipBlock", "cidr")).endswith("/0"):
                yield peer.at("ipBlock", "cidr").fault("open to the world", "say who may come in")
            if peer.get("namespaceSelector") == {} and not peer.get("podSelector"):
                yield peer.fault("open to every pod in Kubernetes", "say which namespaces may come in")


def _without_a_policy(documents: Sequence[Document]) -> Iterator[Fault]:
    """Namespaces that are made here and not closed here."""
    closed = [
        each.get("metadata", "namespace")
        for each in map(whole, documents)
        if each.get("kind") == "NetworkPolicy"
        and each.get("spec", "podSelector") == {}
        and "Ingress" in [kind.value for kind in each.at("spec", "policyTypes").each()]
        and not each.get("spec", "ingress")
    ]
    for made in (whole(each) for each in documents if each.plain.get("kind") == "Namespace"):
        if made.get("metadata", "name") not in closed:
            hint = "add a NetworkPolicy with `podSelector: {}` and `policyTypes: [Ingress]`"
            yield made.fault("every pod in Kubernetes may call those in it", hint)


def limits(documents: Sequence[Document]) -> Iterator[Fault]:
    asked = [container.at("resources") for _, container in each_container(documents)]
    asked += [each.at("autoscalerOptions", "resources") for each in each_cluster(documents)]
    for part in asked:
        for kind in ("requests", "limits"):
            missing = [unit for unit in ("cpu", "memory") if quantity(part.get(kind, unit)) is None]
            if missing:
                problem = f"no {' and no '.join(missing)}"
                yield part.at(kind).fault(problem, "say what it takes, and what at most")


def no_root(documents: Sequence[Document]) -> Iterator[Fault]:
    for document in documents:
        for pod in pods(document):
            for key in ("hostPID", "hostIPC"):
                if pod.get(key):
                    yield pod.at(key).fault("shares the node's", "take it out")
            for volume in (each for each in pod.at("volumes").each() if each.get("hostPath")):
                yield volume.at("hostPath").fault("a folder of the node", "use emptyDir, or a bucket")
    for pod, container in each_container(documents):
        own, common = container.at("securityContext"), pod.at("securityContext")
        yield from _unprivileged(own)
        for key, wanted in (("runAsNonRoot", (True,)), ("seccompProfile", ("RuntimeDefault", "Localhost"))):
            place = (key, "type") if key == "seccompProfile" else (key,)
            given = own.get(*place) if own.get(key) is not None else common.get(*place)
            if given not in wanted:
                problem = f"{'is missing' if given is None else given}: wanted {wanted[0]}"
                yield own.at(*place).fault(problem, "set it for the pod, or here")
        for context in (own, common):
            if context.whole("runAsUser") == 0 or context.whole("runAsGroup") == 0:
                yield context.fault("root", "take another user, as 1000")
    for cluster in each_cluster(documents):
        yield from _unprivileged(cluster.at("autoscalerOptions", "securityContext"))
    for job in (whole(each).at("spec") for each in documents if each.plain.get("kind") == "RayJob"):
        mode = job.at("submissionMode")
        if mode.value in (None, "K8sJobMode") and job.get("submitterPodTemplate") is None:
            problem = f"{mode.given}: KubeRay submits from a pod of its own making; wanted HTTPMode"
            yield mode.fault(problem, "set it, or give a submitterPodTemplate")


def _unprivileged(context: Part) -> Iterator[Fault]:
    if context.get("privileged"):
        yield context.at("privileged").fault("the container is as good as the node", "take it out")
    if context.get("allowPrivilegeEscalation") is not False:
        yield context.at("allowPrivilegeEscalation").fault("wanted false", "set it")
    dropped = [each.value for each in context.at("capabilities", "drop").each()]
    if "ALL" not in dropped or context.get("capabilities", "add"):
        yield context.at("capabilities").fault("wanted {drop: [ALL]}", "set it")


def secrets(documents: Sequence[Document]) -> Iterator[Fault]:
    """Values are not repeated."""
    hint = "make a Secret by `kubectl create secret`, and refer to it by secretKeyRef or a volume"
    seen: set[Path] = set()
    for document in documents:
        if document.path not in seen:
            yield from rules.secrets_in(document)
        seen.add(document.path)
        part = whole(document)
        for key in ("data", "stringData"):
            for each in part.at(key).each() if document.plain.get("kind") == "Secret" else ():
                yield each.fault("a secret in a file", hint)
        for each in part.at("data").each() if document.plain.get("kind") == "ConfigMap" else ():
            if _SECRET.search(str(each.place[-1])):
                yield each.fault("a secret where everybody reads it", hint)
        if part.get("secretGenerator"):
            yield part.at("secretGenerator").fault("a secret in a file", hint)
    given = [each for _, container in each_container(documents) for each in variables(container)]
    for cluster in each_cluster(documents):
        given += variables(cluster.at("autoscalerOptions"))
        for key in ("redisPassword", "redisUsername"):
            given.append(("PASSWORD", cluster.at("gcsFaultToleranceOptions", key)))
    for name, variable in given:
        if _SECRET.search(name) and variable.get("value"):
            yield variable.fault("a secret in a file", hint)
    for job in (whole(each).at("spec", "runtimeEnvYAML") for each in documents):
        for name in _environment(job.value):
            if _SECRET.search(name):
                yield job.fault(f"{name}: a secret in a file", hint)


def _environment(text: Any) -> list[str]:
    """The variables of a runtime environment."""
    try:
        plain = yaml.safe_load(text) if isinstance(text, str) else None
    except yaml.YAMLError:
        return []
    given = plain.get("env_vars") if isinstance(plain, dict) else None
    return [str(name) for name in given] if isinstance(given, dict) else []


def images(documents: Sequence[Document]) -> Iterator[Fault]:
    named = [container.at("image") for _, container in each_container(documents)]
    chosen = [each.at("autoscalerOptions", "image") for each in each_cluster(documents)]
    named += [part for part in chosen if part.value is not None]
    for part in named:
        name, _, tag = str(part.value or "").rpartition("/")[2].partition(":")
        if not name or ("@sha256" not in name and tag in ("", "latest")):
            yield part.fault(f"{part.value}: wanted a version", "name the tag that was built, or its digest")
    for each in (each for document in documents for each in whole(document).at("images").each()):
        if each.get("newTag") == "latest":
            yield each.at("newTag").fault("latest: wanted a version", "name the tag that was built")


def namespace(documents: Sequence[Document]) -> Iterator[Fault]:
    for part in map(whole, documents):
        there = part.at("metadata", "namespace")
        if part.get("kind") not in _CLUSTER_WIDE and there.value in (None, *_SHARED):
            yield there.fault(f"{there.given}: wanted one of its own", "set it")


def store(documents: Sequence[Document]) -> Iterator[Fault]:
    for part in map(whole, documents):
        made = part.at("configMapGenerator").each()
        for each in (each for part in made for each in part.at("literals").each()):
            key, _, value = str(each.value).partition("=")
            if key == "store" and not value.startswith(rules.BUCKETS):
                problem = f"{value or 'is missing'}: wanted one of {', '.join(rules.BUCKETS)}"
                yield each.fault(problem, "pods come and go: what they write must lie in a bucket")
