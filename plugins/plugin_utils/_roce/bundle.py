# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The agent as one file: an archive that Python runs, packed on the control node from the collection's own sources.

So there is one parser and one pass mark, and a host needs nothing but Python's standard library.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import functools
import importlib
import io
import zipfile
from pathlib import Path

_PACKAGE = "ansible_collections.lium.cluster.plugins.module_utils"
_MODULES = (
    "_lossless.counters",
    "_parse",
    "_roce.agent",
    "_roce.child",
    "_roce.command",
    "_roce.exchange",
    "_roce.failures",
    "_roce.hostplan",
    "_roce.incast",
    "_roce.loop",
    "_roce.main",
    "_roce.meeting",
    "_roce.passmark",
    "_roce.perftest",
    "_roce.quarantine",
    "_roce.records",
    "_roce.sockets",
)
_START = f"""\
import os
import sys

from {_PACKAGE}._roce.main import main

sys.exit(main(sys.argv[1:], os.environ))
"""


@functools.lru_cache(maxsize=1)
def agent_file() -> bytes:
    """The agent's file, the same bytes for the same sources; ``python3 FILE PLAN FOLDER LOCK`` runs it."""
    content: dict[str, bytes] = {"__main__.py": _START.encode()}
    for module in _MODULES:
        *parts, name = f"{_PACKAGE}.{module}".split(".")
        for depth in range(1, len(parts) + 1):
            content["/".join([*parts[:depth], "__init__.py"])] = b""
        # Of packages without a file of their own the standard library gives no data, but each module knows its file.
        source = importlib.import_module(f"{_PACKAGE}.{module}").__file__
        if source is None:
            raise FileNotFoundError(f"{module}: has no file below {_PACKAGE}")
        content["/".join([*parts, f"{name}.py"])] = Path(source).read_bytes()
    archive = io.BytesIO(b"#!/usr/bin/env python3\n")
    archive.seek(0, io.SEEK_END)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        for name, data in content.items():
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return archive.getvalue()
