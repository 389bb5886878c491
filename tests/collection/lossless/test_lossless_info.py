"""`lossless_info` on generated hosts: nothing found on good ones, each seeded fault found with its link and its fix."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._lossless.checks import look_at_lossless
from ansible_collections.lium.cluster.plugins.module_utils._lossless.mlnx_qos import parse_mlnx_qos
from ansible_collections.lium.cluster.plugins.module_utils._lossless.policy import Policy, PolicyError
from ansible_collections.lium.cluster.plugins.module_utils._lossless.rules import RULES
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, open_probe
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.collection.lossless import outputs
from tests.collection.lossless.faults import CLASS, ENABLED, FAULTS, PAUSE, PEER, Fault
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
        assert found.facts["lossless"]["verdict"] == "not_applicable"
    else:
        assert (found.facts["lossless"]["verdict"], found.facts["lossless"]["confidence"]) == (
            "lossless",
            "host_and_peer",
        )


def test_a_card_that_cannot_force_a_class_says_what_the_site_can_do(tmp_path: Path) -> None:
    record = {row.id: row for row in look_at_lossless(_rewritten(lossless_host("ice"), tmp_path / "host"), {}).records}
    assert record["roce.effective_dscp"].status == "MUST_FIX"
    assert "lossless_dscp: 0" in record["roce.effective_dscp"].remediation


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


@pytest.mark.parametrize("allowed", [[3], [3, 4]])
def test_the_command_for_traffic_classes_mends_them(allowed: list[int], tmp_path: Path) -> None:
    """The card shows what the command names: nothing is found any more of RoCE's class, nor of that of CNPs."""
    host = lossless_host()
    head = outputs.MLNX_QOS.partition("tc: ")[0]
    rows = "".join(f"tc: {number} ratelimit: unlimited, tsa: vendor\n\t priority:  {number}\n" for number in range(8))
    host.answer(f"mlnx_qos -i {NETDEV}", head + rows)
    fixes = by_id(host, tmp_path / "factory", pfc_priorities=allowed)
    assert (fixes["roce.ets"].status, fixes["roce.cnp"].status) == ("WARN", "WARN")
    line = fixes["roce.ets"].remediation.partition("mlnx_qos ")[2].partition(". Why: ")[0]
    words = line.split()
    assert line in fixes["roce.cnp"].remediation, "one command for both"
    prio_tc, tsa, shares = (words[words.index(f"--{name}") + 1].split(",") for name in ("prio_tc", "tsa", "tcbw"))
    assert (sum(map(int, shares)), len({*prio_tc}) <= 4) == (100, True)
    shown = ""
    for number in sorted({*map(int, prio_tc)}):
        bandwidth = f", bw: {shares[number]}%" if tsa[number] == "ets" else ""
        members = "".join(f"\t priority:  {index}\n" for index in range(8) if prio_tc[index] == str(number))
        shown += f"tc: {number} ratelimit: unlimited, tsa: {tsa[number]}{bandwidth}\n{members}"
    host.answer(f"mlnx_qos -i {NETDEV}", head + shown)
    after = by_id(host, tmp_path / "after", pfc_priorities=allowed)
    assert (after["roce.ets"].status, after["roce.cnp"].status) == ("OK", "OK"), (line, after["roce.ets"])


#: What the texts of each system have on a site: PFC on the priority, the DSCP that leads to it, ECN on its queue.
SWITCH_TEXTS = {
    "Cumulus": (
        "pfc default-global switch-priority {priority};",
        "mapping default-global dscp {dscp} switch-priority {priority};",
        "congestion-control default-global traffic-class {priority} ecn enable;",
    ),
    "SONiC": ('pfc_enable "{priority}"', '"{dscp}": "{priority}"', "QUEUE|PORT|{priority} wred_profile"),
    "Arista": (
        "priority-flow-control priority {priority} no-drop;",
        "qos map dscp {dscp} to traffic-class {priority};",
        "tx-queue {priority} (uc-tx-queue on some models); random-detect ecn minimum-threshold",
    ),
    "Onyx": (
        "dcb priority-flow-control priority {priority} enable;",
        "qos map dscp {dscp} to switch-priority {priority};",
        "traffic-class {priority} congestion-control ecn minimum-absolute",
    ),
}
#: These two have a mode for RoCE with PFC on priority 3.
ROCE_MODES = {"Cumulus": "nv set qos roce mode lossless;", "Onyx": "roce lossless;"}


@pytest.mark.parametrize(("priority", "dscp"), [(5, 59), (3, 26), (3, 40)])
def test_the_operator_of_the_switch_gets_priority_dscp_and_ecn(priority: int, dscp: int, tmp_path: Path) -> None:
    host = lossless_host()
    host.answer(PEER, outputs.lldpcli(pfc="08,00"))
    found = look(host, tmp_path / "host", priority=priority, dscp=dscp)
    texts = found.facts["lossless"]["switch"]
    assert set(texts) == set(SWITCH_TEXTS)
    for system, parts in SWITCH_TEXTS.items():
        pfc, *others = (part.format(priority=priority, dscp=dscp) for part in parts)
        assert (ROCE_MODES.get(system, pfc) if priority == 3 else pfc) in texts[system]
        assert [part for part in others if part not in texts[system]] == []
        assert f"{system}: {texts[system]}" in {row.id: row for row in found.records}["roce.dcbx_peer"].remediation


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


#: Sources of a lossy host by driver, as text that damage may make look like that of a lossless one.
LOSSY: dict[str, dict[str, str]] = {
    "mlx5_core": {
        f"mlnx_qos -i {NETDEV}": outputs.MLNX_QOS.replace(ENABLED, ENABLED.replace("1", "0")),
        f"dcb -j pfc show dev {NETDEV}": outputs.dcb_pfc(),
    },
    "bnxt_en": {
        f"dcb -j pfc show dev {NETDEV}": outputs.dcb_pfc(),
        f"dcb -N pfc show dev {NETDEV}": "pfc-cap 8 macsec-bypass off delay 7 \nprio-pfc "
        + " ".join(f"{number}:off" for number in range(8)),
        f"bnxtqos -dev={NETDEV} get_qos": "IEEE 8021QAZ PFC TLV:\n         PFC enabled: none\n",
    },
    "ice": {
        f"dcb -j pfc show dev {NETDEV}": outputs.dcb_pfc(),
        f"lldptool -ti {NETDEV}": "IEEE 8021QAZ PFC TLV\n\t Willing: yes\n\t PFC enabled: none\n",
    },
}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_output_never_makes_a_lossy_host_lossless(data: st.DataObject, tmp_path: Path) -> None:
    """Cut off, written over or with a hole. No letter or digit is put in: with those it may be a good answer again."""
    driver = data.draw(st.sampled_from(DRIVERS))
    host = lossless_host(driver)
    for line, text in LOSSY[driver].items():
        start, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))
        filling = data.draw(st.text('\n\t ,:;{}[]"-#\0', max_size=6))
        host.answer(line, text[:start] + filling + text[start + length :])
    found = look_at_lossless(_rewritten(host, tmp_path / driver), site_options(host))
    assert found.facts["lossless"]["verdict"] != "lossless", host.commands
    assert {row.id: row.status for row in found.records}["roce.pfc"] in ("UNKNOWN", "MUST_FIX")


def test_a_hole_in_mlnx_qos_never_turns_pfc_on() -> None:
    """From any word to any other: PFC is off, as it was, or the output is none."""
    text = outputs.MLNX_QOS.replace("enabled     0   0   0   1", "enabled     0   0   0   0")
    cuts = [match.start() for match in re.finditer(r"(?<=\s)(?=\S)|(?<=\S)(?=\s)", text[text.index("Receive") :])]
    begin = text.index("Receive")
    for start in cuts:
        for end in cuts[cuts.index(start) :]:
            try:
                assert parse_mlnx_qos(text[: begin + start] + text[begin + end :]).pfc == frozenset(), (start, end)
            except ParseError:
                continue


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
        ({"pfc_priorities": [3, 4, 5]}, "pfc_priorities: 3, 4, 5 are more than 2"),
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
