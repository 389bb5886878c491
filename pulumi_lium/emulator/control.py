"""The control plane: what a test does to the emulator (design 4.3). Not part of the emulated API; needs no key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from .clock import ClockError, EmulatorClock
from .events import EventError
from .exchange import Answer, Request, envelope
from .faults import FaultRule
from .measurements import MeasurementError
from .scenario import ScenarioError, load_scenario
from .script import Script, ScriptStory
from .service import Service

REQUEST_ID = "control"
"""Stands in the error envelope where a request of the API has its id."""


class ClockMove(BaseModel):
    """`advance_s` in seconds."""

    model_config = ConfigDict(extra="forbid")
    advance_s: float = Field(ge=0, allow_inf_nan=False)


class ControlError(ValueError):
    """A control call that cannot be done; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ControlPlane:
    """One method for each control call: takes the raw body, answers plain JSON."""

    def __init__(self, service: Service, clock: EmulatorClock) -> None:
        self._service = service
        self._clock = clock

    def reset(self, body: bytes) -> dict[str, Any]:
        text = body.decode("utf-8")
        scenario = load_scenario(None if text.strip() in ("", "null", "{}") else text)
        self._service.reset(scenario)
        return {"success": True, "seed": scenario.seed, **self._time()}

    def state(self, body: bytes) -> dict[str, Any]:
        return {**self._service.look(lambda market: market.state()), **self._time()}

    def read_clock(self, body: bytes) -> dict[str, Any]:
        return self._time()

    def move_clock(self, body: bytes) -> dict[str, Any]:
        move = ClockMove.model_validate(_object(body))
        self._clock.advance(move.advance_s)
        self._service.change(lambda market: None)
        return self._time()

    def list_faults(self, body: bytes) -> list[dict[str, Any]]:
        return self._service.faults.rows()

    def add_fault(self, body: bytes) -> dict[str, Any]:
        return self._service.faults.add(FaultRule.model_validate(_object(body)))

    def clear_faults(self, body: bytes) -> dict[str, Any]:
        self._service.faults.clear()
        return {"success": True}

    def journal(self, body: bytes) -> list[dict[str, Any]]:
        return self._service.journal.rows()

    def play(self, body: bytes) -> dict[str, Any]:
        story = ScriptStory.model_validate(_object(body) if body.strip() else {})
        self._service.script = Script.of(story)
        return {"success": True, "steps": len(story.steps)}

    def apply_event(self, body: bytes) -> dict[str, Any]:
        event = _object(body)
        self._service.change(lambda market: market.apply_event(event))
        return {"success": True}

    def load_measurements(self, body: bytes) -> Any:
        report = _object(body)
        return self._service.change(lambda market: market.load_measurements(report))

    def _time(self) -> dict[str, Any]:
        return {"clock": "virtual" if self._clock.virtual else "real", "now_s": self._clock.now()}


@dataclass(frozen=True, slots=True)
class ControlRoute:
    method: str
    name: str
    summary: str
    serve: Callable[[ControlPlane, bytes], Any]
    body: type[BaseModel] | str | None = None
    """The model of the body; a word for what it is where it has no model here."""


CONTROL_ROUTES: tuple[ControlRoute, ...] = (
    ControlRoute(
        "POST",
        "reset",
        "Start over with a scenario (YAML or JSON), or the built-in one",
        ControlPlane.reset,
        "scenario",
    ),
    ControlRoute("GET", "state", "The whole market", ControlPlane.state),
    ControlRoute("GET", "clock", "The market's time", ControlPlane.read_clock),
    ControlRoute("POST", "clock", "Move a virtual clock", ControlPlane.move_clock, ClockMove),
    ControlRoute("GET", "faults", "The faults in force", ControlPlane.list_faults),
    ControlRoute("POST", "faults", "Put a fault in force", ControlPlane.add_fault, FaultRule),
    ControlRoute("DELETE", "faults", "Clear all faults", ControlPlane.clear_faults),
    ControlRoute("GET", "journal", "Every API request since the reset", ControlPlane.journal),
    ControlRoute("POST", "script", "Tell a story; an empty one ends it", ControlPlane.play, ScriptStory),
    ControlRoute("POST", "events", "Something happens in the market", ControlPlane.apply_event, "event"),
    ControlRoute("POST", "measurements", "Results of a fabric's measurement", ControlPlane.load_measurements, "report"),
)


def respond(control: ControlPlane, request: Request) -> Answer:
    """Serve a request below `/_emulator`. Errors carry the same envelope as the API's, and say what was wrong."""
    name = "/".join(request.segments)
    routes = {route.method: route for route in CONTROL_ROUTES if route.name == name}
    if not routes:
        names = ", ".join(sorted({route.name for route in CONTROL_ROUTES}))
        return _error(404, f"no control call /_emulator/{name}; there are: {names}")
    route = routes.get(request.method)
    if route is None:
        allow = ", ".join(sorted(routes))
        return _error(405, f"/_emulator/{name} knows {allow}", {"allow": allow})
    try:
        return Answer.of_json(200, route.serve(control, request.body))
    except ControlError as error:
        return _error(error.status, str(error))
    except ClockError as error:
        return _error(409, str(error))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(str(part) for part in f['loc']) or 'body'}: {f['msg']}" for f in error.errors())
        return _error(422, faults)
    except RecursionError:
        return _error(422, "body: is nested too deeply")
    except (ScenarioError, EventError, MeasurementError, UnicodeDecodeError) as error:
        return _error(422, str(error))


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ControlError(400, f"body: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ControlError(422, "body: must be a JSON object")
    return value


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Answer:
    return Answer.of_json(status, envelope(status, "control_plane", message, REQUEST_ID), headers)
