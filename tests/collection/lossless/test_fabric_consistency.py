"""Between hosts: one lossless set-up everywhere."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.lium.cluster.plugins.plugin_utils._fabric import compare_hosts

from tests.collection.lossless import outputs
from tests.collection.lossless.hosts import NETDEV, look
from tests.collection.recorded_host import RecordedHost, healthy_host

CLASS = "/sys/class/infiniband/mlx5_0/tc/1/traffic_class"
SITE = outputs.MLNX_QOS.replace(
    "0   0   0   1   0   0   0   0   \n\tbuffer", "0   0   0   0   0   1   0   0   \n\tbuffer"
)


def mlx5_hosts(count: int) -> list[RecordedHost]:
    return [healthy_host(random.Random(number), number + 30, "roce", "mlx5_core") for number in range(1, count + 1)]


def compared(hosts: list[RecordedHost], folder: Path) -> dict[str, tuple[str, str]]:
    facts: dict[str, dict[str, Any]] = {
        f"h{number}": dict(look(host, folder / f"h{number}").facts) for number, host in enumerate(hosts, 1)
    }
    return {
        name: (record.status, record.observed)
        for name, records in compare_hosts(facts).items()
        for record in records
        if record.id == "roce.cluster_consistent"
    }


def test_hosts_alike(tmp_path: Path) -> None:
    found = compared(mlx5_hosts(3), tmp_path)
    assert found == dict.fromkeys(("h1", "h2", "h3"), ("OK", "10.20.30.0/24: h1, h2, h3 alike"))


def test_a_site_of_its_own_shows_between_hosts(tmp_path: Path) -> None:
    """Each host is whole in itself, so that only the comparison can find it."""
    hosts = mlx5_hosts(3)
    hosts[1].answer(f"mlnx_qos -i {NETDEV}", SITE)
    hosts[1].files[CLASS] = "Global tclass=186"
    found = compared(hosts, tmp_path)
    assert {status for status, _observed in found.values()} == {"MUST_FIX"}
    observed = found["h1"][1]
    assert "PFC: h1 3, h2 5, h3 3" in observed
    assert "DSCP: h1 26 -> 3, h2 46 -> 5, h3 26 -> 3" in observed
    assert "forced class: h1 106, h2 186, h3 106" in observed
    assert "ECN" not in observed
    assert look(hosts[1], tmp_path / "alone").facts["lossless"]["verdict"] == "lossless"


@pytest.mark.parametrize("reads_class", [True, False])
def test_what_one_host_does_not_show_is_unknown(reads_class: bool, tmp_path: Path) -> None:
    hosts = mlx5_hosts(2)
    hosts[1].commands[f"mlnx_qos -i {NETDEV}"] = {"timeout": True}
    if not reads_class:
        hosts[1].files[CLASS] = "Global tclass=98"
    status, observed = compared(hosts, tmp_path)["h2"]
    if reads_class:
        assert (status, "not read: PFC of h2; trust of h2" in observed) == ("UNKNOWN", True)
    else:
        assert (status, "forced class: h1 106, h2 98" in observed) == ("MUST_FIX", True)


def test_soft_roce_and_single_hosts_are_compared_with_nobody(tmp_path: Path) -> None:
    hosts = mlx5_hosts(2)
    for host in hosts:
        del host.links["/sys/class/infiniband/mlx5_0/device"]
        host.files["/sys/class/infiniband/mlx5_0/parent"] = NETDEV
    assert compared(hosts, tmp_path / "soft") == {}
    assert compared(mlx5_hosts(1), tmp_path / "one") == {}
