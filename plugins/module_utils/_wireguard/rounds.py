# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""In which order a host calls the others, so that at one time every host is mostly called by one.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.lium.cluster.plugins.module_utils._roce.timetable import circle


def opponents(hosts: Sequence[str], name: str) -> list[str]:
    """The other hosts in the order of the rounds (circle method, host-contract 5.5); a round holds both directions."""
    order = []
    for pairs in circle(hosts):
        order += [left if right == name else right for left, right in pairs if name in (left, right)]
    return order
