# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Which packages a task has added, from what `ansible.builtin.apt` and `ansible.builtin.dnf` return.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any


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
