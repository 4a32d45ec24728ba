"""Clusters brought up and down: thin over `ray up` and kubectl, which say themselves what they do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from cbe.cluster import local, rules
from cbe.cluster.check import faults, faults_by_ray
from cbe.cluster.files import ClusterFile, at, read_one
from cbe.errors import ConfigError, Fault, InputError, RunError

Verb = Literal["up", "down", "status"]

# What `ray up` needs of a cloud: a module, and what is to be installed for it.
_SDKS = {
    "aws": ("boto3", "boto3"),
    "gcp": ("googleapiclient", "google-api-python-client"),
    "azure": (
        "azure.identity",
        "azure-identity azure-mgmt-compute azure-mgmt-network azure-mgmt-resource azure-common msrestazure",
    ),
}
_TOOLS = {
    "ray": "install it beside this package: `pip install 'ray[default,tune,train]'`",
    "kubectl": "install it: https://kubernetes.io/docs/tasks/tools/",
}


def up(path: Path) -> None:
    """Creates the cluster of a file or folder, or brings it up to date; refuses one that does not pass."""
    file = read_one(path)
    wrong = [*faults(file), *_not_ready(file)]
    if wrong:
        raise ConfigError(wrong)
    _do("up", file)


def down(path: Path) -> None:
    """Deletes the cluster of a file or folder; the store stays."""
    _do("down", _valid(path))


def status(path: Path) -> None:
    """Says what the cluster has, and what is asked of it."""
    _do("status", _valid(path))


def _valid(path: Path) -> ClusterFile:
    """A file that Ray can read; it need not keep our rules, so that every cluster can be deleted."""
    file = read_one(path)
    wrong = faults_by_ray(file) if file.kind == "ray" else []
    if wrong:
        raise ConfigError(wrong)
    return file


def _do(verb: Verb, file: ClusterFile) -> None:
    if file.kind == "ray" and rules.is_local(file.document):
        getattr(local, verb)(file.document)
    elif file.kind == "ray":
        _run([_tool("ray"), *_ray(verb, file)])
    else:
        _run([_tool("kubectl"), *_kubectl(verb, file.path)])


def _ray(verb: Verb, file: ClusterFile) -> list[str]:
    _need_sdk(file)
    path = str(file.path)
    return {
        "up": ["up", "--yes", "--disable-usage-stats", path],
        "down": ["down", "--yes", path],
        "status": ["exec", path, "RAY_AUTH_MODE=token ray status"],
    }[verb]


def _kubectl(verb: Verb, path: Path) -> list[str]:
    whole = path.is_dir() and (path / "kustomization.yaml").is_file()
    what = ["-k" if whole else "-f", str(path)]
    return {
        "up": ["apply", *what],
        "down": ["delete", "--ignore-not-found", *what],
        "status": ["get", *what],
    }[verb]


def _not_ready(file: ClusterFile) -> Iterator[Fault]:
    """What a file that is right in itself still lacks to be brought up from here."""
    for document in file.documents:
        yield from rules.unfilled(document)
    if file.kind == "kubernetes":
        return
    document = file.document
    for remote, here in (at(document.plain, dict, "file_mounts") or {}).items():
        if not Path(str(here)).expanduser().exists():
            hint = "run this in the checkout"
            if remote == rules.TOKEN:
                hint = "make it: `ray get-auth-token --generate > /dev/null && chmod 600 ~/.ray/auth_token`"
            yield Fault(document.where("file_mounts", remote), f"{here} does not exist here", hint)


def _need_sdk(file: ClusterFile) -> None:
    cloud = at(file.document.plain, str, "provider", "type") or ""
    module, packages = _SDKS.get(cloud, ("", ""))
    if module and not _is_there(module):
        raise InputError(
            f"for {cloud} Ray needs packages that are not installed here; `pip install {packages}`"
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False


def _tool(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise InputError(f"{name}: there is no such command here; {_TOOLS[name]}")
    return found


def _run(command: Sequence[str]) -> None:
    """Runs a command whose output is the user's; its failure is ours."""
    environment = {**os.environ, "RAY_UP_enable_autoscaler_v2": "1"}
    code = subprocess.run(command, env=environment).returncode
    if code:
        told = " ".join([Path(command[0]).name, *command[1:]])
        raise RunError(f"`{told}` ended with code {code}; what it printed above says why")
