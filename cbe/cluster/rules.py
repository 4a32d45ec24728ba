"""What we ask of a file of `ray up`, beyond what Ray does.

A rule is a function that yields faults; its name ends their text. Add one to `RULES`, with a broken file in
`tests/cluster/test_files.py`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

from cbe import __version__
from cbe.clouds import CLOUDS
from cbe.cluster.files import Document, at
from cbe.cluster.groups import NodeGroup
from cbe.errors import Fault
from cbe.spec.faults import KeyPath

MOST_IDLE_MIN = 30
BUCKETS = tuple(f"{scheme}://" for scheme in CLOUDS)
TOKEN = "~/.ray/auth_token"
PYTHON = (3, 11)  # the oldest that pyproject.toml takes

_START = ("head_start_ray_commands", "worker_start_ray_commands")

Rule = Callable[[Document, Sequence[NodeGroup]], Iterator[Fault]]


def fallback(document: Document, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """Each spot group has an on-demand group with the same resources, and is tried before it."""
    workers = [group for group in groups if not group.head]
    for group in (group for group in workers if group.spot):
        same = [each for each in workers if not each.spot and each.max and each.resources == group.resources]
        most = max((each.priority for each in same), default=group.priority - 1)
        if not same:
            offer = ", ".join(f"{name}: {count:g}" for name, count in group.resources.items())
            yield Fault(
                document.where(*group.place),
                f"{group.name} is spot, and nothing replaces it; wanted a group on demand with {{{offer}}}",
                f"copy it as {group.name}-on-demand, without what makes it spot",
            )
        elif group.priority <= most:
            yield Fault(
                document.where(*group.place),
                f"priority {group.priority}: wanted more than {most}, that of the group on demand",
                f"give it priority {most + 1}",
            )


def idle_timeout(document: Document, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """Idle nodes stop within half an hour."""
    given = document.plain.get("idle_timeout_minutes")
    minutes = at(document.plain, (int, float), "idle_timeout_minutes")
    if given is None or (minutes is not None and not 0 < minutes <= MOST_IDLE_MIN):  # else Ray tells
        yield Fault(
            document.where("idle_timeout_minutes"),
            f"{'is missing' if given is None else given}: wanted 1 to {MOST_IDLE_MIN} minutes",
            "set it to 5: a node that nobody uses costs money",
        )
    yield from long_idle_groups(document, groups, "idle_timeout_s")


def long_idle_groups(document: Document, groups: Sequence[NodeGroup], key: str) -> Iterator[Fault]:
    """The groups with a longer timeout of their own, which stands at a key."""
    for group in groups:
        if group.idle_s is not None and not 0 < group.idle_s <= 60 * MOST_IDLE_MIN:
            yield Fault(
                document.where(*group.place, key),
                f"{group.idle_s:g}: wanted 1 to {60 * MOST_IDLE_MIN} seconds",
                "leave it out: the group then has the timeout of the cluster",
            )


def auth(document: Document, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """Ray asks for its token on every node, and every node gets it."""
    for key in _START:
        starts = [(where, each) for where, each in _commands(document, key) if "ray start" in each]
        for where, command in starts or [(document.where(key), "")]:
            modes = re.findall(r"\bRAY_AUTH_MODE=(\w*)", command.partition("ray start")[0])
            if modes[-1:] != ["token"]:
                given = f"RAY_AUTH_MODE={modes[-1]}" if modes else "no RAY_AUTH_MODE"
                yield Fault(
                    where,
                    f"Ray is started with {given}: wanted RAY_AUTH_MODE=token",
                    "put `export RAY_AUTH_MODE=token;` before `ray start`, as in cluster/aws.yaml",
                )
    if TOKEN not in (at(document.plain, dict, "file_mounts") or {}):
        yield Fault(
            document.where("file_mounts"),
            f"nodes get no token: wanted {TOKEN}",
            f"add `{TOKEN}: {TOKEN}`",
        )


def store(document: Document, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """The service keeps its store in a bucket: the head's disk leaves with the head."""
    hint = f"start it with `cbe serve --store {BUCKETS[0]}BUCKET/studies`"
    serves = [each for each in _commands(document, _START[0]) if "cbe serve" in each[1]]
    if not serves:
        yield Fault(document.where(_START[0]), "the service is not started", hint)
    for where, command in serves:
        given = _option(command, "--store")
        if given is None or not given.startswith(BUCKETS):
            problem = f"--store {given or 'is missing'}: wanted one of {', '.join(BUCKETS)}"
            yield Fault(where, problem, hint)


def versions(document: Document, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """Nodes install the Ray and the release of this package that are installed here."""
    for own in ("head_setup_commands", "worker_setup_commands"):
        commands = [*_commands(document, "setup_commands"), *_commands(document, own)]
        for what, (pattern, wanted) in _INSTALLED.items():
            found = [(where, match[1]) for where, each in commands if (match := pattern.search(each))]
            for where, given in found or [(document.where(own), "")]:
                if given != wanted:
                    given = f"{what} {given}" if given else f"does not say which {what}"
                    yield Fault(where, f"{given}: wanted {wanted}, as here", "cluster/aws.yaml shows how")


def python(document: Document, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """Nodes have a Python that this package takes."""
    for key in ("setup_commands", "head_setup_commands", "worker_setup_commands"):
        for where, command in _commands(document, key):
            given = re.search(r"--python[ =](\d+)\.(\d+)", command)
            if given and (int(given[1]), int(given[2])) < PYTHON:
                wanted = "{}.{}".format(*PYTHON)
                yield Fault(
                    where, f"Python {given[1]}.{given[2]}: wanted {wanted} or newer", f"install {wanted}"
                )


_INSTALLED = {
    "Ray": (re.compile(r"\bray(?:\[[\w,]+\])?==([\w.]+)"), version("ray")),
    "release of cbe": (re.compile(r"\bcbe --version\b.*\s(\d[\w.+]*)$"), __version__),
}

RULES: list[Rule] = [fallback, idle_timeout, auth, store, versions, python]
LOCAL_RULES: list[Rule] = [idle_timeout]  # for the machine at hand


def is_local(document: Document) -> bool:
    """Whether the cluster is the machine at hand."""
    return at(document.plain, str, "provider", "type") == "local"


def broken(rules: Sequence[Rule], document: Document, groups: Sequence[NodeGroup]) -> list[Fault]:
    """The faults that rules find, each with the name of its rule."""
    return [
        Fault(fault.where, f"{fault.problem} [{rule.__name__.replace('_', '-')}]", fault.hint)
        for rule in rules
        for fault in rule(document, groups)
    ]


def unfilled(document: Document) -> Iterator[Fault]:
    """What is still to be written into a file before it can be brought up."""
    for place, value in texts(document.plain):
        for found in dict.fromkeys(re.findall(r"\byour-[a-z]+", value)):
            yield Fault(document.where(*place), f"{found} stands for a name of yours", "write that there")


def texts(plain: Any, place: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from texts(value, (*place, key))
    elif isinstance(plain, list):
        for index, value in enumerate(plain):
            yield from texts(value, (*place, index))
    elif isinstance(plain, str):
        yield place, plain


def _commands(document: Document, key: str) -> Iterator[tuple[str, str]]:
    """The commands of a file, each with its place."""
    for index, command in enumerate(at(document.plain, list, key) or ()):
        if isinstance(command, str):
            yield document.where(key, index), command


def _option(command: str, name: str) -> str | None:
    """The value of an option in a shell command."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None
