"""`cbe cluster`: what it prints, what it refuses, and what it asks of the tools under it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console

from cbe.cli import console, main
from tests.conftest import Cbe, Done

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cbe:
    """The command in this process, with what the tools under it print."""

    def call(*arguments: str | Path, cwd: Path = ROOT, **environment: str) -> Done:
        with monkeypatch.context() as given, pytest.raises(SystemExit) as ended:
            given.chdir(cwd)
            for name, value in environment.items():
                given.setenv(name, value)
            given.setattr(console, "out", Console(width=120))
            given.setattr(sys, "argv", ["cbe", "cluster", *map(str, arguments)])
            capfd.readouterr()
            main()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, *capfd.readouterr())

    return call


@pytest.fixture
def kubectl(tmp_path: Path) -> Path:
    """A folder with a kubectl that notes what it is asked; there is no real one without a Kubernetes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = folder / "kubectl"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexit ${{KUBECTL_CODE:-0}}\n')
    tool.chmod(0o755)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `up` needs of a checkout, with our files and names filled in, and a home with a token."""
    shutil.copytree(ROOT / "cluster", tmp_path / "cluster")
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        (tmp_path / name).touch()
    (tmp_path / "cbe").mkdir()
    for file in (tmp_path / "cluster").rglob("*.yaml"):
        file.write_text(re.sub(r"\byour-", "our-", file.read_text("utf-8")))
    (tmp_path / "home/.ray").mkdir(parents=True)
    (tmp_path / "home/.ray/auth_token").write_text("0" * 64)
    return tmp_path


def test_check_says_what_passed_for_a_person_and_for_a_program(call: Cbe) -> None:
    told = call("check", "cluster/aws.yaml", "cluster/local.yaml")
    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines()[0] == "cluster/aws.yaml: ray: 4 groups of workers, 2 of them spot"
    plain = json.loads(call("check", "cluster/aws.yaml", "--json").out)
    assert [each["spot"] for each in plain] == [["small-spot", "large-spot"]]


def test_check_of_a_folder_looks_at_all_of_it(call: Cbe) -> None:
    told = call("check", "cluster", "--json")
    assert told.code == 0, told.err
    found = {each["file"]: each["kind"] for each in json.loads(told.out)}
    assert found == {
        **{f"cluster/{name}.yaml": "ray" for name in ("aws", "azure", "gcp", "local")},
        "cluster/kuberay": "kubernetes",
    }


def test_a_broken_file_is_exit_code_2_with_its_lines_on_stderr(tmp_path: Path, call: Cbe) -> None:
    file = tmp_path / "aws.yaml"
    text = (ROOT / "cluster/aws.yaml").read_text("utf-8")
    file.write_text(re.sub(r"idle_timeout_minutes: \d+\n", "", text).replace("priority: 1", "priority: 0"))
    told = call("check", file)
    assert (told.code, told.out) == (2, "")
    assert f"{file} idle_timeout_minutes: is missing: wanted 1 to 30 minutes [idle-timeout]" in told.err
    assert re.search(rf"{file}:\d+ available_node_types.small-spot: .* \[fallback\]", told.err)


NO_CLUSTER = {
    "broken YAML": "cluster_name: [",
    "nothing": "# nothing yet\n",
    "a list": "- cluster_name: x\n",
    "a study file": (ROOT / "studies/quickstart.yaml").read_text("utf-8"),
    "a manifest of another kind": "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
    "two documents of no kind": "a: 1\n---\nb: 2\n",
    "a provider that Ray does not know": "cluster_name: x\nprovider: {type: mars}\n",
    "values of the wrong types": "cluster_name: 1\nprovider: []\nmax_workers: .inf\n2026-01-01: x\n",
    "groups of the wrong types": "cluster_name: x\nprovider: {type: aws}\navailable_node_types: {1: [2]}\n",
}


@pytest.mark.parametrize("verb", ["check", "cost", "up", "down", "status"])
@pytest.mark.parametrize("what", NO_CLUSTER)
def test_what_is_no_cluster_file_is_one_message_and_exit_code_2(
    what: str, verb: str, tmp_path: Path, call: Cbe
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(NO_CLUSTER[what])
    told = call(verb, file)
    assert (told.code, told.out) == (2, "")
    assert str(file) in told.err and "Traceback" not in told.err


@pytest.mark.parametrize("verb", ["check", "cost", "up"])
def test_groups_that_ray_cannot_read_are_exit_code_2(verb: str, tmp_path: Path, call: Cbe) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("apiVersion: ray.io/v1\nkind: RayCluster\nspec: {workerGroupSpecs: []}\n")
    told = call(verb, file)
    assert (told.code, told.out) == (2, "")
    assert f"{file}:3 spec.headGroupSpec: wanted a group of nodes [ray]" in told.err


@pytest.mark.parametrize(
    "command", ["cbe serve '", "cbe serve --port x", "cbe serve --store /dev/null/x", "ls"]
)
def test_a_command_that_cannot_be_the_service_is_exit_code_2(command: str, tmp_path: Path, call: Cbe) -> None:
    file = tmp_path / "local.yaml"
    text = (ROOT / "cluster/local.yaml").read_text("utf-8")
    file.write_text(text.replace("- cbe serve --store results --port 8321", f'- "{command}"'))
    told = call("up", file)
    assert (told.code, told.out) == (2, "")
    assert re.match(rf"cbe: {file}:\d+ head_start_ray_commands: ", told.err)


def test_a_path_that_cannot_be_read_is_exit_code_2(tmp_path: Path, call: Cbe) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("none.yaml", "empty", "binary.yaml"):
        for verb in ("check", "cost", "up", "down", "status"):
            told = call(verb, tmp_path / name)
            assert (told.code, told.out) == (2, "") and name in told.err


def test_cost_has_a_table_for_a_person_and_a_plain_object_for_a_program(call: Cbe) -> None:
    told = call("cost", "cluster/aws.yaml", "--hours", "10")
    assert told.code == 0
    assert re.search(r"small-spot +g6.xlarge +spot +0 to 8", told.out)
    plain = json.loads(call("cost", "cluster/aws.yaml", "--hours", "10", "--json").out)
    assert f"{plain['full_usd']:,.2f} USD in 10 h" in told.out
    assert plain["prices_as_of"] in told.err


def test_up_refuses_what_check_refuses_and_starts_nothing(checkout: Path, kubectl: Path, call: Cbe) -> None:
    for file in ("cluster/aws.yaml", "cluster/kuberay/raycluster.yaml"):
        path = checkout / file
        path.write_text(
            re.sub(r"(idle_timeout_minutes|idleTimeoutSeconds): \d+", r"\1: 86400", path.read_text())
        )
    for what in ("cluster/aws.yaml", "cluster/kuberay"):
        told = call(
            "up", what, cwd=checkout, HOME=str(checkout / "home"), PATH=f"{kubectl}:{os.environ['PATH']}"
        )
        assert told.code == 2 and "[idle-timeout]" in told.err
    assert not (checkout / "asked").exists()


def test_up_wants_the_names_the_checkout_and_the_token(checkout: Path, call: Cbe) -> None:
    home = {"HOME": str(checkout / "home")}
    told = call("up", ROOT / "cluster/gcp.yaml", cwd=checkout, **home)
    assert told.code == 2 and "provider.project_id: your-project stands for a name of yours" in told.err
    (checkout / "home/.ray/auth_token").unlink()
    (checkout / "constraints.txt").unlink()
    told = call("up", "cluster/gcp.yaml", cwd=checkout, **home)
    assert told.code == 2
    assert "~/.ray/auth_token does not exist here; make it: `ray get-auth-token" in told.err
    assert "constraints.txt does not exist here; run this in the checkout" in told.err


@pytest.mark.parametrize(
    ("cloud", "package", "module"),
    [("gcp", "google-api-python-client", "googleapiclient"), ("azure", "azure-identity", "azure")],
)
def test_a_missing_sdk_is_one_message(
    cloud: str, package: str, module: str, checkout: Path, call: Cbe
) -> None:
    if find_spec(module):
        pytest.skip(f"{package} is installed here")
    told = call("up", f"cluster/{cloud}.yaml", cwd=checkout, HOME=str(checkout / "home"))
    assert told.code == 2
    assert len(told.err.splitlines()) == 1 and f"pip install {package}" in told.err


def test_a_missing_kubectl_is_one_message(checkout: Path, call: Cbe) -> None:
    told = call("up", "cluster/kuberay", cwd=checkout, PATH=str(checkout))
    assert told.code == 2
    assert told.err.startswith("cbe: kubectl: there is no such command here; ")


def test_kubernetes_is_asked_by_kubectl(checkout: Path, kubectl: Path, call: Cbe) -> None:
    path = f"{kubectl}:{os.environ['PATH']}"
    for verb in ("up", "status", "down"):
        told = call(verb, "cluster/kuberay", cwd=checkout, PATH=path)
        assert told.code == 0, told.err
    assert (checkout / "asked").read_text().splitlines() == [
        "apply -k cluster/kuberay",
        "get -k cluster/kuberay",
        "delete --ignore-not-found -k cluster/kuberay",
    ]


def test_a_tool_that_fails_is_exit_code_1_and_named(checkout: Path, kubectl: Path, call: Cbe) -> None:
    path = f"{kubectl}:{os.environ['PATH']}"
    told = call("status", "cluster/kuberay", cwd=checkout, PATH=path, KUBECTL_CODE="3")
    assert told.code == 1
    assert "`kubectl get -k cluster/kuberay` ended with code 3" in told.err


def test_ray_itself_is_asked_about_a_cluster_on_aws(
    checkout: Path, ambient: None, s3_port: int, call: Cbe
) -> None:
    """On a pretend EC2, which has no head."""
    here = {"HOME": str(checkout / "home"), "TMPDIR": str(checkout)}
    aws = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}"}
    told = call("status", "cluster/aws.yaml", cwd=checkout, **here, **aws)
    assert told.code == 1
    assert "Head node of cluster (cbe) not found" in told.err
    assert "`ray exec cluster/aws.yaml RAY_AUTH_MODE=token ray status` ended with code 1" in told.err


def test_a_folder_of_several_clusters_is_no_cluster(call: Cbe) -> None:
    told = call("cost", "cluster")
    assert told.code == 2 and "describes 5 clusters" in told.err
