"""What tests share: small real images, and one thread a test process so that parallel ones do not fight."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from _pytest.nodeid import NodeId
from rich.console import Console

import cbe.cli
import cbe.environment
from cbe.cli import console
from cbe.data import Dataset, open_dataset
from cbe.spec import TrainConfig
from cbe.store.folder import Store
from tests.leftovers import pytest_configure  # noqa: F401  a hook of pytest
from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from cbe.processes import BackgroundProcess

torch.set_num_threads(1)
for _name in ("CBE_STORE", "CBE_ADDRESS", "CBE_TOKEN"):  # of whoever runs the tests
    os.environ.pop(_name, None)
# A shell starts what runs in its background deaf to Ctrl-C, and commands under test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

SECRETS = {"CBE_NOTIFY": "https://hooks.slack.com/services/T0/B0/hunter2", "CBE_TOKEN": "cbe_s3cr3t"}

# Tests that share a cluster, and so a process. The longest come first.
LANES = {
    "service": ("tests/service/on_ray/", "tests/contract/test_studies.py"),
    "study": ("tests/study/on_ray/", "tests/cli/test_studies.py::test_a_study_runs_to_its_answer"),
    "cluster": ("tests/cluster/on_ray/",),
}
RAY = {"cluster", "head", "cards"}  # fixtures that start one; other tests that do say so by a mark


def lane(nodeid: str) -> str | None:
    return next((name for name, ids in LANES.items() if nodeid.startswith(ids)), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs Ray or a browser, and puts first what must run one after the other."""
    for item in items:
        if label := getattr(item, "operation_label", None):
            # pytest 9.2 gives all operations of schemathesis one id, and xdist runs an id once.
            item._id = NodeId.parse(f"{item.parent.nodeid}::{item.originalname}[{label}]")
        needs = set(getattr(item, "fixturenames", ()))
        if needs & RAY:
            item.add_marker("ray")
        if "browser" in needs:
            item.add_marker("browser")
        if item.get_closest_marker("chaos"):
            item.add_marker(pytest.mark.timeout(1200))
    assert len({item.nodeid for item in items}) == len(items), "two tests of one id: xdist would run one"
    order = list(LANES)
    items.sort(key=lambda item: order.index(found) if (found := lane(item.nodeid)) else len(order))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process for each lane, also on few cores: tests on Ray wait for much of their time."""
    return max(len(LANES), os.cpu_count() or 1)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Sends a lane to one process, and every other file, which may share a browser or a server, to any."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return lane(nodeid) or nodeid.partition("::")[0]

    return Scheduling(config, log)


def small(**sections: object) -> TrainConfig:
    """A config that trains in a second: digits, the smallest network, few steps."""
    base: dict[str, dict[str, object]] = {
        "data": {"validation": 100},
        "model": {"name": "wrn-10-1", "bn_momentum": 0.1},
        "training": {"steps": 4, "batch_size": 8, "unlabeled_ratio": 2, "ema": 0.9, "eval_every": 2},
    }
    for name, section in sections.items():
        if isinstance(section, dict):
            base[name] = base.get(name, {}) | section
        else:
            base[name] = section  # type: ignore[assignment]
    return TrainConfig.model_validate(base)


def assert_same(a: Any, b: Any, place: str = "") -> None:
    """Equal to the bit: weights, EMA, optimiser, thresholds, generators, positions."""
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), place
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), place
        for key in a:
            assert_same(a[key], b[key], f"{place}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), place
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{place}[{index}]")
    else:
        assert a == b, place


@pytest.fixture(scope="module")
def s3_port() -> Iterator[int]:
    """Where a real S3 API answers on this machine."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture(scope="module")
def gs() -> Iterator[str]:
    """An address, with a place for the prefix, in a bucket of an emulator of GCS.

    That is a process of its own: pyarrow holds the GIL while it waits for the first bytes of a file.
    """
    port = free_port()
    options = ["--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=cbe"]
    with subprocess.Popen(
        [sys.executable, "-m", "gcp_storage_emulator", "start", *options], stderr=subprocess.DEVNULL
    ) as emulator:
        try:
            wait_for_port(port)
            yield f"gs://anonymous@cbe{{}}?endpoint_override=127.0.0.1:{port}&scheme=http"
        finally:
            emulator.terminate()


CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture
def ambient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials as the environment has them."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ambient: None) -> Store:
    """An empty store: in a folder, and on a real S3 API."""
    if request.param == "local":
        return Store.open(str(tmp_path / "results"))
    from tests.contract.test_stores import BUCKET, make_bucket

    query = make_bucket(request.getfixturevalue("s3_port"))
    return Store.open(f"s3://{BUCKET}/{tmp_path.name}/results{query}")


@contextmanager
def requests() -> Iterator[list[str]]:
    """What S3 is asked meanwhile."""
    made: list[str] = []

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            made.append(record.getMessage())

    log, handler = logging.getLogger("werkzeug"), Log()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield made
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@pytest.fixture
def local(tmp_path: Path) -> Store:
    """An empty store in a folder."""
    return Store.open(str(tmp_path / "results"))


def free_port() -> int:
    """Where nobody listens on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, patience_s: float = 30) -> None:
    """Until somebody listens there."""

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(listens, patience_s, f"somebody on port {port}")


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """No file can grow beyond some bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a file."""
    from tests.browser import launched

    with launched() as found:
        yield found


@pytest.fixture(scope="session")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundProcess]:
    """Two cores of Ray with its dashboard, to which a token is needed, begun by a service with secrets."""
    from cbe.service.queue.embedded_ray import started

    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in SECRETS.items():
            environment.setenv(name, value)
        found = started(str(tmp_path_factory.mktemp("head")), cpus=2)
    yield found
    found.kill()
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return open_dataset(small().data)


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What was printed without line breaks, which depend on the width."""
        return " ".join(self.out.split())


Cbe = Callable[..., Done]


@pytest.fixture
def cbe_(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Cbe]:
    """The command, in this process and in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CBE_STORE", raising=False)
    monkeypatch.setattr(console, "out", Console(width=80))

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["cbe", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cbe.cli.main()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, *capsys.readouterr())

    yield call
