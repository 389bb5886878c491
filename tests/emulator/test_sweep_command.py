"""The last line of `pulumi-lium sweep`: it says what was looked for, and no more than is known."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import PULUMI_LIUM
from tests.support.clusters import live, lost_cluster, market
from tools.emulator import Emulator

NAME = "ci-train-2e4ae3-04792e"
Sweep = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def sweep(lium_env: dict[str, str], tmp_path: Path, emulator: Emulator) -> Sweep:
    """Runs the sweep on a disk without a journal; it ends with 0."""
    emulator.reset(market())

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*PULUMI_LIUM, "sweep", *arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **lium_env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def _last(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.splitlines()[-1]


def test_an_empty_account(sweep: Sweep) -> None:
    assert _last(sweep()) == "Nothing is left that bills and is owned by nobody."


def test_a_cluster_that_nothing_here_knows_is_not_said_to_be_owned(sweep: Sweep, emulator: Emulator) -> None:
    cluster_id = lost_cluster(emulator, NAME)
    done = sweep("--yes")
    assert _last(done) == (
        "Of this disk's interrupted orders nothing is left. 1 cluster runs in this account ($32.00 an hour), which this"
        " call cannot attribute: --name-prefix or --stack-export tells whose it is."
    )
    assert f"not attributed: {NAME} (cluster {cluster_id}, $32.00 an hour)" in done.stderr
    document = json.loads(sweep("--json").stdout)
    assert (document["findings"], document["may_bill"], document["left_alone"]) == ([], [], [])
    assert document["unattributed"] == [{"name": NAME, "cluster_id": cluster_id, "price_per_hour": 32.0}]
    assert len(live(emulator)) == 2


def test_one_that_is_too_young_is_named_last(sweep: Sweep, emulator: Emulator) -> None:
    cluster_id = lost_cluster(emulator, NAME)
    arguments = ["--name-prefix", "ci-train-", "--older-than", "150m", "--yes"]
    assert _last(sweep(*arguments)) == (
        "Of this disk's interrupted orders and clusters whose name begins with 'ci-train-' nothing older than 2.5 h is"
        f" left; left alone: {NAME} (cluster {cluster_id}, $32.00 an hour)."
    )
    document = json.loads(sweep(*arguments, "--json").stdout)
    assert document["left_alone"] == [{"name": NAME, "cluster_id": cluster_id, "price_per_hour": 32.0}]
    assert (document["may_bill"], document["unattributed"]) == ([], [])
    assert len(live(emulator)) == 2


def test_after_a_removal_what_is_left_of_others_is_told(sweep: Sweep, emulator: Emulator) -> None:
    lost_cluster(emulator, NAME)
    other = lost_cluster(emulator, "somebody")
    assert _last(sweep("--name-prefix", "ci-train-", "--yes")) == (
        "Of this disk's interrupted orders and clusters whose name begins with 'ci-train-' nothing is left."
        " 1 cluster runs in this account ($32.00 an hour), which this call cannot attribute."
    )
    assert {pod["cluster_id"] for pod in live(emulator)} == {other}
