"""A pytest plugin: the session fixture `lium_cluster`, one cluster for all tests that ask for it.

It is made when the first test asks and torn down at the end of the run, under pytest-xdist too: the workers share one
cluster, and the main process tears it down once they are done. SIGTERM, by which CI services cancel a job, interrupts
the run as Ctrl-C does, and the teardown follows; under xdist the main process is the one to signal. That it does only
once a test has asked for the cluster, and only where nobody else handles it. A further signal does not end the
teardown. Options, each also on the command line:

    [pytest]
    lium_nodes = 2
    lium_gpu_type = H100
    lium_max_price_per_hour = 40
    lium_ttl = 2h
    lium_ssh_public_key = ~/.ssh/id_ed25519.pub

Any other input of `LiumCluster` comes from a session fixture `lium_cluster_inputs` of one's own. The API key is that of
the environment (`LIUM_API_KEY`).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .ephemeral import EphemeralCluster

_OPTIONS = {
    "nodes": "Machines of the cluster (2).",
    "gpu_type": "GPU model, short or full name.",
    "max_price_per_hour": "Most that the cluster may cost, in USD an hour.",
    "ttl": "The service ends the cluster then, whatever becomes of this run (2h).",
    "ssh_public_key": "File with the public key for the nodes.",
}
_FOLDER = pytest.StashKey[Path]()
_FAILURE = pytest.StashKey[str]()
_HANDLES = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of `lium_cluster`."""
    group = parser.getgroup("lium", "the session fixture lium_cluster")
    for name, text in _OPTIONS.items():
        group.addoption(f"--lium-{name.replace('_', '-')}", dest=f"lium_{name}", default=None, help=text)
        parser.addini(f"lium_{name}", text, default=None)


def pytest_configure(config: pytest.Config) -> None:
    """The main process names the folder in which the run's processes meet; a worker is told it."""
    told = getattr(config, "workerinput", {}).get("lium_folder")
    config.stash[_FOLDER] = Path(told or Path(tempfile.gettempdir()) / f"pulumi-lium-pytest-{secrets.token_hex(8)}")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist's hook: a worker is about to start."""
    node.workerinput["lium_folder"] = str(node.config.stash[_FOLDER])
    _handle_sigterm(node.config)


@pytest.fixture(scope="session")
def lium_cluster_inputs() -> dict[str, Any]:
    """More inputs of `LiumCluster`; a conftest overrides it."""
    return {}


@pytest.fixture(scope="session")
def lium_cluster(pytestconfig: pytest.Config, lium_cluster_inputs: dict[str, Any]) -> EphemeralCluster:
    """A running cluster (`EphemeralCluster`), the same one for every test of this run."""
    from .ephemeral import EphemeralCluster, EphemeralRun

    meeting = pytestconfig.stash[_FOLDER]
    _handle_sigterm(pytestconfig)
    inputs = {**_inputs(pytestconfig), **lium_cluster_inputs}
    with _alone(meeting):
        made, failed = meeting / "cluster.json", meeting / "failed"
        if failed.exists():
            pytest.fail(failed.read_text(encoding="utf-8"), pytrace=False)
        if not made.exists():
            run = EphemeralRun.begin("pytest")
            (meeting / "run").write_text(str(run.folder), encoding="utf-8")
            try:
                cluster = run.up(inputs)
            except BaseException as error:
                failed.write_text(str(error) or type(error).__name__, encoding="utf-8")
                raise
            made.write_text(json.dumps(asdict(cluster)), encoding="utf-8")
        return EphemeralCluster(**json.loads(made.read_text(encoding="utf-8")))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    """The main process tears the cluster down, after every worker; also where a signal cuts off what ends before it."""
    try:
        return (yield)
    finally:
        if not hasattr(session.config, "workerinput"):
            _tear_down(session)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Also where no session began, the folder goes. A run that was cut off has no summary, and is told here."""
    failure = config.stash.get(_FAILURE, None)
    if failure is not None:
        print(failure, file=sys.stderr, flush=True)
    if config.stash.get(_HANDLES, False):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        shutil.rmtree(config.stash[_FOLDER], ignore_errors=True)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What may still bill is named where the results are."""
    failure = config.stash.get(_FAILURE, None)
    if failure is not None:
        terminalreporter.section("lium_cluster", red=True)
        terminalreporter.line(failure)
        del config.stash[_FAILURE]


def _handle_sigterm(config: pytest.Config) -> None:
    """SIGTERM interrupts the run, so that its end is reached; nothing where somebody handles it already."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    meeting = config.stash[_FOLDER]

    def interrupt(number: int, frame: FrameType | None) -> None:
        if meeting.exists():
            raise KeyboardInterrupt("SIGTERM")
        # No test has asked for a cluster: the signal does what it always does.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, interrupt)
    config.stash[_HANDLES] = True


def _tear_down(session: pytest.Session) -> None:
    """Ends this run's cluster, if it made one; what went wrong is kept for the summary."""
    begun = session.config.stash[_FOLDER] / "run"
    if not begun.exists():
        return
    from .api.errors import LiumError
    from .ephemeral import EphemeralRun

    try:
        signalled = EphemeralRun(Path(begun.read_text(encoding="utf-8"))).teardown().has_come()
    except LiumError as error:
        session.config.stash[_FAILURE] = str(error)
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
    else:
        if signalled:
            session.exitstatus = pytest.ExitCode.INTERRUPTED


def _inputs(config: pytest.Config) -> dict[str, Any]:
    from .ephemeral import DEFAULT_TTL

    def option(name: str) -> str | None:
        value = config.getoption(f"lium_{name}", None) or config.getini(f"lium_{name}")
        return str(value) if value else None

    inputs: dict[str, Any] = {"ttl": option("ttl") or DEFAULT_TTL}
    try:
        inputs["nodes"] = int(option("nodes") or 2)
        if price := option("max_price_per_hour"):
            inputs["max_price_per_hour"] = float(price)
    except ValueError as error:
        raise pytest.UsageError(f"lium_nodes and lium_max_price_per_hour are numbers: {error}") from error
    if gpu_type := option("gpu_type"):
        inputs["gpu_type"] = gpu_type
    if file := option("ssh_public_key"):
        try:
            inputs["ssh_public_keys"] = [Path(file).expanduser().read_text(encoding="utf-8")]
        except OSError as error:
            raise pytest.UsageError(f"lium_ssh_public_key: {file} cannot be read: {error.strerror}") from error
    return inputs


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process of the run at a time."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
