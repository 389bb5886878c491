"""Field cases of the role wireguard."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.lium.cluster.plugins.module_utils._kmod import explain_modprobe
from ansible_collections.lium.cluster.plugins.module_utils._parsers.wg import Peer, parse_dump
from ansible_collections.lium.cluster.plugins.module_utils._wireguard import mesh
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.checks import fits, largest_inner_mtu
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.mesh import MeshError, MeshInterface, MeshPeer
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.verdict import Evidence, judge

CASES = Path(__file__).parent / "cases"
NOW = datetime.datetime(2026, 12, 23, 5, 30, tzinfo=datetime.timezone.utc)
KEYS = {
    "node1": "+rui4vFKuFqKmjZoQNSWRxmD/nYAISea4B5bMe/JOFk=",
    "node2": "lJGfNVvjXzlLvlS9RIr2UZ+Sq4qoC8kvgVqQOR/S0LI=",
    "node3": "NImRfwZM/3AoCfC8+etIxNkW3WDmDw6qM9qJ2vL6/+c=",
}
#: Made from fixed words, as those of the cases are; it protects nothing.
PRIVATE = "7pPNQWXkSoxk8MXSnj4tRGClSa0g7k6d6Z1jHKt4vAQ="
NETWORK = "10.43.0.0/24"


def text(case: str, name: str) -> str:
    return (CASES / case / name).read_text(encoding="utf-8")


def overlay(address: str) -> str:
    """The cases' addresses lie in the pods' overlay, which a provider's own mesh must keep out of."""
    return address.replace("10.42.", "10.43.")


def interface(address: str = "10.43.0.2", private_key: str = PRIVATE) -> MeshInterface:
    return MeshInterface("wg-lium", address, NETWORK, 51821, 1420, private_key)


def peers_of(host: str, inventory: dict[str, Any], known: dict[str, str]) -> list[MeshPeer]:
    hosts = inventory["all"]["children"]["gpu_hosts"]["hosts"]
    return [
        MeshPeer(name, overlay(row["wg_overlay_ip"]), f"{row.get('ansible_host', name)}:51821", known.get(name, ""))
        for name, row in hosts.items()
        if name != host
    ]


def test_b38_a_run_with_a_limit_keeps_the_peers_of_the_file() -> None:
    inventory = yaml.safe_load(text("B38", "inventory.yml"))
    written = mesh.render(interface(), peers_of("node2", inventory, KEYS))
    limited = mesh.complete_keys(peers_of("node2", inventory, {"node2": KEYS["node2"]}), mesh.parse_config(written))
    again = mesh.render(interface(), limited)
    assert again == written, "a run on node2 alone changes nothing"
    allowed = [line.split(" = ")[1] for line in again.splitlines() if line.startswith("AllowedIPs")]
    assert allowed == overlay(text("B38", "want-peers-node2.txt")).split()


def test_a_key_goes_with_its_host_when_addresses_are_swapped() -> None:
    """A run with --limit that learns no other key: each peer keeps the key that it had under its name."""
    two, three = MeshPeer("h2", "10.43.0.2", "h2:1", KEYS["node2"]), MeshPeer("h3", "10.43.0.3", "h3:1", KEYS["node3"])
    existing = mesh.parse_config(mesh.render(interface("10.43.0.1"), [two, three]))
    swapped = [MeshPeer("h2", "10.43.0.3", "h2:1"), MeshPeer("h3", "10.43.0.2", "h3:1")]
    assert {peer.name: peer.public_key for peer in mesh.complete_keys(swapped, existing)} == {
        "h2": KEYS["node2"],
        "h3": KEYS["node3"],
    }
    with pytest.raises(MeshError, match="no public key of h4"):
        mesh.complete_keys([MeshPeer("h4", "10.43.0.2", "h4:1")], existing)


def test_a_file_of_others_has_keys_by_address() -> None:
    theirs = f"# my laptop\n[Peer]\nPublicKey = {KEYS['node2']}\nAllowedIPs = 10.43.0.2/32, 10.9.0.0/16\n"
    (peer,) = mesh.complete_keys([MeshPeer("h2", "10.43.0.2", "h2:1")], mesh.parse_config(theirs))
    assert peer.public_key == KEYS["node2"]


def test_b38_without_a_file_it_stops_and_names_the_hosts() -> None:
    peers = peers_of("node2", yaml.safe_load(text("B38", "inventory.yml")), {})
    with pytest.raises(MeshError, match=r"no public key of node1, node3.*nothing was written"):
        mesh.complete_keys(peers, mesh.Existing(True, PRIVATE, {}))


def test_b39_a_peer_without_a_key_stops_the_run() -> None:
    rows = json.loads(text("B39", "hostvars.json"))
    peers = [
        MeshPeer(name, overlay(row["wg_overlay_ip"]), f"{name}:51821", row.get("wg_public_key", ""))
        for name, row in rows.items()
        if name != "node1"
    ]
    with pytest.raises(MeshError, match="no public key of node2, node3"):
        mesh.complete_keys(peers, mesh.Existing(True, PRIVATE, {}))


def test_b41_an_interface_without_a_key_is_a_fault() -> None:
    (live,) = parse_dump(text("B41", "wg-show-wg0-dump.txt"), "wg0")
    assert live.public_key is None
    assert mesh.interface_problems(live, "wg0", NOW) == ["wg0 has no private key: no handshake can succeed"]


def test_b41_a_file_without_a_key_is_never_written() -> None:
    existing = mesh.parse_config(text("B41", "keyless.conf"))
    assert existing.private_key == ""
    with pytest.raises(MeshError, match="no private key"):
        mesh.render(interface(private_key=existing.private_key), [])


@pytest.mark.parametrize("probe", json.loads(text("B45", "probes.json")))
def test_b45_only_an_answer_or_a_fresh_handshake_proves_a_port(probe: dict[str, Any]) -> None:
    """The probe's interfaces are new and shake hands now or never; on one that lasts the age decides."""
    age = probe["latest_handshake_age_s"]
    latest = None if age is None else NOW - datetime.timedelta(seconds=age)
    peer = Peer(KEYS["node2"], "192.0.2.12:51820", ("10.42.0.2/32",), latest, 92, 148, 25)
    answered = bool(probe.get("udp_reply")) or peer.problem(NOW) == ""
    error = probe.get("udp_send", "ok")
    seen = Evidence(
        sender="node1",
        receiver="node2",
        address="192.0.2.12",
        port=51820,
        path="docker-publish",
        handshake=answered,
        received=answered,
        udp_error="" if error == "ok" else error,
        tcp="refused" if "tcp" in probe else "",
    )
    assert judge(seen).state == probe["want"]


def test_b46_two_hosts_with_one_address_are_refused() -> None:
    peers = peers_of("node1", yaml.safe_load(text("B46", "inventory.yml")), KEYS)
    with pytest.raises(MeshError, match=r"10\.43\.0\.3 belongs to node2 and node3"):
        mesh.check_addresses(interface("10.43.0.1"), peers)


@pytest.mark.parametrize("address", ["10.43.0.0/24", "10.43.0.3/32,10.43.0.4/32", "", "fd00::1", "10.99.0.1"])
def test_b46_an_address_that_is_not_one_of_the_network_is_refused(address: str) -> None:
    with pytest.raises(MeshError, match="node3"):
        mesh.check_addresses(interface("10.43.0.1"), [MeshPeer("node3", address, "node3:51821", KEYS["node3"])])


def test_b46_a_handshake_alone_is_not_healthy() -> None:
    (live,) = parse_dump(text("B46", "wg-show-wg0-dump.txt"), "wg0")
    now = datetime.datetime.fromtimestamp(1798000010, datetime.timezone.utc)
    (problem,) = mesh.interface_problems(live, "wg0", now)
    assert problem.startswith("peer lJGfNVvj")
    assert "another peer of this interface claims the same" in problem


def test_b48_our_file_has_no_saveconfig_and_keeps_the_key() -> None:
    existing = mesh.parse_config(text("B48", "existing.conf"))
    assert not existing.ours
    written = mesh.render(
        interface(private_key=existing.private_key), [MeshPeer("n", "10.43.0.3", "n:1", KEYS["node3"])]
    )
    assert "saveconfig" not in written.lower()
    assert mesh.parse_config(written).private_key == existing.private_key
    assert mesh.parse_config(written).ours


@pytest.mark.parametrize("link", json.loads(text("B49", "links.json")))
def test_b49_the_inner_mtu_fits_the_path(link: dict[str, Any]) -> None:
    assert fits(link["wg0"], link["outer"]) is (link["want"] == "pass")
    if "max" in link:
        assert largest_inner_mtu(link["outer"]) == link["max"]


def test_b49_over_ipv4_alone_twenty_bytes_more_fit() -> None:
    assert fits(1440, 1500, ipv4_only=True)
    assert not fits(1440, 1500)


def test_b50_a_kernel_without_the_module_is_explained_once() -> None:
    said = explain_modprobe("wireguard", text("B50", "modprobe.stderr"))
    assert "kernel 6.1.0-21-cloud-amd64 is of the cloud flavour" in said
    assert "install the distribution's full kernel" in said
    assert "In a container the host has to load it" in said


def test_b52_a_foreign_tunnel_stops_the_role() -> None:
    (live,) = parse_dump(text("B52", "wg-show-wg0-dump.txt"), "wg0")
    said = mesh.foreign_interface("wg0", None, live, KEYS["node1"])
    assert said == f"wg0 is a tunnel of this host already (port 41194, {len(live.peers)} peers)"
    ours = mesh.Existing(True, PRIVATE, {})
    assert mesh.foreign_interface("wg0", ours, live, KEYS["node1"]) != ""
    assert mesh.foreign_interface("wg0", ours, live, str(live.public_key)) == ""
    assert mesh.foreign_interface("wg-lium", None, None, "") == ""


def test_the_overlay_of_the_pods_is_not_the_mesh() -> None:
    with pytest.raises(MeshError, match="belongs to the overlay of cluster pods"):
        mesh.check_addresses(MeshInterface("wg-lium", "10.42.0.1", "10.42.0.0/24", 51821, 1420, PRIVATE), [])
