"""Reading cluster files: those of `ray up`, and manifests for Kubernetes, one by one or a folder of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from cbe.errors import InputError
from cbe.spec.faults import KeyPath, where_in
from cbe.spec.files import MAX_BYTES
from cbe.spec.yaml_text import parse

Kind = TypeVar("Kind")

# Where the Ray cluster is in a manifest of each kind that has one.
CLUSTERS: dict[str, KeyPath] = {
    "RayCluster": ("spec",),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayService": ("spec", "rayClusterConfig"),
}
_NEXT_DOCUMENT = re.compile(r"^---(?=\s|$)", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    """One YAML document, and where in which file its values stand."""

    path: Path
    plain: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def where(self, *place: str | int) -> str:
        """How a fault names a place in it.

        >>> Document(Path("aws.yaml"), {}, {("auth",): 7}).where("auth", "ssh_user")
        'aws.yaml:7 auth.ssh_user'
        """
        return where_in(place, self.path, self.lines).strip()


@dataclass(frozen=True)
class ClusterFile:
    """What one cluster is made from: a file of `ray up`, or the manifests of one file or folder."""

    path: Path
    kind: Literal["ray", "kubernetes"]
    documents: tuple[Document, ...]

    @property
    def document(self) -> Document:
        """The one document of a file of `ray up`."""
        return self.documents[0]


def read(path: Path) -> list[ClusterFile]:
    """The cluster files at a path; the manifests that lie in one folder belong together."""
    if not path.is_dir():
        return [_cluster(path, tuple(_documents(path)))]
    found: list[ClusterFile] = []
    manifests: dict[Path, list[Document]] = {}
    for file in sorted(path.rglob("*.y*ml")):
        documents = tuple(_documents(file))
        if _kind(documents) == "ray":
            found.append(_cluster(file, documents))
        else:
            manifests.setdefault(file.parent, []).extend(documents)
    found += [_cluster(folder, tuple(each)) for folder, each in manifests.items()]
    if not found:
        raise InputError(f"{path}: has no YAML files; give a cluster file or a folder of manifests")
    return found


def _cluster(path: Path, documents: tuple[Document, ...]) -> ClusterFile:
    """What documents make together; refuses what describes no cluster, as a study file."""
    kind = _kind(documents)
    if kind == "ray" and not {"cluster_name", "provider"} & documents[0].plain.keys():
        raise InputError(
            f"{path}: is no cluster file; wanted cluster_name and provider, as in cluster/aws.yaml"
        )
    given = {str(each.plain.get("kind")): None for each in documents}
    if kind == "kubernetes" and not CLUSTERS.keys() & given.keys():
        raise InputError(
            f"{path}: describes no Ray cluster, but {', '.join(given)[:80]}; wanted one of "
            f"{', '.join(CLUSTERS)}, as in cluster/kuberay"
        )
    return ClusterFile(path, kind, documents)


def read_one(path: Path) -> ClusterFile:
    """The one cluster at a path."""
    found = read(path)
    if len(found) > 1:
        names = ", ".join(str(each.path) for each in found)
        raise InputError(f"{path}: describes {len(found)} clusters ({names}); give one of them")
    return found[0]


def at(plain: Any, kind: type[Kind] | tuple[type[Kind], ...], *place: str | int) -> Kind | None:
    """What stands at a place, if it is of a kind.

    >>> at({"a": [{"b": 1}]}, int, "a", 0, "b"), at({"a": 1}, int, "a", "b")
    (1, None)
    """
    for part in place:
        if isinstance(plain, dict):
            plain = plain.get(part)
        elif isinstance(plain, list) and isinstance(part, int) and part < len(plain):
            plain = plain[part]
        else:
            return None
    # A switch is no number, though Python has it so.
    return plain if isinstance(plain, kind) and (kind is bool or not isinstance(plain, bool)) else None


def _kind(documents: tuple[Document, ...]) -> Literal["ray", "kubernetes"]:
    kubernetes = any({"apiVersion", "kind"} & each.plain.keys() for each in documents)
    return "kubernetes" if kubernetes or len(documents) > 1 else "ray"


def _documents(path: Path) -> Iterator[Document]:
    """The documents of a file; each keeps the line numbers of the file."""
    text = _text(path)
    starts = [0, *(match.end() for match in _NEXT_DOCUMENT.finditer(text))]
    ends = [*(match.start() for match in _NEXT_DOCUMENT.finditer(text)), len(text)]
    parts = [(text.count("\n", 0, start), text[start:end]) for start, end in zip(starts, ends, strict=True)]
    found = [(before, *parse("\n" * before + part, path)) for before, part in parts]
    filled = [Document(path, plain, lines) for _, plain, lines in found if plain]
    if not filled:
        raise InputError(f"{path}: is empty; cluster/aws.yaml and cluster/kuberay show what goes in")
    yield from filled


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES:,} bytes; this is not a cluster file")
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give a cluster file, as cluster/aws.yaml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error}); give a YAML file") from None
