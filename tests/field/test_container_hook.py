"""Field cases on the container hook: the inputs stand in cases/, the right outcome in each expected.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.role_files import load

wrapper = load("runtime_hook", "lium_rdma_runc")
CASES = Path(__file__).parent / "cases"
UNLIMITED = 18446744073709551615


def read(case: str, file: str) -> Any:
    return json.loads((CASES / case / file).read_text())


def nodes(case: str) -> list[dict[str, Any]]:
    """The case's host devices as the wrapper reads them from the host."""
    rows = read(case, "host-devices.json")
    return [{"path": path, "fileMode": 0o666, "uid": 0, "gid": 0, **row} for path, row in sorted(rows.items())]


def edited(case: str, file: str, devices: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = read(case, file)
    wrapper.edit(spec, devices, [], True, lambda path: False)
    return spec


def allow(row: dict[str, Any]) -> dict[str, Any]:
    return {"allow": True, "type": "c", "major": row["major"], "minor": row["minor"], "access": "rwm"}


def test_b83_rights_stand_in_the_spec() -> None:
    devices = nodes("B83")
    linux = edited("B83", "config.json", devices)["linux"]
    assert linux["devices"] == devices
    assert all(allow(row) in linux["resources"]["devices"] for row in devices)


@pytest.mark.parametrize("file", ["config.json", "deny-last.json"])
def test_b84_rules_after_the_deny_all(file: str) -> None:
    devices = nodes("B84")
    rules = edited("B84", file, devices)["linux"]["resources"]["devices"]
    last_deny = max(place for place, rule in enumerate(rules) if not rule["allow"])
    assert [rule for rule in rules[last_deny + 1 :] if rule.get("minor") != 3] == [allow(row) for row in devices]


@pytest.mark.parametrize("file", ["none.json", "low.json", "already.json", "nofile.json"])
def test_b87_exactly_one_limit(tmp_path: Path, file: str) -> None:
    before = read("B87", file)["process"].get("rlimits", [])
    (tmp_path / "config.json").write_text((CASES / "B87" / file).read_text())
    nothing = str(tmp_path / "none")
    wrapper.edit_bundle(str(tmp_path), {"device_folder": nothing, "env_file": nothing}, may_lift=lambda: True)
    text = (tmp_path / "config.json").read_text()
    limits = json.loads(text)["process"]["rlimits"]
    memlock = [row for row in limits if row["type"] == "RLIMIT_MEMLOCK"]
    assert memlock == [{"type": "RLIMIT_MEMLOCK", "soft": UNLIMITED, "hard": UNLIMITED}]
    assert str(UNLIMITED) in text
    assert [row for row in limits if row not in memlock] == [row for row in before if row["type"] == "RLIMIT_NOFILE"]
