"""`pulumi-lium sweep` in a process of its own, and what it is given to look at."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pulumi_lium.recovery.export import StackExport, parse_export
from pulumi_lium.recovery.findings import Survey
from pulumi_lium.recovery.survey import Contexts, survey
from pulumi_lium.recovery.sweep import Removal, clean
from tests.support.dying import BASE_URL, RENT, Process
from tests.support.world import KEY, World

LOST = ("POST", RENT, "after")
UNSENT = ("POST", RENT, "before")
"""Where a process dies: its order placed and the answer not read, or the order never sent."""


class Sweeper:
    """`pulumi-lium sweep` in a process of its own."""

    def __init__(self, world: World, folder: Path, *, key: str = KEY) -> None:
        self.process = Process(world, folder, seed=99, key=key)
        self.contexts: Contexts = lambda account: replace(self.process.ctx)
        self.journal = self.process.intents

    def look(self, **options: Any) -> Survey:
        return survey(self.contexts, self.journal, **options)

    def sweep(self, **options: Any) -> tuple[Survey, list[Removal]]:
        patience = {"patience": options.pop("patience")} if "patience" in options else {}
        found = self.look(**options)
        return found, clean(self.contexts, self.journal, found, **patience)


def clusters(world: World) -> set[str]:
    return {pod["cluster_id"] for pod in world.listed()}


def exported(world: World, *states: dict[str, Any], pending: tuple[dict[str, Any], ...] = ()) -> StackExport:
    """A stack whose state holds clusters with these outputs, and whose creates with these inputs were cut off."""
    urn = "urn:pulumi:dev::web::pulumi-python:dynamic/lium:Cluster::train"
    kind = "pulumi-python:dynamic/lium:Cluster"
    document = {
        "resources": [{"urn": urn, "type": kind, "id": state["cluster_id"], "outputs": state} for state in states],
        "pending_operations": [
            {"type": "creating", "resource": {"urn": urn, "type": kind, "inputs": dict(inputs)}} for inputs in pending
        ],
    }
    return parse_export(json.dumps(document), "stack.json", base_url=BASE_URL, now=world.ctx.clock.now())
