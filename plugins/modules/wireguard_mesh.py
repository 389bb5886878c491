#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: wireguard_mesh
short_description: Keep a persistent WireGuard mesh between hosts
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Without O(peers) the module makes sure that this host has a key, and returns its public half. The private one is
    made on the host and never leaves it.
  - With O(peers) it writes C(/etc/wireguard/NAME.conf) and keeps the interface up through C(wg-quick@NAME).
  - A peer without a key in O(peers) keeps the one that the file has, so a run on part of the hosts loses none. If there
    is no key for a peer, or two hosts have one address, nothing is written.
  - An interface or a file of that name that this module did not make is left untouched, and the module fails.
options:
  interface:
    description: Name of the interface.
    type: str
    default: wg-lium
  address:
    description: This host's address in the mesh.
    type: str
    required: true
  network:
    description: The mesh's network. It must not overlap C(10.42.0.0/24), which belongs to the overlay of cluster pods.
    type: str
    default: 10.44.0.0/24
  port:
    description: UDP port of the mesh. Not 51820, which belongs to cluster pods.
    type: int
    default: 51821
  mtu:
    description: MTU of the interface, at most that of the path less 80 bytes.
    type: int
    default: 1420
  peers:
    description: All other hosts of the mesh, also those that this run does not work on.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the host.
        type: str
        required: true
      address:
        description: Its address in the mesh.
        type: str
        required: true
      endpoint:
        description: Its address and port outside the mesh.
        type: str
        required: true
      public_key:
        description: Its public key, empty when this run did not learn it.
        type: str
        default: ""
  adopt:
    description: Whether to take over a file of that name that was written by something else, with its key.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
    support: full
    details: On a host without a key, and for peers whose key is not made yet, the file is predicted without them.
  diff_mode:
    description: Returns details on what has changed when in diff mode.
    support: partial
    details: The text of the file holds a key and is never shown.
  idempotent:
    description: A second run under the same conditions changes nothing.
    support: full
  action_group:
    description: Use C(group/lium.cluster.cluster) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - lium.cluster.cluster
"""

EXAMPLES = r"""
- name: Make a key
  lium.cluster.wireguard_mesh:
    address: 10.44.0.1
  register: mesh_key

- name: Write the mesh
  lium.cluster.wireguard_mesh:
    address: 10.44.0.1
    peers:
      - name: host2
        address: 10.44.0.2
        endpoint: 192.0.2.12:51821
        public_key: "{{ hostvars['host2'].mesh_key.public_key }}"
"""

RETURN = r"""
public_key:
  description: Public key of this host, empty in check mode on a host that has none yet.
  returned: success
  type: str
changes:
  description: What was done, one line a change.
  returned: success
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._footprint import (
    Footprint,
    FootprintError,
    ManagedFile,
    Wanted,
)
from ansible_collections.lium.cluster.plugins.module_utils._ledger import LedgerError
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.wg import parse_dump
from ansible_collections.lium.cluster.plugins.module_utils._wireguard import mesh
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.netns import SetupError, run, try_run

PEER = {
    "name": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "endpoint": {"type": "str", "required": True},
    "public_key": {"type": "str", "default": "", "no_log": False},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "interface": {"type": "str", "default": "wg-lium"},
            "address": {"type": "str", "required": True},
            "network": {"type": "str", "default": "10.44.0.0/24"},
            "port": {"type": "int", "default": 51821},
            "mtu": {"type": "int", "default": 1420},
            "peers": {"type": "list", "elements": "dict", "options": PEER},
            "adopt": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        result = _converge(module.params, module.check_mode)
    except (mesh.MeshError, SetupError, FootprintError, LedgerError, ParseError, OSError, ValueError) as exc:
        module.fail_json(msg=str(exc), failure={"code": "mesh", "details": str(exc)})
    module.exit_json(**result)


def _converge(options, check_mode):
    name, path = options["interface"], f"/etc/wireguard/{options['interface']}.conf"
    existing, live = _existing(path), _live(name)
    private_key = existing.private_key if existing else ""
    public_key = run(["wg", "pubkey"], stdin=private_key).strip() if private_key else ""
    foreign = mesh.foreign_interface(name, existing, live, public_key)
    if foreign and not options["adopt"]:
        raise mesh.MeshError(f"{foreign}; it is left as it is. Choose another name (wireguard_mesh_interface)")
    peers = None if options["peers"] is None else [mesh.MeshPeer(**row) for row in options["peers"]]
    if peers is None and private_key:
        return {"changed": False, "public_key": public_key, "changes": []}
    if not private_key and not check_mode:
        private_key = run(["wg", "genkey"]).strip()
        public_key = run(["wg", "pubkey"], stdin=private_key).strip()
    interface = mesh.MeshInterface(
        name, options["address"], options["network"], options["port"], options["mtu"], private_key
    )
    keys_of_file = existing or mesh.Existing(True, "", {})
    mesh.check_addresses(interface, peers or [])
    if check_mode and (not private_key or not mesh.keys_known(peers or [], keys_of_file)):
        # The keys of this run are made only when it is real; what it would do is known without them.
        return {"changed": True, "public_key": public_key, "changes": [f"write {path}"]}
    return _write(interface, path, mesh.complete_keys(peers or [], keys_of_file), peers is not None, live, check_mode)


def _write(interface, path, peers, start, live, check_mode):
    """Writes the file and starts the interface. Before the peers are known (no ``start``) it only keeps the key."""
    unit = f"wg-quick@{interface.name}"
    content = ManagedFile(path, mesh.render(interface, peers), 0o600, secret=True)
    footprint = Footprint("wireguard_mesh", dry=check_mode)
    changes = footprint.apply(Wanted(files=[content], services=[unit] if start else [])).changes
    if start and live is not None and f"write {path}" in changes:
        changes.append(f"restart {unit}")
        if not check_mode:
            run(["systemctl", "restart", unit])
    public_key = run(["wg", "pubkey"], stdin=interface.private_key).strip()
    return {"changed": bool(changes), "public_key": public_key, "changes": changes}


def _existing(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return mesh.parse_config(stream.read())
    except FileNotFoundError:
        return None


def _live(name):
    if not os.path.isdir(f"/sys/class/net/{name}"):
        return None
    if not try_run("wg", "show", name, "dump"):
        raise mesh.MeshError(f"{name} is a netdev of this host and no WireGuard interface; it is left as it is")
    return parse_dump(run(["wg", "show", name, "dump"]), name)[0]


if __name__ == "__main__":
    main()
