# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""All checks of one host in the order of the host contract.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.lium.cluster.plugins.module_utils._check import Section, evaluate
from ansible_collections.lium.cluster.plugins.module_utils._checks import platform
from ansible_collections.lium.cluster.plugins.module_utils._host import Host
from ansible_collections.lium.cluster.plugins.module_utils._module import Look
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe

SECTIONS = (Section("platform", platform.CHECKS, gate=True),)


def look(probe: HostProbe, options: Mapping[str, Any]) -> Look:
    """Records and facts of one host; never raises for what a host shows."""
    host = Host(probe)
    return Look(evaluate(SECTIONS, host), {})
