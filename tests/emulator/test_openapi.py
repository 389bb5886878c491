"""The generated OpenAPI document, and random requests made from it (no 5xx, answers as documented)."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import schemathesis
import yaml
from fastapi import FastAPI
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection

from pulumi_lium.emulator.app import create_app
from pulumi_lium.emulator.asgi import Emulator
from pulumi_lium.emulator.clock import EmulatorClock
from pulumi_lium.emulator.control import CONTROL_ROUTES, ControlPlane
from pulumi_lium.emulator.routes import ROUTES
from pulumi_lium.emulator.scenario import builtin_scenario, load_scenario
from pulumi_lium.emulator.service import Service

KEY = "sk_emulator_owner"
numbers = itertools.count()


def make_app() -> FastAPI:
    """The emulator behind FastAPI, in this process; without the rate limit, which random requests would soon meet."""
    scenario = load_scenario({**yaml.safe_load(builtin_scenario()), "settings": {"rate_limit": False}})
    clock = EmulatorClock(virtual=True)
    service = Service(scenario, clock)
    return create_app(Emulator(service, ControlPlane(service, clock)))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return make_app().openapi()


def test_every_route_is_described(document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    api = {(route.method, f"/api{route.path}") for route in ROUTES}
    control = {(route.method, f"/_emulator/{route.name}") for route in CONTROL_ROUTES}
    assert described == api | control


def test_the_document_is_valid_openapi(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    schemathesis.openapi.from_dict(document).validate()
    broken = copy.deepcopy(document)
    broken["paths"]["/api/pods"]["get"]["responses"]["200"] = {"content": {}}
    with pytest.raises(Exception, match='"description" is a required property'):
        schemathesis.openapi.from_dict(broken).validate()


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*map(references, node.values()))
        return set().union(*map(references, node)) if isinstance(node, list) else set()

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= known


def test_operation_ids_are_distinct(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert [key for key, group in itertools.groupby(sorted(ids)) if len(list(group)) > 1] == []


def test_what_an_operation_says(document: dict[str, Any]) -> None:
    order = document["paths"]["/api/executors/cluster/rent"]["post"]
    assert order["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ClusterOrderBody"
    }
    assert set(order["responses"]) == {"200", "400", "401", "402", "403", "404", "409", "413", "415", "422", "429"}
    assert order["security"] == [{"ApiKey": []}]
    assert [parameter["name"] for parameter in order["parameters"]] == ["Idempotency-Key"]
    body = document["components"]["schemas"]["ClusterOrderBody"]
    assert set(body["required"]) == {"pod_name", "template_id", "executor_uuids", "user_public_key"}
    assert body["properties"]["executor_uuids"]["minItems"] == 2
    assert document["paths"]["/api/executors"]["get"]["security"] == [{"ApiKey": []}, {}]


described = schemathesis.openapi.from_asgi("/openapi.json", make_app())
api = described.include(path_regex="^/api/")
control = described.include(path_regex="^/_emulator/")


@api.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_random_requests(case: schemathesis.Case) -> None:
    # A query parameter that the service does not know is ignored (contract 4.5), so only bodies can be wrong.
    ignored = [negative_data_rejection] if case.method == "GET" else []
    # One idempotency key with two bodies is refused (contract 4.8), which no schema can say.
    headers = {"X-API-KEY": KEY, "Idempotency-Key": f"key-{next(numbers)}"}
    case.call_and_validate(headers=headers, excluded_checks=ignored)


@control.parametrize()
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_random_control_calls(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=[not_a_server_error])
