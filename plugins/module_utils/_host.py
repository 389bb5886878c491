# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""A host as the checks see it: what several checks need is read once and kept.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError, key_values
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, ToolMissing


class DkmsModule(NamedTuple):
    """One line of ``dkms status``."""

    name: str
    kernel: str
    state: str


_DKMS_LINE = re.compile(r"(?P<name>[^,/:]+)[/,] ?[^,:]+(, (?P<kernel>[^,:]+)(, [^,:]+)?)?: (?P<state>[a-z-]+)")


def parse_dkms_status(text: str) -> list[DkmsModule]:
    """``mlnx-ofed-kernel/24.10, 6.8.0-60-generic, x86_64: installed`` as rows (host-contract rdma.stack_identity).

    A module that is only ``added`` has no kernel in its line; older versions write ``name, version`` for
    ``name/version``. What the tool remarks behind the state is left out.
    """
    rows = []
    for line in text.splitlines():
        if not line.strip():
            continue
        match = _DKMS_LINE.match(line.strip())
        if match is None:
            raise ParseError("dkms status", "a line that is not understood", line)
        rows.append(DkmsModule(match["name"], match["kernel"] or "", match["state"]))
    return rows


class Host:
    """What one look at a host reads. Values come at their first use; a failed reading raises at each use."""

    def __init__(self, probe: HostProbe) -> None:
        self.probe = probe

    @cached_property
    def _os_release(self) -> dict[str, str]:
        return key_values(self.probe.read("/etc/os-release"))

    @property
    def os_id(self) -> str:
        return self._os_release.get("ID", "unknown")

    @property
    def os_version(self) -> str:
        return self._os_release.get("VERSION_ID", "unknown")

    @property
    def debian_like(self) -> bool:
        return "debian" in (self.os_id, *self._os_release.get("ID_LIKE", "").split())

    @cached_property
    def kernel(self) -> str:
        return self.probe.output("uname", "-r").strip()

    @cached_property
    def machine(self) -> str:
        return self.probe.output("uname", "-m").strip()

    @cached_property
    def dkms(self) -> list[DkmsModule]:
        """Drivers that DKMS builds for the RDMA stack. Empty without DKMS."""
        try:
            text = self.probe.output("dkms", "status")
        except ToolMissing:
            return []
        return [row for row in parse_dkms_status(text) if row.name.startswith(RDMA_DKMS)]

    @property
    def dkms_names(self) -> list[str]:
        return sorted({row.name for row in self.dkms})


#: Names under which vendors' RDMA drivers stand in DKMS.
RDMA_DKMS = ("mlnx-ofed", "mlnx_ofed", "mlnx-ofa_kernel", "bnxt", "netxtreme", "irdma", "iser", "isert", "srp")
