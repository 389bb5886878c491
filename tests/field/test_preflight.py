"""Field cases that the preflight meets: it names the fault and touches nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._checks.host import look
from ansible_collections.lium.cluster.plugins.module_utils._probe import open_probe

from tests.collection.recorded_host import healthy_host

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize(
    ("name", "observed"),
    [
        ("empty.json", "the file is empty"),
        ("blank.json", "the file is empty"),
        ("bom.json", "not JSON"),
        ("html.json", "not JSON"),
        ("list.json", "not a JSON object"),
    ],
)
def test_b78_a_daemon_json_that_docker_refuses(name: str, observed: str, tmp_path: Path) -> None:
    host = healthy_host(random.Random(1))
    root = host.write(tmp_path / "host")
    content = (CASES / "B78" / name).read_bytes()
    path = root / "etc/docker/daemon.json"
    path.write_bytes(content)
    record = next(row for row in look(open_probe(str(root), {}), {}).records if row.id == "docker.daemon_json")
    assert record.status == "MUST_FIX"
    assert observed in record.observed
    assert record.remediation
    assert path.read_bytes() == content


def test_b77_keys_of_the_site_are_no_fault(tmp_path: Path) -> None:
    """A file with storage paths and log limits of the site lacks only what the executor's installer adds."""
    host = healthy_host(random.Random(1))
    root = host.write(tmp_path / "host")
    (root / "etc/docker/daemon.json").write_bytes((CASES / "B77" / "daemon.json").read_bytes())
    record = next(row for row in look(open_probe(str(root), {}), {}).records if row.id == "docker.daemon_json")
    assert record.status == "MUST_FIX"
    assert "merge" in record.remediation
    assert "without replacing its other ones" in record.remediation
