"""`lossless_info` on generated hosts: nothing found on good ones, each seeded fault found with its link and its fix."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._lossless.checks import look_at_lossless
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Policy, PolicyError
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rules import RULES
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, open_probe
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.collection.lossless import outputs
from tests.collection.lossless.hosts import NETDEV, look, lossless_host, site_options
from tests.collection.recorded_host import RecordedHost, healthy_host

#: The ids of host-contract 4.4 for one host, and that of the verdict.
IDS = {
    "roce.lossless",
    "roce.pfc",
    "roce.trust",
    "roce.dscp_map",
    "roce.effective_dscp",
    "roce.ecn",
    "roce.cnp",
    "roce.pause",
    "roce.buffers",
    "roce.ets",
    "roce.dcbx_owner",
    "roce.dcbx_peer",
}
FOUND = ("MUST_FIX", "WARN", "UNKNOWN")
DRIVERS = ("mlx5_core", "bnxt_en", "ice")
ECN = f"/sys/class/net/{NETDEV}/ecn"
CLASS = "/sys/class/infiniband/mlx5_0/tc/1/traffic_class"
CC = "/sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc"
PEER = f"lldpcli -f json0 show neighbors details ports {NETDEV}"


def by_id(host: RecordedHost, folder: Path, **options: object) -> dict[str, Record]:
    return {record.id: record for record in look(host, folder, **options).records}


@pytest.mark.parametrize("seed", range(100))
def test_nothing_is_found_on_a_healthy_host(seed: int, tmp_path: Path) -> None:
    host = healthy_host(random.Random(seed))
    found = look(host, tmp_path / "host")
    assert {record.id for record in found.records} == IDS
    assert {row.id: row.observed for row in found.records if row.status in FOUND} == {}, host.description
    if "infiniband" in host.description:
        assert {record.status for record in found.records} == {"SKIPPED"}
        assert "not applicable" in found.records[0].observed
    else:
        assert (found.facts["lossless"]["verdict"], found.facts["lossless"]["confidence"]) == (
            "lossless",
            "host_and_peer",
        )


def test_a_card_that_cannot_force_a_class_says_what_the_site_can_do(tmp_path: Path) -> None:
    record = {row.id: row for row in look_at_lossless(_rewritten(lossless_host("ice"), tmp_path / "host"), {}).records}
    assert record["roce.effective_dscp"].status == "MUST_FIX"
    assert "lossless_dscp: 0" in record["roce.effective_dscp"].remediation


@dataclasses.dataclass(frozen=True)
class Fault:
    """One misconfiguration: how it looks, the record that finds it, the link it breaks, the command that mends it."""

    name: str
    record: str
    status: str
    link: str | None
    fix: str
    driver: str = "mlx5_core"
    command: str = ""
    stdout: str = ""
    files: tuple[tuple[str, str | None], ...] = ()
    options: tuple[tuple[str, int], ...] = ()

    def plant(self) -> RecordedHost:
        host = lossless_host(self.driver)
        if self.command:
            host.answer(self.command, self.stdout)
        for path, text in self.files:
            host.remove(path)
            if text is not None:
                host.files[path] = text
        return host


def qos(name: str, record: str, status: str, link: str | None, fix: str, *edits: tuple[str, str]) -> Fault:
    """A fault in what mlnx_qos shows."""
    text = outputs.MLNX_QOS
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return Fault(name, record, status, link, fix, command=f"mlnx_qos -i {NETDEV}", stdout=text)


def dcb(name: str, what: str, stdout: str, record: str, status: str, link: str | None, fix: str, driver: str) -> Fault:
    return Fault(
        name, record, status, link, fix, driver=driver, command=f"dcb -j {what} show dev {NETDEV}", stdout=stdout
    )


def tree(
    name: str,
    record: str,
    status: str,
    link: str | None,
    fix: str,
    *files: tuple[str, str | None],
    driver: str = "mlx5_core",
) -> Fault:
    return Fault(name, record, status, link, fix, driver=driver, files=files)


ENABLED = "enabled     0   0   0   1   0   0   0   0"
PFC_FIX = f"mlnx_qos -i {NETDEV} --pfc 0,0,0,1,0,0,0,0"
ECN_FIX = f"echo 1 > {ECN}/roce_np/enable/3; echo 1 > {ECN}/roce_rp/enable/3"
PAUSE = f"ethtool -a {NETDEV}"
PAUSE_FIX = f"ethtool -A {NETDEV} autoneg off rx off tx off"
LAST = "roce_np/enable/3"

FAULTS = [
    qos("pfc_off", "roce.pfc", "MUST_FIX", "PFC", PFC_FIX, (ENABLED, ENABLED.replace("1", "0"))),
    qos(
        "pfc_elsewhere", "roce.pfc", "MUST_FIX", "PFC", PFC_FIX, (ENABLED, "enabled     0   0   0   0   1   0   0   0")
    ),
    qos(
        "pfc_everywhere", "roce.pfc", "MUST_FIX", "PFC", PFC_FIX, (ENABLED, "enabled     1   1   1   1   1   1   1   1")
    ),
    qos("pfc_on_0", "roce.pfc", "MUST_FIX", "PFC", PFC_FIX, (ENABLED, "enabled     1   0   0   1   0   0   0   0")),
    qos("pfc_on_4_too", "roce.pfc", "WARN", None, PFC_FIX, (ENABLED, "enabled     0   0   0   1   1   0   0   0")),
    qos(
        "trust_pcp",
        "roce.trust",
        "MUST_FIX",
        "priority",
        f"mlnx_qos -i {NETDEV} --trust dscp",
        ("state: dscp\ndscp2prio mapping:\n" + outputs.ROWS, "state: pcp\n"),
    ),
    qos(
        "dscp_moved",
        "roce.dscp_map",
        "MUST_FIX",
        "priority",
        f"--dscp2prio set,26,3; mlnx_qos -i {NETDEV} --dscp2prio set,48,6",
        ("27,26,25", "27,25"),
        ("prio:0 dscp:", "prio:0 dscp:26,"),
    ),
    qos(
        "cnp_moved",
        "roce.dscp_map",
        "WARN",
        None,
        "--dscp2prio set,48,6",
        ("49,48,", "49,"),
        ("prio:0 dscp:", "prio:0 dscp:48,"),
    ),
    qos(
        "no_headroom",
        "roce.buffers",
        "MUST_FIX",
        "buffers",
        "--prio2buffer 0,0,0,1,0,0,0,0",
        ("19872,243072,", "262944,0,"),
    ),
    qos(
        "one_buffer",
        "roce.buffers",
        "WARN",
        None,
        "--prio2buffer",
        ("buffer      0   0   0   1", "buffer      0   0   0   0"),
    ),
    qos(
        "no_share",
        "roce.ets",
        "MUST_FIX",
        "buffers",
        "a traffic class of its own",
        ("tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%", "tc: 3 ratelimit: unlimited, tsa: ets, bw: 0%"),
    ),
    qos(
        "small_share",
        "roce.ets",
        "WARN",
        None,
        "at least 30 %",
        ("tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%", "tc: 3 ratelimit: unlimited, tsa: ets, bw: 10%"),
    ),
    qos(
        "shared_class",
        "roce.ets",
        "WARN",
        None,
        "of its own",
        (
            "\t priority:  7\ntc: 3 ratelimit: unlimited, tsa: ets, bw: 50%\n\t priority:  3",
            "\t priority:  7\n\t priority:  3\ntc: 3 ratelimit: unlimited, tsa: ets, bw: 50%",
        ),
    ),
    qos(
        "cnp_not_strict",
        "roce.cnp",
        "WARN",
        None,
        "strictly",
        ("tc: 6 ratelimit: unlimited, tsa: strict", "tc: 6 ratelimit: unlimited, tsa: ets, bw: 0%"),
    ),
    qos(
        "lldpad_beside",
        "roce.dcbx_owner",
        "WARN",
        None,
        "disable --now lldpad",
        ("DCBX mode", "****** WARNING: lldpad service is running and may overwrite your settings ******\n\nDCBX mode"),
    ),
    tree("nothing_forced", "roce.effective_dscp", "MUST_FIX", "DSCP", f"echo 106 > {CLASS}", (CLASS, "")),
    tree(
        "inbox_driver",
        "roce.effective_dscp",
        "MUST_FIX",
        "DSCP",
        "rdma_stack: doca",
        ("/sys/class/infiniband/mlx5_0/tc", None),
    ),
    tree("lossy_class", "roce.effective_dscp", "MUST_FIX", "DSCP", f"echo 106 > {CLASS}", (CLASS, "Global tclass=40")),
    Fault(
        "other_lossless_class",
        "roce.effective_dscp",
        "WARN",
        None,
        f"echo 106 > {CLASS}",
        files=((CLASS, "Global tclass=98"),),
        options=(("dscp", 26),),
    ),
    tree("class_without_ect", "roce.effective_dscp", "WARN", None, f"echo 106 > {CLASS}", (CLASS, "Global tclass=104")),
    tree("no_reaction_point", "roce.ecn", "MUST_FIX", "ECN", ECN_FIX, (f"{ECN}/roce_rp/enable/3", "0")),
    tree("no_notification_point", "roce.ecn", "MUST_FIX", "ECN", ECN_FIX, (f"{ECN}/{LAST}", "0")),
    tree(
        "cnp_in_bulk",
        "roce.cnp",
        "MUST_FIX",
        "CNP",
        f"echo 6 > {ECN}/roce_np/cnp_802p_prio",
        (f"{ECN}/roce_np/cnp_802p_prio", "0"),
    ),
    tree("cnp_in_roce", "roce.cnp", "WARN", None, "cnp_802p_prio", (f"{ECN}/roce_np/cnp_802p_prio", "3")),
    tree(
        "cnp_unmarked", "roce.cnp", "WARN", None, f"echo 48 > {ECN}/roce_np/cnp_dscp", (f"{ECN}/roce_np/cnp_dscp", "0")
    ),
    Fault(
        "pause_on",
        "roce.pause",
        "MUST_FIX",
        "PFC",
        PAUSE_FIX,
        command=PAUSE,
        stdout="Autonegotiate:\toff\nRX:\t\ton\nTX:\t\toff\n",
    ),
    Fault(
        "lossy_switch",
        "roce.dcbx_peer",
        "MUST_FIX",
        None,
        "nv set qos roce mode lossless",
        command=PEER,
        stdout=outputs.lldpcli(pfc="08,00"),
    ),
    Fault(
        "other_switch",
        "roce.dcbx_peer",
        "MUST_FIX",
        None,
        "pfc_enable",
        command=PEER,
        stdout=outputs.lldpcli(pfc="08,10"),
    ),
    Fault(
        "silent_switch",
        "roce.dcbx_peer",
        "WARN",
        None,
        "no-drop",
        command=PEER,
        stdout=outputs.lldpcli(pfc="", apps=""),
    ),
    Fault(
        "switch_without_roce",
        "roce.dcbx_peer",
        "WARN",
        None,
        "roce lossless",
        command=PEER,
        stdout=outputs.lldpcli(apps=""),
    ),
    dcb(
        "bnxt_pfc_off",
        "pfc",
        outputs.dcb_pfc(),
        "roce.pfc",
        "MUST_FIX",
        "PFC",
        f"dcb pfc set dev {NETDEV} prio-pfc all:off 3:on",
        "bnxt_en",
    ),
    dcb(
        "bnxt_no_map",
        "app",
        "",
        "roce.trust",
        "MUST_FIX",
        "priority",
        f"dcb app replace dev {NETDEV} dscp-prio 26:3 48:6",
        "bnxt_en",
    ),
    dcb(
        "bnxt_wrong_map",
        "app",
        outputs.dcb_app({26: 4, 48: 6}),
        "roce.dscp_map",
        "MUST_FIX",
        "priority",
        "dscp-prio 26:3 48:6",
        "bnxt_en",
    ),
    dcb("bnxt_small_share", "ets", outputs.dcb_ets(20), "roce.ets", "WARN", None, "30 %", "bnxt_en"),
    tree(
        "bnxt_cc_off",
        "roce.ecn",
        "MUST_FIX",
        "ECN",
        f"echo 0x1 > {CC}/ecn_enable",
        (f"{CC}/ecn_enable", "0x0"),
        driver="bnxt_en",
    ),
    tree(
        "bnxt_class",
        "roce.effective_dscp",
        "MUST_FIX",
        "DSCP",
        f"echo 0x1a > {CC}/roce_dscp",
        (f"{CC}/roce_dscp", "0x0a"),
        driver="bnxt_en",
    ),
    dcb("ice_pfc_off", "pfc", outputs.dcb_pfc(), "roce.pfc", "MUST_FIX", "PFC", "prio-pfc all:off 3:on", "ice"),
    dcb("ice_no_map", "app", "{}", "roce.trust", "MUST_FIX", "priority", "dscp-prio 0:3 48:6", "ice"),
    tree(
        "ice_no_dcqcn",
        "roce.ecn",
        "MUST_FIX",
        "ECN",
        "dcqcn_enable=1",
        ("/sys/module/irdma/parameters", None),
        driver="ice",
    ),
    Fault(
        "ice_firmware_and_lldpad",
        "roce.dcbx_peer",
        "UNKNOWN",
        None,
        "Install",
        driver="ice",
        command=f"ethtool --show-priv-flags {NETDEV}",
        stdout="fw-lldp-agent: on\n",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_seeded_fault_is_found_with_its_link_and_its_fix(fault: Fault, tmp_path: Path) -> None:
    host = fault.plant()
    found = look(host, tmp_path / "host", **dict(fault.options))
    records = {record.id: record for record in found.records}
    record = records[fault.record]
    assert record.status == fault.status, record
    assert fault.fix in record.remediation, record.remediation
    assert "Why: " in record.remediation
    assert found.facts["lossless"]["rails"][0]["broken_link"] == fault.link
    required = {rule.check.id for rule in RULES if rule.required}
    lossy = fault.status == "MUST_FIX" and fault.record in required
    assert found.facts["lossless"]["verdict"] == ("lossy" if lossy else "lossless")
    if lossy:
        assert f"the chain breaks at {fault.link} ({fault.record})" in records["roce.lossless"].observed
        for system in ("Cumulus", "SONiC", "Arista", "Onyx"):
            assert f"{system}: " in records["roce.lossless"].remediation


def test_a_fault_is_found_alone(tmp_path: Path) -> None:
    """Besides the verdict. Where PFC is not what the switch announces, that is said as well."""
    several = {}
    for fault in FAULTS:
        found = look(fault.plant(), tmp_path / fault.name, **dict(fault.options)).records
        ids = sorted(row.id for row in found if row.status in FOUND and row.id != "roce.lossless")
        if ids != [fault.record]:
            several[fault.name] = ids
    of_pfc = [fault.name for fault in FAULTS if fault.record == "roce.pfc"]
    assert several == {name: ["roce.dcbx_peer", "roce.pfc"] for name in of_pfc}


def test_a_site_with_values_of_its_own_is_whole(tmp_path: Path) -> None:
    """DSCP 59 leads to priority 5 with PFC on; nobody has told the role about it."""
    host = lossless_host()
    text = outputs.MLNX_QOS.replace(ENABLED, "enabled     0   0   0   0   0   1   0   0")
    text = text.replace("59,", "").replace("prio:5 dscp:", "prio:5 dscp:59,")
    text = text.replace("buffer      0   0   0   1   0   0", "buffer      0   0   0   0   0   1")
    text = text.replace("\t priority:  3\n", "\t priority:  X\n").replace("\t priority:  5\n", "\t priority:  3\n")
    text = text.replace("\t priority:  X\n", "\t priority:  5\n")
    host.answer(f"mlnx_qos -i {NETDEV}", text)
    host.files[CLASS] = "Global tclass=238"
    host.answer(PEER, outputs.lldpcli(pfc="08,20", apps="A3,12,B7"))
    records = by_id(host, tmp_path / "host")
    assert {row.id: row.observed for row in records.values() if row.status in FOUND} == {}
    told = by_id(host, tmp_path / "told", priority=3)
    assert told["roce.pfc"].status == "MUST_FIX", "the site's own word counts more"


def test_an_unset_host_is_told_the_values_of_its_switch(tmp_path: Path) -> None:
    host = FAULTS[0].plant()
    host.files[CLASS] = ""
    host.answer(PEER, outputs.lldpcli(pfc="08,20", apps="A3,12,B7,A5,00,3B"))
    records = by_id(host, tmp_path / "host")
    assert f"mlnx_qos -i {NETDEV} --pfc 0,0,0,0,0,1,0,0" in records["roce.pfc"].remediation
    assert f"echo 238 > {CLASS}" in records["roce.effective_dscp"].remediation, "DSCP 59 and ECT(0)"
    assert '"59": "5"' in records["roce.dcbx_peer"].remediation


def test_two_neighbours_that_differ_tell_nothing(tmp_path: Path) -> None:
    host = lossless_host()
    one, other = json.loads(outputs.lldpcli()), json.loads(outputs.lldpcli(pfc="08,10"))
    one["lldp"][0]["interface"] += other["lldp"][0]["interface"]
    host.answer(PEER, json.dumps(one))
    assert by_id(host, tmp_path / "host")["roce.dcbx_peer"].status == "UNKNOWN"


def test_ecn_alone_is_lossy_by_design(tmp_path: Path) -> None:
    host = FAULTS[0].plant()
    records = by_id(host, tmp_path / "host", mode="ecn_only")
    assert (records["roce.pfc"].status, records["roce.ecn"].status) == ("SKIPPED", "WARN")
    assert (records["roce.lossless"].status, records["roce.lossless"].observed) == (
        "WARN",
        "lossy by design: ECN alone",
    )


def test_pause_at_both_ends_stands_in_for_pfc(tmp_path: Path) -> None:
    host = FAULTS[0].plant()
    host.answer(PAUSE, "Autonegotiate:\ton\nRX:\t\ton\nTX:\t\ton\nRX negotiated:\ton\nTX negotiated:\ton\n")
    records = by_id(host, tmp_path / "host")
    assert records["roce.pause"].status == "WARN"
    assert records["roce.pfc"].status == "SKIPPED"
    assert records["roce.lossless"].status == "OK"
    host.answer(PAUSE, "Autonegotiate:\toff\nRX:\t\ton\nTX:\t\ton\n")
    one_end = by_id(host, tmp_path / "one_end")
    assert (one_end["roce.pause"].status, one_end["roce.lossless"].status) == ("WARN", "MUST_FIX")


@pytest.mark.parametrize("driver", DRIVERS)
def test_without_any_tool_it_is_unknown(driver: str, tmp_path: Path) -> None:
    host = lossless_host(driver)
    for line in list(host.commands):
        if line.split()[0] in ("mlnx_qos", "dcb", "ethtool", "lldpcli"):
            del host.commands[line]
    records = by_id(host, tmp_path / "host")
    for name in ("pfc", "trust", "dscp_map", "pause", "ets", "dcbx_peer", "lossless"):
        assert records[f"roce.{name}"].status == "UNKNOWN", name
    assert "dcb -j pfc show dev enp32s0np0: not installed" in records["roce.pfc"].observed
    assert "Install iproute2 with dcb" in records["roce.pfc"].remediation


def test_soft_roce_has_nothing_to_read(tmp_path: Path) -> None:
    host = lossless_host()
    for path in list(host.links):
        if path == "/sys/class/infiniband/mlx5_0/device":
            del host.links[path]
    host.files["/sys/class/infiniband/mlx5_0/parent"] = NETDEV
    records = by_id(host, tmp_path / "host")
    assert records["roce.lossless"].status == "UNKNOWN"
    assert {row.status for row in records.values() if row.id != "roce.lossless"} == {"SKIPPED"}


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_source_counts(driver: str, tmp_path: Path) -> None:
    """Without one command, or one file of the kernel, something is no longer OK, and nothing is better than before."""
    good = lossless_host(driver)
    commands = [line for line in good.commands if line.split()[0] in ("mlnx_qos", "dcb", "ethtool", "lldpcli")]
    files = list(outputs.good_files(driver, good_device(good), NETDEV))
    for name in (*commands, *files):
        for failure in ({"timeout": True}, {"rc": 1, "stderr": "Attribute not found: Success\n"}):
            host = lossless_host(driver)
            if name in host.files:
                host.files[name] = "no such value"
            else:
                host.commands[name] = failure
            found = look_at_lossless(_rewritten(host, tmp_path / driver), site_options(host)).records
            statuses = {row.status for row in found}
            assert "UNKNOWN" in statuses, name
            assert not statuses & {"MUST_FIX", "WARN"}, name


def good_device(host: RecordedHost) -> str:
    return {"mlx5_core": "mlx5_0", "bnxt_en": "bnxt_re0", "ice": "irdma0"}[host.description.split()[-1]]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_garbage_is_never_ok(data: st.DataObject, tmp_path: Path) -> None:
    """Whatever all sources print, with whatever exit code: a rule that rests on them is not OK, nor is the verdict."""
    driver = data.draw(st.sampled_from(DRIVERS))
    host = lossless_host(driver)
    words = st.text(st.characters(exclude_characters="0123456789YN", exclude_categories=["Cs"]), min_size=1)
    for line in host.commands:
        if line.split()[0] in ("mlnx_qos", "dcb", "ethtool", "lldpcli"):
            host.commands[line] = {"rc": data.draw(st.integers(0, 3)), "stdout": data.draw(words), "stderr": ""}
    for path in outputs.good_files(driver, good_device(host), NETDEV):
        host.files[path] = data.draw(words)
    records = {row.id: row for row in look_at_lossless(_rewritten(host, tmp_path / driver), site_options(host)).records}
    # Read and found absent: nothing is set where the driver has nothing to set, and lldpad is not installed.
    assert [row.id for row in records.values() if row.status == "OK" and row.id != "roce.effective_dscp"] == []
    assert records["roce.lossless"].status in ("UNKNOWN", "MUST_FIX")


def _rewritten(host: RecordedHost, folder: Path) -> HostProbe:
    """As `write`, but over what was written before."""
    if not folder.exists():
        host.write(folder)
    (folder / "commands.json").write_text(json.dumps(host.commands), encoding="utf-8")
    for path in outputs.good_files(host.description.split()[-1], good_device(host), NETDEV):
        (folder / path.lstrip("/")).write_text(host.files[path], encoding="utf-8")
    return open_probe(str(folder), {})


def test_rails_that_differ_are_told_apart(tmp_path: Path) -> None:
    host = lossless_host(rails=2)
    host.answer("mlnx_qos -i enp33s0np0", FAULTS[0].stdout)
    found = look(host, tmp_path / "host")
    records = {record.id: record for record in found.records}
    assert "mlx5_0:1 (enp32s0np0): PFC on priority 3" in records["roce.pfc"].observed
    assert "mlx5_1:1 (enp33s0np0): PFC on priority none, not on 3" in records["roce.pfc"].observed
    assert "-i enp33s0np0" in records["roce.pfc"].remediation
    assert "-i enp32s0np0" not in records["roce.pfc"].remediation
    assert [rail["verdict"] for rail in found.facts["lossless"]["rails"]] == ["lossless", "lossy"]
    assert found.facts["lossless"]["verdict"] == "lossy"
    json.dumps(found.facts)


def test_a_vlan_that_tags_the_priority_is_enough_for_pcp(tmp_path: Path) -> None:
    host = FAULTS[5].plant()
    gids = "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs"
    for path in list(host.files):
        if path.startswith(gids):
            host.files[path] = "vlan100"
    host.folders |= {"/sys/class/net/vlan100/lower_enp32s0np0"}
    host.files["/proc/net/vlan/vlan100"] = "vlan100  VID: 100\nEGRESS priority mappings: 0:3 4:3"
    host.files["/sys/class/net/vlan100/mtu"] = "9000"
    records = by_id(host, tmp_path / "host")
    assert (records["roce.trust"].status, records["roce.dscp_map"].status) == ("WARN", "SKIPPED")
    assert "mlx5_0:1 (enp32s0np0)" in records["roce.trust"].observed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"priority": 8}, "priority: 8 is not in 0 to 7"),
        ({"dscp": 64}, "dscp: 64 is not in 0 to 63"),
        ({"pfc_priorities": [4]}, "the priority of RoCE is not among them"),
        ({"pfc_priorities": [3, 9]}, "9 is not in 0 to 7"),
        ({"mode": "best"}, "none of lossless, ecn_only"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        Policy.from_options(options)


def test_a_host_for_confidential_vms_is_left_alone(tmp_path: Path) -> None:
    host = lossless_host()
    host.folders.add("/var/lib/lium-cvm")
    assert {record.status for record in look(host, tmp_path / "host").records} == {"SKIPPED"}
