"""Rules that the role adds through ufw or firewalld, and takes back without touching anybody else's.

The tools here answer as ufw 0.36.2 and firewalld 1.3.3 were seen to; tests/roles/test_firewall.py has the real ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._firewall_rule import (
    FirewallError,
    FirewallRule,
    rules_of,
)
from ansible_collections.lium.cluster.plugins.module_utils._footprint import Footprint, FootprintError, Outcome, Wanted
from ansible_collections.lium.cluster.plugins.module_utils._ledger import FOLDER

from tests.collection.recorded_host import RECORDED

UFW = [
    {"tool": "ufw", "port": 51820},
    {"tool": "ufw", "port": 18515, "protocol": "tcp", "netdev": "eth1"},
]
FIREWALLD = [
    {"tool": "firewalld", "port": 51820, "zone": "public"},
    {"tool": "firewalld", "port": 18515, "protocol": "tcp", "zone": "public"},
]


class Ufw:
    """The rules as `ufw show added` lists them. A rule with the same match takes the place of another action."""

    def __init__(self, *rules: str) -> None:
        self.rules = ["ufw allow 22/tcp", *rules]

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        if list(argv) == ["ufw", "show", "added"]:
            return 0, "\n".join(["Added user rules (see 'ufw status' for running firewall):", *self.rules]) + "\n"
        typed = re.fullmatch(r"ufw (route )?(delete )?(\w+)( in on \S+)? proto (\w+) to any port (\d+)", " ".join(argv))
        assert typed, argv
        route, delete, action, netdev, protocol, port = (part or "" for part in typed.groups())
        match = f"{netdev.strip()} to any port {port} proto {protocol}" if netdev else f"{port}/{protocol}"
        there = [rule for rule in self.rules if re.match(rf"ufw {route}\w+ {match}( |$)", rule)]
        if delete:
            gone = [rule for rule in there if rule.startswith(f"ufw {route}{action} ")]
            self.rules = [rule for rule in self.rules if rule not in gone]
            return 0, "Rule deleted\n" if gone else "Could not delete non-existent rule\n"
        self.rules = [*(rule for rule in self.rules if rule not in there), f"ufw {route}{action} {match}"]
        return 0, "Rule added\nRule added (v6)\n"


class Firewalld:
    """Ports of the zone public. Ranges that overlap become one, and a port taken out of a range leaves two."""

    def __init__(self, permanent: str = "", runtime: str = "") -> None:
        self.permanent, self.runtime = set(permanent.split()), set(runtime.split())
        self.running = True

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        if not self.running:
            return 252, "FirewallD is not running\n"
        words = [word for word in argv if word != "--permanent"]
        ports = self.permanent if "--permanent" in argv else self.runtime
        assert words[0] == "firewall-cmd"
        if words[1] != "--zone=public":
            return 112, f"Error: INVALID_ZONE: {words[1].partition('=')[2]}\n"
        if words[2] == "--list-ports":
            return 0, " ".join(sorted(ports)) + "\n"
        verb, _, port = words[2].partition("=")
        number, protocol = port.split("/")
        whole = next((row for row in ports if covers(row, int(number), protocol)), None)
        if verb == "--add-port":
            if whole:
                return 0, f"Warning: ALREADY_ENABLED: {number}:{protocol}\nsuccess\n"
            ports.add(port)
        elif whole:
            ports.remove(whole)
            if whole != port:
                first, last = (int(edge) for edge in whole.split("/")[0].split("-"))
                ports |= {f"{first}-{int(number) - 1}/{protocol}", f"{int(number) + 1}-{last}/{protocol}"}
        return 0, "success\n"


def covers(row: str, port: int, protocol: str) -> bool:
    ports, _, of = row.partition("/")
    first, _, last = ports.partition("-")
    return of == protocol and int(first) <= port <= int(last or first)


def apply(root: Path, tool: Ufw | Firewalld, rows: Sequence[dict[str, object]]) -> Outcome:
    return Footprint("wireguard", str(root), tool).apply(Wanted(firewall=[r for row in rows for r in rules_of(row)]))


def remove(root: Path, tool: Ufw | Firewalld) -> Outcome:
    return Footprint("wireguard", str(root), tool).remove()


def test_ufw_gets_two_rules_and_loses_these_alone(tmp_path: Path) -> None:
    tool = Ufw("ufw allow 9100/tcp")
    before = list(tool.rules)
    assert apply(tmp_path, tool, UFW).changes == ["allow UDP 51820 by ufw", "allow TCP 18515 by ufw on eth1"]
    assert tool.rules[2:] == ["ufw route allow 51820/udp", "ufw allow in on eth1 to any port 18515 proto tcp"]
    assert apply(tmp_path, tool, UFW).changes == []
    assert remove(tmp_path, tool).left == []
    assert tool.rules == before
    assert remove(tmp_path, tool).changes == []


def test_firewalld_gets_both_now_and_from_its_next_start_on(tmp_path: Path) -> None:
    tool = Firewalld("9100/tcp", "9100/tcp")
    assert apply(tmp_path, tool, FIREWALLD).changes == [
        "allow UDP 51820 by firewalld in zone public",
        "allow UDP 51820 by firewalld in zone public at run time",
        "allow TCP 18515 by firewalld in zone public",
        "allow TCP 18515 by firewalld in zone public at run time",
    ]
    assert tool.permanent == tool.runtime == {"9100/tcp", "51820/udp", "18515/tcp"}
    assert apply(tmp_path, tool, FIREWALLD).changes == []
    assert remove(tmp_path, tool).left == []
    assert tool.permanent == tool.runtime == {"9100/tcp"}


@pytest.mark.parametrize(
    "theirs",
    [
        "ufw limit in on eth1 to any port 18515 proto tcp",
        "ufw deny in on eth1 to any port 18515 proto tcp",
        "ufw allow in on eth1 log to any port 18515 proto tcp",
        "ufw allow in on eth1 to any port 18515 proto tcp comment 'of mine'",
        "ufw route limit 51820/udp",
        "ufw route allow log-all 51820/udp comment 'it's log'",
    ],
)
def test_a_rule_of_theirs_in_the_same_place_is_not_replaced(theirs: str, tmp_path: Path) -> None:
    tool = Ufw(theirs)
    assert len(apply(tmp_path, tool, UFW).changes) == 1
    assert theirs in tool.rules
    remove(tmp_path, tool)
    assert tool.rules == ["ufw allow 22/tcp", theirs]


@pytest.mark.parametrize(
    "other",
    [
        "ufw allow 51820/udp",
        "ufw route allow 51820/tcp",
        "ufw allow in on eth10 to any port 18515 proto tcp",
        "ufw allow in on eth1 to any port 185 proto tcp",
        "ufw allow in on eth1 from 10.0.0.0/8 to any port 18515 proto tcp",
        "ufw allow 9000 comment 'ufw route allow 51820/udp'",
    ],
)
def test_a_rule_for_something_else_is_none_for_ours(other: str, tmp_path: Path) -> None:
    tool = Ufw(other)
    assert len(apply(tmp_path, tool, UFW).changes) == 2
    remove(tmp_path, tool)
    assert tool.rules == ["ufw allow 22/tcp", other]


def test_what_they_made_of_ours_is_left_and_named(tmp_path: Path) -> None:
    ufw, firewalld = Ufw(), Firewalld()
    apply(tmp_path / "ufw", ufw, UFW)
    ufw.rules[-1] = "ufw limit in on eth1 to any port 18515 proto tcp"
    assert remove(tmp_path / "ufw", ufw).left == [
        "firewall TCP 18515 by ufw on eth1: changed by someone else since (limit)"
    ]
    assert ufw.rules[1:] == ["ufw limit in on eth1 to any port 18515 proto tcp"]
    apply(tmp_path / "firewalld", firewalld, FIREWALLD)
    firewalld.permanent = {"18000-19000/tcp", "51820/udp"}
    assert remove(tmp_path / "firewalld", firewalld).left == [
        "firewall TCP 18515 by firewalld in zone public: changed by someone else since (18000-19000/tcp)"
    ]
    assert (firewalld.permanent, firewalld.runtime) == ({"18000-19000/tcp"}, set())


def test_a_range_of_theirs_stays_whole(tmp_path: Path) -> None:
    tool = Firewalld("18000-19000/tcp 51820/tcp", "18000-19000/tcp")
    assert len(apply(tmp_path, tool, FIREWALLD).changes) == 2
    assert remove(tmp_path, tool).left == []
    assert (tool.permanent, tool.runtime) == ({"18000-19000/tcp", "51820/tcp"}, {"18000-19000/tcp"})


def test_what_is_missing_of_two_is_added_and_taken_back(tmp_path: Path) -> None:
    """They have written it down and not reloaded, so it is closed now."""
    tool = Firewalld("18515/tcp", "")
    changes = apply(tmp_path, tool, FIREWALLD[1:]).changes
    assert changes == ["allow TCP 18515 by firewalld in zone public at run time"]
    assert remove(tmp_path, tool).left == []
    assert (tool.permanent, tool.runtime) == ({"18515/tcp"}, set())


def test_rules_of_a_stopped_firewalld_stay_noted(tmp_path: Path) -> None:
    tool = Firewalld()
    apply(tmp_path, tool, FIREWALLD[1:])
    tool.running = False
    tool.runtime = set()
    outcome = remove(tmp_path, tool)
    assert outcome.left == [
        "firewall TCP 18515 by firewalld in zone public: firewall-cmd --permanent --zone=public --list-ports:"
        " FirewallD is not running; noted for the next run"
    ]
    tool.running = True
    assert remove(tmp_path, tool).changes == ["no longer allow TCP 18515 by firewalld in zone public"]
    assert tool.permanent == set()


def test_what_went_with_its_zone_or_its_tool_is_settled(tmp_path: Path) -> None:
    apply(tmp_path / "zone", Firewalld(), FIREWALLD)
    ledger = tmp_path / "zone" / FOLDER.lstrip("/") / "wireguard.json"
    ledger.write_text(ledger.read_text().replace("public", "rack"))
    assert remove(tmp_path / "zone", Firewalld()) == Outcome()
    apply(tmp_path / "tool", Ufw(), UFW)
    gone = Footprint("wireguard", str(tmp_path / "tool"), lambda argv: (127, f"{argv[0]} is not installed")).remove()
    assert gone == Outcome()
    assert not ledger.exists()


def test_a_tool_without_an_answer_adds_nothing(tmp_path: Path) -> None:
    with pytest.raises(FirewallError, match="ufw show added: ERROR: problem running"):
        Footprint("wireguard", str(tmp_path), lambda _argv: (1, "ERROR: problem running\n")).apply(
            Wanted(firewall=[FirewallRule("ufw", 51820)])
        )
    assert not (tmp_path / FOLDER.lstrip("/")).exists()


def test_a_rule_that_the_tool_refuses_ends_the_run_and_is_noted(tmp_path: Path) -> None:
    tool = Ufw()
    refuses = Footprint(
        "wireguard", str(tmp_path), lambda argv: tool(argv) if "show" in argv else (1, "ERROR: Bad port\n")
    )
    with pytest.raises(FootprintError, match=r"ufw route allow .*Bad port"):
        refuses.apply(Wanted(firewall=[FirewallRule("ufw", 51820)]))
    assert remove(tmp_path, tool) == Outcome()


@pytest.mark.parametrize(
    ("name", "tool"),
    [("ufw/51820/", Ufw("ufw route allow 51820/udp")), ("firewalld/51820/public", Firewalld("51820/udp", "51820/udp"))],
)
def test_what_the_first_release_noted_is_taken_back(name: str, tool: Ufw | Firewalld, tmp_path: Path) -> None:
    ledger = tmp_path / FOLDER.lstrip("/") / "wireguard.json"
    ledger.parent.mkdir(parents=True)
    ledger.write_text(json.dumps({"version": 1, "entries": [{"kind": "firewall", "name": name}]}))
    assert remove(tmp_path, tool).left == []
    rest = tool.rules[1:] if isinstance(tool, Ufw) else [*tool.permanent, *tool.runtime]
    assert rest == []


@pytest.mark.parametrize(
    ("recording", "row", "found"),
    [
        ("ufw-show-added", {"tool": "ufw", "port": 51820}, "allow"),
        ("ufw-show-added", {"tool": "ufw", "port": 18515, "protocol": "tcp", "netdev": "enp32s0np0"}, "allow"),
        ("ufw-show-added", {"tool": "ufw", "port": 18515, "protocol": "tcp", "netdev": "enp33s0np0"}, ""),
        ("firewalld-ports", {"tool": "firewalld", "port": 18515, "protocol": "tcp", "zone": "internal"}, "18515/tcp"),
        ("firewalld-ports", {"tool": "firewalld", "port": 9050, "protocol": "tcp", "zone": "x"}, "9000-9100/tcp"),
        ("firewalld-ports", {"tool": "firewalld", "port": 51820, "zone": "internal"}, ""),
        ("firewalld-no-zone", {"tool": "firewalld", "port": 51820, "zone": "nix"}, ""),
    ],
)
def test_recorded_rules(recording: str, row: dict[str, object], found: str) -> None:
    answer = json.loads((RECORDED / f"{recording}.json").read_text(encoding="utf-8"))
    assert rules_of(row)[0].found(lambda _argv: (answer["rc"], answer["stderr"] + answer["stdout"])) == found


def test_only_these_tools_take_rules() -> None:
    with pytest.raises(ValueError, match="nftables: rules are added through ufw and firewalld only"):
        FirewallRule("nftables", 51820)
