"""What we ask of manifests for Kubernetes; the API server and KubeRay find what else is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version

from cbe.cluster.files import Document, at
from cbe.cluster.groups import NodeGroup
from cbe.cluster.manifest_groups import cluster_specs
from cbe.cluster.rules import BUCKETS, MOST_IDLE_MIN, Rule, fallback, long_idle_groups, texts
from cbe.errors import Fault

MOST_IDLE_S = 60 * MOST_IDLE_MIN


def idle_timeout(document: Document, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """Idle pods leave within half an hour."""
    for spec in cluster_specs([document]):
        given = spec.at(object, "autoscalerOptions", "idleTimeoutSeconds")
        if not isinstance(given, int) or not 0 < given <= MOST_IDLE_S:
            yield Fault(
                spec.where("autoscalerOptions", "idleTimeoutSeconds"),
                f"{_shown(given)}: wanted 1 to {MOST_IDLE_S} seconds",
                "set it to 120: a node that nobody uses costs money",
            )
    yield from long_idle_groups(document, groups, "idleTimeoutSeconds")


def auth(document: Document, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """Ray asks for its token, and no pod turns that off."""
    for spec in cluster_specs([document]):
        mode = spec.at(object, "authOptions", "mode")
        if mode != "token":
            yield Fault(
                spec.where("authOptions", "mode"),
                f"{_shown(mode)}: wanted token",
                "set authOptions: {mode: token, secretName: …}",
            )
    for place, text in texts(document.plain):
        value = at(document.plain, object, *place[:-1], "value")
        if text == "RAY_AUTH_MODE" and place[-1] == "name" and value != "token":
            yield Fault(
                document.where(*place[:-1], "value"), f"RAY_AUTH_MODE {value}: wanted token", "take it out"
            )


def store(document: Document, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """The store is a bucket: the disk of a pod leaves with the pod."""
    for index, made in enumerate(at(document.plain, list, "configMapGenerator") or ()):
        for number, literal in enumerate(at(made, list, "literals") or ()):
            key, _, value = str(literal).partition("=")
            if key == "store" and not value.startswith(BUCKETS):
                yield Fault(
                    document.where("configMapGenerator", index, "literals", number),
                    f"{value or 'is missing'}: wanted one of {', '.join(BUCKETS)}",
                    f"write store={BUCKETS[0]}BUCKET/studies",
                )


def versions(document: Document, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """Pods run the Ray that is installed here."""
    for spec in cluster_specs([document]):
        given = spec.at(object, "rayVersion")
        if given != version("ray"):
            yield Fault(
                spec.where("rayVersion"),
                f"{_shown(given)}: wanted {version('ray')}, as here",
                "change it, and the image",
            )


RULES: list[Rule] = [fallback, idle_timeout, auth, store, versions]


def _shown(given: object) -> str:
    return "is missing" if given is None else str(given)
