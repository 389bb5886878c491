"""`ephemeral_cluster` and the pytest fixture, each in its own process: whatever happens, nothing bills afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.conftest import OWNER_KEY
from tests.engine.conftest import base_env
from tests.support.clusters import ORDER, PUBLIC_KEY, bills, live, market, orders
from tests.support.processes import children, end_of
from tests.support.waiting import wait_for
from tools.emulator import Emulator
from tools.pulumi.cli import Cli

pytestmark = pytest.mark.engine

USE = """
import json, sys
import pulumi_lium as lium

with lium.ephemeral_cluster("job", gpu_type="H100", ssh_public_keys=[{key!r}], **{inputs!r}) as cluster:
    print("CLUSTER", json.dumps([cluster.cluster_id, cluster.hostfile, cluster.expires_at]), flush=True)
    {body}
print("AFTER", flush=True)
"""


@pytest.fixture(autouse=True)
def _market(emulator: Emulator) -> None:
    emulator.reset(market())


@pytest.fixture
def env(pulumi_cli: Cli, lium_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return {
        **base_env(pulumi_cli),
        **lium_env,
        "HOME": str(tmp_path / "home"),
        "PULUMI_HOME": str(tmp_path / "pulumi-home"),
        "PULUMI_LIUM_STATE_DIR": str(tmp_path / "state"),
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PYTHONFAULTHANDLER": "1",
        # At its end pytest removes what earlier runs have left there, before the cluster's turn comes: where that were
        # the folders of this machine's other test runs, it took minutes.
        "PYTEST_DEBUG_TEMPROOT": str(tmp_path),
    }


class Job:
    """A Python process that uses a cluster."""

    def __init__(self, folder: Path, env: dict[str, str], body: str, **inputs: object) -> None:
        self._log = folder / f"job-{time.monotonic_ns()}.log"
        program = USE.format(key=PUBLIC_KEY, inputs={"nodes": 2, **inputs}, body=body)
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def wait(self) -> str:
        end_of(self.process, self._log, 180)
        assert OWNER_KEY not in self.text()
        return self.text()


def left(tmp_path: Path) -> list[str]:
    """Folders of runs that are not torn down."""
    root = tmp_path / "state" / "ephemeral"
    return [path.name for path in root.iterdir()] if root.exists() else []


def hours_left(expires_at: str) -> int:
    """Whole hours of a time limit that was set within the last minutes."""
    left = datetime.fromisoformat(expires_at) - datetime.now(timezone.utc)
    return round((left + timedelta(minutes=5)) / timedelta(hours=1))


def test_a_cluster_for_the_length_of_a_block(emulator: Emulator, env: dict[str, str], tmp_path: Path) -> None:
    job = Job(tmp_path, env, "pass")
    text = job.wait()
    assert job.process.returncode == 0, text
    assert "AFTER" in text
    (line,) = [line for line in text.splitlines() if line.startswith("CLUSTER")]
    _, hostfile, expires_at = json.loads(line.removeprefix("CLUSTER"))
    assert hostfile.splitlines() == ["10.42.0.1 slots=8", "10.42.0.2 slots=8"]
    assert hours_left(expires_at) == 2
    assert len(orders(emulator)) == 1
    bills(emulator, 0)
    assert live(emulator) == []
    assert left(tmp_path) == []


def test_a_block_that_fails_is_torn_down_and_its_error_told(
    emulator: Emulator, env: dict[str, str], tmp_path: Path
) -> None:
    job = Job(tmp_path, env, "raise ValueError('the job failed')")
    text = job.wait()
    assert job.process.returncode == 1
    assert "ValueError: the job failed" in text
    bills(emulator, 0)
    assert left(tmp_path) == []


def test_a_cluster_that_cannot_be_had_says_why_and_leaves_nothing(
    emulator: Emulator, env: dict[str, str], tmp_path: Path
) -> None:
    job = Job(tmp_path, env, "pass", max_price_per_hour=1.0)
    text = job.wait()
    assert job.process.returncode == 1
    assert "above max_price_per_hour" in text
    assert "CLUSTER" not in text
    assert orders(emulator) == []
    assert left(tmp_path) == []


def tears_down(process: subprocess.Popen[bytes]) -> bool:
    """Whether its teardown has begun: it reads the stack's state at this moment."""
    found = False
    for child in children(process.pid):
        with child:
            file = Path(f"/proc/{child.pid}/cmdline")
            with suppress(OSError):
                found |= b"stack\0export" in file.read_bytes()
    return found


@pytest.mark.parametrize(
    ("number", "further"),
    [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)],
    ids=["SIGINT", "SIGTERM"],
)
@pytest.mark.parametrize("moment", ["while it orders", "while it is used"])
def test_an_interrupt_at_any_moment_and_another_in_the_teardown_leave_nothing(
    emulator: Emulator,
    env: dict[str, str],
    tmp_path: Path,
    number: signal.Signals,
    further: signal.Signals,
    moment: str,
) -> None:
    if moment == "while it orders":
        emulator.fault(ORDER, "delay", seconds=3)
    job = Job(tmp_path, env, "import time; time.sleep(600)")
    if moment == "while it orders":
        wait_for(lambda: orders(emulator), what="the order has arrived")
    else:
        wait_for(lambda: "CLUSTER" in job.text(), what=f"the cluster is there\n{job.text()}", timeout=60)
    os.kill(job.process.pid, number)
    wait_for(lambda: tears_down(job.process), what="the teardown")
    os.kill(job.process.pid, further)
    text = job.wait()
    assert f"{further.name}: the deletions go out all the same" in text
    assert job.process.returncode != 0, text
    assert "AFTER" not in text
    bills(emulator, 0)
    assert live(emulator) == []
    assert left(tmp_path) == []


def test_a_killed_process_is_named_by_the_next_and_can_be_torn_down(
    emulator: Emulator, env: dict[str, str], tmp_path: Path
) -> None:
    job = Job(tmp_path, env, "import time; time.sleep(600)")
    wait_for(lambda: "CLUSTER" in job.text(), what="the cluster is there", timeout=60)
    job.process.kill()
    job.process.wait()
    bills(emulator, 2)
    assert {pod["removal_scheduled_at"] is None for pod in live(emulator)} == {False}
    (folder,) = left(tmp_path)
    second = Job(tmp_path, env, "pass").wait()
    assert f"warning: {folder} was left by a process that died" in second
    command = second.split("Run: ", 1)[1].splitlines()[0]
    done = subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    bills(emulator, 0)


def test_a_member_that_refuses_is_named_with_its_price(emulator: Emulator, env: dict[str, str], tmp_path: Path) -> None:
    job = Job(tmp_path, env, "input = sys.stdin; import time; time.sleep(5)", delete_timeout=3)
    wait_for(lambda: "CLUSTER" in job.text(), what="the cluster is there", timeout=60)
    (cluster_id,) = {pod["cluster_id"] for pod in live(emulator)}
    emulator.event("refuse_delete", cluster=cluster_id, rank=1, times=0)
    text = job.wait()
    assert job.process.returncode == 1
    assert "May still bill: job-" in text
    assert cluster_id in text
    assert "$16.00 an hour" in text
    assert "pulumi-lium teardown --cwd" in text
    assert len(left(tmp_path)) == 1
    emulator.reset(market())


TESTS = """
import pathlib

def test_one(lium_cluster):
    assert lium_cluster.node_addrs == ["10.42.0.1", "10.42.0.2"]

def test_two(lium_cluster):
    assert lium_cluster.cluster_id

def test_three(lium_cluster):
    pathlib.Path("expires_at").write_text(lium_cluster.expires_at)
"""


def project(tmp_path: Path, tests: str, options: str = "") -> Path:
    """A folder with these tests and the options of the fixture."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "key.pub").write_text(PUBLIC_KEY)
    (folder / "pytest.ini").write_text(
        f"[pytest]\nlium_gpu_type = H100\nlium_nodes = 2\nlium_ssh_public_key = key.pub\n{options}"
    )
    (folder / "test_it.py").write_text(tests)
    return folder


def run_pytest(
    tmp_path: Path, env: dict[str, str], *arguments: str, tests: str = TESTS, options: str = ""
) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=project(tmp_path, tests, options),
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert OWNER_KEY not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("workers", "options", "hours"), [("0", "", 2), ("2", "lium_ttl = 3h\n", 3)], ids=["one process", "two workers"]
)
def test_all_tests_of_a_run_share_one_cluster_that_has_a_time_limit(
    emulator: Emulator, env: dict[str, str], tmp_path: Path, workers: str, options: str, hours: int
) -> None:
    code, text = run_pytest(tmp_path, env, "-n", workers, options=options)
    assert code == 0, text
    assert "3 passed" in text
    assert hours_left((tmp_path / "project" / "expires_at").read_text()) == hours
    assert len(orders(emulator)) == 1
    bills(emulator, 0)
    assert left(tmp_path) == []


def test_a_run_that_asks_for_none_orders_none(emulator: Emulator, env: dict[str, str], tmp_path: Path) -> None:
    code, text = run_pytest(tmp_path, env, tests="def test_it():\n    pass\n")
    assert code == 0, text
    assert emulator.journal() == []


def test_a_failing_test_leaves_nothing(emulator: Emulator, env: dict[str, str], tmp_path: Path) -> None:
    code, text = run_pytest(tmp_path, env, tests="def test_it(lium_cluster):\n    assert False\n")
    assert code == 1, text
    bills(emulator, 0)
    assert left(tmp_path) == []


USED = """
import pathlib, time

def test_it(lium_cluster):
    pathlib.Path("used").touch()
    time.sleep(600)
"""
SLOW_END = """
import pathlib, time
import pytest

@pytest.fixture(scope="session", autouse=True)
def other():
    yield
    pathlib.Path("ending").touch()
    time.sleep(600)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_cancelled_run_leaves_nothing(emulator: Emulator, env: dict[str, str], tmp_path: Path, workers: str) -> None:
    folder = project(tmp_path, USED)
    if workers == "0":
        (folder / "conftest.py").write_text(SLOW_END)
    with (folder / "log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", workers],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    wait_for((folder / "used").exists, what="the cluster is used", timeout=60)
    run.terminate()
    if workers == "0":
        # The second signal, which ends pytest's own end, comes before the turn of the cluster.
        wait_for((folder / "ending").exists, what="the other fixture's end")
        run.send_signal(signal.SIGINT)
    wait_for(lambda: tears_down(run), what="the teardown", timeout=60)
    run.terminate()
    code = end_of(run, folder / "log", 180)
    expected = -signal.SIGINT if workers == "0" else pytest.ExitCode.INTERRUPTED
    assert code == expected, (folder / "log").read_text(errors="replace")
    bills(emulator, 0)
    assert live(emulator) == []
    assert left(tmp_path) == []


def test_an_order_that_fails_fails_every_test_with_its_reason_and_is_tried_once(
    emulator: Emulator, env: dict[str, str], tmp_path: Path
) -> None:
    code, text = run_pytest(tmp_path, env, "--lium-max-price-per-hour", "1")
    assert code == 1, text
    assert "3 errors" in text
    assert "above max_price_per_hour" in text
    assert orders(emulator) == []
    assert left(tmp_path) == []


def test_what_cannot_be_removed_is_named_in_the_summary(
    emulator: Emulator, env: dict[str, str], tmp_path: Path
) -> None:
    tests = (
        "import json, os, urllib.request\n"
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def lium_cluster_inputs():\n"
        "    return {'delete_timeout': 3}\n"
        "def test_it(lium_cluster):\n"
        "    body = {'event': 'refuse_delete', 'cluster': lium_cluster.cluster_id, 'rank': 0, 'times': 0}\n"
        "    root = os.environ['LIUM_BASE_URL'].removesuffix('/api')\n"
        "    headers = {'Content-Type': 'application/json'}\n"
        "    data = json.dumps(body).encode()\n"
        "    urllib.request.urlopen(urllib.request.Request(root + '/_emulator/events', data, headers))\n"
    )
    code, text = run_pytest(tmp_path, env, tests=tests)
    assert code == 3, text
    assert "May still bill: pytest-" in text
    assert "$16.00 an hour" in text
    emulator.reset(market())
