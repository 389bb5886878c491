# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""What all read-only check modules share: their option, how they look, and the form of their result.

A new check module is its documentation, a ``look`` function, and the ten lines of ``main`` that its sisters have.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, open_probe
from ansible_collections.lium.cluster.plugins.module_utils._record import Record, worst_status

#: The option of every check module.
HOST_ROOT: Mapping[str, Any] = {"host_root": {"type": "path", "default": "/"}}


class Look(NamedTuple):
    """What a check module found: records for people, facts for the comparison between hosts."""

    records: Sequence[Record]
    facts: Mapping[str, Any]


def look_result(
    look: Callable[[HostProbe, Mapping[str, Any]], Look], params: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, Any]:
    """The result of a check module with those parameters. Raises :class:`ProbeError` when nothing could be read."""
    found = look(open_probe(params["host_root"], environ), params)
    records = [record.as_dict() for record in found.records]
    return {
        "changed": False,
        "records": records,
        "facts": dict(found.facts),
        "status": worst_status(record["status"] for record in records),
    }


def unreadable(error: Exception) -> dict[str, Any]:
    """What a check module fails with when nothing could be read."""
    return {"msg": str(error), "failure": {"code": "unreadable", "details": str(error)}}
