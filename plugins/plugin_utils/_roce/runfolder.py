# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""The folder of one verification on the control node: a plan for each host in, records of each host out.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

SWEEP = "sweep"
RERUN = "rerun"


class RunFolder:
    """``run.json`` with what holds for the whole run.

    Below each pass ``plans/HOST.json`` and ``records/HOST.jsonl``.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def create(cls) -> RunFolder:
        return cls(tempfile.mkdtemp(prefix="lium-roce-"))

    def write_run(self, run: Mapping[str, Any]) -> None:
        self._write("run.json", json.dumps(run))

    def read_run(self) -> dict[str, Any]:
        run = json.loads(self._read("run.json"))
        return dict(run)

    def write_plans(self, pass_name: str, plans: Mapping[str, Any]) -> None:
        for folder in ("plans", "records"):
            os.makedirs(os.path.join(self.path, pass_name, folder), exist_ok=True)
        for host, plan in plans.items():
            self._write(f"{pass_name}/plans/{_file(host)}.json", json.dumps(plan))

    def read_plan(self, pass_name: str, host: str) -> dict[str, Any] | None:
        """A host's plan; ``None`` when it has none in this pass."""
        try:
            return dict(json.loads(self._read(f"{pass_name}/plans/{_file(host)}.json")))
        except FileNotFoundError:
            return None

    def has_plan(self, pass_name: str, host: str) -> bool:
        return os.path.exists(os.path.join(self.path, f"{pass_name}/plans/{_file(host)}.json"))

    def write_records(self, pass_name: str, host: str, packed: str) -> None:
        """Keeps the records that a host sent (see the module roce_agent)."""
        text = zlib.decompress(base64.b64decode(packed)).decode("utf-8", "replace")
        self._write(f"{pass_name}/records/{_file(host)}.jsonl", text)

    def records(self, pass_name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every record of a pass, with the host that sent it; each test comes from both of its hosts."""
        folder = os.path.join(self.path, pass_name, "records")
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            host = unquote(name.removesuffix(".jsonl"))
            for line in self._read(f"{pass_name}/records/{name}").splitlines():
                yield host, json.loads(line)

    def _read(self, name: str) -> str:
        with open(os.path.join(self.path, name), encoding="utf-8") as stream:
            return stream.read()

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self.path, name), "w", encoding="utf-8") as stream:
            stream.write(text)


def pack(text: str) -> str:
    """A text as the module roce_agent takes and gives it: compressed, in base64."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _file(host: str) -> str:
    """An inventory name as the name of a file."""
    return quote(host, safe="")
