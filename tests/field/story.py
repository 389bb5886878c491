"""Plays a field case's scripted story on the emulator (formats: `cases/README.md`).

    story = Story("B08")                       # cases/B08/api.json; Story("B12", "variant-409-forever.json")
    story.play(emulator)                       # reset to the case's machines, then tell the story
    ... order story.order, or act on the ids of story.read("state.json") ...
    emulator.journal(), emulator.state()

The market behind the story holds the machines that the case names, free, so that a step with `commit` (or
`drop_after_commit`) really orders them: `state()["clusters"]` then counts what the client's orders have made. Listings
that the case scripts say what the case says. Where a case has an order but scripts no offer, the offer that its
machines make is scripted too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

CASES = Path(__file__).parent / "cases"
OFFERS = "GET /executors/infiniband-clusters"
SEGMENT = "10.20.30.0/24"
KEY = "sk_emulator_owner"


class ControlPlane(Protocol):
    """What a story needs of the emulator's control plane."""

    def reset(self, scenario: Any = None) -> Any: ...
    def script(self, steps: Any) -> Any: ...


class Story:
    """One script of one case: `case` is its folder, `name` the file in it."""

    def __init__(self, case: str, name: str = "api.json") -> None:
        self.folder = CASES / case
        self.told: dict[str, Any] = self.read(name)

    def read(self, name: str) -> Any:
        """Another JSON file of the case, parsed."""
        return json.loads((self.folder / name).read_text())

    def text(self, name: str) -> str:
        """Another file of the case, as it is."""
        return (self.folder / name).read_text()

    @property
    def order(self) -> dict[str, Any]:
        """What the case orders: `name`, `fabric_id`, `nodes`."""
        order: dict[str, Any] = self.read("order.json")
        return order

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps as they are played: the case's own, behind an offer of its machines where it scripts none."""
        steps: list[dict[str, Any]] = self.told["steps"]
        if not (self.folder / "order.json").exists() or any(step["on"] == OFFERS for step in steps):
            return steps
        return [{"on": OFFERS, "answer": {"status": 200, "json": [self._offer()]}}, *steps]

    def machines(self) -> list[dict[str, Any]]:
        """The machines that the case names, in offers and in pods, by id."""
        found = {
            row["id"]: row
            for step in self.told["steps"]
            for item in _rows(step)
            for row in (*item.get("nodes", ()), *filter(None, [item.get("executor")]))
        }
        return [found[identity] for identity in sorted(found)]

    def scenario(self, *, key: str = KEY) -> dict[str, Any]:
        """A market that holds the case's machines in one RoCE fabric, all free and measured; `key` is the owner's."""
        pending = self.told.get("pending_seconds", 0)
        machines = self.machines()
        return {
            "boot": {"seconds": [pending, pending]},
            "settings": {"rate_limit": False},
            "accounts": [{"id": "owner", "email": "owner@example.com", "balance": 10000.0, "keys": [{"key": key}]}],
            "templates": [
                {"name": "Multi-node cluster", "docker_image": "daturaai/lium-cluster", "docker_image_tag": "0.0.10"}
            ],
            "providers": [
                {
                    "name": "case",
                    "location": {"country": "United States", "country_code": "US"},
                    "fabrics": [{"name": "roce0", "type": "roce", "segment": SEGMENT, "measured": "all"}],
                    "hosts": [
                        {
                            "id": row["id"],
                            "gpu_model": row["machine_name"],
                            "gpu_count": row["gpu_count"],
                            "price_per_gpu": row.get("price_per_gpu", 2.0),
                            "public_ip": f"198.51.100.{number}",
                            "fabric": "roce0",
                        }
                        for number, row in enumerate(machines, 11)
                    ],
                }
            ],
        }

    def play(self, emulator: ControlPlane, *, key: str = KEY) -> None:
        """Start the emulator over with the case's machines and tell it the story."""
        emulator.reset(self.scenario(key=key))
        emulator.script(self.steps)

    def _offer(self) -> dict[str, Any]:
        machines = self.machines()
        return {
            "fabric_id": self.order["fabric_id"],
            "fabric_type": "roce",
            "link_rate": "400G",
            "fabric_measured": True,
            "node_count": len(machines),
            "nodes": [{"price_per_gpu": 2.0, **row} for row in machines],
        }


def scripts() -> Iterator[tuple[str, str]]:
    """Every script there is: its case and its file."""
    for path in sorted(CASES.glob("*/*.json")):
        if path.name.startswith(("api", "variant")):
            yield path.parent.name, path.name


def _rows(step: dict[str, Any]) -> list[dict[str, Any]]:
    rows = step["answer"].get("json")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
