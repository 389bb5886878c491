"""Field cases that only the real engine can show: B19 (secrets), B20 (import), B22 (packaging)."""

from __future__ import annotations

import json

import pytest

from tests.engine.conftest import MakeStack
from tests.field.story import Story
from tests.support.clusters import bills, cluster, live, market, program, said
from tests.support.pulumi_stack import Outcome, Stack
from tools.emulator import Emulator

pytestmark = pytest.mark.engine

MARKER = Story("B19", "api-401.json").text("marker.txt").strip()


def traces(stack: Stack, outcomes: list[Outcome]) -> str:
    """All that a run leaves: output, events, state, exports, logs, configuration."""
    parts = [outcome.text + json.dumps(outcome.events) for outcome in outcomes]
    parts += [json.dumps(stack.export()), json.dumps(stack.export("--show-secrets")["deployment"].get("resources"))]
    parts += [
        path.read_text(errors="replace")
        for path in stack.root.rglob("*")
        if path.is_file() and "plugins" not in path.parts
    ]
    return "\n".join(parts)


@pytest.mark.parametrize("place", ["config", "environment"])
def test_b19_the_key_is_in_no_artefact(
    make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator, place: str
) -> None:
    scenario = market()
    scenario["accounts"][0]["keys"] = [{"key": MARKER}]
    emulator.reset(scenario)
    env = {"LIUM_BASE_URL": engine_env["LIUM_BASE_URL"]}
    if place == "environment":
        env["LIUM_API_KEY"] = MARKER
    stack = make_stack(program(cluster()), env=env)
    if place == "config":
        stack.set_config("lium:apiKey", MARKER, secret=True)
    outcomes = [stack.preview("--diff"), stack.up(), stack.refresh()]
    bills(emulator, 2)
    emulator.script(Story("B19", "api-401.json").told["steps"])
    outcomes += [stack.refresh(ok=False), stack.destroy(ok=False)]
    assert "Invalid API key" in outcomes[-2].text
    assert "Traceback" not in outcomes[-2].text
    emulator.script([])
    outcomes.append(stack.destroy())
    bills(emulator, 0)
    assert MARKER not in traces(stack, outcomes)


def test_b20_the_engine_s_own_import_says_what_to_use_instead(
    make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator
) -> None:
    emulator.reset(market())
    cluster_id = Story("B20").text("id.txt").strip()
    text = program(cluster(opts="OPTS")).replace("'OPTS'", f"pulumi.ResourceOptions(import_={cluster_id!r})")
    outcome = make_stack(text, env=engine_env).up(ok=False)
    assert f"adopt='{cluster_id}'" in said(outcome)
    assert "KeyError" not in outcome.text
    bills(emulator, 0)


def test_b22_two_resources_declared_in_a_module(
    make_stack: MakeStack, engine_env: dict[str, str], emulator: Emulator
) -> None:
    emulator.reset(market())
    story = Story("B20").folder.parent / "B22"
    layout = (story / "layout.txt").read_text()
    assert "__main__.py      import clusters" in layout
    module = program(cluster("a", "first"), cluster("b", "second"))
    stack = make_stack("import clusters\n", files={"clusters.py": module}, env=engine_env)
    outcomes = [stack.preview(), stack.up(), stack.refresh()]
    assert len({pod["cluster_id"] for pod in live(emulator)}) == 2
    outcomes.append(stack.destroy())
    bills(emulator, 0)
    text = "".join(outcome.text for outcome in outcomes)
    for wrong in (story / "error-texts.txt").read_text().splitlines():
        assert wrong not in text
