"""What we ask of a file of `ray up`, beyond what Ray does. Each rule has a name, which ends its faults."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from cbe import __version__
from cbe.clouds import CLOUDS
from cbe.cluster.files import Document, at
from cbe.cluster.groups import Group, gpu_classes, ray_groups
from cbe.errors import Fault

MOST_IDLE_MIN = 30
SSH = 22
BUCKETS = tuple(f"{scheme}://" for scheme in CLOUDS)
TOKEN = "~/.ray/auth_token"
NARROW = 16  # a network with fewer fixed bits than these is half the world

_START = ("head_start_ray_commands", "worker_start_ray_commands")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

Rule = Callable[[Document, list[Group]], Iterator[Fault]]


def faults(document: Document) -> list[Fault]:
    """Everything in a file that breaks a rule."""
    local = is_local(document)
    groups = ray_groups(document)
    return [
        Fault(fault.where, f"{fault.problem} [{name}]", fault.hint)
        for name, rule in (LOCAL_RULES if local else RULES).items()
        for fault in rule(document, groups)
    ]


def is_local(document: Document) -> bool:
    """Whether the cluster is the machine at hand."""
    return at(document.plain, str, "provider", "type") == "local"


def _fallback(document: Document, groups: list[Group]) -> Iterator[Fault]:
    for group in (group for group in groups if group.spot and not group.head):
        where = document.where("available_node_types", group.name)
        same = [
            other
            for other in groups
            if not other.spot and not other.head and other.resources == group.resources and other.max > 0
        ]
        if not same:
            yield Fault(
                where,
                f"nothing replaces these spot machines; wanted a group on demand with {_offer(group)}",
                f"copy the group as {group.name}-on-demand, without what makes it spot",
            )
        elif group.priority <= max(other.priority for other in same):
            first = max(same, key=lambda other: other.priority)
            yield Fault(
                where,
                f"priority {group.priority}: wanted more than the {first.priority} of {first.name}",
                f"give it priority {first.priority + 1}",
            )


def _offer(group: Group) -> str:
    return "{" + ", ".join(f"{name}: {count:g}" for name, count in group.resources.items()) + "}"


def _market(document: Document, groups: list[Group]) -> Iterator[Fault]:
    """Clouds take a word that they do not know for none, and bill the price on demand."""
    for group in (group for group in groups if "spot" in group.name.lower() and not group.spot):
        where = document.where("available_node_types", group.name, "node_config")
        word = _SPOT.get(at(document.plain, str, "provider", "type") or "")
        problem = "its name says spot, and nothing in here makes it so"
        yield Fault(where, problem, f"wanted `{word}`" if word else "give it another name")


_SPOT = {
    "aws": "InstanceMarketOptions: {MarketType: spot}",
    "gcp": "scheduling: {provisioningModel: SPOT}",
    "azure": "azure_arm_parameters: {priority: Spot}",
}


def _idle_timeout(document: Document, groups: list[Group]) -> Iterator[Fault]:
    minutes = at(document.plain, (int, float), "idle_timeout_minutes")
    hint = f"set idle_timeout_minutes to at most {MOST_IDLE_MIN}"
    if minutes is None:
        if "idle_timeout_minutes" not in document.plain:  # Ray tells what is of a wrong type
            yield Fault(document.where("idle_timeout_minutes"), "is missing", hint)
    elif not 0 < minutes <= MOST_IDLE_MIN:
        yield Fault(
            document.where("idle_timeout_minutes"), f"{minutes:g}: wanted 1 to {MOST_IDLE_MIN} minutes", hint
        )
    for group in groups:
        seconds = at(document.plain, (int, float), "available_node_types", group.name, "idle_timeout_s")
        if seconds is not None and seconds > 60 * MOST_IDLE_MIN:
            where = document.where("available_node_types", group.name, "idle_timeout_s")
            yield Fault(where, f"{seconds:g}: wanted at most {60 * MOST_IDLE_MIN} seconds", "leave it out")


def _ports(document: Document, groups: list[Group]) -> Iterator[Fault]:
    place = ("provider", "security_group", "IpPermissions")
    for index, rule in enumerate(at(document.plain, list, *place) or ()):
        first, last = at(rule, int, "FromPort"), at(rule, int, "ToPort")
        networks = [
            *(at(each, str, "CidrIp") for each in at(rule, list, "IpRanges") or ()),
            *(at(each, str, "CidrIpv6") for each in at(rule, list, "Ipv6Ranges") or ()),
        ]
        if any(map(_is_world, networks)) and (first, last) != (SSH, SSH):
            ports = f"ports {first} to {last}" if first != last else f"port {first}"
            yield Fault(
                document.where(*place, index),
                f"{ports} open to the world; wanted none but {SSH}",
                "take it out, and reach it by `ray attach FILE -p PORT`",
            )
    for group in groups:
        where = ("available_node_types", group.name, "node_config", "tags", "items")
        for tag in at(document.plain, list, *where) or ():
            if tag in ("http-server", "https-server"):
                problem = f"{tag}: a network tag by which Google opens a port to the world"
                yield Fault(document.where(*where), problem, "take it out")
    for here, command in _commands(document, _START):
        for option in ("--dashboard-host", "--host"):
            host = _option(command, option)
            if host is not None and host not in _LOOPBACK:
                problem = f"{option} {host} can be reached from other machines; wanted 127.0.0.1"
                yield Fault(here, problem, "reach it by `ray attach FILE -p PORT`")


def _is_world(network: str | None) -> bool:
    try:
        found = ipaddress.ip_network(network or "", strict=False)
    except ValueError:
        return False
    return not found.is_private and found.prefixlen < NARROW


def _auth(document: Document, groups: list[Group]) -> Iterator[Fault]:
    for key in _START:
        commands = [(where, each) for where, each in _commands(document, (key,)) if "ray start" in each]
        if not commands:
            yield Fault(document.where(key), "has no `ray start`", "take the commands of cluster/aws.yaml")
        for where, command in commands:
            modes = re.findall(r"\bRAY_AUTH_MODE=(\w*)", command[: command.index("ray start")])
            if modes[-1:] != ["token"]:
                problem = f"Ray is started with RAY_AUTH_MODE={''.join(modes[-1:])}; wanted token"
                yield Fault(where, problem, "put `export RAY_AUTH_MODE=token;` before `ray start`")
    if TOKEN not in (at(document.plain, dict, "file_mounts") or {}):
        problem = f"nodes get no token; wanted {TOKEN}"
        yield Fault(document.where("file_mounts"), problem, f"add `{TOKEN}: {TOKEN}`")


def _head(document: Document, groups: list[Group]) -> Iterator[Fault]:
    for group in (group for group in groups if group.head):
        where = document.where("available_node_types", group.name, "resources")
        cpus = group.resources.get("CPU")
        if cpus != 0 or group.gpus:
            given = "no CPU given" if cpus is None else f"CPU {cpus:g}, GPU {group.gpus:g}"
            problem = f"{given}: trials would run on the head; wanted {{CPU: 0}}"
            yield Fault(where, problem, "a trial that takes all memory there ends every study")
        if group.max:
            where = document.where("available_node_types", group.name, "max_workers")
            yield Fault(where, f"{group.max}: wanted 0", "the head is one machine")


def _from_zero(document: Document, groups: list[Group]) -> Iterator[Fault]:
    for group in (group for group in groups if group.min and not group.head):
        where = document.where("available_node_types", group.name, "min_workers")
        yield Fault(where, f"{group.min}: wanted 0", "nodes come when trials wait")
    if at(document.plain, int, "max_workers") is None:
        yield Fault(document.where("max_workers"), "is missing", "say how many workers there may be in all")


def _versions(document: Document, groups: list[Group]) -> Iterator[Fault]:
    for own in ("head_setup_commands", "worker_setup_commands"):
        commands = list(_commands(document, ("setup_commands", own)))
        for what, (pattern, wanted) in _INSTALLED.items():
            found = [(where, match[1]) for where, each in commands if (match := pattern.search(each))]
            if not found:
                hint = f"install {wanted}, as here; cluster/aws.yaml shows how"
                yield Fault(document.where(own), f"does not say which version of {what}", hint)
            for where, given in found:
                if given != wanted:
                    yield Fault(where, f"{what} {given}: wanted {wanted}, as here", "install that")


_INSTALLED = {
    "Ray": (re.compile(r"\bray(?:\[[\w,]+\])?==([\w.]+)"), version("ray")),
    "this package": (re.compile(r"\bcbe --version\b.*\s(\d[\w.+]*)$"), __version__),
}


def _gpu_classes(document: Document, groups: list[Group]) -> Iterator[Fault]:
    classes = gpu_classes(groups)
    for group in (group for group in groups if group.gpus or group.classes):
        where = document.where("available_node_types", group.name, "resources")
        if not group.classes:
            yield Fault(where, "does not say how much memory its cards have", "add gpu_24gb: 1, say")
            continue
        largest = max(group.classes)
        for size in (size for size in classes if size <= largest):
            if group.classes.get(size) != group.gpus:
                given = group.classes.get(size, 0)
                problem = f"gpu_{size}gb: {given:g}: wanted {group.gpus:g}, as many as GPU"
                yield Fault(where, problem, f"a card of {largest} GB takes trials for {size} GB, too")


def _store(document: Document, groups: list[Group]) -> Iterator[Fault]:
    found = [each for each in _commands(document, _START[:1]) if "cbe serve" in each[1]]
    if not found:
        problem = "the service is not started"
        yield Fault(document.where(_START[0]), problem, f"add `cbe serve --store {BUCKETS[0]}BUCKET/studies`")
    for where, command in found:
        store = _option(command, "--store")
        if "systemd-run" in command and _option(command, "--working-directory") is None:
            problem = "the service would work in /, where its drivers may write nothing"
            yield Fault(where, problem, "add --working-directory=$HOME to systemd-run")
        if store is None or not store.startswith(BUCKETS):
            problem = f"--store {store or 'is missing'}; wanted one of {', '.join(BUCKETS)}"
            yield Fault(where, problem, "nodes come and go: what they write must lie in a bucket")


_SECRETS = {
    "an access key of AWS": re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "a token of this service": re.compile(r"\bcbe_[A-Za-z0-9_-]{16,}"),
    "a token of GitHub": re.compile(r"\b(ghp|gho|ghs|github_pat)_[A-Za-z0-9_]{20,}"),
    "a key of Azure Storage": re.compile(r"\b(AccountKey=|sig=)[A-Za-z0-9+/%=]{16,}"),
    "a secret": re.compile(
        r"(?i)\b[\w-]*(secret_?(access_?)?key|auth_token|password|passwd|api_?key|credentials?)[\"']?\s*[:=]\s*"
        r"[\"']?(?![~$./<{\"'\s#]|secretName|null|none)\S{8,}"
    ),
}


def _secrets(document: Document, groups: list[Group]) -> Iterator[Fault]:
    """Looks at the text: a comment is read by as many people as the rest."""
    yield from secrets_in(document)
    if at(document.plain, dict, "provider", "gcp_credentials"):
        hint = "`gcloud auth application-default login`, or the machine's own account, does without"
        yield Fault(document.where("provider", "gcp_credentials"), "credentials in the file", hint)


def secrets_in(document: Document) -> Iterator[Fault]:
    """The lines of a document's file that look like secrets; they are not repeated."""
    for number, line in enumerate(document.path.read_text("utf-8").splitlines(), 1):
        found = next((name for name, pattern in _SECRETS.items() if pattern.search(line)), None)
        if found:
            hint = "take it out, make it invalid, and use a role of the machine or a file outside of this one"
            yield Fault(f"{document.path}:{number}", f"holds {found}", hint)


RULES: Mapping[str, Rule] = {
    "fallback": _fallback,
    "market": _market,
    "idle-timeout": _idle_timeout,
    "ports": _ports,
    "auth": _auth,
    "head": _head,
    "from-zero": _from_zero,
    "versions": _versions,
    "gpu-classes": _gpu_classes,
    "store": _store,
    "secrets": _secrets,
}
LOCAL_RULES: Mapping[str, Rule] = {
    "idle-timeout": _idle_timeout,
    "ports": _ports,
    "secrets": _secrets,
}


def unfilled(document: Document) -> Iterator[Fault]:
    """What is still to be written into a file before it can be brought up."""
    for place, value in _texts(document.plain):
        for found in dict.fromkeys(re.findall(r"\byour-[a-z]+", value)):
            yield Fault(document.where(*place), f"{found} stands for a name of yours", "write that there")


def _texts(plain: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from _texts(value, (*place, key))
    elif isinstance(plain, list):
        for index, value in enumerate(plain):
            yield from _texts(value, (*place, index))
    elif isinstance(plain, str):
        yield place, plain


def _commands(document: Document, keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The commands of a file, each with its place."""
    for key in keys:
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
