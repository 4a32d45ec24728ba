"""Whether cluster files can be brought up, and keep our rules; needs no cloud and no network."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cbe.cluster import rules
from cbe.cluster.files import ClusterFile, Document, read
from cbe.cluster.groups import NodeGroup, node_groups, ray_groups
from cbe.errors import ConfigError, Fault, InputError
from cbe.spec.suggestions import did_you_mean

MOST_SHOWN = 60  # characters of a value that is wrong


@dataclass(frozen=True)
class CheckedCluster:
    """A cluster that passed."""

    file: ClusterFile
    groups: tuple[NodeGroup, ...]

    def to_plain(self) -> dict[str, Any]:
        return {
            "file": str(self.file.path),
            "kind": self.file.kind,
            "groups": [each.name for each in self.groups if not each.head],
            "spot": [each.name for each in self.groups if each.spot],
        }


def check(paths: Iterable[Path], crds: Path | None = None) -> list[CheckedCluster]:
    """The clusters that files and folders describe; ConfigError with every fault of all of them.

    Manifests are also held against KubeRay's own definitions, where `crds` is a folder that has them.
    """
    passed: list[CheckedCluster] = []
    found: list[Fault] = []
    for path in paths:
        try:
            files = read(path)
        except ConfigError as error:
            found += error.faults
            continue
        except InputError as error:
            where, _, problem = str(error).partition(": ")
            found.append(Fault(where, problem))
            continue
        for file in files:
            wrong = faults(file, crds)
            found += wrong
            if not wrong:
                passed.append(CheckedCluster(file, tuple(node_groups(file))))
    if found:
        raise ConfigError(found)
    return passed


def faults(file: ClusterFile, crds: Path | None = None) -> list[Fault]:
    """Everything that is wrong with one cluster."""
    if file.kind == "ray":
        chosen = rules.LOCAL_RULES if rules.is_local(file.document) else rules.RULES
        kept = rules.broken(chosen, file.document, ray_groups(file.document))
        return [*faults_by_ray(file), *kept]
    from cbe.cluster import manifest_rules, manifest_schemas
    from cbe.cluster.manifest_groups import manifest_groups

    found: list[Fault] = []
    for document in file.documents:
        groups: list[NodeGroup] = []
        try:
            groups = manifest_groups([document])
        except ConfigError as error:
            found += error.faults
        found += rules.broken(manifest_rules.RULES, document, groups)
    if crds is not None:
        for document, schema in manifest_schemas.matching(file.documents, crds):
            found += schema_faults(document, schema, "kuberay")
    return found


def faults_by_ray(file: ClusterFile) -> list[Fault]:
    """What Ray's own validation says: every fault of its schema instead of the first."""
    import ray.autoscaler
    from ray.autoscaler._private.util import prepare_config, validate_config

    document = file.document
    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    found = list(schema_faults(document, schema, "ray"))
    if found:
        return found  # Ray would trip over them
    try:
        quiet = io.StringIO()  # it talks of Docker, which nobody uses
        with redirect_stdout(quiet), redirect_stderr(quiet):
            validate_config(prepare_config(copy.deepcopy(document.plain)))
    except Exception as error:  # Ray's own are of many kinds
        problem = " ".join(str(getattr(error, "message", error)).split()) or type(error).__name__
        return [Fault(str(document.path), f"{problem} [ray]", "cluster/aws.yaml is one that it takes")]
    return []


def schema_faults(document: Document, schema: Mapping[str, Any], name: str) -> Iterator[Fault]:
    """What of a document does not fit a JSON schema."""
    import jsonschema

    try:
        errors = list(jsonschema.Draft7Validator(schema).iter_errors(document.plain))
    except TypeError:
        yield Fault(str(document.path), f"a key is a number or a date: wanted text [{name}]", "quote it")
        return
    for error in errors:
        place = tuple(error.absolute_path)
        if error.validator == "additionalProperties":
            allowed = list(error.schema.get("properties", {}))
            for key in sorted(map(str, error.instance.keys() - allowed)):
                yield Fault(document.where(*place, key), f"unknown key [{name}]", did_you_mean(key, allowed))
        elif error.validator == "required":
            for key in (key for key in error.validator_value if key not in error.instance):
                yield Fault(document.where(*place, key), f"is missing [{name}]", "add it")
        else:
            # A pod's environment may hold a secret.
            given = type(error.instance).__name__ if "env" in place else repr(error.instance)
            shown = given if len(given) <= MOST_SHOWN else f"{given[:MOST_SHOWN]}…"
            wanted = f"{error.validator} {error.validator_value}"[:MOST_SHOWN]
            yield Fault(document.where(*place), f"{shown}: wanted {wanted} [{name}]", "change it")
