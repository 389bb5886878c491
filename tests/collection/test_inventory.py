"""The inventory plugin as Ansible runs it, against real HTTP."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.plugin_utils._account import RowError, hosts_of
from hypothesis import given
from hypothesis import strategies as st

from tests.collection.conftest import ROOT, ansible_env, ansible_tool
from tests.conftest import OWNER_KEY
from tests.support.clusters import live, lost_cluster, market
from tests.support.loopback import LoopbackService, Reply, Seen, ok, page
from tools.emulator import Emulator

KEY = "sk_inventory_0123456789abcdef"
CASE = ROOT / "tests" / "field" / "cases" / "B115" / "pods.json"

Listing = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def listing(tmp_path: Path) -> Listing:
    """`ansible-inventory --list` of one configuration file; warnings and errors stand in stderr."""

    def run(base_url: str, key: str = KEY, **options: Any) -> subprocess.CompletedProcess[str]:
        source = tmp_path / "train.lium.yml"
        source.write_text(json.dumps({"plugin": "lium.cluster.lium", **options}))
        return subprocess.run(
            [ansible_tool("ansible-inventory"), "-i", str(source), "--list"],
            cwd=tmp_path,
            env={
                **ansible_env(ROOT, tmp_path / "ansible-home"),
                "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
                "LIUM_API_KEY": key,
                "LIUM_BASE_URL": base_url,
                "NO_PROXY": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def _shown(outcome: subprocess.CompletedProcess[str]) -> Any:
    """What was listed. Strings that came from outside are marked as not to be templated; the mark is taken off."""
    assert outcome.returncode == 0, outcome.stderr

    def plain(found: dict[str, Any]) -> Any:
        return found["__ansible_unsafe"] if set(found) == {"__ansible_unsafe"} else found

    return json.loads(outcome.stdout, object_hook=plain)


def test_b115_group_names_are_valid_and_each_host_stands_once(listing: Listing) -> None:
    pods = json.loads(CASE.read_text())
    with LoopbackService(ok(pods)) as service:
        outcome = listing(service.base_url)
    assert "Invalid characters" not in outcome.stderr
    found = _shown(outcome)
    hosts = found["_meta"]["hostvars"]
    assert sorted(variables["lium_pod_id"] for variables in hosts.values()) == sorted(pod["id"] for pod in pods)
    groups = set(found) - {"_meta", "all"}
    assert all(re.fullmatch(r"[A-Za-z0-9_]+", group) for group in groups | set(found["all"]["children"]))
    # One cluster is named "train a" by its rank 0, the other "train_a": the changed name is told apart.
    (changed,) = [group for group in groups if re.fullmatch(r"lium_cluster_train_a_[0-9a-f]{4}", group)]
    assert sorted(found[changed]["hosts"]) == ["train-a-0", "train-a-1"]
    assert found["lium_cluster_train_a"]["hosts"] == ["train_a-0"]
    assert found["lium_on_fabric_fab_us_east_1"]["hosts"] == ["train_a-0"]
    assert sorted(found["lium_gpu_h100"]["hosts"]) == ["train-a-0", "train-a-1"]


def test_hosts_carry_what_a_job_and_ssh_need(listing: Listing) -> None:
    with LoopbackService(ok(json.loads(CASE.read_text()))) as service:
        outcome = listing(
            service.base_url,
            keyed_groups=[{"key": "lium_rank | string", "prefix": "rank"}],
            compose={"first": "lium_rank == 0"},
        )
        (request,) = service.seen
    assert request.headers["x-api-key"] == KEY
    found = _shown(outcome)
    variables = found["_meta"]["hostvars"]["train-a-1"]
    assert variables["ansible_host"] == variables["lium_public_host"] == "198.51.100.12"
    assert variables["ansible_port"] == variables["lium_ssh_port"] == 40002
    assert variables["ansible_user"] == "root"
    assert variables["lium_overlay_ip"] == "10.42.0.2"
    assert variables["lium_rank"] == 1
    assert variables["lium_gpu_type"] == "H100"
    assert variables["first"] is False
    assert sorted(found["rank_0"]["hosts"]) == ["train-a-0", "train_a-0"]


def test_a_cluster_of_the_emulator_is_an_inventory(listing: Listing, emulator: Emulator) -> None:
    emulator.reset(market())
    cluster_id = lost_cluster(emulator, "train")
    found = _shown(listing(emulator.base_url, key=OWNER_KEY))
    hosts, pods = found["_meta"]["hostvars"], live(emulator)
    assert found["lium_cluster_train"]["hosts"] == ["train-0", "train-1"]
    for rank, pod in enumerate(pods):
        variables = hosts[f"train-{rank}"]
        assert variables["lium_pod_id"] == pod["id"]
        assert variables["lium_cluster_id"] == cluster_id
        assert variables["lium_rank"] == rank
        assert variables["lium_overlay_ip"] == f"10.42.0.{rank + 1}"
        assert variables["ansible_host"] == pod["executor"]["executor_ip_address"]
    assert len(hosts) == len(pods) == 2


def test_the_overlay_address_can_be_the_one_to_connect_to(listing: Listing) -> None:
    with LoopbackService(ok(json.loads(CASE.read_text()))) as service:
        outcome = listing(service.base_url, connect_by="overlay")
    variables = _shown(outcome)["_meta"]["hostvars"]["train-a-1"]
    assert variables["ansible_host"] == "10.42.0.2"
    assert "ansible_port" not in variables


def test_pods_that_cannot_be_entered_are_left_out_aloud(listing: Listing) -> None:
    pods = json.loads(CASE.read_text())
    pods[1].update(status="PENDING", ssh_connect_cmd=None)
    with LoopbackService(ok(pods)) as service:
        outcome = listing(service.base_url)
        everything = listing(service.base_url, ready_only=False)
    assert "train-a-1" not in _shown(outcome)["_meta"]["hostvars"]
    assert "train-a-1 (PENDING)" in re.sub(r"\s+", " ", outcome.stderr)
    assert "train-a-1" in _shown(everything)["_meta"]["hostvars"]


def test_an_empty_account_is_an_empty_inventory_with_a_warning(listing: Listing) -> None:
    with LoopbackService(ok([])) as service:
        outcome = listing(service.base_url)
    assert _shown(outcome)["_meta"]["hostvars"] == {}
    assert "the account has no pods" in re.sub(r"\s+", " ", outcome.stderr)


def _elsewhere(seen: Seen) -> Reply:
    return Reply(302, b"", {"Location": "http://127.0.0.2:1/api/pods"})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ok({"error": {"message": f"bad key {KEY}"}}, status=401), "The key is not accepted"),
        (ok({}, status=403), "scope 'read'"),
        (ok({}, status=404), "base_url ends in /api"),
        (ok({}, status=503), "HTTP 503"),
        (page(), "not with JSON"),
        (Reply(200, b""), "not with JSON"),
        (ok({"items": []}), "no list"),
        (ok([None]), "row 0"),
        (ok([{"pod_name": "x"}]), "has no id"),
        (_elsewhere, "redirects"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_never_an_empty_inventory(listing: Listing, answer: Any, said: str) -> None:
    with LoopbackService(answer) as service:
        outcome = listing(service.base_url)
    assert outcome.returncode != 0
    assert said in re.sub(r"\s+", " ", outcome.stderr)
    assert KEY not in outcome.stderr + outcome.stdout


def test_no_service_is_an_error(listing: Listing) -> None:
    with LoopbackService() as service:
        base_url = service.base_url
    outcome = listing(base_url)
    assert outcome.returncode != 0
    assert "cannot be reached" in re.sub(r"\s+", " ", outcome.stderr)


def test_a_passing_failure_is_outlived(listing: Listing) -> None:
    with LoopbackService(ok({}, status=502), ok(json.loads(CASE.read_text()))) as service:
        outcome = listing(service.base_url)
        assert len(service.seen) == 2
    assert outcome.returncode == 0, outcome.stderr


def test_the_cache_spares_the_second_listing_and_holds_no_key(listing: Listing, tmp_path: Path) -> None:
    cache = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(tmp_path / "cache")}
    with LoopbackService(ok(json.loads(CASE.read_text()))) as service:
        first, second = (listing(service.base_url, **cache) for _ in range(2))
        assert len(service.seen) == 1
        assert first.stdout == second.stdout
        listing(service.base_url, key=f"{KEY}_of_another", **cache)
        assert len(service.seen) == 2, "another account never gets this one's pods"
    kept = [path.read_text() for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert kept
    assert not any(KEY in text for text in kept)


_NAMES = st.one_of(st.none(), st.text(max_size=12), st.sampled_from(["train a", "train-a", "train_a", "", ".", "ä"]))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "id": st.uuids().map(str),
                "pod_name": _NAMES,
                "fabric_id": _NAMES,
                "cluster_id": st.one_of(st.none(), st.sampled_from(["c1", "c2", "c3"])),
                "cluster_node_index": st.one_of(st.none(), st.integers(0, 3)),
                "executor": st.one_of(st.none(), st.fixed_dictionaries({"machine_name": _NAMES})),
                "status": _NAMES,
            }
        ),
        max_size=8,
        unique_by=lambda pod: pod["id"],
    )
)
def test_any_account_gives_valid_names_and_keeps_clusters_apart(pods: list[dict[str, Any]]) -> None:
    hosts = hosts_of(pods)
    assert sorted(host.variables["lium_pod_id"] for host in hosts) == sorted(pod["id"] for pod in pods)
    assert len({host.name for host in hosts}) == len(hosts)
    for host in hosts:
        assert re.fullmatch(r"[A-Za-z0-9._-]+", host.name)
        assert all(re.fullmatch(r"lium_[A-Za-z0-9_]+", group) for group in host.groups)
    clusters: dict[str, set[str]] = {}
    for host in hosts:
        for group in host.groups:
            if group.startswith("lium_cluster_"):
                clusters.setdefault(group, set()).add(host.variables["lium_cluster_id"])
    assert all(len(ids) == 1 for ids in clusters.values())


def test_a_row_that_is_no_pod_names_itself() -> None:
    with pytest.raises(RowError, match="cluster_node_index"):
        hosts_of([{"id": "p", "cluster_node_index": "zero"}])
