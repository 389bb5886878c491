"""Field cases of the CI teardown: B14, B15, B31: the command itself, against the stories that they tell."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from pulumi_lium.lifecycle.values import owner_digest
from tests.conftest import OWNER_KEY, PULUMI_LIUM
from tests.field.story import CASES, Story
from tests.support.cli_stub import PulumiStub
from tests.support.clusters import lost_cluster, market
from tools.emulator import Emulator

CLUSTER = "c1a50000-0000-4000-8000-0000000000a1"
OTHER = "c1a50000-0000-4000-8000-0000000000b2"
STATE = {
    "version": 3,
    "deployment": {
        "resources": [
            {
                "urn": "urn:pulumi:ci::train::pulumi-python:dynamic/lium:Cluster::train-a",
                "type": "pulumi-python:dynamic/lium:Cluster",
                "id": CLUSTER,
                "outputs": {"name": "train-a", "price_per_hour": 32.0, "cluster_id": CLUSTER},
            }
        ]
    },
}


def teardown(
    tmp_path: Path, emulator: Emulator, stub: PulumiStub, stack: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    (project / "Pulumi.yaml").write_text("name: train\nruntime: python\n")
    done = subprocess.run(
        [*PULUMI_LIUM, "teardown", "--cwd", str(project), "--stack", stack, *arguments],
        env={
            "PATH": f"{stub.folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "PULUMI_LIUM_STATE_DIR": str(tmp_path / "state"),
            "LIUM_API_KEY": OWNER_KEY,
            "LIUM_BASE_URL": emulator.base_url,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert OWNER_KEY not in done.stdout + done.stderr
    return done


def deleted(emulator: Emulator) -> set[str]:
    return {row["path"].rpartition("/")[2] for row in emulator.journal() if row["method"] == "DELETE"}


def test_b14_a_cluster_that_only_a_pending_create_tells_of_is_found_and_deleted(
    emulator: Emulator, tmp_path: Path
) -> None:
    story = Story("B14")
    story.play(emulator)
    stub = PulumiStub(tmp_path / "bin", stack_export={"stdout": story.text("checkpoint.json")})
    done = teardown(tmp_path, emulator, stub, "ci-417")
    assert done.returncode == 0, done.stdout + done.stderr
    assert deleted(emulator) == {CLUSTER}
    assert "ci-417-train-a" in done.stdout
    assert CLUSTER in done.stdout
    assert OTHER not in done.stdout + done.stderr


def test_b15_a_missing_stack_is_no_error_and_the_sweep_still_runs(emulator: Emulator, tmp_path: Path) -> None:
    codes = json.loads((CASES / "B15" / "exit-codes.json").read_text())
    text = (CASES / "B15" / "stderr-missing.txt").read_text()
    stub = PulumiStub(tmp_path / "bin", stack_export={"stderr": text, "code": codes["stderr-missing.txt"]})
    done = teardown(tmp_path, emulator, stub, "preview-pr-983")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "There is no stack preview-pr-983" in done.stdout
    assert "kept" not in done.stdout
    assert [row["path"] for row in emulator.journal()] == ["/pods"]
    assert not any(call[0] == "destroy" for call in stub.calls)


def test_b15_where_the_stack_is_missing_a_cluster_with_its_mark_is_named_with_the_command_that_removes_it(
    emulator: Emulator, tmp_path: Path
) -> None:
    """A teardown leaves it alone, since nothing accounts for it; there is no stack that could have been kept."""
    emulator.reset(market())
    name = f"train-{owner_digest('organization/train/ci-417/train')}-0a0a0a"
    cluster_id = lost_cluster(emulator, name)
    text = (CASES / "B15" / "stderr-missing.txt").read_text()
    stub = PulumiStub(tmp_path / "bin", stack_export={"stderr": text, "code": 255})
    done = teardown(tmp_path, emulator, stub, "ci-417")
    assert done.returncode == 4, done.stdout + done.stderr
    *_, remove, last = done.stdout.splitlines()
    assert remove == f"Remove it: `pulumi-lium sweep --name-prefix {name} --yes`"
    assert re.fullmatch(rf"May still bill \$32.00 an hour: {name} \(cluster {cluster_id}, .* old\)\.", last)
    assert "kept" not in done.stdout


def test_b15_a_login_that_fails_is_an_error(emulator: Emulator, tmp_path: Path) -> None:
    codes = json.loads((CASES / "B15" / "exit-codes.json").read_text())
    text = (CASES / "B15" / "stderr-login.txt").read_text()
    stub = PulumiStub(tmp_path / "bin", stack_export={"stderr": text, "code": codes["stderr-login.txt"]})
    done = teardown(tmp_path, emulator, stub, "preview-pr-983")
    assert done.returncode == 1
    assert "PULUMI_ACCESS_TOKEN must be set" in done.stderr


@pytest.mark.parametrize("variant", ["api-401.json", "api-403.json"])
def test_b31_without_valid_credentials_the_stack_is_kept_and_the_cluster_named(
    emulator: Emulator, tmp_path: Path, variant: str
) -> None:
    story = Story("B31", variant)
    story.play(emulator)
    stub = PulumiStub(
        tmp_path / "bin",
        stack_export={"stdout": json.dumps(STATE)},
        destroy={"stderr": "error: deleting train-a failed", "code": 255},
    )
    done = teardown(tmp_path, emulator, stub, "ci", "--remove-stack")
    assert done.returncode == 4, done.stdout + done.stderr
    *_, remove, last = done.stdout.splitlines()
    # `train-a` was chosen by a person: a sweep by that prefix could hit others.
    assert remove == f"Remove it: `pulumi-lium teardown --cwd {tmp_path / 'project'} --stack ci`"
    assert CLUSTER in last
    assert "$32.00 an hour" in last
    assert "The stack ci was kept" in last
    assert not any(call[:2] == ["stack", "rm"] for call in stub.calls)
    assert not any("--force" in call for call in stub.calls)
