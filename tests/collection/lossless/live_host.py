"""A host whose card comes from the factory: what is written to it is what it answers with from then on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.lium.cluster.plugins.module_utils._footprint import Outcome
from ansible_collections.lium.cluster.plugins.module_utils._lossless.checks import look_at_lossless
from ansible_collections.lium.cluster.plugins.module_utils._lossless.manage import SCRIPT, Manager
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Policy
from ansible_collections.lium.cluster.plugins.module_utils._probe import Completed, HostProbe, RecordedRunner

from tests.collection.lossless import outputs
from tests.collection.lossless.hosts import NETDEV, lossless_host, site_options
from tests.collection.recorded_host import RecordedHost

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
