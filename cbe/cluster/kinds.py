"""What may stand in a manifest: by KubeRay's own definitions where they are at hand, and by a short list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cbe.cluster.files import Document
from cbe.cluster.parts import Part, whole
from cbe.errors import Fault, InputError
from cbe.spec.suggestions import did_you_mean

MOST_SHOWN = 60  # characters of a value that is wrong
RAY = "ray.io/v1"
KUSTOMIZATION = "kustomize.config.k8s.io/v1beta1"

_HEAD = ("apiVersion", "kind", "metadata")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_POD = ("properties", "spec", "properties", "headGroupSpec", "properties", "template")
_POLICY = ("properties", "spec", "properties", "networkPolicy", "properties", "head", "properties")

# Of each kind the version, what stands beside apiVersion, kind and metadata, and what may stand in `spec`.
_KINDS: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "ConfigMap": ("v1", ("data", "binaryData", "immutable"), ()),
    "Deployment": (
        "apps/v1",
        ("spec",),
        (
            *("minReadySeconds", "paused", "progressDeadlineSeconds", "replicas", "revisionHistoryLimit"),
            *("selector", "strategy", "template"),
        ),
    ),
    "Ingress": ("networking.k8s.io/v1", ("spec",), ("defaultBackend", "ingressClassName", "rules", "tls")),
    "Namespace": ("v1", ("spec",), ("finalizers",)),
    "NetworkPolicy": ("networking.k8s.io/v1", ("spec",), ("egress", "ingress", "podSelector", "policyTypes")),
    "PodDisruptionBudget": (
        "policy/v1",
        ("spec",),
        ("maxUnavailable", "minAvailable", "selector", "unhealthyPodEvictionPolicy"),
    ),
    "RayCluster": (RAY, ("spec",), ()),
    "RayJob": (RAY, ("spec",), ()),
    "RayService": (RAY, ("spec",), ()),
    "Secret": ("v1", ("data", "immutable", "stringData", "type"), ()),
    "Service": (
        "v1",
        ("spec",),
        (
            *("clusterIP", "externalIPs", "externalTrafficPolicy", "internalTrafficPolicy", "ipFamilyPolicy"),
            *("loadBalancerSourceRanges", "ports", "publishNotReadyAddresses", "selector", "sessionAffinity"),
            "type",
        ),
    ),
    "ServiceAccount": ("v1", ("automountServiceAccountToken", "imagePullSecrets", "secrets"), ()),
}
_KUSTOMIZATION_KEYS = (
    *("apiVersion", "kind", "resources", "components", "images", "namespace", "labels", "patches"),
    *("replicas", "configMapGenerator", "secretGenerator", "generatorOptions", "replacements"),
)


def shapes(documents: Sequence[Document]) -> Iterator[Fault]:
    """Whether each document says what it is, and has no key that its kind does not know."""
    for document in documents:
        yield from _kustomization(document) if _is_kustomization(document) else _object(document)


def by_kuberay(documents: Sequence[Document], crds: Path) -> Iterator[Fault]:
    """What KubeRay's definitions in a folder say, also of pods and policies that are not Ray's."""
    schemas = _schemas(crds)
    pod = _inner(schemas["RayCluster"], _POD)
    for document in documents:
        kind, top = str(document.plain.get("kind")), whole(document)
        if kind in schemas:
            yield from _held(top, schemas[kind])
        elif kind == "Deployment":
            yield from _held(top.at("spec", "template"), pod)
        elif kind == "NetworkPolicy":
            for key in ("ingress", "egress"):
                rules = top.at("spec", key)
                if rules.value is not None:
                    yield from _held(rules, _inner(schemas["RayCluster"], (*_POLICY, f"{key}Rules")))


def _is_kustomization(document: Document) -> bool:
    return document.plain.get("kind") == "Kustomization"


def _object(document: Document) -> Iterator[Fault]:
    part = whole(document)
    kind = part.get("kind")
    missing = [key for key in ("apiVersion", "kind") if not isinstance(part.get(key), str)]
    yield from (part.at(key).fault("is missing", "each document begins with it") for key in missing)
    name = part.get("metadata", "name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        wanted = "small letters, digits and dashes"
        yield part.at("metadata", "name").fault(f"{name!r}: wanted {wanted}", "name it")
    if missing or kind not in _KINDS:
        return
    version, beside, spec = _KINDS[kind]
    if part.get("apiVersion") != version:
        yield part.at("apiVersion").fault(f"{part.get('apiVersion')!r}: wanted {version}", "change it")
    yield from _unknown(part, (*_HEAD, *beside))
    if spec:
        yield from _unknown(part.at("spec"), spec)
    if beside == ("spec",) and kind != "Namespace" and not isinstance(part.get("spec"), dict):
        yield part.at("spec").fault("is missing", "write what it is to be")


def _kustomization(document: Document) -> Iterator[Fault]:
    part = whole(document)
    if part.get("apiVersion") != KUSTOMIZATION:
        yield part.at("apiVersion").fault(f"{part.get('apiVersion')!r}: wanted {KUSTOMIZATION}", "change it")
    yield from _unknown(part, _KUSTOMIZATION_KEYS)
    for each in part.at("resources").each():
        if not (document.path.parent / str(each.value)).exists():
            yield each.fault(f"{each.value}: there is no such file", "take it out, or write it")


def _unknown(part: Part, known: Sequence[str]) -> Iterator[Fault]:
    for each in part.each() if isinstance(part.value, dict) else ():
        key = str(each.place[-1])
        if key not in known:
            yield each.fault("unknown key", did_you_mean(key, known))


@cache
def _schemas(crds: Path) -> dict[str, dict[str, Any]]:
    """The strict schema of each kind that a folder defines."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(crds.glob("*.y*ml")) if crds.is_dir() else ():
        for plain in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader):
            if plain and plain.get("kind") == "CustomResourceDefinition":
                for each in plain["spec"]["versions"]:
                    if f"{plain['spec']['group']}/{each['name']}" == RAY:
                        found[plain["spec"]["names"]["kind"]] = _strict(each["schema"]["openAPIV3Schema"])
    if "RayCluster" not in found:
        raise InputError(
            f"{crds}: has no definition of RayCluster in {RAY}; give the folder of KubeRay's CRDs "
            "(helm-chart/kuberay-operator/crds in its repository)"
        )
    return found


def _strict(schema: Any) -> Any:
    """A schema of Kubernetes as JSON's own, which refuses what it does not name."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    properties = schema.get("properties")
    strict = {key: _strict(value) for key, value in schema.items() if key != "properties"}
    if isinstance(properties, dict):
        strict["properties"] = {name: _strict(each) for name, each in properties.items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            strict.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        strict = {**strict, "anyOf": [{"type": "integer"}, {"type": "string"}]}
        strict.pop("type", None)
    if schema.get("nullable") and isinstance(schema.get("type"), str):
        strict["type"] = [schema["type"], "null"]
    return strict


def _inner(schema: dict[str, Any], place: Sequence[str]) -> dict[str, Any]:
    """The schema below another; one that takes everything where an older KubeRay has none."""
    for key in place:
        schema = schema.get(key, {})
    return schema


def _held(part: Part, schema: dict[str, Any]) -> Iterator[Fault]:
    """What of a part does not fit a schema."""
    import jsonschema

    for error in jsonschema.Draft7Validator(schema).iter_errors(part.value):
        there = part.at(*error.absolute_path)
        if error.validator == "additionalProperties":
            yield from _unknown(there, tuple(error.schema.get("properties", {})))
        elif error.validator == "required":
            for key in error.validator_value:
                if key not in error.instance:
                    yield there.at(key).fault("is missing", "add it")
        else:
            given = (
                type(there.value).__name__ if "env" in there.place else repr(there.value)
            )  # may be a secret
            shown = given if len(given) <= MOST_SHOWN else f"{given[:MOST_SHOWN]}…"
            wanted = f"{error.validator} {error.validator_value}"[:MOST_SHOWN]
            yield there.fault(f"{shown}: wanted {wanted}", "change it")
