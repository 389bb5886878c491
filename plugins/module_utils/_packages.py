# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Which packages are there, and which a task has added, from what `ansible.builtin.apt` and `dnf` return.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._firewall_rule import Run


class PackageError(Exception):
    """What is installed cannot be told."""


#: States of dpkg in which something of a package is on the host; `rpm` is asked to answer with the first.
_PRESENT = ("installed", "triggers-pending", "triggers-awaited", "half-configured", "half-installed", "unpacked")


def added_packages(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Packages that were not there before, their dependencies included. Upgraded ones do not count."""
    names: list[str] = []
    for result in results:
        # apt lists them indented below this head, in check mode as well.
        block = re.search(r"NEW packages will be installed:\n((?:  [^\n]*\n)+)", f"{result.get('stdout') or ''}\n")
        if block:
            names += block.group(1).split()
        rows = result.get("results")
        names += [
            row.split(": ", 1)[1]
            for row in (rows if isinstance(rows, list) else [])
            if isinstance(row, str) and row.startswith("Installed: ")
        ]
    return list(dict.fromkeys(names))


def query_command(names: Iterable[str], apt: bool) -> list[str]:
    """The command that says which of these packages are there; its exit code tells of those that are not."""
    if apt:
        bare = [re.split("[=/]", name)[0] for name in names]  # apt takes a version behind the name
        return ["dpkg-query", "--show", "--showformat", "${db:Status-Status} ${Package}\\n", *bare]
    return ["rpm", "--query", "--queryformat", "installed %{NAME}\\n", *names]


def parse_query(text: str) -> set[str]:
    """Names of the packages that are there, from the output of :func:`query_command`."""
    rows = [line.split() for line in text.splitlines()]
    return {row[1] for row in rows if len(row) == 2 and row[0] in _PRESENT}


def present_packages(run: Run, names: Iterable[str], apt: bool) -> set[str]:
    """Those of these packages that are there. Raises PackageError when nobody can tell."""
    argv = query_command(names, apt)
    rc, text = run(argv)
    if rc == 127 or (apt and rc not in (0, 1)):
        raise PackageError(f"{argv[0]}: {text.strip() or f'exit code {rc}'}")
    return parse_query(text)


def name_of_file(run: Run, path: str, apt: bool) -> str:
    """Name of the package in a file. Raises PackageError when it is none."""
    argv = ["dpkg-deb", "--field", path, "Package"] if apt else ["rpm", "-qp", "--queryformat", "%{NAME}", path]
    rc, text = run(argv)
    if rc != 0 or len(text.split()) != 1:
        raise PackageError(f"{' '.join(argv)}: {text.strip() or f'exit code {rc}'}")
    return text.strip()
