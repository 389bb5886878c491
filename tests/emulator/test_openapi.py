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
from schemathesis.specs.openapi.checks import (
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from pulumi_lium.emulator.app import create_app
from pulumi_lium.emulator.asgi import Emulator
from pulumi_lium.emulator.clock import EmulatorClock
from pulumi_lium.emulator.control import CONTROL_ROUTES, ControlPlane
from pulumi_lium.emulator.routes import ROUTES
from pulumi_lium.emulator.scenario import builtin_scenario, load_scenario
from pulumi_lium.emulator.service import Service
from tests.support.clusters import PUBLIC_KEY

KEY = "sk_emulator_owner"
numbers = itertools.count()


def make_app(accounts: list[dict[str, Any]] | None = None) -> FastAPI:
    """The emulator behind FastAPI, in this process; without the rate limit, which random requests would soon meet."""
    told = {**yaml.safe_load(builtin_scenario()), "settings": {"rate_limit": False}}
    clock = EmulatorClock(virtual=True)
    service = Service(load_scenario({**told, "accounts": accounts} if accounts else told), clock)
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
    assert set(order["responses"]) == {"200", "401", "402", "403", "404", "409", "413", "415", "422", "429"}
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


def test_a_spent_budget_is_described_wherever_it_stops_a_call() -> None:
    app = make_app([{"id": "ana", "balance": 1000.0, "keys": [{"key": KEY, "budget": {"daily": 5.0}}]}])
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)

    def call(method: str, path: str, body: Any = None, pod: str = "", status: int = 200) -> Any:
        content = {} if body is None else {"body": body, "media_type": "application/json"}
        case = schema[path][method].Case(path_parameters={"id": pod}, headers={"X-API-KEY": KEY}, **content)
        answer = case.call()
        assert answer.status_code == status, answer.text
        case.validate_response(answer, checks=[status_code_conformance, response_schema_conformance])
        return answer.json()

    order, removal = "/api/executors/cluster/rent", "/api/pods/{id}/schedule-removal"
    template = next(row for row in call("GET", "/api/templates") if "cluster" in row["docker_image"])
    machines = call("GET", "/api/executors/infiniband-clusters")[0]["nodes"][:2]
    body = {
        "pod_name": "train",
        "template_id": template["id"],
        "executor_uuids": [machine["id"] for machine in machines],
        "user_public_key": [PUBLIC_KEY],
    }
    pod = call("POST", order, body)["pod_ids"][0]
    call("POST", removal, {"removal_scheduled_at": "2098-01-01T00:00:00Z"}, pod)
    call("POST", "/_emulator/clock", {"advance_s": 3600})
    call("POST", order, body, status=402)
    call("POST", removal, {"removal_scheduled_at": "2099-01-01T00:00:00Z"}, pod, status=402)
    call("DELETE", removal, pod=pod, status=402)


@control.parametrize()
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_random_control_calls(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=[not_a_server_error])
