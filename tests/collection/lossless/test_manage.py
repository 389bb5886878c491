"""Writing the lossless set-up: on hosts that answer with what was last written to them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._lossless.manage import SCRIPT, UNIT, ManageError

from tests.collection.lossless.hosts import NETDEV
from tests.collection.lossless.live_host import LiveHost

DRIVERS = ("mlx5_core", "bnxt_en", "ice")


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_card_from_the_factory_is_made_lossless_and_back(driver: str, tmp_path: Path) -> None:
    host = LiveHost(driver, tmp_path)
    before = host.state()
    assert "roce.pfc" in host.found()
    predicted = host.present(dry=True)
    assert (host.ran, host.traces) == ([], [])
    outcome = host.present()
    assert outcome.changes == predicted.changes
    assert outcome.left == []
    assert set(host.found()) - {"roce.dcbx_owner"} == set()
    assert (host.enabled, host.active) == (True, True)
    ran = len(host.ran)
    assert host.present().changes == []
    assert len(host.ran) == ran, "a second run touches nothing"
    host.reboot()
    assert host.found() == {}, "the unit sets all of it anew"
    assert host.present().changes == []
    gone = host.manager().absent()
    assert gone.left == []
    assert host.state() == before
    assert (host.enabled, host.active, host.traces) == (False, False, [])
    assert host.manager().absent().changes == []


def test_broadcoms_own_priority_of_cnps_stays(tmp_path: Path) -> None:
    """The check is content with 7 on these cards: neither the map nor the CNPs are led to 6."""
    host = LiveHost("bnxt_en", tmp_path)
    host.entries = {26: 3, 48: 7}
    folder = tmp_path / "sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc"
    for name, text in (("cnp_prio", "0x7"), ("cnp_dscp", "0x30")):
        (folder / name).write_text(text)
    host.present()
    assert (host.entries, (folder / "cnp_prio").read_text()) == ({26: 3, 48: 7}, "0x7")


def test_what_the_firmware_owns_is_not_written(tmp_path: Path) -> None:
    host = LiveHost("bnxt_en", tmp_path)
    info = tmp_path / "sys/kernel/debug/bnxt_re/bnxt_re0/info"
    info.parent.mkdir(parents=True)
    info.write_text("fw_service_prof_type_sup : 1\n")
    host.present()
    assert host.pfc == {3}
    assert not [line for line in host.ran if "roce_dscp" in line or "cnp_" in line]


def test_only_what_differs_is_written(tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path)
    host.present()
    (tmp_path / f"sys/class/net/{NETDEV}/ecn/roce_rp/enable/3").write_text("0")
    changes = host.present().changes
    assert changes == [
        f"set {NETDEV} ecn: {{'priority': 3, 'np': True, 'rp': True}} instead of"
        " {'priority': 3, 'np': True, 'rp': False}"
    ]
    host.manager().absent()
    assert (tmp_path / f"sys/class/net/{NETDEV}/ecn/roce_np/enable/3").read_text() == "0", "the first value of all"


@pytest.mark.parametrize(
    ("containers", "said"),
    [("executor-runner\npod_x\n", "a rental runs (pod_x)"), ("lium_roce_probe\n", "the platform is measuring")],
)
def test_a_busy_host_is_left_alone(containers: str, said: str, tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path, containers=containers)
    outcome = host.present()
    assert (outcome.changes, host.ran, host.traces) == ([], [], [])
    assert said in outcome.left[0]


def test_a_rental_that_came_later_keeps_its_settings(tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path)
    host.present()
    state = host.state()
    host.host.answer("docker ps --format {{.Names}}", "pod_x\n")
    assert host.present().left == [], "nothing to do is no refusal"
    outcome = host.manager().absent()
    assert host.state() == state
    assert any("a rental runs" in reason for reason in outcome.left)
    host.host.answer("docker ps --format {{.Names}}", "")
    assert host.manager().absent().left == []
    assert host.pfc == set()


def test_docker_that_does_not_answer_hides_a_rental(tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path)
    host.host.answer("docker ps --format {{.Names}}", rc=1, stderr="Cannot connect\n")
    outcome = host.present()
    assert (outcome.changes, "cannot tell whether a rental runs" in outcome.left[0]) == ([], True)


def test_the_netdev_of_the_connection_is_left_alone(tmp_path: Path) -> None:
    rail = "10.20.30.1"
    host = LiveHost("mlx5_core", tmp_path, environ=f"SSH_CONNECTION=192.0.2.7 50000 {rail} 22")
    outcome = host.present()
    assert (outcome.changes, host.ran) == ([], [])
    assert outcome.left == [
        f"mlx5_0:1 ({NETDEV}): {NETDEV} carries the Ansible connection or the default route of this host"
    ]


def test_where_the_way_to_the_host_cannot_be_read_nothing_is_written(tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path)
    host.host.answer("ip -j route show", "no JSON")
    outcome = host.present()
    assert (outcome.changes, host.ran) == ([], [])
    assert "cannot tell which netdev carries" in outcome.left[0]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("stuck", ["pfc", "ethtool"])
def test_what_does_not_read_as_written_is_taken_back(driver: str, stuck: str, tmp_path: Path) -> None:
    host = LiveHost(driver, tmp_path)
    before = host.state()
    host.stuck = stuck
    with pytest.raises(ManageError, match="Everything is as it was before"):
        host.present()
    assert host.state() == before
    assert (host.enabled, host.traces) == (False, [])


def test_a_script_that_fails_is_taken_back(tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path)
    before = host.state()
    host.broken = "--pfc"
    with pytest.raises(ManageError, match="lium-lossless failed"):
        host.present()
    assert (host.pause, host.enabled, host.active, host.traces) == ("on", False, False, [])
    assert host.state() == before


def test_what_no_longer_reads_after_the_write_is_not_taken_for_written(tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path)
    host.blinds = f"mlnx_qos -i {NETDEV}"
    with pytest.raises(ManageError, match=rf"{NETDEV} pfc is None, not \[3\].*{NETDEV} pfc could not be set back"):
        host.present()
    assert host.pfc == set(), "it was led back all the same"
    assert not host.enabled
    host.blinds = ""
    assert host.manager().absent().left == []
    assert host.traces == []


def test_a_class_that_stays_is_not_taken_for_the_sites_choice(tmp_path: Path) -> None:
    """With trust and PFC written, the old class leads to a lossless priority; it is not what was to be written."""
    host = LiveHost("mlx5_core", tmp_path)
    (tmp_path / "sys/class/infiniband/mlx5_0/tc/1/traffic_class").write_text("Global tclass=98")
    host.stuck = "traffic_class"
    with pytest.raises(ManageError, match=f"{NETDEV} class is 98, not 106"):
        host.present()
    assert (host.pfc, host.trust) == (set(), "pcp")


def test_an_app_entry_that_the_kernel_refused_is_noticed(tmp_path: Path) -> None:
    """`dcb app replace` exits 0 all the same (host-contract 4.3.2)."""
    host = LiveHost("bnxt_en", tmp_path)
    host.stuck = "dcb app replace"
    with pytest.raises(ManageError, match=rf"{NETDEV} dscp is \[\[26, None\], \[48, None\]\]"):
        host.present()
    assert host.pfc == set()


def test_what_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path)
    shutil.rmtree(tmp_path / f"sys/class/net/{NETDEV}/ecn")
    outcome = host.present()
    assert outcome.left == [f"mlx5_0:1 ({NETDEV}): ecn, cnp cannot be read, so it is not written"]
    assert host.pfc == {3}
    assert "ecn" not in (tmp_path / SCRIPT.lstrip("/")).read_text()


def test_what_someone_else_has_set_since_stays(tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path)
    host.present()
    host.pfc = {4}
    outcome = host.manager().absent()
    assert outcome.left == [f"{NETDEV} pfc: changed by someone else since"]
    assert host.pfc == {4}
    assert host.pause == "on"
    assert host.traces == []


def test_hosts_without_a_roce_card_are_left_alone(tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path)
    (tmp_path / "sys/class/infiniband/mlx5_0/parent").write_text(NETDEV)
    assert (host.present().changes, host.traces) == ([], [])


def test_a_host_for_confidential_vms_is_left_alone(tmp_path: Path) -> None:
    host = LiveHost("mlx5_core", tmp_path)
    (tmp_path / "var/lib/lium-cvm").mkdir(parents=True)
    outcome = host.present()
    assert (outcome.changes, "confidential" in outcome.left[0]) == ([], True)


def test_the_unit_comes_after_the_network_and_before_the_pods(tmp_path: Path) -> None:
    host = LiveHost("ice", tmp_path)
    host.present()
    text = (tmp_path / "etc/systemd/system" / UNIT).read_text()
    assert "After=network-online.target" in text
    assert "Before=docker.service" in text, "Docker starts the pods of a rental again at boot"
    assert f"ExecStart={SCRIPT}" in text
    script = tmp_path / SCRIPT.lstrip("/")
    assert script.stat().st_mode & 0o777 == 0o755
    if shutil.which("systemd-analyze"):  # where there is systemd, it has the last word
        unit = tmp_path / UNIT
        unit.write_text(text.replace(f"={SCRIPT}", f"={script}"))
        done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, UNIT in done.stderr) == (0, False), done.stderr
