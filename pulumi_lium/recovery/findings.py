"""What a look found: something that bills and that no state holds, and what a whole look came to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pulumi_lium.lifecycle.intents import Intent
from pulumi_lium.lifecycle.settle import Placed
from pulumi_lium.lifecycle.values import usd

Kind = Literal["intent", "pending create", "prefix", "stranger", "held", "unreadable", "unattributed"]
"""`held`: the order of a living process, which may end without its cluster in a state. `unreadable`: a record of the
journal that tells nothing; its name is the file's. `unattributed`: listed, and nothing that was looked at tells whose
it is."""


@dataclass(frozen=True)
class Finding:
    """Something that bills, or may, and that no state holds.

    `placed` is None where no listing shows it (yet). `problem` says why it will not be touched; None where `--yes`
    removes it.
    """

    kind: Kind
    name: str
    account: str | None
    placed: Placed | None
    price_per_hour: float | None
    since: datetime | None
    owner: str
    why: str
    intent: Intent | None = None
    problem: str | None = None

    @property
    def cluster_id(self) -> str | None:
        return self.placed.cluster_id if self.placed else self.intent.cluster_id if self.intent else None

    @property
    def removable(self) -> bool:
        return self.problem is None

    @property
    def title(self) -> str:
        """`train-… (cluster 9b1e…, $32.00 an hour)`."""
        where = f"cluster {self.cluster_id}, " if self.cluster_id else ""
        return f"{self.name} ({where}{usd(self.price_per_hour)})"

    def age(self, now: datetime) -> timedelta | None:
        return None if self.since is None else max(now - self.since, timedelta(0))

    def document(self, now: datetime) -> dict[str, Any]:
        """For programs."""
        age = self.age(now)
        return {
            "kind": self.kind,
            "name": self.name,
            "cluster_id": self.cluster_id,
            "account": self.account,
            "owner": self.owner or None,
            "nodes": [
                {"rank": pod.rank, "pod_id": pod.id, "status": pod.status, "price_per_hour": pod.price_per_hour}
                for pod in (self.placed.members if self.placed else ())
            ],
            "price_per_hour": self.price_per_hour,
            "age_seconds": None if age is None else round(age.total_seconds()),
            "why": self.why,
            "left_alone": self.problem,
        }


@dataclass(frozen=True)
class Survey:
    """`settled` are open intents that need no more than to be closed; `notes` tell what was seen and left out.

    `left_alone` were found by their names and would be findings, were they old enough. `unattributed` is whatever else
    is listed and bills: owned or not, this look does not know.
    """

    findings: tuple[Finding, ...]
    settled: tuple[Intent, ...]
    notes: tuple[str, ...]
    left_alone: tuple[Finding, ...] = ()
    unattributed: tuple[Finding, ...] = ()

    @property
    def held(self) -> bool:
        """Whether living processes are at work on orders."""
        return any(finding.kind == "held" for finding in self.findings)


def short_span(span: timedelta) -> str:
    """`45 s`, `12 min`, `3.5 h`, `2.1 d`."""
    seconds = span.total_seconds()
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}" if size < 3600 else f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86400:.1f} d"
