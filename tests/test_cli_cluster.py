"""`cbe cluster` as a process: what it prints, what it refuses, and what it asks of the tools under it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def cbe(*arguments: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("cbe"), "cluster", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


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


def test_check_says_what_passed_for_a_person_and_for_a_program() -> None:
    told = cbe("check", "cluster/aws.yaml", "cluster/local.yaml")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines()[0] == "cluster/aws.yaml: ray: 4 groups of workers, 2 of them spot"
    plain = json.loads(cbe("check", "cluster/aws.yaml", "--json").stdout)
    assert [each["spot"] for each in plain] == [["small-spot", "large-spot"]]


def test_check_of_a_folder_looks_at_all_of_it() -> None:
    told = cbe("check", "cluster", "--json")
    assert told.returncode == 0, told.stderr
    found = {each["file"]: each["kind"] for each in json.loads(told.stdout)}
    assert found == {
        **{f"cluster/{name}.yaml": "ray" for name in ("aws", "azure", "gcp", "local")},
        "cluster/kuberay": "kubernetes",
    }


def test_a_broken_file_is_exit_code_2_with_its_lines_on_stderr(tmp_path: Path) -> None:
    file = tmp_path / "aws.yaml"
    text = (ROOT / "cluster/aws.yaml").read_text("utf-8")
    file.write_text(re.sub(r"idle_timeout_minutes: \d+\n", "", text).replace("priority: 1", "priority: 0"))
    told = cbe("check", file)
    assert (told.returncode, told.stdout) == (2, "")
    assert f"{file} idle_timeout_minutes: is missing [idle-timeout]" in told.stderr
    assert re.search(rf"{file}:\d+ available_node_types.small-spot: .* \[fallback\]", told.stderr)


def test_cost_has_a_table_for_a_person_and_a_plain_object_for_a_program() -> None:
    told = cbe("cost", "cluster/aws.yaml", "--hours", "10")
    assert told.returncode == 0
    assert re.search(r"small-spot +g6.xlarge +spot +0 to 8", told.stdout)
    plain = json.loads(cbe("cost", "cluster/aws.yaml", "--hours", "10", "--json").stdout)
    assert f"{plain['full_usd']:,.2f} USD in 10 h" in told.stdout
    assert plain["prices_as_of"] in told.stderr


def test_up_refuses_what_check_refuses_and_starts_nothing(checkout: Path, kubectl: Path) -> None:
    for file in ("cluster/aws.yaml", "cluster/kuberay/raycluster.yaml"):
        path = checkout / file
        path.write_text(
            re.sub(r"(idle_timeout_minutes|idleTimeoutSeconds): \d+", r"\1: 86400", path.read_text())
        )
    for what in ("cluster/aws.yaml", "cluster/kuberay"):
        told = cbe(
            "up", what, cwd=checkout, HOME=str(checkout / "home"), PATH=f"{kubectl}:{os.environ['PATH']}"
        )
        assert told.returncode == 2 and "[idle-timeout]" in told.stderr
    assert not (checkout / "asked").exists()


def test_up_wants_the_names_the_checkout_and_the_token(checkout: Path) -> None:
    home = {"HOME": str(checkout / "home")}
    told = cbe("up", ROOT / "cluster/gcp.yaml", cwd=checkout, **home)
    assert (
        told.returncode == 2 and "provider.project_id: your-project stands for a name of yours" in told.stderr
    )
    (checkout / "home/.ray/auth_token").unlink()
    (checkout / "constraints.txt").unlink()
    told = cbe("up", "cluster/gcp.yaml", cwd=checkout, **home)
    assert told.returncode == 2
    assert "~/.ray/auth_token does not exist here; make it: `ray get-auth-token" in told.stderr
    assert "constraints.txt does not exist here; run this in the checkout" in told.stderr


@pytest.mark.parametrize(
    ("cloud", "package", "module"),
    [("gcp", "google-api-python-client", "googleapiclient"), ("azure", "azure-identity", "azure")],
)
def test_a_missing_sdk_is_one_message(cloud: str, package: str, module: str, checkout: Path) -> None:
    if find_spec(module):
        pytest.skip(f"{package} is installed here")
    told = cbe("up", f"cluster/{cloud}.yaml", cwd=checkout, HOME=str(checkout / "home"))
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1 and f"pip install {package}" in told.stderr


def test_a_missing_kubectl_is_one_message(checkout: Path) -> None:
    told = cbe("up", "cluster/kuberay", cwd=checkout, PATH=str(checkout))
    assert told.returncode == 2
    assert told.stderr.startswith("cbe: kubectl: there is no such command here; ")


def test_kubernetes_is_asked_by_kubectl(checkout: Path, kubectl: Path) -> None:
    path = f"{kubectl}:{os.environ['PATH']}"
    for verb in ("up", "status", "down"):
        told = cbe(verb, "cluster/kuberay", cwd=checkout, PATH=path)
        assert told.returncode == 0, told.stderr
    assert (checkout / "asked").read_text().splitlines() == [
        "apply -k cluster/kuberay",
        "get -k cluster/kuberay",
        "delete --ignore-not-found -k cluster/kuberay",
    ]


def test_a_tool_that_fails_is_exit_code_1_and_named(checkout: Path, kubectl: Path) -> None:
    path = f"{kubectl}:{os.environ['PATH']}"
    told = cbe("status", "cluster/kuberay", cwd=checkout, PATH=path, KUBECTL_CODE="3")
    assert told.returncode == 1
    assert "`kubectl get -k cluster/kuberay` ended with code 3" in told.stderr


def test_ray_itself_is_asked_about_a_cluster_on_aws(checkout: Path, ambient: None, s3_port: int) -> None:
    """On a pretend EC2, which has no head."""
    here = {"HOME": str(checkout / "home"), "TMPDIR": str(checkout)}
    aws = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}"}
    told = cbe("status", "cluster/aws.yaml", cwd=checkout, **here, **aws)
    assert told.returncode == 1
    assert "Head node of cluster (cbe) not found" in told.stderr
    assert "`ray exec cluster/aws.yaml RAY_AUTH_MODE=token ray status` ended with code 1" in told.stderr


def test_a_folder_of_several_clusters_is_no_cluster() -> None:
    told = cbe("cost", "cluster")
    assert told.returncode == 2 and "describes 5 clusters" in told.stderr
