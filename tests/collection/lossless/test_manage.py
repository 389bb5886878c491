"""Writing the lossless set-up: on hosts that answer with what was last written to them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._footprint import Outcome
from ansible_collections.lium.cluster.plugins.module_utils._lossless.checks import look_at_lossless
from ansible_collections.lium.cluster.plugins.module_utils._lossless.manage import SCRIPT, UNIT, ManageError, Manager
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Policy
from ansible_collections.lium.cluster.plugins.module_utils._probe import Completed, HostProbe, RecordedRunner

from tests.collection.lossless import outputs
from tests.collection.lossless.hosts import NETDEV, lossless_host, site_options
from tests.collection.recorded_host import RecordedHost

DRIVERS = ("mlx5_core", "bnxt_en", "ice")
PID = 4711


class LiveHost:
    """A host whose card comes from the factory: it answers with its state, and shell lines of the role change that.

    Lines with the text ``stuck`` are taken without a word and change nothing, as `dcb app replace` may; those with the
    text ``broken`` fail. The command ``blinds`` fails once the unit has run.
    """

    def __init__(self, driver: str, root: Path, **changes: str) -> None:
        self.driver, self.root, self.stuck, self.broken = driver, root, "", ""
        self.blinds = ""
        self.pfc: set[int] = set()
        self.trust, self.pause, self.entries = "pcp", "on", dict[int, int]()
        self.enabled = self.active = False
        self.ran: list[str] = []
        host = lossless_host(driver)
        for path, text in factory_files(driver).items():
            host.files[path] = text
        host.files[f"/proc/{PID}/status"] = "Name:\tpython3\nPPid:\t1"
        host.files[f"/proc/{PID}/environ"] = changes.get("environ", "PATH=/usr/bin")
        host.answer("docker ps --format {{.Names}}", changes.get("containers", "executor-runner\nfiller_7\n"))
        host.folders.add(f"/sys/class/net/{NETDEV}/statistics")
        host.folders |= {"/etc/systemd/system", "/usr/local/sbin"}
        self.host: RecordedHost = host
        host.write(root)
        self.probe = HostProbe(self, str(root))

    # What the checks ask

    def which(self, tool: str) -> str | None:
        return f"/usr/bin/{tool}"

    def run(self, argv: Sequence[str], timeout: float, stdin: str | None) -> Completed:
        line = " ".join(argv)
        texts = {
            f"mlnx_qos -i {NETDEV}": self._mlnx_qos,
            f"dcb -j pfc show dev {NETDEV}": lambda: outputs.dcb_pfc(*self.pfc),
            f"dcb -j app show dev {NETDEV}": lambda: json.dumps(
                {"dscp_prio": [list(row) for row in self.entries.items()]}
            ),
            f"ethtool -a {NETDEV}": lambda: f"Autonegotiate:\toff\nRX:\t{self.pause}\nTX:\t{self.pause}\n",
        }
        if line == self.blinds and self.ran:
            return Completed(tuple(argv), 1, "", "[Errno 5] Input/output error")
        if line in texts and line in self.host.commands:
            return Completed(tuple(argv), 0, texts[line](), "")
        return RecordedRunner(self.host.commands).run(argv, timeout, stdin)

    def _mlnx_qos(self) -> str:
        row = "   ".join(str(int(number in self.pfc)) for number in range(8))
        text = re.sub(r"enabled .*\n", f"enabled     {row}   \n", outputs.MLNX_QOS)
        if self.trust == "pcp":
            text = text.replace("state: dscp\ndscp2prio mapping:\n" + outputs.ROWS, "state: pcp\n")
        return text

    # What the role does

    def command(self, argv: Sequence[str]) -> tuple[int, str]:
        if argv[:2] == ["sh", "-c"]:
            return self._line(argv[2]), ""
        assert argv[0] == "systemctl", argv
        if argv[1] == "start" or "--now" in argv:
            if argv[1] == "enable":
                self.enabled = True
                if self.active:
                    return 0, ""
            return self.boot()
        if argv[1] in ("stop", "disable"):
            self.active, self.enabled = self.active and argv[1] != "stop", self.enabled and argv[1] != "disable"
        states = {"is-enabled": self.enabled, "is-active": self.active}
        return int(not states.get(argv[1], True)), ""

    def boot(self) -> tuple[int, str]:
        """Runs the script of the unit."""
        script = self.root / SCRIPT.lstrip("/")
        subprocess.run(["sh", "-n", str(script)], check=True)
        lines = [line for line in script.read_text().splitlines() if line.endswith(("failed=1", "|| true"))]
        codes = [self._line(re.sub(r"^\{ (.*); \} \|\| failed=1$|^(.*) \|\| true$", r"\1\2", line)) for line in lines]
        self.active = not any(codes)
        return int(any(codes)), ""

    def reboot(self) -> None:
        """Everything volatile is as it came from the factory."""
        self.pfc, self.trust, self.pause, self.entries = set(), "pcp", "on", {}
        for path, text in factory_files(self.driver).items():
            (self.root / path.lstrip("/")).write_text(text)
        self.active = False
        if self.enabled:
            self.boot()

    def _line(self, text: str) -> int:
        self.ran.append(text)
        for line in text.split(" && "):
            if self.stuck and self.stuck in line:
                continue
            if self.broken and self.broken in line:
                return 1
            self._apply(line)
        return 0

    def _apply(self, line: str) -> None:
        words = line.split()
        if words[0] == "echo":
            path = self.root / words[-1].lstrip("/")
            if path.name == "traffic_class":
                path.write_text("" if words[1] == "-1" else f"Global tclass={words[1]}")
            elif path.name != "apply":
                assert path.exists(), path
                path.write_text(words[1])
        elif words[0] == "mlnx_qos":
            option, value = words[3:5]
            if option == "--pfc":
                self.pfc = {number for number, on in enumerate(value.split(",")) if on == "1"}
            elif option == "--trust":
                self.trust = value
            else:
                assert (option, value.split(",")[0]) == ("--dscp2prio", "set")
        elif words[:2] == ["dcb", "pfc"]:
            assert words[5:7] == ["prio-pfc", "all:off"]
            self.pfc = {int(word.split(":")[0]) for word in words[7:]}
        elif words[:2] == ["dcb", "app"]:
            pairs = [tuple(map(int, word.split(":"))) for word in words[6:]]
            for dscp, priority in pairs:
                if words[2] == "replace":
                    self.entries[dscp] = priority
                else:
                    assert (words[2], self.entries.pop(dscp)) == ("del", priority)
        elif words[0] == "ethtool":
            assert words[1:3] == ["-A", NETDEV]
            self.pause = words[6]
        else:
            assert words[0] in ("mkdir", "rmdir"), line

    # What tests ask

    def manager(self, *, dry: bool = False) -> Manager:
        return Manager(self.probe, PID, str(self.root), self.command, dry)

    def present(self, *, dry: bool = False) -> Outcome:
        return self.manager(dry=dry).present(Policy.from_options(site_options(self.host)))

    def found(self) -> dict[str, str]:
        records = look_at_lossless(self.probe, site_options(self.host)).records
        return {row.id: row.status for row in records if row.status in ("MUST_FIX", "UNKNOWN")}

    def state(self) -> dict[str, object]:
        files = {path: (self.root / path.lstrip("/")).read_text().strip() for path in factory_files(self.driver)}
        return {"pfc": {*self.pfc}, "trust": self.trust, "pause": self.pause, "entries": {**self.entries}, **files}

    @property
    def traces(self) -> list[str]:
        folders = ("etc/systemd/system", "usr/local/sbin", "var/lib/lium-cluster")
        return [str(path) for folder in folders for path in (self.root / folder).rglob("*")]


def factory_files(driver: str) -> dict[str, str]:
    """What a card shows that nobody has set up. DCQCN of irdma is a matter of how its module was loaded."""
    ecn = f"/sys/class/net/{NETDEV}/ecn"
    if driver == "mlx5_core":
        return {
            f"{ecn}/roce_np/enable/3": "0",
            f"{ecn}/roce_rp/enable/3": "0",
            f"{ecn}/roce_np/cnp_dscp": "0",
            f"{ecn}/roce_np/cnp_802p_prio": "0",
            "/sys/class/infiniband/mlx5_0/tc/1/traffic_class": "",
        }
    if driver == "bnxt_en":
        folder = "/sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc"
        return {
            f"{folder}/{name}": "0x0" for name in ("ecn_enable", "ecn_marking", "roce_dscp", "cnp_prio", "cnp_dscp")
        }
    return {}


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
    assert (tmp_path / SCRIPT.lstrip("/")).stat().st_mode & 0o777 == 0o755
