"""KubeRay's own definitions of its kinds, as JSON schemas that refuse what they do not name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cbe.cluster.files import Document
from cbe.errors import InputError

VERSION = "ray.io/v1"


def matching(documents: Iterable[Document], crds: Path) -> Iterator[tuple[Document, dict[str, Any]]]:
    """The documents of a kind that a folder of CRDs defines, each with its schema."""
    schemas = _schemas(crds)
    for document in documents:
        kind = str(document.plain.get("kind"))
        if kind in schemas:
            yield document, schemas[kind]


@cache
def _schemas(crds: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    try:
        for path in sorted(crds.glob("*.y*ml")):
            for plain in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader):
                if plain and plain.get("kind") == "CustomResourceDefinition":
                    spec = plain["spec"]
                    for each in spec["versions"]:
                        if f"{spec['group']}/{each['name']}" == VERSION:
                            schema = each["schema"]["openAPIV3Schema"]
                            found[spec["names"]["kind"]] = _strict(schema)
    except (OSError, ValueError, yaml.YAMLError, AttributeError, LookupError, TypeError) as error:
        raise InputError(
            f"{crds}: cannot be read as CRDs ({error!r}); give the folder of KubeRay's"
        ) from None
    if "RayCluster" not in found:
        raise InputError(
            f"{crds}: has no definition of RayCluster in {VERSION}; give the folder of KubeRay's CRDs "
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
