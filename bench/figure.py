"""One measured figure, as a row of the table in `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """What was measured, against what in the same run, and the aim; `met` is None where there is no aim."""

    name: str
    value: str
    against: str = ""
    aim: str = ""
    met: bool | None = None

    def row(self) -> str:
        verdict = {True: "yes", False: "no", None: ""}[self.met]
        return f"| {self.name} | {self.value} | {self.against} | {self.aim} | {verdict} |"


HEADING = "| measured | figure | against, in the same run | aim | met |\n|---|---|---|---|---|"


def table(figures: Iterable[Figure]) -> str:
    """A Markdown table."""
    return "\n".join([HEADING, *(figure.row() for figure in figures)])
