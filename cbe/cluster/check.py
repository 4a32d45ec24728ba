"""Whether cluster files can be brought up, and keep our rules; needs no cloud and no network."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cbe.cluster import rules
from cbe.cluster.files import ClusterFile, Document, read
from cbe.cluster.groups import Group, ray_groups
from cbe.errors import ConfigError, Fault, InputError
from cbe.spec.suggestions import did_you_mean

MOST_SHOWN = 60  # characters of a value that is wrong


@dataclass(frozen=True)
class Checked:
    """A cluster that passed."""

    file: ClusterFile
    groups: tuple[Group, ...]

    def to_plain(self) -> dict[str, Any]:
        return {
            "file": str(self.file.path),
            "kind": self.file.kind,
            "groups": [each.name for each in self.groups if not each.head],
            "spot": [each.name for each in self.groups if each.spot],
        }


def check(paths: Iterable[Path], crds: Path | None = None) -> list[Checked]:
    """The clusters that files and folders describe; ConfigError with every fault of all of them.

    Manifests are also held against KubeRay's own definitions, where `crds` is a folder that has them.
    """
    passed: list[Checked] = []
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
                passed.append(Checked(file, tuple(groups(file))))
    if found:
        raise ConfigError(found)
    return passed


def faults(file: ClusterFile, crds: Path | None = None) -> list[Fault]:
    """Everything that is wrong with one cluster."""
    if file.kind == "kubernetes":
        from cbe.cluster import manifests

        return manifests.faults(file.documents, crds)
    document = file.document
    return [*_by_ray(document), *rules.faults(document)]


def groups(file: ClusterFile) -> list[Group]:
    if file.kind == "kubernetes":
        from cbe.cluster import manifests

        return manifests.groups(file.documents)
    return ray_groups(file.document)


def _by_ray(document: Document) -> Iterator[Fault]:
    """What Ray's own validation says, but every fault of it instead of the first."""
    import jsonschema
    import ray.autoscaler
    from ray.autoscaler._private.util import prepare_config, validate_config

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    errors = list(jsonschema.Draft7Validator(schema).iter_errors(document.plain))
    yield from (fault for error in errors for fault in _told(document, error))
    if errors:
        return  # Ray would trip over them
    try:
        quiet = io.StringIO()  # it talks of Docker, which nobody uses
        with redirect_stdout(quiet), redirect_stderr(quiet):
            validate_config(prepare_config(copy.deepcopy(document.plain)))
    except jsonschema.ValidationError as error:
        yield from _told(document, error)
    except Exception as error:  # Ray's own are of many kinds
        problem = " ".join(str(error).split()) or type(error).__name__
        yield Fault(str(document.path), f"{problem} [ray]", "cluster/aws.yaml is one that it takes")


def _told(document: Document, error: Any) -> Iterator[Fault]:
    place = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        allowed = list(error.schema.get("properties", {}))
        for key in sorted(error.instance.keys() - allowed):
            yield Fault(document.where(*place, key), "unknown key [ray]", did_you_mean(key, allowed))
    elif error.validator == "required":
        for key in (key for key in error.validator_value if key not in error.instance):
            yield Fault(document.where(*place, key), "is missing [ray]", "add it")
    else:
        given = json.dumps(error.instance, default=str)
        shown = given if len(given) <= MOST_SHOWN else f"{given[:MOST_SHOWN]}…"
        wanted = f"{error.validator} {json.dumps(error.validator_value, default=str)[:MOST_SHOWN]}"
        yield Fault(document.where(*place), f"{shown}: wanted {wanted} [ray]", "change it")
