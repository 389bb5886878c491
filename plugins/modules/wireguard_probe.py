#!/usr/bin/python
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: wireguard_probe
short_description: Prove by real handshakes that a UDP port is open between hosts
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Run its four steps one after the other on all hosts of a fabric, each when the one before has ended everywhere.
  - With O(step=open) a host publishes the port as a cluster pod would, behind receivers that can only be called.
  - With O(step=join) it learns the public keys of the others, with O(step=call) it calls them in rounds.
  - With O(step=close) it returns what it saw and takes everything away. Run that step whatever happened before.
  - Nothing is started on a host with a rental, nor while another network test runs there. Keys are made on the host and
    live in its kernel only. What an interrupted play leaves ends by itself when no step has come for O(lifetime).
options:
  step:
    description: Which step to run.
    type: str
    choices: [open, join, call, close]
    required: true
  name:
    description: Name of this host among O(hosts).
    type: str
    required: true
  hosts:
    description: Names of all hosts of the probe, in the same order on each.
    type: list
    elements: str
    required: true
  ports:
    description: UDP ports of this host to prove, at most four. Used with O(step=open).
    type: list
    elements: int
    default: [51820]
  range_port:
    description:
      - A port of the executor's renting range that is proven as well, 0 for none. One that cannot be published is left
        out, and RV(range_error) says why. Used with O(step=open).
    type: int
    default: 0
  addresses:
    description: Addresses or names at which the others call this host. Used with O(step=open).
    type: list
    elements: str
    default: []
  lifetime:
    description:
      - Seconds without a step after which everything ends by itself. On a large fabric a host waits for its next step
        until others have called all hosts. Used with O(step=open).
    type: int
    default: 600
  members:
    description: What the other hosts returned for O(step=open), with their names and addresses.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the host.
        type: str
        required: true
      number:
        description: Its place among O(hosts), from 1.
        type: int
        required: true
      addresses:
        description: Addresses to call it at.
        type: list
        elements: str
        required: true
      ports:
        description: Its probed ports.
        type: list
        elements: int
        required: true
      keys:
        description: Public keys of its receivers.
        type: list
        elements: str
        required: true
      sender_key:
        description: Public key of its sender.
        type: str
        required: true
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
    support: full
    details: In check mode nothing is probed.
  diff_mode:
    description: Returns details on what has changed when in diff mode.
    support: none
  idempotent:
    description: A second run under the same conditions changes nothing.
    support: full
    details: After O(step=close) a host is as it was before O(step=open).
  action_group:
    description: Use C(group/lium.cluster.cluster) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - lium.cluster.cluster
"""

EXAMPLES = r"""
- name: Publish the port
  lium.cluster.wireguard_probe:
    step: open
    name: "{{ inventory_hostname }}"
    hosts: "{{ ansible_play_hosts }}"
"""

RETURN = r"""
refused:
  description: Why nothing was started on this host; empty when it was.
  returned: O(step=open)
  type: str
member:
  description: This host as the others need it in O(members), where a probe was opened.
  returned: O(step=open)
  type: dict
ports:
  description: The ports of O(ports) that the probe was opened at.
  returned: O(step=open)
  type: list
  elements: int
range_port:
  description: The port that stands for the renting range, 0 where none is open.
  returned: O(step=open)
  type: int
range_error:
  description: Why O(range_port) is not open; empty when it is, or when none was asked for.
  returned: O(step=open)
  type: str
own_addresses:
  description: IPv4 addresses of this host at which packets of the probe leave and arrive.
  returned: O(step=open)
  type: list
  elements: str
path:
  description: C(docker-publish) where the port was published as a pod's is, C(host) without Docker.
  returned: O(step=open), O(step=close)
  type: str
sent:
  description: One row for each directed test of this host.
  returned: O(step=call)
  type: list
  elements: dict
received:
  description: One row for each other host and port, as this host's receivers saw it.
  returned: O(step=close)
  type: list
  elements: dict
wire:
  description: Packets that passed this host's wire, by kind, other host's address and port.
  returned: O(step=close)
  type: list
  elements: list
"""

import os
import socket

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.lium.cluster.plugins.module_utils._docker import confidential_vm_host, occupancy
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError
from ansible_collections.lium.cluster.plugins.module_utils._parsers.net import parse_ip_address
from ansible_collections.lium.cluster.plugins.module_utils._probe import ProbeError, open_probe
from ansible_collections.lium.cluster.plugins.module_utils._wireguard import probe
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.holder import Busy
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.netns import SetupError
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.rounds import opponents

MEMBER = {
    "name": {"type": "str", "required": True},
    "number": {"type": "int", "required": True},
    "addresses": {"type": "list", "elements": "str", "required": True},
    "ports": {"type": "list", "elements": "int", "required": True},
    "keys": {"type": "list", "elements": "str", "required": True, "no_log": False},
    "sender_key": {"type": "str", "required": True, "no_log": False},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "choices": ["open", "join", "call", "close"], "required": True},
            "name": {"type": "str", "required": True},
            "hosts": {"type": "list", "elements": "str", "required": True},
            "ports": {"type": "list", "elements": "int", "default": [51820]},
            "range_port": {"type": "int", "default": 0},
            "addresses": {"type": "list", "elements": "str", "default": []},
            "lifetime": {"type": "int", "default": 600},
            "members": {"type": "list", "elements": "dict", "default": [], "options": MEMBER},
        },
        supports_check_mode=True,
    )
    options = module.params
    if options["name"] not in options["hosts"]:
        module.fail_json(msg=f"name: {options['name']} is none of hosts")
    members = {row["name"]: probe.Member.from_dict(row) for row in options["members"]}
    # A host that did not open has no member row; nobody calls it.
    others = [members[name] for name in opponents(options["hosts"], options["name"]) if name in members]
    try:
        if module.check_mode:
            result = {"refused": "check mode: nothing is probed"} if options["step"] == "open" else {}
        elif options["step"] == "open":
            result = _open(options)
        elif options["step"] == "join":
            probe.join(others)
            result = {}
        elif options["step"] == "call":
            result = {"sent": probe.call(others)}
        else:
            result = probe.close(others)
    except (SetupError, ProbeError, ParseError, OSError) as exc:
        module.fail_json(msg=str(exc), failure={"code": "probe", "details": str(exc)})
    # What the probe makes is gone again when its last step ends: a host is not changed by it.
    module.exit_json(changed=False, **result)


def _open(options):
    look = open_probe("/", os.environ)
    docker = look.which("docker") is not None
    refused = confidential_vm_host(look) or occupancy(look).busy_for_tests
    if refused:
        return {"refused": refused}
    number = options["hosts"].index(options["name"]) + 1
    own = probe.wire_addresses(parse_ip_address(look.output("ip", "-j", "addr", "show")))
    addresses = [_resolve(address) for address in options["addresses"]]
    range_port, range_error = options["range_port"], ""
    ports = options["ports"] + [port for port in [range_port] if port and port not in options["ports"]]
    try:
        try:
            opened = probe.open_probe_ports(number, ports, own, docker, options["lifetime"])
        except SetupError as exc:
            if ports == options["ports"]:
                raise
            # The overlay's own ports are not lost for the range; if they were the reason, the next line says so.
            ports, range_port, range_error = options["ports"], 0, str(exc)
            opened = probe.open_probe_ports(number, ports, own, docker, options["lifetime"])
    except Busy as exc:
        return {"refused": str(exc)}
    member = {
        "name": options["name"],
        "number": number,
        "addresses": addresses,
        "ports": ports,
        "keys": opened["keys"],
        "sender_key": opened["sender_key"],
    }
    return {
        "refused": "",
        "member": member,
        "own_addresses": own,
        "path": opened["path"],
        "ports": options["ports"],
        "range_port": range_port,
        "range_error": range_error,
    }


def _resolve(address):
    try:
        return socket.gethostbyname(address)
    except OSError as exc:
        raise SetupError(f"{address}: no IPv4 address can be found for it: {exc}") from exc


if __name__ == "__main__":
    main()
