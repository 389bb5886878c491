"""Where a process can die: before and after each effect that something outside it can see.

Effects are requests, writes of the intent journal, and saves of the engine's state. Between two effects a process
changes nothing that lasts, so these points are all the moments at which a crash can differ from another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ANY = "any"


class Killed(BaseException):
    """The process is gone; no code of it runs any more."""


@dataclass(frozen=True)
class Kill:
    """Death at one effect: the `nth` (from 0) of this `label` within a step, or of `any` label.

    `when`: `before` the effect happens, `after` it has happened and before anybody hears of it, or `late`: a request
    is on its way, the process dies, and the service gets it `delay` seconds later (orders only; elsewhere as `before`).
    With `engine` only the engine dies: the provider ends its call, and what it returns is saved by nobody.
    """

    label: str
    nth: int
    when: str = "before"
    delay: float = 0.0
    engine: bool = False


class Points:
    """Counts the effects of a step and lets the process die at the chosen one."""

    def __init__(self) -> None:
        self.kill: Kill | None = None
        self.engine_gone = False
        self.hit = 0
        """Kills that have struck."""
        self._left = 0
        self._chosen = False

    def begin(self, kill: Kill | None) -> None:
        """A new process begins, to die at `kill`."""
        self.kill = kill
        self.engine_gone = False
        self._chosen = False
        self._left = kill.nth if kill else 0

    def enter(self, label: str) -> Kill | None:
        """Before an effect. Raises `Killed`; answers the kill where the effect is to come about late."""
        kill = self.kill
        if kill is None or kill.label not in (label, ANY):
            return None
        if self._left:
            self._left -= 1
            return None
        self.kill = None
        self.hit += 1
        if kill.engine:
            self.engine_gone = True
            return None
        if kill.when == "late" and label == "order":
            return kill
        if kill.when != "after":
            raise Killed
        self._chosen = True
        return None

    def around(self, label: str, effect: Callable[[], object]) -> None:
        """An effect that lasts only if somebody lives to bring it about. Raises `Killed`."""
        if self.engine_gone:
            raise Killed
        self.enter(label)
        if self.engine_gone:
            raise Killed
        effect()
        self.leave()

    def leave(self) -> None:
        """After an effect. Raises `Killed`."""
        if self._chosen:
            self._chosen = False
            raise Killed
