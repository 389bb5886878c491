# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What irdma and ice show (host-contract 4.3.4).

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import re

from ansible_collections.lium.cluster.plugins.module_utils._lossless.settings import (
    ALL_PRIORITIES,
    FIRMWARE_CONTROLLED,
    OS_CONTROLLED,
    Settings,
)
from ansible_collections.lium.cluster.plugins.module_utils._parse import ParseError

_SWITCH = {"Y": True, "1": True, "N": False, "0": False}


def parse_priv_flags(text: str) -> Settings:
    """``ethtool --show-priv-flags IF``: with ``fw-lldp-agent`` on, firmware negotiates and the host hears nothing."""
    match = re.search(r"^fw-lldp-agent\s*:\s*(on|off)\s*$", text, re.MULTILINE)
    if match is None:
        raise ParseError("ethtool --show-priv-flags", "no fw-lldp-agent", text)
    return Settings(dcbx=FIRMWARE_CONTROLLED if match[1] == "on" else OS_CONTROLLED)


def parse_dcqcn_enable(text: str) -> Settings:
    """The module parameter ``dcqcn_enable`` of irdma, which holds for the whole port."""
    on = _SWITCH.get(text.strip())
    if on is None:
        raise ParseError("irdma dcqcn_enable", "neither on nor off", text)
    enabled = ALL_PRIORITIES if on else frozenset()
    return Settings(ecn_np=enabled, ecn_rp=enabled)
