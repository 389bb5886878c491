#!/usr/bin/python3 -IS
# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""A container runtime that gives each container the host's RDMA devices, and hands on to the runtime behind it.

Called as runc is. On `create` and `run` it edits the bundle's config.json (host-contract 6.2); every other verb goes
straight on. Whatever is wrong with the bundle, the container starts, unedited, and syslog and stderr say why.

Settings, as KEY=VALUE lines in /etc/lium/rdma-runc.conf (or the file that LIUM_RDMA_RUNC_SETTINGS names), all optional:
`runtime` (the command behind; one line for each of its words), `device_folder`, `env_file`.

Only the standard library, and of it as little as possible: this stands in the way of each start of a container.
"""

from __future__ import annotations

import os
import sys

SETTINGS = "/etc/lium/rdma-runc.conf"
IN_CONTAINER = "/dev/infiniband"
UNLIMITED = 2**64 - 1
# Set for the runtime behind: whoever calls us with it has called itself.
MARK = "LIUM_RDMA_RUNC_ACTIVE"
# Global options of runc and crun that take a value.
WITH_VALUE = {"root", "log", "log-format", "log-level", "criu", "rootless", "cgroup-manager"}


def main(argv, environ):
    settings = read_settings(environ.get("LIUM_RDMA_RUNC_SETTINGS", SETTINGS))
    behind = settings["runtime"]
    if environ.get(MARK):
        tell(f"{' '.join(behind)} leads back to this program; runc takes its place")
        behind = ["runc"]
    else:
        bundle = edited_bundle(argv)
        if bundle is not None:
            try:
                edit_bundle(bundle, settings)
            except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError) as exc:
                tell(f"{bundle}/config.json is left as it is: {type(exc).__name__}: {exc}")
    try:
        os.execvpe(behind[0], [*behind, *argv], {**environ, MARK: "1"})
    except OSError as exc:
        text = f"cannot run {behind[0]}, the runtime behind lium-rdma: {exc.strerror}"
        tell(text)
        write_runtime_log(argv, text)
        return 127


def tell(text):
    """Into syslog, and on stderr, which is the container's own."""
    note(text)
    sys.stderr.write(f"lium-rdma-runc: {text}\n")


def note(text):
    import syslog

    syslog.syslog(syslog.LOG_WARNING, f"lium-rdma-runc: {text}")


def write_runtime_log(argv, text):
    """Docker shows the last message of this file to the person who started the container."""
    import json

    path = option(argv, ("log",))
    if path:
        try:
            with open(path, "a", encoding="utf-8") as stream:
                stream.write(json.dumps({"level": "error", "msg": text}) + "\n")
        except OSError as exc:
            tell(f"{path}: {exc.strerror}")


def read_settings(path):
    """The settings with their defaults; what cannot be read is told and counts as not set."""
    given = {}
    try:
        with open(path, encoding="utf-8") as stream:
            for line in stream:
                key, _, value = line.strip().partition("=")
                if value and not key.startswith("#"):
                    given.setdefault(key, []).append(value)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as exc:
        tell(f"{path}: {exc}; the defaults are taken")
    return {
        "runtime": given.get("runtime", ["runc"]),
        "device_folder": given.get("device_folder", [IN_CONTAINER])[-1],
        "env_file": given.get("env_file", ["/etc/lium-cluster.env"])[-1],
    }


def option(arguments, names):
    """The value of an option in any of the spellings that runc takes: `--x V`, `-x V`, `--x=V`, `-x=V`."""
    found = None
    for position, argument in enumerate(arguments):
        name, equals, value = argument.lstrip("-").partition("=")
        if argument.startswith("-") and name in names:
            found = value if equals else next(iter(arguments[position + 1 :]), None)
    return found


def edited_bundle(argv):
    """The bundle of a `create` or `run`, the current folder where none is named; None for every other call."""
    position = 0
    while position < len(argv) and argv[position].startswith("-"):
        name, equals, _ = argv[position].lstrip("-").partition("=")
        position += 2 if name in WITH_VALUE and not equals else 1
    if position >= len(argv) or argv[position] not in ("create", "run"):
        return None
    return option(argv[position + 1 :], ("bundle", "b")) or "."


def edit_bundle(bundle, settings, may_lift=None):
    """Edits config.json in one step, or not at all. A second run over the same bundle changes nothing.

    `may_lift` tells whether a container may have no limit of locked memory; by default the machine is asked.
    """
    import json

    path = os.path.join(bundle, "config.json")
    with open(path, encoding="utf-8") as stream:
        before = stream.read()
        status = os.fstat(stream.fileno())
    spec = json.loads(before)
    memlock = (may_lift or may_lift_memlock)()
    edit(spec, rdma_nodes(settings["device_folder"]), read_env(settings["env_file"]), memlock, shares_network)
    if spec == json.loads(before):
        return
    new = f"{path}.lium-rdma"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(spec))
        os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, status.st_mode & 0o7777)
    os.replace(new, path)


def rdma_nodes(folder):
    """Rows for `linux.devices` of what verbs need, never management nodes (umad, issm). Empty without the folder."""
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    nodes = []
    for name in names:
        if name != "rdma_cm" and not (name.startswith("uverbs") and name[6:].isdecimal()):
            continue
        status = os.stat(os.path.join(folder, name))
        if status.st_mode & 0o170000 != 0o020000:  # a character device
            continue
        nodes.append(
            {
                "path": f"{IN_CONTAINER}/{name}",
                "type": "c",
                "major": os.major(status.st_rdev),
                "minor": os.minor(status.st_rdev),
                "fileMode": status.st_mode & 0o777,
                "uid": status.st_uid,
                "gid": status.st_gid,
            }
        )
    return nodes


def read_env(path):
    """`KEY=VALUE` lines; a value may begin with `=`. A pod that is no member of a cluster has no such file."""
    try:
        with open(path, encoding="utf-8") as stream:
            lines = [line.strip() for line in stream]
    except FileNotFoundError:
        return []
    return [line for line in lines if not line.startswith("#") and line.partition("=")[0] and "=" in line]


def may_lift_memlock():
    """Whether a container may have no limit. Only trying tells: root lacks the right in a user namespace, for one."""
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        return False
    return True


def shares_network(path):
    """Whether a container's network namespace is the one this program runs in; `path` is empty for one of its own."""
    try:
        return bool(path) and os.path.samefile(path, "/proc/self/ns/net")
    except OSError:
        return False


def edit(spec, nodes, variables, memlock, shares_network):
    """The edits of host-contract 6.2 on a parsed spec, in place."""
    linux = spec.setdefault("linux", {})
    add_devices(linux, nodes)
    process = spec["process"]
    capabilities = process.get("capabilities") or {}
    for bucket in ("bounding", "effective", "permitted", "inheritable", "ambient"):
        held = capabilities.get(bucket)
        # The kernel refuses an ambient capability that is not inheritable, and the container would not start.
        usable = bucket != "ambient" or isinstance(capabilities.get("inheritable"), list)
        if isinstance(held, list) and usable and "CAP_IPC_LOCK" not in held:
            held.append("CAP_IPC_LOCK")
    if memlock:
        limits = process.get("rlimits") or []
        limit = {"type": "RLIMIT_MEMLOCK", "hard": UNLIMITED, "soft": UNLIMITED}
        if [row for row in limits if row["type"] == "RLIMIT_MEMLOCK"] != [limit]:
            process["rlimits"] = [row for row in limits if row["type"] != "RLIMIT_MEMLOCK"] + [limit]
    else:
        note("the limit of locked memory may not be lifted here; start the pod around this with --ulimit memlock=-1:-1")
    network = [row for row in linux.get("namespaces") or [] if row["type"] == "network"]
    if all(shares_network(row.get("path", "")) for row in network):
        environment = process.get("env") or []
        known = {line.partition("=")[0] for line in environment}
        added = [line for line in variables if line.partition("=")[0] not in known]
        if added:
            process["env"] = environment + added


def add_devices(linux, nodes):
    """Nodes and the right to use them, both in the spec, so that a reload of systemd keeps them."""
    devices = linux["devices"] = linux.get("devices") or []
    resources = linux["resources"] = linux.get("resources") or {}
    rules = resources["devices"] = resources.get("devices") or []
    listed = {row["path"]: row for row in devices}
    last_deny = max((place for place, rule in enumerate(rules) if not rule["allow"]), default=-1)
    allowed = {(rule.get("major"), rule.get("minor")) for rule in rules[last_deny + 1 :]}
    for node in nodes:
        device = listed.get(node["path"])
        if device is None:
            device = node
            devices.append(node)
        numbers = device["major"], device["minor"]
        if numbers not in allowed:
            rules.append({"allow": True, "type": "c", "major": numbers[0], "minor": numbers[1], "access": "rwm"})


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], dict(os.environ)))
