"""Runs the probe's own code on virtual hosts without Ansible around it, for tests of many conditions in little time."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._record import Record

from tests.collection.conftest import ROOT
from tests.rack.host import Host

_FOLDER = "/root/probe"
_PACKAGE = "ansible_collections/lium/cluster/plugins/module_utils"

#: One step a call; arguments and answer are JSON.
_STEP = """
import json, sys
sys.path.insert(0, "/root/probe")
from ansible_collections.lium.cluster.plugins.module_utils._wireguard import probe
given = json.load(sys.stdin)
others = [probe.Member.from_dict(row) for row in given["others"]]
step = given["step"]
if step == "open":
    answer = probe.open_probe_ports(given["number"], given["ports"], given["own"], given["docker"], given["lifetime"])
elif step == "join":
    answer = probe.join(others)
elif step == "call":
    answer = probe.call(others)
else:
    answer = probe.close(others)
print(json.dumps(answer))
"""


def install(host: Host) -> None:
    """Puts the collection's shared code on a host."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(ROOT / "plugins" / "module_utils", _PACKAGE, filter=_without_caches)
    subprocess.run(
        [*host.ssh_command(), f"mkdir -p {_FOLDER} && tar -xz -C {_FOLDER}"],
        input=buffer.getvalue(),
        check=True,
        timeout=300,
    )
    host.write(f"{_FOLDER}/step.py", _STEP)


def _without_caches(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in info.name else info


def step(host: Host, name: str, others: Sequence[Mapping[str, Any]] = (), **given: Any) -> Any:
    """One step of the probe on a host; what it answers."""
    text = json.dumps({"step": name, "others": list(others), **given})
    done = host.run(f"python3 {shlex.quote(_FOLDER)}/step.py", text=text, timeout=900)
    return json.loads(done.stdout)


#: The overlay's checks, as `wireguard_info` runs them.
_LOOK = """
import json, os, sys
sys.path.insert(0, "/root/probe")
from ansible_collections.lium.cluster.plugins.module_utils._probe import open_probe
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.checks import look_at_wireguard
found = look_at_wireguard(open_probe("/", os.environ), {"ports": [51820]})
print(json.dumps([record.as_dict() for record in found.records]))
"""


def look_at(host: Host, record_id: str) -> Record:
    """One record of `wireguard_info` on a host."""
    rows = json.loads(host.run("python3 -", text=_LOOK, timeout=600).stdout)
    return next(Record.from_dict(row) for row in rows if row["id"] == record_id)


def probe_all(hosts: Sequence[Host], ports: Sequence[int] = (51820,), docker: bool = True) -> dict[str, dict[str, Any]]:
    """The whole probe between the hosts; the facts that the report makes its verdicts of."""
    names = [host.name for host in hosts]
    with ThreadPoolExecutor(len(hosts)) as pool:
        opened = list(
            pool.map(
                lambda host: step(
                    host,
                    "open",
                    number=host.number,
                    ports=list(ports),
                    own=[host.fabric_address],
                    docker=docker,
                    lifetime=900,
                ),
                hosts,
            )
        )
        members = [
            {
                "name": host.name,
                "number": host.number,
                "addresses": [host.fabric_address],
                "ports": list(ports),
                "keys": answer["keys"],
                "sender_key": answer["sender_key"],
            }
            for host, answer in zip(hosts, opened, strict=True)
        ]
        others = {host.name: [row for row in members if row["name"] != host.name] for host in hosts}
        list(pool.map(lambda host: step(host, "join", others[host.name]), hosts))
        sent = list(pool.map(lambda host: step(host, "call", others[host.name]), hosts))
        closed = list(pool.map(lambda host: step(host, "close", others[host.name]), hosts))
    return {
        host.name: {
            "wireguard_probe": {
                "hosts": names,
                "refused": "",
                "error": "",
                "own_addresses": [host.fabric_address],
                "path": found["path"],
                "ports": list(ports),
                "range_port": 0,
                "sent": rows,
                "received": found["received"],
                "wire": found["wire"],
            }
        }
        for host, rows, found in zip(hosts, sent, closed, strict=True)
    }
